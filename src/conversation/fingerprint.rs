//! Does this history continue the one we sent before?
//!
//! A fingerprint holds one short hash for the system prompt and one a message. What a
//! message says counts, when it was said too (the timestamp is its identity); what the
//! model thought does not, and pictures count by their hash.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

/// The shape of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fingerprint {
    system_hash: String,
    message_hashes: Vec<String>,
}

/// How a history relates to an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Continuity {
    /// It goes on: messages from this index on are new.
    Continues(usize),
    /// It does not, and has to be told anew.
    Diverges(Divergence),
}

/// Why a history has to be told anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Divergence {
    /// Nothing was sent before.
    Unsent,
    /// The system prompt is another one.
    SystemPrompt,
    /// Messages are gone.
    Shorter,
    /// An earlier message is another one.
    Rewritten,
    /// A summary took the place of older messages.
    Summarized,
    /// It went on elsewhere for too long to be told in passing.
    Elsewhere,
}

impl Fingerprint {
    /// The fingerprint of a history as the host tells it.
    pub fn of(system: &str, messages: &[Json]) -> Self {
        Self {
            system_hash: short(system.as_bytes()),
            message_hashes: messages
                .iter()
                .enumerate()
                .map(|(index, m)| message(index, m))
                .collect(),
        }
    }

    /// Reads a stored fingerprint; what is none counts as never sent.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// How many messages of a history this one is the beginning of, the system prompt aside;
    /// `None` if it is not.
    pub fn begins(&self, messages: &[Json]) -> Option<usize> {
        let known = self.message_hashes.len();
        let beginning = Self::of("", messages.get(..known)?);
        (beginning.message_hashes == self.message_hashes).then_some(known)
    }

    /// The messages in one short text.
    pub fn digest(&self) -> String {
        short(self.message_hashes.concat().as_bytes())
    }

    /// Compares the history of `self` with what was sent before.
    pub fn continuity(&self, sent: Option<&Self>, messages: &[Json]) -> Continuity {
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
        let summarized = messages.iter().skip(known).any(|message| {
            matches!(
                message["role"].as_str(),
                Some("compactionSummary" | "branchSummary")
            )
        });
        if summarized {
            return Diverges(Divergence::Summarized);
        }
        Continuity::Continues(known)
    }
}

fn message(index: usize, message: &Json) -> String {
    let role = message["role"].as_str().unwrap_or_default();
    let when = match &message["timestamp"] {
        Json::Number(time) => time.to_string(),
        _ => index.to_string(),
    };
    let mut hasher = Sha256::new();
    let mut add = |text: &str| {
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
    };
    add(role);
    add(&when);
    // What the user kept out of the context cannot change it.
    if message["excludeFromContext"] != Json::Bool(true) {
        for field in said(role) {
            add(&content(&message[field]));
        }
    }
    hex(&hasher.finalize())
}

/// The fields of a message that say something.
fn said(role: &str) -> &'static [&'static str] {
    match role {
        "toolResult" => &["content", "toolCallId", "toolName", "isError"],
        "bashExecution" => &["command", "output", "exitCode", "cancelled", "truncated"],
        "compactionSummary" | "branchSummary" => &["summary", "fromId"],
        "custom" => &["customType", "content"],
        _ => &["content"],
    }
}

/// The JSON of a value, thoughts left out and pictures by their hash.
fn content(value: &Json) -> String {
    let Json::Array(blocks) = value else {
        return value.to_string();
    };
    let blocks: Vec<Json> = blocks
        .iter()
        .filter(|block| block["type"] != "thinking")
        .map(
            |block| match (block["type"].as_str(), block["data"].as_str()) {
                (Some("image"), Some(data)) => {
                    serde_json::json!({"type": "image", "sha256": short(data.as_bytes())})
                }
                _ => block.clone(),
            },
        )
        .collect();
    Json::Array(blocks).to_string()
}

fn short(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(digest: &[u8]) -> String {
    digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn continuity(before: &[Json], after: &[Json]) -> Continuity {
        let sent = Fingerprint::of("S", before);
        Fingerprint::of("S", after).continuity(Some(&sent), after)
    }

    #[test]
    fn thoughts_do_not_count_and_pictures_do() {
        let with = |thought: &str, picture: &str| {
            json!({"role": "assistant", "timestamp": 1, "content": [
                {"type": "thinking", "thinking": thought},
                {"type": "image", "data": picture, "mimeType": "image/png"},
                {"type": "text", "text": "a"}]})
        };
        let base = [with("x", "AAAA")];
        assert_eq!(
            continuity(&base, &[with("y", "AAAA")]),
            Continuity::Continues(1)
        );
        let other = continuity(&base, &[with("x", "BBBB")]);
        assert_eq!(other, Continuity::Diverges(Divergence::Rewritten));
    }

    #[test]
    fn reasons_are_told_apart() {
        let user = |text: &str, at: u64| json!({"role": "user", "content": text, "timestamp": at});
        let two = [user("a", 1), user("b", 2)];
        assert_eq!(
            continuity(&two, &two[..1]),
            Continuity::Diverges(Divergence::Shorter)
        );
        let summary = [
            two[0].clone(),
            two[1].clone(),
            json!({"role": "branchSummary", "summary": "s"}),
        ];
        assert_eq!(
            continuity(&two, &summary),
            Continuity::Diverges(Divergence::Summarized)
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
    fn survives_storage() {
        let fingerprint = Fingerprint::of("S", &[json!({"role": "user", "content": "a"})]);
        let text = serde_json::to_string(&fingerprint).unwrap();
        assert_eq!(Fingerprint::parse(&text), Some(fingerprint));
        assert_eq!(Fingerprint::parse("{}"), None);
    }
}
