//! A client that did not receive an answer sends the same request again: it gets the same calls or
//! the same answer, and there is one run.

use serde_json::json;

use test_support::gateway::{GatewayProcess, function};
use test_support::in_process::opened;
use test_support::rpc_session::{CollectedTurn, RpcSession, tool};
use test_support::scenario::{END, Steps, playing};
use test_support::simulator::{Simulator, Transport};

/// A run that calls two tools one after the other, with text before each, and then answers.
fn looking_twice() -> Simulator {
    let steps = Steps::new()
        .text("One. ")
        .then(opened("look", "first"))
        .wait_for(&["first"])
        .text("Two. ")
        .then(opened("look", "second"))
        .wait_for(&["second"])
        .text("Done.")
        .then(END)
        .build();
    playing(Transport::H2c, &steps)
}

/// Takes a turn, and the same turn again.
fn twice(session: &mut RpcSession) -> CollectedTurn {
    let length = session.messages.len();
    let first = session.turn();
    session.messages.truncate(length);
    let second = session.turn();
    let of = |outcome: &CollectedTurn| {
        let stop = outcome.stop.clone();
        (outcome.text.clone(), outcome.calls.clone(), stop)
    };
    assert_eq!(of(&first), of(&second));
    second
}

#[test]
fn a_repeated_request_gets_the_same_calls_and_the_same_answer() {
    let simulator = looking_twice();
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("look")];
    session.user("go");
    for text in ["One. ", "Two. "] {
        let parked = twice(&mut session);
        assert_eq!((parked.text.as_str(), parked.calls.len()), (text, 1));
        session.result(&parked.calls[0], json!([{"type": "text", "text": "seen"}]));
    }
    assert_eq!(twice(&mut session).text, "Done.");
    let recording = simulator.recorded();
    assert_eq!(recording.runs(), 1);
    recording.assert_played(&["completed"]);
    let results = recording.client("execClientMessage.mcpResult");
    assert_eq!(results.len(), 2, "each result was delivered once");
    assert!(
        results
            .iter()
            .all(|result| result.to_string().contains("seen"))
    );
}

#[test]
fn another_message_in_place_of_the_result_is_no_repeated_request() {
    let simulator = looking_twice();
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("look")];
    let parked = session.prompt("go");
    session.messages.pop();
    session.user("go another way");
    let after = session.turn();
    assert_ne!(
        after.calls, parked.calls,
        "the run continues with the message"
    );
}

/// Clients of the gateway without a session id are found by the ids of their calls.
#[tokio::test]
async fn a_repeated_request_to_the_gateway_gets_the_same_calls_and_the_same_answer() {
    for name in [None, Some("window")] {
        let simulator = looking_twice();
        let gateway = GatewayProcess::start(&simulator, &[]);
        let mut chat = gateway.chat();
        chat.session = name;
        chat.tools = vec![function("look", &["asked"])];
        let mut expected = vec!["Two. ", "Done."];
        if name.is_some() {
            expected.insert(0, "One. ");
            chat.user("go");
        } else {
            // Nothing identifies the session of a first request without a name.
            let asked = chat.prompt("go").await;
            chat.result(&asked.calls[0], "seen");
        }
        for text in expected {
            let length = chat.messages.len();
            let first = chat.turn().await;
            chat.messages.truncate(length);
            let again = chat.turn().await;
            assert_eq!((first.text.as_str(), again.text.as_str()), (text, text));
            assert_eq!((&first.calls, &first.finish), (&again.calls, &again.finish));
            if let Some(call) = again.calls.first() {
                chat.result(call, "seen");
            }
        }
        let recording = simulator.recording().await;
        assert_eq!(recording.client("runRequest").len(), 1, "one run");
        recording.assert_played(&["completed"]);
    }
}
