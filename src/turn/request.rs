//! One turn as a host asks for it, and what it gets.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value as Json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cause::Cause;
use super::policy::Policy;
use super::show::Surface;
use super::usage::{Limits, Tokens};
use crate::conversation::transcript::Transcript;
use crate::run::queue::{self, Bounds, Weighed};
use crate::run::{Backend, Mode, Model, UserMessage};
use crate::tools::bridge::HostCall;
use crate::tools::by_host::HostTools;
use crate::tools::native::policy::HostPolicy;
use crate::tools::permission::{PermissionRequest, TurnTools};
use crate::tools::settings::Library;

/// One turn as a host asks for it.
#[derive(Debug)]
pub struct TurnRequest {
    /// The account and hosts to use.
    pub backend: Backend,
    /// Whose account that is: conversations of another one are not gone on with.
    pub account: String,
    /// The folder the agent works in.
    pub workspace: PathBuf,
    /// What the host says.
    pub transcript: Transcript,
    /// When it said so: what was answered later, the transcript cannot tell.
    pub asked: Instant,
    /// Which model.
    pub model: Model,
    /// Its limits.
    pub limits: Limits,
    /// Agent or plan.
    pub mode: Option<Mode>,
    /// What the user's settings say.
    pub policy: Policy,
    /// What the host states about Cursor's native tools.
    pub native_tools: HostPolicy,
    /// Where the host is asked for permission; `None` for a host that cannot be asked.
    pub permissions: Option<mpsc::Sender<PermissionRequest>>,
    /// The user's Cursor settings.
    pub library: Arc<Library>,
    /// Where the conversation is kept.
    pub keep: Keep,
    /// The way it came.
    pub door: Door,
    /// Who executes the host's tools, and when.
    pub hands: Hands,
    /// How the host shows what Cursor's own tools do.
    pub surface: Surface,
    /// Ends the turn.
    pub cancel: CancellationToken,
    /// Words for the model while it works.
    pub injections: mpsc::Receiver<UserMessage>,
    /// Where events go.
    pub events: queue::Sender<TurnEvent>,
}

impl TurnRequest {
    /// What this turn says about tools.
    pub(super) fn tools(&self) -> Arc<TurnTools> {
        let tools = self.transcript.tools.iter();
        let host = HostTools::new(tools.map(|tool| (tool.name.as_str(), &tool.parameters)));
        let plan_mode = self.mode == Some(Mode::Plan);
        let (settings, stated) = (&self.policy.native, &self.native_tools);
        let asked = self.permissions.clone();
        Arc::new(TurnTools::new(settings, stated, host, plan_mode, asked))
    }

    /// The words that came at the last moment.
    pub(super) async fn last_words(&mut self) -> Vec<UserMessage> {
        last_words(&mut self.injections).await
    }
}

/// Takes the words that came at the last moment, and no more: nobody would read them after
/// this turn.
pub(super) async fn last_words(injections: &mut mpsc::Receiver<UserMessage>) -> Vec<UserMessage> {
    injections.close();
    let mut words = Vec::new();
    while let Some(message) = injections.recv().await {
        words.push(message);
    }
    words
}

/// Where a conversation is kept between turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// On disk, where the session is kept at all.
    #[default]
    Disk,
    /// In memory only, from this turn on.
    Memory,
}

/// The way a turn came: what is told of its recovery is named after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Door {
    /// A host that speaks our own protocol.
    #[default]
    Native,
    /// A client of the HTTP chat door.
    Chat,
}

/// When a host executes its tools.
#[derive(Debug, Clone)]
pub enum Hands {
    /// Between turns: a call ends the turn.
    Between,
    /// While the turn goes on: calls go here.
    Inline(mpsc::Sender<HostCall>),
}

/// Events that may wait for a host, and their bytes; then the run waits.
const EVENTS: Bounds = Bounds {
    items: 256,
    bytes: 1024 * 1024,
};

/// A queue for the events of a turn.
pub fn turn_events() -> (queue::Sender<TurnEvent>, queue::Receiver<TurnEvent>) {
    queue::weighed(EVENTS)
}

/// Something to show.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEvent {
    /// A piece of the answer.
    Text(String),
    /// A piece of thinking.
    Thinking(String),
    /// A thought is complete.
    ThinkingDone,
    /// The model calls a tool of the host.
    ToolCall {
        /// Its id.
        id: String,
        /// The host's name of the tool.
        name: String,
        /// Its arguments.
        arguments: Json,
    },
    /// The connection failed and is tried again; the text says why.
    Retrying(String),
    /// Something a person may want to know.
    Remark(String),
    /// Something a person should know.
    Notice(String),
}

impl Weighed for TurnEvent {
    fn bytes(&self) -> usize {
        /// What an event takes besides its content.
        const BASE: usize = 64;
        let content = match self {
            Self::Text(text)
            | Self::Thinking(text)
            | Self::Retrying(text)
            | Self::Remark(text)
            | Self::Notice(text) => text.len(),
            Self::ThinkingDone => 0,
            Self::ToolCall {
                id,
                name,
                arguments,
            } => id.len() + name.len() + arguments.to_string().len(),
        };
        BASE + content
    }
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnResult {
    /// Why it ended.
    pub stop: Stop,
    /// Why it failed, if it did.
    pub cause: Option<Cause>,
    /// Its tokens.
    pub tokens: Tokens,
    /// The model's window, as Cursor told it.
    pub window: Option<u32>,
}

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The answer is complete.
    Finished,
    /// The host's tools were called; the run waits for their results.
    ToolUse,
    /// The host gave it up.
    Aborted,
    /// It failed; the text is worded for the host.
    Failed(String),
}

impl TurnResult {
    /// A turn that failed before anything was sent.
    pub(super) fn failed(cause: Cause, text: impl Into<String>) -> Self {
        Self {
            stop: Stop::Failed(text.into()),
            cause: Some(cause),
            tokens: Tokens::default(),
            window: None,
        }
    }
}
