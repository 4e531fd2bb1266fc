//! What a turn sends to its response, and an answer that is collected from it.

use serde_json::Value as Json;
use tokio::sync::mpsc;

use super::api_error::ApiError;
use agent::message::{AnswerPart, ToolCall};
use agent::turn::usage::Tokens;

/// What a turn sends to its response.
#[derive(Debug)]
pub(super) enum TurnUpdate {
    /// Part of the text.
    Text(String),
    /// Part of the thinking.
    Thinking(String),
    /// A thought is complete.
    ThinkingDone,
    /// A call of one of the client's tools.
    Call(CallUpdate),
    /// How it ended; always the last.
    End(Result<TurnEnd, ApiError>),
}

/// A call, with the id for the client.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CallUpdate {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: Json,
}

/// The end of a turn that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TurnEnd {
    pub(super) finish: Finish,
    pub(super) usage: AnswerUsage,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finish {
    /// It is complete.
    Complete,
    /// Tools were called.
    ToolCalls,
    /// It reached the client's limit of tokens.
    Length,
    /// It reached this stop sequence.
    StopSequence(String),
}

/// Tokens of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct AnswerUsage {
    pub(super) tokens: Tokens,
    /// How many of the written ones were thinking: Cursor's count, else our estimate.
    pub(super) reasoning: u64,
}

/// One part of a collected answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AnswerBlock {
    Thinking(String),
    Text(String),
    Call(CallUpdate),
}

/// A complete answer.
#[derive(Debug)]
pub(super) struct CollectedAnswer {
    pub(super) blocks: Vec<AnswerBlock>,
    pub(super) end: TurnEnd,
}

impl CollectedAnswer {
    /// Waits for the end of a turn and returns its answer.
    pub(super) async fn collect(
        updates: &mut mpsc::Receiver<TurnUpdate>,
    ) -> Result<Self, ApiError> {
        let mut blocks = Vec::new();
        let mut is_new_thought = true;
        loop {
            match updates.recv().await.unwrap_or_else(lost_turn) {
                TurnUpdate::End(end) => return end.map(|end| Self { blocks, end }),
                TurnUpdate::Text(text) => match blocks.last_mut() {
                    Some(AnswerBlock::Text(so_far)) => so_far.push_str(&text),
                    _ => blocks.push(AnswerBlock::Text(text)),
                },
                TurnUpdate::Thinking(text) => match blocks.last_mut() {
                    Some(AnswerBlock::Thinking(so_far)) if !is_new_thought => {
                        so_far.push_str(&text);
                    }
                    _ => {
                        is_new_thought = false;
                        blocks.push(AnswerBlock::Thinking(text));
                    }
                },
                TurnUpdate::ThinkingDone => is_new_thought = true,
                TurnUpdate::Call(call) => blocks.push(AnswerBlock::Call(call)),
            }
        }
    }

    /// Returns the whole text.
    pub(super) fn text(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| match block {
            AnswerBlock::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Returns the thinking, with a blank line between thoughts.
    pub(super) fn thinking(&self) -> String {
        let thoughts = self.blocks.iter().filter_map(|block| match block {
            AnswerBlock::Thinking(text) => Some(text.as_str()),
            _ => None,
        });
        thoughts.collect::<Vec<&str>>().join("\n\n")
    }

    /// Returns the calls.
    pub(super) fn calls(&self) -> impl Iterator<Item = &CallUpdate> {
        self.blocks.iter().filter_map(|block| match block {
            AnswerBlock::Call(call) => Some(call),
            _ => None,
        })
    }
}

impl AnswerBlock {
    /// Returns the block as a part of a message.
    pub(super) fn to_part(&self) -> AnswerPart {
        match self {
            Self::Thinking(text) => AnswerPart::Thinking(text.clone()),
            Self::Text(text) => AnswerPart::Text(text.clone()),
            Self::Call(call) => AnswerPart::Call(ToolCall {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments: call.arguments.clone(),
            }),
        }
    }
}

/// Returns the end of a turn that stopped without one.
pub(super) fn lost_turn() -> TurnUpdate {
    TurnUpdate::End(Err(ApiError::internal()))
}
