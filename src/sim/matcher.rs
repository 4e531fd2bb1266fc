//! Compares a JSON value with a pattern.
//!
//! Objects: every member of the pattern must match. Arrays: same length, item by item.
//! Anything else: equal. Instead of a value a pattern may hold one operator:
//! `{"$contains": "text"}`, `{"$any": true}`, `{"$absent": true}`, `{"$equals": value}`.

use serde_json::Value;

use super::schema::Shown;

/// Longest value a message shows.
const SHOWN: usize = 300;

const OPERATORS: &str = "$contains, $any, $absent, $equals";

/// Where a value differs from its pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {} {expected}, got {got}", place(at))]
pub(super) struct Mismatch {
    /// JSON pointer to the place.
    at: String,
    expected: String,
    got: String,
}

fn place(at: &str) -> &str {
    if at.is_empty() { "the value to be" } else { at }
}

/// Says whether an operator table is one we know.
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
            "{} is no operator; expected one of {OPERATORS}",
            show(Some(pattern))
        ))
    }
}

fn operator(pattern: &Value) -> Option<(&str, &Value)> {
    let (name, value) = pattern.as_object()?.iter().next()?;
    is_operator(name).then_some((name.as_str(), value))
}

/// Operators are written small; a member named by a variable (`$WS`) is none.
pub(super) fn is_operator(name: &str) -> bool {
    name.strip_prefix('$')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
}

/// Compares a message with a pattern, which may or may not spell out defaults.
pub(super) fn fits(pattern: &Value, shown: &Shown) -> Result<(), Mismatch> {
    match matches(pattern, Some(&shown.present)) {
        Err(mismatch) if matches(pattern, Some(&shown.full)).is_err() => Err(mismatch),
        _ => Ok(()),
    }
}

/// Compares a value with a pattern.
pub(super) fn matches(pattern: &Value, actual: Option<&Value>) -> Result<(), Mismatch> {
    compare(pattern, actual, &mut String::new())
}

fn compare(pattern: &Value, actual: Option<&Value>, at: &mut String) -> Result<(), Mismatch> {
    let fits = match (operator(pattern), pattern, actual) {
        (Some(("$any", _)), _, actual) => actual.is_some(),
        (Some(("$absent", _)), _, actual) => actual.is_none(),
        (Some(("$equals", wanted)), _, Some(actual)) => same(wanted, actual),
        (Some(("$contains", Value::String(part))), _, Some(Value::String(text))) => {
            text.contains(part.as_str())
        }
        (Some(_), _, _) => false,
        (None, Value::Object(members), Some(Value::Object(object))) => {
            for (name, pattern) in members {
                inside(at, name, |at| compare(pattern, object.get(name), at))?;
            }
            true
        }
        (None, Value::Array(patterns), Some(Value::Array(items)))
            if patterns.len() == items.len() =>
        {
            for (index, (pattern, item)) in patterns.iter().zip(items).enumerate() {
                inside(at, &index.to_string(), |at| {
                    compare(pattern, Some(item), at)
                })?;
            }
            true
        }
        (None, pattern, Some(actual)) => same(pattern, actual),
        (None, _, None) => false,
    };
    if fits {
        return Ok(());
    }
    Err(Mismatch {
        at: at.clone(),
        expected: show(Some(pattern)),
        got: show(actual),
    })
}

fn inside(
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

/// Equality, except that proto3 JSON writes 64-bit numbers as strings.
fn same(wanted: &Value, actual: &Value) -> bool {
    match (wanted, actual) {
        (Value::Number(number), Value::String(text)) => number.to_string() == *text,
        (Value::Number(wanted), Value::Number(actual)) => {
            wanted == actual || wanted.as_f64() == actual.as_f64()
        }
        (Value::Array(wanted), Value::Array(actual)) => {
            wanted.len() == actual.len() && wanted.iter().zip(actual).all(|(w, a)| same(w, a))
        }
        (Value::Object(wanted), Value::Object(actual)) => {
            wanted.len() == actual.len()
                && wanted
                    .iter()
                    .all(|(name, value)| actual.get(name).is_some_and(|a| same(value, a)))
        }
        _ => wanted == actual,
    }
}

/// A value for a message, cut short.
pub(super) fn show(value: Option<&Value>) -> String {
    let Some(value) = value else {
        return "nothing".into();
    };
    let text = value.to_string();
    if text.len() <= SHOWN {
        return text;
    }
    let mut end = SHOWN;
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

    fn complaint(pattern: Value, actual: Value) -> Option<String> {
        matches(&pattern, Some(&actual))
            .err()
            .map(|e| e.to_string())
    }

    #[test]
    fn objects_are_subsets_and_arrays_are_whole() {
        assert_eq!(complaint(json!({"a": 1}), json!({"a": 1, "b": 2})), None);
        assert_eq!(
            complaint(json!([{"a": 1}]), json!([{"a": 1, "b": 2}])),
            None
        );
        assert_eq!(
            complaint(json!({"a": [1]}), json!({"a": [1, 2]})).unwrap(),
            "expected /a [1], got [1,2]"
        );
        assert_eq!(
            complaint(json!({"a": {"b": true}}), json!({"a": {}})).unwrap(),
            "expected /a/b true, got nothing"
        );
        assert_eq!(
            complaint(json!("x"), json!("y")).unwrap(),
            "expected the value to be \"x\", got \"y\""
        );
    }

    #[test]
    fn operators_stand_for_values() {
        assert_eq!(
            complaint(json!({"a": {"$contains": "ell"}}), json!({"a": "hello"})),
            None
        );
        assert_eq!(
            complaint(json!({"a": {"$any": true}}), json!({"a": null})),
            None
        );
        assert_eq!(
            complaint(json!({"b": {"$absent": true}}), json!({"a": 1})),
            None
        );
        assert_eq!(
            complaint(json!({"a": {"$absent": true}}), json!({"a": 1})).unwrap(),
            "expected /a {\"$absent\":true}, got 1"
        );
        assert_eq!(
            complaint(json!({"a": {"$equals": {}}}), json!({"a": {"b": 1}})).unwrap(),
            "expected /a {\"$equals\":{}}, got {\"b\":1}"
        );
    }

    #[test]
    fn long_numbers_may_be_strings() {
        assert_eq!(complaint(json!({"size": 17}), json!({"size": "17"})), None);
        assert!(complaint(json!({"size": 17}), json!({"size": "18"})).is_some());
    }

    #[test]
    fn unknown_operators_are_named() {
        assert!(check_operator(&json!({"$contains": "x"})).is_ok());
        assert_eq!(
            check_operator(&json!({"$like": "x"})).unwrap_err(),
            "{\"$like\":\"x\"} is no operator; expected one of $contains, $any, $absent, $equals"
        );
    }
}
