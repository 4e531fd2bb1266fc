//! The order people expect: that of ICU's root collation, for the characters ids are made of.
//!
//! Three keys, compared one after the other: letters and signs, then accents, then case
//! (small first). Exact for ASCII; the accented letters of Latin-1 stand with their plain ones;
//! anything else, such as ß or æ, sorts behind them by code point, which ICU does not do. A
//! whole collation library would add a megabyte to say the same about the ids there are.

/// Signs, digits and letters of ASCII, in ICU's order.
const ORDER: &str =
    "\t\n\u{b}\u{c}\r _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789abcdefghijklmnopqrstuvwxyz";

/// What a text is compared by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(Vec<u32>, Vec<u32>, Vec<bool>);

/// The key of a text.
pub(super) fn key(text: &str) -> Key {
    let mut key = Key(Vec::new(), Vec::new(), Vec::new());
    for letter in text.chars() {
        let small = letter.to_lowercase().next().unwrap_or(letter);
        let base = without_accent(small);
        let place = match base {
            '\0'..='\u{8}' | '\u{e}'..='\u{1f}' | '\u{7f}' => continue,
            _ => ORDER
                .find(base)
                .map_or(0x1000 + u32::from(base), |at| at as u32),
        };
        key.0.push(place);
        key.1.push(if base == small { 0 } else { small.into() });
        key.2.push(small != letter);
    }
    key
}

fn without_accent(letter: char) -> char {
    match letter {
        'à'..='å' => 'a',
        'ç' => 'c',
        'è'..='ë' => 'e',
        'ì'..='ï' => 'i',
        'ñ' => 'n',
        'ò'..='ö' => 'o',
        'ù'..='ü' => 'u',
        'ý' | 'ÿ' => 'y',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_then_digits_then_letters_small_before_large() {
        let wanted = [
            "1x", "a", "b", "B", "e", "é", "É", "ez", "m_2", "m-10", "m-2", "M-2", "m.2", "m2",
            "z", "ж",
        ];
        let mut sorted = wanted;
        sorted.reverse();
        sorted.sort_by_key(|text| key(text));
        assert_eq!(sorted, wanted);
    }
}
