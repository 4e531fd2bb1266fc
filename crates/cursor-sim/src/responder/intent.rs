//! Detects what a user message asks for, by keywords. Pure: no I/O.

use serde_json::{Map, Value, json};

/// A tool the client offers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClientTool {
    /// Its full name.
    pub(super) name: String,
    pub(super) provider: String,
    /// Its name without the provider.
    pub(super) tool: String,
    /// JSON schema of its arguments.
    pub(super) schema: Value,
}

/// What a message asks for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Intent {
    /// Repeat the user's first message.
    RecallFirst,
    CallTool(ClientTool, Map<String, Value>),
    /// Read a file; without a name, find one.
    ReadFile(Option<String>),
    RunCommand(String),
    /// Nothing in particular.
    Reply,
}

/// Returns the tools in a run request and a request context, without duplicates.
pub(super) fn offered_tools(request: &Value, context: &Value) -> Vec<ClientTool> {
    let lists = [&request["mcpTools"]["mcpTools"], &context["tools"]];
    let mut tools: Vec<ClientTool> = Vec::new();
    for definition in lists.iter().filter_map(|list| list.as_array()).flatten() {
        let text = |name: &str| definition[name].as_str().unwrap_or_default().to_owned();
        let tool = ClientTool {
            name: text("name"),
            provider: text("providerIdentifier"),
            tool: text("toolName"),
            schema: match definition.get("inputSchema") {
                Some(schema) => schema.clone(),
                None => serde_json::from_str(&text("inputSchemaJson")).unwrap_or(Value::Null),
            },
        };
        if !tools.iter().any(|known| known.name == tool.name) {
            tools.push(tool);
        }
    }
    tools
}

/// Returns what a message asks for.
pub(super) fn detect(text: &str, tools: &[ClientTool]) -> Intent {
    let lower = text.to_lowercase();
    if lower.contains("say first")
        || lower.contains("said first")
        || lower.contains("first thing i said")
    {
        return Intent::RecallFirst;
    }
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-')
        .filter(|word| !word.is_empty())
        .collect();
    let named = |tool: &&ClientTool| {
        words
            .iter()
            .any(|word| *word == tool.name || *word == tool.tool)
    };
    if let Some(tool) = tools.iter().find(named) {
        return Intent::CallTool(tool.clone(), arguments(text, tool));
    }
    let mentions = |verbs: &[&str]| {
        words
            .iter()
            .any(|word| verbs.contains(&word.to_lowercase().as_str()))
    };
    if mentions(&["run", "execute", "list"]) {
        let command = quoted(text, '`').unwrap_or_else(|| "ls".to_owned());
        return Intent::RunCommand(command);
    }
    if mentions(&["read", "look", "open", "show"]) {
        return Intent::ReadFile(file_name(text));
    }
    Intent::Reply
}

/// Returns the text between the first two marks.
fn quoted(text: &str, mark: char) -> Option<String> {
    let (_, rest) = text.split_once(mark)?;
    let (inside, _) = rest.split_once(mark)?;
    (!inside.is_empty()).then(|| inside.to_owned())
}

/// Returns the first word that looks like a file name.
fn file_name(text: &str) -> Option<String> {
    text.split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '/' && c != '.'))
        .map(|word| word.trim_end_matches('.'))
        .find(|word| {
            word.rsplit_once('.').is_some_and(|(stem, end)| {
                !stem.is_empty() && !end.is_empty() && end.chars().all(char::is_alphanumeric)
            })
        })
        .map(str::to_owned)
}

/// Returns arguments for a tool: the JSON object in the message, or else a value for each required
/// argument, taken from the message where possible.
fn arguments(text: &str, tool: &ClientTool) -> Map<String, Value> {
    if let (Some(start), Some(end)) = (text.find('{'), text.rfind('}'))
        && let Some(Ok(Value::Object(arguments))) = text.get(start..=end).map(serde_json::from_str)
    {
        return arguments;
    }
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit() && c != '.' && c != '-')
        .filter_map(|word| word.trim_end_matches('.').parse::<f64>().ok());
    let string = quoted(text, '"').unwrap_or_else(|| text.to_owned());
    let required = tool.schema["required"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    required
        .iter()
        .filter_map(Value::as_str)
        .map(|name| {
            let property = &tool.schema["properties"][name];
            let value = match (property["enum"].get(0), property["type"].as_str()) {
                (Some(first), _) => first.clone(),
                (None, Some("number")) => json!(numbers.next().unwrap_or(1.0)),
                (None, Some("integer")) => json!(numbers.next().unwrap_or(1.0) as i64),
                (None, Some("boolean")) => json!(true),
                (None, Some("array")) => json!([]),
                (None, Some("object")) => json!({}),
                _ if name.contains("path") || name.contains("file") => {
                    json!(file_name(text).unwrap_or_else(|| "README.md".to_owned()))
                }
                _ if name.contains("command") => {
                    json!(quoted(text, '`').unwrap_or_else(|| "ls".to_owned()))
                }
                _ => json!(string),
            };
            (name.to_owned(), value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add() -> ClientTool {
        ClientTool {
            name: "custom-user-tools-add".into(),
            provider: "custom-user-tools".into(),
            tool: "add".into(),
            schema: json!({
                "type": "object",
                "properties": { "a": { "type": "number" }, "b": { "type": "number" } },
                "required": ["a", "b"],
            }),
        }
    }

    #[test]
    fn keywords_select_the_intent() {
        assert_eq!(detect("hello there", &[add()]), Intent::Reply);
        assert_eq!(detect("What did I say first?", &[]), Intent::RecallFirst);
        assert_eq!(detect("please read it", &[]), Intent::ReadFile(None));
        assert_eq!(
            detect("Look at src/main.rs.", &[]),
            Intent::ReadFile(Some("src/main.rs".into()))
        );
        assert_eq!(
            detect("run `echo hi`", &[]),
            Intent::RunCommand("echo hi".into())
        );
        assert_eq!(
            detect("list the files", &[]),
            Intent::RunCommand("ls".into())
        );
    }

    #[test]
    fn a_tool_is_called_when_it_is_named() {
        let Intent::CallTool(tool, arguments) = detect("add 2 and 3.5 please", &[add()]) else {
            panic!("expected a call");
        };
        assert_eq!(tool.tool, "add");
        assert_eq!(Value::Object(arguments), json!({ "a": 2.0, "b": 3.5 }));
        let Intent::CallTool(_, arguments) = detect("add {\"a\": 1, \"c\": [2]}", &[add()]) else {
            panic!("expected a call");
        };
        assert_eq!(Value::Object(arguments), json!({ "a": 1, "c": [2] }));
    }

    #[test]
    fn tools_of_request_and_context_are_merged() {
        let definition = |name: &str| json!({ "name": name, "toolName": name });
        let request = json!({ "mcpTools": { "mcpTools": [definition("a")] } });
        let context = json!({ "tools": [definition("a"), definition("b")] });
        let names: Vec<String> = offered_tools(&request, &context)
            .into_iter()
            .map(|tool| tool.name)
            .collect();
        assert_eq!(names, ["a", "b"]);
    }
}
