//! Bounded text. Lengths are UTF-16 code units, as hosts written in JavaScript count them.

use serde_json::Value as Json;

/// How much of a text is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) chars: usize,
    pub(super) lines: usize,
}

/// What a transcript shows of a result.
pub(super) const TRANSCRIPT: Bounds = Bounds {
    chars: 24_000,
    lines: 800,
};
/// Items of a list that are shown.
const MOST_ITEMS: usize = 200;
/// Characters of an argument a summary shows.
pub(super) const ARGUMENT: usize = 120;

pub(super) fn units(text: &str) -> usize {
    match text.is_ascii() {
        true => text.len(),
        false => text.encode_utf16().count(),
    }
}

/// The first `most` units; never half a character.
pub(super) fn head(text: &str, most: usize) -> &str {
    let mut taken = 0;
    for (at, c) in text.char_indices() {
        taken += c.len_utf16();
        if taken > most {
            return &text[..at];
        }
    }
    text
}

/// At most `most` units, the last of them an ellipsis where something is missing.
pub(super) fn short(text: &str, most: usize) -> String {
    match units(text) > most {
        true => format!("{}…", head(text, most.saturating_sub(1))),
        false => text.to_owned(),
    }
}

/// Runs of white space become one blank.
pub(super) fn spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// One line of at most `most` units: white space and control characters become spaces.
pub fn line(text: &str, most: usize) -> String {
    let plain: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    short(&spaced(&plain), most)
}

/// The first line that says something, trimmed.
pub(super) fn first_line(text: &str) -> Option<&str> {
    text.split('\n')
        .map(str::trim)
        .find(|line| !line.is_empty())
}

/// A text within bounds; what is missing is said in lines, else in characters. `total` is
/// the number of lines there are where the text is only a part of them.
pub(super) fn bounded(text: &str, bounds: Bounds, total: Option<usize>) -> String {
    let lines = text.split('\n').count();
    let total = total.unwrap_or(lines);
    let kept = lines.min(bounds.lines);
    let end = text
        .match_indices('\n')
        .nth(bounds.lines.saturating_sub(1))
        .map_or(text.len(), |(at, _)| at);
    let mut shown = &text[..end];
    let mut missing = total.saturating_sub(kept);
    if units(shown) > bounds.chars {
        shown = head(shown, bounds.chars);
        missing = missing.max(total.saturating_sub(shown.split('\n').count()));
    }
    let cut = units(text) - units(shown);
    match (missing, cut) {
        (0, 0) => shown.to_owned(),
        (0, cut) => format!("{shown}\n... ({cut} more chars truncated)"),
        (missing, _) => format!("{shown}\n... ({missing} more lines truncated)"),
    }
}

/// A list within bounds, one item a line.
pub(super) fn listed(items: &[String], what: &str) -> String {
    let omitted = items.len().saturating_sub(MOST_ITEMS);
    let shown = items[..items.len() - omitted].join("\n");
    match omitted {
        0 => shown,
        omitted => format!("{shown}\n... ({omitted} more {what} truncated)"),
    }
}

/// A header and what follows it.
pub(super) fn section(header: &str, body: &str) -> String {
    match body.trim_end() {
        "" => format!("{header}\n"),
        body => format!("{header}\n\n{body}\n"),
    }
}

/// Any value as text: strings as they are, the rest as indented JSON.
pub(super) fn any(value: Option<&Json>) -> String {
    match value {
        None => String::new(),
        Some(Json::String(text)) => text.clone(),
        Some(value) => serde_json::to_string_pretty(value).unwrap_or_default(),
    }
}

pub(super) fn error(error: Option<&Json>) -> String {
    match any(error).trim() {
        "" => "Error".to_owned(),
        text => format!("Error: {text}"),
    }
}

pub(super) fn string(value: Option<&Json>) -> Option<&str> {
    value?.as_str()
}

pub(super) fn number(value: Option<&Json>) -> Option<f64> {
    value?.as_f64().filter(|number| number.is_finite())
}

/// A number as JavaScript prints it.
pub(super) fn shown(number: f64) -> String {
    match number.fract() == 0.0 && number.abs() < 1e15 {
        true => format!("{number:.0}"),
        false => number.to_string(),
    }
}

/// A number as JSON, whole ones without a point.
pub(super) fn json_number(number: f64) -> Json {
    #[allow(clippy::cast_possible_truncation)]
    match number.fract() == 0.0 && number.abs() < 1e15 {
        true => Json::from(number as i64),
        false => Json::from(number),
    }
}

/// One decimal, halves rounded up.
pub(super) fn tenths(number: f64) -> String {
    let exact_half = (number * 4.0).fract() == 0.0;
    let number = match exact_half {
        true => (number * 10.0 + 0.5).floor() / 10.0,
        false => number,
    };
    format!("{number:.1}")
}

/// `1 line`, `2 lines`.
pub(super) fn counted(number: f64, what: &str, whats: &str) -> String {
    let what = if number == 1.0 { what } else { whats };
    format!("{} {what}", shown(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn halves_round_up() {
        assert_eq!(
            (tenths(0.25), tenths(0.9), tenths(1.0)),
            ("0.3".into(), "0.9".into(), "1.0".into())
        );
    }

    #[test]
    fn what_is_missing_is_said_in_lines_else_in_characters() {
        let bounds = Bounds { chars: 5, lines: 2 };
        assert_eq!(bounded("ab\ncd", bounds, None), "ab\ncd");
        assert_eq!(
            bounded("a\nb\nc", bounds, None),
            "a\nb\n... (1 more lines truncated)"
        );
        assert_eq!(
            bounded("abcdefg", bounds, None),
            "abcde\n... (2 more chars truncated)"
        );
        assert_eq!(
            bounded("a", bounds, Some(9)),
            "a\n... (8 more lines truncated)"
        );
    }

    #[test]
    fn characters_are_counted_as_the_host_counts_them() {
        assert_eq!(units("a😀"), 3);
        assert_eq!(head("a😀b", 2), "a");
        assert_eq!(short("abcd", 3), "ab…");
        assert_eq!(line(" a\r\n\tb ", 9), "a b");
    }
}
