//! What a turn needs of every message of its history, without its content.
//!
//! Hosts send the whole history with every turn. Of the messages that a front end has read
//! before, a turn compares the hashes and adds up the lengths, and reads few. So a front end keeps
//! the outline of each message it has parsed, and parses the same text again only if its content
//! is needed.

use std::sync::OnceLock;

use super::hash::HistoryLink;
use super::{
    HistoryHash, Message, MessageBody, MessageHash, MessageKind, ParsedMessage, Summarized,
};
use crate::turn::usage;

/// A longer id of a call is not kept.
const LONGEST_ID: usize = 1024;

/// The outline of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageOutline {
    pub(super) author: MessageAuthor,
    pub(super) is_excluded: bool,
    pub(super) has_images: bool,
    hash: MessageHash,
    /// The index that the hash includes, for a message without a time.
    index: Option<u32>,
    /// Its place in the history in which it was read.
    link: Option<HistoryLink>,
    pub(super) tokens: u32,
    /// The call that it is the result of.
    pub(super) call_id: Option<Box<str>>,
}

/// Who wrote a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageAuthor {
    User,
    Assistant,
    Tool,
    Extension,
    Command,
    Summary(Summarized),
}

/// Parses the text of a message of a host; `None` if it is none.
pub type ParseMessage = fn(&str) -> Option<Message>;

/// A message that is parsed when its content is needed.
#[derive(Debug, Clone)]
pub(super) struct UnparsedMessage {
    pub(super) outline: MessageOutline,
    text: Box<str>,
    parse: ParseMessage,
    parsed: OnceLock<Box<ParsedMessage>>,
}

impl MessageAuthor {
    pub(super) fn of(kind: &MessageKind) -> Self {
        match kind {
            MessageKind::User(_) => Self::User,
            MessageKind::Assistant(_) => Self::Assistant,
            MessageKind::ToolResult(_) => Self::Tool,
            MessageKind::Custom(_) => Self::Extension,
            MessageKind::Command { .. } => Self::Command,
            MessageKind::Summary { of, .. } => Self::Summary(*of),
        }
    }

    /// Returns the author's name in identities. Stored hashes contain it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "toolResult",
            Self::Extension => "custom",
            Self::Command => "bashExecution",
            Self::Summary(Summarized::Beginning) => "compactionSummary",
            Self::Summary(Summarized::Branch) => "branchSummary",
        }
    }
}

impl MessageOutline {
    /// Returns the outline of a message at this index; `None` if it would take much memory.
    pub fn of(message: &Message, index: usize) -> Option<Self> {
        let call_id = message.result_id();
        if call_id.is_some_and(|id| id.len() > LONGEST_ID) {
            return None;
        }
        Some(Self {
            author: message.author(),
            is_excluded: message.is_excluded(),
            has_images: message.has_images(),
            hash: message.hash(index),
            index: if message.has_time() {
                None
            } else {
                Some(u32::try_from(index).ok()?)
            },
            link: message.link.get().copied(),
            tokens: u32::try_from(message.text_tokens()).ok()?,
            call_id: call_id.map(Box::from),
        })
    }

    /// Returns whether the message was read after a history of this hash.
    pub fn follows(&self, history: HistoryHash) -> bool {
        self.link.is_some_and(|link| link.before == history)
    }

    /// Returns the outline for another history.
    pub fn elsewhere(self) -> Self {
        Self { link: None, ..self }
    }

    /// Returns the hash of the message at an index; `None` if it was computed for another one.
    pub(super) fn hash(&self, index: usize) -> Option<MessageHash> {
        let is_same = |known: u32| usize::try_from(known) == Ok(index);
        self.index.is_none_or(is_same).then_some(self.hash)
    }

    pub(super) fn has_time(&self) -> bool {
        self.index.is_none()
    }
}

impl UnparsedMessage {
    pub(super) fn parsed(&self) -> &ParsedMessage {
        self.parsed.get_or_init(|| {
            match (self.parse)(&self.text).map(|message| message.body) {
                Some(MessageBody::Parsed(parsed)) => parsed,
                Some(MessageBody::Unparsed(unparsed)) => Box::new(unparsed.parsed().clone()),
                // The outline was made of the same text, so it was parsed before.
                None => ParsedMessage::empty(self.outline.author),
            }
        })
    }
}

impl Message {
    /// Returns a message that is parsed when its content is needed. `parse` must return the
    /// message that the outline was made of.
    pub fn unparsed(outline: MessageOutline, text: Box<str>, parse: ParseMessage) -> Self {
        Self {
            link: outline.link.map_or_else(OnceLock::new, OnceLock::from),
            body: MessageBody::Unparsed(Box::new(UnparsedMessage {
                outline,
                text,
                parse,
                parsed: OnceLock::new(),
            })),
        }
    }

    /// Estimates the tokens of its text, without its images.
    pub fn text_tokens(&self) -> u64 {
        match &self.body {
            MessageBody::Parsed(_) => usage::text_tokens(self),
            MessageBody::Unparsed(unparsed) => unparsed.outline.tokens.into(),
        }
    }

    /// Returns whether its content was not needed so far.
    pub fn is_unparsed(&self) -> bool {
        match &self.body {
            MessageBody::Parsed(_) => false,
            MessageBody::Unparsed(unparsed) => unparsed.parsed.get().is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Message> {
        Some(Message::user(text).at(7))
    }

    fn unparsed(index: usize, text: &str) -> Message {
        let outline = MessageOutline::of(&parse(text).unwrap(), index).unwrap();
        Message::unparsed(outline, text.into(), parse)
    }

    #[test]
    fn a_message_is_parsed_when_its_content_is_needed() {
        let (message, parsed) = (unparsed(3, "hello"), Message::user("hello").at(7));
        assert!(message.is_user() && !message.is_answer() && !message.is_excluded());
        assert_eq!(message.hash(9), parsed.hash(9));
        assert_eq!(message.text_tokens(), parsed.text_tokens());
        assert_eq!(message.result_id(), None);
        assert!(!message.has_images() && message.as_answer().is_none());
        assert!(message.is_unparsed());
        assert_eq!(message.content(), parsed.content());
        assert!(!message.is_unparsed());
        assert_eq!(message, parsed);
    }

    #[test]
    fn the_hash_of_a_message_without_a_time_follows_its_index() {
        let parse: ParseMessage = |text| Some(Message::user(text));
        let outline = MessageOutline::of(&Message::user("x"), 3).unwrap();
        let message = Message::unparsed(outline, "x".into(), parse);
        assert_eq!(message.hash(3), Message::user("x").hash(3));
        assert!(message.is_unparsed());
        assert_eq!(message.hash(4), Message::user("x").hash(4));
    }

    #[test]
    fn an_outline_knows_the_place_of_its_message() {
        let parse: ParseMessage = |text| Some(Message::user(text).at(7));
        let start = HistoryHash::default();
        let message = parse("x").unwrap();
        let after = message.end_history(start, 0);
        let outline = MessageOutline::of(&message, 0).unwrap();
        assert!(outline.follows(start) && !outline.follows(after));
        let again = Message::unparsed(outline.clone(), "x".into(), parse);
        assert_eq!(again.end_history(start, 0), after);
        let moved = Message::unparsed(outline.elsewhere(), "x".into(), parse);
        assert_ne!(moved.end_history(after, 1), after);
        let moved = MessageOutline::of(&moved, 1).unwrap();
        assert!(moved.follows(after) && !moved.follows(start));
    }
}
