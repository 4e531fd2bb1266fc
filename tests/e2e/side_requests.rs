//! Special turns: side requests, sessions without a file, images followed by text, and unknown
//! fields.

use serde_json::json;

use test_support::in_process::END;
use test_support::rpc_session::{RpcSession, tool};
use test_support::scenario::{Steps, playing};
use test_support::simulator::{Simulator, Transport};

/// pi's summaries use the model of the session; nothing may be executed for them.
#[test]
fn a_request_beside_the_session_executes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ghost = folder.path().join("ghost");
    let touch = |name: &str| {
        let file = folder.path().join(name);
        json!({"mcpServers": {"there": {"command": "touch", "args": [file]}}})
    };
    std::fs::create_dir(folder.path().join(".cursor")).unwrap();
    let servers = folder.path().join(".cursor/mcp.json");
    std::fs::write(servers, touch("server").to_string()).unwrap();
    let hook = json!({"version": 1, "hooks": {"beforeShellExecution":
        [{"command": format!("touch {}/hook", folder.path().display())}]}});
    let hooks = folder.path().join(".cursor/hooks.json");
    std::fs::write(hooks, hook.to_string()).unwrap();
    let steps = Steps::new()
        .context()
        .step(json!({
            "exec": {
                "shellArgs": {
                    "command": format!("touch {}", ghost.display()),
                    "workingDirectory": (folder.path().display()).to_string(),
                    "timeout": 5000,
                    "toolCallId": "c",
                    "skipApproval": true,
                    "parsingResult": {},
                },
            },
        }))
        .text("A summary.")
        .then(END)
        .build();
    let simulator = playing(Transport::Http1, &steps);
    let env = [
        ("PI_CURSOR_SETTING_SOURCES", "all"),
        ("PI_CURSOR_TRUST_PROJECT", "1"),
        ("PATH", "/usr/bin:/bin"),
    ];
    let mut session = RpcSession::new(&simulator, "s", &env);
    session.workspace = folder.path().to_str().unwrap().into();
    session.tools = vec![tool("look")];
    session.user("Summarize.");
    let mut params = session.params();
    params["kind"] = json!("side");
    let outcome = session.take(params);
    assert_eq!(
        (outcome.stop.as_str(), outcome.text.as_str()),
        ("stop", "A summary.")
    );
    for name in ["ghost", "server", "hook"] {
        assert!(!folder.path().join(name).exists(), "{name}");
    }
    let recording = simulator.recorded();
    let requests = recording.client("runRequest");
    let offered = &requests[0]["runRequest"]["mcpTools"]["mcpTools"];
    assert_eq!(offered.as_array().map_or(0, Vec::len), 0, "{offered}");
    // The session's own turn does execute, which shows that the check can fail.
    let outcome = session.prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    assert!(ghost.exists());
}

#[test]
fn a_session_without_a_file_leaves_none() {
    let simulator = Simulator::start(Transport::Http1);
    let folder = tempfile::tempdir().unwrap();
    let env = [("PI_CURSOR_STATE_DIR", folder.path().to_str().unwrap())];
    let mut session = RpcSession::new(&simulator, "s", &env);
    let kept = folder.path().join("conversations");
    for (words, answer) in [
        ("@followup one", "First answer."),
        ("@followup two", "Follow-up answer."),
    ] {
        session.user(words);
        let mut params = session.params();
        params["keep"] = json!("memory");
        assert_eq!(session.take(params).text, answer, "in memory it goes on");
        assert!(!kept.exists());
    }
    let recording = simulator.recorded();
    let requests = recording.client("runRequest");
    let id = |n: usize| &requests[n]["runRequest"]["conversationId"];
    assert_eq!(id(0), id(1));
    session.id = "other".into();
    session.messages.clear();
    session.prompt("@hello");
    assert!(kept.exists(), "others are kept");
}

#[test]
fn an_image_is_not_lost_when_text_is_added_after_it() {
    let simulator = playing(
        Transport::Http1,
        &Steps::new().text("Seen.").then(END).build(),
    );
    let mut session = RpcSession::new(&simulator, "s", &[]);
    let picture =
        json!({"type": "image", "data": "iVBORw0KGgoAAAANSUhEUg==", "mimeType": "image/png"});
    let look = json!({"type": "text", "text": "look"});
    session.messages = vec![
        json!({"role": "user", "content": [look, picture], "timestamp": 1}),
        json!({"role": "user", "content": "by the way", "timestamp": 2}),
    ];
    assert_eq!(session.turn().text, "Seen.");
    let outcome = session.prompt("and now?");
    assert_eq!(outcome.text, "Seen.");
    let recording = simulator.recorded();
    let requests = recording.client("runRequest");
    let message =
        |n: usize| &requests[n]["runRequest"]["action"]["userMessageAction"]["userMessage"];
    assert_eq!(message(0)["text"], "look\n[image attached]\n\nby the way");
    let images = |n: usize| {
        let images = message(n)["selectedContext"]["selectedImages"].as_array();
        images.map_or(0, Vec::len)
    };
    assert_eq!((images(0), images(1)), (1, 0));
}

/// Other extensions may add fields to what a host sends.
#[test]
fn unknown_fields_are_reported_once_and_ignored() {
    let simulator = playing(
        Transport::Http1,
        &Steps::new().text("Heard.").then(END).build(),
    );
    let mut session = RpcSession::new(&simulator, "s", &[]);
    for _ in 0..2 {
        session.user("hi");
        let mut params = session.params();
        params["temperature"] = json!({"of": 1});
        assert_eq!(session.take(params).text, "Heard.");
    }
    let printed = session.host.stderr();
    assert_eq!(printed.matches("temperature").count(), 1, "{printed}");
    let mut params = session.params();
    params["messages"] = json!("hi");
    let refused = session.host.call("turn/start", params);
    assert_eq!(refused["error"]["code"], -32602);
    let problem = refused["error"]["message"].as_str().unwrap();
    assert!(problem.starts_with("messages: "), "{problem}");
}
