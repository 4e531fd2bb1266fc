//! What a run tells its owner.

use std::time::Duration;

use bytes::Bytes;

use super::memo::{Memo, What};
use super::queue::Weighed;
use super::retry::{Shown, Spent};
use crate::tools::bridge::HostCall;
use crate::wire::failure::Failure;
use crate::wire::proto::agent::v1::{
    ContextInjectionStateUpdate, InteractionUpdate, PartialToolCallUpdate, ToolCallCompletedUpdate,
    ToolCallDeltaUpdate, ToolCallStartedUpdate, TurnEndedUpdate, interaction_update,
};

/// One thing that happened. Exactly one [`RunEvent::Ended`] comes, and comes last.
#[derive(Debug)]
pub enum RunEvent {
    /// A piece of the answer.
    Text(String),
    /// A piece of thinking.
    Thinking(String),
    /// A thought is complete.
    ThinkingDone,
    /// A tool call appeared.
    ToolStarted(Box<ToolCallStartedUpdate>),
    /// More of a tool call's arguments.
    ToolPartial(Box<PartialToolCallUpdate>),
    /// Output of a running tool call.
    ToolDelta(Box<ToolCallDeltaUpdate>),
    /// A tool call is complete.
    ToolCompleted(Box<ToolCallCompletedUpdate>),
    /// The model calls a tool of the host: the run goes on when the call is answered.
    HostCall(Box<HostCall>),
    /// Everything that had arrived when [`super::Command::Settle`] was taken has been told.
    Settled,
    /// A new state of the conversation; replaces every earlier one.
    Checkpoint(Checkpoint),
    /// How an injected message fares.
    Injection(Box<ContextInjectionStateUpdate>),
    /// The model's turn is over; the stream may still bring a checkpoint.
    TurnEnded(Usage),
    /// Another kind of update, for those who want it.
    Other(Box<InteractionUpdate>),
    /// The attempt failed and another one starts.
    Retrying(Failure),
    /// The run is over.
    Ended(Ended),
}

/// A state of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its bytes.
    pub state: Bytes,
    /// Calls of the host whose results it may not know, though they were given.
    pub lacks: Vec<String>,
    /// The last words that were shown, as far as it does not know them: an earlier stream said
    /// them, and this one has not said them again.
    pub behind: String,
    /// What was done here that it knows for sure, and no state before it did.
    pub settled: Vec<What>,
}

/// Tokens as the server reports them; absent where it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Usage {
    pub input: Option<i64>,
    pub output: Option<i64>,
    pub cache_read: Option<i64>,
    pub cache_write: Option<i64>,
    pub reasoning: Option<i64>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// Well, cancelled or not at all.
    pub outcome: Outcome,
    /// Usage, summed over the turns the server ended.
    pub usage: Option<Usage>,
    /// Streams it took.
    pub attempts: u32,
    /// What of its retries is spent.
    pub spent: Spent,
    /// How long to wait before another run takes its place.
    pub rest: Duration,
    /// What it did that no checkpoint knows.
    pub left: Shown,
    /// What tools did, for a run that is asked for the same.
    pub done: Memo,
}

/// The ways a run ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The turn is complete.
    Finished,
    /// We gave it up.
    Cancelled,
    /// It failed for good.
    Failed(Failure),
}

impl From<&TurnEndedUpdate> for Usage {
    fn from(update: &TurnEndedUpdate) -> Self {
        Self {
            input: update.input_tokens,
            output: update.output_tokens,
            cache_read: update.cache_read_tokens,
            cache_write: update.cache_write_tokens,
            reasoning: update.reasoning_tokens,
        }
    }
}

impl Usage {
    /// The sum, where either side has a number.
    pub fn plus(self, other: Self) -> Self {
        let add = |a: Option<i64>, b: Option<i64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        Self {
            input: add(self.input, other.input),
            output: add(self.output, other.output),
            cache_read: add(self.cache_read, other.cache_read),
            cache_write: add(self.cache_write, other.cache_write),
            reasoning: add(self.reasoning, other.reasoning),
        }
    }
}

impl Weighed for RunEvent {
    fn bytes(&self) -> usize {
        use prost::Message as _;
        /// What an event takes besides its content.
        const BASE: usize = 64;
        let content = match self {
            Self::Text(text) | Self::Thinking(text) => text.len(),
            Self::ToolStarted(update) => update.encoded_len(),
            Self::ToolPartial(update) => update.encoded_len(),
            Self::ToolDelta(update) => update.encoded_len(),
            Self::ToolCompleted(update) => update.encoded_len(),
            Self::Injection(update) => update.encoded_len(),
            Self::Other(update) => update.encoded_len(),
            Self::HostCall(call) => call.arguments.to_string().len(),
            Self::Checkpoint(saved) => saved.state.len() + saved.behind.len(),
            Self::ThinkingDone
            | Self::Settled
            | Self::TurnEnded(_)
            | Self::Retrying(_)
            | Self::Ended(_) => 0,
        };
        BASE + content
    }
}

impl RunEvent {
    /// The event an update stands for; heartbeats and empty updates are none.
    pub(super) fn from_update(update: InteractionUpdate) -> Option<Self> {
        use interaction_update::Message;
        Some(match update.message? {
            Message::Heartbeat(_) => return None,
            Message::TextDelta(delta) => Self::Text(delta.text),
            Message::ThinkingDelta(delta) => Self::Thinking(delta.text),
            Message::ThinkingCompleted(_) => Self::ThinkingDone,
            Message::ToolCallStarted(call) => Self::ToolStarted(Box::new(call)),
            Message::PartialToolCall(call) => Self::ToolPartial(Box::new(call)),
            Message::ToolCallDelta(call) => Self::ToolDelta(Box::new(call)),
            Message::ToolCallCompleted(call) => Self::ToolCompleted(Box::new(call)),
            Message::ContextInjectionState(state) => Self::Injection(Box::new(state)),
            Message::TurnEnded(ended) => Self::TurnEnded(Usage::from(&ended)),
            message => Self::Other(Box::new(InteractionUpdate {
                message: Some(message),
                message_started_at_ms: update.message_started_at_ms,
            })),
        })
    }
}
