//! Session commands, for hosts that only pass the user's input on.

use serde_json::{Value as Json, json};

use test_support::official_client::{OfficialClient, mcp_stdio};
use test_support::sidecar::SidecarProcess;
use test_support::simulator::{Simulator, Transport};
use test_support::workspace::write;

/// Returns a host that uses the simulator's models, and the result of `initialize`.
fn host(simulator: &Simulator, env: &[(&str, &str)]) -> (SidecarProcess, Json) {
    let mut all = vec![
        ("CURSOR_BACKEND_URL", simulator.url.as_str()),
        ("CURSOR_API_KEY", "crsr_0123456789"),
    ];
    all.extend(env);
    let mut host = SidecarProcess::start(&all);
    let params = json!({
        "protocolVersion": 1, "host": {"name": "pi", "version": "0.87.1"},
        "nativeTools": {"default": "local", "shell": "host", "write": "host", "delete": "host",
                        "requireHostTool": true},
    });
    let about = host.call("initialize", params)["result"].clone();
    (host, about)
}

fn give(host: &mut SidecarProcess, params: Json) -> Json {
    let answer = host.call("session/command", params);
    assert!(answer.get("result").is_some(), "{answer}");
    answer["result"].clone()
}

#[test]
fn speed_is_stored_for_the_session_and_as_default() {
    let simulator = Simulator::responder(Transport::Http1);
    let (mut host, about) = host(&simulator, &[]);
    let names = |of: &str| -> Vec<String> {
        let list = about[of].as_array().unwrap().iter();
        list.map(|item| item["name"].as_str().unwrap().into())
            .collect()
    };
    assert_eq!(
        names("commands"),
        [
            "cursor-refresh-models",
            "cursor-fast",
            "cursor-mode",
            "cursor-tools",
            "cursor-trust",
            "cursor-usage",
            "cursor-doctor"
        ]
    );
    assert_eq!(
        names("flags"),
        ["cursor-fast", "cursor-no-fast", "cursor-mode"]
    );

    // The first state contains the models, because this host never requested them.
    let state = give(&mut host, json!({"model": "gpt-5.5@272k"}));
    let rows = state["models"].as_array().unwrap();
    assert!(rows.len() > 60, "{state}");
    let quiet = give(&mut host, json!({"model": "gpt-5.5@272k"}));
    assert_eq!(quiet, json!({}), "nothing new, nothing to show");

    let fast = give(
        &mut host,
        json!({"command": "cursor-fast", "model": "gpt-5.5@272k"}),
    );
    let entry = json!({"fast": {"gpt-5.5": true}});
    let expected = json!({"message": "Fast mode on for gpt-5.5", "level": "info",
        "status": "cursor fast", "entry": entry});
    assert_eq!(fast, expected);
    let saved = host.call("prefs/get", json!({}))["result"].clone();
    assert_eq!(saved, entry, "and for good");
    let slow = json!({
        "command": "cursor-fast",
        "arguments": "off",
        "model": "gpt-5.5@272k",
        "kept": {"entry": entry},
    });
    assert_eq!(
        give(&mut host, slow)["entry"],
        json!({"fast": {"gpt-5.5": false}})
    );

    let loud = json!({"command": "cursor-fast", "arguments": " ON ", "model": "gpt-5.5@272k"});
    let reply = give(&mut host, loud);
    assert_eq!(reply["message"], "Fast mode on for gpt-5.5");

    for (params, message) in [
        (
            json!({"command": "cursor-fast", "model": "gpt-5.1"}),
            "Fast mode not supported by gpt-5.1",
        ),
        (
            json!({"command": "cursor-fast", "model": "gpt-5.5@272k", "arguments": "often"}),
            "/cursor-fast takes on, off or nothing, not \"often\"",
        ),
        (
            json!({
                "command": "cursor-fast",
                "model": "gpt-5.5@272k",
                "kept": {"flags": {"cursor-no-fast": true}},
            }),
            "--cursor-no-fast decides for this run",
        ),
        (
            json!({"command": "cursor-fast"}),
            "The chosen model is not one of Cursor's",
        ),
        (
            json!({"command": "cursor-nap"}),
            "cursor-sidecar has no command cursor-nap; install matching versions",
        ),
    ] {
        let reply = give(&mut host, params);
        assert_eq!(reply["message"], message);
        assert!(reply.get("entry").is_none(), "{reply}");
    }
}

#[test]
fn mode_tools_and_notices() {
    let simulator = Simulator::responder(Transport::Http1);
    let env = [("PI_CURSOR_NATIVE_TOOLS_DENY", "shell,fetch")];
    let (mut host, _) = host(&simulator, &env);
    give(&mut host, json!({"model": "gpt-5.1"}));
    let plan = json!({"command": "cursor-mode", "arguments": "plan", "model": "gpt-5.1",
        "kept": {"entry": {"fast": {"gpt-5.5": true}}}});
    let reply = give(&mut host, plan);
    assert_eq!(reply["status"], "cursor plan");
    let entry = json!({"fast": {"gpt-5.5": true}, "mode": "plan"});
    assert_eq!(reply["entry"], entry, "the rest stays");
    let both = give(
        &mut host,
        json!({"model": "gpt-5.5@272k", "kept": {"entry": entry}}),
    );
    assert_eq!(both["status"], "cursor fast · plan");
    for (arguments, message) in [
        (
            "",
            "Cursor works in plan mode; /cursor-mode agent or /cursor-mode plan changes it",
        ),
        ("dream", "/cursor-mode takes agent or plan, not \"dream\""),
    ] {
        let params =
            json!({"command": "cursor-mode", "arguments": arguments, "kept": {"entry": entry}});
        let reply = give(&mut host, params);
        assert_eq!(reply["message"], message);
        assert!(reply.get("status").is_none(), "not our model: {reply}");
    }

    let odd =
        json!({"model": "gone", "kept": {"flags": {"cursor-mode": "dream", "cursor-fast": true}}});
    insta::assert_snapshot!(give(&mut host, odd.clone())["message"].as_str().unwrap(), @r#"
    Cursor has no model "gone"; list or refresh the models to see what is available
    --cursor-mode takes agent or plan, not "dream"
    Fast mode not supported by gone
    "#);
    assert_eq!(give(&mut host, odd), json!({}), "once is enough");

    let tools = json!({
        "command": "cursor-tools",
        "tools": ["read", "bash", "cursor", "count words", "cursor_ask_question"],
    });
    insta::assert_snapshot!(give(&mut host, tools)["message"].as_str().unwrap(), @r"
    Cursor's native tools, executed by cursor-sidecar: read, git_diff, diagnostics
    Not executed, because it is switched off in pi: ls, grep, write, delete
    Denied (PI_CURSOR_NATIVE_TOOLS_DENY): shell, fetch
    Tools of pi, executed by it: pi__count_words, pi__cursor_ask_question
    Not offered, since Cursor has its own: read, bash
    ");
    let doctor = give(&mut host, json!({"command": "cursor-doctor"}));
    let report = doctor["message"].as_str().unwrap();
    assert!(
        report.contains(&simulator.url) && report.contains("CURSOR_API_KEY = (set)"),
        "{report}"
    );
}

/// The warning that the bundled models are shown appears once, whichever model is selected.
#[test]
fn a_fallback_is_reported_once() {
    let no_account = [("CURSOR_BACKEND_URL", "http://127.0.0.1:9")];
    let simulator = Simulator::responder(Transport::Http1);
    let (mut host, _) = host(&simulator, &no_account);
    let reply = give(&mut host, json!({"model": "composer-2.5"}));
    let message = reply["message"].as_str().unwrap();
    assert!(message.ends_with("showing the bundled list"), "{message}");
    assert_eq!(reply["level"], "warning");
    for model in ["composer-2.5", "gpt-5.5@1m", "composer-2.5"] {
        let quiet = give(&mut host, json!({"model": model}));
        assert!(quiet.get("message").is_none(), "{quiet}");
    }
}

#[test]
fn tools_are_those_that_can_be_called_now() {
    let sdk = OfficialClient::new();
    let servers =
        json!({"mcpServers": {"local": mcp_stdio(), "dead": {"command": "no-such-program"}}});
    write(&sdk.workspace, ".cursor/mcp.json", &servers.to_string());
    let simulator = Simulator::responder(Transport::Http1);
    let env = [
        ("PI_CURSOR_NATIVE_TOOLS", "host"),
        ("PI_CURSOR_NATIVE_TOOLS_DENY", "grep"),
        ("PI_CURSOR_TRUST_PROJECT", "1"),
        ("HOME", sdk.home.path().to_str().unwrap()),
        ("PATH", env!("PATH")),
    ];
    let (mut host, _) = host(&simulator, &env);
    let workspace = sdk.workspace.to_str().unwrap();
    let mut tools = |names: Json| {
        let asked = json!({"command": "cursor-tools", "tools": names, "workspace": workspace});
        give(&mut host, asked)["message"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let started = std::time::Instant::now();
    // A slow server is listed later.
    let shown = loop {
        let shown = tools(json!(["read", "bash", "grep", "note"]));
        if ["local", "dead"].iter().all(|name| shown.contains(name)) {
            break shown;
        }
        assert!(started.elapsed().as_secs() < 30, "{shown}");
    };
    insta::assert_snapshot!(shown, @r#"
    Cursor's native tools, executed by pi: read, shell
    Not executed, because pi has no tool for it: fetch, git_diff, diagnostics
    Not executed, because it is switched off in pi: ls, write, delete
    Denied (PI_CURSOR_NATIVE_TOOLS_DENY): grep
    Tools of pi, executed by it: pi__note
    Not offered, since Cursor has its own: read, bash, grep
    Tools of MCP server local: echo, fail, image
    MCP server "dead": its command cannot be started: entity not found
    "#);
    let shown = tools(json!([]));
    let first = shown.lines().next().unwrap();
    assert_eq!(
        first,
        "Not executed, because it is switched off in pi: read, ls, write, delete, shell, fetch, git_diff, diagnostics"
    );
}

#[test]
fn a_question_is_asked_step_by_step() {
    let simulator = Simulator::responder(Transport::Http1);
    let (mut host, about) = host(&simulator, &[]);
    assert_eq!(about["question"]["name"], "cursor_ask_question");
    let arguments = json!({"question": "Which?", "options": ["A", "B"]});
    let mut next = |answers: Json, has_ui: bool| {
        let params = json!({"arguments": arguments, "answers": answers, "hasUi": has_ui});
        host.call("question/next", params)
    };
    let put = json!({"title": "Which?", "options": ["A", "B", "Type a custom answer"]});
    assert_eq!(next(json!([]), true)["result"]["put"], put);
    let done = next(json!(["B"]), true)["result"].clone();
    let answers = json!({"answers": [{"id": "1", "answer": "B", "values": ["B"]}]});
    assert_eq!(
        done,
        json!({"text": "User answered: B", "details": answers})
    );
    let refused = next(json!([]), false);
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("UI is unavailable"), "{message}");
    for setting in ["PI_CURSOR_PI_TOOL_BRIDGE", "PI_CURSOR_ASK_QUESTION"] {
        let (_, without) = self::host(&simulator, &[(setting, "0")]);
        assert!(without.get("question").is_none(), "{setting}");
    }
}

/// A host that displays notices gets them at its start; the first turn does not repeat them.
#[test]
fn settings_that_are_not_understood_are_reported_at_the_start() {
    let simulator = Simulator::responder(Transport::Http1);
    let (mut host, _) = host(&simulator, &[("PI_CURSOR_HTPP", "1")]);
    let model = json!({"model": "composer-2"});
    let first = give(&mut host, model.clone());
    let message = first["message"].as_str().unwrap();
    assert!(
        message.contains("PI_CURSOR_HTPP is not a setting"),
        "{message}"
    );
    assert_eq!(first["level"], "warning");
    assert_eq!(give(&mut host, model)["message"], Json::Null);
}
