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
#[serde(rename_all = "camelCase")]
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
        let messages = messages.iter().enumerate();
        Self {
            system_hash: short(system.as_bytes()),
            message_hashes: messages.map(|(index, told)| message(index, told)).collect(),
        }
    }

    /// Reads a stored fingerprint; what is none counts as never sent.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// How many messages it stands for.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.message_hashes.len()
    }

    /// How many messages of a history this one is the beginning of, the system prompt aside;
    /// `None` if it is not.
    pub fn begins(&self, messages: &[Json]) -> Option<usize> {
        let known = self.message_hashes.len();
        let beginning = Self::of("", messages.get(..known)?);
        (beginning.message_hashes == self.message_hashes).then_some(known)
    }

    /// Whether a history goes on with the turn this one asks for: there was no whole answer
    /// since.
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
    // What the user kept out of the context cannot change it.
    if message["excludeFromContext"] != Json::Bool(true) {
        for field in said(role) {
            add(&match field {
                Field::Content(name) => content(&message[name]),
                Field::Value(name) => message[name].to_string(),
                // Absent is the same as off.
                Field::Flag(name) => (message[name] == Json::Bool(true)).to_string(),
            });
        }
    }
    hex(&hasher.finalize())
}

/// A field of a message that says something.
#[derive(Debug, Clone, Copy)]
enum Field {
    Content(&'static str),
    Value(&'static str),
    Flag(&'static str),
}

fn said(role: &str) -> &'static [Field] {
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
    fn what_a_message_says_counts() {
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
    fn thoughts_do_not_count() {
        let with = |blocks: Json| [json!({"role": "assistant", "timestamp": 1, "content": blocks})];
        let thinking =
            with(json!([{"type": "thinking", "thinking": "x"}, {"type": "text", "text": "a"}]));
        let bare = with(json!([{"type": "text", "text": "a"}]));
        assert_eq!(continuity(&thinking, &bare), Continuity::Continues(1));
    }

    #[test]
    fn absent_flags_are_off_and_what_is_not_told_does_not_count() {
        let result = |more: Json| {
            let mut told = json!({"role": "toolResult", "content": [], "toolCallId": "c", "toolName": "t", "timestamp": 1});
            told.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            told
        };
        let bash = |more: Json| {
            let mut told = result(more);
            told["role"] = "bashExecution".into();
            told
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
