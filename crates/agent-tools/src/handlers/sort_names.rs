//! The order in which names are shown. It is the official client's, which is Unicode's root
//! collation: punctuation, digits, letters; case only decides between otherwise equal names.

use std::cmp::Ordering;
use std::sync::LazyLock;

/// Compares two names in that order.
pub(super) fn names(a: &str, b: &str) -> Ordering {
    let weights = |name| str::chars(name).map(weight);
    weights(a)
        .cmp(weights(b))
        // Lower case comes before upper case.
        .then_with(|| b.cmp(a))
}

/// Punctuation that is common in names, in Unicode's order.
const MARKS: &str = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$";

type Weight = (u8, u32);

/// The weights of ASCII, because names are compared many times.
static ASCII: LazyLock<[Weight; 128]> =
    LazyLock::new(|| std::array::from_fn(|code| computed(u8::try_from(code).unwrap_or(0).into())));

fn weight(letter: char) -> Weight {
    match ASCII.get(letter as usize) {
        Some(known) => *known,
        None => computed(letter),
    }
}

fn computed(letter: char) -> Weight {
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
    fn names_are_sorted_by_the_root_collation() {
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
