//! Decides whether a history continues the one we sent before.
//!
//! A fingerprint holds one short hash for the system prompt and one for each message. The content
//! of a message and its timestamp, which identifies it, are included; the model's thinking is not.
//! Images are included by their hash.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

/// Hashes of a system prompt and of each message of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fingerprint {
    system_hash: String,
    message_hashes: Vec<String>,
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
    pub fn of(system: &str, messages: &[Json]) -> Self {
        let messages = messages.iter().enumerate();
        Self {
            system_hash: short(system.as_bytes()),
            message_hashes: messages.map(|(index, sent)| message(index, sent)).collect(),
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
    pub fn begins(&self, messages: &[Json]) -> Option<usize> {
        let known = self.message_hashes.len();
        let beginning = Self::of("", messages.get(..known)?);
        (beginning.message_hashes == self.message_hashes).then_some(known)
    }

    /// Returns whether a history continues the turn that this one asks for: it has no complete
    /// answer since.
    pub fn goes_on(&self, messages: &[Json]) -> bool {
        let answered = |message: &Json| {
            message["role"] == "assistant"
                && !matches!(
                    message["stopReason"].as_str(),
                    Some("toolUse" | "error" | "aborted")
                )
        };
        let known = self.begins(messages);
        known.is_some_and(|known| !messages[known..].iter().any(answered))
    }

    /// Returns one short hash of all messages.
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
        Json::Null => index.to_string(),
        time => time.to_string(),
    };
    let mut hasher = Sha256::new();
    let mut add = |text: &str| {
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
    };
    add(role);
    add(&when);
    // The user excluded it from the context, so its content does not matter.
    if message["excludeFromContext"] != Json::Bool(true) {
        for field in hashed_fields(role) {
            add(&match field {
                Field::Content(name) => content(&message[name]),
                Field::Value(name) => message[name].to_string(),
                // An absent flag is the same as `false`.
                Field::Flag(name) => (message[name] == Json::Bool(true)).to_string(),
            });
        }
    }
    hex(&hasher.finalize())
}

/// A field of a message that is part of its fingerprint.
#[derive(Debug, Clone, Copy)]
enum Field {
    Content(&'static str),
    Value(&'static str),
    Flag(&'static str),
}

fn hashed_fields(role: &str) -> &'static [Field] {
    use Field::{Content, Flag, Value};
    match role {
        "toolResult" => &[
            Content("content"),
            Value("toolCallId"),
            Value("toolName"),
            Flag("isError"),
        ],
        "bashExecution" => &[
            Value("command"),
            Value("output"),
            Value("exitCode"),
            Flag("cancelled"),
        ],
        "compactionSummary" => &[Value("summary"), Value("tokensBefore")],
        "branchSummary" => &[Value("summary"), Value("fromId")],
        "custom" => &[Value("customType"), Content("content")],
        _ => &[Content("content")],
    }
}

/// Returns the JSON of a value, without thinking and with images replaced by their hash.
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
                    let mut picture = block.clone();
                    picture["data"] = short(data.as_bytes()).into();
                    picture
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
    fn content_changes_the_fingerprint() {
        let with = |thought: &str, picture: &str, kind: &str| {
            json!({"role": "assistant", "timestamp": 1, "content": [
                {"type": "thinking", "thinking": thought},
                {"type": "image", "data": picture, "mimeType": kind},
                {"type": "text", "text": "a"}]})
        };
        let summary = |tokens: u64| json!({"role": "compactionSummary", "summary": "s", "timestamp": 1, "tokensBefore": tokens});
        let bash = |exit: Json| json!({"role": "bashExecution", "command": "c", "output": "o", "exitCode": exit, "timestamp": 1});
        let user = |at: Json| json!({"role": "user", "content": "a", "timestamp": at});
        let base = with("x", "AAAA", "image/png");
        for (before, after) in [
            (&base, with("x", "BBBB", "image/png")),
            (&base, with("x", "AAAA", "image/gif")),
            (&summary(9), summary(10)),
            (&bash(json!(0)), bash(json!(1))),
            (&user(json!("a")), user(json!("b"))),
        ] {
            let rewritten = Continuity::Diverges(Divergence::Rewritten);
            let got = continuity(std::slice::from_ref(before), std::slice::from_ref(&after));
            assert_eq!(got, rewritten, "{before} {after}");
        }
    }

    #[test]
    fn thinking_does_not_change_the_fingerprint() {
        let with = |blocks: Json| [json!({"role": "assistant", "timestamp": 1, "content": blocks})];
        let thinking =
            with(json!([{"type": "thinking", "thinking": "x"}, {"type": "text", "text": "a"}]));
        let bare = with(json!([{"type": "text", "text": "a"}]));
        assert_eq!(continuity(&thinking, &bare), Continuity::Continues(1));
    }

    #[test]
    fn absent_flags_equal_false_and_other_fields_are_ignored() {
        let result = |more: Json| {
            let mut message = json!({"role": "toolResult", "content": [], "toolCallId": "c", "toolName": "t", "timestamp": 1});
            message
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            message
        };
        let bash = |more: Json| {
            let mut message = result(more);
            message["role"] = "bashExecution".into();
            message
        };
        for (before, after) in [
            (
                result(json!({})),
                result(json!({"isError": false, "details": {"x": 1}})),
            ),
            (
                bash(json!({})),
                bash(json!({"cancelled": false, "exitCode": null, "truncated": true})),
            ),
        ] {
            let got = continuity(std::slice::from_ref(&before), std::slice::from_ref(&after));
            assert_eq!(got, Continuity::Continues(1), "{before} {after}");
        }
    }

    #[test]
    fn divergence_reasons_are_distinguished() {
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
    fn a_fingerprint_survives_storage() {
        let fingerprint = Fingerprint::of("S", &[json!({"role": "user", "content": "a"})]);
        let text = serde_json::to_string(&fingerprint).unwrap();
        assert_eq!(Fingerprint::parse(&text), Some(fingerprint));
        assert_eq!(Fingerprint::parse("{}"), None);
    }
}
