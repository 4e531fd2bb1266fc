//! The official client against the simulator: what it reports and what it sends. Each test runs
//! over TLS, h2c and HTTP/1.1.

use serde_json::{Value as Json, json};

use test_support::official_client::{
    McpHttpServer, OfficialClient, PNG, assert_finished, mcp_stdio, only_send,
};
use test_support::simulator::{Recording, Simulator, TRANSPORTS, Transport};

/// Runs a spec with a new simulator and a new agent, over every transport.
fn everywhere(spec: Json, check: impl Fn(&Json, &Recording, Transport)) {
    for transport in TRANSPORTS {
        eprintln!("over {transport:?}");
        let simulator = Simulator::start(transport);
        let report = OfficialClient::new().drive(&simulator, spec.clone());
        check(&report, &simulator.recorded(), transport);
    }
}

fn ask(text: &str) -> Json {
    json!({"agent": {}, "sends": [{"text": text}]})
}

#[test]
fn hello_with_usage_over_the_transport_it_should_use() {
    let spec = json!({"models": true, "agent": {}, "sends": [{"text": "@hello there"}]});
    everywhere(spec, |report, recording, transport| {
        let send = only_send(report);
        assert_finished(send, "Hello, world!");
        assert_eq!(send["text"], "Hello, world!");
        let usage = &send["usage"];
        assert_eq!(usage["inputTokens"], 100, "{usage}");
        assert_eq!(usage["outputTokens"], 20, "{usage}");
        let models = report["models"].as_array().unwrap();
        assert!(
            models.iter().any(|model| model["id"] == "composer-2"),
            "{models:?}"
        );

        recording.assert_played(&["completed"]);
        let (path, version) = match transport {
            Transport::Tls | Transport::H2c => ("/agent.v1.AgentService/Run", "2"),
            Transport::Http1 => ("/agent.v1.AgentService/RunSSE", "1.1"),
        };
        let runs = recording.requests(path);
        assert_eq!(runs.len(), 1);
        assert_eq!(runs[0]["version"], version);
        assert_eq!(runs[0]["headers"]["authorization"], "Bearer <access token>");
        assert_eq!(runs[0]["headers"]["x-cursor-client-version"], "sdk-1.0.32");
        let request = &recording.client("runRequest")[0]["runRequest"];
        assert_eq!(request["conversationId"], report["agentId"]);
        assert_eq!(
            request["action"]["userMessageAction"]["userMessage"]["text"],
            "@hello there"
        );
        assert_eq!(request["requestedModel"]["modelId"], "composer-2");
        assert!(!recording.requests("/v1/models").is_empty());
        assert!(!recording.requests("/auth/exchange_user_api_key").is_empty());
    });
}

#[test]
fn thinking_and_text() {
    everywhere(ask("@thinking please"), |report, recording, _| {
        let send = only_send(report);
        assert_eq!(send["status"], "finished", "{send}");
        assert!(!send["thinking"].as_str().unwrap().is_empty());
        assert!(!send["text"].as_str().unwrap().is_empty());
        assert!(
            send["deltaTypes"]["thinking-delta"].as_u64().unwrap() > 0,
            "{send}"
        );
        recording.assert_played(&["completed"]);
    });
}

/// The scenario checks every reply, so it only has to complete.
fn plays_through(name: &str) {
    everywhere(ask(&format!("@{name} go")), |report, recording, _| {
        assert_eq!(
            only_send(report)["status"],
            "finished",
            "{report} {:?}",
            recording.verdicts()
        );
        recording.assert_played(&["completed"]);
        let execs = recording
            .client("execClientControlMessage.streamClose")
            .len();
        assert!(execs > 0, "no exec was closed");
    });
}

#[test]
fn file_tools() {
    plays_through("tools-files");
}

#[test]
fn shell_tools() {
    plays_through("tools-shell");
}

#[test]
fn pi_tools() {
    plays_through("tools-pi");
}

#[test]
fn other_tools_and_kinds_it_refuses() {
    plays_through("tools-misc");
}

#[test]
fn mcp_over_stdio() {
    let spec = json!({"agent": {"mcpServers": {"oracle": mcp_stdio()}},
                      "sends": [{"text": "@mcp go"}], "deadlineMs": 50_000});
    everywhere(spec, |report, recording, _| {
        assert_finished(only_send(report), "Done with MCP.");
        recording.assert_played(&["completed"]);
        assert_eq!(recording.client("execClientMessage.mcpResult").len(), 5);
    });
}

#[test]
fn mcp_over_http() {
    let sdk = OfficialClient::new();
    let server = McpHttpServer::start(&sdk);
    let spec = json!({"agent": {"mcpServers": {"oracle": {"url": server.url}}},
                      "sends": [{"text": "@mcp go"}], "deadlineMs": 50_000});
    everywhere(spec, |report, recording, _| {
        assert_finished(only_send(report), "Done with MCP.");
        recording.assert_played(&["completed"]);
    });
}

#[test]
fn blobs() {
    everywhere(ask("@kv go"), |report, recording, _| {
        assert_eq!(only_send(report)["status"], "finished", "{report}");
        recording.assert_played(&["completed"]);
        assert!(!recording.client("kvClientMessage.setBlobResult").is_empty());
        let gets = recording.client("kvClientMessage.getBlobResult");
        let unknown = gets.iter().filter(|get| {
            get["kvClientMessage"]["getBlobResult"]
                .get("blobData")
                .is_none()
        });
        assert_eq!(unknown.count(), 1, "{gets:?}");
    });
}

#[test]
fn every_question_is_answered() {
    everywhere(ask("@queries go"), |report, recording, _| {
        assert_eq!(only_send(report)["status"], "finished", "{report}");
        recording.assert_played(&["completed"]);
        let kinds = |from: &str, prefix: &str| {
            let mut kinds: Vec<String> = recording
                .frames(1, from)
                .iter()
                .filter_map(|frame| frame["kind"].as_str().unwrap().strip_prefix(prefix))
                .map(str::to_owned)
                .collect();
            kinds.sort_unstable();
            kinds
        };
        let mut asked = kinds("server", "interactionQuery.");
        assert_eq!(kinds("client", "interactionResponse.").len(), asked.len());
        asked.dedup();
        assert_eq!(asked.len(), 11, "{asked:?}");
    });
}

#[test]
fn a_drop_after_a_checkpoint_is_resumed() {
    everywhere(ask("@checkpoint-drop go"), |report, recording, _| {
        assert_finished(
            only_send(report),
            "before checkpoint. after checkpoint, lost. resumed.",
        );
        let requests = recording.client("runRequest");
        assert_eq!(requests.len(), 2);
        assert!(
            requests[1]["runRequest"]["action"]
                .get("resumeAction")
                .is_some()
        );
        assert_eq!(
            requests[0]["runRequest"]["runId"],
            requests[1]["runRequest"]["runId"]
        );
        let failures: Vec<_> = recording
            .verdicts()
            .iter()
            .flat_map(|verdict| verdict["failures"].as_array().unwrap())
            .collect();
        assert!(failures.is_empty(), "{failures:?}");
    });
}

#[test]
fn a_second_send_carries_the_last_checkpoint() {
    let spec =
        json!({"agent": {}, "sends": [{"text": "@followup one"}, {"text": "@followup and then"}]});
    everywhere(spec, |report, recording, _| {
        let sends = report["sends"].as_array().unwrap();
        assert!(
            sends.iter().all(|send| send["status"] == "finished"),
            "{report}"
        );
        recording.assert_played(&["completed", "completed"]);
        let requests = recording.client("runRequest");
        let checkpoints: Vec<&Json> = recording
            .frames(1, "server")
            .into_iter()
            .filter(|frame| frame["kind"] == "conversationCheckpointUpdate")
            .collect();
        assert_eq!(
            requests[1]["runRequest"]["conversationState"],
            checkpoints.last().unwrap()["json"]["conversationCheckpointUpdate"]
        );
    });
}

#[test]
fn cancelling_ends_the_stream() {
    let spec = json!({"agent": {}, "sends": [{"text": "@cancel go", "cancelOn": {"text": "cancel me"}},
                                             {"text": "@hello again"}]});
    everywhere(spec, |report, recording, _| {
        let sends = report["sends"].as_array().unwrap();
        assert_eq!(sends[0]["status"], "cancelled", "{report}");
        assert_eq!(sends[1]["status"], "finished", "{report}");
        let outcome = &recording.verdicts()[0];
        assert_eq!(outcome["failures"], json!([]), "{outcome}");
    });
}

#[test]
fn steering_reaches_the_run() {
    let spec = json!({"agent": {}, "sends": [
        {"text": "@steer go", "steerOn": {"text": "working", "message": "steer me left"}}]});
    everywhere(spec, |report, recording, _| {
        let send = only_send(report);
        assert_eq!(send["status"], "finished", "{report}");
        assert!(send["steer"].to_string().contains("delivered"), "{send}");
        recording.assert_played(&["completed"]);
        let injected = recording.client("conversationAction.injectContextAction");
        let text = &injected[0]["conversationAction"]["injectContextAction"]["userContext"]["userMessage"]
            ["text"];
        assert_eq!(text, "steer me left");
    });
}

#[test]
fn compressed_envelopes() {
    everywhere(ask("@gzip go"), |report, recording, _| {
        assert_eq!(only_send(report)["status"], "finished", "{report}");
        recording.assert_played(&["completed"]);
        let compressed = recording
            .frames(1, "server")
            .iter()
            .filter(|frame| frame["flags"].as_u64().unwrap() & 1 == 1)
            .count();
        assert!(compressed > 0);
    });
}

#[test]
fn messages_of_a_newer_server_are_survived() {
    everywhere(ask("@unknown go"), |report, _, _| {
        assert_finished(only_send(report), "still here");
    });
}

#[test]
fn images_modes_and_parameters_arrive() {
    let spec = json!({"agent": {"model": {"id": "grok-4.5", "params": [{"id": "effort", "value": "high"}]},
                                "mode": "plan"},
                      "sends": [{"text": "@hello img", "images": [PNG]}]});
    let simulator = Simulator::start(Transport::H2c);
    let report = OfficialClient::new().drive(&simulator, spec);
    assert_finished(only_send(&report), "Hello, world!");
    let recording = simulator.recorded();
    let request = &recording.client("runRequest")[0]["runRequest"];
    let message = &request["action"]["userMessageAction"]["userMessage"];
    let image = &message["selectedContext"]["selectedImages"][0];
    assert_eq!(
        (image["data"].as_str(), image["mimeType"].as_str()),
        (Some(PNG), Some("image/png"))
    );
    assert_eq!(message["mode"], "AGENT_MODE_PLAN");
    assert_eq!(
        request["requestedModel"]["parameters"],
        json!([{"id": "effort", "value": "high"}])
    );
}

#[test]
fn the_built_in_responder_remembers() {
    for transport in [Transport::Tls, Transport::Http1] {
        let simulator = Simulator::responder(transport);
        let spec = json!({"agent": {}, "sends": [
            {"text": "My dog is called Waldo."}, {"text": "What did I say first?"}]});
        let report = OfficialClient::new().drive(&simulator, spec);
        let sends = report["sends"].as_array().unwrap();
        assert_eq!(sends[1]["status"], "finished", "{report}");
        assert!(
            sends[1]["text"].as_str().unwrap().contains("Waldo"),
            "{report}"
        );
    }
}
