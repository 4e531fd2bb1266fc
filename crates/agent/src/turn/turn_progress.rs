//! Statistics of a turn, updated as events are sent to the host.

use std::time::Duration;

use super::channels::OpenTurn;
use super::failure_cause::Cause;
use super::request::{Stop, TurnEvent, TurnResult};
use super::usage::{self, Seen};
use crate::run::{RetriesUsed, Usage};

/// Statistics of a turn.
#[derive(Default)]
pub(super) struct TurnProgress {
    pub(super) seen: Seen,
    /// Usage that Cursor reported for the runs that have ended.
    pub(super) reported: Option<Usage>,
    /// The model's context window, if Cursor reported it.
    pub(super) window: Option<u32>,
    /// How much the model wrote, in UTF-16 units.
    output: u64,
    /// The answer since the last checkpoint.
    pub(super) since_checkpoint: String,
    /// The answer text of the turn.
    text_so_far: String,
    /// Whether the next text is not part of the answer so far.
    starts_paragraph: bool,
    /// Whether the host was sent answer text or a call, not only thinking.
    has_answered: bool,
    /// How often the turn was recovered.
    pub(super) recoveries: u32,
    /// The retries that its runs have used, and how long the next run waits first.
    pub(super) spent: RetriesUsed,
    pub(super) delay: Duration,
    /// How often a connection failed and was retried.
    retries: u32,
    /// Whether a run that has ended had reached the server.
    pub(super) was_sent: bool,
}

impl TurnProgress {
    /// Starts a new paragraph: the next text is not part of the answer so far.
    pub(super) fn start_paragraph(&mut self) {
        self.starts_paragraph = true;
    }

    /// Returns the text as it is sent after the answer so far. White space is ignored where the
    /// answer is compared with a checkpoint.
    fn separated(&mut self, text: String) -> String {
        let continues = !std::mem::take(&mut self.starts_paragraph);
        if continues || self.text_so_far.is_empty() || self.text_so_far.ends_with("\n\n") {
            text
        } else {
            format!("\n\n{text}")
        }
    }

    /// Adds the usage Cursor reports for a run: a turn may have several.
    pub(super) fn report(&mut self, usage: Usage) {
        self.reported = Some(self.reported.unwrap_or_default().plus(usage));
    }

    /// Returns the result of the turn with its usage.
    pub(super) fn result(
        &self,
        stop: Stop,
        cause: Option<Cause>,
        request: &OpenTurn,
    ) -> TurnResult {
        let (limits, mut seen) = (request.limits, self.seen());
        // What never reached the server was not read by a model.
        if matches!(stop, Stop::Failed(_)) && !self.was_sent {
            seen.input = 0;
        }
        TurnResult {
            stop,
            cause,
            tokens: usage::activity(limits, seen),
            request_tokens: usage::of_request(self.reported, limits, seen),
            window: self.window,
        }
    }

    /// Counts text that was sent to the model.
    pub(super) fn count_text(&mut self, text: &str) {
        self.seen.input += usage::estimate(text);
    }

    /// Counts other tokens that were sent to the model.
    pub(super) fn count_tokens(&mut self, tokens: u64) {
        self.seen.input += tokens;
    }

    /// Returns the counts so far.
    pub(super) fn seen(&self) -> Seen {
        Seen {
            output: usage::tokens(self.output),
            ..self.seen
        }
    }

    /// Returns the answer text so far.
    pub(super) fn answer(&self) -> &str {
        &self.text_so_far
    }

    /// Returns whether the host was shown anything that a second run would repeat.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Returns the notice for the second retry of the turn: the first is usually over soon, and
    /// more notices would say the same.
    fn notice(&mut self, event: &TurnEvent) -> Option<String> {
        let TurnEvent::Retrying { reason, .. } = event else {
            return None;
        };
        self.retries += 1;
        (self.retries == 2).then(|| format!("No answer from Cursor yet, trying again: {reason}"))
    }
}

/// Sends an event to the host and counts what the model wrote.
pub(super) async fn send_event(event: TurnEvent, request: &OpenTurn, progress: &mut TurnProgress) {
    if matches!(event, TurnEvent::Text(_) | TurnEvent::ToolCall(_)) {
        progress.has_answered = true;
    }
    let event = match event {
        TurnEvent::Text(text) => TurnEvent::Text(progress.separated(text)),
        event => event,
    };
    if let TurnEvent::Text(text) = &event {
        progress.since_checkpoint.push_str(text);
        progress.text_so_far.push_str(text);
    }
    match &event {
        TurnEvent::Text(text) | TurnEvent::Thinking(text) => progress.output += usage::units(text),
        TurnEvent::ToolCall(call) => {
            progress.output += usage::units(&call.name) + usage::units(&call.arguments.to_string());
        }
        TurnEvent::ThinkingDone
        | TurnEvent::Request(_)
        | TurnEvent::Retrying { .. }
        | TurnEvent::Waiting(_)
        | TurnEvent::Remark(_)
        | TurnEvent::RetryNotice(_)
        | TurnEvent::Notice(_) => {}
    }
    let notice = progress.notice(&event);
    request.send(event).await;
    if let Some(notice) = notice {
        request.send(TurnEvent::RetryNotice(notice)).await;
    }
}
