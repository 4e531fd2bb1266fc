//! The effect log of the prompt under way, between its runs. It is kept from the first run of the
//! prompt until the prompt is answered, whatever happens to runs, checkpoints and conversations
//! meanwhile: what ran, ran.

use std::sync::Arc;

use crate::conversation::fingerprint::Fingerprint;
use crate::effect_log::{EffectDigest, EffectLog, EffectLogFile, FileEntry, LeftFile, Start};
use crate::turn::conversation_slot::Conversation;
use crate::turn::request::TurnRequest;

/// The effects of the prompt under way.
#[derive(Default)]
pub(super) struct PromptEffects {
    /// Those of runs that have ended.
    log: Option<(Prompt, EffectLog)>,
    /// The same on disk, if the session is stored.
    file: Option<Arc<EffectLogFile>>,
}

/// Which turns continue the prompt.
enum Prompt {
    /// Those whose history continues this one.
    History(Fingerprint),
    /// The next one, whatever its history is.
    Next,
}

impl PromptEffects {
    /// Records the file that another process left.
    pub(super) fn found(&mut self, left: LeftFile) {
        match left {
            LeftFile::Readable(file) => {
                if file.is_rewritten() {
                    self.log = Some((Prompt::Next, EffectLog::replay(&file.entries())));
                }
                self.file = Some(Arc::new(file));
            }
            LeftFile::Unreadable => self.log = Some((Prompt::Next, EffectLog::unreadable())),
        }
    }

    /// Keeps the effects of a run that answered this history and has ended.
    pub(super) fn keep(&mut self, history: Fingerprint, log: EffectLog) {
        self.log = Some((Prompt::History(history), log));
    }

    /// Keeps the effects of a run that the user stopped. What was being executed may be wanted
    /// again, so the file is used only by another process: the host may be gone.
    pub(super) fn stopped(&mut self, history: Fingerprint, log: EffectLog) {
        self.file = None;
        self.keep(history, log);
    }

    /// Keeps the effects although the host rewrites its history, which does not identify the prompt
    /// any more. `log` is that of the run which answered it, if there is one.
    pub(super) fn rewritten(&mut self, log: Option<EffectLog>) {
        let kept = self.log.take().map(|(_, log)| log);
        let mut log = log.or(kept);
        if let Some(file) = &self.file
            && !file.entries().is_empty()
        {
            log = log.or_else(|| Some(EffectLog::replay(&file.entries())));
            append(file, FileEntry::Rewritten);
        }
        self.log = log.map(|log| (Prompt::Next, log));
    }

    /// Returns the effects for a run that starts now, and the file in which it records its own.
    pub(super) fn begin(
        &mut self,
        request: &TurnRequest,
        conversation: &Conversation,
        start: Start,
    ) -> (EffectLog, Option<Arc<EffectLogFile>>) {
        let messages = &request.transcript.messages;
        let history = request.history();
        let last = self.file.take();
        let is_next = matches!(self.log, Some((Prompt::Next, _)));
        let continued =
            (last.clone()).filter(|last| last.is_continued_by(messages) && !last.is_rewritten());
        let log = match self.log.take() {
            Some((Prompt::History(of), log)) if of.is_continued_by(messages) => {
                log.for_next_run(start, of != history)
            }
            Some((Prompt::Next, log)) => log.for_next_run(start, true),
            _ => continued.as_ref().map_or_else(EffectLog::default, |file| {
                EffectLog::replay(&file.entries()).for_next_run(start, false)
            }),
        };
        self.file = continued.or_else(|| {
            let file = Arc::new(conversation.new_log_file(history)?);
            if let Some(last) = last.filter(|_| is_next) {
                file.adopt(&last);
            }
            Some(file)
        });
        if let Some(file) = &self.file {
            let is_saved = |entry: &FileEntry| matches!(entry, FileEntry::InCheckpoint(_));
            if start == Start::History && file.entries().iter().any(is_saved) {
                append(file, FileEntry::CheckpointLost);
            }
        }
        (log, self.file.clone())
    }

    /// Records that the checkpoint on disk includes these effects.
    pub(super) fn saved(&self, digests: &[EffectDigest]) {
        if let Some(file) = &self.file {
            for digest in digests {
                append(file, FileEntry::InCheckpoint(*digest));
            }
        }
    }

    /// Forgets the effects, because the prompt is answered.
    pub(super) fn answered(&mut self) {
        self.log = None;
        if let Some(file) = self.file.take() {
            file.delete();
        }
    }
}

fn append(file: &EffectLogFile, entry: FileEntry) {
    if let Err(error) = file.append(entry) {
        tracing::debug!(%error, "an entry could not be added to the effect log");
    }
}
