//! Expectations of scenarios, the errors they report, and the recording.

use cursor_sim::{Side, Sim, VerdictOutcome};
use serde_json::{Value, json};

use super::raw_client::*;

/// Answers the first exec with these messages; returns how the run ended.
async fn answer_exec(sim: &Sim, answers: &[Value]) -> StreamEvent {
    let mut run = run(sim, "x").await;
    let asked = with_timeout(run.message()).await;
    assert!(asked.get("execServerMessage").is_some(), "{asked}");
    for answer in answers {
        run.send_message(answer.clone());
    }
    loop {
        match with_timeout(run.next()).await {
            StreamEvent::Message(_) => {}
            other => return other,
        }
    }
}

fn reply(id: u32, result: Value) -> Value {
    let mut message = result;
    message["id"] = json!(id);
    json!({ "execClientMessage": message })
}

fn close(id: u32) -> Value {
    json!({ "execClientControlMessage": { "streamClose": { "id": id } } })
}

const READ: &str = "{ exec = { readArgs = { path = \"/a\" } }, expect = { readResult = { success = { content = \"hi\", truncated = false } } }, timeout_ms = 200 }";

#[tokio::test]
async fn an_expected_reply_completes_the_run() {
    let sim = start_with(&one_run(&format!("{READ}, {{ end = true }}"))).await;
    let good = reply(
        1,
        json!({ "readResult": { "success": { "content": "hi", "path": "/a" } } }),
    );
    assert_eq!(
        answer_exec(&sim, &[good, close(1)]).await,
        StreamEvent::End(json!({}))
    );
    let verdict = verdict(&sim).await;
    assert_eq!(
        (verdict.outcome, verdict.attempt),
        (VerdictOutcome::Completed, 1)
    );
    assert_eq!(verdict.scenario, "t");
}

#[tokio::test]
async fn an_unexpected_reply_ends_the_run_and_is_recorded() {
    let bye = reply(
        1,
        json!({ "readResult": { "success": { "content": "bye" } } }),
    );
    let hi = reply(
        1,
        json!({ "readResult": { "success": { "content": "hi" } } }),
    );
    let thrown = json!({ "execClientControlMessage": { "throw": { "id": 1, "error": "no" } } });
    let cases: [(&[Value], &str); 9] = [
        (
            &[bye, close(1)],
            "the reply: expected /readResult/success/content \"hi\", got \"bye\"",
        ),
        (
            &[],
            "expected an answer to exec 1 within 200 ms, got nothing",
        ),
        (
            std::slice::from_ref(&hi),
            "expected streamClose after the reply to exec 1 within 200 ms, got nothing",
        ),
        (
            &[thrown],
            "expected a reply, got throw {\"id\":1,\"error\":\"no\"}",
        ),
        (
            &[reply(1, json!({ "lsResult": {} }))],
            "the client broke the protocol: a reply of kind lsResult to exec 1 (readArgs), expected readResult",
        ),
        (
            &[reply(5, json!({ "readResult": {} }))],
            "the client broke the protocol: a reply (readResult) to exec 5, which was never sent",
        ),
        (
            &[hi.clone(), hi.clone()],
            "the client broke the protocol: a second reply to exec 1 (readArgs)",
        ),
        (
            &[close(1)],
            "the client broke the protocol: streamClose of exec 1 before any reply",
        ),
        (
            &[json!({ "kvClientMessage": { "id": 9, "setBlobResult": {} } })],
            "the client broke the protocol: an answer (setBlobResult) to kv request 9, which was never sent",
        ),
    ];
    for (answers, reason) in cases {
        let sim = start_with(&one_run(&format!("{READ}, {{ end = true }}"))).await;
        let message = format!("scenario t: step 1 (test.toml:4): {reason}");
        assert_eq!(
            answer_exec(&sim, answers).await,
            StreamEvent::End(
                json!({ "error": { "code": "permission_denied", "message": message } })
            )
        );
        let verdict = verdict(&sim).await;
        assert_eq!(verdict.outcome, VerdictOutcome::Failed);
        assert_eq!(verdict.failures, [message]);
    }
}

#[tokio::test]
async fn a_throw_needs_no_stream_close() {
    let steps = "{ exec = { executeHookArgs = {} }, throws = \"No handler\" }, { kv_set = { text = \"x\" } }, { end = true }";
    for closes in [false, true] {
        let sim = start_with(&one_run(steps)).await;
        let mut run = run(&sim, "x").await;
        run.message().await;
        run.send_message(json!({ "execClientControlMessage": { "throw": { "id": 1, "error": "No handler found" } } }));
        if closes {
            run.send_message(close(1));
        }
        let set = run.message().await;
        run.answer_kv(&set["kvServerMessage"], &mut BlobMap::new());
        assert_eq!(run.next().await, StreamEvent::End(json!({})));
    }
}

#[tokio::test]
async fn captured_parts_of_replies_are_variables() {
    let sim = start_with(&one_run(
        "{ exec = { requestContextArgs = {} } },
         { exec = { backgroundShellSpawnArgs = { command = \"c $$WS\", workingDirectory = \"$WS\" } }, capture = { SHELL = \"/backgroundShellSpawnResult/success/shellId\" } },
         { exec = { writeShellStdinArgs = { shellId = \"$SHELL\", chars = \"to $SHELL in $WS for $USER_TEXT, $HOME\" } } },
         { end = true }",
    ))
    .await;
    let mut run = run(&sim, "hello").await;
    run.message().await;
    run.send_message(reply(1, json!({ "requestContextResult": { "success": { "requestContext": { "env": { "workspacePaths": ["/ws"] } } } } })));
    run.send_message(close(1));
    let spawn = &run.message().await["execServerMessage"]["backgroundShellSpawnArgs"];
    assert_eq!(
        spawn,
        &json!({ "command": "c $WS", "workingDirectory": "/ws" })
    );
    run.send_message(reply(
        2,
        json!({ "backgroundShellSpawnResult": { "success": { "shellId": 41 } } }),
    ));
    run.send_message(close(2));
    let write = &run.message().await["execServerMessage"]["writeShellStdinArgs"];
    assert_eq!(
        write,
        &json!({ "shellId": 41, "chars": "to 41 in /ws for hello, $HOME" })
    );
}

#[tokio::test]
async fn attempts_play_in_order_and_must_return_the_checkpoint() {
    let scenario = "name = \"t\"
[[run]]
steps = [{ checkpoint = { turns = [\"AAE=\"] } }, { half_close = true }]
[[run]]
steps = [{ expect_request = { action = { resumeAction = {} }, conversationState = \"$CHECKPOINT\" } }, { expect_state = \"last checkpoint\" }, { end = true }]
";
    let sim = start_with(scenario).await;
    let token = access_token(&sim).await;
    let mut connection = Http2Client::connect(&sim).await;
    let mut first = connection.run(&token, user_message("x")).await;
    let state = first.message().await["conversationCheckpointUpdate"].clone();
    assert_eq!(first.next().await, StreamEvent::Closed { truncated: false });
    let resume = |state: Value| json!({ "conversationState": state, "action": { "resumeAction": {} }, "conversationId": "conversation-1", "runId": "run-1" });
    let mut second = connection.run(&token, resume(state)).await;
    assert_eq!(second.next().await, StreamEvent::End(json!({})));
    // The last script repeats; this time the client sends another state.
    let mut third = connection
        .run(&token, resume(json!({ "turns": ["AAE=", "AAI="] })))
        .await;
    let StreamEvent::End(end) = with_timeout(third.next()).await else {
        panic!("expected the end");
    };
    assert!(
        end["error"]["message"]
            .as_str()
            .unwrap()
            .contains("/conversationState")
    );
    let attempts: Vec<_> = sim
        .recording()
        .verdicts()
        .iter()
        .map(|v| (v.attempt, v.outcome))
        .collect();
    assert_eq!(
        attempts,
        [
            (1, VerdictOutcome::Completed),
            (2, VerdictOutcome::Completed),
            (3, VerdictOutcome::Failed)
        ]
    );
}

#[tokio::test]
async fn messages_select_scenarios_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        let text = format!("name = \"{name}\"\n[[run]]\nsteps = [{{ text = \"{name}\" }}]\n");
        std::fs::write(folder.path().join(format!("{name}.toml")), text).unwrap();
    }
    let sim = Sim::start(cursor_sim::Options {
        scenarios: vec![cursor_sim::ScenarioSource::Path(folder.path().into())],
        ..Default::default()
    })
    .await
    .unwrap();
    let mut two = run(&sim, "@two please").await;
    assert_eq!(
        two.message().await,
        json!({ "interactionUpdate": { "textDelta": { "text": "two" } } })
    );
    let mut none = run(&sim, "@three").await;
    assert_eq!(
        none.next().await,
        StreamEvent::End(json!({ "error": {
            "code": "permission_denied",
            "message": "no scenario is named \"three\"; there are one, two",
        }}))
    );
}

#[tokio::test]
async fn errors_have_their_details() {
    let sim = start_with(&one_run(
        "{ end = { code = \"resource_exhausted\", message = \"Error\", error = \"ERROR_RATE_LIMITED\", title = \"T\", detail = \"D\", retryable = false, metadata = { kind = \"x\" } } }",
    ))
    .await;
    let mut run = run(&sim, "x").await;
    let StreamEvent::End(end) = run.next().await else {
        panic!("expected the end");
    };
    assert_eq!(end["metadata"], json!({ "kind": ["x"] }));
    assert_eq!(end["error"]["code"], "resource_exhausted");
    let detail = &end["error"]["details"][0];
    assert_eq!(detail["type"], "aiserver.v1.ErrorDetails");
    use base64::Engine as _;
    let value = base64::engine::general_purpose::STANDARD_NO_PAD
        .decode(detail["value"].as_str().unwrap())
        .unwrap();
    assert_eq!(
        decode("aiserver.v1.ErrorDetails", &value),
        json!({ "error": "ERROR_RATE_LIMITED", "details": { "title": "T", "detail": "D", "isRetryable": false } })
    );
}

#[tokio::test]
async fn a_first_message_other_than_a_run_request_fails() {
    let sim = start(None).await;
    let token = access_token(&sim).await;
    let mut connection = Http2Client::connect(&sim).await;
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str())];
    let (response, mut send) = connection
        .open("/agent.v1.AgentService/Run", &headers)
        .await;
    // Headers are sent at once, before any message of the client.
    let response = with_timeout(response).await.unwrap();
    assert_eq!(response.status(), 200);
    send.send_data(bytes::Bytes::from_static(&[0, 0, 0, 0, 2, 0x3a, 0]), false)
        .unwrap();
    assert_eq!(
        verdict(&sim).await.failures,
        ["expected a runRequest first, got another message"]
    );
}

#[tokio::test]
async fn the_recording_has_everything_but_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let sim = Sim::start(cursor_sim::Options {
        record: Some(folder.path().into()),
        scenarios: vec![cursor_sim::ScenarioSource::Toml {
            label: "t.toml".into(),
            text: one_run("{ text = \"hi\" }, { send_hex = \"0a04 9a060178\" }, { end = true }"),
        }],
        ..Default::default()
    })
    .await
    .unwrap();
    let token = access_token(&sim).await;
    let mut connection = Http2Client::connect(&sim).await;
    let mut run = connection.run(&token, user_message("x")).await;
    while !matches!(run.next().await, StreamEvent::End(_)) {}
    verdict(&sim).await;

    let frames = sim.recording().frames();
    let kinds: Vec<_> = frames
        .iter()
        .map(|frame| (frame.from, frame.kind.as_str()))
        .collect();
    assert_eq!(
        kinds,
        [
            (Side::Client, "runRequest"),
            (Side::Server, "interactionUpdate.textDelta"),
            (Side::Server, "interactionUpdate.unknown(99)"),
            (Side::Server, "endStream"),
        ]
    );
    assert_eq!(
        frames[2].json,
        json!({ "interactionUpdate": { "unknownFields": [99] } })
    );
    assert_eq!(
        (frames[1].hex.as_str(), frames[1].request_id.as_str()),
        ("0a060a040a026869", "request-1")
    );
    let requests = sim.recording().requests();
    assert_eq!(requests[0].headers["authorization"], "Bearer <api key>");
    assert_eq!(
        requests[1].headers["authorization"],
        "Bearer <access token>"
    );
    assert_eq!(requests[1].status, Some(200));

    let over_http = http1(sim.address(), "GET", "/__sim/recording", &[], b"")
        .await
        .json();
    assert_eq!(over_http["frames"].as_array().unwrap().len(), 4);
    assert_eq!(over_http["requests"].as_array().unwrap().len(), 2);
    assert_eq!(over_http["verdicts"][0]["outcome"], "completed");
    sim.shutdown().await;

    let mut written = over_http.to_string();
    for (name, lines) in [("requests", 2), ("frames", 4), ("verdicts", 1)] {
        let text = std::fs::read_to_string(folder.path().join(format!("{name}.jsonl"))).unwrap();
        assert_eq!(text.lines().count(), lines, "{name}");
        for line in text.lines() {
            serde_json::from_str::<Value>(line).unwrap();
        }
        written.push_str(&text);
    }
    for secret in ["crsr_raw_client", token.as_str(), "00112233445566778899"] {
        assert!(!written.contains(secret), "{secret} was recorded");
    }
}
