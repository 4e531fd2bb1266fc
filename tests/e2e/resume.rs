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
    let mut session = RpcSession::new(&simulator, "s", &state(&folder));
    assert_eq!(session.prompt("@followup one").text, "First answer.");
    let mut later = session.moved_to(&simulator, &state(&folder));
    drop(session);
    assert_eq!(later.prompt("@followup two").text, "Follow-up answer.");
    // The scenario checks the last checkpoint and its blobs.
    let recording = simulator.recorded();
    recording.assert_played(&["completed", "completed"]);
    assert_eq!(
        request(&recording, 0)["conversationId"],
        request(&recording, 1)["conversationId"]
    );
    let user_text = &request(&recording, 1)["action"]["userMessageAction"]["userMessage"]["text"];
    assert_eq!(user_text, "@followup two");
}

/// What is stored of a history does not grow with it, so that no turn of a long session reads and
/// writes more than another.
#[test]
fn a_journal_does_not_grow_with_the_history() {
    let simulator = Simulator::responder(Transport::H2c);
    let size = |count: usize| {
        let folder = tempfile::tempdir().unwrap();
        let mut session = RpcSession::new(&simulator, "s", &state(&folder));
        let message = |at: usize| {
            let role = if at.is_multiple_of(2) {
                "user"
            } else {
                "assistant"
            };
            json!({"role": role, "content": "hi", "timestamp": at})
        };
        session.messages = (0..count).map(message).collect();
        assert_eq!(session.prompt("hello").stop, "stop");
        let journal = &journals(folder.path())[0];
        std::fs::metadata(journal).unwrap().len()
    };
    let (short, long) = (size(300), size(3_000));
    assert!(long < short + 1_000, "{short} and {long} bytes");
}

#[test]
fn a_damaged_journal_is_reported_and_the_history_sent_again() {
    let simulator = Simulator::start(Transport::H2c);
    let folder = tempfile::tempdir().unwrap();
    let mut session = RpcSession::new(&simulator, "s", &state(&folder));
    session.prompt("@hello one");
    let journal = &journals(folder.path())[0];
    let mut bytes = std::fs::read(journal).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(journal, bytes).unwrap();
    let outcome = session.prompt("@hello two");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    assert_eq!(outcome.notices.len(), 1);
    assert!(outcome.notices[0].contains("set aside"), "{outcome:?}");
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
    let outcome = other.prompt("@hello me too");
    assert_eq!(outcome.stop, "error");
    assert!(
        outcome.error.contains("another cursor-sidecar"),
        "{outcome:?}"
    );
    let cancel = json!({"turnId": turn});
    one.host
        .send(&json!({"jsonrpc": "2.0", "id": 1, "method": "turn/cancel", "params": cancel}));
    assert_eq!(one.finish(&turn).stop, "aborted");
}

#[test]
fn a_paused_turn_is_resumed_after_a_crash() {
    let steps = r#"{ text = "Looking. " }, { checkpoint = "auto" }, { exec = { mcpArgs = { name = "pi__look", providerIdentifier = "pi", toolName = "pi__look", toolCallId = "c", args = {} } }, open = true, name = "a" }, { expect_cancel = true }"#;
    let after = r#"{ expect_state = "last checkpoint" }, { text = "It is 42." }, { checkpoint = "auto" }, { usage = {} }, { end = true }"#;
    let simulator = test_support::scenario::script(&[steps, after]);
    let folder = tempfile::tempdir().unwrap();
    let mut session = RpcSession::new(&simulator, "s", &state(&folder));
    session.tools = vec![tool("look")];
    let outcome = session.prompt("go");
    assert_eq!(outcome.stop, "toolUse");
    let mut later = session.moved_to(&simulator, &state(&folder));
    session.host.kill();
    later.result(&outcome.calls[0], json!([{"type": "text", "text": "42"}]));
    let outcome = later.turn();
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("stop", "It is 42."),
        "{outcome:?}"
    );
    let recording = simulator.recorded();
    let user_text =
        request(&recording, 1)["action"]["userMessageAction"]["userMessage"]["text"].clone();
    assert!(user_text.as_str().unwrap().contains("42"), "{user_text}");
}

#[test]
fn another_key_is_another_conversation() {
    let simulator = Simulator::start(Transport::H2c);
    let folder = tempfile::tempdir().unwrap();
    let mut session = RpcSession::new(&simulator, "s", &state(&folder));
    session.prompt("@hello one");
    session.user("@hello two");
    let mut params = session.params();
    params["apiKey"] = json!("crsr_other");
    session
        .host
        .send(&json!({"jsonrpc": "2.0", "id": "k", "method": "turn/start", "params": params}));
    assert_eq!(session.finish("k").stop, "stop");
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
    let mut session = RpcSession::new(&simulator, "s", &state(&folder));
    session.prompt("@followup one");
    let side = json!({"turnId": "side", "sessionId": "x", "kind": "side", "workspace": "/workspace",
        "messages": [{"role": "user", "content": "@hello summarize", "timestamp": 1}],
        "model": {"id": "composer-2"}});
    session
        .host
        .send(&json!({"jsonrpc": "2.0", "id": "side", "method": "turn/start", "params": side}));
    let kept = session.messages.clone();
    assert_eq!(session.finish("side").stop, "stop");
    session.messages = kept;
    assert_eq!(session.prompt("@followup two").text, "Follow-up answer.");
    assert_eq!(journals(folder.path()).len(), 1);
    simulator
        .recorded()
        .assert_played(&["completed", "completed", "completed"]);
}

#[test]
fn invalidating_forgets_on_disk_too() {
    let simulator = Simulator::start(Transport::H2c);
    let folder = tempfile::tempdir().unwrap();
    let mut session = RpcSession::new(&simulator, "s", &state(&folder));
    session.prompt("@hello one");
    assert_eq!(journals(folder.path()).len(), 1);
    let mut later = session.moved_to(&simulator, &state(&folder));
    drop(session);
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
    let mut session = RpcSession::new(&simulator, "s", &env);
    let outcome = session.prompt("@followup one");
    assert_eq!(outcome.text, "First answer.", "{outcome:?}");
    assert!(
        outcome
            .notices
            .iter()
            .any(|notice| notice.contains("will not survive")),
        "{outcome:?}"
    );
    let outcome = session.prompt("@followup two");
    assert_eq!(
        (outcome.text.as_str(), outcome.notices.len()),
        ("Follow-up answer.", 0),
        "{outcome:?}"
    );
    simulator
        .recorded()
        .assert_played(&["completed", "completed"]);
}

#[test]
fn images_of_the_latest_message_are_sent_and_earlier_ones_explained() {
    const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let steps = r#"{ exec = { requestContextArgs = {} } }, { text = "ok" }, { checkpoint = "auto" }, { usage = {} }, { end = true }"#;
    let simulator = playing(Transport::H2c, steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.user("");
    let picture = json!({"type": "image", "data": PNG, "mimeType": "image/jpeg"});
    session.messages[0]["content"] = json!([{"type": "text", "text": "look"}, picture]);
    assert_eq!(session.turn().stop, "stop");
    assert_eq!(session.prompt("and now?").stop, "stop");
    let recording = simulator.recorded();
    let images = |n: usize| {
        request(&recording, n)["action"]["userMessageAction"]["userMessage"]["selectedContext"]["selectedImages"].clone()
    };
    assert_eq!(images(0)[0]["mimeType"], "image/png", "by its bytes");
    assert_eq!(images(0)[0]["data"], PNG);
    assert_eq!(images(1), Json::Null);
    let user_text = |n: usize| {
        request(&recording, n)["action"]["userMessageAction"]["userMessage"]["text"].clone()
    };
    assert_eq!(user_text(0), "look\n[image attached]");
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
    session.user("");
    let last = session.messages.len() - 1;
    session.messages[last]["content"] =
        json!([{"type": "image", "data": "QUJD", "mimeType": "image/png"}]);
    let outcome = session.turn();
    assert_eq!(outcome.stop, "error");
    assert!(
        outcome.error.contains("PNG, JPEG, GIF and WebP"),
        "{outcome:?}"
    );
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
    let mut session = RpcSession::new(&simulator, "warm", &state(&folder));
    session.prompt("go");
    let before = resident(session.host.id());
    // A hundred concurrent turns keep the test short.
    for batch in 0..SESSIONS / 100 {
        for n in 0..100 {
            session.id = format!("s{batch}-{n}");
            session.messages.clear();
            session.user("go");
            session.begin();
        }
        let mut answers = 0;
        while answers < 100 {
            let message = session.host.receive();
            if message["id"].is_string() {
                assert_eq!(message["result"]["stopReason"], "stop", "{message}");
                answers += 1;
            }
        }
    }
    let each = resident(session.host.id()).saturating_sub(before) / SESSIONS;
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
        let mut session = RpcSession::new(&simulator, "s", &env);
        assert_eq!(session.prompt("@followup one").text, "First answer.");
        let kept = session.messages.clone();
        assert_eq!(session.turn().error, "there is no new message to answer");
        session.messages.clone_from(&kept);
        session.user("");
        let picture = json!({"type": "image", "data": "QUJD", "mimeType": "image/png"});
        session.messages.last_mut().unwrap()["content"] = json!([picture]);
        assert_eq!(session.turn().stop, "error");
        session.messages = kept;
        assert_eq!(session.prompt("@followup two").text, "Follow-up answer.");
    }
    simulator.recorded().assert_played(&["completed"; 4]);
}

/// A usage limit is not caused by the conversation, so its checkpoint is kept.
#[test]
fn a_turn_refused_for_the_account_keeps_the_checkpoint() {
    let refusal = r#"{ end = { code = "resource_exhausted", message = "You have reached your usage limit" } }"#;
    let one = Steps::new().text("One.").then(END).build();
    let three = Steps::new()
        .expect_state("last checkpoint")
        .text("Three.")
        .then(END)
        .build();
    let simulator = script(&[&one, refusal, &three]);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    assert_eq!(session.prompt("one").text, "One.");
    let refused = session.prompt("two");
    assert_eq!(refused.stop, "error", "{refused:?}");
    assert_eq!(session.prompt("three").text, "Three.");
    let recording = simulator.recorded();
    let request = request(&recording, 2);
    let user_text = request["action"]["userMessageAction"]["userMessage"]["text"].as_str();
    let user_text = user_text.unwrap();
    assert!(
        user_text.contains("two") && user_text.ends_with("three"),
        "{user_text}"
    );
}

/// The stream broke after the model had answered, and before it received the injected message. The
/// message is sent after that answer.
#[test]
fn a_message_a_broken_run_did_not_receive_follows_its_answer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("story.toml");
    let steps = r#"{ exec = { mcpArgs = { name = "pi__look", providerIdentifier = "pi", toolName = "pi__look", toolCallId = "c", args = {} } }, answered_if = "found" }, { text = "alpha " }, { usage = {} }, { half_close = true }"#;
    let text = format!("name = \"story\"\n[[run]]\nresumable = true\nsteps = [ {steps} ]\n");
    std::fs::write(&file, text).unwrap();
    let simulator = Simulator::with(Transport::H2c, &file);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("look")];
    let call = session.prompt("go").calls.remove(0);
    session.result(&call, json!("found"));
    session.user("hurry");
    let outcome = session.turn();
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("stop", "alpha ")
    );
    let recording = simulator.recorded();
    let asked = recording.client("runRequest");
    assert_eq!(asked.len(), 2);
    assert!(asked[1].to_string().contains("hurry"), "{}", asked[1]);
}
