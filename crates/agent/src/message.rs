//! The messages of a session's history, independent of any host's JSON.
//!
//! A front end parses its host's spelling into these types. The engine compares histories by
//! hashing messages, and hashes are stored on disk. So each message also carries its *identity*:
//! the text that is hashed. [`Message::new`] derives it from the content in a fixed form; a front
//! end whose host sends more than these types hold supplies its own with
//! [`Message::identified_by`].

mod hash;
mod identity;
mod outline;

use std::fmt::Display;
use std::sync::OnceLock;

use serde_json::{Map, Value as Json};
use sha2::{Digest as _, Sha256};

use self::hash::{CachedHash, HistoryLink};
use self::outline::{MessageAuthor, UnparsedMessage};
use agent_tools::bridge::HostResult;
pub use agent_tools::bridge::content::Content;

pub use hash::{HistoryHash, MessageHash};
pub use identity::short_hash;
pub use outline::{MessageOutline, ParseMessage};

/// One message. A front end that has read it before need not parse it again
/// ([`Message::unparsed`]).
#[derive(Debug, Clone)]
pub struct Message {
    body: MessageBody,
    /// Its place in the history, once it was needed.
    link: OnceLock<HistoryLink>,
}

#[derive(Debug, Clone)]
enum MessageBody {
    Parsed(Box<ParsedMessage>),
    Unparsed(Box<UnparsedMessage>),
}

#[derive(Debug, Clone, PartialEq)]
struct ParsedMessage {
    /// Who wrote it, and its content.
    kind: MessageKind,
    /// The user excluded it from the context: it is never sent to the model.
    is_excluded: bool,
    /// When it was written, as the host spells it in JSON. `None` if the host sends no times.
    timestamp: Option<String>,
    /// The text that identifies the content.
    identity: Vec<String>,
    hash: CachedHash,
}

/// The kinds of messages.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageKind {
    /// Written by the user.
    User(Vec<Content>),
    /// An answer of the model.
    Assistant(Answer),
    /// The result of a tool call.
    ToolResult(ToolResult),
    /// Added by another program, such as an extension of the host. The model reads it as a message
    /// of the user.
    Custom(Vec<Content>),
    /// A command that the user executed in the host.
    Command {
        /// The command line.
        command: String,
        /// What it printed.
        output: String,
    },
    /// A summary that replaces earlier messages.
    Summary {
        /// Its text.
        text: String,
        /// What it replaces.
        of: Summarized,
    },
}

/// What a summary replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Summarized {
    /// The beginning of the conversation.
    Beginning,
    /// A branch of the conversation that was left.
    Branch,
}

/// An answer of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its parts, in order.
    pub parts: Vec<AnswerPart>,
    /// Whether it ends its turn: it neither waits for tools nor failed nor was aborted.
    pub is_complete: bool,
}

/// One part of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerPart {
    /// Text for the user.
    Text(String),
    /// The model's thinking.
    Thinking(String),
    /// A tool call.
    Call(ToolCall),
    /// An image, which is never sent back to the model.
    Image,
}

/// A tool call of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Its id, which the result repeats.
    pub id: String,
    /// The host's name of the tool.
    pub name: String,
    /// Its arguments. Text that is not JSON is a JSON string.
    pub arguments: Json,
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// The id of the call.
    pub call_id: String,
    /// The host's name of the tool; empty if unknown.
    pub tool: String,
    /// What the tool returned.
    pub content: Vec<Content>,
    /// Whether the tool failed.
    pub is_error: bool,
    /// Further details in the host's own format; `Null` if there are none.
    pub details: Json,
    /// The machine-readable result, if the tool has one.
    pub structured: Option<Map<String, Json>>,
}

impl Message {
    /// Returns a message without a time, identified by its content.
    pub fn new(kind: MessageKind) -> Self {
        let identity = identity::identity(&kind);
        Self::identified_by(identity, kind)
    }

    /// Returns a message without a time, identified by these texts instead of its content.
    pub fn identified_by(identity: Vec<String>, kind: MessageKind) -> Self {
        Self::of(ParsedMessage {
            kind,
            is_excluded: false,
            timestamp: None,
            identity,
            hash: CachedHash::default(),
        })
    }

    fn of(parsed: ParsedMessage) -> Self {
        Self {
            body: MessageBody::Parsed(Box::new(parsed)),
            link: OnceLock::new(),
        }
    }

    /// Returns a text message of the user.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(MessageKind::User(vec![Content::Text(text.into())]))
    }

    /// Returns a complete answer of text.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::answer(vec![AnswerPart::Text(text.into())])
    }

    /// Returns a complete answer.
    pub fn answer(parts: Vec<AnswerPart>) -> Self {
        Self::new(MessageKind::Assistant(Answer {
            parts,
            is_complete: true,
        }))
    }

    /// Returns a successful tool result of text.
    pub fn tool_result(call_id: &str, tool: &str, text: &str) -> Self {
        Self::new(MessageKind::ToolResult(ToolResult {
            call_id: call_id.into(),
            tool: tool.into(),
            content: vec![Content::Text(text.into())],
            is_error: false,
            details: Json::Null,
            structured: None,
        }))
    }

    /// Sets the time, as JSON text.
    pub fn at(self, timestamp: impl Display) -> Self {
        let mut parsed = self.into_parsed();
        parsed.timestamp = Some(timestamp.to_string());
        parsed.hash = CachedHash::default();
        Self::of(parsed)
    }

    /// Excludes the message from the context. Its content then no longer identifies it.
    pub fn excluded(self) -> Self {
        let mut parsed = self.into_parsed();
        parsed.is_excluded = true;
        parsed.identity.clear();
        parsed.hash = CachedHash::default();
        Self::of(parsed)
    }

    fn parsed(&self) -> &ParsedMessage {
        match &self.body {
            MessageBody::Parsed(parsed) => parsed,
            MessageBody::Unparsed(unparsed) => unparsed.parsed(),
        }
    }

    fn into_parsed(self) -> ParsedMessage {
        match self.body {
            MessageBody::Parsed(parsed) => *parsed,
            MessageBody::Unparsed(unparsed) => unparsed.parsed().clone(),
        }
    }

    /// Returns who wrote it, and its content.
    pub fn kind(&self) -> &MessageKind {
        &self.parsed().kind
    }

    fn author(&self) -> MessageAuthor {
        match &self.body {
            MessageBody::Parsed(parsed) => MessageAuthor::of(&parsed.kind),
            MessageBody::Unparsed(unparsed) => unparsed.outline.author,
        }
    }

    /// Returns whether the user excluded it from the context: it is never sent to the model.
    pub fn is_excluded(&self) -> bool {
        match &self.body {
            MessageBody::Parsed(parsed) => parsed.is_excluded,
            MessageBody::Unparsed(unparsed) => unparsed.outline.is_excluded,
        }
    }

    fn has_time(&self) -> bool {
        match &self.body {
            MessageBody::Parsed(parsed) => parsed.timestamp.is_some(),
            MessageBody::Unparsed(unparsed) => unparsed.outline.has_time(),
        }
    }

    /// Returns whether the user wrote it.
    pub fn is_user(&self) -> bool {
        self.author() == MessageAuthor::User
    }

    /// Returns whether it is an answer of the model, possibly an empty one.
    pub fn is_answer(&self) -> bool {
        self.author() == MessageAuthor::Assistant
    }

    /// Returns whether it is a summary that replaces earlier messages.
    pub fn is_summary(&self) -> bool {
        matches!(self.author(), MessageAuthor::Summary(_))
    }

    /// Returns the answer of the model.
    pub fn as_answer(&self) -> Option<&Answer> {
        if !self.is_answer() {
            return None;
        }
        match self.kind() {
            MessageKind::Assistant(answer) => Some(answer),
            _ => None,
        }
    }

    /// Returns the tool result.
    pub fn as_tool_result(&self) -> Option<&ToolResult> {
        if self.author() != MessageAuthor::Tool {
            return None;
        }
        match self.kind() {
            MessageKind::ToolResult(result) => Some(result),
            _ => None,
        }
    }

    /// Returns the id of the call that it is the result of.
    pub fn result_id(&self) -> Option<&str> {
        match &self.body {
            MessageBody::Parsed(parsed) => match &parsed.kind {
                MessageKind::ToolResult(result) => Some(&result.call_id),
                _ => None,
            },
            MessageBody::Unparsed(unparsed) => unparsed.outline.call_id.as_deref(),
        }
    }

    /// Returns the ids of the tool calls in an answer.
    pub fn call_ids(&self) -> impl Iterator<Item = &str> {
        let parts = self.as_answer().map_or(&[][..], |answer| &answer.parts);
        parts.iter().filter_map(|part| match part {
            AnswerPart::Call(call) => Some(call.id.as_str()),
            _ => None,
        })
    }

    /// Returns the content that may have images; empty for the model's answers.
    pub fn content(&self) -> &[Content] {
        match self.kind() {
            MessageKind::User(content) | MessageKind::Custom(content) => content,
            MessageKind::ToolResult(result) => &result.content,
            _ => &[],
        }
    }

    /// Returns whether it has an image.
    pub fn has_images(&self) -> bool {
        if let MessageBody::Unparsed(unparsed) = &self.body {
            return unparsed.outline.has_images;
        }
        let mut parts = self
            .as_answer()
            .into_iter()
            .flat_map(|answer| &answer.parts);
        let mut content = self.content().iter();
        content.any(|content| matches!(content, Content::Image { .. }))
            || parts.any(|part| matches!(part, AnswerPart::Image))
    }

    /// Calls `add` with each text that identifies the message. `index` replaces a missing time.
    pub(crate) fn identify(&self, index: usize, add: impl FnMut(&str)) {
        self.parsed().identify(index, add);
    }

    /// Returns the hash of what identifies the message. `index` replaces a missing time.
    pub fn hash(&self, index: usize) -> MessageHash {
        if let MessageBody::Unparsed(unparsed) = &self.body
            && let Some(hash) = unparsed.outline.hash(index)
        {
            return hash;
        }
        self.parsed().hash(index)
    }
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.parsed() == other.parsed()
    }
}

impl ParsedMessage {
    /// Returns a message without content.
    fn empty(author: MessageAuthor) -> Box<Self> {
        let kind = match author {
            MessageAuthor::Assistant => MessageKind::Assistant(Answer {
                parts: Vec::new(),
                is_complete: false,
            }),
            _ => MessageKind::User(Vec::new()),
        };
        match Message::new(kind).body {
            MessageBody::Parsed(parsed) => parsed,
            MessageBody::Unparsed(unparsed) => Box::new(unparsed.parsed().clone()),
        }
    }

    fn identify(&self, index: usize, mut add: impl FnMut(&str)) {
        add(MessageAuthor::of(&self.kind).name());
        match &self.timestamp {
            Some(time) => add(time),
            None => add(&index.to_string()),
        }
        for field in &self.identity {
            add(field);
        }
    }

    fn hash(&self, index: usize) -> MessageHash {
        let (known_index, known) = *self.hash.0.get_or_init(|| (index, self.new_hash(index)));
        if self.timestamp.is_some() || known_index == index {
            known
        } else {
            self.new_hash(index)
        }
    }

    fn new_hash(&self, index: usize) -> MessageHash {
        let mut hasher = Sha256::new();
        self.identify(index, |text| {
            hasher.update((text.len() as u64).to_be_bytes());
            hasher.update(text.as_bytes());
        });
        let digest = hasher.finalize();
        let bytes = digest.iter().take(8);
        MessageHash(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

impl Answer {
    /// Returns the texts for the user.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            AnswerPart::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }
}

impl ToolResult {
    /// Returns the result for the run that waits for it.
    pub fn to_host_result(&self) -> HostResult {
        let mut content = self.content.clone();
        if content.is_empty() {
            content.push(Content::Text(String::new()));
        }
        HostResult {
            content,
            is_error: self.is_error,
            details: self.details.clone(),
            structured: self.structured.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hash_follows_what_identifies_the_message() {
        let message = Message::user("hi");
        let first = message.hash(1);
        assert_eq!(message.hash(1), first);
        assert_ne!(message.hash(2), first, "the index replaces the time");
        let timed = message.clone().at(7);
        assert_ne!(timed.hash(1), first);
        assert_eq!(timed.hash(1), timed.hash(2));
        assert_ne!(timed.clone().excluded().hash(1), timed.hash(1));
        assert_eq!(
            message,
            Message::user("hi"),
            "equal, with a hash or without"
        );
    }

    /// Hashes in existing journals are made of these texts.
    #[test]
    fn identities_do_not_change() {
        let identity = |message: Message| {
            let mut fields = Vec::new();
            message.identify(3, |field| fields.push(field.to_owned()));
            fields.join(" | ")
        };
        let image = Content::Image {
            data: "AAAA".into(),
            mime_type: "image/png".into(),
        };
        let call = AnswerPart::Call(ToolCall {
            id: "c".into(),
            name: "see".into(),
            arguments: json!({"q": 1}),
        });
        let thinking = AnswerPart::Thinking("hm".into());
        let texts = [
            identity(Message::user("hi").at(7)),
            identity(Message::new(MessageKind::User(vec![image]))),
            identity(Message::answer(vec![
                thinking,
                AnswerPart::Text("ok".into()),
                call,
            ])),
            identity(Message::tool_result("c", "see", "42")),
            identity(Message::user("secret").excluded()),
        ];
        insta::assert_snapshot!(texts.join("\n"), @r#"
        user | 7 | [{"type":"text","text":"hi"}]
        user | 3 | [{"type":"image","data":"63c1dd951ffedf6f","mimeType":"image/png"}]
        assistant | 3 | [{"type":"text","text":"ok"},{"type":"toolCall","id":"c","name":"see","arguments":{"q":1}}]
        toolResult | 3 | [{"type":"text","text":"42"}] | "c" | "see" | false
        user | 3
        "#);
    }
}
