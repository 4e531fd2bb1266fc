//! Words a run owes its host, and words its host has for it.

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
    /// Words the run's state knows and the host does not have: they open the answer.
    pub(in crate::turn) fn owe(&mut self, words: String) {
        if !words.is_empty() {
            self.heard.push_str(&words);
            self.later.push(TurnEvent::Text(words));
        }
    }

    /// Says the words that came at the last moment.
    pub(in crate::turn) async fn last_words(&mut self, request: &mut TurnRequest) {
        for message in request.last_words().await {
            self.inject(message, Source::Beside).await;
        }
    }

    pub(in crate::turn) async fn inject(&mut self, message: UserMessage, source: Source) {
        let injection = self.steering.say(message, source, Instant::now());
        let _ = self.handle.commands.send(Command::Inject(injection)).await;
    }

    /// Ends the run so that unheard words can be said in the next one. What it has asked the
    /// host for and nobody was shown would be executed for a run that is gone.
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

    /// Forgets words that the host has come to tell itself.
    pub(in crate::turn) fn retold(&mut self, messages: &[Json]) {
        let known = self.covers.begins(messages).unwrap_or(0);
        self.steering.retold(&said(&messages[known..]));
    }

    /// Words the run begins with.
    pub(in crate::turn) fn begin_with(&mut self, words: Vec<Unsaid>) {
        self.steering.begin(words);
    }

    /// The run goes on over another stream, which has not heard what no state knows.
    pub(super) async fn say_again(&mut self) {
        for injection in self.steering.again(Instant::now()) {
            let _ = self.handle.commands.send(Command::Inject(injection)).await;
        }
    }

    /// Words the model did not hear, or no state knows, and that a run that goes on with the
    /// conversation is not told.
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

    /// Whether the model has not heard some words.
    pub(in crate::turn) fn has_unheard(&self) -> bool {
        !self.steering.is_settled()
    }

    /// These words and those no state knows, to be said in a run of their own.
    pub(in crate::turn) fn unheard_words(&mut self) -> Vec<Unsaid> {
        self.steering.take()
    }
}

/// What a call hears whose run is given up.
pub(super) const GIVEN_UP: &str = "the run was given up";

/// What the person says in messages, each by itself.
pub(in crate::turn) fn said(messages: &[Json]) -> Vec<String> {
    let said = messages.iter().filter(|message| message["role"] == "user");
    said.filter_map(read).map(|spoken| spoken.text).collect()
}
