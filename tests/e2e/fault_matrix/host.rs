//! A host that behaves like pi, and its user.
//!
//! - Complete messages and tool results are saved at once; incomplete ones are lost with the host's
//!   process.
//! - The host itself retries a retryable error, up to three times, without the failed answer. The
//!   death of the sidecar during a turn is such an error. During a pause it costs nothing: another
//!   sidecar is started for the next turn.
//! - After any other error the part of the answer that was shown stays in the history, and the user
//!   has to send another message.
//! - A host that was killed restarts with the saved messages, and the user has to send another
//!   message. (With real pi: `tests/pi/losses.rs` and `processes.rs`.)

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::place::SingleFault;
use super::sidecar::{Sidecar, SidecarControl, SidecarHttp};

use test_support::pi_retry_rules::{MAX_RETRIES, is_retryable};

/// Returns how soon the sidecar of a killed host must exit: within a second if the matrix has the
/// machine to itself.
fn orphaned() -> Duration {
    match std::env::var_os("FAULT_MATRIX") {
        Some(_) => Duration::from_secs(1),
        None => Duration::from_secs(10),
    }
}
/// The error that the extension reports for a sidecar that was killed.
const LOST: &str = "connection lost: cursor-sidecar ended with SIGKILL";
/// The number of additional messages the user sends before the trial fails.
const MAX_USER_MESSAGES: usize = 4;

/// The result of a turn.
struct HostTurn {
    text: String,
    calls: Vec<(String, String)>,
    end: End,
}

enum End {
    Stop,
    ToolUse,
    Error(String),
    /// The sidecar died.
    Gone,
}

/// The port of the server and the HTTP version to use.
#[derive(Debug, Clone, Copy)]
pub struct HostProgress {
    pub port: u16,
    pub http: SidecarHttp,
}

/// A host with one session.
pub struct TrialHost {
    sidecar: Sidecar,
    reach: HostProgress,
    state: PathBuf,
    control: Arc<SidecarControl>,
    faults: Arc<SingleFault>,
    /// The names of the tools it offers.
    tools: &'static [&'static str],
    pub messages: Vec<Json>,
    pub executed: BTreeMap<String, usize>,
    /// The messages the user has sent.
    pub sent_texts: Vec<String>,
    turns: usize,
    /// All errors it received.
    pub errors: Vec<String>,
    /// How often it retried without the user.
    pub retries: usize,
    /// The errors after which the user had to send a message.
    pub final_errors: Vec<String>,
    pub deaths: usize,
    /// How long the sidecar of a killed host kept running; `Err` if longer than [`orphaned`].
    pub orphaned: Option<Result<Duration, ()>>,
}

impl TrialHost {
    pub fn new(
        reach: HostProgress,
        state: PathBuf,
        control: Arc<SidecarControl>,
        faults: Arc<SingleFault>,
        tools: &'static [&'static str],
    ) -> Self {
        Self {
            sidecar: Sidecar::start(reach.port, reach.http, &state, &control),
            reach,
            state,
            control,
            faults,
            tools,
            messages: Vec::new(),
            executed: BTreeMap::new(),
            sent_texts: Vec::new(),
            turns: 0,
            errors: Vec::new(),
            retries: 0,
            final_errors: Vec::new(),
            deaths: 0,
            orphaned: None,
        }
    }

    /// Sends a user message, and further ones until an answer is complete. Returns whether one was.
    pub fn says(&mut self, words: &str) -> bool {
        self.push_words(words);
        let (mut retries, mut spoken) = (0, 0);
        loop {
            let turn_result = self.turn();
            if self.control.host_died() {
                let whole = matches!(turn_result.end, End::Stop | End::ToolUse);
                if whole {
                    self.keep(&turn_result);
                }
                self.restart_after_kill();
                if matches!(turn_result.end, End::Stop) {
                    return true;
                }
            } else {
                match &turn_result.end {
                    End::Stop => {
                        self.keep(&turn_result);
                        return true;
                    }
                    End::ToolUse => {
                        self.keep(&turn_result);
                        self.execute(&turn_result.calls);
                        retries = 0;
                        continue;
                    }
                    End::Error(text) if is_retryable(text) && retries < MAX_RETRIES => {
                        self.errors.push(text.clone());
                        self.retries += 1;
                        retries += 1;
                        continue;
                    }
                    End::Error(text) => {
                        self.errors.push(text.clone());
                        self.final_errors.push(text.clone());
                        self.keep(&turn_result);
                    }
                    // pi retries this error because of the text that the extension reports.
                    End::Gone if retries < MAX_RETRIES => {
                        self.errors.push(LOST.into());
                        self.retries += 1;
                        retries += 1;
                        self.restart();
                        continue;
                    }
                    End::Gone => {
                        self.errors.push(LOST.into());
                        self.final_errors.push(LOST.into());
                        self.keep(&turn_result);
                        self.restart();
                    }
                }
            }
            spoken += 1;
            if spoken > MAX_USER_MESSAGES {
                return false;
            }
            retries = 0;
            self.push_words(&format!("go-on-{}", self.sent_texts.len()));
        }
    }

    fn turn(&mut self) -> HostTurn {
        if self.sidecar.has_died() {
            self.restart();
        }
        self.turns += 1;
        let id = format!("turn-{}", self.turns);
        let tool = |name: &str| {
            json!({"name": name, "description": name,
                   "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}})
        };
        let params = json!({"turnId": id, "sessionId": "session", "workspace": self.state,
            "systemPrompt": "Tell it.", "messages": self.messages,
            "tools": self.tools.iter().map(|name| tool(name)).collect::<Vec<_>>(),
            "model": {"id": "composer-2", "contextWindow": 200_000, "maxTokens": 64_000}});
        self.sidecar.send(&id, "turn/start", &params);
        let mut turn_result = HostTurn {
            text: String::new(),
            calls: Vec::new(),
            end: End::Gone,
        };
        while let Some(message) = self.sidecar.receive() {
            for event in message["params"]["events"].as_array().into_iter().flatten() {
                match event["type"].as_str().unwrap() {
                    "text" => turn_result.text.push_str(event["text"].as_str().unwrap()),
                    "toolCall" => turn_result.calls.push((
                        event["id"].as_str().unwrap().into(),
                        event["name"].as_str().unwrap().into(),
                    )),
                    _ => {}
                }
            }
            if message["id"] == id.as_str() {
                let result = &message["result"];
                turn_result.end = match result["stopReason"].as_str() {
                    Some("stop") => End::Stop,
                    Some("toolUse") => End::ToolUse,
                    _ => End::Error(format!("{}{}", result["errorMessage"], message["error"])),
                };
                break;
            }
        }
        turn_result
    }

    fn restart(&mut self) {
        self.deaths += 1;
        let HostProgress { port, http } = self.reach;
        self.sidecar = Sidecar::start(port, http, &self.state, &self.control);
    }

    /// Starts another host process after the sidecar of the killed one has exited.
    fn restart_after_kill(&mut self) {
        // The connection is shut down already; the sidecar must exit without any other signal.
        let gone = self.sidecar.exits_within(orphaned());
        self.orphaned = Some(gone.ok_or(()));
        self.restart();
    }

    /// Closes the connection and returns whether the sidecar exited in time.
    pub fn shut_down(&mut self) -> bool {
        self.sidecar.exits_within(Duration::from_secs(20)).is_some()
    }

    fn push(&mut self, mut message: Json) {
        message["timestamp"] = json!(self.messages.len() + 1);
        self.messages.push(message);
    }

    fn push_words(&mut self, words: &str) {
        self.sent_texts.push(words.into());
        self.push(json!({"role": "user", "content": words}));
    }

    fn keep(&mut self, turn_result: &HostTurn) {
        let mut content = Vec::new();
        if !turn_result.text.is_empty() {
            content.push(json!({"type": "text", "text": turn_result.text}));
        }
        content.extend(turn_result.calls.iter().map(|(id, name)| {
            json!({"type": "toolCall", "id": id, "name": name, "arguments": {"q": name}})
        }));
        let stop = match turn_result.end {
            End::Stop => "stop",
            End::ToolUse => "toolUse",
            End::Error(_) | End::Gone => "error",
        };
        self.push(json!({"role": "assistant", "content": content, "stopReason": stop}));
    }

    fn execute(&mut self, calls: &[(String, String)]) {
        if self.faults.strikes_pause() {
            self.sidecar.wait_for_exit();
        }
        // Of several concurrent calls, the first finishes last.
        let (first, rest) = calls.split_at(1);
        for (id, name) in rest.iter().chain(first) {
            *self.executed.entry(name.clone()).or_default() += 1;
            self.push(
                json!({"role": "toolResult", "toolCallId": id, "toolName": name,
                "content": [{"type": "text", "text": format!("found-{name}")}], "isError": false}),
            );
        }
    }

    /// Returns the story's marks (`w…`) from the assistant messages of the history.
    pub fn words(&self) -> Vec<String> {
        let answers = self
            .messages
            .iter()
            .filter(|message| message["role"] == "assistant");
        let blocks = answers.flat_map(|message| message["content"].as_array().unwrap());
        let texts = blocks.filter_map(|block| block["text"].as_str());
        texts
            .flat_map(str::split_whitespace)
            .filter(|word| word.starts_with('w'))
            .map(str::to_owned)
            .collect()
    }
}
