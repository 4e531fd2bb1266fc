//! Events a run emits to its owner.

use std::time::Duration;

use bytes::Bytes;

use super::queue::Weighed;
use super::retry::{RetriesUsed, VisibleProgress};
use crate::effect_log::{EffectDigest, EffectLog};
use agent_tools::bridge::HostCall;
use cursor_client::failure::{Failure, Retry};
use cursor_proto::agent::v1::{
    ContextInjectionStateUpdate, InteractionUpdate, PartialToolCallUpdate, ToolCallCompletedUpdate,
    ToolCallDeltaUpdate, ToolCallStartedUpdate, TurnEndedUpdate, interaction_update,
};

/// An event of a run. Exactly one [`RunEvent::Ended`] is emitted, as the last event.
#[derive(Debug)]
pub enum RunEvent {
    /// Answer text.
    Text(String),
    /// Thinking text.
    Thinking(String),
    /// A block of thinking is complete.
    ThinkingDone,
    /// A tool call started.
    ToolStarted(Box<ToolCallStartedUpdate>),
    /// More of a tool call's arguments.
    ToolPartial(Box<PartialToolCallUpdate>),
    /// Output of a running tool call.
    ToolDelta(Box<ToolCallDeltaUpdate>),
    /// A tool call is complete.
    ToolCompleted(Box<ToolCallCompletedUpdate>),
    /// The model calls a host tool: the run continues once the call is answered.
    HostCall(Box<HostCall>),
    /// Everything that arrived together with the calls and completed tools before this event has
    /// been emitted.
    BatchEnd,
    /// A new checkpoint; it replaces every earlier one.
    Checkpoint(Checkpoint),
    /// The state of an injected message.
    Injection(Box<ContextInjectionStateUpdate>),
    /// The model's turn is over; a checkpoint may still follow.
    TurnEnded(Usage),
    /// Any other kind of update.
    Other(Box<InteractionUpdate>),
    /// The attempt failed and another one starts.
    Retrying(FailedAttempt),
    /// The run is over.
    Ended(Ended),
}

/// A failed attempt that is followed by another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempt {
    /// Why it failed.
    pub failure: Failure,
    /// The number of the next attempt; the first one is 1.
    pub next: u32,
    /// The number of the last attempt, if all of them fail in the same way.
    pub last: u32,
}

impl FailedAttempt {
    /// Returns one line that says what is waited for, for hosts and terminals.
    pub fn waiting_line(&self) -> String {
        let Self {
            failure,
            next,
            last,
        } = self;
        let cause = match failure.retry() {
            Retry::Transport => "the connection failed",
            Retry::Idle => "Cursor was silent",
            Retry::Server | Retry::Never => "Cursor reported an error",
        };
        format!("Connecting to Cursor, attempt {next} of {last} ({cause})")
    }
}

/// A checkpoint and what it does not include.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Cursor's opaque conversation state.
    pub state: Bytes,
    /// Ids of host calls whose results it may not include, although they were sent.
    pub lacks: Vec<String>,
    /// The end of the shown text, as far as the checkpoint does not include it: an earlier stream
    /// generated that text, and this one has not repeated it.
    pub unacknowledged: String,
    /// Ids of the user messages that it names.
    pub messages: Vec<String>,
    /// Effects executed here that it is the first checkpoint to include for certain.
    pub saved: Vec<EffectDigest>,
}

/// Token counts as the server reports them; `None` where it reports none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Usage {
    pub input: Option<i64>,
    pub output: Option<i64>,
    pub cache_read: Option<i64>,
    pub cache_write: Option<i64>,
    pub reasoning: Option<i64>,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// Whether it finished, was cancelled or failed.
    pub outcome: Outcome,
    /// Usage, summed over the turns that the server ended.
    pub usage: Option<Usage>,
    /// How many streams it used.
    pub attempts: u32,
    /// Whether the server accepted one of them. If not, nothing was sent to the model.
    pub was_accepted: bool,
    /// Retries used, by budget.
    pub spent: RetriesUsed,
    /// How long to wait before another run replaces it.
    pub delay: Duration,
    /// Visible output or effects that no checkpoint includes.
    pub visible_progress: VisibleProgress,
    /// Effects executed, for a run that replaces this one.
    pub effects: EffectLog,
}

impl Ended {
    /// Returns the end of a run that failed inside this process and reports nothing.
    pub(crate) fn lost(spent: RetriesUsed) -> Self {
        let failure = Failure::Refused("the run failed inside cursor-sidecar".into());
        Self {
            outcome: Outcome::Failed(failure),
            usage: None,
            attempts: 0,
            was_accepted: true,
            spent,
            delay: Duration::ZERO,
            visible_progress: VisibleProgress::Executed,
            effects: EffectLog::lost(),
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The turn is complete.
    Finished,
    /// The owner cancelled it.
    Cancelled,
    /// It failed, and no further retry is possible.
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
    /// Returns the sum of both; a count is absent only if both lack it.
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
        /// Bytes an event takes besides its content.
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
            Self::Checkpoint(saved) => saved.state.len() + saved.unacknowledged.len(),
            Self::ThinkingDone
            | Self::BatchEnd
            | Self::TurnEnded(_)
            | Self::Retrying(_)
            | Self::Ended(_) => 0,
        };
        BASE + content
    }
}

impl RunEvent {
    /// Converts an update to an event; `None` for heartbeats and empty updates.
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
