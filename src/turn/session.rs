//! One session of a host: one task that owns its conversation and takes its turns in order.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::usage::{self, Limits, Tokens};
use super::wording::wording;
use crate::conversation::fingerprint::Fingerprint;
use crate::conversation::history::{self, Budget};
use crate::conversation::plan::{SendPlan, plan};
use crate::conversation::transcript::Transcript;
use crate::run::{
    Action, Backend, BlobKey, Blobs as _, Command, MemoryBlobs, Mode, Model, Outcome, RetryPolicy,
    RunEvent, RunSpec, Timing, ToolGates, UserMessage, start,
};
use crate::tools::context::{Facts, Rule};
use crate::tools::refuse::Refuse;

/// One turn as a host asks for it.
#[derive(Debug)]
pub struct TurnRequest {
    /// The account and hosts to use.
    pub backend: Backend,
    /// The folder the agent works in.
    pub workspace: PathBuf,
    /// What the host says.
    pub transcript: Transcript,
    /// Which model.
    pub model: Model,
    /// Its limits.
    pub limits: Limits,
    /// Agent or plan.
    pub mode: Option<Mode>,
    /// Ends the turn.
    pub cancel: CancellationToken,
    /// Where events go.
    pub events: mpsc::Sender<TurnEvent>,
}

/// Something to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnEvent {
    /// A piece of the answer.
    Text(String),
    /// A piece of thinking.
    Thinking(String),
    /// A thought is complete.
    ThinkingDone,
    /// The connection failed and is tried again; the text says why.
    Retrying(String),
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnResult {
    /// Why it ended.
    pub stop: Stop,
    /// Its tokens.
    pub tokens: Tokens,
}

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The answer is complete.
    Finished,
    /// The host gave it up.
    Aborted,
    /// It failed; the text is worded for the host.
    Failed(String),
}

/// A handle to a session's task.
#[derive(Debug, Clone)]
pub struct Session {
    asks: mpsc::Sender<Ask>,
}

enum Ask {
    Turn(Box<TurnRequest>, oneshot::Sender<TurnResult>),
    Invalidate,
}

impl Session {
    /// Starts the task; it ends with the last handle.
    pub fn start() -> Self {
        let (asks, inbox) = mpsc::channel(16);
        tokio::spawn(run(inbox));
        Self { asks }
    }

    /// Takes a turn, after those asked for before.
    pub async fn turn(&self, request: TurnRequest) -> TurnResult {
        let (reply, answer) = oneshot::channel();
        let asked = self.asks.send(Ask::Turn(Box::new(request), reply)).await;
        match (asked, answer.await) {
            (Ok(()), Ok(result)) => result,
            _ => TurnResult {
                stop: Stop::Failed("the session failed inside cursor-sidecar".into()),
                tokens: Tokens::default(),
            },
        }
    }

    /// The host's history changed in a way the next turn must tell anew.
    pub async fn invalidate(&self) {
        let _ = self.asks.send(Ask::Invalidate).await;
    }
}

async fn run(mut inbox: mpsc::Receiver<Ask>) {
    let mut conversation = None;
    while let Some(ask) = inbox.recv().await {
        match ask {
            Ask::Invalidate => conversation = None,
            Ask::Turn(request, reply) => {
                let mut answer = Answer(Some(reply));
                let result = turn(&mut conversation, *request, &mut answer).await;
                answer.give(result);
            }
        }
    }
}

/// The host's answer, given once: when the turn ends or when the host gives it up.
struct Answer(Option<oneshot::Sender<TurnResult>>);

impl Answer {
    fn give(&mut self, result: TurnResult) {
        if let Some(reply) = self.0.take() {
            let _ = reply.send(result);
        }
    }
}

/// What Cursor knows of the session.
struct Conversation {
    id: String,
    blob_key: BlobKey,
    blobs: Arc<MemoryBlobs>,
    state: Option<Bytes>,
    sent: Option<Fingerprint>,
}

impl Conversation {
    fn new() -> Result<Self, getrandom::Error> {
        Ok(Self {
            id: format!("agent-{}", Uuid::new_v4()),
            blob_key: BlobKey::random()?,
            blobs: Arc::default(),
            state: None,
            sent: None,
        })
    }
}

async fn turn(
    current: &mut Option<Conversation>,
    request: TurnRequest,
    answer: &mut Answer,
) -> TurnResult {
    match prepare(current, &request) {
        Ok(Some(text)) => drive(current, request, text, answer).await,
        Ok(None) => failed("there is no new message to answer".into()),
        Err(problem) => {
            *current = None;
            failed(problem)
        }
    }
}

fn failed(text: String) -> TurnResult {
    TurnResult {
        stop: Stop::Failed(text),
        tokens: Tokens::default(),
    }
}

/// Brings the conversation to where the new words can be said; gives the words.
fn prepare(
    current: &mut Option<Conversation>,
    request: &TurnRequest,
) -> Result<Option<String>, String> {
    let sent = current
        .as_ref()
        .and_then(|conversation| conversation.sent.as_ref());
    match plan(
        sent,
        &request.transcript.system,
        &request.transcript.messages,
    ) {
        SendPlan::Nothing => Ok(None),
        SendPlan::Incremental { text } => Ok(Some(text)),
        SendPlan::Bootstrap {
            history,
            text,
            because,
        } => {
            tracing::debug!(?because, "telling the history anew");
            let mut conversation =
                Conversation::new().map_err(|error| format!("no source of randomness: {error}"))?;
            let window = u32::try_from(request.limits.window).unwrap_or(u32::MAX);
            let output = u32::try_from(request.limits.max_output).unwrap_or(u32::MAX);
            let rebuilt = history::rebuild(history, Budget::for_window(window, output));
            for (id, blob) in rebuilt.blobs {
                conversation
                    .blobs
                    .set(&id, blob)
                    .map_err(|error| error.to_string())?;
            }
            conversation.state = (!rebuilt.state.is_empty()).then_some(rebuilt.state);
            *current = Some(conversation);
            Ok(Some(text))
        }
    }
}

async fn drive(
    current: &mut Option<Conversation>,
    mut request: TurnRequest,
    text: String,
    answer: &mut Answer,
) -> TurnResult {
    let Some(conversation) = current.as_mut() else {
        return failed("the session lost its conversation".into());
    };
    let rules = match request.transcript.system.trim() {
        "" => Vec::new(),
        _ => vec![Rule {
            name: "host/system-prompt".into(),
            content: request.transcript.system.clone(),
        }],
    };
    let executor = Refuse {
        facts: Facts {
            workspace: request.workspace.clone(),
            rules,
            ..Facts::default()
        },
    };
    let spec = RunSpec {
        conversation_id: conversation.id.clone(),
        state: conversation.state.clone(),
        action: Action::UserMessage(UserMessage {
            text: text.clone(),
            images: Vec::new(),
            mode: request.mode,
        }),
        model: request.model.clone(),
        offers: Vec::new(),
        custom_system_prompt: None,
        blob_key: conversation.blob_key.clone(),
        gates: ToolGates::default(),
    };
    let mut handle = start(
        request.backend.clone(),
        spec,
        Arc::new(executor),
        conversation.blobs.clone(),
        RetryPolicy::default(),
        Timing::default(),
    );
    let mut output = String::new();
    let mut cancelled = false;
    let ended = loop {
        let event = tokio::select! {
            event = handle.events.recv() => event,
            () = request.cancel.cancelled(), if !cancelled => {
                cancelled = true;
                let _ = handle.commands.send(Command::Cancel).await;
                // The host need not wait: the run is seen off before the next turn.
                answer.give(TurnResult {
                    stop: Stop::Aborted,
                    tokens: usage::account(None, request.limits, &text, &output),
                });
                request.events = mpsc::channel(1).0; // ends the host's events
                continue;
            }
        };
        let shown = match event {
            Some(RunEvent::Text(text)) => {
                output.push_str(&text);
                TurnEvent::Text(text)
            }
            Some(RunEvent::Thinking(text)) => {
                output.push_str(&text);
                TurnEvent::Thinking(text)
            }
            Some(RunEvent::ThinkingDone) => TurnEvent::ThinkingDone,
            Some(RunEvent::Retrying(failure)) => TurnEvent::Retrying(failure.to_string()),
            Some(RunEvent::Checkpoint(state)) => {
                conversation.state = Some(state);
                continue;
            }
            Some(RunEvent::Ended(ended)) => break Some(ended),
            Some(_) => continue,
            None => break None,
        };
        // A host that stopped listening has cancelled, or will.
        let _ = request.events.send(shown).await;
    };
    let stop = match ended.as_ref().map(|ended| &ended.outcome) {
        Some(Outcome::Finished) => {
            // The model's own answer is part of the checkpoint: only what was sent counts.
            conversation.sent = Some(Fingerprint::of(
                &request.transcript.system,
                &request.transcript.messages,
            ));
            Stop::Finished
        }
        Some(Outcome::Cancelled) => Stop::Aborted,
        Some(Outcome::Failed(failure)) => Stop::Failed(wording(failure)),
        None => Stop::Failed("the run failed inside cursor-sidecar".into()),
    };
    if stop != Stop::Finished {
        // What Cursor made of an unfinished turn is not known: tell it anew next time.
        conversation.sent = None;
    }
    let reported = ended.and_then(|ended| ended.usage);
    TurnResult {
        stop,
        tokens: usage::account(reported, request.limits, &text, &output),
    }
}
