//! Words a run owes its host, and words its host has for it.

use serde_json::Value as Json;
use tokio::time::Instant;

use super::Live;
use crate::conversation::message::read;
use crate::run::{Command, UserMessage};
use crate::turn::request::{TurnEvent, TurnRequest};

impl Live {
    /// Words the run's state knows and the host does not have: they open the answer.
    pub(in crate::turn) fn owe(&mut self, words: String) {
        if !words.is_empty() {
            self.heard.push_str(&words);
            self.later.push(TurnEvent::Text(words));
        }
    }

    /// Takes the words that came at the last moment: nobody would read them after this turn.
    pub(in crate::turn) async fn last_words(&mut self, request: &mut TurnRequest) {
        request.injections.close();
        while let Some(message) = request.injections.recv().await {
            self.inject(message).await;
        }
    }

    pub(in crate::turn) async fn inject(&mut self, message: UserMessage) {
        let injection = self.steering.say(message, Instant::now());
        let _ = self.handle.commands.send(Command::Inject(injection)).await;
    }

    /// Words the model did not hear and the host's history does not tell.
    pub(in crate::turn) fn unheard_beside(&mut self, messages: &[Json]) -> Vec<UserMessage> {
        let said = messages.iter().filter(|message| message["role"] == "user");
        let said: Vec<String> = said.filter_map(read).map(|spoken| spoken.text).collect();
        let said = said.join("\n\n");
        let unheard = self.steering.take().into_iter();
        unheard
            .filter(|words| !said.contains(&words.text))
            .collect()
    }

    /// Words the model did not hear, to be said in a run of their own.
    pub(in crate::turn) fn unheard_words(&mut self) -> Option<UserMessage> {
        self.steering.left()
    }
}
