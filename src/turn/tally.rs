//! What a turn has seen of a run, counted as it is told.

use std::time::Duration;

use super::request::{TurnEvent, TurnRequest};
use super::usage::{self, Seen};
use crate::run::{Spent, Usage};

/// What a turn has seen of a run.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) seen: Seen,
    /// What Cursor reported of the runs that are over.
    pub(super) reported: Option<Usage>,
    /// The model's window, as Cursor told it.
    pub(super) window: Option<u32>,
    /// What the model wrote, in UTF-16 units.
    output: u64,
    /// The answer since the last checkpoint.
    pub(super) since_checkpoint: String,
    /// The words of it that are the answer.
    words: String,
    /// What the next words are to them.
    next: Next,
    /// Whether any of it was an answer, not only thinking.
    answer: Answer,
    /// Whether the turn was brought back once, what retries have cost by then, and how long
    /// the next run waits first.
    pub(super) comebacks: u32,
    pub(super) spent: Spent,
    pub(super) rest: Duration,
    /// How often a connection failed and was tried again.
    retries: u32,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum Answer {
    #[default]
    Untold,
    Told,
}

/// Whether words go on with those before them.
#[derive(Default, Clone, Copy, PartialEq)]
enum Next {
    #[default]
    GoOn,
    /// They answer something else, in a run of their own.
    Apart,
}

impl Tally {
    /// The next words are no part of what was said so far.
    pub(super) fn apart(&mut self) {
        self.next = Next::Apart;
    }

    /// Words as they are told behind those before them. Spaces do not count where what is told
    /// is compared with what a state knows.
    fn placed(&mut self, text: String) -> String {
        let goes_on = std::mem::take(&mut self.next) == Next::GoOn;
        match goes_on || self.words.is_empty() || self.words.ends_with("\n\n") {
            true => text,
            false => format!("\n\n{text}"),
        }
    }

    /// Counts what Cursor reports of a run: a turn may take several.
    pub(super) fn report(&mut self, usage: Option<Usage>) {
        if let Some(usage) = usage {
            self.reported = Some(self.reported.map_or(usage, |before| before.plus(usage)));
        }
    }

    /// Counts what was said to the model.
    pub(super) fn said(&mut self, text: &str) {
        self.seen.input += usage::estimate(text);
    }

    /// Counts what the model is told besides.
    pub(super) fn said_before(&mut self, tokens: u64) {
        self.seen.input += tokens;
    }

    /// All of it so far.
    pub(super) fn seen(&self) -> Seen {
        Seen {
            output: usage::tokens(self.output),
            ..self.seen
        }
    }

    /// The answer so far, in words.
    pub(super) fn answer(&self) -> &str {
        &self.words
    }

    /// Whether the host has been shown anything a second run would show again.
    pub(super) fn answered(&self) -> Shown {
        match self.answer {
            Answer::Untold => Shown::Nothing,
            Answer::Told => Shown::Something,
        }
    }

    /// What a person is told of a retry. One is over soon; from the second on the silence
    /// would be a riddle.
    fn notice(&mut self, event: &TurnEvent) -> Option<String> {
        let TurnEvent::Retrying(reason) = event else {
            return None;
        };
        self.retries += 1;
        (self.retries > 1).then(|| format!("No answer from Cursor yet, trying again: {reason}"))
    }
}

/// Whether the host has been shown anything of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Nothing,
    Something,
}

/// Tells the host, and counts what the model wrote.
pub(super) async fn tell(event: TurnEvent, request: &TurnRequest, tally: &mut Tally) {
    if matches!(event, TurnEvent::Text(_) | TurnEvent::ToolCall { .. }) {
        tally.answer = Answer::Told;
    }
    let event = match event {
        TurnEvent::Text(text) => TurnEvent::Text(tally.placed(text)),
        event => event,
    };
    if let TurnEvent::Text(text) = &event {
        tally.since_checkpoint.push_str(text);
        tally.words.push_str(text);
    }
    match &event {
        TurnEvent::Text(text) | TurnEvent::Thinking(text) => tally.output += usage::units(text),
        TurnEvent::ToolCall {
            name, arguments, ..
        } => {
            tally.output += usage::units(name) + usage::units(&arguments.to_string());
        }
        TurnEvent::ThinkingDone
        | TurnEvent::Retrying(_)
        | TurnEvent::Remark(_)
        | TurnEvent::Notice(_) => {}
    }
    let notice = tally.notice(&event);
    // A host that stopped listening has cancelled, or will.
    let _ = request.events.send(event).await;
    if let Some(notice) = notice {
        let _ = request.events.send(TurnEvent::Notice(notice)).await;
    }
}
