//! Compares the last answer in a checkpoint with what the host has of it.
//!
//! A checkpoint stands for a history and for the start of the answer to it. The host may have been
//! shown more than that (the run failed or was stopped after the checkpoint) or less (the host
//! stopped reading, or was killed). The two must not be confused. White space is ignored, because
//! hosts split text into blocks of their own.

use crate::message::Message;
use foundation::terminal_text;

/// The difference between the two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerGap {
    /// There is none, or the host has different text.
    None,
    /// The host was shown this text, and the checkpoint does not include it.
    Unknown(String),
    /// The checkpoint includes this text, and the host does not have it.
    Unshown(String),
}

/// Compares the answer in a checkpoint with the messages that follow the history it stands for.
/// Returns [`AnswerGap::None`] if the answer was not recorded.
pub fn gap(known: Option<&str>, after: &[Message]) -> AnswerGap {
    let Some(known) = known else {
        return AnswerGap::None;
    };
    let texts = |messages: &[Message]| -> String {
        let answers = messages.iter().map_while(Message::as_answer);
        answers.flat_map(|answer| answer.texts()).collect()
    };
    match compare(known, &texts(after)) {
        // A turn that takes over a run which has ended shows the rest of its answer first, in the
        // answer to the next message.
        AnswerGap::Unshown(rest) if begins_with(&texts(after_next_input(after)), &rest) => {
            AnswerGap::None
        }
        gap => gap,
    }
}

/// Returns the messages from the next answer on that follows a message of another kind.
fn after_next_input(messages: &[Message]) -> &[Message] {
    let input = messages.iter().position(|message| !message.is_answer());
    let rest = &messages[input.unwrap_or(messages.len())..];
    let answer = rest.iter().position(Message::is_answer);
    &rest[answer.unwrap_or(rest.len())..]
}

/// Returns whether a text begins with another one.
fn begins_with(text: &str, start: &str) -> bool {
    let mut letters = visible(text).map(|(_, letter)| letter);
    visible(start).all(|(_, letter)| letters.next() == Some(letter))
}

/// Compares the text in a checkpoint with the text that was shown.
pub fn compare(known: &str, shown: &str) -> AnswerGap {
    let (mut ours, mut theirs) = (visible(known), visible(shown));
    let (mut ours_end, mut theirs_end) = (0, 0);
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => return AnswerGap::None,
            (None, Some(_)) => return AnswerGap::Unknown(shown[theirs_end..].into()),
            (Some(_), None) => return AnswerGap::Unshown(known[ours_end..].into()),
            (Some((_, a)), Some((_, b))) if a != b => return AnswerGap::None,
            (Some((a, _)), Some((b, _))) => (ours_end, theirs_end) = (a, b),
        }
    }
}

/// Returns the characters that are not white space, as a terminal host receives them, with the
/// offset after each.
fn visible(text: &str) -> impl Iterator<Item = (usize, char)> {
    text.char_indices()
        .filter_map(|(at, char)| Some((at + char.len_utf8(), terminal_text::printable(char)?)))
        .filter(|(_, char)| !char.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{AnswerPart, ToolCall};

    #[test]
    fn the_gap_is_the_rest_of_the_longer_text() {
        assert_eq!(compare("one two", "one two "), AnswerGap::None);
        assert_eq!(compare("", ""), AnswerGap::None);
        assert_eq!(
            compare("one ", "one two"),
            AnswerGap::Unknown(" two".into())
        );
        assert_eq!(compare("", "one"), AnswerGap::Unknown("one".into()));
        assert_eq!(compare("one two", "one"), AnswerGap::Unshown(" two".into()));
        assert_eq!(compare("ä ö", "ä"), AnswerGap::Unshown(" ö".into()));
    }

    /// The host was sent replacements for control characters; the checkpoint has the characters.
    #[test]
    fn control_characters_do_not_make_answers_differ() {
        let known = "\u{1b}[1mone\r\n two";
        let sent = terminal_text::clean("\u{1b}[1mone\r\n");
        assert_eq!(compare(known, &sent), AnswerGap::Unshown("\r\n two".into()));
        assert_eq!(
            compare(known, &terminal_text::clean(known)),
            AnswerGap::None
        );
    }

    #[test]
    fn different_text_is_not_a_gap() {
        assert_eq!(compare("one two", "one 2 three"), AnswerGap::None);
    }

    #[test]
    fn text_blocks_are_read_as_one_text() {
        let message = Message::answer(vec![
            AnswerPart::Text("one ".into()),
            AnswerPart::Thinking("hm".into()),
            AnswerPart::Call(ToolCall {
                id: "c".into(),
                name: "look".into(),
                arguments: serde_json::json!({}),
            }),
            AnswerPart::Text("two".into()),
        ]);
        let reply = Message::user("and?");
        assert_eq!(
            gap(Some("one"), &[message.clone(), reply.clone()]),
            AnswerGap::Unknown(" two".into())
        );
        assert_eq!(gap(Some("one"), &[reply]), AnswerGap::Unshown("one".into()));
        assert_eq!(gap(None, &[message]), AnswerGap::None);
    }
}
