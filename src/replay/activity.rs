//! One completed tool call of Cursor's agent, neutral of how it was told.

use serde_json::{Map, Value as Json};

/// A completed tool call: its name, its arguments, its result.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Activity {
    /// Cursor's name of the tool; `None` if it told none.
    pub name: Option<String>,
    /// Its arguments.
    pub arguments: Map<String, Json>,
    /// Its result: `{status, value | error}`, or the value alone.
    pub result: Option<Json>,
}

impl Activity {
    /// About how much memory it holds.
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

/// A result, read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome<'a> {
    Done(Option<&'a Json>),
    Failed(Option<&'a Json>),
}

impl<'a> Outcome<'a> {
    /// What came out of it; nothing if it failed.
    pub(super) fn value(self) -> Option<&'a Json> {
        match self {
            Self::Done(value) => value,
            Self::Failed(_) => None,
        }
    }
}

/// Every text in a value without its secrets; keys stay.
pub(super) fn scrubbed(json: &Json, scrub: &dyn Fn(&str) -> String) -> Json {
    match json {
        Json::String(text) => Json::String(scrub(text)),
        Json::Array(items) => items.iter().map(|item| scrubbed(item, scrub)).collect(),
        Json::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), scrubbed(value, scrub)))
            .collect(),
        json => json.clone(),
    }
}

impl Activity {
    /// Reads a call told as JSON: `name` or `type`, `args` or `input`, `result`.
    pub fn read(call: &Json) -> Self {
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

    /// The same without secrets. Before anything is cut: half of one is not known for one.
    pub(super) fn scrubbed(&self, scrub: &dyn Fn(&str) -> String) -> Self {
        let argument = |(key, value): (&String, &Json)| (key.clone(), scrubbed(value, scrub));
        Self {
            name: self.name.clone(),
            arguments: self.arguments.iter().map(argument).collect(),
            result: self.result.as_ref().map(|result| scrubbed(result, scrub)),
        }
    }

    /// The name as it was told.
    pub(super) fn raw_name(&self) -> &str {
        self.name.as_deref().unwrap_or("unknown")
    }

    pub(super) fn outcome(&self) -> Outcome<'_> {
        let result = self.result.as_ref();
        match result.and_then(|result| result["status"].as_str()) {
            Some("success") => Outcome::Done(result.and_then(|result| result.get("value"))),
            Some("error") => Outcome::Failed(result.and_then(|result| result.get("error"))),
            _ => Outcome::Done(result),
        }
    }

    /// What a completion leaves out, a start has told.
    pub(super) fn or_as_started(self, started: Activity) -> Self {
        Self {
            name: self.name.or(started.name),
            arguments: match self.arguments.is_empty() {
                true => started.arguments,
                false => self.arguments,
            },
            result: self.result.or(started.result),
        }
    }
}
