//! Sessions and a simulator inside this process, where the clock can be paused.

use std::time::Duration;

use agent::conversation::store::Store;
use agent::conversation::transcript::Tool;
use agent::message::ToolCall;
use agent::run::{Backend, Model};
use agent::turn::usage::{Limits, Tokens};
use agent::turn::{
    self, HostRequest, HostToolMode, Keep, Policy, Session, Stop, TurnEvent, TurnRequest,
};
use agent_tools::bridge::HostResult;
use agent_tools::policy::HostPolicy;
use agent_tools::shell::reaper::ChildReaper;
use cursor_sidecar::rpc::RawMessage;
use cursor_sidecar::rpc::host_messages::TranscriptReader;
use cursor_sim::{Http2, Options, RecordingHandle, ScenarioSource, Side, Sim};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::rpc_session::OfferedCall;
use crate::run_client::client_options;
use crate::scenario::inline;

/// A simulator with one scenario; each run of a conversation plays its own script.
pub async fn simulating(runs: &[String]) -> (Sim, Backend) {
    playing(runs, "").await
}

/// The same, counting the runs of all conversations.
pub async fn simulating_all(runs: &[String]) -> (Sim, Backend) {
    playing(runs, "attempts = \"all\"\n").await
}

async fn playing(steps: &[String], options: &str) -> (Sim, Backend) {
    let runs: Vec<String> = steps
        .iter()
        .map(|steps| format!("steps = [ {steps} ]\n"))
        .collect();
    simulating_runs(&runs, options).await
}

/// The same, with the full text of each `[[run]]`.
pub async fn simulating_runs(runs: &[String], options: &str) -> (Sim, Backend) {
    let runs = runs.iter().map(|run| format!("[[run]]\n{run}"));
    let text = format!("name = \"inside\"\n{options}{}", runs.collect::<String>());
    let label = "inside.toml".into();
    let sim = Sim::start(Options {
        scenarios: vec![ScenarioSource::Toml { label, text }],
        http2: Http2::Force,
        ..Options::default()
    });
    let sim = sim.await.unwrap();
    let backend = Backend::new(&client_options(&sim.url())).unwrap();
    (sim, backend)
}

/// A host with one session, its history and its tools.
pub struct InProcessSession {
    pub session: Session,
    backend: Backend,
    pub policy: Policy,
    pub messages: Vec<Json>,
    /// The message it injects into its next turn, at the first event.
    pub interjection: Option<String>,
    pub tool_mode: HostToolMode,
    /// Parses only new messages, as in the front end.
    transcripts: TranscriptReader,
}

/// The result of a turn.
#[derive(Debug)]
pub struct InProcessTurn {
    pub text: String,
    pub calls: Vec<OfferedCall>,
    pub notices: Vec<String>,
    pub stop: Stop,
    pub tokens: Tokens,
    /// The injected message, if the turn accepted it.
    pub interjected: Option<String>,
}

/// When a host cancels a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAfter {
    Endless,
    /// After this many events.
    Events(usize),
}

impl InProcessSession {
    pub fn new(backend: &Backend, store: Option<(Store, String)>) -> Self {
        Self {
            session: Session::start(store, ChildReaper::default()),
            backend: backend.clone(),
            policy: Policy::default(),
            messages: Vec::new(),
            interjection: None,
            tool_mode: HostToolMode::Between,
            transcripts: TranscriptReader::default(),
        }
    }

    fn push(&mut self, mut message: Json) {
        message["timestamp"] = json!(self.messages.len() + 1);
        self.messages.push(message);
    }

    pub fn user(&mut self, text: &str) {
        self.push(json!({"role": "user", "content": text}));
    }

    /// The session in another sidecar, with the same history.
    pub fn moved(self, store: (Store, String)) -> Self {
        Self {
            session: Session::start(Some(store), ChildReaper::default()),
            ..self
        }
    }

    pub fn result(&mut self, call: &OfferedCall, text: &str) {
        let content = json!([{"type": "text", "text": text}]);
        self.push(
            json!({"role": "toolResult", "toolCallId": call.id, "toolName": call.name,
                         "content": content, "isError": false}),
        );
    }

    pub async fn turn(&mut self, cancel_after: CancelAfter) -> InProcessTurn {
        let tools = ["look", "slow", "cursor_ask_question"].map(|name| Tool {
            name: name.into(),
            description: "a tool".into(),
            parameters: json!({"type": "object"}),
        });
        let system = Some("Be brief.".into());
        let cancel = CancellationToken::new();
        let (handle, channels) = turn::turn_channels(cancel.clone());
        let messages = handle.messages();
        let mut interjection = self.interjection.take();
        let raw = self.messages.iter().map(RawMessage::from).collect();
        let request = TurnRequest {
            backend: self.backend.clone(),
            account: "a".into(),
            workspace: "/workspace".into(),
            asked: tokio::time::Instant::now(),
            transcript: self
                .transcripts
                .read(system, Some(tools.into()), raw)
                .unwrap(),
            model: Model {
                id: "composer-2".into(),
                ..Model::default()
            },
            limits: Limits {
                window: 200_000,
                max_output: 64_000,
            },
            mode: None,
            policy: self.policy.clone(),
            native_tools: HostPolicy::default(),
            can_be_asked: false,
            library: std::sync::Arc::default(),
            surface: agent::turn::Surface::Text,
            keep: Keep::Disk,
            frontend: turn::Frontend::Native,
            tool_mode: self.tool_mode,
        };
        self.session.enqueue(channels).await;
        let (mut received, result) = handle.start(request).await;
        let mut interjected = None;
        let listening = async {
            let mut all = Vec::new();
            if cancel_after == CancelAfter::Events(0) {
                cancel.cancel();
            }
            // Ends when the turn drops the sender.
            while let Some(event) = received.recv().await {
                match event {
                    // Only for display; it is not part of the answer.
                    TurnEvent::Waiting(_) => continue,
                    TurnEvent::Request(HostRequest::Call(call)) => {
                        let result = json!({"content": format!("did {}", call.id)});
                        call.answer(HostResult::read(&result));
                        continue;
                    }
                    event => all.push(event),
                }
                if let Some(words) = interjection.take() {
                    // A turn that has ended accepts no message.
                    let message = turn::user_message(words.clone(), Vec::new());
                    interjected = messages.send(message).await.then_some(words);
                }
                if cancel_after == CancelAfter::Events(all.len()) {
                    cancel.cancel();
                }
            }
            all
        };
        let (result, events) = tokio::join!(result, listening);
        let mut outcome = InProcessTurn {
            text: String::new(),
            calls: Vec::new(),
            notices: Vec::new(),
            stop: result.stop,
            tokens: result.tokens,
            interjected,
        };
        let mut content = Vec::new();
        for event in events {
            match event {
                TurnEvent::Text(text) => outcome.text.push_str(&text),
                TurnEvent::ToolCall(call) => {
                    let ToolCall {
                        id,
                        name,
                        arguments,
                    } = call;
                    content.push(
                        json!({"type": "toolCall", "id": id, "name": name, "arguments": arguments}),
                    );
                    outcome.calls.push(OfferedCall {
                        id,
                        name,
                        arguments,
                    });
                }
                TurnEvent::Remark(notice)
                | TurnEvent::RetryNotice(notice)
                | TurnEvent::Notice(notice) => outcome.notices.push(notice),
                _ => {}
            }
        }
        content.insert(0, json!({"type": "text", "text": outcome.text}));
        self.push(json!({"role": "assistant", "content": content, "stopReason": "stop"}));
        outcome
    }

    pub async fn prompt(&mut self, text: &str) -> InProcessTurn {
        self.user(text);
        self.turn(CancelAfter::Endless).await
    }
}

/// Returns a step that calls a host tool and does not wait for the result.
pub fn opened(tool: &str, name: &str) -> String {
    let tool = format!("pi__{tool}");
    let call = json!({"name": tool, "providerIdentifier": "pi", "toolName": tool,
        "toolCallId": name, "args": {"asked": "$USER_TEXT"}});
    inline(&json!({"exec": {"mcpArgs": call}, "open": true, "name": name}))
}

/// The run requests a simulator has received.
pub fn requests(sim: &Sim) -> Vec<Json> {
    let frames = sim.recording().frames();
    let asked = frames
        .into_iter()
        .filter(|frame| frame.kind == "runRequest");
    asked
        .map(|frame| frame.json["runRequest"].clone())
        .collect()
}

/// The user text of a run request.
pub fn user_text(request: &Json) -> String {
    let text = &request["action"]["userMessageAction"]["userMessage"]["text"];
    text.as_str().unwrap_or_default().to_owned()
}

pub const END: &str = r#"{ checkpoint = "auto" }, { usage = {} }, { end = true }"#;

/// Counts the client frames of a kind.
pub fn sent(recording: &RecordingHandle, kind: &str) -> usize {
    let frames = recording.frames();
    frames
        .iter()
        .filter(|frame| frame.from == Side::Client && frame.kind == kind)
        .count()
}

/// Waits until every run has a verdict and asserts that each matched its script.
pub async fn played(recording: &RecordingHandle) {
    let judged = recording.wait_for(|recording| {
        let verdicts = recording.verdicts();
        (verdicts.len() >= sent(recording, "runRequest")).then_some(verdicts)
    });
    let verdicts = tokio::time::timeout(Duration::from_secs(60), judged).await;
    let failures: Vec<String> = verdicts
        .expect("a verdict on every run")
        .into_iter()
        .flat_map(|verdict| verdict.failures)
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
