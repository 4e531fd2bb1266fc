//! The user's Cursor settings through the real binary: rules, skills, MCP servers, hooks.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use test_support::official_client::{
    McpHttpServer, OfficialClient, PNG, mcp_stdio, mcp_that_exits,
};
use test_support::scenario::{CONTEXT, END, call, calls, exec, inline, playing, runs, text, value};
use test_support::simulator::{Recording, Transport};
use test_support::workspace::{session, write};

fn contexts(recording: &Recording) -> Vec<Json> {
    let reported = recording.client("execClientMessage.requestContextResult");
    let context = "/execClientMessage/requestContextResult/success/requestContext";
    reported
        .iter()
        .map(|reported| reported.pointer(context).unwrap().clone())
        .collect()
}

/// Returns the members of a list whose path is in a folder, sorted by path.
fn below(list: &Json, folder: &Path) -> Vec<Json> {
    let folder = folder.to_str().unwrap();
    let empty = Vec::new();
    let all = list.as_array().unwrap_or(&empty).iter();
    let mut found: Vec<Json> = all
        .filter(|item| item["fullPath"].as_str().unwrap().starts_with(folder))
        .cloned()
        .collect();
    found.sort_by_key(|item| item["fullPath"].to_string());
    found
}

const FILES: &[(&str, &str)] = &[
    (
        ".cursor/rules/always.mdc",
        "---\ndescription: Always\nglobs: \nalwaysApply: true\n---\n\n# Always\n\nText.\n",
    ),
    (
        ".cursor/rules/deep/globs.mdc",
        "---\ndescription: Some files\nglobs: *.{ts,tsx}, src/**\nalwaysApply: false\n---\nGlobs.\n",
    ),
    (
        ".cursor/rules/list.mdc",
        "---\nglobs:\n  - '*.rs'\n  - \"*.toml\"\nmetadata:\n  environments: cli, web\n---\nA list.\n",
    ),
    (
        ".cursor/rules/asked.mdc",
        "---\ndescription: \"Ask: me\"\n---\nAsked.\n",
    ),
    (
        ".cursor/rules/manual.mdc",
        "---\nalwaysApply: false\n---\nManual.\n",
    ),
    (".cursor/rules/headless.mdc", "No head.\n"),
    (
        ".cursor/rules/crlf.mdc",
        "---\r\ndescription: Windows\r\nalwaysApply: true\r\n---\r\n\r\nLines.\r\n",
    ),
    (".cursorrules", "Old rules.\n"),
    ("AGENTS.md", "# Agents\n\nRead me.\n"),
    ("CLAUDE.md", "Claude.\n"),
    ("pkg/AGENTS.md", "Nested agents.\n"),
    (
        "pkg/.cursor/rules/nested.mdc",
        "---\nalwaysApply: true\n---\nNested.\n",
    ),
    (
        "pkg/.cursor/skills/dive/SKILL.md",
        "---\nname: dive\ndescription: How to dive\n---\nDown.\n",
    ),
    (
        ".cursor/skills/fly/SKILL.md",
        "---\nname: fly\ndescription: How to fly\n---\n\nJump.\n",
    ),
    (".cursor/skills/bare/SKILL.md", "No head.\n"),
    (
        ".claude/skills/fly/SKILL.md",
        "---\ndescription: The same\n---\n",
    ),
    (
        ".agents/skills/swim/SKILL.md",
        "---\nname: swim\ndescription: >\n  How to\n  swim\ndisable-model-invocation: true\npaths: ['*.sea']\n---\nSwim.\n",
    ),
    (
        ".cursor/skills/rule/SKILL.md",
        "---\ndescription: d\nalwaysApply: true\n---\nA rule.\n",
    ),
];

#[tokio::test]
async fn rules_and_skills_are_sent_as_the_official_client_sends_them() {
    let sdk = OfficialClient::new();
    for (path, text) in FILES {
        write(&sdk.workspace, path, text);
    }
    let home = sdk.home.path().canonicalize().unwrap();
    write(
        &home,
        ".cursor/skills/mine/SKILL.md",
        "---\nname: mine\ndescription: My own\n---\nMine.\n",
    );
    let plugin = ".cursor/plugins/local/own";
    for (path, text) in [
        (
            ".cursor-plugin/plugin.json",
            r#"{"name": "manifest-name", "description": "My plugin"}"#,
        ),
        (
            "rules/plugged.mdc",
            "---\ndescription: Plugged\nalwaysApply: true\n---\nPlugged.\n",
        ),
        (
            "skills/plug/SKILL.md",
            "---\nname: plug\ndescription: How to plug\n---\nPlug.\n",
        ),
    ] {
        write(&home, &format!("{plugin}/{path}"), text);
    }
    let steps = format!("{CONTEXT}, {END}");
    let simulator = playing(Transport::H2c, &steps);
    let agent = json!({"settingSources": ["all"]});
    sdk.drive(
        &simulator,
        json!({"agent": agent, "sends": [{"text": "go"}]}),
    );
    let theirs = contexts(&simulator.recording().await).remove(0);
    let simulator = playing(Transport::H2c, &steps);
    let ours = tokio::task::spawn_blocking(move || {
        let outcome = session(&simulator, &sdk, &[]).prompt("go");
        assert_eq!(
            (outcome.stop.as_str(), outcome.notices.len()),
            ("stop", 0),
            "{outcome:?}"
        );
        contexts(&simulator.recorded()).remove(0)
    });
    let ours = ours.await.unwrap();
    for (list, least) in [("rules", FILES.len() - 4), ("agentSkills", 5)] {
        let (theirs, ours) = (below(&theirs[list], &home), below(&ours[list], &home));
        assert!(theirs.len() >= least, "{list}: {theirs:#?}");
        pretty_assertions::assert_eq!(ours, theirs, "{list}");
    }
}

#[test]
fn servers_are_called_and_dead_or_slow_ones_delay_nothing() {
    let sdk = OfficialClient::new();
    let web = McpHttpServer::start(&sdk);
    let pipe = sdk.home.path().join("alive");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    // The pipe stays open as long as the process lives.
    let slow = format!("exec 3>'{}'; exec sleep 600", pipe.display());
    let servers = json!({"mcpServers": {
        "local": mcp_stdio(),
        "web": {"url": web.url, "headers": {"X-Test": "${env:HOME}"}},
        "dead": {"url": "http://127.0.0.1:9/mcp"},
        "gone": {"command": "/no/such/program"},
        "slow": {"command": "sh", "args": ["-c", slow]},
    }});
    write(sdk.home.path(), ".cursor/mcp.json", &servers.to_string());
    let project =
        json!({"mcpServers": {"theirs": {"command": "touch", "args": ["${workspaceFolder}/ran"]}}});
    write(&sdk.workspace, ".cursor/mcp.json", &project.to_string());
    let echo = |server| {
        let expect = text(r#"echo:{"text":"hi"}"#);
        call(server, "echo", r#"{ text = "hi" }"#, &expect)
    };
    let calls = [
        echo("local"),
        echo("web"),
        call("local", "fail", "{}", r#"{ success = { isError = true, content = [ { text = { text = "deliberate failure" } } ] } }"#),
        call("local", "image", "{}", &inline(&json!({
            "success": {
                "content": [
                    {"text": {"text": "an image"}},
                    {"image": {"mimeType": "image/png", "data": PNG.to_string()}},
                ],
            },
        }))),
        call("local", "nothing", "{}", r#"{ toolNotFound = { name = "local-nothing", availableTools = [ "local-echo", "local-fail", "local-image" ] } }"#),
        call("dead", "echo", "{}", r#"{ error = { error = { "$contains" = "could not be connected" } } }"#),
        call("gone", "echo", "{}", r#"{ error = { error = { "$contains" = "cannot be started" } } }"#),
        call("theirs", "echo", "{}", r#"{ serverNotFound = { name = "theirs", availableServers = [ "pi", "local", "web", "dead", "gone", "slow" ] } }"#),
        r#"{ exec = { listMcpResourcesExecArgs = { server = "local" } }, expect = { listMcpResourcesExecResult = { success = { resources = [ { uri = "oracle://one", name = "one", server = "local" } ] } } } }"#.into(),
        r#"{ exec = { readMcpResourceExecArgs = { server = "web", uri = "oracle://one" } }, expect = { readMcpResourceExecResult = { success = { text = "resource one", mimeType = "text/plain" } } } }"#.into(),
    ];
    let simulator = runs(&[calls.join(", "), format!("{CONTEXT}, {}", echo("local"))]);
    // MCP servers do not depend on the policy for native tools.
    let env = [
        ("PI_CURSOR_NATIVE_TOOLS", "off"),
        ("PI_CURSOR_MCP_CONNECT_TIMEOUT_SECONDS", "60"),
    ];
    let mut session = session(&simulator, &sdk, &env);
    session.tools = vec![test_support::rpc_session::tool("look")];
    let started = Instant::now();
    let first = session.prompt("go");
    assert_eq!(first.stop, "stop", "{first:?}");
    let second = session.prompt("again");
    assert_eq!(second.stop, "stop", "{second:?}");
    // Well before the slow server times out.
    assert!(started.elapsed() < Duration::from_secs(45));
    let notices: Vec<&String> = first.notices.iter().chain(&second.notices).collect();
    let reported = |part: &str| notices.iter().filter(|text| text.contains(part)).count();
    assert_eq!(
        (reported("\"dead\""), reported("\"gone\""), reported("slow")),
        (1, 1, 0),
        "{notices:?}"
    );
    assert_eq!(reported("PI_CURSOR_TRUST_PROJECT="), 1, "{notices:?}");
    assert!(!sdk.workspace.join("ran").exists(), "it is not trusted");

    let recording = simulator.recorded();
    recording.assert_played(&["completed", "completed"]);
    let offered = &recording.client("runRequest")[1]["runRequest"]["mcpTools"]["mcpTools"];
    let names = |list: &Json| -> Vec<String> {
        let names = list.as_array().unwrap().iter();
        names
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = [
        "pi__look",
        "local-echo",
        "local-fail",
        "local-image",
        "web-echo",
        "web-fail",
        "web-image",
    ];
    assert_eq!(names(offered), all);
    assert_eq!(offered[1]["providerIdentifier"], "local");
    assert_eq!(offered[1]["inputSchema"]["required"], json!(["text"]));
    let context = &contexts(&recording)[0];
    assert_eq!(names(&context["tools"]), all);
    assert_eq!(
        context["mcpInstructions"][0],
        json!({
            "serverName": "local",
            "serverIdentifier": "local",
            "instructions": "oracle mcp instructions",
        })
    );
    let descriptors = context["mcpMetaToolOptions"]["mcpDescriptors"]
        .as_array()
        .unwrap();
    let state = |name: &str| {
        let found = descriptors
            .iter()
            .find(|server| server["serverName"] == name);
        found.unwrap()["serverUseInstructions"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(state("slow").contains("being connected"), "{descriptors:?}");
    assert!(state("dead").contains("not connected"), "{descriptors:?}");
    assert_eq!(state("web"), "oracle mcp instructions");

    // The slow one is alive, and ends with us.
    let mut alive = fs::File::open(&pipe).unwrap();
    drop(session);
    alive.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_server_that_dies_is_reconnected_and_new_tools_are_offered() {
    let sdk = OfficialClient::new();
    let home = sdk.home.path();
    let mut once = mcp_that_exits(&home.join("once"));
    let words = once["args"].as_array().unwrap().iter();
    let words: Vec<&str> = words.map(|word| word.as_str().unwrap()).collect();
    // It can be started once.
    let script = format!(
        "[ -e '{}' ] && exit 1; exec '{}' '{}'",
        words[1],
        once["command"].as_str().unwrap(),
        words.join("' '")
    );
    once = json!({"command": "sh", "args": ["-c", script]});
    let mut web = McpHttpServer::start(&sdk);
    let mortal = mcp_that_exits(&home.join("lives"));
    let servers = json!({"mcpServers": {"mortal": mortal, "once": once, "web": {"url": web.url}}});
    write(home, ".cursor/mcp.json", &servers.to_string());
    let ended = |server: &str, tool: &str| {
        let expect =
            r#"{ error = { error = "the MCP server \"NAME\" ended before it answered" } }"#;
        call(server, tool, "{}", &expect.replace("NAME", server))
    };
    let dies = |server: &str| ended(server, "die");
    let echo = || {
        call(
            "web",
            "echo",
            r#"{ text = "hi" }"#,
            &text(r#"echo:{"text":"hi"}"#),
        )
    };
    let lives = |count: u32| call("mortal", "lives", "{}", &text(&format!("life {count}")));
    let first = [
        lives(1),
        dies("mortal"),
        // Restarted by the next call.
        lives(2),
        call("mortal", "grow", "{}", &text("grown")),
        CONTEXT.to_owned(),
        call("mortal", "grown", "{}", &text("grown")),
        dies("once"),
        call(
            "once",
            "lives",
            "{}",
            r#"{ error = { error = "the MCP server \"once\": it could not be connected" } }"#,
        ),
        dies("mortal"),
        echo(),
    ];
    // Restarted by the next turn.
    let second = [CONTEXT.to_owned(), lives(3), ended("web", "echo")];
    let simulator = runs(&[first.join(", "), second.join(", "), echo()]);
    let mut session = session(&simulator, &sdk, &[]);
    let mut say = |text: &str| {
        let outcome = session.prompt(text);
        assert_eq!(outcome.stop, "stop", "{outcome:?}");
    };
    say("go");
    web.end();
    say("on");
    let _web = web.again(&sdk);
    say("and on");
    let recording = simulator.recorded();
    recording.assert_played(&["completed"; 3]);
    let tools = |context: &Json| -> Vec<String> {
        let tools = context["tools"].as_array().unwrap().iter();
        let names = tools.map(|tool| tool["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.starts_with("mortal")).collect()
    };
    let contexts = contexts(&recording);
    let own = ["mortal-lives", "mortal-die", "mortal-grow"];
    assert_eq!(tools(&contexts[0]), [&own[..], &["mortal-grown"]].concat());
    assert_eq!(tools(&contexts[1]), own, "its third life");
    let states = contexts[1]["mcpMetaToolOptions"]["mcpDescriptors"].to_string();
    assert!(
        states.contains("not connected: it could not be"),
        "{states}"
    );
}

#[test]
fn a_hook_that_denies_is_obeyed() {
    let sdk = OfficialClient::new();
    let script = r#"input=$(cat)
case "$input" in
  *forbidden*'"hook_event_name":"beforeShellExecution"'*) echo '{"permission":"deny","agent_message":"not that command"}' ;;
  *CLASSIFIED*'"hook_event_name":"beforeReadFile"'*) echo '{"permission":"deny","user_message":"classified"}' ;;
  *'"tool_name":"pi__look"'*'"hook_event_name":"beforeMCPExecution"'*) echo "no looking" >&2; exit 2 ;;
  *'"tool_name":"Delete"'*'"hook_event_name":"preToolUse"'*) exit 1 ;;
  *'"tool_name":"WebSearch"'*'"hook_event_name":"preToolUse"'*) echo '{"permission":"ask","user_message":"really?"}' ;;
  *) echo '{"permission":"allow"}' ;;
esac
"#;
    write(sdk.home.path(), ".cursor/guard.sh", script);
    let hook = json!([{"command": "sh ./guard.sh"}]);
    let hooks = json!({"version": 1, "hooks": {"preToolUse": [{"command": "sh ./guard.sh", "matcher": "Delete|Read|WebSearch|MCP:"}],
        "beforeShellExecution": hook, "beforeReadFile": hook, "beforeMCPExecution": hook}});
    write(sdk.home.path(), ".cursor/hooks.json", &hooks.to_string());
    let theirs = json!({"version": 1, "hooks": {"preToolUse": [{"command": "touch ran", "matcher": "^Grep$"}]}});
    write(&sdk.workspace, ".cursor/hooks.json", &theirs.to_string());
    write(&sdk.workspace, "secret.txt", "CLASSIFIED\n");
    let no = |part: &str| inline(&json!({"$contains": format!("blocked by a hook: {part}")}));
    let steps = [
        CONTEXT.to_owned(),
        exec(
            r#"{ shellArgs = { command = "touch forbidden", workingDirectory = "$WS", toolCallId = "a" } }"#,
            &inline(&json!({
                "shellResult": {
                    "rejected": {
                        "command": "touch forbidden",
                        "reason": value(no("not that command")),
                    },
                },
            })),
        ),
        exec(
            r#"{ shellStreamArgs = { command = "echo allowed", workingDirectory = "$WS", toolCallId = "b" } }"#,
            r#"{ shellStream = { stdout = "allowed\n" } }"#,
        ),
        exec(
            r#"{ readArgs = { path = "$WS/secret.txt", toolCallId = "c" } }"#,
            &inline(&json!({"readResult": {"rejected": {"reason": value(no("classified"))}}})),
        ),
        exec(
            r#"{ readArgs = { path = "$WS/a.txt", toolCallId = "d" } }"#,
            r#"{ readResult = { success = { content = "alpha\nbeta\ngamma\n" } } }"#,
        ),
        exec(
            r#"{ readArgs = { path = "$WS/none.txt", toolCallId = "d" } }"#,
            r#"{ readResult = { fileNotFound = { } } }"#,
        ),
        exec(
            r#"{ deleteArgs = { path = "$WS/a.txt", toolCallId = "e" } }"#,
            &inline(&json!({
                "deleteResult": {"rejected": {"reason": value(no("the hook failed with exit code 1"))}},
            })),
        ),
        exec(
            r#"{ grepArgs = { pattern = "alpha", toolCallId = "f" } }"#,
            r#"{ grepResult = { error = { error = { "$contains" = "PI_CURSOR_TRUST_PROJECT" } } } }"#,
        ),
        exec(
            r#"{ executeHookArgs = { request = { preToolUse = { toolName = "WebSearch", toolInput = { q = "x" }, toolUseId = "g" } } } }"#,
            r#"{ executeHookResult = { response = { preToolUse = { permission = "deny", userMessage = { "$contains" = "really?" } } } } }"#,
        ),
        calls(
            "look",
            "{}",
            "",
            &inline(&json!({"permissionDenied": {"error": value(no("no looking"))}})),
        ),
        calls("other", "{}", "", &text("seen")),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let mut session = session(&simulator, &sdk, &[]);
    session.tools = vec![
        test_support::rpc_session::tool("look"),
        test_support::rpc_session::tool("other"),
    ];
    let outcome = session.prompt("go");
    assert_eq!(outcome.stop, "toolUse", "{outcome:?}");
    // The host receives only the call that no hook denies.
    let names: Vec<&str> = outcome
        .calls
        .iter()
        .map(|call| call.name.as_str())
        .collect();
    assert_eq!(names, ["other"]);
    session.result(&outcome.calls[0], json!([{"type": "text", "text": "seen"}]));
    assert_eq!(session.turn().stop, "stop");
    assert_eq!(outcome.notices.len(), 1, "{outcome:?}");
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    let steps = &contexts(&recording)[0]["hooksConfig"]["configuredSteps"];
    assert_eq!(steps.as_array().unwrap().len(), 4);
    for gone in ["forbidden", "ran"] {
        assert!(!sdk.workspace.join(gone).exists(), "{gone}");
    }
    assert!(sdk.workspace.join("a.txt").exists());
}

#[test]
fn hooks_of_an_unknown_shape_still_guard_their_event() {
    let sdk = OfficialClient::new();
    // An object where a list is expected.
    let hooks = r#"{"version": 1, "hooks": {"beforeShellExecution": {"command": "exit 2"}}}"#;
    write(sdk.home.path(), ".cursor/hooks.json", hooks);
    let steps = [
        CONTEXT.to_owned(),
        exec(
            r#"{ shellArgs = { command = "touch ran", workingDirectory = "$WS", toolCallId = "a" } }"#,
            r#"{ shellResult = { rejected = { reason = { "$contains" = "beforeShellExecution is no list of hooks" } } } }"#,
        ),
        exec(
            r#"{ readArgs = { path = "$WS/a.txt", toolCallId = "b" } }"#,
            r#"{ readResult = { success = { content = "alpha\nbeta\ngamma\n" } } }"#,
        ),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let outcome = session(&simulator, &sdk, &[]).prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    assert_eq!(outcome.notices.len(), 1, "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
    assert!(!sdk.workspace.join("ran").exists());
}
