//! Text that a terminal may print: nothing in it moves the cursor, sets the clipboard or the
//! title, or changes the order in which characters are read.
//!
//! Models, servers, repositories and MCP servers choose texts that end up on a terminal, and a
//! terminal obeys control characters from anyone. Every front end that leads to a terminal
//! cleans text here. Control characters are single code points, so the pieces of a stream can
//! be cleaned one by one.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};

/// Returns the character to print in place of `c`; `None` if it is removed.
///
/// C0 controls and DEL become their Unicode pictures (`␛` for ESC), so that the user sees what
/// was there and columns stay aligned. C1 controls and characters that open or close a
/// directional run have no picture and become U+FFFD. A carriage return is removed, because it
/// belongs to a line end where it is meant well; so are directional marks, because text in
/// Arabic and Hebrew contains them and they have no width.
pub fn printable(c: char) -> Option<char> {
    match c {
        '\n' | '\t' => Some(c),
        '\r' | '\u{200e}' | '\u{200f}' | '\u{61c}' => None,
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)),
        '\u{7f}' => Some('\u{2421}'),
        '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            Some(char::REPLACEMENT_CHARACTER)
        }
        _ => Some(c),
    }
}

fn is_printable(c: char) -> bool {
    printable(c) == Some(c)
}

/// Returns the text without control characters; borrowed if it has none.
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_printable) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(text.chars().filter_map(printable).collect())
    }
}

/// As [`clean`], for a text that is owned already.
pub fn cleaned(text: String) -> String {
    if let Cow::Owned(clean) = clean(&text) {
        return clean;
    }
    text
}

/// Cleans every text in a value, names of fields included.
pub fn clean_json(value: &mut Json) {
    match value {
        Json::String(text) => {
            if let Cow::Owned(clean) = clean(text) {
                *text = clean;
            }
        }
        Json::Array(items) => items.iter_mut().for_each(clean_json),
        Json::Object(fields) => {
            fields.values_mut().for_each(clean_json);
            if !fields.keys().all(|name| name.chars().all(is_printable)) {
                let named = std::mem::take(fields).into_iter();
                *fields = named
                    .map(|(name, value)| (cleaned(name), value))
                    .collect::<Map<_, _>>();
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// Returns a JSON text with every string in it cleaned. A text that needs no cleaning is
/// returned unchanged after one pass over its bytes.
pub fn clean_json_bytes(json: Vec<u8>) -> Vec<u8> {
    if !may_need_cleaning(&json) {
        return json;
    }
    let Ok(mut value) = serde_json::from_slice(&json) else {
        return json;
    };
    clean_json(&mut value);
    serde_json::to_vec(&value).unwrap_or(json)
}

/// Returns whether JSON contains an escape other than that of a quote, a backslash, a line break
/// or a tab, or a byte that starts a character to be replaced. May return a false positive.
fn may_need_cleaning(json: &[u8]) -> bool {
    let escaped = |pair: &[u8]| pair[0] == b'\\' && matches!(pair[1], b'u' | b'b' | b'f' | b'r');
    let starts = |pair: &[u8]| match pair {
        [0xc2, next] => *next < 0xa0,
        [0xd8, next] => *next == 0x9c,
        [0xe2, next] => matches!(next, 0x80 | 0x81),
        _ => false,
    };
    json.windows(2).any(|pair| escaped(pair) || starts(pair)) || json.contains(&0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn no_control_character_is_left() {
        for code in 0..=0x10_ffff {
            let Some(c) = char::from_u32(code) else {
                continue;
            };
            let clean: Vec<char> = clean(&c.to_string()).chars().collect();
            let is_harmless = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
            assert!(clean.iter().all(is_harmless), "{code:x}");
            assert!(clean.len() <= 1);
        }
        for bidi in
            "\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}".chars()
        {
            assert_eq!(printable(bidi), Some('\u{fffd}'));
        }
        for mark in ['\u{200e}', '\u{200f}', '\u{61c}'] {
            assert_eq!(printable(mark), None);
        }
    }

    #[test]
    fn removed_control_characters_stay_visible() {
        assert_eq!(clean("\u{1b}]52;c;c3J2\u{7}"), "␛]52;c;c3J2␇");
        assert_eq!(clean("a\u{9b}2Jb\u{7f}\0"), "a\u{fffd}2Jb␡␀");
        assert_eq!(clean("one\r\ntwo\tthree\rfour"), "one\ntwo\tthreefour");
    }

    #[test]
    fn ordinary_text_is_borrowed() {
        for text in ["", "plain\n\ttext", "naïve 😀 👩‍💻 שלום 日本語 │ ⠋"] {
            assert!(matches!(clean(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn every_string_of_a_json_text_is_cleaned() {
        let dirty = json!({"a\u{1b}": ["\u{7}", {"b": "\u{9d}x", "n": 1.5}], "c": "fine"});
        let clean = clean_json_bytes(dirty.to_string().into_bytes());
        let clean: Json = serde_json::from_slice(&clean).unwrap();
        let wanted = json!({"a␛": ["␇", {"b": "\u{fffd}x", "n": 1.5}], "c": "fine"});
        assert_eq!(clean, wanted);
    }

    proptest! {
        #[test]
        fn pieces_are_cleaned_like_the_whole(pieces in proptest::collection::vec(".*", 0..4)) {
            let whole = pieces.concat();
            let apart: String = pieces.iter().map(|piece| clean(piece)).collect();
            prop_assert_eq!(clean(&whole), apart);
        }

        #[test]
        fn bytes_and_values_are_cleaned_alike(text in ".*") {
            let mut value = json!({"text": text});
            let bytes = clean_json_bytes(value.to_string().into_bytes());
            clean_json(&mut value);
            prop_assert_eq!(bytes, value.to_string().into_bytes());
        }
    }
}
