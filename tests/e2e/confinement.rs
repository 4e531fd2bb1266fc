//! What the model and the processes we start for it cannot reach: our key, credentials on disk, and
//! files that other programs run.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use test_support::binary;
use test_support::official_client::OfficialClient;
use test_support::processes::is_running;
use test_support::rpc_session::RpcSession;
use test_support::scenario::{CONTEXT, exec, inline, runs, value};
use test_support::sidecar::SidecarProcess;
use test_support::simulator::{Simulator, Transport};
use test_support::wait::until;
use test_support::workspace::{session, write};

/// An unprivileged user for tests that run as root, because root may read everything.
const UNPRIVILEGED: u32 = 65_534;
const KEY: &str = "crsr_canary0123456789abcdef";
const TOKEN: &str = "gateway-canary-0123456789";

/// Returns the sidecar as a command of an unprivileged user with this folder.
pub fn unprivileged(folder: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(binary());
    }
    // The build directory may not be readable by other users.
    let program = folder.join("cursor-sidecar");
    fs::copy(binary(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    give(folder);
    let mut command = Command::new(program);
    command
        .uid(UNPRIVILEGED)
        .gid(UNPRIVILEGED)
        .current_dir(folder);
    command
}

/// Changes the owner of a folder and everything in it to that user.
fn give(path: &Path) {
    std::os::unix::fs::lchown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path());
        }
    }
}

/// Inspects its parent process. It is sourced by a shell, so that the parent is the sidecar.
const PROBE: &str = r#"
cd "$DIR"
cat /proc/$PPID/environ > $name.environ 2> $name.refused
cat /proc/$PPID/maps > $name.maps 2>> $name.refused
ls -l /proc/$PPID/fd > $name.fd 2>> $name.refused
cat /proc/self/environ > $name.own
echo $PPID > $name.parent
echo $$ > $name.self
if [ $name = shell ]; then env -i PATH="$PATH" setsid sh away.sh < /dev/null > /dev/null 2>&1 & fi
mv $name.parent $name.done
"#;

#[cfg(target_os = "linux")]
#[test]
fn child_processes_cannot_read_the_key_of_the_sidecar() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let here = root.to_str().unwrap();
    write(&root, "probe.sh", &PROBE.replace("$DIR", here));
    let away = "echo $$ > away.new; mv away.new away.self; exec sleep 600";
    write(&root, "away.sh", away);
    let probe = |name: &str| format!("name={name}; . {here}/probe.sh");
    let hooks =
        json!({"version": 1, "hooks": {"beforeShellExecution": [{"command": probe("hook")}]}});
    write(&root, "home/.cursor/hooks.json", &hooks.to_string());
    let server = format!("{}; exec sleep 600", probe("server"));
    let servers = json!({"mcpServers": {"s": {"command": "sh", "args": ["-c", server]}}});
    write(&root, "home/.cursor/mcp.json", &servers.to_string());
    fs::create_dir(root.join("ws")).unwrap();
    let command = exec(
        &inline(&json!({
            "shellArgs": {
                "command": probe("shell").to_string(),
                "workingDirectory": format!("{here}/ws"),
                "toolCallId": "a",
                "parsingResult": {},
            },
        })),
        "{ shellResult = { success = {} } }",
    );
    let simulator = runs(&[format!("{CONTEXT}, {command}")]);
    let (home, state) = (root.join("home"), root.join("state"));
    let env = [
        ("CURSOR_BACKEND_URL", simulator.url.as_str()),
        ("CURSOR_API_KEY", KEY),
        ("CURSOR_SIDECAR_GATEWAY_TOKEN", TOKEN),
        ("PATH", "/usr/bin:/bin"),
        ("HOME", home.to_str().unwrap()),
        ("PI_CURSOR_STATE_DIR", state.to_str().unwrap()),
        ("TMPDIR", here),
    ];
    let host = SidecarProcess::started_by(unprivileged(&root), &env);
    let mut session = RpcSession::on(host, "s");
    session.workspace = root.join("ws").to_str().unwrap().into();
    let outcome = session.prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
    let sidecar = session.host.id().to_string();
    for name in ["shell", "hook", "server"] {
        let read = |what: &str| fs::read(root.join(format!("{name}.{what}"))).ok();
        let parent = until(|| read("done"));
        assert_eq!(String::from_utf8(parent).unwrap().trim(), sidecar, "{name}");
        for what in ["environ", "maps", "fd"] {
            assert_eq!(read(what).unwrap(), b"", "{name}: {what}");
        }
        let refused = String::from_utf8(read("refused").unwrap()).unwrap();
        assert_eq!(refused.matches("Permission denied").count(), 3, "{refused}");
        // It could read its own environment, which contains no secret.
        let own = String::from_utf8(read("own").unwrap()).unwrap();
        assert!(own.contains("PATH="), "{name}: {own}");
        for secret in [KEY, TOKEN] {
            assert!(!own.contains(secret), "{name}");
        }
    }
    // Everything the sidecar started still ends with it, although this user may not read its
    // `/proc` entries.
    let pid = |name: &str| -> i32 {
        until(|| {
            let text = fs::read_to_string(root.join(format!("{name}.self"))).ok()?;
            text.trim().parse().ok()
        })
    };
    let started = [pid("server"), pid("away")];
    assert!(started.into_iter().all(is_running));
    session.host.kill();
    for process in started {
        until(|| (!is_running(process)).then_some(()));
    }
}

#[test]
fn the_browser_of_a_login_gets_no_secret() {
    let simulator = Simulator::start(Transport::Http1);
    let place = tempfile::tempdir().unwrap();
    let root = place.path().canonicalize().unwrap();
    for name in ["open", "xdg-open"] {
        let script = format!(
            "#!/bin/sh\nenv > {0}/new; mv {0}/new {0}/environ\n",
            root.display()
        );
        write(&root, &format!("bin/{name}"), &script);
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(root.join("bin").join(name), executable).unwrap();
    }
    // A browser is opened only on a terminal.
    let terminal =
        rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY)
            .unwrap();
    rustix::pty::grantpt(&terminal).unwrap();
    rustix::pty::unlockpt(&terminal).unwrap();
    let name = rustix::pty::ptsname(&terminal, Vec::new()).unwrap();
    let user = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let done = Command::new(binary())
        .arg("login")
        .env_clear()
        .env("PATH", format!("{}/bin:/usr/bin:/bin", root.display()))
        .env("CURSOR_BACKEND_URL", &simulator.url)
        .env("CURSOR_WEBSITE_URL", &simulator.url)
        .env("CURSOR_API_KEY", KEY)
        .env("CURSOR_SIDECAR_GATEWAY_TOKEN", TOKEN)
        .env("PI_CURSOR_STATE_DIR", root.join("state"))
        .env("DISPLAY", ":7")
        .stdin(Stdio::null())
        .stdout(user)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(done.success());
    let environment = until(|| fs::read_to_string(root.join("environ")).ok());
    // The variables that a browser needs are kept.
    assert!(environment.contains("DISPLAY=:7"), "{environment}");
    for secret in [KEY, TOKEN, "PI_CURSOR_"] {
        assert!(!environment.contains(secret), "{environment}");
    }
}

/// Steps that try to reach credentials, with the expected rejections.
fn refused(path: &str) -> Vec<String> {
    let why = r#"{ "$contains" = "keeps credentials" }"#;
    vec![
        exec(
            &inline(
                &json!({"readArgs": {"path": format!("{path}/login.json"), "toolCallId": "a"}}),
            ),
            &inline(&json!({"readResult": {"rejected": {"reason": value(why)}}})),
        ),
        exec(
            &inline(&json!({"piReadArgs": {"path": format!("{path}/gateway-token")}})),
            &inline(&json!({"piReadResult": {"error": {"error": value(why)}}})),
        ),
        exec(
            &inline(&json!({"piGrepArgs": {"pattern": "crsr", "path": path.to_string()}})),
            &inline(&json!({"piGrepResult": {"error": {"error": value(why)}}})),
        ),
        exec(
            &inline(&json!({"lsArgs": {"path": path.to_string(), "toolCallId": "b"}})),
            &inline(&json!({"lsResult": {"rejected": {"reason": value(why)}}})),
        ),
        exec(
            &inline(&json!({"piLsArgs": {"path": path.to_string()}})),
            &inline(&json!({"piLsResult": {"error": {"error": value(why)}}})),
        ),
        exec(
            &inline(&json!({
                "writeArgs": {
                    "path": format!("{path}/gateway-token"),
                    "fileText": "chosen-by-the-model",
                    "toolCallId": "c",
                },
            })),
            &inline(&json!({"writeResult": {"permissionDenied": {"error": value(why)}}})),
        ),
        exec(
            &inline(
                &json!({"deleteArgs": {"path": format!("{path}/login.json"), "toolCallId": "d"}}),
            ),
            &inline(
                &json!({"deleteResult": {"permissionDenied": {"clientVisibleError": value(why)}}}),
            ),
        ),
    ]
}

/// If the workspace is the home directory, the state folder is inside it.
#[test]
fn credentials_cannot_be_read_by_the_model() {
    let sdk = OfficialClient::new();
    let home = sdk.home.path().canonicalize().unwrap();
    let state = home.join(".local/state/cursor-sidecar");
    let login = json!({"apiKey": KEY}).to_string();
    for (file, text) in [
        (".local/state/cursor-sidecar/login.json", login.as_str()),
        (".local/state/cursor-sidecar/gateway-token", KEY),
        (".pi/agent/auth.json", &login),
        ("notes/plain.txt", "crsr plain\n"),
    ] {
        write(&home, file, text);
    }
    symlink(&state, home.join("innocent")).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    let mut steps = vec![CONTEXT.to_owned()];
    steps.extend(refused(state.to_str().unwrap()));
    steps.extend(refused(home.join("innocent").to_str().unwrap()));
    let own = home.join(".pi/agent/auth.json");
    steps.push(exec(
        &inline(&json!({"readArgs": {"path": own.display().to_string(), "toolCallId": "e"}})),
        r#"{ readResult = { rejected = { reason = { "$contains" = "keeps credentials" } } } }"#,
    ));
    steps.push(exec(
        r#"{ grepArgs = { pattern = "crsr", path = "$WS/innocent", toolCallId = "f" } }"#,
        r#"{ grepResult = { error = { error = { "$contains" = "keeps credentials" } } } }"#,
    ));
    // A search of the whole workspace finds only the other files.
    steps.push(exec(
        r#"{ grepArgs = { pattern = "crsr", toolCallId = "g" } }"#,
        "{ grepResult = { success = {} } }",
    ));
    steps.push(exec(
        r#"{ lsArgs = { path = "$WS", toolCallId = "h" } }"#,
        "{ lsResult = { success = {} } }",
    ));
    steps.push(exec(
        r#"{ piFindArgs = { pattern = "*.json" } }"#,
        "{ piFindResult = { success = {} } }",
    ));
    let simulator = runs(&[steps.join(", ")]);
    let env = [
        ("PI_CURSOR_STATE_DIR", state.to_str().unwrap()),
        ("PI_CURSOR_NATIVE_TOOLS_DENY", "shell"),
    ];
    let mut session = session(&simulator, &sdk, &env);
    session.workspace = home.to_str().unwrap().into();
    let outcome = session.prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    let sent = recording.client("execClientMessage");
    let sent: String = sent.iter().map(ToString::to_string).collect();
    assert!(!sent.contains(KEY), "{sent}");
    let listed = |reply: &str| {
        let sent = recording.client(&format!("execClientMessage.{reply}"));
        sent.last().unwrap().to_string()
    };
    assert!(listed("grepResult").contains("notes/plain.txt"));
    for reply in ["grepResult", "lsResult", "piFindResult"] {
        let printed = listed(reply);
        for name in ["login.json", "gateway-token", "auth.json"] {
            assert!(!printed.contains(name), "{name} in {printed}");
        }
    }
    assert_eq!(
        fs::read_to_string(state.join("gateway-token")).unwrap(),
        KEY
    );
    assert!(state.join("login.json").exists());
}

fn write_step(path: &str, expect: &str) -> String {
    exec(
        &inline(
            &json!({"writeArgs": {"path": path.to_string(), "fileText": "x", "toolCallId": "a"}}),
        ),
        expect,
    )
}

const PROTECTED: &str = r#"{ writeResult = { permissionDenied = { error = { "$contains" = "PI_CURSOR_PROTECTED_PATHS" } } } }"#;

/// With shell denied, a write must not become a command of git, pi, an editor or a shell.
#[test]
fn files_that_other_programs_execute_are_not_written() {
    let sdk = OfficialClient::new();
    let config = sdk.workspace.join(".git/config");
    let before = fs::read_to_string(&config).unwrap();
    symlink(".git/config", sdk.workspace.join("notes.txt")).unwrap();
    let paths = [
        "$WS/.git/config",
        "$WS/.git/hooks/post-checkout",
        "$WS/sub/.GIT/config",
        "$WS/notes.txt",
        "$WS/.pi/extensions/evil.ts",
        "$WS/.vscode/tasks.json",
        "$WS/.envrc",
        "$WS/.mcp.json",
        "$WS/.claude/settings.local.json",
        "$WS/.husky/pre-commit",
        "$WS/.cursor/environment.json",
    ];
    let mut steps = vec![CONTEXT.to_owned()];
    steps.extend(paths.map(|path| write_step(path, PROTECTED)));
    let why = r#"{ "$contains" = "rule .git" }"#;
    steps.extend([
        exec(
            r#"{ deleteArgs = { path = "$WS/.git/config", toolCallId = "b" } }"#,
            &inline(&json!({"deleteResult": {"permissionDenied": {"clientVisibleError": value(why)}}})),
        ),
        exec(
            r#"{ piWriteArgs = { path = "@.git/hooks/pre-commit", content = "x" } }"#,
            &inline(&json!({"piWriteResult": {"error": {"error": value(why)}}})),
        ),
        exec(
            r#"{ piEditArgs = { path = ".git/config", edits = [{ oldText = "bare = false", newText = "fsmonitor = x" }] } }"#,
            &inline(&json!({"piEditResult": {"error": {"error": value(why)}}})),
        ),
        write_step("$WS/src/new.rs", "{ writeResult = { success = {} } }"),
    ]);
    let simulator = runs(&[steps.join(", ")]);
    let deny = ("PI_CURSOR_NATIVE_TOOLS_DENY", "shell");
    let outcome = session(&simulator, &sdk, &[deny]).prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
    assert_eq!(fs::read_to_string(&config).unwrap(), before);
    for path in [".git/hooks/post-checkout", ".pi", ".envrc", "sub"] {
        assert!(!sdk.workspace.join(path).exists(), "{path}");
    }
    assert!(sdk.workspace.join("src/new.rs").exists());

    // The user may allow it.
    let steps = [
        CONTEXT.to_owned(),
        write_step(
            "$WS/.vscode/tasks.json",
            "{ writeResult = { success = {} } }",
        ),
        write_step("$WS/.envrc", PROTECTED),
        write_step("$WS/infra/main.tf", PROTECTED),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let setting = ("PI_CURSOR_PROTECTED_PATHS", "infra/**, !.vscode/tasks.json");
    let outcome = session(&simulator, &sdk, &[setting]).prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
}

#[test]
fn dotfiles_of_a_home_that_is_the_workspace_are_not_written() {
    let sdk = OfficialClient::new();
    let home = sdk.home.path().canonicalize().unwrap();
    let steps = [
        CONTEXT.to_owned(),
        write_step("$WS/.bashrc", PROTECTED),
        write_step("$WS/.ssh/authorized_keys", PROTECTED),
        write_step("$WS/.config/autostart/x.desktop", PROTECTED),
        write_step("$WS/notes.txt", "{ writeResult = { success = {} } }"),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let mut session = session(&simulator, &sdk, &[]);
    session.workspace = home.to_str().unwrap().into();
    let outcome = session.prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
    assert!(!home.join(".bashrc").exists() && !home.join(".ssh").exists());
}

/// The host has its own checks, but a write to a protected file is not passed on to it.
#[test]
fn the_hosts_tools_are_not_asked_to_write_what_is_protected() {
    let sdk = OfficialClient::new();
    let why = r#"{ "$contains" = "PI_CURSOR_PROTECTED_PATHS" }"#;
    let rejected = inline(&json!({"writeResult": {"rejected": {"reason": value(why)}}}));
    let state = sdk.home.path().canonicalize().unwrap().join("state");
    fs::create_dir(&state).unwrap();
    let steps = [
        CONTEXT.to_owned(),
        write_step("$WS/.git/config", &rejected),
        write_step(".pi/extensions/evil.ts", &rejected),
        exec(
            r#"{ piWriteArgs = { path = "@.envrc", content = "x" } }"#,
            &inline(&json!({"piWriteResult": {"error": {"error": value(why)}}})),
        ),
        exec(
            r#"{ deleteArgs = { path = "$WS/.git/config", toolCallId = "b" } }"#,
            &inline(&json!({"deleteResult": {"rejected": {"reason": value(why)}}})),
        ),
        exec(
            &inline(&json!({
                "readArgs": {"path": format!("{}/login.json", state.display()), "toolCallId": "c"},
            })),
            r#"{ readResult = { rejected = { reason = { "$contains" = "keeps credentials" } } } }"#,
        ),
        write_step("$WS/b.txt", "{ writeResult = { success = {} } }"),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let env = [
        ("PI_CURSOR_NATIVE_TOOLS", "host"),
        ("PI_CURSOR_STATE_DIR", state.to_str().unwrap()),
    ];
    let mut session = session(&simulator, &sdk, &env);
    let tool = |name: &str, arguments: &[&str]| {
        let arguments: serde_json::Map<_, _> = arguments
            .iter()
            .map(|name| ((*name).to_owned(), json!({"type": "string"})))
            .collect();
        json!({
            "name": name,
            "description": name,
            "parameters": {"type": "object", "properties": arguments},
        })
    };
    session.tools = vec![
        tool("read", &["path", "offset", "limit"]),
        tool("write", &["path", "content"]),
        tool("edit", &["path", "edits"]),
        tool("bash", &["command", "timeout"]),
    ];
    let outcome = session.prompt("go");
    // Only the last request reached the host.
    assert_eq!(
        (outcome.stop.as_str(), outcome.calls.len()),
        ("toolUse", 1),
        "{outcome:?}"
    );
    let call = outcome.calls[0].clone();
    assert_eq!(call.name, "write");
    let path = call.arguments["path"].as_str().unwrap();
    assert!(path.ends_with("/b.txt"), "{path}");
    session.result(
        &call,
        json!([{"type": "text", "text": "Successfully wrote 1 bytes"}]),
    );
    assert_eq!(session.turn().stop, "stop");
    simulator.recorded().assert_played(&["completed"]);
}

fn git(folder: &Path, arguments: &[&str]) {
    let done = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", folder)
        .status();
    assert!(done.unwrap().success(), "{arguments:?}");
}

/// Shell is denied, and the repository's configuration is under the attacker's control, as in an
/// unpacked archive.
#[test]
fn a_diff_runs_nothing_that_a_submodule_configures() {
    let sdk = OfficialClient::new();
    let ran = sdk.home.path().join("ran");
    let script = sdk.home.path().join("evil.sh");
    fs::write(&script, format!("#!/bin/sh\ntouch '{}'\n", ran.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let inner = sdk.workspace.join("inner");
    fs::create_dir(&inner).unwrap();
    git(&inner, &["init", "--quiet"]);
    for text in ["one\n", "two\n"] {
        fs::write(inner.join("f"), text).unwrap();
        git(&inner, &["add", "."]);
        git(&inner, &["commit", "--quiet", "-m", text]);
        if text == "one\n" {
            git(&sdk.workspace, &["add", "."]);
            git(&sdk.workspace, &["commit", "--quiet", "-m", "x"]);
        }
    }
    git(&sdk.workspace, &["config", "diff.submodule", "diff"]);
    for folder in [&sdk.workspace, &inner] {
        git(
            folder,
            &["config", "diff.external", script.to_str().unwrap()],
        );
    }
    // Check that git itself would run the configured command.
    git(&sdk.workspace, &["diff", "--no-ext-diff", "HEAD"]);
    assert!(ran.exists(), "git itself runs it");
    fs::remove_file(&ran).unwrap();
    let diff = |format: &str| {
        exec(
            &inline(
                &json!({"gitDiffRequest": {"baseRef": "HEAD", "outputFormat": format.to_string()}}),
            ),
            "{ gitDiffResponse = {} }",
        )
    };
    let steps = [
        CONTEXT.to_owned(),
        diff("OUTPUT_FORMAT_FILE_DIFFS"),
        diff("OUTPUT_FORMAT_DIFFS_WITH_BEFORE_AND_AFTER"),
    ];
    let simulator = runs(&[steps.join(", ")]);
    let deny = ("PI_CURSOR_NATIVE_TOOLS_DENY", "shell");
    let outcome = session(&simulator, &sdk, &[deny]).prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    let recording = simulator.recorded();
    recording.assert_played(&["completed"]);
    let sent = recording.client("execClientMessage.gitDiffResponse");
    assert!(sent[0].to_string().contains("inner"), "{}", sent[0]);
    assert!(!ran.exists());
}

/// A state folder that other users may write to, or a token file that is a pipe, is rejected.
#[test]
fn a_state_folder_open_to_others_is_not_used_and_the_doctor_reports_it() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::write(state.join("login.json"), "{}").unwrap();
    fs::set_permissions(state.join("login.json"), fs::Permissions::from_mode(0o644)).unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new(binary())
            .args(arguments)
            .env_clear()
            .env("HOME", place.path())
            .env("PI_CURSOR_STATE_DIR", &state)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (_, printed, _) = run(&["doctor", "--offline"]);
    assert!(
        printed.contains("login.json is not used: other users can read it"),
        "{printed}"
    );
    fs::remove_file(state.join("login.json")).unwrap();
    let made = Command::new("mkfifo")
        .arg(state.join("gateway-token"))
        .status();
    assert!(made.unwrap().success());
    let (code, _, printed) = run(&["gateway", "--port", "0"]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("gateway-token is not used"), "{printed}");
    fs::remove_file(state.join("gateway-token")).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
    let (_, printed, _) = run(&["doctor", "--offline"]);
    assert!(printed.contains("other users can write to it"), "{printed}");
    assert!(!printed.contains("can be written"), "{printed}");
    let (code, _, printed) = run(&["gateway", "--port", "0"]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("other users can write to it"), "{printed}");
    assert!(!state.join("gateway-token").exists());
}
