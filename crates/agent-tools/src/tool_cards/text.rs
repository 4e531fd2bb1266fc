//! Text formatting and truncation. Lengths are in UTF-16 code units, because hosts written in
//! JavaScript count them this way.

use serde_json::Value as Json;

/// The maximum length of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextLimits {
    pub(super) chars: usize,
    pub(super) lines: usize,
}

/// Limits of a result in a transcript.
pub(super) const TRANSCRIPT: TextLimits = TextLimits {
    chars: 24_000,
    lines: 800,
};
/// Maximum number of items of a list.
const MAX_ITEMS: usize = 200;
/// Maximum length of an argument in a summary.
pub(super) const MAX_ARGUMENT_CHARS: usize = 120;

pub(super) fn utf16_len(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.encode_utf16().count()
    }
}

/// Returns the first `max` units, without splitting a character.
pub(super) fn utf16_prefix(text: &str, max: usize) -> &str {
    let mut units = 0;
    for (at, c) in text.char_indices() {
        units += c.len_utf16();
        if units > max {
            return &text[..at];
        }
    }
    text
}

/// Truncates a text to `max` units; a truncated text ends with an ellipsis.
pub(super) fn truncate(text: &str, max: usize) -> String {
    if utf16_len(text) > max {
        format!("{}…", utf16_prefix(text, max.saturating_sub(1)))
    } else {
        text.to_owned()
    }
}

/// Replaces each run of white space by one space.
pub(super) fn collapse_whitespace(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns one line of at most `max` units; white space and control characters become spaces.
pub fn single_line(text: &str, max: usize) -> String {
    let plain: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    truncate(&collapse_whitespace(&plain), max)
}

/// Returns the first non-blank line, trimmed.
pub(super) fn first_line(text: &str) -> Option<&str> {
    text.split('\n')
        .map(str::trim)
        .find(|line| !line.is_empty())
}

/// Truncates a text to limits and appends the number of omitted lines or, within a line, of
/// omitted characters. `total` is the number of lines if the text is only a part.
pub(super) fn truncate_lines(text: &str, limits: TextLimits, total: Option<usize>) -> String {
    let lines = text.split('\n').count();
    let total = total.unwrap_or(lines);
    let kept = lines.min(limits.lines);
    let end = text
        .match_indices('\n')
        .nth(limits.lines.saturating_sub(1))
        .map_or(text.len(), |(at, _)| at);
    let mut shown = &text[..end];
    let mut missing = total.saturating_sub(kept);
    if utf16_len(shown) > limits.chars {
        shown = utf16_prefix(shown, limits.chars);
        missing = missing.max(total.saturating_sub(shown.split('\n').count()));
    }
    let cut = utf16_len(text) - utf16_len(shown);
    match (missing, cut) {
        (0, 0) => shown.to_owned(),
        (0, cut) => format!("{shown}\n... ({cut} more chars truncated)"),
        (missing, _) => format!("{shown}\n... ({missing} more lines truncated)"),
    }
}

/// Joins the items of a list, one per line, up to a maximum number.
pub(super) fn join_lines(items: &[String], unit: &str) -> String {
    let omitted = items.len().saturating_sub(MAX_ITEMS);
    let shown = items[..items.len() - omitted].join("\n");
    match omitted {
        0 => shown,
        omitted => format!("{shown}\n... ({omitted} more {unit} truncated)"),
    }
}

/// Formats a header and a body.
pub(super) fn section(header: &str, body: &str) -> String {
    match body.trim_end() {
        "" => format!("{header}\n"),
        body => format!("{header}\n\n{body}\n"),
    }
}

/// Formats any value: strings unchanged, others as indented JSON.
pub(super) fn to_text(value: Option<&Json>) -> String {
    match value {
        None => String::new(),
        Some(Json::String(text)) => text.clone(),
        Some(value) => serde_json::to_string_pretty(value).unwrap_or_default(),
    }
}

pub(super) fn error(error: Option<&Json>) -> String {
    match to_text(error).trim() {
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

/// Formats a number like JavaScript.
pub(super) fn format_number(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        format!("{number:.0}")
    } else {
        number.to_string()
    }
}

/// Converts a number to JSON; whole numbers without a decimal point.
pub(super) fn json_number(number: f64) -> Json {
    #[allow(clippy::cast_possible_truncation)]
    if number.fract() == 0.0 && number.abs() < 1e15 {
        Json::from(number as i64)
    } else {
        Json::from(number)
    }
}

/// Formats a number with one decimal, rounding halves up.
pub(super) fn one_decimal(number: f64) -> String {
    let is_exact_half = (number * 4.0).fract() == 0.0;
    let number = if is_exact_half {
        (number * 10.0 + 0.5).floor() / 10.0
    } else {
        number
    };
    format!("{number:.1}")
}

/// Formats a count with its unit, such as `1 line` or `2 lines`.
pub(super) fn with_unit(number: f64, unit: &str, units: &str) -> String {
    let unit = if number == 1.0 { unit } else { units };
    format!("{} {unit}", format_number(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn halves_round_up() {
        assert_eq!(
            (one_decimal(0.25), one_decimal(0.9), one_decimal(1.0)),
            ("0.3".into(), "0.9".into(), "1.0".into())
        );
    }

    #[test]
    fn omitted_lines_or_characters_are_counted() {
        let limits = TextLimits { chars: 5, lines: 2 };
        assert_eq!(truncate_lines("ab\ncd", limits, None), "ab\ncd");
        assert_eq!(
            truncate_lines("a\nb\nc", limits, None),
            "a\nb\n... (1 more lines truncated)"
        );
        assert_eq!(
            truncate_lines("abcdefg", limits, None),
            "abcde\n... (2 more chars truncated)"
        );
        assert_eq!(
            truncate_lines("a", limits, Some(9)),
            "a\n... (8 more lines truncated)"
        );
    }

    #[test]
    fn lengths_are_in_utf16_code_units() {
        assert_eq!(utf16_len("a😀"), 3);
        assert_eq!(utf16_prefix("a😀b", 2), "a");
        assert_eq!(truncate("abcd", 3), "ab…");
        assert_eq!(single_line(" a\r\n\tb ", 9), "a b");
    }
}
