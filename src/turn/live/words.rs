//! Answer text the host still lacks, and user messages for the run.

use serde_json::Value as Json;
use tokio::time::Instant;

use super::{Live, Offered};
use crate::conversation::fingerprint::Fingerprint;
use crate::conversation::message::read;
use crate::run::{Command, UserMessage};
use crate::tools::bridge::HostResult;
use crate::turn::request::{TurnEvent, TurnRequest};
use crate::turn::steer::{Source, Unsaid};

impl Live {
    /// Queues text that the checkpoint includes and the host does not have: the answer starts with
    /// it.
    pub(in crate::turn) fn owe(&mut self, words: String) {
        if !words.is_empty() {
            self.heard.push_str(&words);
            self.later.push(TurnEvent::Text(words));
        }
    }

    /// Injects the messages that arrived at the last moment.
    pub(in crate::turn) async fn last_words(&mut self, request: &mut TurnRequest) {
        for message in request.last_words().await {
            self.inject(message, Source::Beside).await;
        }
    }

    pub(in crate::turn) async fn inject(&mut self, message: UserMessage, source: Source) {
        let injection = self.steering.say(message, source, Instant::now());
        let _ = self.handle.commands.send(Command::Inject(injection)).await;
    }

    /// Cancels the run so that undelivered messages can be sent in the next one. Drops its unshown
    /// calls, because the host would execute them for a cancelled run.
    pub(super) async fn release(&mut self, offered: &mut Offered) {
        self.steering.release();
        self.leave().await;
        if *offered == Offered::Calls {
            *offered = Offered::Nothing;
            self.offering.clear();
            for call in self.open.drain(..) {
                call.answer(HostResult::failed(GIVEN_UP));
            }
        }
    }

    /// Drops separately sent messages that the host's history now contains.
    pub(in crate::turn) fn retold(&mut self, messages: &[Json]) {
        let known = self.covers.begins(messages).unwrap_or(0);
        self.steering.retold(&said(&messages[known..]));
    }

    /// Records the messages the run starts with.
    pub(in crate::turn) fn begin_with(&mut self, words: Vec<Unsaid>) {
        self.steering.begin(words);
    }

    /// Sends the injected messages that no checkpoint includes again, on a new stream.
    pub(super) async fn say_again(&mut self) {
        for injection in self.steering.again(Instant::now()) {
            let _ = self.handle.commands.send(Command::Inject(injection)).await;
        }
    }

    /// Returns the messages that were not delivered or that no checkpoint includes, without those
    /// that a run continuing the conversation gets from the history.
    pub(in crate::turn) fn untold(&mut self) -> Vec<UserMessage> {
        let sent = self.conversation.sent.as_ref().map_or(0, Fingerprint::len);
        let unheard = self.steering.take().into_iter();
        unheard
            .filter(|words| match words.source {
                Source::Beside => true,
                Source::History(place) => place <= sent,
            })
            .map(|words| words.message)
            .collect()
    }

    /// Returns whether a message was not delivered.
    pub(in crate::turn) fn has_unheard(&self) -> bool {
        !self.steering.is_settled()
    }

    /// Returns the undelivered messages and those no checkpoint includes, for a run of their own.
    pub(in crate::turn) fn unheard_words(&mut self) -> Vec<Unsaid> {
        self.steering.take()
    }
}

/// The result of a call whose run was cancelled.
pub(super) const GIVEN_UP: &str = "the run was given up";

/// Returns the text of each user message.
pub(in crate::turn) fn said(messages: &[Json]) -> Vec<String> {
    let said = messages.iter().filter(|message| message["role"] == "user");
    said.filter_map(read).map(|spoken| spoken.text).collect()
}
