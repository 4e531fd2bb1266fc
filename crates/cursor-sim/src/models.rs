//! The models the simulated backend offers, in the formats of its calls, and the refusal of others.

use serde_json::{Map, Value, json};

use super::connect::{Code, ConnectError};
use super::schema;

/// The id of the model that Cursor chooses itself.
const AUTO: &str = "default";

/// A list of models, stored as the items of `GET /v1/models`.
#[derive(Debug, Clone)]
pub(super) struct SimModels(Vec<Value>);

/// The list that Cursor returned in July 2026.
impl Default for SimModels {
    fn default() -> Self {
        // A test checks that the file can be parsed.
        let file: Value = serde_json::from_str(include_str!("models.json")).unwrap_or_default();
        let windows = &file["contextWindows"];
        let items = list(&file, "items").iter().map(|item| {
            let mut item = item.clone();
            if let Some(window) = windows.get(text(&item, "id")) {
                item["contextTokenLimit"] = window.clone();
            }
            item
        });
        Self(items.collect())
    }
}

impl SimModels {
    /// Creates a list of these items.
    pub(super) fn new(items: Vec<Value>) -> Self {
        Self(items)
    }

    /// Returns this list with further items, for models that only a canned reply lists.
    pub(super) fn with(mut self, items: impl IntoIterator<Item = Value>) -> Self {
        self.0.extend(items);
        self
    }

    /// Returns the response of `GET /v1/models`.
    pub(super) fn rest(&self) -> Value {
        let items = self.0.iter().map(|item| {
            let mut item = item.clone();
            if let Some(members) = item.as_object_mut() {
                // Only `AvailableModels` reports these.
                members.retain(|name, _| name != "contextTokenLimit" && name != "supportsImages");
            }
            item
        });
        json!({ "items": items.collect::<Vec<_>>() })
    }

    /// Returns the `agent.v1.GetUsableModelsResponse`.
    pub(super) fn usable(&self) -> Value {
        json!({ "models": self.0.iter().map(details).collect::<Vec<_>>() })
    }

    /// Returns the `agent.v1.GetDefaultModelForCliResponse`.
    pub(super) fn default_model(&self) -> Value {
        let default = self.0.iter().find(|item| text(item, "id") == "default");
        match default.or(self.0.first()) {
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

    /// Returns the error that ends a run with this `RequestedModel`, if the id, a parameter, a
    /// value or the combination is not in the list. Aliases are not accepted, because the official
    /// client sends the id.
    pub(super) fn refusal(&self, requested: &Value) -> Option<ConnectError> {
        let id = text(requested, "modelId");
        // Cursor chooses; every account has it, listed or not.
        if id == AUTO && list(requested, "parameters").is_empty() {
            return None;
        }
        let Some(item) = self.0.iter().find(|item| text(item, "id") == id) else {
            return Some(bad_model(&format!("There is no model {id:?}.")));
        };
        let choices = list(requested, "parameters");
        for choice in choices {
            let (name, value) = (text(choice, "id"), text(choice, "value"));
            let values = values(item, name);
            if values.is_empty() {
                return Some(bad_model(&format!("{id} has no parameter {name:?}.")));
            }
            if !values.contains(&value) {
                return Some(bad_model(&format!("{id} has no {name} {value:?}.")));
            }
        }
        let fits = |variant: &Value| {
            choices.iter().all(|choice| {
                let params = list(variant, "params").iter();
                let mut same = params.filter(|param| param["id"] == choice["id"]);
                same.all(|param| param["value"] == choice["value"])
            })
        };
        if excludes_combinations(item) && !list(item, "variants").iter().any(fits) {
            let reason = format!("{id} does not offer this combination of parameters.");
            return Some(bad_model(&reason));
        }
        None
    }
}

/// Returns the values of a parameter: the defined ones, and those that only variants have.
fn values<'v>(item: &'v Value, parameter: &str) -> Vec<&'v str> {
    let defined = list(item, "parameters")
        .iter()
        .filter(|definition| text(definition, "id") == parameter)
        .flat_map(|definition| list(definition, "values"));
    let variants = list(item, "variants")
        .iter()
        .flat_map(|variant| list(variant, "params"))
        .filter(|param| text(param, "id") == parameter);
    defined
        .chain(variants)
        .map(|value| {
            value["value"]
                .as_str()
                .or(value.as_str())
                .unwrap_or_default()
        })
        .collect()
}

/// Whether a combination that no variant has is refused: if the variants contain every value of
/// every parameter. Lists of scenarios often have the default variant only, or none.
fn excludes_combinations(item: &Value) -> bool {
    let used: Vec<(&str, &str)> = list(item, "variants")
        .iter()
        .flat_map(|variant| list(variant, "params"))
        .map(|param| (text(param, "id"), text(param, "value")))
        .collect();
    let mut parameters = list(item, "parameters").iter();
    !used.is_empty()
        && parameters.all(|parameter| {
            let id = text(parameter, "id");
            let mut defined = list(parameter, "values").iter();
            defined.all(|value| used.contains(&(id, text(value, "value"))))
        })
}

/// Returns the error for a model that the service does not offer.
fn bad_model(reason: &str) -> ConnectError {
    let details = json!({
        "error": "ERROR_BAD_MODEL_NAME",
        "details": { "title": "Cannot use this model", "detail": reason, "isRetryable": false },
        "isExpected": true,
    });
    let mut error = ConnectError::new(Code::InvalidArgument, "Error");
    error.details.extend(schema::error_details(&details));
    error
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
        "supportsImages": item["supportsImages"] != false,
        "supportsPlanMode": true,
        "supportsThinking": has_parameter(item, &["thinking", "reasoning", "effort"]),
        "supportsMaxMode": has_parameter(item, &["context"]),
        "supportsNonMaxMode": true,
        "contextTokenLimit": item["contextTokenLimit"].as_u64().unwrap_or(200_000),
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn refusal(id: &str, parameters: &[(&str, &str)]) -> Option<String> {
        let parameters: Vec<Value> = parameters
            .iter()
            .map(|(id, value)| json!({ "id": id, "value": value }))
            .collect();
        let requested = json!({ "modelId": id, "parameters": parameters });
        let error = SimModels::default().refusal(&requested)?;
        assert_eq!(error.code, Code::InvalidArgument);
        let detail = &error.details[0]["debug"]["details"]["detail"];
        Some(detail.as_str().unwrap().to_owned())
    }

    #[test]
    fn only_models_of_the_list_are_accepted() {
        assert_eq!(SimModels::default().0.len(), 34);
        for (id, parameters) in [
            ("default", &[][..]),
            ("composer-2", &[("fast", "true")]),
            ("gpt-5.5", &[("context", "1m"), ("fast", "false")]),
            ("gpt-5.5", &[("context", "272k"), ("fast", "true")]),
            (
                "claude-opus-4-8",
                &[("cyber", "false"), ("thinking", "false")],
            ),
        ] {
            assert_eq!(refusal(id, parameters), None, "{id}");
        }
        let wanted = "gpt-5.5 does not offer this combination of parameters.";
        let fast = [("context", "1m"), ("fast", "true")];
        assert_eq!(refusal("gpt-5.5", &fast).unwrap(), wanted);
        let refused = |id, name, value| refusal(id, &[(name, value)]).unwrap();
        assert_eq!(refused("auto", "", ""), "There is no model \"auto\".");
        assert_eq!(
            refused("composer-2", "effort", "low"),
            "composer-2 has no parameter \"effort\"."
        );
        assert_eq!(
            refused("gpt-5.1", "reasoning", "max"),
            "gpt-5.1 has no reasoning \"max\"."
        );
    }
}
