//! The user's Cursor settings in a turn of real pi.

use std::fs;

use serde_json::{Value as Json, json};

use test_support::official_client::{McpHttpServer, OfficialClient, PNG, mcp_stdio};
use test_support::pi_env::{ECHO, PiEnv, PiOutput, PiVersion};
use test_support::root;
use test_support::scenario::{Steps, value};

crate::on_every_pi!(texts_of_pis_tools_become_typed_results);

fn write(pi_env: &PiEnv, path: &str, text: &str) {
    let path = pi_env.home.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn call(server: &str, expect: &str) -> String {
    Steps::new()
        .step(json!({
            "exec": {
                "mcpArgs": {
                    "name": format!("{server}-echo"),
                    "providerIdentifier": server.to_string(),
                    "toolName": "echo",
                    "toolCallId": format!("c-{server}"),
                    "args": {"text": "hi"},
                },
            },
            "expect": {"mcpResult": value(expect)},
        }))
        .build()
}

#[test]
fn an_invalid_setting_is_reported() {
    let pi_env = PiEnv::playing(PiVersion::V150, ECHO).with("PI_CURSOR_NATIVE_TOOLS", "of");
    let ran = pi_env.print("hi");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "Heard: hi\n"));
    let context = ran.stderr.matches("PI_CURSOR_NATIVE_TOOLS: \"of\"").count();
    assert_eq!(context, 1, "{ran:?}");
}

/// A rule, a skill, AGENTS.md here and nested, MCP servers on pipes and over HTTP, one dead, one
/// slow, and a hook that denies: all in one turn.
#[test]
fn settings_of_every_kind_take_effect_in_one_turn() {
    let echoed = r#"{ success = { content = [ { text = { text = 'echo:{"text":"hi"}' } } ] } }"#;
    let steps = [
        r#"{ exec = { requestContextArgs = {} } }"#,
        r#"{ exec = { shellStreamArgs = { command = "touch forbidden", workingDirectory = "$WS", toolCallId = "a" } }, expect = { shellStream = { rejected = { reason = { "$contains" = "not here" } } } } }"#,
        &call("local", echoed),
        &call("web", echoed),
        &call(
            "dead",
            r#"{ error = { error = { "$contains" = "could not be connected" } } }"#,
        ),
        r#"{ text = "All seen." }"#,
        r#"{ checkpoint = "auto" }, { usage = {} }, { end = true }"#,
    ];
    let scenario = format!(
        "name = \"settings\"\n[[run]]\nsteps = [ {} ]\n",
        steps.join(", ")
    );
    let pi_env = PiEnv::playing(PiVersion::V150, &scenario);
    let sdk = OfficialClient::new();
    let web = McpHttpServer::start(&sdk);
    let servers = json!({"mcpServers": {
        "local": mcp_stdio(),
        "web": {"url": web.url},
        "dead": {"url": "http://127.0.0.1:9/mcp"},
        "slow": {"command": "sleep", "args": ["600"]},
    }});
    let hooks = json!({"version": 1, "hooks": {"beforeShellExecution": [
        {"command": "echo '{\"permission\":\"deny\",\"agent_message\":\"not here\"}'", "matcher": "forbidden"}]}});
    for (path, text) in [
        (".cursor/mcp.json", servers.to_string().as_str()),
        ("workspace/.cursor/hooks.json", &hooks.to_string()),
        (
            "workspace/.cursor/rules/tabs.mdc",
            "---\nalwaysApply: true\n---\nUse tabs, always.\n",
        ),
        (
            "workspace/.cursor/skills/fly/SKILL.md",
            "---\nname: fly\ndescription: How to fly\n---\nJump.\n",
        ),
        ("workspace/AGENTS.md", "Mind the root gap.\n"),
        ("workspace/deep/AGENTS.md", "Mind the nested gap.\n"),
    ] {
        write(&pi_env, path, text);
    }
    let mut command = pi_env.command(&["--model", "cursor/composer-2", "-p", "go"]);
    let output = command
        .env("PI_CURSOR_TRUST_PROJECT", &pi_env.workspace)
        .output();
    let ran = PiOutput::from(output.unwrap());
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(0), "All seen.\n"),
        "{ran:?}"
    );
    pi_env.no_sidecar_is_left();

    let recording = pi_env.simulator.recorded();
    recording.assert_played(&["completed"]);
    let context = &recording.client("execClientMessage.requestContextResult")[0];
    let context =
        &context["execClientMessage"]["requestContextResult"]["success"]["requestContext"];
    let says = |list: &Json, part: &str| list.to_string().matches(part).count();
    let rules = &context["rules"];
    for part in [
        "Use tabs, always.",
        "Mind the root gap.",
        "Mind the nested gap.",
    ] {
        assert_eq!(says(rules, part), 1, "{part}: {rules}");
    }
    assert_eq!(
        says(&context["agentSkills"], "How to fly"),
        2,
        "description and text"
    );
    assert_eq!(
        context["hooksConfig"]["configuredSteps"],
        json!(["beforeShellExecution"])
    );
    assert_eq!(
        says(&context["mcpMetaToolOptions"], "\"slow\""),
        2,
        "name and identifier"
    );
    assert!(!pi_env.workspace.join("forbidden").exists());
}

/// pi trusts a folder without its own resources without asking, which does not permit the commands
/// of Cursor settings; an explicit approval by the user does.
#[test]
fn a_projects_commands_wait_until_pis_user_was_asked() {
    let pi_env = PiEnv::playing(PiVersion::V150, ECHO);
    let servers = json!({"mcpServers": {"theirs": {"command": "sleep", "args": ["600"]}}});
    write(&pi_env, "workspace/.cursor/mcp.json", &servers.to_string());
    let accepted = || pi_env.home.path().join(".local/state/cursor-sidecar/trust");
    let not_trusted = |ran: &PiOutput| ran.stderr.matches("the project is not trusted").count();
    let ran = pi_env.print("one");
    assert_eq!((ran.code, not_trusted(&ran)), (Some(0), 1), "{ran:?}");
    // Now pi would ask, but it cannot in print mode.
    write(&pi_env, "workspace/.pi/settings.json", "{}");
    let ran = pi_env.print("two");
    assert_eq!((ran.code, not_trusted(&ran)), (Some(0), 1), "{ran:?}");
    assert!(!accepted().exists());
    let ran = pi_env.pi(&["--approve", "--model", "cursor/composer-2", "-p", "three"]);
    assert_eq!((ran.code, not_trusted(&ran)), (Some(0), 0), "{ran:?}");
    assert_eq!(fs::read_dir(accepted()).unwrap().count(), 1);
}

/// Native tools executed by pi's: the output of pi's `read`, `edit` and `bash` is converted to the
/// results that Cursor expects.
#[test]
fn cursors_tools_left_to_the_host_are_pis() {
    let steps = [
        r#"{ exec = { requestContextArgs = {} } }"#,
        r#"{ exec = { readArgs = { path = "$WS/a.txt", toolCallId = "a" } }, expect = { readResult = { success = { content = "one\ntwo\nthree\n", totalLines = 4 } } } }"#,
        r#"{ exec = { writeArgs = { path = "$WS/a.txt", fileText = "one\nTWO\nthree\n", toolCallId = "b" } }, expect = { writeResult = { success = { fileSize = 14 } } } }"#,
        r#"{ exec = { writeArgs = { path = "$WS/new.txt", fileText = "new", toolCallId = "c" } }, expect = { writeResult = { success = { fileSize = 3 } } } }"#,
        r#"{ exec = { shellStreamArgs = { command = "cat a.txt; exit 3", workingDirectory = "$WS", toolCallId = "d" } }, expect = { shellStream = { stdout = { "$contains" = "TWO" }, exit = { code = 3 } } } }"#,
        r#"{ exec = { shellArgs = { command = "pwd", workingDirectory = "$WS/sub", toolCallId = "e" } }, expect = { shellResult = { success = { stdout = { "$contains" = "/sub" } } } } }"#,
        r#"{ exec = { readArgs = { path = "$WS/none.txt", toolCallId = "f" } }, expect = { readResult = { fileNotFound = { path = "$WS/none.txt" } } } }"#,
        r#"{ exec = { readArgs = { path = "$WS/dot.png", toolCallId = "g" } }, expect = { readResult = { success = { data = { "$any" = true } } } } }"#,
        r#"{ text = "All done." }"#,
        r#"{ checkpoint = "auto" }, { usage = {} }, { end = true }"#,
    ];
    let scenario = format!(
        "name = \"host\"\n[[run]]\nsteps = [ {} ]\n",
        steps.join(", ")
    );
    let pi_env = PiEnv::playing(PiVersion::V150, &scenario);
    write(&pi_env, "workspace/a.txt", "one\ntwo\nthree\n");
    write(&pi_env, "workspace/sub/b.txt", "");
    let picture = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, PNG);
    fs::write(pi_env.workspace.join("dot.png"), picture.unwrap()).unwrap();
    let mut command = pi_env.command(&["--model", "cursor/composer-2", "-p", "go"]);
    let output = command.env("PI_CURSOR_NATIVE_TOOLS", "host").output();
    let ran = PiOutput::from(output.unwrap());
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(0), "All done.\n"),
        "{ran:?}"
    );
    pi_env.simulator.recorded().assert_played(&["completed"]);
    let now = |name: &str| fs::read_to_string(pi_env.workspace.join(name)).unwrap();
    assert_eq!(
        (now("a.txt").as_str(), now("new.txt").as_str()),
        ("one\nTWO\nthree\n", "new")
    );
}

/// The real output of pi's `grep`, `ls` and `read`, in every version.
fn texts_of_pis_tools_become_typed_results(version: PiVersion) {
    let steps = [
        r#"{ exec = { requestContextArgs = {} } }"#,
        r#"{ exec = { grepArgs = { pattern = "needle", path = "$WS/sub", context = 1, toolCallId = "a" } }, expect = { grepResult = { success = { workspaceResults = { "$WS" = { content = { totalMatchedLines = 1, matches = [ { file = "sub/2024-01-05-[id].md", matches = [ { lineNumber = 1, content = "hay", isContextLine = true }, { lineNumber = 2, content = "[needle]" }, { lineNumber = 3, content = "", isContextLine = true } ] } ] } } } } } } }"#,
        r#"{ exec = { grepArgs = { pattern = "needle", path = "$WS/sub/2024-01-05-[id].md", outputMode = "files_with_matches", toolCallId = "b" } }, expect = { grepResult = { success = { workspaceResults = { "$WS" = { files = { files = [ "sub/2024-01-05-[id].md" ] } } } } } } }"#,
        r#"{ exec = { lsArgs = { path = "$WS/sub", toolCallId = "c" } }, expect = { lsResult = { success = { directoryTreeRoot = { childrenFiles = [ { name = "[slug].tsx" }, { name = "2024-01-05-[id].md" } ] } } } } }"#,
        r#"{ exec = { readArgs = { path = "$WS/long.txt", toolCallId = "d" } }, expect = { readResult = { error = { error = { "$contains" = "exceeds" } } } } }"#,
        r#"{ exec = { shellArgs = { command = "true", workingDirectory = "$WS", toolCallId = "e" } }, expect = { shellResult = { success = { command = "true" } } } }"#,
        r#"{ exec = { writeArgs = { path = "long.txt", fileText = "short", toolCallId = "f" } }, expect = { writeResult = { rejected = { reason = { "$contains" = "showed only a part" } } } } }"#,
        r#"{ text = "All done." }"#,
        r#"{ checkpoint = "auto" }, { usage = {} }, { end = true }"#,
    ];
    let scenario = format!(
        "name = \"host\"\n[[run]]\nsteps = [ {} ]\n",
        steps.join(", ")
    );
    let pi_env = PiEnv::playing(version, &scenario).with("PI_CURSOR_NATIVE_TOOLS", "host");
    write(
        &pi_env,
        "workspace/sub/2024-01-05-[id].md",
        "hay\n[needle]\n",
    );
    write(&pi_env, "workspace/sub/[slug].tsx", "");
    let long = "x".repeat(60_000);
    write(&pi_env, "workspace/long.txt", &long);
    // pi starts ripgrep and may not download it, so the one of the official client is used.
    let bin = pi_env.home.path().join("agent/bin");
    fs::create_dir(&bin).unwrap();
    let packages = fs::read_dir(root().join("tests/official/node_modules/@cursor")).unwrap();
    let mut ripgreps = packages.map(|package| package.unwrap().path().join("bin/rg"));
    let ripgrep = ripgreps.find(|path| path.exists()).unwrap();
    std::os::unix::fs::symlink(ripgrep, bin.join("rg")).unwrap();
    let tools = ["--tools", "read,bash,grep,ls,edit,write"];
    let mut command =
        pi_env.command(&[&["--model", "cursor/composer-2"], &tools[..], &["-p", "go"]].concat());
    let ran = PiOutput::from(command.output().unwrap());
    pi_env.simulator.recorded().assert_played(&["completed"]);
    assert_eq!(ran.stdout, "All done.\n", "{ran:?}");
    let now = fs::read_to_string(pi_env.workspace.join("long.txt")).unwrap();
    assert_eq!(now, long);
}
