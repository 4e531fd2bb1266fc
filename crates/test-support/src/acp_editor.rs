//! An editor that speaks the Agent Client Protocol with `cursor-sidecar acp`, message by message.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::binary;
use crate::simulator::Simulator;

/// How long a message may take on a busy machine.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// An editor with one agent process.
pub struct AcpEditor {
    child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<Json>,
    last_id: u64,
    /// The workspace.
    pub cwd: PathBuf,
    /// Updates of sessions, in the order they arrived.
    pub updates: Vec<Json>,
    /// Requests of the agent, in the order they arrived.
    pub requests: Vec<(String, Json)>,
    /// The kinds of the answers to permission requests, first to last, or `unanswered`; then
    /// everything is allowed.
    pub choose: Vec<&'static str>,
    /// Answers requests other than permission requests.
    pub answer: fn(&str, &Json) -> Json,
    /// Requests of this method are not answered.
    pub withholds: &'static str,
    /// The ids of the requests that were not answered.
    withheld: Vec<Json>,
}

impl AcpEditor {
    /// Starts an agent with a home of its own in `home`.
    pub fn start(simulator: &Simulator, home: &Path, env: &[(&str, &str)]) -> Self {
        let cwd = home.join("workspace");
        std::fs::create_dir_all(&cwd).unwrap();
        let mut child = Command::new(binary())
            .arg("acp")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home)
            .env("PI_CURSOR_STATE_DIR", home.join("state"))
            .env("CURSOR_BACKEND_URL", &simulator.url)
            .env("CURSOR_API_KEY", "crsr_test")
            .envs(env.iter().copied())
            .current_dir(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line)
                    .unwrap_or_else(|_| panic!("stdout carries messages only: {line}"));
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self {
            stdin: child.stdin.take(),
            child,
            messages,
            last_id: 0,
            cwd: cwd.canonicalize().unwrap(),
            updates: Vec::new(),
            requests: Vec::new(),
            choose: Vec::new(),
            answer: |method, _| panic!("unexpected request {method}"),
            withholds: "",
            withheld: Vec::new(),
        }
    }

    /// Initializes the connection and opens a session; returns its id.
    pub fn open(&mut self, capabilities: Json) -> String {
        self.initialize(capabilities);
        let opened = self.call("session/new", json!({"cwd": self.cwd, "mcpServers": []}));
        opened.unwrap()["sessionId"].as_str().unwrap().to_owned()
    }

    pub fn initialize(&mut self, capabilities: Json) -> Json {
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        self.call("initialize", params).unwrap()
    }

    /// Sends a prompt and returns its stop reason, or its error.
    pub fn prompt(&mut self, session: &str, text: &str) -> Result<String, Json> {
        let prompt = json!([{"type": "text", "text": text}]);
        let answer = self.call(
            "session/prompt",
            json!({"sessionId": session, "prompt": prompt}),
        );
        answer.map(|answer| answer["stopReason"].as_str().unwrap().to_owned())
    }

    /// Sends a request and returns its result or its error. Requests of the agent are answered
    /// meanwhile.
    pub fn call(&mut self, method: &str, params: Json) -> Result<Json, Json> {
        let id = self.begin(method, params);
        self.finish(id)
    }

    /// Sends a request without waiting for its response.
    pub fn begin(&mut self, method: &str, params: Json) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: Json) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    fn send(&mut self, message: &Json) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{message}").unwrap();
        stdin.flush().unwrap();
    }

    /// Waits for the response to a request.
    pub fn finish(&mut self, id: u64) -> Result<Json, Json> {
        loop {
            let message = self.receive();
            if message["id"] == id && message["method"].is_null() {
                return match message.get("error") {
                    Some(error) => Err(error.clone()),
                    None => Ok(message["result"].clone()),
                };
            }
        }
    }

    /// Waits until an update fulfils a condition.
    pub fn wait_for_update(&mut self, condition: impl Fn(&Json) -> bool) {
        while !self.updates.iter().any(&condition) {
            self.receive();
        }
    }

    /// Waits until the agent has sent a request that is not answered.
    pub fn wait_for_withheld(&mut self) {
        while self.withheld.is_empty() {
            self.receive();
        }
    }

    /// Answers the requests that were not answered.
    pub fn answer_withheld(&mut self, result: &Json) {
        for id in std::mem::take(&mut self.withheld) {
            self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
        }
    }

    /// Receives one message, records it and answers it if it is a request.
    fn receive(&mut self) -> Json {
        let message = self
            .messages
            .recv_timeout(MESSAGE_TIMEOUT)
            .expect("a message");
        let Some(method) = message["method"].as_str() else {
            return message;
        };
        let params = &message["params"];
        if method == "session/update" {
            self.updates.push(params["update"].clone());
            return message;
        }
        if message["id"].is_null() {
            return message;
        }
        self.requests.push((method.to_owned(), params.clone()));
        if method == self.withholds {
            self.withheld.push(message["id"].clone());
            return message;
        }
        let result = if method == "session/request_permission" {
            let kind = if self.choose.is_empty() {
                "allow_once"
            } else {
                self.choose.remove(0)
            };
            if kind == "unanswered" {
                return message;
            }
            let options = params["options"].as_array().unwrap().iter();
            let option = options.into_iter().find(|option| option["kind"] == kind);
            json!({"outcome": {"outcome": "selected", "optionId": option.unwrap()["optionId"]}})
        } else {
            (self.answer)(method, params)
        };
        let response = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        self.send(&response);
        message
    }

    /// Returns the text of all updates of a kind.
    pub fn text_of(&self, kind: &str) -> String {
        let updates = self.updates.iter();
        let updates = updates.filter(|update| update["sessionUpdate"] == kind);
        updates
            .filter_map(|update| update["content"]["text"].as_str())
            .collect()
    }

    /// Returns how often the agent asked for something.
    pub fn count(&self, method: &str) -> usize {
        let requests = self.requests.iter();
        requests.filter(|(asked, _)| asked == method).count()
    }

    /// Returns the id of the agent's process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Ends the agent's input, and waits until it has exited.
    pub fn close(mut self) {
        self.stdin = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for AcpEditor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
