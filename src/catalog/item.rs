//! One model as Cursor describes it, read leniently: an odd field hides a detail, never the
//! model, and an odd model never the list.

use serde::Serialize;
use serde_json::Value as Json;

/// A model of Cursor's catalogue. Written in the shape of `GET /v1/models`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// Its id.
    pub id: String,
    /// Its name for people; may be empty.
    pub display_name: String,
    /// Other ids Cursor takes for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// What can be chosen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Parameter>,
    /// Ready-made choices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
    /// Tokens its context holds, where the catalogue says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u32>,
    /// The same in Max Mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_context_window: Option<u32>,
}

/// A parameter and the values it takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// Its id.
    pub id: String,
    /// Its values, in Cursor's order.
    pub values: Vec<ParameterValue>,
}

/// One value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ParameterValue {
    /// The value.
    pub value: String,
}

/// A ready-made choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Variant {
    /// Parameters and their values.
    pub params: Vec<Choice>,
    /// Whether it is what Cursor uses unasked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_default: bool,
    /// Whether it is one of Max Mode.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_max_mode: bool,
    /// Whether it is what Cursor uses in Max Mode unasked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_default_max: bool,
}

/// A parameter with the value chosen for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The parameter.
    pub id: String,
    /// Its value.
    pub value: String,
}

impl Parameter {
    /// The catalogue's spelling of a value, whatever its case.
    pub fn spelling(&self, wanted: &str) -> Option<&str> {
        self.values
            .iter()
            .map(|value| value.value.as_str())
            .find(|value| value.eq_ignore_ascii_case(wanted))
    }
}

impl Item {
    /// The parameter of an id; the first one, should there be two.
    pub fn parameter(&self, id: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.id == id)
    }

    /// What Cursor uses unasked: the default variant, else the first.
    pub fn defaults(&self) -> &[Choice] {
        let default = self.variants.iter().find(|variant| variant.is_default);
        default
            .or(self.variants.first())
            .map_or(&[], |variant| &variant.params)
    }

    /// Whether a context is one of Max Mode: if every ready-made choice with it is. Only the
    /// catalogue can say so, no context is large enough to be believed.
    pub(super) fn is_max_mode(&self, context: Option<&str>) -> bool {
        let fits = |variant: &&Variant| {
            let choice = variant.params.iter().find(|choice| choice.id == "context");
            choice.map(|choice| choice.value.as_str()) == context
        };
        let mut fitting = self.variants.iter().filter(fits).peekable();
        fitting.peek().is_some() && fitting.all(|variant| variant.is_max_mode)
    }

    /// What Cursor uses unasked with a context: Max Mode may have a default of its own.
    pub(super) fn defaults_with(&self, context: Option<&str>) -> &[Choice] {
        let own = self.variants.iter().find(|variant| variant.is_default_max);
        match own.filter(|_| self.is_max_mode(context)) {
            Some(variant) => &variant.params,
            None => self.defaults(),
        }
    }

    /// Its name for people.
    pub fn name(&self) -> &str {
        match self.display_name.as_str() {
            "" => &self.id,
            name => name,
        }
    }

    /// Reads one model; one without an id is none.
    pub fn read(json: &Json) -> Option<Self> {
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
        let variants = list(json, "variants").map(|variant| Variant {
            params: list(variant, "params")
                .filter_map(|param| {
                    Some(Choice {
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
            context_window: super::windows::positive(&json["contextWindow"]),
            max_context_window: super::windows::positive(&json["maxContextWindow"]),
        })
    }

    /// Reads `{"items": […]}`; `None` if it is nothing of the kind.
    pub fn read_list(json: &Json) -> Option<Vec<Self>> {
        let items = json.get("items")?.as_array()?;
        Some(items.iter().filter_map(Self::read).collect())
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
    fn odd_models_and_fields_hide_nothing_else() {
        let answer = json!({"items": [
            7, {"id": ""}, {"displayName": "no id"},
            {"id": "a", "displayName": 5, "aliases": ["x", 1], "parameters": "none",
             "variants": [{"params": [{"id": "fast", "value": true}, {"id": "cyber", "value": "false"}]}]},
        ]});
        let items = Item::read_list(&answer).unwrap();
        assert_eq!(items.len(), 1);
        assert_eq!(items[0].aliases, ["x"]);
        assert_eq!(items[0].name(), "a");
        assert_eq!(items[0].defaults().len(), 1, "only texts are values");
        assert_eq!(Item::read_list(&json!({"items": "?"})), None);
        assert_eq!(Item::read_list(&json!([])), None);
    }

    #[test]
    fn what_is_written_can_be_read() {
        let model = json!({"id": "m", "displayName": "M", "aliases": ["n"],
            "parameters": [{"id": "context", "values": [{"value": "1m"}]}],
            "variants": [{"params": [{"id": "context", "value": "1m"}], "isDefault": true, "isMaxMode": true, "isDefaultMax": true}],
            "contextWindow": 1000, "maxContextWindow": 2000});
        let item = Item::read(&model).unwrap();
        assert_eq!(serde_json::to_value(&item).unwrap(), model);
    }
}
