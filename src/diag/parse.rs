//! What the texts of settings mean. Pure; the table of settings is next door.

use std::time::Duration;

use super::settings;

/// The settings of [`tool_timeout`].
pub const TOOL_TIMEOUT: [&str; 2] = [
    "PI_CURSOR_MCP_TOOL_TIMEOUT_MS",
    "PI_CURSOR_MCP_TOOL_TIMEOUT_SECONDS",
];
/// The settings of [`connect_timeout`].
pub const CONNECT_TIMEOUT: [&str; 2] = [
    "PI_CURSOR_MCP_CONNECT_TIMEOUT_MS",
    "PI_CURSOR_MCP_CONNECT_TIMEOUT_SECONDS",
];
/// The setting of [`bridge_call_timeout`].
pub const CALL_TIMEOUT: &str = "PI_CURSOR_PI_BRIDGE_CALL_TIMEOUT_MS";

/// A switch: the usual words for on and off, `None` for anything else.
pub fn switch(text: Option<&str>) -> Option<bool> {
    match text?.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" | "enabled" => Some(true),
        "0" | "false" | "off" | "no" | "none" | "disabled" => Some(false),
        _ => None,
    }
}

/// A number over zero, as JavaScript would read it: decimals, exponents, `0x`, `0o`, `0b`.
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
        // Rust would also take a sign here.
        Some(_) if text[2..].starts_with('+') => return None,
        Some(radix) => u64::from_str_radix(&text[2..], radix).ok()? as f64,
        // Rust also reads words such as `inf`; those are no numbers here.
        None if text.bytes().any(|byte| byte.is_ascii_digit()) => text.parse().ok()?,
        None => return None,
    };
    (number.is_finite() && number > 0.0).then_some(number)
}

/// A whole number at the start of a text, zero included; `None` if there is none or it is
/// negative.
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
    // More digits than fit are still a number, if a strange one.
    let number = text[..digits].parse().unwrap_or(u64::MAX);
    (!negative || number == 0).then_some(number)
}

/// Milliseconds win over seconds; what is no number is as if unset.
fn delay(
    env: &impl Fn(&str) -> Option<String>,
    milliseconds: &str,
    seconds: Option<&str>,
) -> Option<f64> {
    positive(env(milliseconds).as_deref()).or_else(|| {
        let seconds = positive(env(seconds?).as_deref())?;
        Some(seconds * 1000.0)
    })
}

/// The delay of the settings, or else this, within the bounds of the setting in milliseconds.
fn bounded(
    env: &impl Fn(&str) -> Option<String>,
    milliseconds: &str,
    seconds: Option<&str>,
    default: f64,
) -> Duration {
    let given = delay(env, milliseconds, seconds).unwrap_or(default);
    let number = settings::find(milliseconds).and_then(|setting| setting.number);
    Duration::from_millis(number.map_or(given as u64, |number| number.within(given)))
}

/// How long a tool of an MCP server may take.
pub fn tool_timeout(env: &impl Fn(&str) -> Option<String>) -> Duration {
    let [milliseconds, seconds] = TOOL_TIMEOUT;
    bounded(env, milliseconds, Some(seconds), 3_600_000.0)
}

/// How long connecting to an MCP server may take.
pub fn connect_timeout(env: &impl Fn(&str) -> Option<String>) -> Duration {
    let [milliseconds, seconds] = CONNECT_TIMEOUT;
    bounded(env, milliseconds, Some(seconds), 10_000.0)
}

/// How long a host may take for a tool of its own; never longer than any tool may.
pub fn bridge_call_timeout(env: &impl Fn(&str) -> Option<String>) -> Duration {
    bounded(env, CALL_TIMEOUT, None, f64::MAX).min(tool_timeout(env))
}

/// Which of Cursor's setting sources are loaded; `None` for none at all.
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

/// How a task Cursor gives to a helper of its own is shown, as other clients let one choose.
/// We show it as a subagent with what is known and have no setting for it; only the shared
/// vectors read these words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskPresentation {
    /// As a task.
    Task,
    /// As a subagent.
    Subagent,
    /// As a subagent with what is known about it.
    #[default]
    SubagentMeta,
}

impl TaskPresentation {
    /// Reads the setting, in small letters as it is written; anything unknown is the default.
    pub fn parse(text: Option<&str>) -> Self {
        match text.unwrap_or_default().trim() {
            "task" => Self::Task,
            "subagent" => Self::Subagent,
            _ => Self::SubagentMeta,
        }
    }

    /// The word of the setting.
    pub fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Subagent => "subagent",
            Self::SubagentMeta => "subagent-meta",
        }
    }
}

/// What a host looks like from here, for the choice between cards and plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// It shows or streams single tool calls.
    Cards,
    /// It prints one answer.
    Print,
}

/// Whether Cursor's tool calls become cards, and whether tools are registered for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeDisplay {
    /// Cards rather than lines of text.
    pub display: bool,
    /// Tools registered in the host to draw them.
    pub registration: bool,
}

impl NativeDisplay {
    /// `known` is the host's own word for its mode, where it has one: only a host that says
    /// it prints is never given tools.
    pub fn resolve(
        surface: Surface,
        known: Option<Surface>,
        display: Option<&str>,
        register: Option<&str>,
    ) -> Self {
        let display = switch(display).unwrap_or(surface == Surface::Cards);
        Self {
            display,
            registration: display
                && switch(register).unwrap_or(true)
                && known != Some(Surface::Print),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_a_host_reads_them() {
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
    fn parts_of_a_millisecond_are_dropped() {
        let env = |name: &str| {
            let text = match name {
                "PI_CURSOR_MCP_TOOL_TIMEOUT_MS" => "70000.9",
                "PI_CURSOR_MCP_CONNECT_TIMEOUT_SECONDS" => "1.2349",
                "PI_CURSOR_PI_BRIDGE_CALL_TIMEOUT_MS" => "1500.5",
                _ => return None,
            };
            Some(text.to_owned())
        };
        assert_eq!(tool_timeout(&env), Duration::from_millis(70_000));
        assert_eq!(connect_timeout(&env), Duration::from_millis(1_234));
        assert_eq!(bridge_call_timeout(&env), Duration::from_millis(1_500));
    }

    #[test]
    fn presentations_are_words_as_they_are_written() {
        let read = |text| TaskPresentation::parse(Some(text)).name();
        assert_eq!(read(" subagent "), "subagent");
        assert_eq!(read("TASK"), "subagent-meta");
        assert_eq!(read("tasks"), "subagent-meta");
    }
}
