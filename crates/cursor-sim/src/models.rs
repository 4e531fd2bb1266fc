//! The models the simulated backend offers, in the formats of its calls.

use serde_json::{Map, Value, json};

/// A list of models, stored as the items of `GET /v1/models`.
#[derive(Debug, Clone)]
pub(super) struct SimModels(Vec<Value>);

impl Default for SimModels {
    fn default() -> Self {
        let parameter = |id: &str, values: &[&str]| {
            let values: Vec<Value> = values.iter().map(|v| json!({ "value": v })).collect();
            json!({ "id": id, "displayName": id, "values": values })
        };
        let params = |pairs: &[(&str, &str)]| -> Value {
            pairs
                .iter()
                .map(|(id, value)| json!({ "id": id, "value": value }))
                .collect()
        };
        Self(vec![
            json!({ "id": "composer-2", "displayName": "Composer 2", "aliases": ["composer", "composer-latest"] }),
            json!({
                "id": "claude-4.5-sonnet",
                "displayName": "Claude 4.5 Sonnet",
                "description": "A simulated model with thinking and two context sizes",
                "aliases": ["sonnet"],
                "parameters": [parameter("thinking", &["false", "true"]), parameter("context", &["200k", "1m"])],
                "variants": [
                    { "params": params(&[("thinking", "false"), ("context", "200k")]), "displayName": "Claude 4.5 Sonnet", "isDefault": true },
                    { "params": params(&[("thinking", "true"), ("context", "200k")]), "displayName": "Claude 4.5 Sonnet Thinking" },
                    { "params": params(&[("thinking", "false"), ("context", "1m")]), "displayName": "Claude 4.5 Sonnet 1M" },
                    { "params": params(&[("thinking", "true"), ("context", "1m")]), "displayName": "Claude 4.5 Sonnet 1M Thinking" },
                ],
            }),
            json!({
                "id": "gpt-5.2",
                "displayName": "GPT-5.2",
                "parameters": [parameter("reasoning", &["low", "medium", "high"]), parameter("fast", &["false", "true"])],
                "variants": [
                    { "params": params(&[("reasoning", "medium"), ("fast", "false")]), "displayName": "GPT-5.2", "isDefault": true },
                    { "params": params(&[("reasoning", "low"), ("fast", "false")]), "displayName": "GPT-5.2 Low" },
                    { "params": params(&[("reasoning", "high"), ("fast", "false")]), "displayName": "GPT-5.2 High" },
                    { "params": params(&[("reasoning", "medium"), ("fast", "true")]), "displayName": "GPT-5.2 Fast" },
                ],
            }),
        ])
    }
}

impl SimModels {
    /// Creates a list of these items.
    pub(super) fn new(items: Vec<Value>) -> Self {
        Self(items)
    }

    /// Returns the response of `GET /v1/models`.
    pub(super) fn rest(&self) -> Value {
        json!({ "items": self.0 })
    }

    /// Returns the `agent.v1.GetUsableModelsResponse`.
    pub(super) fn usable(&self) -> Value {
        json!({ "models": self.0.iter().map(details).collect::<Vec<_>>() })
    }

    /// Returns the `agent.v1.GetDefaultModelForCliResponse`.
    pub(super) fn default_model(&self) -> Value {
        match self.0.first() {
            Some(item) => json!({ "model": details(item) }),
            None => json!({}),
        }
    }

    /// Returns the `aiserver.v1.AvailableModelsResponse`.
    pub(super) fn available(&self) -> Value {
        json!({
            "modelNames": self.0.iter().map(|item| text(item, "id")).collect::<Vec<_>>(),
            "models": self.0.iter().map(available).collect::<Vec<_>>(),
            "useModelParameters": true,
        })
    }
}

fn text<'v>(item: &'v Value, name: &str) -> &'v str {
    item[name].as_str().unwrap_or_default()
}

fn list<'v>(item: &'v Value, name: &str) -> &'v [Value] {
    item[name].as_array().map_or(&[], Vec::as_slice)
}

fn details(item: &Value) -> Value {
    let mut details = json!({
        "modelId": text(item, "id"),
        "displayModelId": text(item, "id"),
        "displayName": text(item, "displayName"),
        "displayNameShort": text(item, "displayName"),
        "aliases": list(item, "aliases"),
    });
    if has_parameter(item, &["thinking", "reasoning", "effort"]) {
        details["thinkingDetails"] = json!({});
    }
    details
}

fn has_parameter(item: &Value, ids: &[&str]) -> bool {
    list(item, "parameters")
        .iter()
        .any(|parameter| ids.contains(&text(parameter, "id")))
}

fn available(item: &Value) -> Value {
    let parameters: Vec<Value> = list(item, "parameters")
        .iter()
        .map(|parameter| {
            let values: Vec<&str> = list(parameter, "values")
                .iter()
                .map(|value| text(value, "value"))
                .collect();
            json!({ "id": text(parameter, "id"), "values": values })
        })
        .collect();
    let variants: Vec<Value> = list(item, "variants").iter().map(variant).collect();
    json!({
        "name": text(item, "id"),
        "defaultOn": true,
        "supportsAgent": true,
        "supportsImages": true,
        "supportsPlanMode": true,
        "supportsThinking": has_parameter(item, &["thinking", "reasoning", "effort"]),
        "supportsMaxMode": has_parameter(item, &["context"]),
        "supportsNonMaxMode": true,
        "contextTokenLimit": 200_000,
        "clientDisplayName": text(item, "displayName"),
        "serverModelName": text(item, "id"),
        "parameterDefinitions": parameters,
        "variants": variants,
        "idAliases": list(item, "aliases"),
    })
}

fn variant(variant: &Value) -> Value {
    let params = list(variant, "params");
    let max_mode = params
        .iter()
        .any(|param| text(param, "id") == "context" && text(param, "value") == "1m");
    let mut details = Map::new();
    details.insert("parameterValues".into(), params.into());
    details.insert("displayName".into(), text(variant, "displayName").into());
    details.insert("isMaxMode".into(), max_mode.into());
    if variant["isDefault"] == true {
        details.insert("isDefaultNonMaxConfig".into(), true.into());
    }
    Value::Object(details)
}
