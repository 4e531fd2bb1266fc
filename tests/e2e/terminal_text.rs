//! Text from models, servers and repositories on its way to a terminal must not contain anything
//! that the terminal interprets.

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value as Json, json};

use test_support::binary;
use test_support::rpc_session::{RpcSession, tool};
use test_support::scenario::{Steps, document, inline, playing};
use test_support::simulator::{Simulator, Transport};

/// As escaped in TOML and JSON: sets the clipboard and the title, clears the screen, starts a C1
/// sequence, reverses the text direction.
const HOSTILE: &str =
    r"\u001b]52;c;c3J2\u0007\u001b]0;TITLE\u0007\u001b[2J\u009b31m\u202emark\u007f";
/// Returns the characters of an escaped text.
fn unescaped(text: &str) -> String {
    serde_json::from_str(&format!("\"{text}\"")).unwrap()
}

/// What a host receives instead.
const HARMLESS: &str = "␛]52;c;c3J2␇␛]0;TITLE␇␛[2J\u{fffd}31m\u{fffd}mark␡";

/// Whether a terminal interprets this character.
fn is_obeyed(c: char) -> bool {
    let is_bidi =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    is_bidi || (c.is_control() && !matches!(c, '\n' | '\t'))
}

/// Collects every string in a message, including field names.
fn texts(value: &Json, found: &mut Vec<String>) {
    match value {
        Json::String(text) => found.push(text.clone()),
        Json::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Json::Object(fields) => fields.iter().for_each(|(name, value)| {
            found.push(name.clone());
            texts(value, found);
        }),
        _ => {}
    }
}

#[track_caller]
fn assert_harmless(messages: &[Json]) {
    let mut found = Vec::new();
    messages
        .iter()
        .for_each(|message| texts(message, &mut found));
    assert!(!found.is_empty());
    for text in found {
        assert!(!text.contains(is_obeyed), "{text:?}");
    }
}

/// A simulator with a hostile model name. It streams hostile text and thinking in pieces, reports a
/// hostile command and fails with a hostile message.
fn hostile_server() -> Simulator {
    let echo = unescaped(&format!("echo {HOSTILE}"));
    let shell = Steps::new()
        .step(json!({
            "update": {
                "toolCallStarted": {
                    "callId": "c",
                    "toolCall": {"shellToolCall": {"args": {"command": echo}}},
                },
            },
        }))
        .step(json!({
            "update": {
                "toolCallCompleted": {
                    "callId": "c",
                    "toolCall": {
                        "shellToolCall": {
                            "args": {"command": echo},
                            "result": {"success": {"stdout": unescaped(HOSTILE)}},
                        },
                    },
                },
            },
        }))
        .build();
    let hostile = unescaped(HOSTILE);
    let models = json!([{"id": "gpt", "displayName": format!("GPT {hostile}")},
        {"id": "composer-2", "displayName": "Composer"}]);
    let first = Steps::new()
        .context()
        .step(json!({"thinking": format!("Hm {hostile}")}))
        .text("one \u{1b}")
        .text(format!("]52;c;c3J2\u{7} {hostile}"))
        .then(shell)
        .checkpoint()
        .usage()
        .end()
        .build();
    let error =
        json!({"code": "invalid_argument", "message": format!("no {hostile}"), "retryable": false});
    let second = Steps::new().step(json!({"end": error})).build();
    let server = format!("[server]\nmodels = {}\n[[run]]", inline(&models));
    let scenario = document("hostile", &[first, second]).replacen("[[run]]", &server, 1);
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(file.path(), scenario).unwrap();
    Simulator::with(Transport::Http1, file.path())
}

/// A repository whose MCP server has a hostile name.
fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".cursor")).unwrap();
    let name = unescaped(&format!("srv{HOSTILE}"));
    let servers = json!({"mcpServers": {name: {"command": "true"}}});
    std::fs::write(folder.path().join(".cursor/mcp.json"), servers.to_string()).unwrap();
    folder
}

#[test]
fn a_host_receives_no_terminal_control_sequences() {
    let simulator = hostile_server();
    let repository = repository();
    let mut session = RpcSession::new(&simulator, "s", &[("PATH", "/usr/bin:/bin")]);
    session.host.received = Some(Vec::new());
    session.workspace = repository.path().display().to_string();
    session.tools = vec![tool("cursor"), tool("bash")];

    let listed = session.host.call("models/list", json!({"refresh": true}));
    let name = format!("GPT {HARMLESS}");
    let rows = listed["result"]["models"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["name"] == name), "{listed}");

    session.cards = vec!["bash", "cursor"];
    let outcome = session.prompt("go");
    assert_eq!(outcome.text, format!("one ␛]52;c;c3J2␇ {HARMLESS}"));
    assert!(
        outcome.thinking.starts_with(&format!("Hm {HARMLESS}")),
        "{outcome:?}"
    );
    let named = |notice: &String| notice.contains(&format!("srv{HARMLESS}"));
    assert!(outcome.notices.iter().any(named), "{:?}", outcome.notices);
    let card = outcome.calls.last().expect("a card");
    assert!(card.arguments.to_string().contains("␛]52"), "{card:?}");
    let params = json!({"sessionId": session.id, "callId": card.id});
    let recorded = session.host.call("replay/result", params);
    assert!(
        recorded["result"].to_string().contains("␛]52"),
        "{recorded}"
    );
    session.result(card, recorded["result"]["content"].clone());
    assert_eq!(session.turn().stop, "stop");

    let failed = session.prompt("again");
    assert_eq!(failed.stop, "error");
    assert!(
        failed.error.contains(&format!("no {HARMLESS}")),
        "{failed:?}"
    );
    // The same conversation: sanitized text is not mistaken for a rewritten history.
    let requests = simulator.recorded();
    let requests = requests.client("runRequest");
    let conversations: Vec<_> = requests
        .iter()
        .map(|request| &request["runRequest"]["conversationId"])
        .collect();
    assert!(conversations.len() > 1 && conversations.iter().all(|id| *id == conversations[0]));

    let unknown = session.host.call("\u{1b}[2J", json!({}));
    assert_eq!(unknown["error"]["code"], -32601);
    assert_harmless(session.host.received.as_ref().unwrap());
    let stderr = session.host.stderr();
    assert!(!stderr.contains(is_obeyed), "{stderr:?}");
}

/// Arguments are executed by the host and not displayed, so they are passed on unchanged.
#[test]
fn arguments_of_the_hosts_own_tools_are_exact() {
    let steps = r#"{ exec = { mcpArgs = { name = "pi__look", providerIdentifier = "pi", toolName = "pi__look", toolCallId = "c1", args = { q = "\u001b[1m\r\u202e" } } } }"#;
    let simulator = playing(Transport::Http1, steps);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.tools = vec![tool("look")];
    let outcome = session.prompt("go");
    assert_eq!(outcome.calls[0].arguments["q"], "\u{1b}[1m\r\u{202e}");
}

/// Runs a command on a terminal; returns its output and whether it succeeded.
fn in_terminal(arguments: &[&str], folder: &Path, env: &[(&str, &str)]) -> (String, bool) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    let open = || std::fs::File::options().read(true).write(true).open(name);
    let mut child = Command::new(binary())
        .args(arguments)
        .env_clear()
        .env("HOME", folder)
        .env("PI_CURSOR_STATE_DIR", folder)
        .env("NO_COLOR", "1")
        .envs(env.iter().copied())
        .current_dir(folder)
        .stdin(open().unwrap())
        .stdout(open().unwrap())
        .stderr(open().unwrap())
        .spawn()
        .unwrap();
    let mut printed = Vec::new();
    // Reading fails once the other end is closed.
    let _ = std::fs::File::from(master).read_to_end(&mut printed);
    let is_well = child.wait().unwrap().success();
    // The terminal ends lines with CR LF.
    let printed = String::from_utf8(printed).unwrap().replace("\r\n", "\n");
    (printed, is_well)
}

#[test]
fn commands_print_no_terminal_control_sequences() {
    let simulator = hostile_server();
    let repository = repository();
    let env = [
        ("PATH", "/usr/bin:/bin"),
        ("CURSOR_BACKEND_URL", simulator.url.as_str()),
        ("CURSOR_API_KEY", "crsr_test"),
        // Without colours and spinners of our own.
        ("TERM", "dumb"),
    ];
    let run = |arguments: &[&str]| {
        let (printed, is_well) = in_terminal(arguments, repository.path(), &env);
        assert!(!printed.contains(is_obeyed), "{arguments:?}: {printed:?}");
        (printed, is_well)
    };
    let (printed, is_well) = run(&["models", "--refresh"]);
    assert!(is_well && printed.contains(HARMLESS), "{printed}");
    let (printed, is_well) = run(&["models", "--refresh", "--json"]);
    assert!(is_well && printed.contains(HARMLESS), "{printed}");
    let (printed, is_well) = run(&["ask", "--tools", "go"]);
    assert!(is_well && printed.contains(HARMLESS), "{printed}");
    let (printed, is_well) = run(&["ask", "--json", "go"]);
    assert!(is_well && printed.contains(HARMLESS), "{printed}");
    run(&["doctor"]);
    run(&["doctor", "--online", "--json"]);

    let failing = Steps::new()
        .step(json!({
            "end": {
                "code": "invalid_argument",
                "message": unescaped(&format!("no {HOSTILE}")),
                "retryable": false,
            },
        }))
        .build();
    let failing = playing(Transport::Http1, &failing);
    let env = [
        ("CURSOR_BACKEND_URL", failing.url.as_str()),
        ("CURSOR_API_KEY", "crsr_test"),
    ];
    let (printed, is_well) = in_terminal(&["ask", "go"], repository.path(), &env);
    assert!(!is_well && printed.contains(HARMLESS), "{printed}");
    assert!(!printed.contains(is_obeyed), "{printed:?}");
}

/// stdout that is not a terminal gets the exact answer; the error message on stderr is sanitized.
#[test]
fn a_program_gets_the_exact_answer() {
    let simulator = playing(
        Transport::Http1,
        r#"{ text = "a\u001b[1mb" }, { end = { code = "invalid_argument", message = "no \u001b[2J", retryable = false } }"#,
    );
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(binary())
        .args(["ask", "go"])
        .env_clear()
        .env("HOME", folder.path())
        .env("CURSOR_BACKEND_URL", &simulator.url)
        .env("CURSOR_API_KEY", "crsr_test")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.starts_with("a\u{1b}[1mb"), "{stdout:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("no ␛[2J"), "{stderr:?}");
    assert!(!stderr.contains('\u{1b}'), "{stderr:?}");
}
