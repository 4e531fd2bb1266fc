//! Which of its tools a client allows. A choice only narrows what is offered, because Cursor cannot
//! be made to call a tool.

use serde_json::Value as Json;

use super::api_error::ApiError;
use agent::conversation::transcript::Tool;

/// The tools that may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ToolChoice {
    /// All.
    Any,
    /// None.
    None,
    /// Those with these names.
    Only(Vec<String>),
}

const EXPECTED: &str = "expected none, auto, required or a function";

impl ToolChoice {
    /// Reads the choice of chat completions and responses. `name` returns the name in an object
    /// that selects a tool.
    pub(super) fn parse(
        choice: Option<&Json>,
        name: impl Fn(&Json) -> Option<String>,
    ) -> Result<Self, ApiError> {
        let choice = choice.unwrap_or(&Json::Null);
        let wrong = |problem: &str| Err(ApiError::field("tool_choice", problem));
        match choice.as_str().or(choice["type"].as_str()) {
            Some("none") => Ok(Self::None),
            Some("auto" | "required" | "any") => Ok(Self::Any),
            Some("function" | "custom" | "tool") => match name(choice) {
                Some(name) => Ok(Self::Only(vec![name])),
                None => wrong("it names no tool"),
            },
            Some("allowed_tools") => {
                // Chat completions nest the list once more.
                let list = choice["tools"].as_array();
                let list = list.or(choice["allowed_tools"]["tools"].as_array());
                let names = list.map(|tools| tools.iter().filter_map(&name).collect());
                names.map_or_else(
                    || wrong("it has no list of tools"),
                    |names| Ok(Self::Only(names)),
                )
            }
            None if choice.is_null() => Ok(Self::Any),
            _ => wrong(EXPECTED),
        }
    }

    /// Returns the allowed tools.
    pub(super) fn narrow(self, tools: Vec<Tool>) -> Result<Vec<Tool>, ApiError> {
        let names = match self {
            Self::Any => return Ok(tools),
            Self::None => return Ok(Vec::new()),
            Self::Only(names) => names,
        };
        let is_allowed = |tool: &Tool| names.contains(&tool.name);
        let allowed: Vec<Tool> = tools.into_iter().filter(is_allowed).collect();
        if allowed.is_empty() {
            return Err(ApiError::field("tool_choice", "it names none of the tools"));
        }
        Ok(allowed)
    }
}
