//! Schemas that Cursor accepts. A schema with `oneOf`, `anyOf`, `allOf` or `$ref` fails the whole
//! request, so these parts are replaced by the widest plain schema that still carries
//! information. If the model guesses wrong, it gets the host's own error.

use serde_json::{Map, Value as Json, json};

/// References can be cyclic, so depth, references per path and total parts are limited.
const MAX_DEPTH: usize = 24;
const MAX_REFERENCES: usize = 3;
const MAX_PARTS: usize = 5_000;

/// Returns a plain schema for arguments, which is always an object, and whether it had to be changed.
pub fn reduced(schema: &Json) -> (Json, bool) {
    let Json::Object(root) = schema else {
        return (json!({"type": "object", "properties": {}}), false);
    };
    let mut reducer = SchemaReducer {
        root,
        changed: false,
        parts: MAX_PARTS,
    };
    let mut plain = reducer.reduce(
        schema,
        RemainingBudget {
            depth: MAX_DEPTH,
            references: MAX_REFERENCES,
        },
    );
    let changed = reducer.changed;
    if plain["type"] != "object" {
        // Arguments are always an object, even if the schema does not say so. MCP clients reject
        // the whole list for one tool whose arguments may also be null.
        let may_be = plain["type"]
            .as_array()
            .is_some_and(|types| types.contains(&json!("object")));
        let says = plain.get("properties").is_some() || root.is_empty();
        if may_be || says || changed {
            if let Json::Object(map) = &mut plain {
                map.insert("type".into(), json!("object"));
                map.entry("properties").or_insert_with(|| json!({}));
            }
        } else {
            plain = json!({"type": "object", "properties": {}});
        }
    }
    (plain, changed)
}

struct SchemaReducer<'a> {
    root: &'a Map<String, Json>,
    changed: bool,
    parts: usize,
}

/// The remaining depth and number of references.
#[derive(Clone, Copy)]
struct RemainingBudget {
    depth: usize,
    references: usize,
}

impl SchemaReducer<'_> {
    fn reduce(&mut self, schema: &Json, left: RemainingBudget) -> Json {
        let Json::Object(map) = schema else {
            return schema.clone();
        };
        if left.depth == 0 || self.parts == 0 {
            self.changed = true;
            return json!({});
        }
        self.parts -= 1;
        let mut left = RemainingBudget {
            depth: left.depth - 1,
            ..left
        };
        let mut map = map.clone();
        if let Some(target) = map.remove("$ref") {
            self.changed = true;
            let found = target.as_str().and_then(|path| resolve(path, self.root));
            if let (Some(Json::Object(found)), Some(references)) =
                (found, left.references.checked_sub(1))
            {
                left.references = references;
                for (key, value) in found {
                    map.entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
        }
        for key in [
            "$defs",
            "definitions",
            "if",
            "then",
            "else",
            "not",
            "dependentSchemas",
        ] {
            if map.remove(key).is_some() {
                self.changed = true;
            }
        }
        if let Some(Json::Array(parts)) = map.remove("allOf") {
            self.changed = true;
            for part in &parts {
                merge(&mut map, self.reduce(part, left));
            }
        }
        for key in ["oneOf", "anyOf"] {
            if let Some(Json::Array(choices)) = map.remove(key) {
                self.changed = true;
                let choices: Vec<Json> = choices
                    .iter()
                    .map(|choice| self.reduce(choice, left))
                    .collect();
                unite(&mut map, &choices);
            }
        }
        for key in ["properties", "patternProperties"] {
            if let Some(Json::Object(properties)) = map.get_mut(key) {
                for value in properties.values_mut() {
                    *value = self.reduce(value, left);
                }
            }
        }
        for key in ["items", "additionalProperties", "contains", "propertyNames"] {
            if let Some(value) = map.get_mut(key) {
                let plain = match &*value {
                    Json::Array(items) => {
                        items.iter().map(|item| self.reduce(item, left)).collect()
                    }
                    value => self.reduce(value, left),
                };
                *value = plain;
            }
        }
        Json::Object(map)
    }
}

fn resolve<'a>(path: &str, root: &'a Map<String, Json>) -> Option<&'a Json> {
    let mut parts = path.strip_prefix("#/")?.split('/');
    let first = root.get(parts.next()?)?;
    parts.try_fold(first, |at, part| {
        let name = part.replace("~1", "/").replace("~0", "~");
        at.get(&name)
    })
}

/// Merges one part of `allOf`: properties and required names are combined; for other keys the first
/// value wins.
fn merge(map: &mut Map<String, Json>, part: Json) {
    let Json::Object(part) = part else {
        return;
    };
    for (key, value) in part {
        match (map.get_mut(&key), value) {
            (Some(Json::Object(known)), Json::Object(more)) if key == "properties" => {
                for (name, schema) in more {
                    known.entry(name).or_insert(schema);
                }
            }
            (Some(Json::Array(known)), Json::Array(more)) if key == "required" => {
                for name in more {
                    if !known.contains(&name) {
                        known.push(name);
                    }
                }
            }
            (Some(_), _) => {}
            (None, value) => {
                map.insert(key, value);
            }
        }
    }
}

/// Merges the alternatives of `oneOf` or `anyOf` into what any of them allows. Types, constants
/// and properties are combined; a name is required only if every alternative requires it.
fn unite(map: &mut Map<String, Json>, choices: &[Json]) {
    let mut types: Vec<Json> = Vec::new();
    let mut values: Option<Vec<Json>> = Some(Vec::new());
    let mut properties = Map::new();
    let mut required: Option<Vec<Json>> = None;
    for choice in choices {
        match &choice["type"] {
            Json::Array(some) => types.extend(
                some.iter()
                    .filter(|t| !types.contains(t))
                    .cloned()
                    .collect::<Vec<_>>(),
            ),
            Json::Null => {}
            one if !types.contains(one) => types.push(one.clone()),
            _ => {}
        }
        let constants = match (&choice["const"], &choice["enum"]) {
            (Json::Null, Json::Array(some)) => Some(some.clone()),
            (Json::Null, _) => None,
            (one, _) => Some(vec![one.clone()]),
        };
        values = match (values, constants) {
            (Some(mut all), Some(some)) => {
                all.extend(
                    some.into_iter()
                        .filter(|value| !all.contains(value))
                        .collect::<Vec<_>>(),
                );
                Some(all)
            }
            _ => None,
        };
        if let Json::Object(some) = &choice["properties"] {
            for (name, schema) in some {
                match properties.get(name) {
                    None => {
                        properties.insert(name.clone(), schema.clone());
                    }
                    Some(known) if known == schema => {}
                    Some(_) => {
                        // The alternatives disagree about this name: allow anything.
                        properties.insert(name.clone(), json!({}));
                    }
                }
            }
        }
        let here: Vec<Json> = choice["required"].as_array().cloned().unwrap_or_default();
        required = Some(match required {
            None => here,
            Some(all) => all.into_iter().filter(|name| here.contains(name)).collect(),
        });
        for key in ["items", "description"] {
            if let Some(value) = choice.get(key) {
                map.entry(key).or_insert_with(|| value.clone());
            }
        }
    }
    if !types.is_empty() && !map.contains_key("type") {
        let one = types.len() == 1;
        map.insert(
            "type".into(),
            if one {
                types.remove(0)
            } else {
                Json::Array(types)
            },
        );
    }
    if let Some(values) = values.filter(|values| !values.is_empty()) {
        map.entry("enum").or_insert(Json::Array(values));
    }
    if !properties.is_empty() {
        let part = json!({"properties": properties, "required": required.unwrap_or_default()});
        merge(map, part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduce_to(schema: Json) -> Json {
        let (plain, changed) = reduced(&schema);
        assert!(changed);
        let text = plain.to_string();
        for word in ["oneOf", "anyOf", "allOf", "$ref"] {
            assert!(!text.contains(word), "{text}");
        }
        plain
    }

    #[test]
    fn a_plain_schema_is_left_alone() {
        let schema = json!({"type": "object", "properties": {"z": {"type": "string"}, "a": {"enum": [1, 2]}},
            "required": ["z"], "additionalProperties": false});
        let (same, changed) = reduced(&schema);
        assert_eq!((same.to_string(), changed), (schema.to_string(), false));
    }

    #[test]
    fn a_schema_that_is_not_an_object_becomes_one() {
        for schema in [
            json!(null),
            json!("x"),
            json!({"type": "string"}),
            json!({}),
        ] {
            assert_eq!(
                reduced(&schema).0,
                json!({"type": "object", "properties": {}}),
                "{schema}"
            );
        }
    }

    #[test]
    fn choices_are_united() {
        let plain = reduce_to(json!({"type": "object", "properties": {
            "mode": {"anyOf": [{"const": "a"}, {"const": "b"}], "description": "which"},
            "size": {"oneOf": [{"type": "string"}, {"type": "number"}]},
            "who": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}));
        assert_eq!(
            plain["properties"],
            json!({
            "mode": {"description": "which", "enum": ["a", "b"]},
            "size": {"type": ["string", "number"]},
            "who": {"type": ["string", "null"]}})
        );
    }

    #[test]
    fn objects_keep_the_properties_of_every_choice() {
        let plain = reduce_to(json!({"oneOf": [
            {"type": "object", "properties": {"k": {"type": "string"}, "a": {"type": "number"}}, "required": ["k", "a"]},
            {"type": "object", "properties": {"k": {"type": "string"}, "b": {"type": "number"}}, "required": ["k", "b"]}]}));
        assert_eq!(plain["type"], "object");
        assert_eq!(plain["required"], json!(["k"]));
        let names: Vec<&String> = plain["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["k", "a", "b"]);
    }

    #[test]
    fn a_schema_that_doubles_at_every_step_stays_small() {
        let twice = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#/$defs/n"}}});
        let mut schema = twice.clone();
        schema["$defs"] = json!({"n": twice});
        assert!(reduce_to(schema).to_string().len() < 10_000);
    }

    #[test]
    fn references_are_followed_and_cycles_end() {
        let plain = reduce_to(
            json!({"type": "object", "properties": {"tree": {"$ref": "#/$defs/node"}},
            "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "v": {"type": "number"}}}}}),
        );
        assert_eq!(
            plain["properties"]["tree"]["properties"]["next"]["properties"]["v"]["type"],
            "number"
        );
        let lost = reduce_to(
            json!({"type": "object", "properties": {"x": {"$ref": "https://elsewhere/x", "description": "d"}}}),
        );
        assert_eq!(lost["properties"]["x"], json!({"description": "d"}));
    }
}
