//! Decides whether a history continues the one we sent before.
//!
//! A fingerprint holds one short hash for the system prompt and one for each message. The content
//! of a message and its timestamp, which identifies it, are included; the model's thinking is not.
//! Images are included by their hash.

use serde::{Deserialize, Serialize};

use crate::message::{Message, MessageHash, short_hash};

/// Hashes of a system prompt and of each message of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fingerprint {
    system_hash: String,
    message_hashes: Vec<MessageHash>,
}

/// How a history relates to an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Continuity {
    /// It continues the earlier one: messages from this index on are new.
    Continues(usize),
    /// It does not, and must be sent in full as a new conversation.
    Diverges(Divergence),
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
            message_hashes: hashes(messages).collect(),
        }
    }

    /// Parses a stored fingerprint; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns the number of messages.
    #[expect(clippy::len_without_is_empty, reason = "no caller needs it")]
    pub fn len(&self) -> usize {
        self.message_hashes.len()
    }

    /// Returns the number of messages if this is the start of the given history, ignoring the
    /// system prompt; `None` if it is not.
    pub fn matched_prefix(&self, messages: &[Message]) -> Option<usize> {
        let known = self.message_hashes.len();
        let beginning = hashes(messages.get(..known)?);
        beginning
            .eq(self.message_hashes.iter().copied())
            .then_some(known)
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

    /// Returns one short hash of all messages.
    pub fn digest(&self) -> String {
        let mut hex = String::with_capacity(16 * self.message_hashes.len());
        for hash in &self.message_hashes {
            hash.with_hex(|digits| hex.push_str(digits));
        }
        short_hash(hex)
    }

    /// Compares the history of `self` with what was sent before.
    pub fn continuity(&self, sent: Option<&Self>, messages: &[Message]) -> Continuity {
        use Continuity::Diverges;
        let Some(sent) = sent else {
            return Diverges(Divergence::Unsent);
        };
        if sent.system_hash != self.system_hash {
            return Diverges(Divergence::SystemPrompt);
        }
        let known = sent.message_hashes.len();
        let Some(same) = self.message_hashes.get(..known) else {
            return Diverges(Divergence::Shorter);
        };
        if same != sent.message_hashes {
            return Diverges(Divergence::Rewritten);
        }
        let summarized = messages.iter().skip(known).any(Message::is_summary);
        if summarized {
            return Diverges(Divergence::Summarized);
        }
        Continuity::Continues(known)
    }
}

fn hashes(messages: &[Message]) -> impl Iterator<Item = MessageHash> {
    let messages = messages.iter().enumerate();
    messages.map(|(at, message)| message.hash(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{MessageKind, Summarized};

    fn continuity(before: &[Message], after: &[Message]) -> Continuity {
        let sent = Fingerprint::of("S", before);
        Fingerprint::of("S", after).continuity(Some(&sent), after)
    }

    #[test]
    fn divergence_reasons_are_distinguished() {
        let two = [Message::user("a").at(1), Message::user("b").at(2)];
        assert_eq!(
            continuity(&two, &two[..1]),
            Continuity::Diverges(Divergence::Shorter)
        );
        let summary = Message::new(MessageKind::Summary {
            text: "s".into(),
            of: Summarized::Branch,
        });
        let summary = [two[0].clone(), two[1].clone(), summary];
        assert_eq!(
            continuity(&two, &summary),
            Continuity::Diverges(Divergence::Summarized)
        );
        let rewritten = [Message::user("c").at(1), Message::user("b").at(2)];
        assert_eq!(
            continuity(&two, &rewritten),
            Continuity::Diverges(Divergence::Rewritten)
        );
        let now = Fingerprint::of("S", &two);
        assert_eq!(
            now.continuity(None, &two),
            Continuity::Diverges(Divergence::Unsent)
        );
        let other = Fingerprint::of("T", &two);
        assert_eq!(
            other.continuity(Some(&now), &two),
            Continuity::Diverges(Divergence::SystemPrompt)
        );
    }

    #[test]
    fn a_fingerprint_survives_storage() {
        let fingerprint = Fingerprint::of("S", &[Message::user("a")]);
        let text = serde_json::to_string(&fingerprint).unwrap();
        assert_eq!(Fingerprint::parse(&text), Some(fingerprint));
        assert_eq!(Fingerprint::parse("{}"), None);
    }

    /// Computed by the version that hashed the host's JSON.
    #[test]
    fn hashes_in_existing_journals_still_match() {
        let messages = [
            Message::user("hi").at(7),
            Message::assistant("ok"),
            Message::tool_result("c", "see", "42").at("\"t\""),
        ];
        let fingerprint = serde_json::to_string(&Fingerprint::of("S", &messages)).unwrap();
        insta::assert_snapshot!(fingerprint, @r#"{"systemHash":"8de0b3c47f112c59","messageHashes":["37003b3d095c5c89","22db01210458e735","9962d6955293ca3b"]}"#);
    }
}
