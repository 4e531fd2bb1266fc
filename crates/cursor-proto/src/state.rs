//! Checkpoints: opaque conversation state, inspected without being re-encoded.

use bytes::Bytes;
use prost::Message as _;
use serde_json::Value as Json;

use super::raw_fields::{FieldError, fields, put_bytes};
use crate::agent::v1::ConversationTokenDetails;

const PENDING_TOOL_CALLS: u32 = 4;
const TOKEN_DETAILS: u32 = 5;
const SUBAGENT_STATES: u32 = 16;
const USAGE_TREE: u32 = 4;
/// `SubagentPersistedState.conversation_state`.
const SUBAGENT_STATE: u32 = 1;

/// Maximum size of a checkpoint; no genuine one is larger.
pub const LARGEST: usize = 48 * 1024 * 1024;

/// Maximum nesting of subagents that is rewritten; deeper ones are left unchanged.
const MAX_DEPTH: usize = 8;

/// How full the context is, as reported by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextUsage {
    /// Tokens in use.
    pub used: u32,
    /// Maximum number of tokens.
    pub limit: u32,
}

/// Why bytes are not a usable checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidState {
    /// No bytes.
    #[error("empty")]
    Empty,
    /// More than [`LARGEST`].
    #[error("too large")]
    TooLarge,
    /// Not a protobuf message.
    #[error("damaged")]
    Damaged(#[from] FieldError),
}

/// Returns an error if a run cannot continue from this checkpoint.
pub fn check(state: &Bytes) -> Result<(), InvalidState> {
    match state.len() {
        0 => Err(InvalidState::Empty),
        size if size > LARGEST => Err(InvalidState::TooLarge),
        _ => Ok(without_usage_tree(state).map(drop)?),
    }
}

/// The pending tool calls of a checkpoint, as the server's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PendingCalls(Vec<String>);

impl PendingCalls {
    /// Returns a list of these calls.
    pub fn of<'a>(calls: impl IntoIterator<Item = &'a str>) -> Self {
        Self(calls.into_iter().map(str::to_owned).collect())
    }

    /// Returns whether a pending call mentions this id, as a whole and not as part of another id.
    pub fn names(&self, call: &str) -> bool {
        let is_named = |pending: &String| match serde_json::from_str::<Json>(pending) {
            Ok(json) => json_mentions(&json, call),
            Err(_) => mentions(pending, call),
        };
        !call.is_empty() && self.0.iter().any(is_named)
    }
}

/// Returns whether a value of the JSON mentions an id. Values are compared unescaped, because an id
/// may contain a line break.
fn json_mentions(json: &Json, id: &str) -> bool {
    match json {
        Json::String(text) => mentions(text, id),
        Json::Array(values) => values.iter().any(|value| json_mentions(value, id)),
        Json::Object(members) => members
            .iter()
            .any(|(name, value)| mentions(name, id) || json_mentions(value, id)),
        Json::Number(number) => number.to_string() == id,
        Json::Null | Json::Bool(_) => false,
    }
}

/// Returns whether a text contains an id that no further character of an id precedes or follows.
fn mentions(text: &str, id: &str) -> bool {
    let continues = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_');
    text.match_indices(id).any(|(at, _)| {
        let after = &text[at + id.len()..];
        !text[..at].ends_with(continues) && !after.starts_with(continues)
    })
}

/// Returns the pending tool calls of a checkpoint.
pub fn pending(state: &Bytes) -> PendingCalls {
    let fields = fields(state.clone()).filter_map(Result::ok);
    let calls = fields.filter(|field| field.number == PENDING_TOOL_CALLS);
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    PendingCalls(
        calls
            .filter_map(|field| field.value.bytes().map(text))
            .collect(),
    )
}

/// Returns the token details of a checkpoint, if it has any.
pub fn occupancy(state: &Bytes) -> Result<Option<ContextUsage>, FieldError> {
    let mut found = None;
    for field in fields(state.clone()) {
        let field = field?;
        if let (TOKEN_DETAILS, Some(inner)) = (field.number, field.value.bytes()) {
            found = ConversationTokenDetails::decode(inner.clone())
                .ok()
                .map(|details| ContextUsage {
                    used: details.used_tokens,
                    limit: details.max_tokens,
                });
        }
    }
    Ok(found)
}

/// Returns the checkpoint as it is sent back to the server: byte for byte, without the usage
/// tree, which is a report for the user that the official client never sends back.
pub fn without_usage_tree(state: &Bytes) -> Result<Bytes, FieldError> {
    Ok(strip_state(state, 0)?.unwrap_or_else(|| state.clone()))
}

/// Returns `None` if nothing had to be removed.
fn strip_state(state: &Bytes, depth: usize) -> Result<Option<Bytes>, FieldError> {
    if depth > MAX_DEPTH {
        return Ok(None);
    }
    rewrite(state, |number, inner| match number {
        TOKEN_DETAILS => drop_field(inner, USAGE_TREE),
        // map<string, SubagentPersistedState>: entry → value (2) → its checkpoint (1).
        SUBAGENT_STATES => rewrite(inner, |number, subagent| match number {
            2 => rewrite(subagent, |number, state| match number {
                SUBAGENT_STATE => strip_state(state, depth + 1),
                _ => Ok(None),
            }),
            _ => Ok(None),
        }),
        _ => Ok(None),
    })
}

/// Replaces the length-delimited fields for which `change` returns new content. Returns `None`
/// if nothing changed.
fn rewrite(
    message: &Bytes,
    change: impl Fn(u32, &Bytes) -> Result<Option<Bytes>, FieldError>,
) -> Result<Option<Bytes>, FieldError> {
    let mut out = Vec::new();
    let mut changed = false;
    for field in fields(message.clone()) {
        let field = field?;
        let replacement = match field.value.bytes() {
            Some(inner) => change(field.number, inner)?,
            None => None,
        };
        match replacement {
            Some(content) => {
                changed = true;
                put_bytes(&mut out, field.number, &content);
            }
            None => out.extend_from_slice(&field.raw),
        }
    }
    Ok(changed.then(|| out.into()))
}

fn drop_field(message: &Bytes, number: u32) -> Result<Option<Bytes>, FieldError> {
    let mut out = Vec::new();
    let mut dropped = false;
    for field in fields(message.clone()) {
        let field = field?;
        if field.number == number {
            dropped = true;
        } else {
            out.extend_from_slice(&field.raw);
        }
    }
    Ok(dropped.then(|| out.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(number: u32, inner: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, number, inner);
        out
    }

    /// used 1234, max 200000, a usage tree, and unknown fields.
    fn state() -> Vec<u8> {
        let mut details = vec![0x08, 0xd2, 0x09, 0x10, 0xc0, 0x9a, 0x0c];
        put_bytes(&mut details, USAGE_TREE, b"tree");
        put_bytes(&mut details, 99, b"future");
        let mut state = nested(1, b"root");
        put_bytes(&mut state, TOKEN_DETAILS, &details);
        put_bytes(&mut state, 1000, b"unknown");
        state
    }

    #[test]
    fn only_the_usage_tree_is_removed() {
        let plain = state();
        let mut with_subagent = plain.clone();
        let entry = [nested(1, b"id"), nested(2, &nested(SUBAGENT_STATE, &plain))].concat();
        put_bytes(&mut with_subagent, SUBAGENT_STATES, &entry);

        let cut = without_usage_tree(&with_subagent.into()).unwrap();
        let haystack = cut.to_vec();
        let count = |needle: &[u8]| {
            haystack
                .windows(needle.len())
                .filter(|w| *w == needle)
                .count()
        };
        assert_eq!(count(b"tree"), 0);
        assert_eq!(count(b"future"), 2);
        assert_eq!(count(b"unknown"), 2);
        assert_eq!(
            occupancy(&cut).unwrap(),
            Some(ContextUsage {
                used: 1234,
                limit: 200_000
            })
        );
        assert_eq!(without_usage_tree(&cut).unwrap(), cut);
    }

    #[test]
    fn pending_calls_are_found_by_id() {
        let mut waits = state();
        put_bytes(&mut waits, PENDING_TOOL_CALLS, br#"{"id":"call-1"}"#);
        let pending = pending(&waits.into());
        assert!(pending.names("call-1"));
        assert!(!pending.names("call-2") && !pending.names(""));
    }

    #[test]
    fn an_id_is_not_found_inside_another_id() {
        for (text, one, ten) in [
            ("call-10", false, true),
            ("call-1", true, false),
            (r#"{"id":"call-10"}"#, false, true),
            (r#"{"id":"call-1","name":"x"}"#, true, false),
            (r#"[{"calls":{"call-1":{}}}]"#, true, false),
            ("shell call-1, read call-10", true, true),
            ("call-10 call-1", true, true),
        ] {
            let pending = PendingCalls::of([text]);
            let named = (pending.names("call-1"), pending.names("call-10"));
            assert_eq!(named, (one, ten), "{text}");
            assert!(!pending.names("call") && !pending.names("all-1"), "{text}");
        }
        // Cursor's ids may have two parts on two lines, which JSON escapes.
        let pending = PendingCalls::of([r#"{"id":"call_1\nfc_2"}"#, "7"]);
        assert!(pending.names("call_1\nfc_2") && pending.names("fc_2") && pending.names("7"));
        assert!(!pending.names("call_1\nfc_20") && !pending.names("c_2"));
    }

    #[test]
    fn an_unusable_checkpoint_is_an_error() {
        assert_eq!(
            without_usage_tree(&Bytes::from_static(&[0x2a, 0x05])),
            Err(FieldError::Truncated)
        );
        assert_eq!(occupancy(&Bytes::new()), Ok(None));
        assert_eq!(check(&Bytes::new()), Err(InvalidState::Empty));
        let damaged = InvalidState::Damaged(FieldError::Truncated);
        assert_eq!(check(&Bytes::from_static(&[0x2a, 0x05])), Err(damaged));
        assert_eq!(
            check(&vec![0; LARGEST + 1].into()),
            Err(InvalidState::TooLarge)
        );
        assert_eq!(check(&state().into()), Ok(()));
    }
}
