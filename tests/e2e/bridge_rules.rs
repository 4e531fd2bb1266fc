//! Detailed rules of the bridge, by their number in `docs/bridge.md`.

use std::time::Duration;

use agent::turn::Stop;
use serde_json::{Value as Json, json};

use test_support::in_process;
use test_support::in_process::{CancelAfter, InProcessSession, opened, played, simulating};
use test_support::rpc_session::{OfferedCall, RpcSession, tool};
use test_support::scenario::{END, Steps, calls, playing, text};
use test_support::simulator::{Recording, Transport};

const CONTEXT: &str = r#"{ exec = { requestContextArgs = {} } }"#;

/// Returns the tools that a run was offered, in both places of the protocol.
fn offered(recording: &Recording) -> [Vec<Json>; 2] {
    let request = &recording.client("runRequest")[0]["runRequest"];
    let contexts = recording.client("execClientMessage.requestContextResult");
    let success = &contexts[0]["execClientMessage"]["requestContextResult"]["success"];
    let tools = [
        &request["mcpTools"]["mcpTools"],
        &success["requestContext"]["tools"],
    ];
    tools.map(|tools| tools.as_array().cloned().unwrap_or_default())
}

fn names(tools: &[Json]) -> Vec<&str> {
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

/// The rule that names the tools of the model. The host's system prompt names other tools,
/// under other names.
#[test]
fn a_rule_says_how_tools_are_called_and_which_are_off() {
    let rule = |tools: Vec<Json>, env: (&str, &str)| {
        let steps = Steps::new().then(CONTEXT).text("Done.").then(END).build();
        let simulator = playing(Transport::H2c, &steps);
        let mut session = RpcSession::new(&simulator, "s", &[env]);
        session.tools = tools;
        assert_eq!(session.prompt("go").stop, "stop");
        let recording = simulator.recorded();
        let contexts = recording.client("execClientMessage.requestContextResult");
        let success = &contexts[0]["execClientMessage"]["requestContextResult"]["success"];
        let rules = success["requestContext"]["rules"].as_array().unwrap();
        let last = rules.last().unwrap();
        assert_eq!(last["fullPath"], "host/tools");
        last["content"].as_str().unwrap().to_owned()
    };
    let denied = ("PI_CURSOR_NATIVE_TOOLS_DENY", "fetch");
    let text = rule(vec![tool("look")], denied);
    for part in [
        "Those names cannot be called",
        "`pi__look`",
        "Switched off by the user: fetch.",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let text = rule(Vec::new(), ("PI_CURSOR_NATIVE_TOOLS", "off"));
    assert!(text.starts_with("No tool can be called"), "{text}");
}

/// L2: ids contain the run and count its calls. L4: usage is estimated instead of waiting for the
/// server to report it.
#[test]
fn a_call_is_named_after_its_run_and_its_turn_is_estimated() {
    let steps = Steps::new()
        .then(calls("look", r#"{ q = "1" }"#, "", &text("42")))
        .then(calls("look", r#"{ q = "2" }"#, "", &text("42")))
        .text("Done.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("look")];
    let first = session.prompt("go");
    session.result(&first.calls[0], json!("42"));
    let second = session.turn();
    session.result(&second.calls[0], json!("42"));
    let last = session.turn();
    assert_eq!(last.text, "Done.");
    let (run, count) = first.calls[0].id.rsplit_once("-tool-").unwrap();
    let id = run.strip_prefix("cursor-pi-bridge-run-").unwrap();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(count, "1");
    assert_eq!(second.calls[0].id, format!("{run}-tool-2"));
    for paused in [&first, &second] {
        assert_eq!(paused.usage["estimated"], true, "{paused:?}");
        assert!(paused.usage["output"].as_u64() > Some(0), "{paused:?}");
    }
    // Cursor's counters of the run, 100 and 5, are not those of one message.
    let usage_fields = ["input", "output"].map(|field| &last.usage[field]);
    assert_eq!(usage_fields, [&json!(1), &json!(2)]);
    simulator.recorded().assert_played(&["completed"]);
}

/// L13: a call that Cursor cancels while the run is parked is not sent to the host.
#[tokio::test]
async fn a_call_that_cursor_withdraws_in_a_pause_is_not_offered() {
    let steps = Steps::new()
        .then(opened("look", "a"))
        .delay_ms(60_000)
        .then(opened("slow", "b"))
        .step(json!({"abort": "b"}))
        .then(CONTEXT)
        .step(json!({"await": ["a"], "timeout_ms": 100000}))
        .text("Done.")
        .then(in_process::END)
        .build();
    let (sim, backend) = simulating(&[steps]).await;
    let mut guest = InProcessSession::new(&backend, None);
    let outcome = guest.prompt("go").await;
    assert_eq!((outcome.stop, outcome.calls.len()), (Stop::ToolUse, 1));
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(70)).await;
    tokio::time::resume();
    guest.result(&outcome.calls[0], "42");
    let outcome = guest.turn(CancelAfter::Endless).await;
    assert_eq!(
        (outcome.stop, outcome.calls.len(), outcome.text.as_str()),
        (Stop::Finished, 0, "Done.")
    );
    played(&sim.recording()).await;
}

/// B1: without the bridge no tools are offered, and a call is answered with `toolNotFound`.
#[test]
fn without_the_bridge_nothing_is_offered() {
    let missing = r#"{ toolNotFound = { name = "pi__look" } }"#;
    let call = calls("look", "{}", "", missing);
    let steps = Steps::new()
        .then(CONTEXT)
        .then(call)
        .text("Done.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[("PI_CURSOR_PI_TOOL_BRIDGE", "0")]);
    session.tools = vec![tool("look")];
    let outcome = session.prompt("go");
    assert_eq!((outcome.text.as_str(), outcome.calls.len()), ("Done.", 0));
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    for tools in offered(&recording) {
        assert_eq!(names(&tools), [""; 0]);
    }
}

/// B3, B5: in the host's order, with the host's names and descriptions.
#[test]
fn tools_are_offered_in_the_hosts_order_with_its_descriptions() {
    let steps = Steps::new().then(CONTEXT).text("Done.").then(END).build();
    let mut bare = tool("alpha");
    bare["description"] = json!("");
    bare["parameters"] = json!("none");
    let tools = vec![
        tool("zeta"),
        tool("read"),
        tool("cursor"),
        bare,
        tool("count words"),
    ];
    for (setting, hidden) in [("0", true), ("1", false)] {
        let simulator = playing(Transport::H2c, &steps);
        let env = [("PI_CURSOR_EXPOSE_BUILTIN_TOOLS", setting)];
        let mut session = RpcSession::new(&simulator, "s", &env);
        session.tools.clone_from(&tools);
        assert_eq!(session.prompt("go").text, "Done.");
        let recording = simulator.recorded();
        recording.assert_played(&["completed"]);
        for offered in offered(&recording) {
            let mut expected = vec![
                "pi__zeta",
                "pi__read",
                "pi__cursor",
                "pi__alpha",
                "pi__count_words",
            ];
            if hidden {
                expected.remove(1);
            }
            assert_eq!(names(&offered), expected, "{setting}");
            for tool in &offered {
                let name = tool["name"].as_str().unwrap();
                let words = tool["description"].as_str().unwrap();
                let own = match name {
                    "pi__alpha" => "Run pi tool alpha".to_owned(),
                    "pi__count_words" => "does count words".to_owned(),
                    name => format!("does {}", &name["pi__".len()..]),
                };
                assert!(words.starts_with(&own), "{name}: {words}");
                assert!(words.contains(name), "{name}: {words}");
                assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
            }
        }
    }
}

/// B7: results that match no pending call are ignored.
#[test]
fn a_result_without_a_pending_call_is_ignored() {
    let steps = Steps::new()
        .then(calls("look", "{}", "", &text("42")))
        .text("Done.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("look")];
    let outcome = session.prompt("go");
    let open = &outcome.calls[0];
    let stray = |id: String| OfferedCall { id, ..open.clone() };
    let (run, _) = open.id.rsplit_once('-').unwrap();
    session.result(&stray(format!("{run}-2")), json!("of a call to come"));
    session.result(open, json!("42"));
    let other = format!("cursor-pi-bridge-run-{}-tool-1", "0".repeat(32));
    session.result(&stray(other), json!("of another run"));
    assert_eq!(session.turn().text, "Done.");
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    assert_eq!(recording.client("runRequest").len(), 1);
    assert_eq!(recording.client("execClientMessage.mcpResult").len(), 1);
}

/// B12: with the setting off the tool is not offered, and Cursor's own question is rejected.
#[test]
fn no_question_is_asked_if_questions_are_off() {
    let question = r#"{ query = { askQuestionInteractionQuery = { args = { questions = [ { id = "q", prompt = "Which?", options = [ { id = "a", label = "A" } ] } ] }, toolCallId = "c" } }, expect = { askQuestionInteractionResponse = { result = { rejected = {} } } } }"#;
    let steps = Steps::new().then(question).text("Done.").then(END).build();
    let simulator = playing(Transport::H2c, &steps);
    let mut session = RpcSession::new(&simulator, "s", &[("PI_CURSOR_ASK_QUESTION", "0")]);
    // The user's setting wins even if the host has the tool.
    session.tools = vec![tool("look"), tool("cursor_ask_question")];
    let outcome = session.prompt("go");
    assert_eq!((outcome.text.as_str(), outcome.calls.len()), ("Done.", 0));
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    let tools = &recording.client("runRequest")[0]["runRequest"]["mcpTools"]["mcpTools"];
    assert_eq!(names(tools.as_array().unwrap()), ["pi__look"]);
}
