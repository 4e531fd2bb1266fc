//! What was executed for the prompt under way. It is kept from the first run of the prompt until
//! the prompt is answered, whatever happens to runs, checkpoints and conversations meanwhile: what
//! ran, ran.

use std::sync::Arc;

use crate::conversation::fingerprint::Fingerprint;
use crate::conversation::intent_log::{IntentLog, Left};
use crate::run::{EffectDigest, EffectLog, Start};
use crate::turn::conversation_slot::Conversation;
use crate::turn::request::TurnRequest;

/// The effects of the prompt under way.
#[derive(Default)]
pub(super) struct Effects {
    /// Those of runs that have ended.
    done: Option<(Prompt, EffectLog)>,
    /// The intent log, if the session is stored.
    log: Option<Arc<IntentLog>>,
    /// Whether another process left a log that cannot be read.
    unreadable: bool,
}

/// Which turns continue the prompt.
enum Prompt {
    /// Those whose history continues this one.
    History(Fingerprint),
    /// The next one, because the host has rewritten its history.
    Rewritten,
}

impl Effects {
    /// Records the log that another process left.
    pub(super) fn found(&mut self, left: Left) {
        match left {
            Left::Log(log) => self.log = Some(Arc::new(log)),
            Left::Unreadable => self.unreadable = true,
        }
    }

    /// Keeps the effects of a run that answered this history and has ended.
    pub(super) fn keep(&mut self, history: Fingerprint, memo: EffectLog) {
        self.done = Some((Prompt::History(history), memo));
    }

    /// Keeps the effects of a run that the user stopped. What was being executed may be wanted
    /// again, so the log is used only by another process: the host may be gone.
    pub(super) fn stopped(&mut self, history: Fingerprint, memo: Option<EffectLog>) {
        self.log = None;
        self.done = memo.map(|memo| (Prompt::History(history), memo));
    }

    /// Keeps the effects although the host rewrites its history, which is then no sign of the
    /// prompt any more. `memo` is that of the run which answered it, if there is one.
    pub(super) fn rewritten(&mut self, memo: Option<EffectLog>) {
        let kept = self.done.take().map(|(_, memo)| memo);
        let memo = memo.or(kept).or_else(|| self.log.as_deref().map(read));
        self.done = memo.map(|memo| (Prompt::Rewritten, memo));
    }

    /// Returns the effects for a run that starts now, and the log in which it records its own.
    pub(super) fn begin(
        &mut self,
        request: &TurnRequest,
        conversation: &Conversation,
        start: Start,
    ) -> (EffectLog, Option<Arc<IntentLog>>) {
        let messages = &request.transcript.messages;
        let history = Fingerprint::of(&request.transcript.system, messages);
        let done = self.done.take();
        let last = self.log.take();
        let rewritten = matches!(done, Some((Prompt::Rewritten, _)));
        let continued = last.clone().filter(|log| log.is_continued_by(messages));
        self.log = continued.clone().or_else(|| {
            let log = Arc::new(conversation.begins(history.clone())?);
            if let Some(last) = last.filter(|_| rewritten) {
                log.adopt(&last);
            }
            Some(log)
        });
        let memo = match done {
            Some((Prompt::History(of), memo)) if of == history => memo.handed_on(start),
            Some((Prompt::History(of), memo)) if of.is_continued_by(messages) => {
                memo.handed_on_behind_words(start)
            }
            Some((Prompt::Rewritten, memo)) => memo.handed_on_behind_words(start),
            _ if std::mem::take(&mut self.unreadable) => EffectLog::unreadable(),
            _ => continued
                .as_deref()
                .map_or_else(EffectLog::default, |log| read(log).handed_on(start)),
        };
        (memo, self.log.clone())
    }

    /// Marks effects that the checkpoint on disk includes.
    pub(super) fn saved(&self, settled: &[String]) {
        if let Some(log) = &self.log
            && let Err(error) = log.mark_saved(settled)
        {
            tracing::debug!(%error, "effects could not be marked as saved in the intent log");
        }
    }

    /// Forgets the effects, because the prompt is answered.
    pub(super) fn answered(&mut self) {
        self.done = None;
        if let Some(log) = self.log.take() {
            log.delete();
        }
    }
}

/// Returns the effects that a log names.
fn read(log: &IntentLog) -> EffectLog {
    let parsed = |names: Vec<String>| {
        let names = names.into_iter();
        names
            .filter_map(|name| EffectDigest::parse(&name))
            .collect::<Vec<_>>()
    };
    EffectLog::begun(parsed(log.unsaved()), parsed(log.saved()))
}
