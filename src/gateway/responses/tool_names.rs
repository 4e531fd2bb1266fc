//! The tools of a request for a response. Cursor knows functions in one list only: tools in
//! namespaces are flattened, custom tools become functions with one text, and both are restored in
//! the answer.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::super::api_error::ApiError;
use super::super::transcript_builder::schema;
use agent::conversation::transcript::Tool;

/// A tool as the client sends it.
#[derive(Debug, Deserialize)]
pub(super) struct ResponsesTool {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    description: Option<String>,
    parameters: Option<Json>,
    format: Option<Json>,
    tools: Option<Vec<ResponsesTool>>,
}

/// Tools that OpenAI executes, or that only its models know. They are not offered. Of some there are
/// versions with a date at the end.
const HOSTED: [&str; 13] = [
    "apply_patch",
    "code_interpreter",
    "computer",
    "computer_use_preview",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "programmatic_tool_calling",
    "shell",
    "tool_search",
    "web_search",
    "web_search_preview",
];

/// What the client calls a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolOrigin {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    /// Whether its input is a text instead of JSON arguments.
    pub(super) is_custom: bool,
}

/// The tools that are offered, and what the client calls them.
#[derive(Debug, Default)]
pub(super) struct ToolNames {
    pub(super) tools: Vec<Tool>,
    origins: HashMap<String, ToolOrigin>,
}

impl ToolNames {
    pub(super) fn parse(raw: Vec<ResponsesTool>) -> Result<Self, ApiError> {
        let mut names = Self::default();
        for (index, tool) in raw.into_iter().enumerate() {
            let at = format!("tools[{index}]");
            if tool.kind == "namespace" {
                let namespace = required(tool.name, &at)?;
                let inner = tool.tools.unwrap_or_default();
                for (index, tool) in inner.into_iter().enumerate() {
                    names.add(tool, Some(&namespace), &format!("{at}.tools[{index}]"))?;
                }
            } else {
                names.add(tool, None, &at)?;
            }
        }
        Ok(names)
    }

    fn add(
        &mut self,
        raw: ResponsesTool,
        namespace: Option<&str>,
        at: &str,
    ) -> Result<(), ApiError> {
        let is_custom = match raw.kind.as_str() {
            "function" => false,
            "custom" => true,
            kind if HOSTED.contains(&without_date(kind)) => {
                tracing::debug!(kind, "gateway.tool_not_offered");
                return Ok(());
            }
            kind => {
                let problem = format!("tools of type {kind:?} cannot be offered");
                return Err(ApiError::field(&format!("{at}.type"), &problem));
            }
        };
        let name = required(raw.name, at)?;
        let offered = flat_name(namespace, &name);
        let (description, parameters) = if is_custom {
            custom(raw.description, raw.format.as_ref())
        } else {
            (raw.description.unwrap_or_default(), schema(raw.parameters))
        };
        let origin = ToolOrigin {
            namespace: namespace.map(str::to_owned),
            name,
            is_custom,
        };
        if self.origins.insert(offered.clone(), origin).is_some() {
            let problem = format!("there are two tools {offered:?}");
            return Err(ApiError::field(&format!("{at}.name"), &problem));
        }
        self.tools.push(Tool {
            name: offered,
            description,
            parameters,
        });
        Ok(())
    }

    /// Returns what the client calls a tool that was called.
    pub(super) fn origin(&self, offered: &str) -> ToolOrigin {
        let origin = self.origins.get(offered).cloned();
        origin.unwrap_or_else(|| ToolOrigin {
            namespace: None,
            name: offered.to_owned(),
            is_custom: false,
        })
    }
}

/// Removes a date at the end of a type: `_2025_08_26`.
fn without_date(kind: &str) -> &str {
    let name = kind.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
    if kind.len() == name.len() + "_2025_08_26".len() {
        name
    } else {
        kind
    }
}

/// Returns the name under which a tool is offered.
pub(super) fn flat_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some("") => name.to_owned(),
        Some(namespace) if namespace.ends_with("__") => format!("{namespace}{name}"),
        Some(namespace) => format!("{namespace}__{name}"),
    }
}

/// Returns the description and the schema of a custom tool as a function.
fn custom(description: Option<String>, format: Option<&Json>) -> (String, Json) {
    let mut text = description.unwrap_or_default();
    if let Some(definition) = format.and_then(|format| format["definition"].as_str()) {
        let syntax = format.and_then(|format| format["syntax"].as_str());
        let syntax = syntax.unwrap_or("this");
        text.push_str(&format!(
            "\n\nThe input must match this {syntax} grammar:\n{definition}"
        ));
    }
    let input = json!({"type": "string", "description": "The whole input of the tool, as text."});
    let parameters = json!({"type": "object", "properties": {"input": input},
                            "required": ["input"], "additionalProperties": false});
    (text.trim().to_owned(), parameters)
}

/// Returns the text input of a custom tool in the arguments of its function.
pub(super) fn custom_input(arguments: &Json) -> String {
    match arguments["input"].as_str() {
        Some(input) => input.to_owned(),
        None => arguments.to_string(),
    }
}

fn required(name: Option<String>, at: &str) -> Result<String, ApiError> {
    name.ok_or_else(|| ApiError::field(&format!("{at}.name"), "it is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(tools: Json) -> Result<ToolNames, ApiError> {
        ToolNames::parse(serde_json::from_value(tools).unwrap())
    }

    #[test]
    fn namespaces_and_custom_tools_are_flattened_and_restored() {
        let grammar = json!({"type": "grammar", "syntax": "lark", "definition": "start: /x/"});
        let names = parse(json!([
            {"type": "function", "name": "shell", "parameters": {"type": "object"}},
            {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": grammar},
            {"type": "namespace", "name": "mcp__docs", "description": "d", "tools": [
                {"type": "function", "name": "find"}]},
            {"type": "web_search"},
            {"type": "web_search_preview_2025_03_11"},
        ]))
        .unwrap();
        let offered: Vec<&str> = names.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(offered, ["shell", "apply_patch", "mcp__docs__find"]);
        assert!(
            names.tools[1]
                .description
                .contains("lark grammar:\nstart: /x/")
        );
        let find = names.origin("mcp__docs__find");
        assert_eq!(find.namespace.as_deref(), Some("mcp__docs"));
        assert_eq!((find.name.as_str(), find.is_custom), ("find", false));
        assert!(names.origin("apply_patch").is_custom);
        assert_eq!(names.origin("unknown").name, "unknown");
        assert_eq!(custom_input(&json!({"input": "*** Begin"})), "*** Begin");
    }

    #[test]
    fn tools_that_cannot_be_offered_are_named() {
        let function = json!({"type": "function", "name": "a"});
        let cases = [
            (json!([{"type": "function"}]), "tools[0].name"),
            (json!([{"type": "robot", "name": "r"}]), "tools[0].type"),
            (json!([function, function]), "tools[1].name"),
        ];
        for (tools, param) in cases {
            assert_eq!(parse(tools).unwrap_err().param(), Some(param));
        }
    }
}
