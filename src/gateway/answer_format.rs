//! The form of an answer's text (`response_format`). Cursor cannot be made to write JSON, so the
//! model is instructed, its answer is validated, and a wrong one is corrected once.

use jsonschema::Validator;
use serde_json::Value as Json;

use super::api_error::ApiError;

/// The form of an answer's text.
#[derive(Debug, Default)]
pub(super) enum AnswerFormat {
    /// Any text.
    #[default]
    Text,
    /// One JSON object.
    JsonObject,
    /// JSON that a schema describes.
    JsonSchema(Box<JsonSchema>),
}

/// A schema for an answer.
#[derive(Debug)]
pub(super) struct JsonSchema {
    schema: Json,
    validator: Validator,
}

const ONLY_JSON: &str = "Answer with JSON only: no other text before or after it, no code fence.";

impl AnswerFormat {
    /// Reads a format; `at` names the field. Chat completions nest the schema in `json_schema`.
    pub(super) fn parse(format: Option<&Json>, at: &str) -> Result<Self, ApiError> {
        let Some(format) = format.filter(|format| !format.is_null()) else {
            return Ok(Self::Text);
        };
        match format["type"].as_str() {
            Some("text") => Ok(Self::Text),
            Some("json_object") => Ok(Self::JsonObject),
            Some("json_schema") => {
                let (schema, at) = match &format["json_schema"] {
                    Json::Null => (&format["schema"], format!("{at}.schema")),
                    nested => (&nested["schema"], format!("{at}.json_schema.schema")),
                };
                if !schema.is_object() {
                    return Err(ApiError::field(&at, "expected a JSON Schema"));
                }
                let validator = jsonschema::validator_for(schema).map_err(|error| {
                    let problem = format!("this JSON Schema cannot be used: {error}");
                    ApiError::field(&at, &problem)
                })?;
                let schema = schema.clone();
                Ok(Self::JsonSchema(Box::new(JsonSchema { schema, validator })))
            }
            _ => {
                let problem = "expected text, json_object or json_schema";
                Err(ApiError::field(&format!("{at}.type"), problem))
            }
        }
    }

    /// Returns what the system prompt says about the format.
    pub(super) fn instruction(&self) -> Option<String> {
        match self {
            Self::Text => None,
            Self::JsonObject => Some(format!("{ONLY_JSON} It must be one JSON object.")),
            Self::JsonSchema(format) => Some(format!(
                "{ONLY_JSON} It must be valid for this JSON Schema:\n{}",
                format.schema
            )),
        }
    }

    /// Returns the message that asks for a correction.
    pub(super) fn correction(problem: &str) -> String {
        format!("Your last answer cannot be used: {problem}. Answer again. {ONLY_JSON}")
    }

    /// Returns the text of a valid answer, without a code fence around it.
    pub(super) fn check<'a>(&self, answer: &'a str) -> Result<&'a str, String> {
        let text = match self {
            Self::Text => return Ok(answer),
            Self::JsonObject | Self::JsonSchema(_) => without_fence(answer),
        };
        let json: Json =
            serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        match self {
            Self::JsonSchema(format) => match format.validator.validate(&json) {
                Ok(()) => Ok(text),
                Err(error) => Err(format!(
                    "at {:?}: {error}",
                    error.instance_path().to_string()
                )),
            },
            _ if json.is_object() => Ok(text),
            _ => Err("it is not a JSON object".into()),
        }
    }
}

fn without_fence(answer: &str) -> &str {
    let text = answer.trim();
    let Some(inner) = text
        .strip_prefix("```")
        .and_then(|text| text.strip_suffix("```"))
    else {
        return text;
    };
    // The first line may name the language.
    match inner.split_once('\n') {
        Some((first, rest)) if !first.contains(['{', '[']) => rest.trim(),
        _ => inner.trim(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_checked_against_its_format() {
        let object = AnswerFormat::parse(Some(&json!({"type": "json_object"})), "f").unwrap();
        assert_eq!(object.check(" {\"a\": 1}\n"), Ok("{\"a\": 1}"));
        assert_eq!(object.check("```json\n{}\n```"), Ok("{}"));
        assert!(object.check("[1]").is_err());
        assert!(
            object
                .check("Here it is: {}")
                .unwrap_err()
                .contains("not JSON")
        );
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}},
                            "required": ["n"], "additionalProperties": false});
        for format in [
            json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}),
            json!({"type": "json_schema", "name": "x", "schema": schema}),
        ] {
            let format = AnswerFormat::parse(Some(&format), "f").unwrap();
            assert!(format.instruction().unwrap().contains("\"integer\""));
            assert_eq!(format.check("{\"n\":1}"), Ok("{\"n\":1}"));
            assert!(format.check("{\"n\":\"1\"}").unwrap_err().contains("/n"));
            assert!(format.check("{}").is_err());
        }
    }

    #[test]
    fn an_invalid_format_is_named() {
        let cases = [
            (json!({"type": "xml"}), "f.type"),
            (json!({"type": "json_schema"}), "f.schema"),
            (
                json!({"type": "json_schema", "json_schema": {}}),
                "f.json_schema.schema",
            ),
            (
                json!({"type": "json_schema", "schema": {"type": "nothing"}}),
                "f.schema",
            ),
        ];
        for (format, param) in cases {
            let error = AnswerFormat::parse(Some(&format), "f").unwrap_err();
            assert_eq!(error.param(), Some(param), "{format}");
        }
        assert!(
            AnswerFormat::parse(None, "f")
                .unwrap()
                .instruction()
                .is_none()
        );
    }
}
