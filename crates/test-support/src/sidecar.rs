//! The sidecar as a process, with its protocol on stdin and stdout.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::binary;
use crate::wait::until_named;

/// A running sidecar.
pub struct SidecarProcess {
    child: Child,
    /// Holds its state, unless the test sets another folder, and its stderr.
    place: tempfile::TempDir,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// All messages received, if a test wants to inspect them.
    pub received: Option<Vec<Json>>,
}

impl SidecarProcess {
    pub fn start(env: &[(&str, &str)]) -> Self {
        Self::started_by(Command::new(binary()), env)
    }

    /// Starts the sidecar with a command that executes it.
    pub fn started_by(mut command: Command, env: &[(&str, &str)]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let stderr = std::fs::File::create(place.path().join("stderr")).unwrap();
        let mut child = command
            .env_clear()
            .env("PI_CURSOR_STATE_DIR", place.path())
            // So that the developer's rules are not read.
            .env("HOME", place.path())
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        Self {
            place,
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            received: None,
        }
    }

    pub fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).unwrap();
        stdin.flush().unwrap();
    }

    pub fn send(&mut self, message: &Json) {
        let body = message.to_string();
        self.write(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    }

    /// Sends several messages in one write.
    pub fn send_all(&mut self, messages: &[Json]) {
        let mut bytes = Vec::new();
        for message in messages {
            let body = message.to_string();
            write!(bytes, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
        self.write(&bytes);
    }

    /// Returns `count` responses by id; ignores notifications.
    pub fn answers(&mut self, count: usize) -> BTreeMap<String, Json> {
        let mut answers = BTreeMap::new();
        while answers.len() < count {
            let message = self.receive();
            if let Some(id) = message["id"].as_str() {
                answers.insert(id.to_owned(), message);
            }
        }
        answers
    }

    pub fn receive(&mut self) -> Json {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert_ne!(
                self.stdout.read_line(&mut line).unwrap(),
                0,
                "the sidecar is gone"
            );
            match line.trim().strip_prefix("Content-Length: ") {
                Some(number) => length = number.parse().unwrap(),
                None if line.trim().is_empty() => break,
                None => panic!("not a header: {line}"),
            }
        }
        let mut body = vec![0; length];
        self.stdout.read_exact(&mut body).unwrap();
        let message: Json = serde_json::from_slice(&body).unwrap();
        if let Some(received) = &mut self.received {
            received.push(message.clone());
        }
        message
    }

    pub fn call(&mut self, method: &str, params: Json) -> Json {
        self.send(&json!({"jsonrpc": "2.0", "id": "q", "method": method, "params": params}));
        self.receive()
    }

    pub fn initialize(&mut self) -> Json {
        self.call(
            "initialize",
            json!({"protocolVersion": 1, "nativeTools": {"default": "local"}, "host": {"name": "test", "mode": "print"}}),
        )
    }

    /// Returns what it has written to stderr.
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(self.place.path().join("stderr")).unwrap()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the peak memory in KiB; `None` where the system does not report it.
    pub fn peak_kib(&self) -> Option<u64> {
        self.memory_kib("VmHWM:")
    }

    /// Returns the memory in use.
    pub fn resident_kib(&self) -> Option<u64> {
        self.memory_kib("VmRSS:")
    }

    fn memory_kib(&self, field: &str) -> Option<u64> {
        crate::processes::memory_kib(self.child.id(), field)
    }

    /// Returns the number of open files and sockets; `None` where the system does not report it.
    pub fn open_files(&self) -> Option<usize> {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        files.ok().map(Iterator::count)
    }

    /// Takes over the other end of its input.
    pub fn keep_open(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// Kills it without a chance to shut down.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the exit of a process that is already ending; panics if it does not exit in time.
    pub fn ended(&mut self) {
        until_named("the sidecar to exit", || self.child.try_wait().unwrap());
    }

    /// Returns the exit code; panics if it does not exit in time.
    pub fn exits(self) -> Option<i32> {
        self.exits_within(Duration::from_secs(20))
    }

    pub fn exits_within(mut self, limit: Duration) -> Option<i32> {
        let (sender, receiver) = mpsc::channel();
        let id = self.child.id();
        let mut child = self.child;
        drop(self.stdin.take());
        std::thread::spawn(move || sender.send(child.wait()).unwrap());
        let status = receiver
            .recv_timeout(limit)
            .unwrap_or_else(|_| panic!("process {id} does not end"));
        status.unwrap().code()
    }
}
