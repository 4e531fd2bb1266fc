//! Answer text the host still lacks, and user messages for the run.

use tokio::time::Instant;

use super::LiveRun;
use super::host_calls::PendingBatch;
use crate::conversation::fingerprint::Fingerprint;
use crate::conversation::flat_message::flatten;
use crate::inbox::Source;
use crate::message::Message;
use crate::run::{Command, UserMessage};
use crate::turn::channels::OpenTurn;
use crate::turn::request::TurnEvent;

impl LiveRun {
    /// Queues text that the checkpoint includes and the host does not have: the answer starts with
    /// it.
    pub(in crate::turn) fn queue_text(&mut self, text: String) {
        if !text.is_empty() {
            self.answer.push(&text);
            self.later.push(TurnEvent::Text(text));
        }
    }

    /// Injects the messages that arrived at the last moment.
    pub(in crate::turn) async fn inject_queued(&mut self, request: &mut OpenTurn) {
        for message in request.take_messages().await {
            self.inject(message, Source::Separate).await;
        }
    }

    pub(in crate::turn) async fn inject(&mut self, message: UserMessage, source: Source) {
        let injection = self.inbox.inject(message, source, Instant::now());
        if source == Source::Separate {
            // The host relies on it being accepted, and its history may never contain it.
            self.is_saved = false;
            if let Err(error) = self.save().await {
                tracing::debug!(%error, "an injected message could not be saved");
            }
        }
        let _ = self.handle.commands.send(Command::Inject(injection)).await;
    }

    /// Cancels the run so that undelivered messages can be sent in the next one. Drops its unshown
    /// calls, because the host would execute them for a cancelled run.
    pub(super) async fn release(&mut self) {
        self.inbox.release();
        self.send_leave().await;
        if self.batch() == PendingBatch::Calls {
            self.offering.clear();
        }
    }

    /// Drops separately sent messages that the host's history now contains.
    pub(in crate::turn) fn drop_resent(&mut self, messages: &[Message]) {
        let known = self.answer.history().matched_prefix(messages).unwrap_or(0);
        self.inbox.drop_resent(&user_texts(&messages[known..]));
    }

    /// Sends the injected messages that no checkpoint includes again, on a new stream.
    pub(super) async fn reinject(&mut self) {
        for injection in self.inbox.reinject(Instant::now()) {
            let _ = self.handle.commands.send(Command::Inject(injection)).await;
        }
    }

    /// Returns the messages that no checkpoint includes, without those that a run continuing the
    /// conversation gets from the history.
    pub(in crate::turn) fn take_unsaved(&mut self) -> Vec<UserMessage> {
        let sent = self.conversation.sent.as_ref().map_or(0, Fingerprint::len);
        self.inbox.take_except(sent)
    }
}

/// Returns the text of each user message.
pub(in crate::turn) fn user_texts(messages: &[Message]) -> Vec<String> {
    let users = messages.iter().filter(|message| message.is_user());
    users
        .filter_map(flatten)
        .map(|message| message.text)
        .collect()
}
