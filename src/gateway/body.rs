//! Parses request bodies. An error names the field that is wrong.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, SeqAccess, Visitor};

use super::api_error::ApiError;

/// How many messages a request may have: each takes many times its bytes in the body.
pub(super) const MAX_MESSAGES: usize = 20_000;

/// Parses a body that must be one JSON object.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    // Checked here, because a list could also be read as the fields of an object.
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if first.is_some_and(|byte| *byte != b'{') {
        return Err(ApiError::field("", "the body must be a JSON object"));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let parsed: T = serde_path_to_error::deserialize(&mut json).map_err(field_error)?;
    json.end().map_err(|error| {
        let problem = format!("the body is more than one JSON value: {error}");
        ApiError::field("", &problem)
    })?;
    Ok(parsed)
}

/// Returns which field is wrong, and how. A missing field is named only in the error's text.
fn field_error(error: serde_path_to_error::Error<serde_json::Error>) -> ApiError {
    let path = error.path().to_string();
    let inner = error.into_inner();
    if !inner.is_data() {
        return ApiError::field("", &format!("the body is not JSON: {inner}"));
    }
    let text = inner.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    let missing = text
        .strip_prefix("missing field `")
        .and_then(|rest| rest.strip_suffix('`'));
    match (missing, path.as_str()) {
        (Some(field), ".") => ApiError::field(field, "it is missing"),
        (Some(field), path) => ApiError::field(&format!("{path}.{field}"), "it is missing"),
        (None, ".") => ApiError::field("", &in_terms_of_json(text)),
        (None, path) => ApiError::field(path, &in_terms_of_json(text)),
    }
}

/// The words of Rust's types, and JSON's for the same.
const JSON_TERMS: [(&str, &str); 6] = [
    ("expected u64", "expected a whole number of 0 or more"),
    ("expected a sequence", "expected a list"),
    ("expected a map", "expected an object"),
    ("invalid type: sequence", "invalid type: list"),
    ("invalid type: map", "invalid type: object"),
    ("invalid type: floating point ", "invalid type: number "),
];

/// Replaces the names of Rust's types in an error, because they mean nothing to a client.
fn in_terms_of_json(text: &str) -> String {
    let text = match text.split_once("expected struct ") {
        Some((found, _)) => format!("{found}expected an object"),
        None => text.to_owned(),
    };
    let terms = JSON_TERMS.iter();
    terms.fold(text, |text, (rust, json)| text.replace(rust, json))
}

/// Parses a list of messages, and stops at the first one over the limit before the rest takes
/// memory.
pub(super) fn bounded<'de, D, T>(source: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    source.deserialize_seq(BoundedList(PhantomData))
}

/// Reads a bounded list.
pub(super) struct BoundedList<T>(pub(super) PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for BoundedList<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == MAX_MESSAGES {
                let problem = format!("a request may have {MAX_MESSAGES} messages at most");
                return Err(A::Error::custom(problem));
            }
            list.push(item);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its errors are tested")]
    struct Outer {
        inner: Option<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only its errors are tested")]
    struct Inner {
        name: String,
        count: Option<u64>,
        list: Option<Vec<String>>,
    }

    #[test]
    fn an_error_names_no_rust_type() {
        for text in [
            "[]",
            "\"hello\"",
            "7",
            r#"{"inner": 7}"#,
            r#"{"inner": {"name": 7}}"#,
        ] {
            let error = parse::<Outer>(text.as_bytes()).unwrap_err();
            let message = error.message();
            assert!(
                !message.contains("Outer") && !message.contains("Inner"),
                "{message}"
            );
            assert!(!message.contains("struct"), "{message}");
        }
        let message = |inner: &str| {
            let body = format!(r#"{{"inner": {{"name": "a", {inner}}}}}"#);
            let error = parse::<Outer>(body.as_bytes()).unwrap_err();
            error.message().to_owned()
        };
        let number =
            "inner.count: invalid value: integer `-1`, expected a whole number of 0 or more";
        assert_eq!(message(r#""count": -1"#), number);
        let list = "inner.list: invalid type: object, expected a list";
        assert_eq!(message(r#""list": {}"#), list);
        let error = parse::<Outer>(br#"{"inner": {}}"#).unwrap_err();
        assert_eq!(error.param(), Some("inner.name"));
        for text in ["{", "", "{} {}"] {
            assert!(
                !parse::<Outer>(text.as_bytes())
                    .unwrap_err()
                    .message()
                    .is_empty()
            );
        }
    }
}
