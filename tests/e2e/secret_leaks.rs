//! Canaries: secrets and texts that pass through every kind of failure, and are then searched for
//! in every file that a sidecar leaves on disk.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::account::expire;
use crate::steering::{INJECTED, interrupted};
use test_support::gateway::GatewayProcess;
use test_support::rpc_session::{RpcSession, tool};
use test_support::scenario::{Steps, inline, playing};
use test_support::simulator::{Simulator, Transport};
use test_support::wait::until;

/// Chosen so that no pattern of the scrubber matches them.
const KEY: &str = "plainkey-canary-otters";
const PROMPT: &str = "canary prompt about pelicans";
const SYSTEM: &str = "canary system prompt about walruses";
const ANSWER: &str = "canary answer about ostriches";
const ARGUMENT: &str = "canary argument about newts";
const RESULT: &str = "canary result about beavers";
const FILE: &str = "canary file about badgers";
const COMMAND: &str = "canary command about stoats";
const OUTPUT: &str = "canary output about finches";
const WRITTEN: &str = "canary writing about lynxes";
const STEERING: &str = "canary steering about hedgehogs";
const PICTURE: &str = "canary picture of hamsters.";
/// The same in base64, as it is sent after the header of the image.
const ENCODED: &str = "Y2FuYXJ5IHBpY3R1cmUgb2YgaGFtc3RlcnMu";
/// What a server sends before it repeats the key.
const ECHOED: &str = "echoed";
const WORDS: [&str; 12] = [
    PROMPT, SYSTEM, ANSWER, ARGUMENT, RESULT, FILE, COMMAND, OUTPUT, WRITTEN, STEERING, PICTURE,
    ENCODED,
];

/// A proxy that records everything a client sends to `server`, in clear text.
fn recording_proxy(server: &str) -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = server.trim_start_matches("http://").to_owned();
    let traffic = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&traffic);
    std::thread::spawn(move || {
        for mut near in listener.incoming().map_while(Result::ok) {
            let mut far = TcpStream::connect(&server).unwrap();
            let (mut back, mut to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut back, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
            let traffic = Arc::clone(&shared);
            std::thread::spawn(move || {
                let mut piece = [0; 16 * 1024];
                while let Ok(length @ 1..) = near.read(&mut piece) {
                    traffic.lock().unwrap().extend_from_slice(&piece[..length]);
                    if far.write_all(&piece[..length]).is_err() {
                        break;
                    }
                }
                let _ = far.shutdown(Shutdown::Both);
            });
        }
    });
    (url, traffic)
}

/// Returns every word that follows `before` on the wire.
fn values(traffic: &str, before: &str) -> BTreeSet<String> {
    let ends = |c: char| c.is_whitespace() || c == '&' || c == '"';
    let pieces = traffic.split(before).skip(1);
    let words = pieces.filter_map(|rest| rest.split(ends).next());
    words
        .filter(|word| word.len() > 8)
        .map(str::to_owned)
        .collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// The key as a server may repeat it: in base64, alone and within a header, and in hex.
fn spellings() -> [String; 3] {
    let header = STANDARD.encode(format!("authorization: Bearer {KEY}\r\n"));
    let hex = KEY.bytes().map(|byte| format!("{byte:02x}"));
    [STANDARD.encode(KEY), header, hex.collect()]
}

/// Asserts that a response to a host or client contains the server's message and no part of the
/// key.
#[track_caller]
fn assert_hides_the_key(answer: &str) {
    assert!(answer.contains(ECHOED), "{answer}");
    assert!(!answer.contains(KEY), "{answer}");
    for spelling in spellings() {
        // The last characters may encode what follows the key.
        let part = &spelling[spelling.len() - 20..spelling.len() - 6];
        assert!(!answer.contains(part), "{spelling} in {answer}");
    }
}

fn holds(bytes: &[u8], canary: &str) -> bool {
    bytes
        .windows(canary.len())
        .any(|piece| piece == canary.as_bytes())
}

#[test]
fn no_secret_is_written_outside_the_journal() {
    let fails = Steps::new()
        .step(json!({
            "end": {"code": "unavailable", "message": format!("busy with: {PROMPT} {KEY}")},
        }))
        .build();
    let tools = Steps::new()
        .step(json!({
            "exec": {
                "shellStreamArgs": {
                    "command": format!("cat spoken.txt; : {COMMAND}"),
                    "workingDirectory": "$WS",
                    "toolCallId": "c2",
                    "timeout": 10000,
                },
            },
            "expect": {"shellStream": {"stdout": {"$contains": OUTPUT.to_string()}}},
        }))
        .step(json!({
            "exec": {
                "writeArgs": {
                    "path": "$WS/written.txt",
                    "fileText": WRITTEN.to_string(),
                    "toolCallId": "c3",
                },
            },
            "expect": {"writeResult": {"success": {}}},
        }))
        .build();
    let steered = Steps::new()
        .then(INJECTED)
        .step(json!({
            "update": {
                "contextInjectionState": {"injectionId": "$I", "state": {"delivered": {"step": 1}}},
            },
        }))
        .build();
    let pauses = Steps::new()
        .context()
        .then(tools)
        .step(json!({
            "exec": {"readArgs": {"path": "$WS/secret.txt", "toolCallId": "c0"}},
            "expect": {"readResult": {"success": {"content": {"$contains": FILE.to_string()}}}},
        }))
        .text(ANSWER)
        .then(steered)
        .checkpoint()
        .step(json!({
            "exec": {
                "mcpArgs": {
                    "name": "pi__look",
                    "providerIdentifier": "pi",
                    "toolName": "pi__look",
                    "toolCallId": "c1",
                    "args": {"q": ARGUMENT.to_string()},
                },
            },
        }))
        .build();
    let goes_on = Steps::new()
        .text(format!("{ANSWER} again"))
        .usage()
        .checkpoint()
        .end()
        .build();
    let refuses = Steps::new()
        .step(json!({
            "end": {
                "code": "invalid_argument",
                "message": format!("{ECHOED}: cannot do {PROMPT} with {KEY}, {}", spellings().join(" or ")),
                "retryable": false,
            },
        }))
        .build();
    let breaks = r#"{ text = "half" }, { garbage = "a5a5a5a5a5a5a5a5" }, { end = true }"#;
    let works = Steps::new()
        .context()
        .step(json!({
            "exec": {
                "shellStreamArgs": {
                    "command": format!("cat spoken.txt; : {COMMAND}; echo > begun; exec sleep 600"),
                    "workingDirectory": "$WS",
                    "toolCallId": "c4",
                    "timeout": 600000,
                },
            },
        }))
        .build();
    let runs = [&fails, &pauses, &goes_on, &refuses, breaks, &works]
        .map(|steps| format!("[[run]]\nsteps = [ {steps} ]\n"));
    let place = tempfile::tempdir().unwrap();
    let scenario = place.path().join("canary.toml");
    let about = "name = \"canary\"\nattempts = \"all\"\n";
    std::fs::write(&scenario, format!("{about}{}", runs.concat())).unwrap();
    let simulator = Simulator::with(Transport::Http1, &scenario);
    let (url, traffic) = recording_proxy(&simulator.url);

    let workspace = tempfile::tempdir().unwrap();
    std::fs::write(workspace.path().join("secret.txt"), FILE).unwrap();
    std::fs::write(workspace.path().join("spoken.txt"), OUTPUT).unwrap();
    let state = place.path().join("state");
    let bridge = state.join("bridge.log");
    // Nothing should be written there; the search covers both all the same.
    let (home, temporary) = (place.path().join("home"), place.path().join("tmp"));
    for folder in [&home, &temporary] {
        std::fs::create_dir(folder).unwrap();
    }
    let env = [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", home.to_str().unwrap()),
        ("TMPDIR", temporary.to_str().unwrap()),
        ("CURSOR_BACKEND_URL", url.as_str()),
        ("CURSOR_API_KEY", KEY),
        ("PI_CURSOR_STATE_DIR", state.to_str().unwrap()),
        ("PI_CURSOR_PROVIDER_DEBUG", "1"),
        ("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG", "1"),
        (
            "PI_CURSOR_PI_TOOL_BRIDGE_DEBUG_FILE",
            bridge.to_str().unwrap(),
        ),
    ];
    let mut session = RpcSession::new(&simulator, "s", &env);
    session.host.received = Some(Vec::new());
    session.system = SYSTEM.into();
    session.tools = vec![tool("look")];
    session.workspace = workspace.path().display().to_string();

    // A user logs in and sends an image; a turn is retried, executes, is steered, pauses, and its
    // sidecar is killed.
    let begun = session.host.call("login/start", json!({}))["result"].clone();
    let done = session
        .host
        .call("login/wait", json!({"loginId": begun["loginId"]}));
    assert!(done["result"]["email"].is_string(), "{done}");
    let picture = format!("iVBORw0KGgoA{ENCODED}");
    session.user(PROMPT);
    session.messages[0]["content"] = json!([{"type": "text", "text": PROMPT},
        {"type": "image", "data": picture, "mimeType": "image/png"}]);
    let outcome = interrupted(&mut session, STEERING);
    assert_eq!(
        (outcome.stop.as_str(), outcome.calls.len()),
        ("toolUse", 1),
        "{outcome:?}"
    );
    session.result(&outcome.calls[0], json!([{"type": "text", "text": RESULT}]));
    session.host.kill();
    let mut stderr = session.host.stderr();
    let mut received = session.host.received.take().unwrap();

    // Another sidecar recovers the turn, then receives errors that are final.
    let mut session = session.moved_to(&simulator, &env);
    session.host.received = Some(Vec::new());
    let outcome = session.turn();
    assert_eq!(
        (outcome.stop.as_str(), outcome.error.as_str()),
        ("stop", "")
    );
    assert!(outcome.text.contains(ANSWER), "{outcome:?}");
    let failed = session.prompt(PROMPT);
    assert_eq!(failed.stop, "error");
    assert_hides_the_key(&failed.error);
    assert_eq!(session.prompt(PROMPT).stop, "error");
    session.host.call("shutdown", json!({}));
    session
        .host
        .send(&json!({"jsonrpc": "2.0", "method": "exit"}));
    session.host.ended();
    stderr += &session.host.stderr();
    received.extend(session.host.received.take().unwrap());

    // A third sidecar is killed while it executes.
    let mut session = session.moved_to(&simulator, &env);
    session.user(PROMPT);
    session.begin();
    until(|| workspace.path().join("begun").exists().then_some(()));
    session.host.kill();
    stderr += &session.host.stderr();
    let is_empty = |folder: &Path| std::fs::read_dir(folder).unwrap().next().is_none();
    until(|| is_empty(&temporary).then_some(()));

    let traffic = String::from_utf8_lossy(&traffic.lock().unwrap()).into_owned();
    let mut verifiers = values(&traffic, "verifier=");
    verifiers.extend(values(&traffic, "\"verifier\":\""));
    let mut secrets = values(&traffic, "authorization: Bearer ");
    assert_eq!(verifiers.len(), 1);
    assert!(
        secrets.contains(KEY) && secrets.len() > 2,
        "tokens were seen"
    );
    secrets.extend(verifiers);
    for message in &received {
        let message = message.to_string();
        for secret in &secrets {
            assert!(
                !message.contains(secret),
                "{secret} reached the host: {message}"
            );
        }
    }

    let mut logs = String::new();
    let mut kept = BTreeSet::new();
    let everywhere = [&state, &home, &temporary];
    for path in everywhere.into_iter().flat_map(|folder| files(folder)) {
        let bytes = std::fs::read(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} is for everybody", path.display());
        // The one file that holds a credential.
        let is_login = path == state.join("login.json");
        for secret in secrets.iter().filter(|_| !is_login) {
            assert!(!holds(&bytes, secret), "{secret} in {}", path.display());
        }
        let found = WORDS.into_iter().filter(|word| holds(&bytes, word));
        if path.starts_with(state.join("conversations")) {
            kept.extend(found);
        } else {
            assert_eq!(found.collect::<Vec<_>>(), [""; 0], "in {}", path.display());
            logs += &String::from_utf8_lossy(&bytes);
        }
    }
    for canary in WORDS.into_iter().chain(secrets.iter().map(String::as_str)) {
        assert!(!stderr.contains(canary), "{canary} on stderr: {stderr}");
    }
    // That a panic message quotes nothing is tested next to the panic hook.
    assert!(!stderr.contains("panicked"), "{stderr}");
    // Check that the canaries really passed through.
    let wire = simulator.recorded().0.to_string();
    for word in WORDS.into_iter().filter(|word| *word != PICTURE) {
        assert!(wire.contains(word), "{word} went through nothing");
    }
    assert!(kept.contains(PROMPT) && kept.contains(ANSWER), "{kept:?}");
    for event in [
        "run.retry",
        "bridge.recovered_via_checkpoint",
        "turn.answered",
        "request_queued",
        "run.inject",
        "ShellStreamArgs",
        "WriteArgs",
    ] {
        assert!(logs.contains(event), "{event} is not logged");
    }
}

/// The tokens of a login and its verifier: while it is begun, used, renewed, and a command runs.
#[test]
fn the_secrets_of_a_login_are_in_its_file_only() {
    let list = "env > env.txt; for it in /proc/[0-9]*; do tr '\\0' ' ' < $it/cmdline; done > arguments.txt 2>&1; true";
    let steps = Steps::new()
        .context()
        .step(json!({
            "exec": {
                "shellStreamArgs": {
                    "command": list,
                    "workingDirectory": "$WS",
                    "toolCallId": "c1",
                    "timeout": 10000,
                },
            },
        }))
        .usage()
        .end()
        .build();
    let simulator = playing(Transport::Http1, &steps);
    let (url, traffic) = recording_proxy(&simulator.url);
    let place = tempfile::tempdir().unwrap();
    let (state, workspace) = (place.path().join("state"), place.path().join("workspace"));
    std::fs::create_dir(&workspace).unwrap();
    let env = [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", place.path().to_str().unwrap()),
        ("CURSOR_BACKEND_URL", url.as_str()),
        ("CURSOR_API_KEY", ""),
        ("PI_CURSOR_STATE_DIR", state.to_str().unwrap()),
        ("PI_CURSOR_PROVIDER_DEBUG", "1"),
        ("RUST_LOG", "trace"),
    ];
    let mut session = RpcSession::new(&simulator, "s", &env);
    session.workspace = workspace.display().to_string();
    session.host.received = Some(Vec::new());
    let file = state.join("login.json");
    let tokens = || {
        let stored: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        ["accessToken", "refreshToken"].map(|name| stored[name].as_str().unwrap().to_owned())
    };
    let begun = session.host.call("login/start", json!({}))["result"].clone();
    let wait = json!({"loginId": begun["loginId"]});
    let done = session.host.call("login/wait", wait);
    assert!(done["result"]["email"].is_string(), "{done}");
    let mut secrets = BTreeSet::from(tokens());
    expire(&file);
    assert_eq!(session.prompt("go").stop, "stop");
    secrets.extend(tokens());
    assert!(secrets.len() >= 4, "the login was renewed");
    session.host.call("account/status", json!({}));
    session.host.kill();
    let traffic = String::from_utf8_lossy(&traffic.lock().unwrap()).into_owned();
    secrets.extend(values(&traffic, "\"verifier\":\""));
    assert!(secrets.len() >= 5, "the verifier was seen");

    let arguments = std::fs::read_to_string(workspace.join("arguments.txt")).unwrap();
    assert!(arguments.contains("cursor-sidecar"), "{arguments}");
    let mut searched = 0;
    for path in files(place.path()).into_iter().filter(|path| *path != file) {
        let bytes = std::fs::read(&path).unwrap();
        for secret in &secrets {
            assert!(!holds(&bytes, secret), "{secret} in {}", path.display());
        }
        searched += 1;
    }
    assert!(searched >= 3, "a log and two lists: {searched}");
    let stderr = session.host.stderr();
    let received = session.host.received.take().unwrap();
    for secret in &secrets {
        assert!(!stderr.contains(secret), "{secret} on stderr");
        let reached = received.iter().find(|it| it.to_string().contains(secret));
        assert!(reached.is_none(), "{secret} reached the host: {reached:?}");
    }
}

/// The gateway removes a key that the server repeats, from streamed and other responses and from
/// the log.
#[tokio::test]
async fn the_gateway_does_not_repeat_the_key() {
    let steps = Steps::new()
        .step(json!({
            "end": {
                "code": "invalid_argument",
                "message": format!("{ECHOED} {KEY} or {}", spellings().join(" or ")),
                "retryable": false,
            },
        }))
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(
        &simulator,
        &[("CURSOR_API_KEY", KEY), ("RUST_LOG", "debug")],
    );
    for stream in [true, false] {
        let mut chat = gateway.chat();
        chat.stream = stream;
        chat.user("go");
        let answer = chat.send(&chat.body()).await.text().await.unwrap();
        assert_hides_the_key(&answer);
        assert!(!answer.contains(&gateway.token), "{answer}");
    }
    let stderr = std::fs::read_to_string(gateway.folder().join("stderr")).unwrap();
    assert!(!stderr.contains(KEY), "{stderr}");
}

/// The same for errors of the key exchange, in every request of a host.
#[test]
fn a_refused_key_is_not_repeated() {
    let values = format!("{ECHOED} {KEY} or {}", spellings().join(" or "));
    let answer = inline(&json!({"status": 401, "body": {"message": values.to_string()}}));
    let scenario = format!(
        "name = \"refused\"\n[server]\nexchange = {answer}\nunary = {{ \"/v1/models\" = {answer} }}\n[[run]]\nsteps = []\n"
    );
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(file.path(), scenario).unwrap();
    let simulator = Simulator::with(Transport::Http1, file.path());
    let mut session = RpcSession::new(&simulator, "s", &[("CURSOR_API_KEY", KEY)]);
    assert_hides_the_key(&session.prompt("go").error);
    let listed = session.host.call("models/list", json!({"refresh": true}));
    assert_hides_the_key(&listed["result"]["warnings"].to_string());
    let status = session.host.call("account/status", json!({}));
    assert_hides_the_key(&status["result"]["problem"].to_string());
    let stderr = session.host.stderr();
    assert!(!stderr.contains(KEY), "{stderr}");
}
