//! The order names are shown in: the official client's, which is that of Unicode's root
//! collation: punctuation, digits, letters; case counts only between equals.

use std::cmp::Ordering;

/// Compares two names.
pub(super) fn names(a: &str, b: &str) -> Ordering {
    let weights = |name| str::chars(name).map(weight);
    weights(a)
        .cmp(weights(b))
        // Small letters come before their capitals.
        .then_with(|| b.cmp(a))
}

/// Punctuation in Unicode's order, as far as names have it.
const MARKS: &str = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$";

fn weight(letter: char) -> (u8, u32) {
    if letter.is_whitespace() {
        return (0, u32::from(letter));
    }
    if let Some(at) = MARKS.find(letter) {
        return (1, u32::try_from(at).unwrap_or(u32::MAX));
    }
    let small = letter.to_lowercase().next().unwrap_or(letter);
    let class = if letter.is_numeric() { 2 } else { 3 };
    (class, u32::from(small))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_as_people_expect() {
        let mut list = [
            "b", "A", "a", "_x", ".git", "1", "B", "a-b", "a.b", "HEAD", "config",
        ];
        list.sort_by(|a, b| names(a, b));
        let expected = [
            "_x", ".git", "1", "a", "A", "a-b", "a.b", "b", "B", "config", "HEAD",
        ];
        assert_eq!(list, expected);
    }
}
