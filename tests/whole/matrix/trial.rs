//! One conversation with two tool rounds, and something that goes wrong in it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::proxy::{Break, Place, Proxy};
use crate::backend::{Recording, binary};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Reset,
    GoAway,
    HalfClose,
    Stall,
    Garbage,
    KillSidecar,
    KillHost,
    RestartServer,
}

pub const FAULTS: [Fault; 8] = [
    Fault::Reset,
    Fault::GoAway,
    Fault::HalfClose,
    Fault::Stall,
    Fault::Garbage,
    Fault::KillSidecar,
    Fault::KillHost,
    Fault::RestartServer,
];

/// How a turn came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The place was never reached.
    Untouched,
    /// The fault cost nothing.
    WentOn,
    /// On from a checkpoint, in the same turn.
    Resumed,
    /// Results told on a checkpoint.
    Recovered,
    /// Results told on the host's history.
    Rebuilt,
    /// Said again before anything had been answered, or by the person.
    Again,
    /// An error a person can act on; the next message works.
    TypedError,
}

/// The story: sixty-odd frames, two rounds of the host's tools.
pub fn story() -> String {
    let words = |from: usize, to: usize| -> String {
        (from..=to)
            .map(|n| format!("{{ text = \"w{n:02} \" }},\n"))
            .collect()
    };
    let call = |name: &str| {
        format!(
            r#"{{ exec = {{ mcpArgs = {{ name = "pi__{name}", providerIdentifier = "pi", toolName = "pi__{name}", toolCallId = "call-{name}", args = {{ q = "{name}" }} }} }}, told = "found-{name}" }},
"#
        )
    };
    format!(
        "name = \"story\"\n[[run]]\nstory = true\nsteps = [\n{{ exec = {{ requestContextArgs = {{}} }} }},\n{{ thinking = \"hm\" }}, {{ thinking_done = true }},\n{}{{ checkpoint = \"auto\" }},\n{}{}{{ checkpoint = \"auto\" }},\n{}{}{{ checkpoint = \"auto\" }},\n{}{{ usage = {{ inputTokens = 1, outputTokens = 1 }} }},\n{{ checkpoint = \"auto\" }},\n{{ end = true }},\n]\n",
        words(1, 6),
        words(7, 12),
        call("first"),
        words(13, 20),
        call("second"),
        words(21, 36),
    )
}

const WORDS: usize = 36;
/// Nothing here takes longer; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A simulator that can be restarted where it was.
struct Server {
    child: Child,
    address: SocketAddr,
    scenario: PathBuf,
}

impl Server {
    fn start(scenario: &Path, listen: &str) -> Self {
        let mut child = Command::new(binary())
            .args(["sim", "--exit-with-stdin", "--http2", "force"])
            .args(["--listen", listen, "--scenario"])
            .arg(scenario)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready: Json = serde_json::from_str(&line).unwrap();
        let address = ready["url"].as_str().unwrap().trim_start_matches("http://");
        Self {
            child,
            address: address.parse().unwrap(),
            scenario: scenario.to_owned(),
        }
    }

    fn restart(&mut self) {
        self.stop();
        *self = Self::start(&self.scenario.clone(), &self.address.to_string());
    }

    /// The wire's threads outlive a trial, and hold on to their server.
    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn recording(&self) -> Recording {
        let url = format!("http://{}/__sim/recording", self.address);
        let answer = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(async {
                let client = reqwest::Client::builder().no_proxy().http1_only();
                let answer = client.build().unwrap().get(url).send().await.unwrap();
                answer.text().await.unwrap()
            });
        Recording(serde_json::from_str(&answer).unwrap())
    }
}

/// A sidecar and the pipes to it.
struct Sidecar {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Sidecar {
    fn start(port: u16, state: &Path) -> Self {
        let mut child = Command::new(binary())
            .env_clear()
            .env("PI_CURSOR_STATE_DIR", state)
            .env("CURSOR_BACKEND_URL", format!("http://127.0.0.1:{port}"))
            .env("CURSOR_API_KEY", "crsr_matrix")
            .env("PI_CURSOR_HTTP", "2")
            .env("PI_CURSOR_STREAM_IDLE_TIMEOUT_MS", "1000")
            .env("PI_CURSOR_RESUME_IDLE_TIMEOUT_MS", "1000")
            .env("PI_CURSOR_PROVIDER_DEBUG", "1")
            .env("PI_CURSOR_PROVIDER_DEBUG_FILE", state.join("debug.jsonl"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut sidecar = Self {
            child,
            stdin,
            stdout,
        };
        let hello = json!({"protocolVersion": 1, "host": {"name": "matrix"}});
        sidecar.say("hello", "initialize", &hello);
        assert!(sidecar.hear().is_some(), "the sidecar does not start");
        sidecar
    }

    fn say(&mut self, id: &str, method: &str, params: &Json) {
        let body =
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        // A sidecar that is gone is noticed by the silence that follows.
        let _ = write!(self.stdin, "Content-Length: {}\r\n\r\n{body}", body.len());
        let _ = self.stdin.flush();
    }

    fn hear(&mut self) -> Option<Json> {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim().strip_prefix("Content-Length: ") {
                Some(number) => length = number.parse().unwrap(),
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.stdout.read_exact(&mut body).ok()?;
        Some(serde_json::from_slice(&body).unwrap())
    }

    /// Ends it the orderly way; it must not need to be told twice.
    fn leave(self) -> bool {
        drop(self.stdin);
        let mut child = self.child;
        let (done, gone) = mpsc::channel();
        std::thread::spawn(move || done.send(child.wait().is_ok()));
        gone.recv_timeout(Duration::from_secs(5)).unwrap_or(false)
    }
}

/// What a turn gave.
struct Taken {
    text: String,
    calls: Vec<(String, String)>,
    end: End,
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Stop,
    ToolUse,
    Error(String),
    /// The sidecar died.
    Gone,
}

/// What happened in a trial.
#[derive(Debug)]
pub struct Told {
    pub outcome: Outcome,
    /// What must never happen, and did.
    pub wrongs: Vec<String>,
    pub frames: usize,
    pub bytes: usize,
}

/// A host such as pi: it keeps its history, retries what is worth it, executes each call.
struct Host {
    sidecar: Sidecar,
    port: u16,
    state: PathBuf,
    running: Arc<AtomicU32>,
    messages: Vec<Json>,
    executed: BTreeMap<String, usize>,
    turns: usize,
    errors: Vec<String>,
    deaths: usize,
}

impl Host {
    fn turn(&mut self) -> Taken {
        self.turns += 1;
        let id = format!("turn-{}", self.turns);
        let tool = |name: &str| {
            json!({"name": name, "description": name,
                   "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}})
        };
        let params = json!({"turnId": id, "sessionId": "session", "workspace": self.state,
            "systemPrompt": "Tell it.", "messages": self.messages,
            "tools": [tool("first"), tool("second")],
            "model": {"id": "composer-2", "contextWindow": 200_000, "maxTokens": 64_000}});
        self.sidecar.say(&id, "turn/start", &params);
        let mut taken = Taken {
            text: String::new(),
            calls: Vec::new(),
            end: End::Gone,
        };
        while let Some(message) = self.sidecar.hear() {
            for event in message["params"]["events"].as_array().into_iter().flatten() {
                match event["type"].as_str().unwrap() {
                    "text" => taken.text.push_str(event["text"].as_str().unwrap()),
                    "toolCall" => taken.calls.push((
                        event["id"].as_str().unwrap().into(),
                        event["name"].as_str().unwrap().into(),
                    )),
                    _ => {}
                }
            }
            if message["id"] == id.as_str() {
                let result = &message["result"];
                taken.end = match result["stopReason"].as_str() {
                    Some("stop") => End::Stop,
                    Some("toolUse") => End::ToolUse,
                    _ => End::Error(format!("{}{}", result["errorMessage"], message["error"])),
                };
                break;
            }
        }
        taken
    }

    fn restart(&mut self) {
        self.deaths += 1;
        self.sidecar.child.wait().unwrap();
        self.sidecar = Sidecar::start(self.port, &self.state);
        self.running
            .store(self.sidecar.child.id(), Ordering::Relaxed);
    }

    fn push(&mut self, message: Json) {
        let mut message = message;
        message["timestamp"] = json!(self.messages.len() + 1);
        self.messages.push(message);
    }

    fn keep(&mut self, taken: &Taken) {
        let mut content = vec![json!({"type": "text", "text": taken.text})];
        content.extend(taken.calls.iter().map(|(id, name)| {
            json!({"type": "toolCall", "id": id, "name": name, "arguments": {"q": name}})
        }));
        let stop = match taken.end {
            End::ToolUse => "toolUse",
            _ => "stop",
        };
        self.push(json!({"role": "assistant", "content": content, "stopReason": stop}));
    }

    fn execute(&mut self, calls: &[(String, String)]) {
        for (id, name) in calls {
            *self.executed.entry(name.clone()).or_default() += 1;
            self.push(
                json!({"role": "toolResult", "toolCallId": id, "toolName": name,
                "content": [{"type": "text", "text": format!("found-{name}")}], "isError": false}),
            );
        }
    }

    /// Takes turns until the answer is whole or an error ends it.
    fn converse(&mut self, fault: Option<Fault>) -> End {
        let mut retries = 0;
        loop {
            let taken = self.turn();
            match &taken.end {
                End::Stop => {
                    self.keep(&taken);
                    return End::Stop;
                }
                End::ToolUse => {
                    self.keep(&taken);
                    self.execute(&taken.calls);
                }
                End::Gone if fault == Some(Fault::KillHost) => {
                    // What was not finished is not in the history of the next host.
                    self.restart();
                    self.push(json!({"role": "user", "content": "go on"}));
                }
                End::Gone => self.restart(),
                End::Error(text) => {
                    self.errors.push(text.clone());
                    retries += 1;
                    if !retryable(text) || retries > 3 {
                        return taken.end;
                    }
                }
            }
        }
    }
}

/// As pi judges it.
fn retryable(text: &str) -> bool {
    let text = text.to_lowercase();
    [
        "network",
        "connection",
        "socket",
        "fetch failed",
        "timeout",
        "timed out",
        "terminated",
        "overloaded",
        "rate limit",
        "server error",
        "internal error",
        "other side closed",
    ]
    .iter()
    .any(|sign| text.contains(sign))
}

/// Tries it: one fault at one place, or none.
pub fn trial(fault: Option<(Fault, Place)>) -> Told {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("story.toml");
    std::fs::write(&scenario, story()).unwrap();
    let server = Arc::new(Mutex::new(Server::start(&scenario, "127.0.0.1:0")));
    let address = server.lock().unwrap().address;

    let running = Arc::new(AtomicU32::new(0));
    let (victim, restarted) = (Arc::clone(&running), Arc::clone(&server));
    let kind = fault.map(|(fault, _)| fault);
    let aside = move || match kind {
        Some(Fault::RestartServer) => restarted.lock().unwrap().restart(),
        _ => kill(&victim),
    };
    let on_wire = fault.map(|(fault, place)| {
        let how = match fault {
            Fault::Reset => Break::Reset,
            Fault::GoAway => Break::GoAway,
            Fault::HalfClose => Break::HalfClose,
            Fault::Stall => Break::Stall,
            Fault::Garbage => Break::Garbage,
            Fault::KillSidecar | Fault::KillHost | Fault::RestartServer => Break::Aside,
        };
        (place, how)
    });
    let proxy = Proxy::new(address, on_wire, aside);
    let sidecar = Sidecar::start(proxy.port, folder.path());
    let mut host = Host {
        running: Arc::clone(&running),
        sidecar,
        port: proxy.port,
        state: folder.path().to_owned(),
        messages: Vec::new(),
        executed: BTreeMap::new(),
        turns: 0,
        errors: Vec::new(),
        deaths: 0,
    };
    running.store(host.sidecar.child.id(), Ordering::Relaxed);

    // A trial that hangs is ended by taking the sidecar away.
    let (over, wait) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let hung = wait.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout);
        if hung {
            kill(&running);
        }
        hung
    });

    host.push(json!({"role": "user", "content": "tell me"}));
    let end = host.converse(kind);
    let (frames, bytes) = proxy.carried();
    let whole = end == End::Stop && host.errors.is_empty() && kind != Some(Fault::KillHost);
    let heard: Vec<String> = host.messages.iter().map(spoken).collect();
    host.push(json!({"role": "user", "content": "and-then"}));
    let after = host.converse(None);
    drop(over);
    let hung = watchdog.join().unwrap();

    let mut wrongs = Vec::new();
    if hung {
        wrongs.push("it hangs".into());
    }
    let words: Vec<String> = heard
        .join(" ")
        .split_whitespace()
        .filter(|word| word.starts_with('w'))
        .map(str::to_owned)
        .collect();
    let mut sorted = words.clone();
    sorted.sort();
    sorted.dedup();
    if sorted != words && kind != Some(Fault::KillHost) {
        wrongs.push(format!("text twice or out of order: {}", words.join(" ")));
    }
    if whole && sorted.len() != WORDS {
        wrongs.push(format!("text is missing: {}", words.join(" ")));
    }
    for (name, times) in &host.executed {
        if *times > 1 {
            wrongs.push(format!("{name} was executed {times} times"));
        }
    }
    if after != End::Stop {
        wrongs.push(format!("the next message fails: {after:?}"));
    }
    let recording = {
        let mut server = server.lock().unwrap();
        let recording = server.recording();
        server.stop();
        recording
    };
    let asked = recording
        .client("runRequest")
        .iter()
        .any(|request| request.to_string().contains("and-then"));
    if !asked {
        wrongs.push("the next message never reached Cursor".into());
    }
    let log = std::fs::read_to_string(folder.path().join("debug.jsonl")).unwrap_or_default();
    if let Some(keep) = std::env::var_os("FAULT_LOG") {
        std::fs::write(keep, &log).unwrap();
    }
    let outcome = judge(&end, &host, &proxy, fault.is_some(), &log);
    if !host.sidecar.leave() {
        wrongs.push("the sidecar does not leave".into());
    }
    if !wrongs.is_empty() {
        wrongs.push(format!(
            "errors: {:?}; deaths: {}",
            host.errors, host.deaths
        ));
    }
    Told {
        outcome,
        wrongs,
        frames,
        bytes,
    }
}

fn judge(end: &End, host: &Host, proxy: &Proxy, meant: bool, log: &str) -> Outcome {
    let said = |event: &str| log.contains(&format!("\"event\":\"{event}\""));
    if !meant || !proxy.broke() {
        Outcome::Untouched
    } else if matches!(end, End::Error(_)) {
        Outcome::TypedError
    } else if said("native.rebuild_full_history") {
        Outcome::Rebuilt
    } else if said("bridge.recovered_via_checkpoint") {
        Outcome::Recovered
    } else if log.contains("\"from\":\"checkpoint\"") {
        Outcome::Resumed
    } else if said("run.retry") || host.deaths > 0 || !host.errors.is_empty() {
        Outcome::Again
    } else {
        Outcome::WentOn
    }
}

/// The words of an assistant's message.
fn spoken(message: &Json) -> String {
    match message["role"] == "assistant" {
        true => message["content"][0]["text"].as_str().unwrap().to_owned(),
        false => String::new(),
    }
}

/// No time for last words.
fn kill(process: &AtomicU32) {
    let id = process.load(Ordering::Relaxed).try_into().unwrap();
    let id = rustix::process::Pid::from_raw(id).unwrap();
    let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
}
