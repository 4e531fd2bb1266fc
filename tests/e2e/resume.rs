//! What survives another turn, another sidecar, another window.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use test_support::rpc_session::{RpcSession, tool};
use test_support::scenario::{END, Steps, playing, script};
use test_support::simulator::{Simulator, Transport};

fn state(folder: &tempfile::TempDir) -> [(&str, &str); 1] {
    [("PI_CURSOR_STATE_DIR", folder.path().to_str().unwrap())]
}

/// Returns the journals in a state folder.
fn journals(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder.join("conversations"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("journal"))
        .filter(|path| path.exists())
        .collect()
}

fn request(recording: &test_support::simulator::Recording, n: usize) -> Json {
    recording.client("runRequest")[n]["runRequest"].clone()
}

#[test]
fn another_sidecar_continues_from_the_checkpoint() {
    let simulator = Simulator::start(Transport::H2c);
    let folder = tempfile::tempdir().unwrap();
    let mut talk = RpcSession::new(&simulator, "s", &state(&folder));
    assert_eq!(talk.prompt("@followup one").text, "First answer.");
    let mut later = talk.moved_to(&simulator, &state(&folder));
    drop(talk);
    assert_eq!(later.prompt("@followup two").text, "Follow-up answer.");
    // The scenario checks the last checkpoint and its blobs.
    let recording = simulator.recorded();
    recording.assert_played(&["completed", "completed"]);
    assert_eq!(
        request(&recording, 0)["conversationId"],
        request(&recording, 1)["conversationId"]
    );
    let said = &request(&recording, 1)["action"]["userMessageAction"]["userMessage"]["text"];
    assert_eq!(said, "@followup two");
}

#[test]
fn a_damaged_journal_is_reported_and_the_history_sent_again() {
    let simulator = Simulator::start(Transport::H2c);
    let folder = tempfile::tempdir().unwrap();
    let mut talk = RpcSession::new(&simulator, "s", &state(&folder));
    talk.prompt("@hello one");
    let journal = &journals(folder.path())[0];
    let mut bytes = std::fs::read(journal).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(journal, bytes).unwrap();
    let taken = talk.prompt("@hello two");
    assert_eq!(taken.stop, "stop", "{taken:?}");
    assert_eq!(taken.notices.len(), 1);
    assert!(taken.notices[0].contains("set aside"), "{taken:?}");
    let recording = simulator.recorded();
    let roots = &request(&recording, 1)["conversationState"]["rootPromptMessagesJson"];
    assert_eq!(roots.as_array().unwrap().len(), 2, "both earlier messages");
}

#[test]
fn a_session_at_work_elsewhere_is_not_touched() {
    let simulator = Simulator::start(Transport::H2c);
    let folder = tempfile::tempdir().unwrap();
    let mut one = RpcSession::new(&simulator, "s", &state(&folder));
    one.user("@cancel go");
    let turn = one.begin();
    assert_eq!(one.host.receive()["method"], "turn/event");
    let mut other = RpcSession::new(&simulator, "s", &state(&folder));
    let taken = other.prompt("@hello me too");
    assert_eq!(taken.stop, "error");
    assert!(taken.error.contains("another cursor-sidecar"), "{taken:?}");
    let cancel = json!({"turnId": turn});
    one.host
        .send(&json!({"jsonrpc": "2.0", "id": 1, "method": "turn/cancel", "params": cancel}));
    assert_eq!(one.finish(&turn).stop, "aborted");
}

#[test]
fn a_paused_turn_is_gone_on_with_after_a_crash() {
    let steps = r#"{ text = "Looking. " }, { checkpoint = "auto" }, { exec = { mcpArgs = { name = "pi__look", providerIdentifier = "pi", toolName = "pi__look", toolCallId = "c", args = {} } }, open = true, name = "a" }, { expect_cancel = true }"#;
    let after = r#"{ expect_state = "last checkpoint" }, { text = "It is 42." }, { checkpoint = "auto" }, { usage = {} }, { end = true }"#;
    let simulator = test_support::scenario::script(&[steps, after]);
    let folder = tempfile::tempdir().unwrap();
    let mut talk = RpcSession::new(&simulator, "s", &state(&folder));
    talk.tools = vec![tool("look")];
    let taken = talk.prompt("go");
    assert_eq!(taken.stop, "toolUse");
    let mut later = talk.moved_to(&simulator, &state(&folder));
    talk.host.kill();
    later.result(&taken.calls[0], json!([{"type": "text", "text": "42"}]));
    let taken = later.turn();
    assert_eq!(
        (taken.stop.as_str(), taken.text.as_str()),
        ("stop", "It is 42."),
        "{taken:?}"
    );
    let recording = simulator.recorded();
    let said = request(&recording, 1)["action"]["userMessageAction"]["userMessage"]["text"].clone();
    assert!(said.as_str().unwrap().contains("42"), "{said}");
}

#[test]
fn another_key_is_another_conversation() {
    let simulator = Simulator::start(Transport::H2c);
    let folder = tempfile::tempdir().unwrap();
    let mut talk = RpcSession::new(&simulator, "s", &state(&folder));
    talk.prompt("@hello one");
    talk.user("@hello two");
    let mut params = talk.params();
    params["apiKey"] = json!("crsr_other");
    talk.host
        .send(&json!({"jsonrpc": "2.0", "id": "k", "method": "turn/start", "params": params}));
    assert_eq!(talk.finish("k").stop, "stop");
    let recording = simulator.recorded();
    assert_ne!(
        request(&recording, 0)["conversationId"],
        request(&recording, 1)["conversationId"]
    );
}

#[test]
fn a_request_beside_the_session_leaves_no_trace() {
    let simulator = Simulator::start(Transport::H2c);
    let folder = tempfile::tempdir().unwrap();
    let mut talk = RpcSession::new(&simulator, "s", &state(&folder));
    talk.prompt("@followup one");
    let side = json!({"turnId": "side", "sessionId": "x", "kind": "side", "workspace": "/workspace",
        "messages": [{"role": "user", "content": "@hello summarize", "timestamp": 1}],
        "model": {"id": "composer-2"}});
    talk.host
        .send(&json!({"jsonrpc": "2.0", "id": "side", "method": "turn/start", "params": side}));
    let kept = talk.messages.clone();
    assert_eq!(talk.finish("side").stop, "stop");
    talk.messages = kept;
    assert_eq!(talk.prompt("@followup two").text, "Follow-up answer.");
    assert_eq!(journals(folder.path()).len(), 1);
    simulator
        .recorded()
        .assert_played(&["completed", "completed", "completed"]);
}

#[test]
fn invalidating_forgets_on_disk_too() {
    let simulator = Simulator::start(Transport::H2c);
    let folder = tempfile::tempdir().unwrap();
    let mut talk = RpcSession::new(&simulator, "s", &state(&folder));
    talk.prompt("@hello one");
    assert_eq!(journals(folder.path()).len(), 1);
    let mut later = talk.moved_to(&simulator, &state(&folder));
    drop(talk);
    let answer = later
        .host
        .call("session/invalidate", json!({"sessionId": "s"}));
    assert!(answer.get("error").is_none());
    assert_eq!(journals(folder.path()).len(), 0);
    later.prompt("@hello two");
    let recording = simulator.recorded();
    assert_ne!(
        request(&recording, 0)["conversationId"],
        request(&recording, 1)["conversationId"]
    );
}

#[test]
fn a_folder_that_cannot_be_written_is_reported_and_survived() {
    let simulator = Simulator::start(Transport::H2c);
    let file = tempfile::NamedTempFile::new().unwrap();
    let env = [("PI_CURSOR_STATE_DIR", file.path().to_str().unwrap())];
    let mut talk = RpcSession::new(&simulator, "s", &env);
    let taken = talk.prompt("@followup one");
    assert_eq!(taken.text, "First answer.", "{taken:?}");
    assert!(
        taken
            .notices
            .iter()
            .any(|notice| notice.contains("will not survive")),
        "{taken:?}"
    );
    let taken = talk.prompt("@followup two");
    assert_eq!(
        (taken.text.as_str(), taken.notices.len()),
        ("Follow-up answer.", 0),
        "{taken:?}"
    );
    simulator
        .recorded()
        .assert_played(&["completed", "completed"]);
}

#[test]
fn pictures_of_the_latest_message_are_sent_and_earlier_ones_explained() {
    const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let steps = r#"{ exec = { requestContextArgs = {} } }, { text = "ok" }, { checkpoint = "auto" }, { usage = {} }, { end = true }"#;
    let simulator = playing(Transport::H2c, steps);
    let mut talk = RpcSession::new(&simulator, "s", &[]);
    talk.user("");
    let picture = json!({"type": "image", "data": PNG, "mimeType": "image/jpeg"});
    talk.messages[0]["content"] = json!([{"type": "text", "text": "look"}, picture]);
    assert_eq!(talk.turn().stop, "stop");
    assert_eq!(talk.prompt("and now?").stop, "stop");
    let recording = simulator.recorded();
    let images = |n: usize| {
        request(&recording, n)["action"]["userMessageAction"]["userMessage"]["selectedContext"]["selectedImages"].clone()
    };
    assert_eq!(images(0)[0]["mimeType"], "image/png", "by its bytes");
    assert_eq!(images(0)[0]["data"], PNG);
    assert_eq!(images(1), Json::Null);
    let said = |n: usize| {
        request(&recording, n)["action"]["userMessageAction"]["userMessage"]["text"].clone()
    };
    assert_eq!(said(0), "look\n[image attached]");
    let rules = |n: usize| {
        let context = &recording.client("execClientMessage.requestContextResult")[n];
        let rules = &context["execClientMessage"]["requestContextResult"]["success"]["requestContext"]
            ["rules"];
        let rules = rules.as_array().unwrap().iter();
        rules
            .map(|rule| {
                ["fullPath", "content"].map(|field| rule[field].as_str().unwrap().to_owned())
            })
            .collect::<Vec<_>>()
    };
    for n in [0, 1] {
        let [system, tools] = &rules(n)[..] else {
            panic!("{:?}", rules(n));
        };
        assert_eq!(
            [&system[0], &tools[0]],
            ["host/system-prompt", "host/tools"]
        );
        let is_omitted = tools[1].contains("the image is not available");
        assert_eq!(is_omitted, n == 1, "{}", tools[1]);
    }
    talk.user("");
    let last = talk.messages.len() - 1;
    talk.messages[last]["content"] =
        json!([{"type": "image", "data": "QUJD", "mimeType": "image/png"}]);
    let taken = talk.turn();
    assert_eq!(taken.stop, "error");
    assert!(taken.error.contains("PNG, JPEG, GIF and WebP"), "{taken:?}");
}

/// Returns the resident memory of a process in kilobytes.
fn resident(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_thousand_idle_sessions_are_cheap() {
    const SESSIONS: u64 = 1_000;
    let steps = r#"{ text = "ok" }, { checkpoint = "auto" }, { usage = {} }, { end = true }"#;
    let simulator = playing(Transport::H2c, steps);
    let folder = tempfile::tempdir().unwrap();
    let mut talk = RpcSession::new(&simulator, "warm", &state(&folder));
    talk.prompt("go");
    let before = resident(talk.host.id());
    // A hundred concurrent turns keep the test short.
    for batch in 0..SESSIONS / 100 {
        for n in 0..100 {
            talk.session = format!("s{batch}-{n}");
            talk.messages.clear();
            talk.user("go");
            talk.begin();
        }
        let mut answers = 0;
        while answers < 100 {
            let message = talk.host.receive();
            if message["id"].is_string() {
                assert_eq!(message["result"]["stopReason"], "stop", "{message}");
                answers += 1;
            }
        }
    }
    let each = resident(talk.host.id()).saturating_sub(before) / SESSIONS;
    assert!(each <= 100, "{each} KB a session");
}

/// A turn that is refused before anything is sent does not affect the conversation, whether it is
/// on disk or only in memory.
#[test]
fn a_refused_turn_keeps_the_conversation() {
    let simulator = Simulator::start(Transport::H2c);
    let file = tempfile::NamedTempFile::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for place in [file.path(), folder.path()] {
        let env = [("PI_CURSOR_STATE_DIR", place.to_str().unwrap())];
        let mut talk = RpcSession::new(&simulator, "s", &env);
        assert_eq!(talk.prompt("@followup one").text, "First answer.");
        let kept = talk.messages.clone();
        assert_eq!(talk.turn().error, "there is no new message to answer");
        talk.messages.clone_from(&kept);
        talk.user("");
        let picture = json!({"type": "image", "data": "QUJD", "mimeType": "image/png"});
        talk.messages.last_mut().unwrap()["content"] = json!([picture]);
        assert_eq!(talk.turn().stop, "error");
        talk.messages = kept;
        assert_eq!(talk.prompt("@followup two").text, "Follow-up answer.");
    }
    simulator.recorded().assert_played(&["completed"; 4]);
}

/// A usage limit is not caused by the conversation, so its checkpoint is kept.
#[test]
fn a_turn_refused_for_the_account_costs_no_state() {
    let refusal = r#"{ end = { code = "resource_exhausted", message = "You have reached your usage limit" } }"#;
    let one = Steps::new().text("One.").then(END).build();
    let three = Steps::new()
        .expect_state("last checkpoint")
        .text("Three.")
        .then(END)
        .build();
    let simulator = script(&[&one, refusal, &three]);
    let mut talk = RpcSession::new(&simulator, "s", &[]);
    assert_eq!(talk.prompt("one").text, "One.");
    let refused = talk.prompt("two");
    assert_eq!(refused.stop, "error", "{refused:?}");
    assert_eq!(talk.prompt("three").text, "Three.");
    let recording = simulator.recorded();
    let request = request(&recording, 2);
    let said = request["action"]["userMessageAction"]["userMessage"]["text"].as_str();
    let said = said.unwrap();
    assert!(said.contains("two") && said.ends_with("three"), "{said}");
}

/// The stream broke after the model had answered, and before it received the injected message. The
/// message is sent after that answer.
#[test]
fn a_message_a_broken_run_did_not_receive_follows_its_answer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("story.toml");
    let steps = r#"{ exec = { mcpArgs = { name = "pi__look", providerIdentifier = "pi", toolName = "pi__look", toolCallId = "c", args = {} } }, told = "found" }, { text = "alpha " }, { usage = {} }, { half_close = true }"#;
    let text = format!("name = \"story\"\n[[run]]\nstory = true\nsteps = [ {steps} ]\n");
    std::fs::write(&file, text).unwrap();
    let simulator = Simulator::with(Transport::H2c, &file);
    let mut talk = RpcSession::new(&simulator, "s", &[]);
    talk.tools = vec![tool("look")];
    let call = talk.prompt("go").calls.remove(0);
    talk.result(&call, json!("found"));
    talk.user("hurry");
    let taken = talk.turn();
    assert_eq!(
        (taken.stop.as_str(), taken.text.as_str()),
        ("stop", "alpha ")
    );
    let recording = simulator.recorded();
    let asked = recording.client("runRequest");
    assert_eq!(asked.len(), 2);
    assert!(asked[1].to_string().contains("hurry"), "{}", asked[1]);
}
