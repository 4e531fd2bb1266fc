//! The request of a host for one turn, and its result.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::time::Instant;

use super::activity_display::Surface;
use super::channels::HostRequest;
use super::failure_cause::Cause;
use super::policy::Policy;
use super::usage::{Limits, RequestTokens, Tokens};
use crate::conversation::fingerprint::Fingerprint;
use crate::conversation::transcript::Transcript;
use crate::message::ToolCall;
use crate::run::queue::Weighed;
use crate::run::{Backend, Mode, Model};
use agent_tools::cursor_config::ConfigCache;
use agent_tools::host_delegate::HostToolSet;
use agent_tools::permission::{PermissionSender, TurnTools};
use agent_tools::policy::HostPolicy;

/// The request of a host for one turn.
#[derive(Debug)]
pub struct TurnRequest {
    /// The account and endpoints to use.
    pub backend: Backend,
    /// The account's id: conversations of another account are not continued.
    pub account: String,
    /// The folder the agent works in.
    pub workspace: PathBuf,
    /// The host's history.
    pub transcript: Transcript,
    /// When it was requested: the transcript cannot contain answers given later.
    pub asked: Instant,
    /// The model.
    pub model: Model,
    /// Its limits.
    pub limits: Limits,
    /// Agent or plan mode.
    pub mode: Option<Mode>,
    /// The user's settings.
    pub policy: Policy,
    /// The host's policy for native tools.
    pub native_tools: HostPolicy,
    /// Whether the host answers permission requests.
    pub can_be_asked: bool,
    /// The user's Cursor settings.
    pub library: Arc<ConfigCache>,
    /// Where the conversation is stored.
    pub keep: Keep,
    /// The front end it came through.
    pub frontend: Frontend,
    /// Who executes the host's tools, and when.
    pub tool_mode: HostToolMode,
    /// How the host shows native tool calls.
    pub surface: Surface,
}

impl TurnRequest {
    /// Returns the tool settings of this turn.
    pub(super) fn tools(&self, permissions: Option<Arc<dyn PermissionSender>>) -> TurnTools {
        let tools = self.transcript.tools.iter();
        let host = HostToolSet::new(tools.map(|tool| (tool.name.as_str(), &tool.parameters)));
        let plan_mode = self.mode == Some(Mode::Plan);
        let (settings, stated) = (&self.policy.native, &self.native_tools);
        TurnTools::new(settings, stated, host, plan_mode, permissions)
    }
}

/// Where a conversation is stored between turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// On disk, if the session has a store.
    #[default]
    Disk,
    /// In memory only, from this turn on.
    Memory,
}

/// The front end of a turn; its recovery events are named after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Frontend {
    /// A host that uses our JSON-RPC protocol.
    #[default]
    Native,
    /// A client of the HTTP chat API.
    Chat,
}

/// When a host executes its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostToolMode {
    /// Between turns: a call ends the turn.
    Between,
    /// During the turn, which requests it in an event.
    Inline,
}

impl TurnRequest {
    /// Returns the fingerprint of the host's history.
    pub(super) fn history(&self) -> Fingerprint {
        Fingerprint::of(&self.transcript.system, &self.transcript.messages)
    }
}

/// An event of a turn.
#[derive(Debug)]
pub enum TurnEvent {
    /// Part of the answer.
    Text(String),
    /// Part of the model's thinking.
    Thinking(String),
    /// The current thinking block is complete.
    ThinkingDone,
    /// The model calls a tool of the host.
    ToolCall(ToolCall),
    /// Something that the host answers during the turn.
    Request(HostRequest),
    /// The connection failed and is retried.
    Retrying {
        /// Why.
        reason: String,
        /// Whether Cursor refuses more requests for now, without saying which limit was reached.
        is_limit: bool,
    },
    /// What the turn waits for, as one line. It replaces the last one.
    Waiting(String),
    /// A warning that Cursor cannot be reached, for hosts that do not display what a turn waits for.
    RetryNotice(String),
    /// Information for the user.
    Remark(String),
    /// A warning for the user.
    Notice(String),
}

impl Weighed for TurnEvent {
    fn bytes(&self) -> usize {
        /// The size of an event without its content.
        const BASE: usize = 64;
        let content = match self {
            Self::Text(text)
            | Self::Thinking(text)
            | Self::Retrying { reason: text, .. }
            | Self::Waiting(text)
            | Self::RetryNotice(text)
            | Self::Remark(text)
            | Self::Notice(text) => text.len(),
            Self::ThinkingDone => 0,
            Self::Request(request) => request.bytes(),
            Self::ToolCall(call) => {
                call.id.len() + call.name.len() + call.arguments.to_string().len()
            }
        };
        BASE + content
    }
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnResult {
    /// How it ended.
    pub stop: Stop,
    /// Why it failed, if it did.
    pub cause: Option<Cause>,
    /// Its activity, for hosts with sessions.
    pub tokens: Tokens,
    /// Its usage, for API clients.
    pub request_tokens: RequestTokens,
    /// The model's context window, if Cursor reported it.
    pub window: Option<u32>,
}

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The answer is complete.
    Finished,
    /// The host's tools were called; the run waits for their results.
    ToolUse,
    /// The host cancelled it.
    Aborted,
    /// It failed; this is the text for the host.
    Failed(String),
}

impl TurnResult {
    /// Returns the result of a turn that failed before anything was sent.
    pub(super) fn failed(cause: Cause, text: impl Into<String>) -> Self {
        Self {
            stop: Stop::Failed(text.into()),
            cause: Some(cause),
            tokens: Tokens::default(),
            request_tokens: RequestTokens::default(),
            window: None,
        }
    }

    /// Returns the result of a turn that was cancelled before anything was sent.
    pub(super) fn aborted() -> Self {
        Self {
            stop: Stop::Aborted,
            cause: None,
            tokens: Tokens::default(),
            request_tokens: RequestTokens::default(),
            window: None,
        }
    }
}
