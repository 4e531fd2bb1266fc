//! Decides whether a history continues the one we sent before.
//!
//! A fingerprint holds a short hash of the system prompt, the number of messages and one hash of all
//! of them, which is made of the hash of the last message and that of the history before it. So its
//! size does not depend on the history, and of a history that has grown only the new messages are
//! hashed. The content of a message and its timestamp, which identifies it, are included; the
//! model's thinking is not. Images are included by their hash.

use serde::{Deserialize, Serialize};

use crate::message::{HistoryHash, Message, MessageHash, short_hash};

/// Identifies a system prompt and the messages of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "StoredFingerprint")]
pub struct Fingerprint {
    system_hash: String,
    messages: usize,
    history: HistoryHash,
}

/// The stored forms of a fingerprint.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredFingerprint {
    system_hash: String,
    messages: Option<usize>,
    history: Option<HistoryHash>,
    /// The hash of each message: earlier sidecars wrote all of them instead.
    message_hashes: Option<Vec<MessageHash>>,
}

impl TryFrom<StoredFingerprint> for Fingerprint {
    type Error = &'static str;

    fn try_from(stored: StoredFingerprint) -> Result<Self, Self::Error> {
        let (messages, history) = match (stored.messages, stored.history, stored.message_hashes) {
            (Some(messages), Some(history), None) => (messages, history),
            (None, None, Some(hashes)) => {
                let history = HistoryHash::default();
                let history = hashes
                    .iter()
                    .copied()
                    .fold(history, HistoryHash::followed_by);
                (hashes.len(), history)
            }
            _ => return Err("it has neither a history nor the hashes of its messages"),
        };
        Ok(Self {
            system_hash: stored.system_hash,
            messages,
            history,
        })
    }
}

/// Why a history must be sent in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Divergence {
    /// Nothing was sent before.
    Unsent,
    /// The system prompt has changed.
    SystemPrompt,
    /// Messages were removed.
    Shorter,
    /// An earlier message has changed.
    Rewritten,
    /// A summary replaced older messages.
    Summarized,
    /// So much was added outside Cursor that it does not fit into one message.
    Elsewhere,
}

impl Fingerprint {
    /// Returns the fingerprint of a host's history.
    pub fn of(system: &str, messages: &[Message]) -> Self {
        Self {
            system_hash: short_hash(system),
            messages: messages.len(),
            history: history(messages),
        }
    }

    /// Parses a stored fingerprint; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the number of messages.
    #[expect(clippy::len_without_is_empty, reason = "no caller needs it")]
    pub fn len(&self) -> usize {
        self.messages
    }

    /// Returns the number of messages if this is the start of the given history, ignoring the
    /// system prompt; `None` if it is not.
    pub fn matched_prefix(&self, messages: &[Message]) -> Option<usize> {
        let beginning = messages.get(..self.messages)?;
        (history(beginning) == self.history).then_some(self.messages)
    }

    /// Returns whether a history continues the turn that this one asks for: it has no complete
    /// answer since.
    pub fn is_continued_by(&self, messages: &[Message]) -> bool {
        let known = self.matched_prefix(messages);
        known.is_some_and(|known| {
            let mut answers = messages[known..].iter().filter_map(Message::as_answer);
            answers.all(|answer| !answer.is_complete)
        })
    }

    /// Returns the hash of all messages.
    pub fn history(&self) -> HistoryHash {
        self.history
    }

    /// Returns the index of the first new message if the history of `self`, which is `messages`,
    /// continues what was sent before.
    pub fn continuity(
        &self,
        sent: Option<&Self>,
        messages: &[Message],
    ) -> Result<usize, Divergence> {
        let sent = sent.ok_or(Divergence::Unsent)?;
        if sent.system_hash != self.system_hash {
            return Err(Divergence::SystemPrompt);
        }
        if self.messages < sent.messages {
            return Err(Divergence::Shorter);
        }
        let known = sent.matched_prefix(messages);
        let known = known.ok_or(Divergence::Rewritten)?;
        if messages[known..].iter().any(Message::is_summary) {
            return Err(Divergence::Summarized);
        }
        Ok(known)
    }
}

/// Returns the hash of a history.
fn history(messages: &[Message]) -> HistoryHash {
    let messages = messages.iter().enumerate();
    messages.fold(HistoryHash::default(), |history, (index, message)| {
        message.end_history(history, index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{MessageKind, Summarized};

    fn continuity(before: &[Message], after: &[Message]) -> Result<usize, Divergence> {
        let sent = Fingerprint::of("S", before);
        Fingerprint::of("S", after).continuity(Some(&sent), after)
    }

    #[test]
    fn divergence_reasons_are_distinguished() {
        let two = [Message::user("a").at(1), Message::user("b").at(2)];
        assert_eq!(continuity(&two, &two[..1]), Err(Divergence::Shorter));
        let summary = Message::new(MessageKind::Summary {
            text: "s".into(),
            of: Summarized::Branch,
        });
        let summary = [two[0].clone(), two[1].clone(), summary];
        assert_eq!(continuity(&two, &summary), Err(Divergence::Summarized));
        let rewritten = [Message::user("c").at(1), Message::user("b").at(2)];
        assert_eq!(continuity(&two, &rewritten), Err(Divergence::Rewritten));
        let now = Fingerprint::of("S", &two);
        assert_eq!(now.continuity(None, &two), Err(Divergence::Unsent));
        let other = Fingerprint::of("T", &two);
        assert_eq!(
            other.continuity(Some(&now), &two),
            Err(Divergence::SystemPrompt)
        );
    }

    #[test]
    fn a_fingerprint_survives_storage() {
        let fingerprint = Fingerprint::of("S", &[Message::user("a")]);
        let text = serde_json::to_string(&fingerprint).unwrap();
        assert_eq!(Fingerprint::parse(&text), Some(fingerprint));
        assert_eq!(Fingerprint::parse("{}"), None);
    }

    /// The first text was written by the version that hashed the host's JSON and stored a hash of
    /// each message.
    #[test]
    fn hashes_in_existing_journals_still_match() {
        let messages = [
            Message::user("hi").at(7),
            Message::assistant("ok"),
            Message::tool_result("c", "see", "42").at("\"t\""),
        ];
        let now = Fingerprint::of("S", &messages);
        let before = r#"{"systemHash":"8de0b3c47f112c59","messageHashes":["37003b3d095c5c89","22db01210458e735","9962d6955293ca3b"]}"#;
        assert_eq!(Fingerprint::parse(before), Some(now.clone()));
        insta::assert_snapshot!(serde_json::to_string(&now).unwrap(), @r#"{"systemHash":"8de0b3c47f112c59","messages":3,"history":"e07081daafd72466cc4d90142e9d503d"}"#);
    }

    #[test]
    fn a_history_is_hashed_in_its_place() {
        let message = |at: usize| Message::user("same").at(at);
        let first: Vec<Message> = (0..3).map(message).collect();
        let whole = Fingerprint::of("S", &first);
        assert_eq!(Fingerprint::of("S", &first), whole, "with known places");
        assert_eq!(Fingerprint::of("S", &first.clone()), whole);
        // The same messages, known from another history.
        let moved = [first[1].clone(), first[0].clone(), first[2].clone()];
        let again: Vec<Message> = [1, 0, 2].map(message).into();
        assert_eq!(Fingerprint::of("S", &moved), Fingerprint::of("S", &again));
        assert_ne!(Fingerprint::of("S", &moved), whole);
        assert_eq!(Fingerprint::of("S", &[]).len(), 0);
    }
}
