//! Sort order of ICU's root collation, for the characters that model ids consist of.
//!
//! Three levels are compared in turn: letters and punctuation, then accents, then case (lower
//! case first). The order is exact for ASCII; accented Latin-1 letters sort with their base
//! letter. Unlike in ICU, anything else, such as ß or æ, sorts last by code point. We do not use
//! a collation library, because it would add a megabyte and sort existing ids the same.

/// Punctuation, digits and letters of ASCII, in ICU's order.
const ORDER: &str =
    "\t\n\u{b}\u{c}\r _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789abcdefghijklmnopqrstuvwxyz";

/// The key that a text is compared by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SortKey(Vec<u32>, Vec<u32>, Vec<bool>);

/// Returns the sort key of a text.
pub(super) fn sort_key(text: &str) -> SortKey {
    let mut sort_key = SortKey(Vec::new(), Vec::new(), Vec::new());
    for c in text.chars() {
        let lower = c.to_lowercase().next().unwrap_or(c);
        let base = without_accent(lower);
        let rank = match base {
            '\0'..='\u{8}' | '\u{e}'..='\u{1f}' | '\u{7f}' => continue,
            _ => ORDER
                .find(base)
                .map_or(0x1000 + u32::from(base), |at| at as u32),
        };
        sort_key.0.push(rank);
        sort_key
            .1
            .push(if base == lower { 0 } else { lower.into() });
        sort_key.2.push(lower != c);
    }
    sort_key
}

fn without_accent(c: char) -> char {
    match c {
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
    fn punctuation_then_digits_then_letters_lower_case_first() {
        let wanted = [
            "1x", "a", "b", "B", "e", "é", "É", "ez", "m_2", "m-10", "m-2", "M-2", "m.2", "m2",
            "z", "ж",
        ];
        let mut sorted = wanted;
        sorted.reverse();
        sorted.sort_by_key(|text| sort_key(text));
        assert_eq!(sorted, wanted);
    }
}
