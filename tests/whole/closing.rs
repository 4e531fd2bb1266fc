//! Sessions that are closed while something of them is under way.

use serde_json::json;

use crate::host_tools::script;
use crate::inside::{END, opened};
use crate::talk::{Call, Talk, tool};

/// A server that takes its time to let go of a run.
const LETS_GO: &str = r#"{ expect_client = { conversationAction = { cancelAction = {} } } }, { delay_ms = 300 }, { checkpoint = "auto" }, { expect_cancel = true }"#;

fn closed_and_opened(talk: &mut Talk) -> crate::talk::Taken {
    talk.host
        .call("session/close", json!({"sessionId": talk.session}));
    talk.turn()
}

/// A session is one at a time: the next turn waits for the last one to let go.
#[test]
fn a_session_closed_in_a_pause_is_opened_again() {
    let first = format!("{}, {LETS_GO}", opened("look", "a"));
    let last = format!(r#"{{ text = "Went on." }}, {END}"#);
    let simulator = script(&[&first, &last]);
    let folder = tempfile::tempdir().unwrap();
    let state = [("PI_CURSOR_STATE_DIR", folder.path().to_str().unwrap())];
    let mut talk = Talk::new(&simulator, "s", &state);
    talk.tools = vec![tool("look")];
    let call: Call = talk.say("go").calls[0].clone();
    talk.result(&call, json!("42"));
    let taken = closed_and_opened(&mut talk);
    assert_eq!(
        (taken.stop.as_str(), taken.text.as_str()),
        ("stop", "Went on."),
        "{taken:?}"
    );
    let recording = simulator.recorded();
    let requests = recording.client("runRequest");
    let id = |n: usize| &requests[n]["runRequest"]["conversationId"];
    assert_eq!(id(0), id(1), "with what was kept of it");
}

#[test]
fn a_session_closed_after_an_abort_is_opened_again() {
    let first = format!(r#"{{ text = "Half" }}, {LETS_GO}"#);
    let last = format!(r#"{{ text = "Went on." }}, {END}"#);
    let simulator = script(&[&first, &last]);
    let folder = tempfile::tempdir().unwrap();
    let state = [
        ("PI_CURSOR_STATE_DIR", folder.path().to_str().unwrap()),
        ("PI_CURSOR_PROVIDER_DEBUG", "1"),
    ];
    let mut talk = Talk::new(&simulator, "s", &state);
    talk.user("go");
    let turn = talk.begin();
    let mut taken = crate::talk::Taken::default();
    while taken.text.is_empty() {
        let message = talk.host.hear();
        taken.hear(&message);
    }
    let cancel = json!({"jsonrpc": "2.0", "id": "cancel", "method": "turn/cancel", "params": {"turnId": turn}});
    talk.host.say(&cancel);
    assert_eq!(talk.finish(&turn).stop, "aborted");
    talk.user("next");
    let taken = closed_and_opened(&mut talk);
    assert_eq!(
        (taken.stop.as_str(), taken.text.as_str()),
        ("stop", "Went on."),
        "{taken:?}"
    );
}
