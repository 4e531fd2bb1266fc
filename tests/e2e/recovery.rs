//! Recovery of turns whose run was lost while the host executed tools;
//! `docs/recovery-tests.md` lists what they show.

use std::path::Path;
use std::time::Duration;

use agent::conversation::store::Store;
use agent::turn::Stop;
use cursor_sim::Sim;
use foundation::metrics;
use serde_json::{Value as Json, json};

use test_support::debug_log::{fields, logged, state};
use test_support::in_process::{
    CancelAfter, END, InProcessSession, opened, played, requests, simulating, user_text,
};
use test_support::rpc_session::{OfferedCall, RpcSession, tool};
use test_support::scenario::{Steps, script};
use test_support::simulator::Simulator;
use test_support::wait::until_named;

const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Returns the entry of the only journal in a folder.
fn journal(folder: &Path) -> Json {
    let mut folders = std::fs::read_dir(folder).unwrap();
    let path = folders.next().unwrap().unwrap().path().join("journal");
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str(text.lines().nth(1).unwrap()).unwrap()
}

/// Breaks the connection while the run is parked.
async fn break_off(sim: &Sim) {
    let before = requests(sim).len();
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(120)).await;
    tokio::time::resume();
    assert_eq!(requests(sim).len(), before, "nothing is tried in a pause");
}

/// A run that calls a tool and is then lost.
fn asks(name: &str, before: &str) -> String {
    Steps::new()
        .then(before)
        .then(opened("look", name))
        .delay_ms(60_000)
        .step(json!({"cut": true}))
        .build()
}

const CHECKPOINT: &str = r#"{ checkpoint = "auto" },"#;

async fn call(guest: &mut InProcessSession, words: Option<&str>) -> OfferedCall {
    if let Some(words) = words {
        guest.user(words);
    }
    let outcome = guest.turn(CancelAfter::Endless).await;
    assert_eq!((&outcome.stop, outcome.calls.len()), (&Stop::ToolUse, 1));
    outcome.calls[0].clone()
}

/// Returns the number of messages in the history of a rebuilt request.
fn roots(request: &Json) -> usize {
    let roots = &request["conversationState"]["rootPromptMessagesJson"];
    roots.as_array().map_or(0, Vec::len)
}

/// Two losses in one turn, at tier 3 and at tier 2, and then a turn that keeps its state.
#[tokio::test]
async fn a_second_loss_and_the_turn_after_it_keep_their_state() {
    let last = |expect: &str, text: &str| {
        Steps::new()
            .expect_state("last checkpoint")
            .then(expect)
            .text(text)
            .then(END)
            .build()
    };
    let next = r#"{ expect_request = { action = { userMessageAction = { userMessage = { text = "next" } } } } },"#;
    let (sim, backend) = simulating(&[
        asks("a", ""),
        asks("b", CHECKPOINT),
        last("", "Done."),
        last(next, "Still here."),
    ])
    .await;
    let mut guest = InProcessSession::new(&backend, None);
    let a = call(&mut guest, Some("go")).await;
    break_off(&sim).await;
    guest.result(&a, "it says 41");
    let b = call(&mut guest, None).await;
    break_off(&sim).await;
    guest.result(&b, "it says 42");
    let outcome = guest.turn(CancelAfter::Endless).await;
    assert_eq!(
        (outcome.stop, outcome.text.as_str()),
        (Stop::Finished, "Done.")
    );
    let outcome = guest.prompt("next").await;
    assert_eq!(outcome.text, "Still here.");
    played(&sim.recording()).await;
    let requests = requests(&sim);
    let ids: std::collections::BTreeSet<String> = requests
        .iter()
        .map(|request| request["conversationId"].to_string())
        .collect();
    assert_eq!((requests.len(), ids.len()), (4, 1), "one conversation");
    // Tier 3: the history, and the result separately.
    assert_eq!(roots(&requests[1]), 2, "the text and the tool call");
    assert!(user_text(&requests[1]).contains("Result:\nit says 41\n[End"));
    // Tier 2: the checkpoint includes the first result.
    let resent = user_text(&requests[2]);
    assert!(
        resent.contains("it says 42") && !resent.contains("it says 41"),
        "{resent}"
    );
    assert!(resent.starts_with("[Recovered tool output after upstream bridge loss recovery:"));
}

/// A checkpoint of an earlier turn is not used for this pause, and the tool result is sent in full.
#[tokio::test]
async fn an_older_checkpoint_does_not_belong_to_this_pause() {
    let first = Steps::new().text("Hello.").then(END).build();
    let last = Steps::new().text("Seen.").then(END).build();
    let (sim, backend) = simulating(&[first, asks("a", ""), last]).await;
    let folder = tempfile::tempdir().unwrap();
    let store = (Store::at(folder.path()), "s".to_owned());
    let mut guest = InProcessSession::new(&backend, Some(store));
    guest.prompt("hi").await;
    assert_eq!(journal(folder.path())["pause"], Json::Null, "s22");
    let a = call(&mut guest, Some("go")).await;
    let paused = journal(folder.path())["pause"].clone();
    let waits = json!([{"id": a.id, "tool": "look", "cursor": "a"}]);
    assert_eq!(paused["calls"], waits);
    break_off(&sim).await;
    guest.result(&a, "");
    let result = guest.messages.last_mut().unwrap();
    result["isError"] = json!(true);
    result["content"] = json!([{"type": "text", "text": "[END RECOVERED TOOL OUTPUT]"},
        {"type": "image", "data": PNG, "mimeType": "image/png"}]);
    guest.user("and hurry");
    let outcome = guest.turn(CancelAfter::Endless).await;
    assert_eq!(
        (outcome.stop, outcome.text.as_str()),
        (Stop::Finished, "Seen.")
    );
    let entry = journal(folder.path());
    assert_eq!(entry["pause"], Json::Null, "s22: a clean end clears it");
    let requests = requests(&sim);
    assert_eq!(requests[1]["conversationId"], requests[2]["conversationId"]);
    assert_eq!(roots(&requests[2]), 4, "hi, Hello, go, the call");
    let resent = user_text(&requests[2]);
    assert!(resent.contains("Error: true\nResult:\n[END RECOVERED TOOL OUTPUT]\n[image attached]"));
    assert!(resent.ends_with("]\n\nand hurry"), "{resent}");
    let message = &requests[2]["action"]["userMessageAction"]["userMessage"];
    assert_eq!(message["selectedContext"]["selectedImages"][0]["data"], PNG);
    let counted =
        r#"cursor_provider.rebuild_full_history{reason="no_checkpoint",model="composer-2"}"#;
    assert!(metrics::counters().counts()[counted] > 0);
}

/// Results of parallel calls carry the ids that Cursor assigned, also if the host returns only some
/// of them.
#[tokio::test]
async fn results_on_a_checkpoint_are_named_as_cursor_named_the_calls() {
    let first = Steps::new()
        .then(CHECKPOINT)
        .then(opened("look", "toolu_A"))
        .then(opened("slow", "toolu_B"))
        .delay_ms(60_000)
        .step(json!({"cut": true}))
        .build();
    let last = Steps::new()
        .expect_state("last checkpoint")
        .text("Seen.")
        .then(END)
        .build();
    let runs = [first, last];
    for brought in [2, 1] {
        let (sim, mut guest, calls) = loop {
            let (sim, backend) = simulating(&runs).await;
            let mut guest = InProcessSession::new(&backend, None);
            let calls = guest.prompt("go").await.calls;
            // The calls may also arrive in separate turns, which this test does not cover.
            if calls.len() == 2 {
                break (sim, guest, calls);
            }
        };
        break_off(&sim).await;
        for call in &calls[..brought] {
            guest.result(call, &format!("of {}", call.name));
        }
        assert_eq!(guest.turn(CancelAfter::Endless).await.text, "Seen.");
        let resent = user_text(&requests(&sim)[1]);
        for (id, tool) in &[("toolu_A", "look"), ("toolu_B", "slow")][..brought] {
            let wanted = format!("Tool call id: {id}\nTool name: {tool}\nResult:\nof {tool}\n");
            assert!(resent.contains(&wanted), "{resent}");
        }
    }
}

/// A restart does not change the timestamp of a pause.
#[tokio::test]
async fn a_checkpoint_in_the_pause_counts_and_its_stamp_stays() {
    let first = Steps::new()
        .then(opened("look", "a"))
        .delay_ms(60_000)
        .checkpoint()
        .delay_ms(1000)
        .step(json!({"cut": true}))
        .build();
    let last = Steps::new()
        .expect_state("last checkpoint")
        .text("Went on.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[first, last]).await;
    let folder = tempfile::tempdir().unwrap();
    let store = || (Store::at(folder.path()), "s".to_owned());
    let mut guest = InProcessSession::new(&backend, Some(store()));
    let a = call(&mut guest, Some("go")).await;
    let before = journal(folder.path());
    assert_eq!(before["state"], Json::Null, "none so far");
    break_off(&sim).await;
    guest.result(&a, "42");
    // The old session saves everything on release, and another sidecar continues.
    guest.session.release().await;
    let after = journal(folder.path());
    assert!(after["state"].is_string());
    assert_eq!(after["pause"], before["pause"]);
    let mut guest = guest.moved(store());
    let outcome = guest.turn(CancelAfter::Endless).await;
    assert_eq!(outcome.text, "Went on.");
    played(&sim.recording()).await;
    assert!(user_text(&requests(&sim)[1]).contains("Result:\n42\n"));
}

/// Removes one blob of the only conversation in a folder.
fn lose_a_blob(folder: &Path) {
    let only = |folder: &Path| std::fs::read_dir(folder).unwrap().next().unwrap();
    let stored = only(folder).unwrap().path();
    let inside = std::fs::read_dir(stored).unwrap().flatten();
    let mut folders = inside
        .map(|entry| entry.path())
        .filter(|path| path.is_dir());
    std::fs::remove_file(only(&folders.next().unwrap()).unwrap().path()).unwrap();
}

/// A checkpoint is unusable if a blob is missing: the turn is rebuilt from the pause, and a later
/// turn sends its history. Both emit a notice.
#[tokio::test]
async fn a_checkpoint_without_its_blobs_is_not_resumed() {
    let last = Steps::new().text("Went on.").then(END).build();
    let (sim, backend) = simulating(&[asks("a", CHECKPOINT), last.clone(), last]).await;
    let folder = tempfile::tempdir().unwrap();
    let store = || (Store::at(folder.path()), "s".to_owned());
    let mut guest = InProcessSession::new(&backend, Some(store()));
    let a = call(&mut guest, Some("go")).await;
    break_off(&sim).await;
    guest.session.release().await;
    assert!(journal(folder.path())["state"].is_string());
    lose_a_blob(folder.path());
    guest.result(&a, "42");
    let mut guest = guest.moved(store());
    let outcome = guest.turn(CancelAfter::Endless).await;
    assert_eq!(outcome.text, "Went on.");
    let resent = "stored files of this session are missing";
    assert!(outcome.notices[0].starts_with(resent), "{outcome:?}");
    let all = requests(&sim);
    assert_eq!(all[0]["conversationId"], all[1]["conversationId"]);
    assert_eq!(roots(&all[1]), 2, "the text and the tool call");
    assert!(user_text(&all[1]).contains("Result:\n42\n"));
    guest.session.release().await;
    lose_a_blob(folder.path());
    let mut guest = guest.moved(store());
    let outcome = guest.prompt("next").await;
    assert!(outcome.notices[0].starts_with(resent), "{outcome:?}");
    let all = requests(&sim);
    assert_eq!(user_text(&all[2]), "next");
    assert_eq!(roots(&all[2]), 4, "go, the call, its result, the answer");
}

/// If the connection is lost after the results arrived, the turn recovers by itself.
#[tokio::test]
async fn a_run_that_breaks_after_its_results_is_recovered_within_the_turn() {
    let first = Steps::new()
        .then(opened("look", "a"))
        .wait_for(&["a"])
        .step(json!({"cut": true}))
        .build();
    let last = Steps::new().text("Went on.").then(END).build();
    let (sim, backend) = simulating(&[first, last]).await;
    let mut guest = InProcessSession::new(&backend, None);
    let a = call(&mut guest, Some("go")).await;
    guest.result(&a, "42");
    let outcome = guest.turn(CancelAfter::Endless).await;
    assert_eq!(
        (outcome.stop, outcome.text.as_str()),
        (Stop::Finished, "Went on.")
    );
    assert!(user_text(&requests(&sim)[1]).contains("Result:\n42\n"));
}

/// A server that is busy after the results is retried with the same delays as other requests.
#[tokio::test]
async fn a_server_that_is_busy_after_the_results_is_asked_again() {
    const BUSY: &str = r#"{ end = { code = "unavailable", message = "busy" } }"#;
    let asks = |before: &str| {
        Steps::new()
            .then(before)
            .then(opened("look", "a"))
            .wait_for(&["a"])
            .then(BUSY)
            .build()
    };
    for (before, state) in [("", "none"), (CHECKPOINT, "last checkpoint")] {
        let expect = match before {
            "" => String::new(),
            _ => Steps::new()
                .step(json!({"expect_state": state.to_string()}))
                .build(),
        };
        let last = Steps::new().then(expect).text("Went on.").then(END).build();
        let busy = BUSY.to_owned();
        let (sim, backend) = simulating(&[asks(before), busy.clone(), busy, last]).await;
        let mut guest = InProcessSession::new(&backend, None);
        let a = call(&mut guest, Some("go")).await;
        guest.result(&a, "42");
        tokio::time::pause();
        let begun = tokio::time::Instant::now();
        let outcome = guest.turn(CancelAfter::Endless).await;
        let took = begun.elapsed();
        tokio::time::resume();
        assert_eq!(
            (outcome.stop, outcome.text.as_str()),
            (Stop::Finished, "Went on.")
        );
        played(&sim.recording()).await;
        let requests = requests(&sim);
        assert_eq!(requests.len(), 4);
        assert!(user_text(&requests[1]).contains("Result:\n42\n"));
        // 2, 4 and 8 s, plus up to a fifth of jitter.
        assert!((14..=30).contains(&took.as_secs()), "{took:?}");
    }
}

/// Text that was shown is not requested again, but the checkpoint from before it is kept.
#[tokio::test]
async fn a_checkpoint_from_before_the_results_outlives_the_run() {
    for breaks in [
        r#"{ end = { code = "unavailable", message = "busy" } }"#,
        "{ cut = true }",
    ] {
        let first = Steps::new()
            .then(CHECKPOINT)
            .then(opened("look", "a"))
            .wait_for(&["a"])
            .text("It says ")
            .then(breaks)
            .build();
        let last = Steps::new()
            .expect_state("last checkpoint")
            .text("It says 42.")
            .then(END)
            .build();
        let (sim, backend) = simulating(&[first, last]).await;
        let mut guest = InProcessSession::new(&backend, None);
        let a = call(&mut guest, Some("go")).await;
        guest.result(&a, "42");
        let outcome = guest.turn(CancelAfter::Endless).await;
        assert!(matches!(outcome.stop, Stop::Failed(_)), "{outcome:?}");
        // A host that retries drops the failed answer.
        guest.messages.pop();
        let outcome = guest.turn(CancelAfter::Endless).await;
        assert_eq!(outcome.text, "It says 42.");
        played(&sim.recording()).await;
        assert!(user_text(&requests(&sim)[1]).contains("Result:\n42\n"));
    }
}

/// The user is asked once, even if the connection is lost meanwhile.
#[tokio::test]
async fn a_question_is_a_pause_too() {
    let question = r#"{ send = { interactionQuery = { id = 7, askQuestionInteractionQuery = { args = { title = "T", questions = [ { id = "q1", prompt = "Which?", options = [ { id = "a", label = "Apples" } ] } ] }, toolCallId = "c" } } } }, { checkpoint = "auto" }, { delay_ms = 60000 }, { cut = true }"#;
    let last = Steps::new()
        .expect_state("last checkpoint")
        .text("Apples it is.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[question.to_owned(), last]).await;
    let mut guest = InProcessSession::new(&backend, None);
    let asked = call(&mut guest, Some("go")).await;
    assert_eq!(asked.name, "cursor_ask_question");
    break_off(&sim).await;
    guest.result(&asked, "User answered: Apples");
    let outcome = guest.turn(CancelAfter::Endless).await;
    assert_eq!(
        (outcome.text.as_str(), outcome.calls.len()),
        ("Apples it is.", 0)
    );
    played(&sim.recording()).await;
    assert!(user_text(&requests(&sim)[1]).contains("Result:\nUser answered: Apples\n"));
}

fn request(simulator: &Simulator, n: usize) -> Json {
    simulator.recorded().client("runRequest")[n]["runRequest"].clone()
}

/// The sidecar is killed when the host has received the call: the pause is already on disk, and
/// another process rebuilds the turn, logs it and counts it.
#[test]
fn a_sidecar_killed_in_a_pause_without_a_checkpoint() {
    let first = Steps::new()
        .text("Looking. ")
        .then(opened("look", "a"))
        .step(json!({"expect_cancel": true}))
        .build();
    let last = Steps::new().text("It is 42.").then(END).build();
    let simulator = script(&[&first, &last]);
    let folder = tempfile::tempdir().unwrap();
    let mut session = RpcSession::new(&simulator, "s", &state(&folder));
    session.tools = vec![tool("look")];
    session.user("go");
    session.begin();
    let mut outcome = test_support::rpc_session::CollectedTurn::default();
    while outcome.calls.is_empty() {
        let message = session.host.receive();
        outcome.receive(&message);
    }
    let paused = journal(&folder.path().join("conversations"))["pause"].clone();
    // The log is written in the background, and a kill would lose its last lines.
    let saved = "native.stream.tool_call_snapshot_saved";
    until_named("the pause is logged", || logged(folder.path(), saved).pop());
    session.host.kill();
    assert_eq!(
        paused["calls"][0]["id"], outcome.calls[0].id,
        "written first"
    );
    let asked = json!({
        "type": "toolCall",
        "id": outcome.calls[0].id,
        "name": "look",
        "arguments": outcome.calls[0].arguments,
    });
    session.messages.push(
        json!({"role": "assistant", "timestamp": 2, "stopReason": "toolUse",
        "content": [{"type": "text", "text": outcome.text}, asked]}),
    );
    let mut later = session.moved_to(&simulator, &state(&folder));
    later.result(&outcome.calls[0], json!("42"));
    let outcome = later.turn();
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("stop", "It is 42."),
        "{outcome:?}"
    );
    let (one, two) = (request(&simulator, 0), request(&simulator, 1));
    assert_eq!(one["conversationId"], two["conversationId"]);
    assert_eq!(roots(&two), 2);
    assert!(user_text(&two).contains("Result:\n42\n"), "{two}");
    let line = r#"{"event":"metric.cursor_provider.rebuild_full_history","metric":"cursor_provider.rebuild_full_history","reason":"no_checkpoint","model":"composer-2","count":1}"#;
    let stderr = later.host.stderr();
    assert!(
        stderr.lines().any(|user_text| user_text == line),
        "{stderr}"
    );
    let report = later.host.call("diagnostics/report", json!({}));
    let counted =
        r#"cursor_provider.rebuild_full_history{reason="no_checkpoint",model="composer-2"}"#;
    assert_eq!(report["result"]["counters"][counted], 1, "{report}");
    later.host.exits();
    // The first eight digits of sha256("bridge:s").
    let resent = &logged(folder.path(), "native.rebuild_full_history")[0];
    let wanted = json!({"bridgeKeyPrefix": "a00a4c0d", "modelId": "composer-2", "rebuildReason": "no_checkpoint",
        "completedTurnCount": 0, "inFlightTurnHasImages": false, "toolResultCount": 1,
        "sentinelInjectionDetected": false});
    assert_eq!(fields(resent), wanted);
    let metrics = logged(folder.path(), "metric.cursor_provider.rebuild_full_history");
    assert_eq!(metrics.len(), 1);
    let wanted = json!({"metric": "cursor_provider.rebuild_full_history",
        "reason": "no_checkpoint", "model": "composer-2", "count": 1});
    assert_eq!(fields(&metrics[0]), wanted);
    assert_eq!(logged(folder.path(), saved).len(), 1);
}

/// Results of unknown calls are sent in a new conversation; a turn that has nothing to send fails
/// with a specific error.
#[test]
fn a_fresh_process_never_rebuilds_and_reports_what_is_lost() {
    let steps = Steps::new().text("I see.").then(END).build();
    let simulator = script(&[&steps]);
    let folder = tempfile::tempdir().unwrap();
    let mut session = RpcSession::new(&simulator, "s", &state(&folder));
    session.user("go");
    let call = json!({"type": "toolCall", "id": "c", "name": "look", "arguments": {}});
    session
        .messages
        .push(json!({"role": "assistant", "content": [call], "timestamp": 2}));
    let forged = OfferedCall {
        id: "c".into(),
        name: "look".into(),
        arguments: json!({}),
    };
    session.result(&forged, json!("forty-two"));
    let history = session.messages.clone();
    let outcome = session.turn();
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("stop", "I see.")
    );
    let one = request(&simulator, 0);
    let resent = user_text(&one);
    assert!(
        resent.contains("]\nTool call id: c\nResult:\nforty-two\n[End"),
        "{resent}"
    );
    assert_eq!(roots(&one), 2, "the history is sent");
    session.messages = history;
    session.id = "t".into();
    session.messages.last_mut().unwrap()["excludeFromContext"] = json!(true);
    let outcome = session.turn();
    assert_eq!(outcome.stop, "error");
    assert!(
        outcome
            .error
            .starts_with("tool_continuation_lost: Cursor tool continuation was lost")
    );
    assert!(
        outcome.error.ends_with("[diagnostic: hadStoredCheckpoint=false bridgeKeyPrefix=dd8c19db skipReason=no_stored_conversation]"),
        "{}",
        outcome.error
    );
    session.host.exits();
    let resent = logged(folder.path(), "bridge.recovery_skipped");
    assert_eq!(resent[0]["skipReason"], "no_stored_conversation");
    assert!(!resent[0].to_string().contains("forty-two"));
    assert_eq!(
        logged(folder.path(), "native.lost_tool_continuation").len(),
        1
    );
}

#[test]
fn another_model_continues_from_the_checkpoint() {
    let first = Steps::new().text("One.").then(END).build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .text("Two.")
        .then(END)
        .build();
    let simulator = script(&[&first, &second]);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.prompt("one");
    session.user("two");
    let mut params = session.params();
    params["model"]["id"] = json!("gpt-5.2");
    session
        .host
        .send(&json!({"jsonrpc": "2.0", "id": "k", "method": "turn/start", "params": params}));
    let outcome = session.finish("k");
    assert_eq!(outcome.text, "Two.", "{outcome:?}");
    simulator
        .recorded()
        .assert_played(&["completed", "completed"]);
    let (one, two) = (request(&simulator, 0), request(&simulator, 1));
    assert_eq!(one["conversationId"], two["conversationId"]);
    assert_ne!(one["requestedModel"], two["requestedModel"]);
}
