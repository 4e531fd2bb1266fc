//! Which session a request belongs to: by the ids of its calls, then by the name that the client
//! sends, then by its history.

use http::HeaderMap;
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use super::api_error::ApiError;
use super::call_id;
use agent::conversation::transcript::Transcript;
use agent::message::{AnswerPart, Content, Message, MessageKind};

/// Headers with a client's session id, the most specific first.
const HEADERS: [&str; 2] = ["x-session-id", "x-claude-code-session-id"];
const MAX_NAME: usize = 256;
/// The prefixes of session ids: of named sessions, and of the session manager's own.
const NAMED: &str = "gateway/";
const UNNAMED: &str = "unnamed/";

/// What a request says about its session, beside its transcript.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct SessionHints {
    /// The name that the client sends.
    pub(super) name: Option<String>,
    /// The session of an earlier response that the request continues.
    pub(super) continued: Option<String>,
}

impl SessionHints {
    /// Returns the hints in the headers.
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Self, ApiError> {
        for header in HEADERS {
            let Some(name) = headers.get(header) else {
                continue;
            };
            match name.to_str().map(str::trim) {
                Ok("") => {}
                Ok(name) if name.len() <= MAX_NAME => {
                    return Ok(Self {
                        name: Some(name.to_owned()),
                        continued: None,
                    });
                }
                _ => {
                    let problem = format!("expected at most {MAX_NAME} visible characters");
                    return Err(ApiError::field(header, &problem));
                }
            }
        }
        Ok(Self::default())
    }

    /// Adds a name from the body; one in a header takes precedence.
    pub(super) fn or_name(mut self, name: Option<&str>) -> Self {
        if self.name.is_none() {
            let name = name.map(str::trim).filter(|name| !name.is_empty());
            self.name = name.map(|name| name.chars().take(MAX_NAME).collect());
        }
        self
    }
}

/// Returns the session in `metadata.user_id`: as JSON or after `session_`. An id without a session
/// is not used, because it is the same for all chats of a user.
pub(super) fn session_of_user(user_id: &str) -> Option<String> {
    if let Ok(json) = serde_json::from_str::<Json>(user_id) {
        return json["session_id"].as_str().map(str::to_owned);
    }
    let (_, session) = user_id.rsplit_once("session_")?;
    Some(session.to_owned()).filter(|session| !session.is_empty())
}

/// Returns the id of the session that a request names: by the calls that wait for its results, by
/// an earlier response, or by the client's name for it.
pub(super) fn session_id(hints: &SessionHints, transcript: &Transcript) -> Option<String> {
    waiting_calls(&transcript.messages)
        .find_map(|id| call_id::from_client(id).and_then(|(token, _)| from_token(token)))
        .or_else(|| hints.continued.clone())
        .or_else(|| hints.name.as_deref().map(|name| named(name, transcript)))
}

/// Returns the ids of the results after the last answer, and of the calls in it.
fn waiting_calls(messages: &[Message]) -> impl Iterator<Item = &str> {
    let start = messages.iter().rposition(Message::is_answer);
    let start = start.unwrap_or(messages.len());
    let latest = &messages[start..];
    let results = latest.iter().filter_map(Message::as_tool_result);
    let calls = latest.first().into_iter().flat_map(Message::call_ids);
    results.map(|result| result.call_id.as_str()).chain(calls)
}

/// Returns the session id for a client's name. The system prompt and the first message are part
/// of it, because clients send titles, summaries and subagents under the same name.
fn named(name: &str, transcript: &Transcript) -> String {
    let mut digest = Sha256::new();
    let mut add = |text: &str| {
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text.as_bytes());
    };
    add(name);
    add(&transcript.system);
    let first = transcript.messages.iter().find(|message| message.is_user());
    for content in first.map(Message::content).unwrap_or_default() {
        if let Content::Text(text) = content {
            add(text);
        }
    }
    let digest = digest.finalize();
    let hex: String = digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{NAMED}n{hex}")
}

/// Returns the short form of a session id, for the ids of its calls.
pub(super) fn to_token(session_id: &str) -> String {
    match session_id.strip_prefix(UNNAMED) {
        Some(id) => format!("u{id}"),
        None => session_id.strip_prefix(NAMED).unwrap_or("x").to_owned(),
    }
}

/// Returns the session id of a short form.
fn from_token(token: &str) -> Option<String> {
    let is_hex = |id: &str| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Some(id) = token.strip_prefix('u').filter(|id| is_hex(id)) {
        return Some(format!("{UNNAMED}{id}"));
    }
    let is_named = token.strip_prefix('n').is_some_and(is_hex);
    is_named.then(|| format!("{NAMED}{token}"))
}

/// Replaces clients' ids of calls by Cursor's own.
pub(super) fn restore_call_ids(transcript: &mut Transcript) {
    for message in &mut transcript.messages {
        let is_client_id = |id: &str| call_id::from_client(id).is_some();
        if !(message.call_ids().chain(message.result_id())).any(is_client_id) {
            continue;
        }
        let restore = |id: &mut String| {
            if let Some((_, own)) = call_id::from_client(id) {
                *id = own;
            }
        };
        let mut kind = message.kind().clone();
        match &mut kind {
            MessageKind::Assistant(answer) => {
                for part in &mut answer.parts {
                    if let AnswerPart::Call(call) = part {
                        restore(&mut call.id);
                    }
                }
            }
            MessageKind::ToolResult(result) => restore(&mut result.call_id),
            _ => {}
        }
        // Its identity contains the ids.
        *message = Message::new(kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript(messages: Vec<Message>) -> Transcript {
        Transcript {
            messages,
            ..Transcript::default()
        }
    }

    #[test]
    fn a_call_names_its_session_before_anything_else_does() {
        let id = "sess_u0123456789abcdef__call_c";
        let hints = SessionHints {
            name: Some("window".into()),
            continued: None,
        };
        let asked = transcript(vec![
            Message::user("go"),
            Message::tool_result(id, "look", "42"),
        ]);
        // Without an answer before it, it is not a pending result.
        let by_name = session_id(&hints, &asked).unwrap();
        assert!(by_name.starts_with("gateway/n"), "{by_name}");
        let answer = Message::new(MessageKind::Assistant(agent::message::Answer {
            parts: Vec::new(),
            is_complete: false,
        }));
        let mut asked = transcript(vec![answer, Message::tool_result(id, "look", "42")]);
        let found = session_id(&hints, &asked).unwrap();
        assert_eq!(found, "unnamed/0123456789abcdef");
        assert_eq!(to_token(&found), "u0123456789abcdef");
        restore_call_ids(&mut asked);
        assert_eq!(asked.messages[1], Message::tool_result("c", "look", "42"));
        assert_eq!(from_token(&to_token(&by_name)), Some(by_name));
        for foreign in ["u012", "x", "nzzzzzzzzzzzzzzzz", ""] {
            assert_eq!(from_token(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn one_name_is_one_session_for_each_prompt_and_first_message() {
        let hints = SessionHints::default().or_name(Some(" w "));
        let of = |system: &str, text: &str| {
            let mut asked = transcript(vec![Message::user(text), Message::user("more")]);
            asked.system = system.into();
            session_id(&hints, &asked)
        };
        assert_eq!(of("a", "b"), of("a", "b"));
        assert_ne!(of("a", "b"), of("title", "b"));
        assert_ne!(of("a", "b"), of("a", "another agent's task"));
    }

    #[test]
    fn a_user_id_counts_only_with_a_session() {
        let session = |text: &str| session_of_user(text);
        assert_eq!(session("user_1_account__session_ab-c"), Some("ab-c".into()));
        assert_eq!(
            session(r#"{"device_id":"d","session_id":"s"}"#),
            Some("s".into())
        );
        assert_eq!(session("user-1"), None);
    }
}
