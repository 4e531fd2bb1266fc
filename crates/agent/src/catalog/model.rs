//! One model as Cursor describes it. Parsing is lenient: an invalid field drops that detail, not
//! the model, and an invalid model does not drop the list.

use serde::Serialize;
use serde_json::Value as Json;

/// A model of Cursor's catalog. Serialized in the format of `GET /v1/models`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogModel {
    /// The id.
    pub id: String,
    /// The display name; may be empty.
    pub display_name: String,
    /// Other ids that Cursor accepts for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// The parameters that can be set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Parameter>,
    /// Predefined parameter sets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<ModelVariant>,
    /// Context window in tokens, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u32>,
    /// Context window in Max Mode, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_context_window: Option<u32>,
    /// Whether it accepts images, if Cursor says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supports_images: Option<bool>,
}

/// A parameter and its allowed values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// The id.
    pub id: String,
    /// The allowed values, in Cursor's order.
    pub values: Vec<ParameterValue>,
}

/// One value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ParameterValue {
    /// The value.
    pub value: String,
}

/// A predefined parameter set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelVariant {
    /// The parameters and their values.
    pub params: Vec<ParameterChoice>,
    /// Whether Cursor uses it by default.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_default: bool,
    /// Whether it enables Max Mode.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_max_mode: bool,
    /// Whether Cursor uses it by default in Max Mode.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_default_max: bool,
}

/// A parameter and the value selected for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ParameterChoice {
    /// The id of the parameter.
    pub id: String,
    /// The selected value.
    pub value: String,
}

/// The parameters that hosts select by context size, thinking level and speed.
const KNOWN_PARAMETERS: [&str; 5] = ["context", "reasoning", "effort", "thinking", "fast"];

impl Parameter {
    /// Returns the catalog's spelling of a value, which is matched case-insensitively.
    pub fn spelling(&self, wanted: &str) -> Option<&str> {
        self.values
            .iter()
            .map(|value| value.value.as_str())
            .find(|value| value.eq_ignore_ascii_case(wanted))
    }
}

impl CatalogModel {
    /// Returns the parameter with an id; the first one if there are several.
    pub fn parameter(&self, id: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.id == id)
    }

    /// Returns the default parameters: those of the default variant, else of the first.
    pub fn defaults(&self) -> &[ParameterChoice] {
        let default = self.variants.iter().find(|variant| variant.is_default);
        default
            .or(self.variants.first())
            .map_or(&[], |variant| &variant.params)
    }

    /// Whether the variants allow two choices together. They exclude a pair if they contain both
    /// values but never in one variant; a list that lacks a value does not exclude it.
    pub(super) fn allows_together(&self, one: (&str, &str), other: (&str, &str)) -> bool {
        let has = |variant: &ModelVariant, (id, value): (&str, &str)| {
            let mut params = variant.params.iter();
            params.any(|choice| choice.id == id && choice.value.eq_ignore_ascii_case(value))
        };
        let any = |wanted: &[(&str, &str)]| {
            let mut variants = self.variants.iter();
            variants.any(|variant| wanted.iter().all(|choice| has(variant, *choice)))
        };
        any(&[one, other]) || !any(&[one]) || !any(&[other])
    }

    /// Returns the parameters that have no meaning of their own here and several values. Hosts
    /// can select each value.
    pub(super) fn other_parameters(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(|parameter| {
            !KNOWN_PARAMETERS.contains(&parameter.id.as_str()) && parameter.values.len() > 1
        })
    }

    /// Whether a context size implies Max Mode: if every variant with it has Max Mode. This is
    /// never derived from the size itself.
    pub(super) fn is_max_mode(&self, context: Option<&str>) -> bool {
        let fits = |variant: &&ModelVariant| {
            let choice = variant.params.iter().find(|choice| choice.id == "context");
            choice.map(|choice| choice.value.as_str()) == context
        };
        let mut fitting = self.variants.iter().filter(fits).peekable();
        fitting.peek().is_some() && fitting.all(|variant| variant.is_max_mode)
    }

    /// Returns the default parameters for a context size; Max Mode may have its own.
    pub(super) fn defaults_with(&self, context: Option<&str>) -> &[ParameterChoice] {
        let own = self.variants.iter().find(|variant| variant.is_default_max);
        match own.filter(|_| self.is_max_mode(context)) {
            Some(variant) => &variant.params,
            None => self.defaults(),
        }
    }

    /// Returns the display name, or the id if there is none.
    pub fn name(&self) -> &str {
        match self.display_name.as_str() {
            "" => &self.id,
            name => name,
        }
    }

    /// Parses one model; returns `None` if it has no id.
    pub fn from_json(json: &Json) -> Option<Self> {
        let id = json["id"].as_str().filter(|id| !id.trim().is_empty())?;
        let parameters = list(json, "parameters").filter_map(|parameter| {
            let values = list(parameter, "values")
                .filter_map(|value| value.as_str().or(value["value"].as_str()))
                .map(|value| ParameterValue {
                    value: value.to_owned(),
                });
            Some(Parameter {
                id: parameter["id"].as_str()?.to_owned(),
                values: values.collect(),
            })
        });
        let variants = list(json, "variants").map(|variant| ModelVariant {
            params: list(variant, "params")
                .filter_map(|param| {
                    Some(ParameterChoice {
                        id: param["id"].as_str()?.to_owned(),
                        value: param["value"].as_str()?.to_owned(),
                    })
                })
                .collect(),
            is_default: variant["isDefault"] == true,
            is_max_mode: variant["isMaxMode"] == true,
            is_default_max: variant["isDefaultMax"] == true,
        });
        Some(Self {
            id: id.to_owned(),
            display_name: json["displayName"].as_str().unwrap_or_default().to_owned(),
            aliases: list(json, "aliases")
                .filter_map(|alias| alias.as_str().map(str::to_owned))
                .collect(),
            parameters: parameters.collect(),
            variants: variants.collect(),
            context_window: super::context_window::positive_u32(&json["contextWindow"]),
            max_context_window: super::context_window::positive_u32(&json["maxContextWindow"]),
            supports_images: json["supportsImages"].as_bool(),
        })
    }

    /// Parses `{"items": […]}`; returns `None` for anything else.
    pub fn list_from_json(json: &Json) -> Option<Vec<Self>> {
        let models = json.get("items")?.as_array()?;
        Some(models.iter().filter_map(Self::from_json).collect())
    }
}

fn list<'j>(json: &'j Json, name: &str) -> impl Iterator<Item = &'j Json> {
    json[name].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_models_and_fields_do_not_affect_others() {
        let answer = json!({"items": [
            7, {"id": ""}, {"displayName": "no id"},
            {"id": "a", "displayName": 5, "aliases": ["x", 1], "parameters": "none",
             "variants": [{"params": [{"id": "fast", "value": true}, {"id": "cyber", "value": "false"}]}]},
        ]});
        let models = CatalogModel::list_from_json(&answer).unwrap();
        assert_eq!(models.len(), 1);
        assert_eq!(models[0].aliases, ["x"]);
        assert_eq!(models[0].name(), "a");
        assert_eq!(models[0].defaults().len(), 1, "only strings are values");
        assert_eq!(CatalogModel::list_from_json(&json!({"items": "?"})), None);
        assert_eq!(CatalogModel::list_from_json(&json!([])), None);
    }

    #[test]
    fn serialized_models_can_be_parsed() {
        let model = json!({"id": "m", "displayName": "M", "aliases": ["n"],
            "parameters": [{"id": "context", "values": [{"value": "1m"}]}],
            "variants": [{"params": [{"id": "context", "value": "1m"}], "isDefault": true, "isMaxMode": true, "isDefaultMax": true}],
            "contextWindow": 1000, "maxContextWindow": 2000});
        let item = CatalogModel::from_json(&model).unwrap();
        assert_eq!(serde_json::to_value(&item).unwrap(), model);
    }
}
