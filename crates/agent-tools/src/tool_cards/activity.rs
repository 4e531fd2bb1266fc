//! One completed tool call of Cursor's agent, independent of its wire format.

use serde_json::{Map, Value as Json};

/// A completed tool call: its name, its arguments, its result.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Activity {
    /// Cursor's name of the tool, if it was reported.
    pub name: Option<String>,
    /// The arguments.
    pub arguments: Map<String, Json>,
    /// The result: `{status, value | error}`, or the value alone.
    pub result: Option<Json>,
}

impl Activity {
    /// Returns the approximate memory usage.
    pub(super) fn bytes(&self) -> usize {
        let name = self.name.as_ref().map_or(0, String::len);
        let result = self.result.as_ref().map_or(0, json_bytes);
        name + object_bytes(&self.arguments) + result
    }
}

fn object_bytes(fields: &Map<String, Json>) -> usize {
    let field = |(key, value): (&String, &Json)| key.len() + json_bytes(value);
    fields.iter().map(field).sum()
}

fn json_bytes(value: &Json) -> usize {
    let content = match value {
        Json::String(text) => text.len(),
        Json::Array(items) => items.iter().map(json_bytes).sum(),
        Json::Object(fields) => object_bytes(fields),
        Json::Null | Json::Bool(_) | Json::Number(_) => 0,
    };
    size_of::<Json>() + content
}

/// The parsed result of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum CallOutcome<'a> {
    Done(Option<&'a Json>),
    Failed(Option<&'a Json>),
}

impl<'a> CallOutcome<'a> {
    /// Returns the value; `None` if the call failed.
    pub(super) fn value(self) -> Option<&'a Json> {
        match self {
            Self::Done(value) => value,
            Self::Failed(_) => None,
        }
    }
}

/// Redacts every string in a value, but not the keys.
pub(super) fn redacted(json: &Json, redact: &dyn Fn(&str) -> String) -> Json {
    match json {
        Json::String(text) => Json::String(redact(text)),
        Json::Array(items) => items.iter().map(|item| redacted(item, redact)).collect(),
        Json::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), redacted(value, redact)))
            .collect(),
        json => json.clone(),
    }
}

impl Activity {
    /// Parses a call from JSON: `name` or `type`, `args` or `input`, `result`.
    pub fn from_json(call: &Json) -> Self {
        let text = |key: &str| call[key].as_str().map(str::to_owned);
        let object = |key: &str| call[key].as_object().cloned();
        Self {
            name: text("name")
                .or_else(|| text("type"))
                .or_else(|| text("toolName")),
            arguments: object("args")
                .or_else(|| object("input"))
                .unwrap_or_default(),
            result: call.get("result").cloned(),
        }
    }

    /// Redacts secrets. This must happen before truncation, because part of a secret is not
    /// recognized.
    pub(super) fn redacted(&self, redact: &dyn Fn(&str) -> String) -> Self {
        let argument = |(key, value): (&String, &Json)| (key.clone(), redacted(value, redact));
        Self {
            name: self.name.clone(),
            arguments: self.arguments.iter().map(argument).collect(),
            result: self.result.as_ref().map(|result| redacted(result, redact)),
        }
    }

    pub(super) fn reported_name(&self) -> &str {
        self.name.as_deref().unwrap_or("unknown")
    }

    pub(super) fn outcome(&self) -> CallOutcome<'_> {
        let result = self.result.as_ref();
        match result.and_then(|result| result["status"].as_str()) {
            Some("success") => CallOutcome::Done(result.and_then(|result| result.get("value"))),
            Some("error") => CallOutcome::Failed(result.and_then(|result| result.get("error"))),
            _ => CallOutcome::Done(result),
        }
    }

    /// Fills in what a completion leaves out from the start of the call.
    pub(super) fn or_from_start(self, started: Activity) -> Self {
        Self {
            name: self.name.or(started.name),
            arguments: if self.arguments.is_empty() {
                started.arguments
            } else {
                self.arguments
            },
            result: self.result.or(started.result),
        }
    }
}
