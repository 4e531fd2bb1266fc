//! JSON with comments and trailing commas, as users write it in settings.

use jsonc_parser::{ParseOptions, parse_to_serde_value};
use serde_json::Value as Json;

/// A text that is not JSON. It quotes nothing, because the text could contain a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not JSON (line {line})")]
pub(super) struct NotJson {
    /// The line of the error, counted from 1.
    pub(super) line: usize,
}

/// Comments and trailing commas only: Cursor rejects the parser's other extensions.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Parses JSON with comments and trailing commas. A text without a value is an error.
pub(super) fn parse(text: &str) -> Result<Json, NotJson> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let value: Option<Json> = parse_to_serde_value(text, &OPTIONS).map_err(|error| NotJson {
        line: error.line_display(),
    })?;
    value.ok_or(NotJson { line: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn comments_and_commas() {
        let text = r#"// head
        { "a": "http://x/*y*/\"//", /* b */ "c": [1, 2,], }
        // end"#;
        let read = parse(text).unwrap();
        assert_eq!(read, json!({"a": "http://x/*y*/\"//", "c": [1, 2]}));
        for not_json in ["{,}", "[,]", "/* open", "", "// only", "{'a': 1}", "{a: 1}"] {
            assert!(parse(not_json).is_err(), "{not_json}");
        }
    }

    #[test]
    fn errors_name_their_line() {
        assert_eq!(parse("{\"a\" 1}"), Err(NotJson { line: 1 }));
        let error = parse("{\n  // comment\n  \"a\" 1\n}").unwrap_err();
        assert_eq!(error.to_string(), "it is not JSON (line 3)");
    }

    #[test]
    fn deep_nesting_is_an_error() {
        assert!(parse(&"[".repeat(100_000)).is_err());
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse(&deep).is_err());
    }
}
