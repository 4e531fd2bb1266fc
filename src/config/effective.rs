//! Effective settings, with secrets removed for display.

use std::time::Duration;

use super::parse::{self, CALL_TIMEOUT, CONNECT_TIMEOUT, TOOL_TIMEOUT};
use super::settings::{Setting, SettingScope};
use super::values::{ValueSource, Values};
use super::warning::{SettingProblem, Warning};

const CACHE_TTL: &str = "PI_CURSOR_SDK_MODEL_CACHE_TTL_MS";

/// The effective value of a setting, safe to show to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveValue {
    /// The value; `(set)` for a secret.
    pub value: String,
    /// Where it comes from.
    pub source: ValueSource,
    /// The given value and why it is not in effect, if it is not.
    pub remark: Option<String>,
}

impl EffectiveValue {
    /// Returns the effective value of a setting, given the warnings its parsing produced.
    pub fn of(setting: &Setting, values: &Values, warnings: &[Warning]) -> Self {
        let given = values.get(setting.name);
        let given = given.map(|text| displayable(setting, text.trim()));
        let is_bad = |warning: &Warning| matches!(&warning.problem, SettingProblem::Value { name, .. } if *name == setting.name);
        let bad = warnings.iter().any(is_bad);
        let effective = effective_number(setting, values);
        let remark = match (&given, &effective) {
            (None, _) => None,
            (Some(given), _) if bad => Some(format!("{given:?} is not understood")),
            (Some(given), Some(effective)) => (given != effective)
                .then(|| format!("{given:?} was given; {}", override_reason(setting, values))),
            (Some(_), None) => ignored_items(setting, warnings),
        };
        let is_given = given.is_some() && !bad;
        let value = effective.or(given.filter(|_| !bad));
        let (value, source) = match value {
            Some(value) if is_given => (value, values.source(setting.name)),
            // The number of an unset variable follows from the same setting in the other unit.
            Some(value) if value != setting.default => {
                let other = setting.in_other_unit();
                let source = other.map(|other| values.source(other.name));
                (value, source.unwrap_or(ValueSource::Default))
            }
            _ => (setting.default.to_owned(), ValueSource::Default),
        };
        Self {
            value,
            source,
            remark,
        }
    }
}

/// Returns a remark that lists the ignored items of a list; `None` if no item is ignored.
fn ignored_items(setting: &Setting, warnings: &[Warning]) -> Option<String> {
    let parts: Vec<String> = warnings
        .iter()
        .filter_map(|warning| match &warning.problem {
            SettingProblem::Item { name, value, .. } if *name == setting.name => {
                Some(format!("{:?}", displayable(setting, value)))
            }
            _ => None,
        })
        .collect();
    (!parts.is_empty()).then(|| format!("without {}", parts.join(", ")))
}

/// Returns the value for display: `(set)` for keys, tokens and proxies, because proxy URLs may
/// contain passwords.
fn displayable(setting: &Setting, text: &str) -> String {
    let secret = setting.scope == SettingScope::Secret || setting.name.ends_with("_PROXY");
    if secret || text.contains('@') {
        "(set)".into()
    } else {
        text.to_owned()
    }
}

/// Returns the pairs of settings for the same time in milliseconds and in seconds, with the
/// effective time.
fn unit_pairs(values: &Values) -> [([&'static str; 2], Duration); 2] {
    [
        (TOOL_TIMEOUT, parse::tool_timeout(values)),
        (CONNECT_TIMEOUT, parse::connect_timeout(values)),
    ]
}

/// Returns the effective number of a numeric setting.
fn effective_number(setting: &Setting, values: &Values) -> Option<String> {
    for ([milliseconds, seconds], effective) in unit_pairs(values) {
        if setting.name == milliseconds {
            return Some(effective.as_millis().to_string());
        }
        if setting.name == seconds {
            return Some(effective.as_secs_f64().to_string());
        }
    }
    let text = values.get(setting.name)?;
    let number = match setting.name {
        CACHE_TTL => parse::leading_whole(text),
        CALL_TIMEOUT => {
            let within = |_| parse::bridge_call_timeout(values).as_millis() as u64;
            setting.number?.read(text).map(within)
        }
        _ => setting.number?.read(text),
    };
    number.map(|number| number.to_string())
}

/// Returns why the effective number differs from the given one.
fn override_reason(setting: &Setting, values: &Values) -> String {
    let wins = unit_pairs(values)
        .into_iter()
        .find_map(|([milliseconds, seconds], _)| {
            let set = || parse::positive(values.get(milliseconds)).is_some();
            (setting.name == seconds && set()).then_some(milliseconds)
        });
    match wins {
        Some(milliseconds) => format!("{milliseconds} wins"),
        None => setting.values.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::find;
    use super::super::values::{Environment, SettingReader};
    use super::*;

    /// Returns how a setting is shown when these variables are set.
    fn shown(name: &str, set: &[(&str, &str)]) -> String {
        let set = set
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let values = Values::from(&set.collect::<Environment>());
        let mut reader = SettingReader {
            values: &values,
            warnings: Vec::new(),
        };
        reader.number(name);
        let EffectiveValue {
            value,
            source,
            remark,
        } = EffectiveValue::of(find(name).unwrap(), &values, &reader.warnings);
        let remark = remark.map(|remark| format!("; {remark}"));
        format!("{value} ({source:?}{})", remark.unwrap_or_default())
    }

    #[test]
    fn the_effective_value_and_the_given_value_are_shown() {
        let idle = "PI_CURSOR_STREAM_IDLE_TIMEOUT_MS";
        let [tool_ms, tool_s] = TOOL_TIMEOUT;
        let long = "7200000";
        let cases = [
            (idle, vec![]),
            (idle, vec![(idle, "-5")]),
            (idle, vec![(idle, "7")]),
            (idle, vec![(idle, " 5000 ")]),
            (tool_s, vec![(tool_ms, "90000")]),
            (tool_ms, vec![(tool_s, "90")]),
            (tool_s, vec![(tool_ms, "90000"), (tool_s, "70")]),
            (tool_ms, vec![(tool_ms, "long"), (tool_s, "90")]),
            (tool_ms, vec![(tool_ms, "long")]),
            (CALL_TIMEOUT, vec![(CALL_TIMEOUT, long)]),
            (CACHE_TTL, vec![(CACHE_TTL, "7 days")]),
            ("PI_CURSOR_HTTP", vec![("PI_CURSOR_HTTP", "2")]),
            ("HTTPS_PROXY", vec![("HTTPS_PROXY", "http://me:word@host")]),
        ];
        let all: Vec<String> = cases
            .iter()
            .map(|(name, set)| format!("{name} = {}", shown(name, set)))
            .collect();
        insta::assert_snapshot!(all.join("\n"), @r#"
        PI_CURSOR_STREAM_IDLE_TIMEOUT_MS = 120000 (Default)
        PI_CURSOR_STREAM_IDLE_TIMEOUT_MS = 120000 (Default; "-5" is not understood)
        PI_CURSOR_STREAM_IDLE_TIMEOUT_MS = 1000 (Environment; "7" was given; milliseconds, at least 1000; 0: no limit)
        PI_CURSOR_STREAM_IDLE_TIMEOUT_MS = 5000 (Environment)
        PI_CURSOR_MCP_TOOL_TIMEOUT_SECONDS = 90 (Environment)
        PI_CURSOR_MCP_TOOL_TIMEOUT_MS = 90000 (Environment)
        PI_CURSOR_MCP_TOOL_TIMEOUT_SECONDS = 90 (Environment; "70" was given; PI_CURSOR_MCP_TOOL_TIMEOUT_MS wins)
        PI_CURSOR_MCP_TOOL_TIMEOUT_MS = 90000 (Environment; "long" is not understood)
        PI_CURSOR_MCP_TOOL_TIMEOUT_MS = 3600000 (Default; "long" is not understood)
        PI_CURSOR_PI_BRIDGE_CALL_TIMEOUT_MS = 3600000 (Environment; "7200000" was given; milliseconds, no more than any tool may take)
        PI_CURSOR_SDK_MODEL_CACHE_TTL_MS = 7 (Environment; "7 days" was given; 0, 1, 2 … milliseconds)
        PI_CURSOR_HTTP = 2 (Environment)
        HTTPS_PROXY = (set) (Environment)
        "#);
    }
}
