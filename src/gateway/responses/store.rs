//! Responses that a later request may continue by `previous_response_id`. They are kept in memory,
//! bounded in number and size, and lost when the gateway ends.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use agent::message::{AnswerPart, Content, Message, MessageKind};

const MAX_RESPONSES: usize = 4096;
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The most recent responses.
#[derive(Debug, Default)]
pub(in crate::gateway) struct ResponseStore(Mutex<Responses>);

#[derive(Debug, Default)]
struct Responses {
    by_id: HashMap<String, StoredResponse>,
    order: VecDeque<String>,
    bytes: usize,
}

/// One response. Earlier messages are found through the response it continues.
#[derive(Debug)]
pub(super) struct StoredResponse {
    /// The response that this one continues.
    pub(super) previous: Option<String>,
    /// The messages of the request, and the answer.
    pub(super) messages: Arc<[Message]>,
    /// The id of its session.
    pub(super) session: String,
}

impl ResponseStore {
    /// Stores a response; drops the oldest ones if there are too many.
    pub(super) fn insert(&self, id: &str, response: StoredResponse) {
        let mut responses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        responses.bytes += size(&response.messages);
        responses.order.push_back(id.to_owned());
        responses.by_id.insert(id.to_owned(), response);
        while responses.order.len() > MAX_RESPONSES || responses.bytes > MAX_BYTES {
            let Some(oldest) = responses.order.pop_front() else {
                break;
            };
            if let Some(oldest) = responses.by_id.remove(&oldest) {
                responses.bytes -= size(&oldest.messages);
            }
        }
    }

    /// Returns the history up to a response, and its session; `None` if a part of it is gone.
    pub(super) fn history(&self, id: &str) -> Option<(Vec<Message>, String)> {
        let responses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = responses.by_id.get(id)?;
        let mut parts = vec![&last.messages];
        let mut previous = last.previous.as_ref();
        while let Some(id) = previous {
            let response = responses.by_id.get(id)?;
            parts.push(&response.messages);
            previous = response.previous.as_ref();
        }
        let messages = parts
            .into_iter()
            .rev()
            .flat_map(|part| part.iter().cloned());
        Some((messages.collect(), last.session.clone()))
    }
}

/// Returns an estimate of the memory that messages take, in bytes.
fn size(messages: &[Message]) -> usize {
    let content = |content: &[Content]| -> usize {
        let sizes = content.iter().map(|part| match part {
            Content::Text(text) => text.len(),
            Content::Image { data, .. } => data.len(),
        });
        sizes.sum()
    };
    let sizes = messages.iter().map(|message| match message.kind() {
        MessageKind::Assistant(answer) => {
            let sizes = answer.parts.iter().map(|part| match part {
                AnswerPart::Text(text) | AnswerPart::Thinking(text) => text.len(),
                AnswerPart::Call(call) => call.arguments.to_string().len(),
                AnswerPart::Image => 0,
            });
            sizes.sum()
        }
        _ => content(message.content()),
    });
    // Twice, because a message also keeps the text that identifies it.
    sizes.map(|size| 256 + 2 * size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(previous: Option<&str>, text: &str) -> StoredResponse {
        StoredResponse {
            previous: previous.map(str::to_owned),
            messages: [Message::user(text), Message::assistant("ok")].into(),
            session: "s".into(),
        }
    }

    #[test]
    fn a_history_is_the_chain_of_its_responses() {
        let store = ResponseStore::default();
        store.insert("a", response(None, "one"));
        store.insert("b", response(Some("a"), "two"));
        store.insert("c", response(Some("a"), "another branch"));
        let (messages, session) = store.history("b").unwrap();
        assert_eq!((messages.len(), session.as_str()), (4, "s"));
        assert_eq!(
            (&messages[0], &messages[2]),
            (&Message::user("one"), &Message::user("two"))
        );
        assert!(store.history("d").is_none());
    }

    #[test]
    fn the_oldest_responses_are_dropped() {
        let store = ResponseStore::default();
        store.insert("a", response(None, "one"));
        let long = "x".repeat(MAX_BYTES / 4);
        store.insert("b", response(Some("a"), &long));
        assert!(store.history("b").is_some());
        store.insert("c", response(None, &long));
        assert!(store.history("c").is_some());
        assert!(store.history("b").is_none(), "a part of it is gone");
    }
}
