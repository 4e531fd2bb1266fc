//! What holds after every step, whatever happens.

use super::script::{SENTENCES, request};
use super::{PromptModel, Stored};
use crate::run::UserMessage;

impl PromptModel {
    /// The invariants of the record of a prompt.
    pub(super) fn check(&self) {
        self.check_effects();
        self.check_results();
        self.check_text();
        self.check_messages();
    }

    /// No effect twice.
    fn check_effects(&self) {
        for (command, times) in &self.executed {
            assert_eq!(*times, 1, "command {command} was executed {times} times");
        }
    }

    /// Every result is known, or is repeated when the stream asks for it; none is invented.
    fn check_results(&self) {
        for command in &self.now.results {
            assert!(
                self.executed.contains_key(command),
                "{command} was not executed"
            );
        }
        for command in self.executed.keys() {
            let is_open = self.open.values().any(|open| open == command);
            if !is_open && !self.now.requested.contains(command) {
                let recorded = self.effects.clone().recall(0, &request(*command, 0));
                assert!(recorded.is_some(), "the result of {command} is unknown");
            }
        }
    }

    /// No text twice, and none is lost.
    fn check_text(&self) {
        let all = SENTENCES.concat();
        assert!(all.starts_with(&self.shown), "shown: {:?}", self.shown);
        let generated = SENTENCES[..self.now.sentences].concat().len();
        let held = self.answer.text.held().len();
        assert!(generated <= self.shown.len() + held, "text is lost");
    }

    /// Every message is with the model for good, or is sent again, also by another process.
    fn check_messages(&self) {
        let kept = self.inbox.separate();
        for number in 1..=self.arrived {
            let text = format!("message {number}");
            let is_kept = |messages: &[UserMessage]| messages.iter().any(|kept| kept.text == text);
            let is_with = |stored: &Stored| match stored.coverage {
                Some(_) => stored.checkpoint.messages.contains(&text),
                None => self.in_history.contains(&text),
            };
            let is_safe = is_with(&self.conversation) || is_kept(&kept);
            assert!(is_safe, "{text} is lost");
            assert!(
                is_with(&self.disk) || is_kept(&self.disk.messages),
                "{text} is lost if the process is killed"
            );
            let copies = kept.iter().filter(|kept| kept.text == text).count();
            assert!(copies <= 1, "{text} is sent {copies} times");
        }
    }
}
