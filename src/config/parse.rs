//! Parsers for the values of settings. Pure; the table of settings is in [`settings`].

use std::time::Duration;

use super::settings;
use super::values::Values;

/// The settings that [`tool_timeout`] reads.
pub const TOOL_TIMEOUT: [&str; 2] = [
    "PI_CURSOR_MCP_TOOL_TIMEOUT_MS",
    "PI_CURSOR_MCP_TOOL_TIMEOUT_SECONDS",
];
/// The settings that [`connect_timeout`] reads.
pub const CONNECT_TIMEOUT: [&str; 2] = [
    "PI_CURSOR_MCP_CONNECT_TIMEOUT_MS",
    "PI_CURSOR_MCP_CONNECT_TIMEOUT_SECONDS",
];
/// The setting that [`bridge_call_timeout`] reads.
pub const CALL_TIMEOUT: &str = "PI_CURSOR_PI_BRIDGE_CALL_TIMEOUT_MS";

/// Parses a switch: the usual spellings of on and off, `None` for anything else.
pub fn switch(text: Option<&str>) -> Option<bool> {
    match text?.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" | "enabled" => Some(true),
        "0" | "false" | "off" | "no" | "none" | "disabled" => Some(false),
        _ => None,
    }
}

/// Parses a number greater than zero as JavaScript does: decimals, exponents, `0x`, `0o`, `0b`.
pub fn positive(text: Option<&str>) -> Option<f64> {
    let text = text?.trim();
    let radix = text
        .get(..2)
        .and_then(|prefix| match prefix.to_ascii_lowercase().as_str() {
            "0x" => Some(16),
            "0o" => Some(8),
            "0b" => Some(2),
            _ => None,
        });
    let number = match radix {
        // Rust would accept a sign here, JavaScript does not.
        Some(_) if text[2..].starts_with('+') => return None,
        Some(radix) => u64::from_str_radix(&text[2..], radix).ok()? as f64,
        // Rust also parses `inf` and `nan`, which are not valid here.
        None if text.bytes().any(|byte| byte.is_ascii_digit()) => text.parse().ok()?,
        None => return None,
    };
    (number.is_finite() && number > 0.0).then_some(number)
}

/// Returns the integer at the start of a text, zero included; `None` if the text starts with no
/// integer or with a negative one.
pub fn leading_whole(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if digits == 0 {
        return None;
    }
    // A number that does not fit becomes the largest one.
    let number = text[..digits].parse().unwrap_or(u64::MAX);
    (!negative || number == 0).then_some(number)
}

/// Returns the value of this name, regardless of case.
pub(super) fn named<T: Copy>(known: &[(&str, T)], name: &str) -> Option<T> {
    let same = |(known, _): &&(&str, T)| known.eq_ignore_ascii_case(name.trim());
    known.iter().find(same).map(|(_, value)| *value)
}

/// Returns the non-empty items of a list with commas.
pub(super) fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

/// Returns how long a cached model list is used, in whole milliseconds; 0 means never. Returns a
/// day for anything else.
pub fn model_cache_ttl(text: Option<&str>) -> Duration {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    text.and_then(leading_whole)
        .map_or(DAY, Duration::from_millis)
}

/// Returns the given delay in milliseconds. The setting in milliseconds takes precedence over
/// the one in seconds; a value that is not a positive number is treated as unset.
fn delay(values: &Values, milliseconds: &str, seconds: Option<&str>) -> Option<f64> {
    positive(values.get(milliseconds)).or_else(|| {
        let seconds = positive(values.get(seconds?))?;
        Some(seconds * 1000.0)
    })
}

/// Returns the given delay or the default, within the bounds of the setting in milliseconds.
fn bounded(values: &Values, milliseconds: &str, seconds: Option<&str>, default: f64) -> Duration {
    let given = delay(values, milliseconds, seconds).unwrap_or(default);
    let number = settings::find(milliseconds).and_then(|setting| setting.number);
    Duration::from_millis(number.map_or(given as u64, |number| number.within(given)))
}

/// Returns how long a tool call may take.
pub fn tool_timeout(values: &Values) -> Duration {
    let [milliseconds, seconds] = TOOL_TIMEOUT;
    bounded(values, milliseconds, Some(seconds), 3_600_000.0)
}

/// Returns how long connecting to an MCP server may take.
pub fn connect_timeout(values: &Values) -> Duration {
    let [milliseconds, seconds] = CONNECT_TIMEOUT;
    bounded(values, milliseconds, Some(seconds), 10_000.0)
}

/// Returns how long a host may take for a tool call; never more than [`tool_timeout`].
pub fn bridge_call_timeout(values: &Values) -> Duration {
    bounded(values, CALL_TIMEOUT, None, f64::MAX).min(tool_timeout(values))
}

/// Returns which of Cursor's setting sources are loaded; `None` if none are.
pub fn setting_sources(text: Option<&str>) -> Option<Vec<String>> {
    let text = text.unwrap_or_default().trim();
    match text.to_ascii_lowercase().as_str() {
        "" | "1" | "true" | "on" | "all" => return Some(vec!["all".into()]),
        "0" | "false" | "off" | "none" | "omit" | "disabled" => return None,
        _ => {}
    }
    let sources: Vec<String> = text
        .split(',')
        .map(str::trim)
        .filter(|source| !source.is_empty())
        .map(str::to_owned)
        .collect();
    (!sources.is_empty()).then_some(sources)
}

/// How a task that Cursor delegates to a subagent is shown. Other clients have a setting for
/// this. We always show it as a subagent with its metadata; only the shared test vectors parse
/// these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskPresentation {
    /// As a task.
    Task,
    /// As a subagent.
    Subagent,
    /// As a subagent with its metadata.
    #[default]
    SubagentMeta,
}

impl TaskPresentation {
    /// Parses a name, which is case-sensitive; an unknown name is the default.
    pub fn parse(text: Option<&str>) -> Self {
        match text.unwrap_or_default().trim() {
            "task" => Self::Task,
            "subagent" => Self::Subagent,
            _ => Self::SubagentMeta,
        }
    }

    /// Returns the name that [`parse`](Self::parse) accepts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Subagent => "subagent",
            Self::SubagentMeta => "subagent-meta",
        }
    }
}

/// How a host displays output, for the choice between tool cards and plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisplaySurface {
    /// It displays or streams individual tool calls.
    Cards,
    /// It prints one final answer.
    Print,
}

/// Whether native tool calls become tool cards, and whether tools are registered for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeDisplay {
    /// Whether to show tool cards rather than lines of text.
    pub display: bool,
    /// Whether to register tools in the host that draw the cards.
    pub registration: bool,
}

impl NativeDisplay {
    /// Decides from the surface and the two settings. `known` is the mode the host reported, if
    /// any: no tools are registered in a host that reported [`DisplaySurface::Print`].
    pub fn resolve(
        surface: DisplaySurface,
        known: Option<DisplaySurface>,
        display: Option<bool>,
        register: Option<bool>,
    ) -> Self {
        let display = display.unwrap_or(surface == DisplaySurface::Cards);
        Self {
            display,
            registration: display
                && register.unwrap_or(true)
                && known != Some(DisplaySurface::Print),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::values::Environment;
    use super::*;

    #[test]
    fn numbers_are_parsed_as_in_javascript() {
        for (text, wanted) in [
            ("1e3", Some(1000.0)),
            (" 0x10 ", Some(16.0)),
            ("0b11", Some(3.0)),
            ("0x+1", None),
            ("0x", None),
            ("+7.", Some(7.0)),
            (".5", Some(0.5)),
            ("Infinity", None),
            ("1e999", None),
            ("-1", None),
            ("0", None),
            ("12px", None),
            ("é1", None),
            ("", None),
        ] {
            assert_eq!(positive(Some(text)), wanted, "{text:?}");
        }
        assert_eq!(leading_whole("12.9"), Some(12));
        assert_eq!(leading_whole("7 days"), Some(7));
        assert_eq!(leading_whole("-5"), None);
        assert_eq!(leading_whole("-0"), Some(0));
        assert_eq!(leading_whole("99999999999999999999999"), Some(u64::MAX));
    }

    #[test]
    fn fractions_of_a_millisecond_are_dropped() {
        let given = [
            ("PI_CURSOR_MCP_TOOL_TIMEOUT_MS", "70000.9"),
            ("PI_CURSOR_MCP_CONNECT_TIMEOUT_SECONDS", "1.2349"),
            ("PI_CURSOR_PI_BRIDGE_CALL_TIMEOUT_MS", "1500.5"),
        ];
        let given = given.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let values = Values::from(&Environment::from(given));
        assert_eq!(tool_timeout(&values), Duration::from_millis(70_000));
        assert_eq!(connect_timeout(&values), Duration::from_millis(1_234));
        assert_eq!(bridge_call_timeout(&values), Duration::from_millis(1_500));
    }

    #[test]
    fn presentation_names_are_case_sensitive() {
        let read = |text| TaskPresentation::parse(Some(text)).name();
        assert_eq!(read(" subagent "), "subagent");
        assert_eq!(read("TASK"), "subagent-meta");
        assert_eq!(read("tasks"), "subagent-meta");
    }
}
