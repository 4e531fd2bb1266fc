//! The answer of one turn: turns the engine's events into updates for the response, and applies what
//! the client asked of the answer.

use tokio::sync::mpsc;

use super::answer::{AnswerUsage, CallUpdate, Finish, TurnEnd, TurnUpdate};
use super::answer_limits::{AnswerCutter, AnswerLimits, Cut};
use super::api_error::ApiError;
use super::call_id;
use agent::session_manager::AnswerSummary;
use agent::turn::usage::{self, Tokens};
use agent::turn::{Stop, TurnEvent, TurnResult};

/// When the text of an answer is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TextHandling {
    /// As it arrives.
    Streamed,
    /// After it was checked.
    Held,
}

/// What a client asked of the answer.
#[derive(Debug, Clone, Default)]
pub(super) struct AnswerOptions {
    pub(super) limits: AnswerLimits,
    /// Whether it may have at most one call.
    pub(super) is_one_call: bool,
    /// Whether a turn that reached a limit is retried here, and not by the client.
    pub(super) is_retried: bool,
}

/// The answer of one turn so far.
pub(super) struct AnswerState<'a> {
    updates: &'a mpsc::Sender<TurnUpdate>,
    /// Names the session in ids of calls.
    token: String,
    handling: TextHandling,
    cutter: AnswerCutter,
    /// Why the answer ends early.
    pub(super) cut: Option<Cut>,
    /// Whether the answer may have at most one call.
    is_one_call: bool,
    /// UTF-16 units of thinking.
    thinking: u64,
    pub(super) summary: AnswerSummary,
    /// Whether a turn that reached a limit is retried here, and not by the client.
    is_retried: bool,
    /// The limit that ended the turn.
    limit: Option<ApiError>,
}

impl<'a> AnswerState<'a> {
    pub(super) fn new(
        updates: &'a mpsc::Sender<TurnUpdate>,
        token: String,
        handling: TextHandling,
        turn: AnswerOptions,
    ) -> Self {
        Self {
            updates,
            token,
            handling,
            cutter: AnswerCutter::new(turn.limits),
            cut: None,
            is_one_call: turn.is_one_call,
            thinking: 0,
            summary: AnswerSummary::default(),
            is_retried: turn.is_retried,
            limit: None,
        }
    }

    /// Handles an event. Returns `false` if the client has disconnected.
    pub(super) async fn take(&mut self, event: TurnEvent) -> bool {
        let update = match event {
            TurnEvent::Text(text) => {
                let (text, cut) = self.cutter.push(&text);
                self.cut = cut;
                return self.text(text).await;
            }
            TurnEvent::Thinking(text) => {
                self.thinking += usage::units(&text);
                TurnUpdate::Thinking(text)
            }
            TurnEvent::ThinkingDone => TurnUpdate::ThinkingDone,
            TurnEvent::ToolCall(call) => {
                self.flush().await;
                if self.cut.is_some() {
                    return true;
                }
                // The others are offered again with the next answer.
                if self.is_one_call && !self.summary.calls.is_empty() {
                    return true;
                }
                let id = call_id::to_client(&self.token, &call.id);
                self.summary.calls.push(id.clone());
                TurnUpdate::Call(CallUpdate {
                    id,
                    name: call.name,
                    arguments: call.arguments,
                })
            }
            // Retries within seconds do not help; the client knows best how long it can wait.
            TurnEvent::Retrying {
                reason,
                is_limit: true,
            } if !self.is_retried && self.is_empty() => {
                self.limit = Some(ApiError::rate_limit(&reason));
                return false;
            }
            // For other front ends; logged elsewhere.
            TurnEvent::Request(_)
            | TurnEvent::Retrying { .. }
            | TurnEvent::Waiting(_)
            | TurnEvent::Remark(_)
            | TurnEvent::RetryNotice(_)
            | TurnEvent::Notice(_) => return true,
        };
        self.updates.send(update).await.is_ok()
    }

    fn is_empty(&self) -> bool {
        self.summary.text.is_empty() && self.summary.calls.is_empty() && self.thinking == 0
    }

    async fn text(&mut self, text: String) -> bool {
        if text.is_empty() {
            return true;
        }
        self.summary.text.push_str(&text);
        match self.handling {
            TextHandling::Held => true,
            TextHandling::Streamed => {
                let sent = self.updates.send(TurnUpdate::Text(text));
                sent.await.is_ok()
            }
        }
    }

    /// Sends the text that could have been the beginning of a stop sequence.
    pub(super) async fn flush(&mut self) {
        if self.cut.is_none() {
            let (text, cut) = self.cutter.flush();
            self.cut = cut;
            self.text(text).await;
        }
    }

    /// Returns how the turn ended. `input` is our estimate of its tokens.
    pub(super) fn end(&self, result: &TurnResult, input: u64) -> Result<TurnEnd, ApiError> {
        if let Some(limit) = &self.limit {
            return Err(limit.clone());
        }
        let finish = match (&self.cut, &result.stop) {
            (Some(Cut::Length), _) => Finish::Length,
            (Some(Cut::StopSequence(stop)), _) => Finish::StopSequence(stop.clone()),
            (None, Stop::ToolUse) => Finish::ToolCalls,
            (None, Stop::Finished) => Finish::Complete,
            (None, Stop::Aborted | Stop::Failed(_)) => {
                return Err(ApiError::from_result(result).unwrap_or_else(ApiError::internal));
            }
        };
        let reported = result.request_tokens.reasoning;
        let reasoning = reported.unwrap_or_else(|| usage::tokens(self.thinking));
        // Cursor reports nothing about a turn that was cancelled.
        let tokens = match &self.cut {
            Some(_) => {
                let output = usage::estimate(&self.summary.text) + reasoning;
                Tokens {
                    input,
                    output,
                    total: input + output,
                    ..Tokens::default()
                }
            }
            None => result.request_tokens.tokens,
        };
        let usage = AnswerUsage {
            tokens,
            reasoning: reasoning.min(tokens.output),
        };
        Ok(TurnEnd { finish, usage })
    }
}
