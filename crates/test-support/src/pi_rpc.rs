//! pi in `--mode rpc`, driven by a program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value as Json, json};

use crate::pi_env::{PiEnv, TIMEOUT};
use crate::wait::until_named;

pub struct PiRpc {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Json>,
    asked: u32,
}

impl PiRpc {
    pub fn start(pi_env: &PiEnv) -> Self {
        Self::with(pi_env, &["--model", "cursor/composer-2"])
    }

    pub fn with(pi_env: &PiEnv, more: &[&str]) -> Self {
        let arguments = [&["--mode", "rpc"], more].concat();
        let mut child = pi_env
            .command(&arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let Ok(event) = serde_json::from_str(&line) else {
                    panic!("not JSON: {line}");
                };
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Self {
            stdin: child.stdin.take(),
            child,
            lines,
            asked: 0,
        }
    }

    fn next(&mut self, waiting_for: &str) -> Json {
        self.lines
            .recv_timeout(TIMEOUT)
            .unwrap_or_else(|_| panic!("pi printed nothing more; waited for {waiting_for}"))
    }

    /// Returns the next event that matches; ignores others.
    pub fn event(&mut self, what: &str, fits: impl Fn(&Json) -> bool) -> Json {
        loop {
            let event = self.next(what);
            if fits(&event) {
                return event;
            }
        }
    }

    pub fn send(&mut self, command: &Json) {
        writeln!(self.stdin.as_mut().unwrap(), "{command}").unwrap();
    }

    /// Sends a command and returns its response.
    #[track_caller]
    pub fn ask(&mut self, mut command: Json) -> Json {
        self.asked += 1;
        let id = format!("q{}", self.asked);
        command["id"] = json!(id);
        self.send(&command);
        let answer = self.event("an answer", |event| {
            event["type"] == "response" && event["id"] == *id
        });
        assert_eq!(answer["success"], true, "{command}: {answer}");
        answer["data"].clone()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn state(&mut self) -> Json {
        self.ask(json!({"type": "get_state"}))
    }

    /// Waits until pi is idle.
    pub fn settle(&mut self) {
        until_named("pi is idle", || {
            let state = self.state();
            let busy = |name: &str| state[name].as_bool().unwrap_or_default();
            (!busy("isStreaming") && !busy("isCompacting")).then_some(())
        });
    }

    /// Sends a prompt and returns the complete message of the assistant.
    pub fn prompt(&mut self, text: &str) -> Json {
        self.send(&json!({"type": "prompt", "message": text}));
        let answer = self.answer();
        self.settle();
        answer
    }

    pub fn answer(&mut self) -> Json {
        let event = self.event("an assistant's message", |event| {
            event["type"] == "message_end" && event["message"]["role"] == "assistant"
        });
        event["message"].clone()
    }

    /// Ends pi as a host does, by closing its input.
    pub fn quit(mut self) {
        drop(self.stdin.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for PiRpc {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn text(message: &Json) -> &str {
    let blocks = message["content"].as_array().unwrap();
    let text = blocks.iter().find(|block| block["type"] == "text");
    text.map_or("", |block| block["text"].as_str().unwrap())
}
