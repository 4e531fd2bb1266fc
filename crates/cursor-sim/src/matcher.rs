//! Compares a JSON value with a pattern.
//!
//! Objects: every member of the pattern must match. Arrays: same length, item by item.
//! Anything else: equal. A pattern may have one operator in place of a value:
//! `{"$contains": "text"}`, `{"$any": true}`, `{"$absent": true}`, `{"$equals": value}`.

use serde_json::Value;

use super::schema::MessageJson;

/// Longest excerpt of a value in a message.
const MAX_EXCERPT: usize = 300;

const OPERATORS: &str = "$contains, $any, $absent, $equals";

/// Where a value differs from its pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {} {expected}, got {got}", location(at))]
pub(super) struct Mismatch {
    /// JSON pointer to the value.
    at: String,
    expected: String,
    got: String,
}

fn location(at: &str) -> &str {
    if at.is_empty() { "the value to be" } else { at }
}

/// Returns an error unless the pattern is a valid operator.
pub(super) fn check_operator(pattern: &Value) -> Result<(), String> {
    let known = pattern.as_object().is_some_and(|object| object.len() == 1)
        && match operator(pattern) {
            Some(("$contains", Value::String(_)) | ("$equals", _)) => true,
            Some(("$any" | "$absent", value)) => value == &Value::Bool(true),
            _ => false,
        };
    if known {
        Ok(())
    } else {
        Err(format!(
            "{} is not an operator; expected one of {OPERATORS}",
            excerpt(Some(pattern))
        ))
    }
}

fn operator(pattern: &Value) -> Option<(&str, &Value)> {
    let (name, value) = pattern.as_object()?.iter().next()?;
    is_operator(name).then_some((name.as_str(), value))
}

/// Returns whether a member name is an operator. Operators start with a lowercase letter;
/// variables (`$WS`) do not.
pub(super) fn is_operator(name: &str) -> bool {
    name.strip_prefix('$')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
}

/// Compares a message with a pattern, which may include fields that have their default value.
pub(super) fn matches_message(pattern: &Value, message: &MessageJson) -> Result<(), Mismatch> {
    match matches(pattern, Some(&message.present)) {
        Err(mismatch) if matches(pattern, Some(&message.with_defaults)).is_err() => Err(mismatch),
        _ => Ok(()),
    }
}

/// Compares a value with a pattern.
pub(super) fn matches(pattern: &Value, actual: Option<&Value>) -> Result<(), Mismatch> {
    compare(pattern, actual, &mut String::new())
}

fn compare(pattern: &Value, actual: Option<&Value>, at: &mut String) -> Result<(), Mismatch> {
    let equal = match (operator(pattern), pattern, actual) {
        (Some(("$any", _)), _, actual) => actual.is_some(),
        (Some(("$absent", _)), _, actual) => actual.is_none(),
        (Some(("$equals", expected)), _, Some(actual)) => same(expected, actual),
        (Some(("$contains", Value::String(part))), _, Some(Value::String(text))) => {
            text.contains(part.as_str())
        }
        (Some(_), _, _) => false,
        (None, Value::Object(members), Some(Value::Object(object))) => {
            for (name, pattern) in members {
                at_member(at, name, |at| compare(pattern, object.get(name), at))?;
            }
            true
        }
        (None, Value::Array(patterns), Some(Value::Array(items)))
            if patterns.len() == items.len() =>
        {
            for (index, (pattern, item)) in patterns.iter().zip(items).enumerate() {
                at_member(at, &index.to_string(), |at| {
                    compare(pattern, Some(item), at)
                })?;
            }
            true
        }
        (None, pattern, Some(actual)) => same(pattern, actual),
        (None, _, None) => false,
    };
    if equal {
        return Ok(());
    }
    Err(Mismatch {
        at: at.clone(),
        expected: excerpt(Some(pattern)),
        got: excerpt(actual),
    })
}

fn at_member(
    at: &mut String,
    name: &str,
    compare: impl FnOnce(&mut String) -> Result<(), Mismatch>,
) -> Result<(), Mismatch> {
    let before = at.len();
    at.push('/');
    at.push_str(name);
    let result = compare(at);
    at.truncate(before);
    result
}

/// Returns whether two values are equal; a number also equals its string, because proto3 JSON
/// writes 64-bit numbers as strings.
fn same(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::Number(number), Value::String(text)) => number.to_string() == *text,
        (Value::Number(expected), Value::Number(actual)) => {
            expected == actual || expected.as_f64() == actual.as_f64()
        }
        (Value::Array(expected), Value::Array(actual)) => {
            expected.len() == actual.len() && expected.iter().zip(actual).all(|(w, a)| same(w, a))
        }
        (Value::Object(expected), Value::Object(actual)) => {
            expected.len() == actual.len()
                && expected
                    .iter()
                    .all(|(name, value)| actual.get(name).is_some_and(|a| same(value, a)))
        }
        _ => expected == actual,
    }
}

/// Returns a value as text, truncated.
pub(super) fn excerpt(value: Option<&Value>) -> String {
    let Some(value) = value else {
        return "nothing".into();
    };
    let text = value.to_string();
    if text.len() <= MAX_EXCERPT {
        return text;
    }
    let mut end = MAX_EXCERPT;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}… ({} bytes)", &text[..end], text.len())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mismatch(pattern: Value, actual: Value) -> Option<String> {
        matches(&pattern, Some(&actual))
            .err()
            .map(|e| e.to_string())
    }

    #[test]
    fn objects_match_as_subsets_and_arrays_item_by_item() {
        assert_eq!(mismatch(json!({"a": 1}), json!({"a": 1, "b": 2})), None);
        assert_eq!(mismatch(json!([{"a": 1}]), json!([{"a": 1, "b": 2}])), None);
        assert_eq!(
            mismatch(json!({"a": [1]}), json!({"a": [1, 2]})).unwrap(),
            "expected /a [1], got [1,2]"
        );
        assert_eq!(
            mismatch(json!({"a": {"b": true}}), json!({"a": {}})).unwrap(),
            "expected /a/b true, got nothing"
        );
        assert_eq!(
            mismatch(json!("x"), json!("y")).unwrap(),
            "expected the value to be \"x\", got \"y\""
        );
    }

    #[test]
    fn operators_match_values() {
        assert_eq!(
            mismatch(json!({"a": {"$contains": "ell"}}), json!({"a": "hello"})),
            None
        );
        assert_eq!(
            mismatch(json!({"a": {"$any": true}}), json!({"a": null})),
            None
        );
        assert_eq!(
            mismatch(json!({"b": {"$absent": true}}), json!({"a": 1})),
            None
        );
        assert_eq!(
            mismatch(json!({"a": {"$absent": true}}), json!({"a": 1})).unwrap(),
            "expected /a {\"$absent\":true}, got 1"
        );
        assert_eq!(
            mismatch(json!({"a": {"$equals": {}}}), json!({"a": {"b": 1}})).unwrap(),
            "expected /a {\"$equals\":{}}, got {\"b\":1}"
        );
    }

    #[test]
    fn numbers_match_their_strings() {
        assert_eq!(mismatch(json!({"size": 17}), json!({"size": "17"})), None);
        assert!(mismatch(json!({"size": 17}), json!({"size": "18"})).is_some());
    }

    #[test]
    fn unknown_operators_are_reported() {
        assert!(check_operator(&json!({"$contains": "x"})).is_ok());
        assert_eq!(
            check_operator(&json!({"$like": "x"})).unwrap_err(),
            "{\"$like\":\"x\"} is not an operator; expected one of $contains, $any, $absent, $equals"
        );
    }
}
