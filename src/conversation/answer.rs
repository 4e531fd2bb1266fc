//! What a state knows of its last answer, compared with what the host has of it.
//!
//! A checkpoint stands for a history and for the beginning of the answer to it. The host may
//! have been shown more than that (the run broke or was stopped after it) or less (the host
//! stopped listening, or was killed). Neither may be taken for the other. Spaces do not count:
//! hosts keep texts in blocks of their own.

use serde_json::Value as Json;

use crate::diag::terminal_text;

/// The difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gap {
    /// There is none, or the host has words of its own.
    None,
    /// The host was shown this, and the state does not know it.
    Unknown(String),
    /// The state knows this, and the host does not have it.
    Unshown(String),
}

/// Compares what a state knows of its answer with the messages that follow what it stands for.
/// Where nobody counted, there is no gap.
pub fn gap(known: Option<&str>, after: &[Json]) -> Gap {
    let Some(known) = known else {
        return Gap::None;
    };
    let answers = after.iter().take_while(|message| is_answer(Some(message)));
    compare(known, &answers.map(text).collect::<String>())
}

/// Compares what a state knows with what was shown.
pub fn compare(known: &str, shown: &str) -> Gap {
    let (mut ours, mut theirs) = (visible(known), visible(shown));
    let (mut ours_end, mut theirs_end) = (0, 0);
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => return Gap::None,
            (None, Some(_)) => return Gap::Unknown(shown[theirs_end..].into()),
            (Some(_), None) => return Gap::Unshown(known[ours_end..].into()),
            (Some((_, a)), Some((_, b))) if a != b => return Gap::None,
            (Some((a, _)), Some((b, _))) => (ours_end, theirs_end) = (a, b),
        }
    }
}

/// What is not space, as hosts on a terminal receive it, and where it ends.
fn visible(text: &str) -> impl Iterator<Item = (usize, char)> {
    text.char_indices()
        .filter_map(|(at, char)| Some((at + char.len_utf8(), terminal_text::printable(char)?)))
        .filter(|(_, char)| !char.is_whitespace())
}

/// The text of a host's answer, without the calls.
fn text(message: &Json) -> String {
    match &message["content"] {
        Json::String(text) => text.clone(),
        Json::Array(blocks) => blocks
            .iter()
            .filter(|block| block["type"] == "text")
            .filter_map(|block| block["text"].as_str())
            .collect(),
        _ => String::new(),
    }
}

/// Whether a history goes on with an answer, though perhaps an empty one.
pub fn is_answer(message: Option<&Json>) -> bool {
    message.is_some_and(|message| message["role"] == "assistant")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_end_of_the_longer_one_is_the_gap() {
        assert_eq!(compare("one two", "one two "), Gap::None);
        assert_eq!(compare("", ""), Gap::None);
        assert_eq!(compare("one ", "one two"), Gap::Unknown(" two".into()));
        assert_eq!(compare("", "one"), Gap::Unknown("one".into()));
        assert_eq!(compare("one two", "one"), Gap::Unshown(" two".into()));
        assert_eq!(compare("ä ö", "ä"), Gap::Unshown(" ö".into()));
    }

    /// A host was sent pictures of control characters, the state has the characters.
    #[test]
    fn control_characters_do_not_make_answers_differ() {
        let known = "\u{1b}[1mone\r\n two";
        let sent = terminal_text::clean("\u{1b}[1mone\r\n");
        assert_eq!(compare(known, &sent), Gap::Unshown("\r\n two".into()));
        assert_eq!(compare(known, &terminal_text::clean(known)), Gap::None);
    }

    #[test]
    fn other_words_are_no_gap() {
        assert_eq!(compare("one two", "one 2 three"), Gap::None);
    }

    #[test]
    fn blocks_are_read_as_one_text() {
        let message = json!({"role": "assistant", "content": [
            {"type": "text", "text": "one "}, {"type": "thinking", "thinking": "hm"},
            {"type": "toolCall", "id": "c", "name": "look", "arguments": {}},
            {"type": "text", "text": "two"}]});
        let said = json!({"role": "user", "content": "and?"});
        assert_eq!(
            gap(Some("one"), &[message.clone(), said.clone()]),
            Gap::Unknown(" two".into())
        );
        assert_eq!(gap(Some("one"), &[said]), Gap::Unshown("one".into()));
        assert_eq!(gap(None, &[message]), Gap::None);
    }
}
