//! A sidecar shared by many sessions: killed, restarted, and measured from outside.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value as Json, json};

use test_support::binary;

/// Receivers by request id; `None` once the process is gone.
type ResponseRoutes = Arc<Mutex<Option<HashMap<String, Sender<Json>>>>>;

/// Violations found.
pub type Violations = Arc<Mutex<Vec<String>>>;

/// A sidecar that is replaced when it is killed.
pub struct SharedSidecar {
    url: String,
    state: PathBuf,
    process: Mutex<Process>,
    violations: Violations,
    pub kills: AtomicU64,
    unanswered: AtomicU64,
}

struct Process {
    child: Child,
    stdin: ChildStdin,
    routes: ResponseRoutes,
    killed: bool,
}

/// Resource use of a sidecar.
#[derive(Debug, Clone, Copy, Default)]
pub struct Measure {
    pub rss_kib: u64,
    pub fds: u64,
    pub threads: u64,
    pub tasks: u64,
    pub disk: u64,
}

/// Longer than any response may take.
pub const MESSAGE_TIMEOUT: Duration = Duration::from_secs(90);
/// Prefix of requests whose responses are ignored.
const UNANSWERED: &str = "unanswered-";

impl SharedSidecar {
    pub fn new(url: String, state: &Path, violations: &Violations) -> Self {
        std::fs::create_dir_all(state).unwrap();
        let process = Process::start(&url, state, violations);
        Self {
            url,
            state: state.to_owned(),
            process: Mutex::new(process),
            violations: Arc::clone(violations),
            kills: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
        }
    }

    /// Sends a request and returns a receiver of its messages; it disconnects when the sidecar is
    /// gone.
    pub fn begin(&self, id: &str, method: &str, params: &Json) -> Receiver<Json> {
        let (sender, receiver) = channel();
        let mut process = self.process.lock().unwrap();
        if process.routes.lock().unwrap().is_none() {
            if !process.killed {
                let died = format!("a sidecar died by itself: {:?}", process.child.wait());
                self.violations.lock().unwrap().push(died);
            }
            process.child.wait().unwrap();
            *process = Process::start(&self.url, &self.state, &self.violations);
        }
        if let Some(routes) = process.routes.lock().unwrap().as_mut() {
            routes.insert(id.to_owned(), sender);
        }
        send(&mut process.stdin, id, method, params);
        receiver
    }

    /// Sends a request and ignores its response.
    pub fn send_unanswered(&self, method: &str, params: &Json) {
        let number = self.unanswered.fetch_add(1, Ordering::Relaxed);
        let mut process = self.process.lock().unwrap();
        send(
            &mut process.stdin,
            &format!("{UNANSWERED}{number}"),
            method,
            params,
        );
    }

    /// Kills the sidecar without a random to shut down.
    pub fn kill(&self) {
        let mut process = self.process.lock().unwrap();
        if process.routes.lock().unwrap().is_some() && !process.killed {
            process.killed = true;
            process.child.kill().unwrap();
            self.kills.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of tasks that the process reports.
    pub fn tasks(&self) -> u64 {
        let report = self.begin("report", "diagnostics/report", &json!({}));
        let report = report.recv_timeout(MESSAGE_TIMEOUT).unwrap();
        report["result"]["tasks"].as_u64().unwrap()
    }

    /// Returns a number from `/proc/<pid>/status`.
    fn status(&self, name: &str) -> u64 {
        let id = self.process.lock().unwrap().child.id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    pub fn threads(&self) -> u64 {
        self.status("Threads:")
    }

    /// Returns the resource use that the system reports.
    pub fn measure(&self) -> Measure {
        let id = self.process.lock().unwrap().child.id();
        let fds = std::fs::read_dir(format!("/proc/{id}/fd"));
        Measure {
            rss_kib: self.status("VmRSS:"),
            fds: fds.map_or(0, |fds| fds.count() as u64),
            threads: self.threads(),
            tasks: self.tasks(),
            disk: size(&self.state),
        }
    }

    /// Shuts the sidecar down and checks that no process is left.
    pub fn shut_down(self) {
        let Process {
            mut child, stdin, ..
        } = self.process.into_inner().unwrap();
        drop(stdin);
        let (done, gone) = channel();
        std::thread::spawn(move || done.send(child.wait().is_ok()));
        let mut violations = self.violations.lock().unwrap();
        if gone.recv_timeout(Duration::from_secs(10)) != Ok(true) {
            violations.push("a sidecar does not exit".into());
        }
        let stderr = std::fs::read_to_string(self.state.join("stderr")).unwrap();
        if let Some(line) = stderr.lines().find(|line| line.contains("panicked")) {
            violations.push(line.into());
        }
        let mark = format!("HOME={}", self.state.display());
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            if variables.any(|variable| variable == mark.as_bytes()) {
                violations.push(format!("process {} is left", entry.path().display()));
            }
        }
    }
}

impl Process {
    fn start(url: &str, state: &Path, violations: &Violations) -> Self {
        let stderr = std::fs::File::options()
            .create(true)
            .append(true)
            .open(state.join("stderr"));
        let mut command = Command::new(binary());
        command
            .env_clear()
            .env("PI_CURSOR_STATE_DIR", state)
            .env("HOME", state)
            .env("CURSOR_BACKEND_URL", url)
            .env("CURSOR_API_KEY", "crsr_soak")
            .env("PI_CURSOR_HTTP", "2")
            .env("PI_CURSOR_STREAM_IDLE_TIMEOUT_MS", "1000")
            .env("PI_CURSOR_RESUME_IDLE_TIMEOUT_MS", "1000");
        // For debugging.
        if let Some(log) = std::env::var_os("SOAK_LOG") {
            command.env("PI_CURSOR_PROVIDER_DEBUG_FILE", log);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr.unwrap())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let hello = json!({"protocolVersion": 1, "nativeTools": {"default": "local"}, "host": {"name": "soak"}});
        send(&mut stdin, "hello", "initialize", &hello);
        assert!(receive(&mut stdout).is_some(), "the sidecar does not start");
        let routes: ResponseRoutes = Arc::new(Mutex::new(Some(HashMap::new())));
        let (shared, violations) = (Arc::clone(&routes), Arc::clone(violations));
        std::thread::spawn(move || {
            while let Some(message) = receive(&mut stdout) {
                if let Some(stray) = pass(&shared, message) {
                    violations.lock().unwrap().push(stray);
                }
            }
            *shared.lock().unwrap() = None;
        });
        Self {
            child,
            stdin,
            routes,
            killed: false,
        }
    }
}

/// Passes a message to its receiver; returns an error if there is none.
fn pass(routes: &ResponseRoutes, message: Json) -> Option<String> {
    let mut routes = routes.lock().unwrap();
    let routes = routes.as_mut()?;
    let waits = match (message["id"].as_str(), message["params"]["turnId"].as_str()) {
        (Some(id), _) if id.starts_with(UNANSWERED) => return None,
        // A response is the last message of its request.
        (Some(id), _) => routes.remove(id),
        (None, Some(turn)) => routes.get(turn).cloned(),
        (None, None) => return None,
    };
    match waits {
        Some(waits) => {
            let _ = waits.send(message);
            None
        }
        None => Some(format!("an answer or event after the answer: {message}")),
    }
}

fn send(stdin: &mut ChildStdin, id: &str, method: &str, params: &Json) {
    let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
    // A dead sidecar is noticed by the missing response.
    let _ = write!(stdin, "Content-Length: {}\r\n\r\n{body}", body.len());
    let _ = stdin.flush();
}

fn receive(stdout: &mut BufReader<ChildStdout>) -> Option<Json> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stdout.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim().strip_prefix("Content-Length: ") {
            Some(number) => length = number.parse().unwrap(),
            None => break,
        }
    }
    let mut body = vec![0; length];
    stdout.read_exact(&mut body).ok()?;
    Some(serde_json::from_slice(&body).unwrap())
}

fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => size(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
