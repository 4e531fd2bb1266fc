//! The debug log and the doctor that reads it, through the real binary.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value as Json, json};

use test_support::binary;
use test_support::scenario::{Steps, playing};
use test_support::simulator::{Simulator, Transport};

/// Must never be found in a log. Chosen so that no pattern of the scrubber matches them.
const PROMPT: &str = "canary prompt about pelicans";
const SYSTEM: &str = "canary system prompt about walruses";
const OLD_ANSWER: &str = "canary answer about ostriches";
const TOOL_OUTPUT: &str = "canary tool output about beavers";
const FILE: &str = "canary file about badgers";
const KEY: &str = "plainkey-canary-otters";
const CANARIES: [&str; 6] = [PROMPT, SYSTEM, OLD_ANSWER, TOOL_OUTPUT, FILE, KEY];

/// A home directory and environment for a sidecar.
struct SidecarHome {
    home: tempfile::TempDir,
    env: Vec<(String, String)>,
}

impl SidecarHome {
    fn new(simulator: Option<&Simulator>) -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("AGENTS.md"), FILE).unwrap();
        std::fs::write(home.path().join("a.txt"), FILE).unwrap();
        let mut env = vec![("HOME".into(), home.path().to_str().unwrap().into())];
        if let Some(simulator) = simulator {
            env.push(("CURSOR_BACKEND_URL".into(), simulator.url.clone()));
            env.push(("CURSOR_API_KEY".into(), KEY.into()));
        }
        Self { home, env }
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.home.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs one turn over JSON-RPC, shuts down, and returns stderr.
    fn turn(&self, text: &str) -> String {
        let mut child = self
            .command(&[])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut say = |message: Json| {
            let body = message.to_string();
            write!(stdin, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
            stdin.flush().unwrap();
        };
        let messages = json!([
            {"role": "user", "content": "before", "timestamp": 1},
            {"role": "assistant", "timestamp": 2, "content": [
                {"type": "text", "text": OLD_ANSWER},
                {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a.txt"}}]},
            {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "timestamp": 3,
             "content": [{"type": "text", "text": TOOL_OUTPUT}]},
            {"role": "assistant", "timestamp": 4, "content": [{"type": "text", "text": OLD_ANSWER}]},
            {"role": "user", "content": format!("{text} {PROMPT}"), "timestamp": 5},
        ]);
        say(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
                   "params": {"protocolVersion": 1, "nativeTools": {"default": "local"}, "host": {"name": "test"}}}));
        say(
            json!({"jsonrpc": "2.0", "id": 7, "method": "turn/start", "params": {
            "turnId": "t1", "sessionId": "0123456789", "systemPrompt": SYSTEM,
            "workspace": self.home.path(), "messages": messages,
            "model": {"id": "composer-2"}}}),
        );
        let mut stdout = child.stdout.take().unwrap();
        let mut received = Vec::new();
        while !String::from_utf8_lossy(&received).contains("stopReason") {
            let mut piece = [0; 4096];
            let length = stdout.read(&mut piece).unwrap();
            assert_ne!(length, 0, "the sidecar is gone");
            received.extend_from_slice(&piece[..length]);
        }
        say(json!({"jsonrpc": "2.0", "id": 8, "method": "shutdown", "params": {}}));
        say(json!({"jsonrpc": "2.0", "method": "exit"}));
        let _rest = stdout.read_to_end(&mut received).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }
}

/// Returns the path that a sidecar printed on stderr, exactly once.
fn printed(stderr: &str) -> PathBuf {
    let mut lines = stderr
        .lines()
        .filter_map(|line| line.strip_prefix("debug log: "));
    let path = lines.next().expect("the path is printed").into();
    assert_eq!(lines.next(), None, "printed once");
    path
}

fn records(path: &Path) -> Vec<Json> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn events(records: &[Json]) -> Vec<&str> {
    records
        .iter()
        .map(|record| record["event"].as_str().unwrap())
        .collect()
}

#[track_caller]
fn assert_no_canary(text: &str) {
    for canary in CANARIES {
        assert!(!text.contains(canary), "{canary} in {text}");
    }
}

#[test]
fn a_turn_is_logged_without_its_text() {
    let simulator = Simulator::start(Transport::Http1);
    let place = SidecarHome::new(Some(&simulator)).with("PI_CURSOR_PROVIDER_DEBUG", "1");
    let stderr = place.turn("@every-exec");
    let path = printed(&stderr);
    assert!(path.starts_with(place.home.path().join(".local/state/cursor-sidecar/debug")));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let text = std::fs::read_to_string(&path).unwrap();
    assert_no_canary(&text);
    assert_no_canary(&stderr);
    assert!(
        !text.contains("Every kind was asked for."),
        "the answer is not logged"
    );
    let records = records(&path);
    let events = events(&records);
    for wanted in [
        "log.started",
        "rpc.initialize",
        "turn.started",
        "run.started",
        "attempt.started",
        "token.exchanged",
        "stream.opened",
        "stream.first_byte",
        "exec.asked",
        "exec.answered",
        "text.first",
        "attempt.closed",
        "run.ended",
        "turn.answered",
    ] {
        assert!(events.contains(&wanted), "{wanted} in {events:?}");
    }
    let last = records.last().unwrap();
    assert_eq!(
        (&last["event"], &last["dropped"]),
        (&json!("log.ended"), &json!(0))
    );
    let run = records
        .iter()
        .find(|record| record["event"] == "text.first");
    assert!(
        run.unwrap()["run"].is_string(),
        "records of a run carry its id"
    );
}

#[test]
fn prompts_quoted_in_server_errors_are_not_logged() {
    let steps = Steps::new()
        .step(json!({
            "end": {
                "code": "invalid_argument",
                "message": format!("bad: {PROMPT}"),
                "retryable": false,
            },
        }))
        .build();
    let simulator = playing(Transport::Http1, &steps);
    let place = SidecarHome::new(Some(&simulator)).with("PI_CURSOR_PROVIDER_DEBUG", "1");
    let path = printed(&place.turn("go"));
    let text = std::fs::read_to_string(&path).unwrap();
    assert_no_canary(&text);
    assert!(text.contains("remote invalid_argument"), "{text}");
}

#[test]
fn deltas_are_counted_not_logged() {
    let simulator = Simulator::start(Transport::Http1);
    let place =
        SidecarHome::new(Some(&simulator)).with("PI_CURSOR_PROVIDER_DEBUG_FILE", "log.jsonl");
    let output = place.run(&["ask", "@deltas go"]);
    assert!(output.status.success());
    let records = records(&place.home.path().join("log.jsonl"));
    assert!(records.len() < 30, "{} records", records.len());
    let closed = records
        .iter()
        .find(|record| record["event"] == "attempt.closed");
    assert_eq!(closed.unwrap()["text_pieces"], 5000);
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let simulator = Simulator::start(Transport::Http1);
    for place in [".", "no/such/folder/log.jsonl", "/dev/full"] {
        let place = SidecarHome::new(Some(&simulator)).with("PI_CURSOR_PROVIDER_DEBUG_FILE", place);
        let output = place.run(&["ask", "@hello there"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "Hello, world!\n");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.starts_with("warning: no debug log: "), "{stderr}");
    }
}

#[test]
fn without_the_setting_nothing_is_written() {
    let simulator = Simulator::start(Transport::Http1);
    let place = SidecarHome::new(Some(&simulator));
    assert_eq!(place.turn("@hello"), "");
    let state = place.home.path().join(".local/state/cursor-sidecar");
    assert!(state.join("conversations").exists() && !state.join("debug").exists());
}

#[test]
fn the_doctor_draws_the_last_turn() {
    let simulator = Simulator::start(Transport::Http1);
    let place = SidecarHome::new(Some(&simulator)).with("PI_CURSOR_PROVIDER_DEBUG", "1");
    let path = printed(&place.turn("@unknown"));
    let by_name = place.run(&["doctor", path.to_str().unwrap()]);
    let last = place.run(&["doctor", "--last"]);
    assert_eq!(by_name, last);
    let page = String::from_utf8(last.stdout).unwrap();
    assert!(page.is_ascii(), "not a terminal: {page}");
    assert!(
        page.starts_with("turn t1 - session 01234567 - composer-2 - "),
        "{page}"
    );
    for wanted in [
        "connect HTTP/1.1",
        "text ",
        "first text after",
        "agent.v1.TextDeltaUpdate.50",
    ] {
        assert!(page.contains(wanted), "{wanted} in {page}");
    }
    let json = place.run(&["doctor", "--last", "--json"]);
    let json: Json = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["turns"][0]["name"], "t1");
    assert_eq!(json["turns"][0]["runs"].as_array().unwrap().len(), 1);
    // `doctor` reports what it finds in the log, too.
    let checkup = String::from_utf8(place.run(&["doctor"]).stdout).unwrap();
    assert!(
        checkup.contains("! wire drift: the server sends agent.v1."),
        "{checkup}"
    );
}

/// Returns what a command prints on a terminal that is both its stdout and its stderr.
fn on_a_terminal(mut command: Command) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let theirs = std::fs::File::options()
        .read(true)
        .write(true)
        .open(name)
        .unwrap();
    command.stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    // The command holds the other end, too; reading ends when the last one is closed.
    drop(command);
    let mut shown = Vec::new();
    let mut piece = [0; 4096];
    // Linux returns EIO when the other end is closed.
    while let Ok(length @ 1..) = rustix::io::read(&ours, &mut piece) {
        shown.extend_from_slice(&piece[..length]);
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8(shown).unwrap()
}

#[test]
fn a_terminal_gets_colours_unless_it_wants_none() {
    let simulator = Simulator::start(Transport::Http1);
    let place = SidecarHome::new(Some(&simulator)).with("PI_CURSOR_PROVIDER_DEBUG", "1");
    place.turn("@hello");
    let shown = |env: &[(&str, &str)]| {
        let mut command = place.command(&["doctor", "--last"]);
        command.envs(env.iter().copied());
        on_a_terminal(command)
    };
    let utf8 = ("LANG", "C.UTF-8");
    let colourful = shown(&[utf8, ("TERM", "xterm")]);
    assert!(
        colourful.contains('·') && colourful.contains("\u{1b}["),
        "{colourful}"
    );
    let plain = shown(&[utf8, ("NO_COLOR", "1"), ("COLUMNS", "100")]);
    assert!(plain.contains('·') && !plain.contains('\u{1b}'), "{plain}");
    assert!(shown(&[("LANG", "C"), ("NO_COLOR", "1")]).is_ascii());
}

#[test]
fn a_missing_log_is_an_error() {
    let place = SidecarHome::new(None);
    let commands = [
        &["doctor", "nowhere.jsonl"][..],
        &["doctor", "a.txt"],
        &["doctor", "--last"],
    ];
    let printed = commands.map(|arguments| {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr)
            .unwrap()
            .replace(place.home.path().to_str().unwrap(), "~")
    });
    insta::assert_snapshot!(printed.concat(), @"
    error: cannot read the debug log nowhere.jsonl: No such file or directory (os error 2)
    error: cannot read the debug log a.txt: no line of it is a record of a debug log
    error: no debug log in ~/.local/state/cursor-sidecar/debug; set PI_CURSOR_PROVIDER_DEBUG=1 and try again what you want to see
    ");
}

#[test]
fn the_doctor_prints_settings_and_no_secrets() {
    let place = SidecarHome::new(None)
        .with("CURSOR_API_KEY", KEY)
        .with("HTTPS_PROXY", "http://user:pa55word@127.0.0.1:1")
        .with("PI_CURSOR_HTTP", "9")
        .with("PI_CURSOR_HTPP", "1")
        .with("PI_CURSOR_STATE_DIR", "/nowhere/state");
    let output = place.run(&["doctor", "--offline", "--all"]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains(" (default)\n"), "{page}");
    let output = place.run(&["doctor", "--offline"]);
    assert_eq!(output.status.code(), Some(0));
    let page = String::from_utf8(output.stdout).unwrap();
    let (program, page) = page.split_once('\n').unwrap();
    assert!(
        program.starts_with("ok cursor-sidecar 0.1.0 (/"),
        "{program}"
    );
    insta::assert_snapshot!(page, @r#"
    ok key: from CURSOR_API_KEY
    ok runs go to https://agentn.us.api5.cursor.sh (default)
    ! PI_CURSOR_HTPP is not a setting of cursor-sidecar; `cursor-sidecar doctor --all` lists them; did you mean PI_CURSOR_HTTP?
    ! PI_CURSOR_HTTP: "9" is not one of auto, 1, 2; using auto
    ok state folder: /nowhere/state (made when it is needed)
    ok debug log: off (PI_CURSOR_PROVIDER_DEBUG=1 turns it on)
    ok the key was not sent to Cursor (doctor --online verifies it)

    settings that differ from the default (--all lists every setting)
      CURSOR_API_KEY = (set) (environment)
      PI_CURSOR_HTTP = auto (default; "9" is not understood)
      PI_CURSOR_STATE_DIR = /nowhere/state (environment)
      HTTPS_PROXY = (set) (environment)
    "#);
    let unsigned = SidecarHome::new(None).with("CURSOR_API_KEY", "");
    let output = unsigned.run(&["doctor", "--offline"]);
    assert_eq!(output.status.code(), Some(1), "a missing key is a problem");
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(
        page.contains("FAILED no Cursor API key: run `cursor-sidecar login`"),
        "{page}"
    );
    let json = place.run(&["doctor", "--offline", "--json"]);
    let text = String::from_utf8(json.stdout).unwrap();
    assert!(!text.contains(KEY) && !text.contains("pa55word"), "{text}");
    let json: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_doctor_asks_whether_cursor_answers_and_sends_the_key_only_when_wanted() {
    let simulator = Simulator::start(Transport::Http1);
    let place = SidecarHome::new(Some(&simulator));
    let output = place.run(&["doctor"]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains(" answers ("));
    // Nothing listens at the port of an address that was released.
    let released = || TcpListener::bind("127.0.0.1:0")?.local_addr();
    let closed = format!("http://{}", released().unwrap());
    let offline = SidecarHome::new(None).with("CURSOR_BACKEND_URL", &closed);
    let output = offline.run(&["doctor"]);
    assert_eq!(output.status.code(), Some(1));
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        page.contains("does not answer: cannot connect to"),
        "{page}"
    );
    let exchanges = || {
        let recording = simulator.recorded();
        recording.requests("/auth/exchange_user_api_key").len()
    };
    assert_eq!(exchanges(), 0);
    let output = place.run(&["doctor", "--online"]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("takes the key"));
    assert_eq!(exchanges(), 1);
    let refused = SidecarHome::new(Some(&simulator)).with("CURSOR_API_KEY", "crsr_invalid");
    assert_eq!(refused.run(&["doctor", "--online"]).status.code(), Some(1));
}
