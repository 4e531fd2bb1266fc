//! The shapes of the tools of known hosts, from `known_tools.json`, and how a call is built from one.
//!
//! A shape is a template of arguments. A text that starts with `$` stands for a value of the
//! request: `$path` as requested, `$abs_path` absolute, `$project_path` with the project's folder
//! name before it; `$offset` counts lines from 1, `$offset0` from 0; `$rg_pattern` is for ripgrep,
//! with a flag in it if letter case does not matter. A member whose value the request does not have
//! is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::result_formats::ResultFormat;

static KNOWN_TOOLS: LazyLock<Vec<ToolShape>> = LazyLock::new(|| {
    // A test parses the file, so an error cannot occur in a build that passed.
    serde_json::from_str(include_str!("known_tools.json")).unwrap_or_default()
});

/// What a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Operation {
    /// Runs a command.
    Shell,
    /// Reads a file.
    Read,
    /// Lists a folder.
    List,
    /// Finds files by a glob.
    Find,
    /// Searches in files.
    Search,
    /// Writes a whole file.
    Write,
    /// Replaces parts of a file.
    Edit,
    /// Deletes a file.
    Delete,
    /// Fetches a page.
    Fetch,
}

impl Operation {
    pub(super) const ALL: [Self; 9] = [
        Self::Shell,
        Self::Read,
        Self::List,
        Self::Find,
        Self::Search,
        Self::Write,
        Self::Edit,
        Self::Delete,
        Self::Fetch,
    ];

    /// Returns whether a call with these values makes sense.
    fn is_served_by(self, values: &BTreeSet<&str>) -> bool {
        let has = |name: &str| values.contains(name);
        let has_path = has("path") || has("abs_path") || has("project_path");
        match self {
            Self::Shell => has("command"),
            Self::Read | Self::List | Self::Delete => has_path,
            Self::Find | Self::Search => has("pattern") || has("rg_pattern"),
            // A patch names the file.
            Self::Write => has("patch") || (has_path && has("content")),
            Self::Edit => has_path && (has("edits") || (has("old") && has("new"))),
            Self::Fetch => has("url"),
        }
    }
}

/// A call that asks a tool of the host for the rest of a result.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct PollCall {
    pub(super) tool: String,
    arguments: Map<String, Json>,
}

impl PollCall {
    /// Returns the arguments for a session that the first result named.
    pub(super) fn arguments(&self, session: &str) -> Json {
        let number = session.parse::<u64>().map(Json::from);
        let session = number.unwrap_or_else(|_| session.into());
        let values = Operands::from([("session", session)]);
        Json::Object(fill_members(&self.arguments, &values))
    }
}

/// How a tool is called and how its result is read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct ToolShape {
    /// The program the tool belongs to.
    pub(super) client: String,
    /// The tool's name.
    pub(super) tool: String,
    pub(super) operation: Operation,
    /// Arguments that the tool must have, because another program has a tool of this name.
    #[serde(default)]
    has: Vec<String>,
    /// Arguments that must be lists.
    #[serde(default)]
    has_list: Vec<String>,
    pub(super) arguments: Map<String, Json>,
    pub(super) result: ResultFormat,
    /// What the result of a success looks like, for programs that report failures as text.
    #[serde(default)]
    pub(super) success: Option<String>,
    /// Operations that a command can do, because the program has no tool for them.
    #[serde(default)]
    pub(super) recipes: Vec<Operation>,
    /// How the rest of a long command's output is requested.
    #[serde(default)]
    pub(super) poll: Option<PollCall>,
}

impl ToolShape {
    /// Returns the known shapes in the order in which they are tried.
    pub(super) fn known() -> &'static [Self] {
        &KNOWN_TOOLS
    }

    /// Returns a shape that was derived from a tool's schema.
    pub(super) fn derived(
        tool: &str,
        operation: Operation,
        arguments: Map<String, Json>,
        result: ResultFormat,
    ) -> Self {
        Self {
            client: String::new(),
            tool: tool.to_owned(),
            operation,
            has: Vec::new(),
            has_list: Vec::new(),
            arguments,
            result,
            success: None,
            recipes: Vec::new(),
            poll: None,
        }
    }

    /// Returns this shape for a tool with that schema: without the arguments that the tool does
    /// not take. `None` if the tool is another program's; an error if the tool requires an argument
    /// that cannot be filled.
    pub(super) fn fitted(&self, schema: Option<&Json>) -> Option<Result<Self, UnfillableArgument>> {
        let Some(schema) = schema else {
            // Nothing is known of the tool: pi's shape, which has no such conditions.
            let unconditional = self.client == "pi";
            return unconditional.then(|| Ok(self.clone()));
        };
        let properties = schema["properties"].as_object();
        let property = |name: &str| properties.and_then(|properties| properties.get(name));
        let is_list = |name: &String| property(name).is_some_and(|it| it["type"] == "array");
        if !self.has.iter().all(|name| property(name).is_some())
            || !self.has_list.iter().all(is_list)
        {
            return None;
        }
        let mut fitted = self.clone();
        fitted.arguments.retain(|name, _| property(name).is_some());
        if !self.operation.is_served_by(&fitted.values()) {
            return None;
        }
        let required = schema["required"].as_array().into_iter().flatten();
        for name in required.filter_map(Json::as_str) {
            if fitted.arguments.contains_key(name) {
                continue;
            }
            match default_argument(name, property(name).unwrap_or(&Json::Null)) {
                Some(value) => {
                    fitted.arguments.insert(name.to_owned(), value);
                }
                None => {
                    return Some(Err(UnfillableArgument {
                        tool: self.tool.clone(),
                        argument: name.to_owned(),
                    }));
                }
            }
        }
        Some(Ok(fitted))
    }

    /// Returns whether the shape is from the table, not derived from a schema.
    pub(super) fn is_known(&self) -> bool {
        !self.client.is_empty()
    }

    /// Returns the names of the values that the template uses.
    pub(super) fn values(&self) -> BTreeSet<&str> {
        fn collect<'a>(value: &'a Json, into: &mut BTreeSet<&'a str>) {
            match value {
                Json::String(text) => into.extend(text.strip_prefix('$')),
                Json::Array(items) => items.iter().for_each(|item| collect(item, into)),
                Json::Object(members) => members.values().for_each(|item| collect(item, into)),
                _ => {}
            }
        }
        let mut values = BTreeSet::new();
        for value in self.arguments.values() {
            collect(value, &mut values);
        }
        values
    }

    /// Returns the arguments of a call.
    pub(super) fn fill(&self, values: &Operands) -> Json {
        Json::Object(fill_members(&self.arguments, values))
    }
}

/// A required argument for which a request has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the host's tool {tool} requires the argument {argument}, which cannot be filled")]
pub(super) struct UnfillableArgument {
    tool: String,
    argument: String,
}

/// The values of a request, by the names that templates use.
pub(super) type Operands = BTreeMap<&'static str, Json>;

fn fill_members(template: &Map<String, Json>, values: &Operands) -> Map<String, Json> {
    let filled = template.iter().filter_map(|(name, value)| {
        let value = fill_value(value, values)?;
        Some((name.clone(), value))
    });
    filled.collect()
}

fn fill_value(template: &Json, values: &Operands) -> Option<Json> {
    match template {
        Json::String(text) => match text.strip_prefix('$') {
            Some(name) => values.get(name).cloned(),
            None => Some(template.clone()),
        },
        Json::Array(items) => {
            let items = items.iter().filter_map(|item| fill_value(item, values));
            Some(items.collect())
        }
        Json::Object(members) => Some(Json::Object(fill_members(members, values))),
        other => Some(other.clone()),
    }
}

/// Returns the value of a required argument that no request has: a text that explains the call, a
/// default of the schema, or "no" for a switch.
fn default_argument(name: &str, schema: &Json) -> Option<Json> {
    const EXPLANATIONS: [&str; 8] = [
        "description",
        "explanation",
        "reason",
        "justification",
        "title",
        "summary",
        "display_description",
        "purpose",
    ];
    if !schema["default"].is_null() {
        return Some(schema["default"].clone());
    }
    if !schema["const"].is_null() {
        return Some(schema["const"].clone());
    }
    if let Some([only]) = schema["enum"].as_array().map(Vec::as_slice) {
        return Some(only.clone());
    }
    if EXPLANATIONS.contains(&name) && schema["enum"].is_null() {
        return Some("$description".into());
    }
    match schema["type"].as_str() {
        // A command that may be dangerous is approved by the user.
        Some("boolean") => Some(name.contains("approval").into()),
        _ if schema["anyOf"]
            .as_array()
            .is_some_and(|any| any.iter().any(|one| one["type"] == "null")) =>
        {
            Some(Json::Null)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_table_parses_and_each_shape_has_what_its_operation_needs() {
        let table: Vec<ToolShape> = serde_json::from_str(include_str!("known_tools.json")).unwrap();
        assert!(table.len() > 50);
        for shape in &table {
            assert!(
                shape.operation.is_served_by(&shape.values()),
                "{} of {}",
                shape.tool,
                shape.client
            );
            if let Some(success) = &shape.success {
                regex::Regex::new(success).unwrap();
            }
        }
    }

    #[test]
    fn required_arguments_are_filled_or_named() {
        let shape = |required: Json, properties: Json| {
            let schema = json!({"properties": properties, "required": required});
            let known = ToolShape::known().iter();
            let mut fitted = known
                .filter(|shape| shape.tool == "bash")
                .filter_map(|shape| shape.fitted(Some(&schema)));
            fitted.next().unwrap()
        };
        let text = json!({"type": "string"});
        let described = shape(
            json!(["command", "description"]),
            json!({"command": text, "description": text}),
        );
        let values = Operands::from([
            ("command", json!("ls")),
            ("description", json!("Lists files")),
        ]);
        assert_eq!(
            described.unwrap().fill(&values),
            json!({"command": "ls", "description": "Lists files"})
        );
        let switched = shape(
            json!(["command", "background", "mode", "requires_approval"]),
            json!({"command": text, "background": {"type": "boolean"}, "mode": {"enum": ["fast"]},
                "requires_approval": {"type": "boolean"}}),
        );
        assert_eq!(
            switched.unwrap().fill(&values),
            json!({"command": "ls", "background": false, "mode": "fast", "requires_approval": true})
        );
        let unfillable = shape(
            json!(["command", "ticket"]),
            json!({"command": text, "ticket": text}),
        );
        assert_eq!(
            unfillable.unwrap_err().to_string(),
            "the host's tool bash requires the argument ticket, which cannot be filled"
        );
    }
}
