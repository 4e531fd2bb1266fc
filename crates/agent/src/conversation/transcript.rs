//! Reads a host's messages into one transcript: system prompt, tools and messages.
//!
//! Older hosts send prompt and tools separately from the messages. Newer ones put system messages
//! among them, each of which may add text, change named sections, and add or remove tools; the
//! effective prompt is the result of applying them in order. A developer message is treated as a
//! system message.

use serde_json::Value as Json;

/// A host's transcript, without its system messages.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Transcript {
    /// The effective system prompt.
    pub system: String,
    /// The effective tools, in the order they were added.
    pub tools: Vec<Tool>,
    /// All other messages, oldest first.
    pub messages: Vec<Json>,
}

/// A tool of the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// The host's name for it.
    pub name: String,
    /// Its description for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Json,
}

impl Transcript {
    /// Reads messages, starting with a prompt and tools that were sent separately.
    pub fn read(system: Option<String>, tools: Option<Vec<Tool>>, messages: Vec<Json>) -> Self {
        let mut texts: Vec<String> = system.into_iter().collect();
        let mut sections: Vec<(String, String)> = Vec::new();
        let mut tools = tools.unwrap_or_default();
        let mut rest = Vec::with_capacity(messages.len());
        for message in messages {
            if !matches!(message["role"].as_str(), Some("system" | "developer")) {
                rest.push(message);
                continue;
            }
            texts.extend(text(&message["content"]));
            patch(&mut sections, &message["sections"]);
            for removed in array(&message["toolsRemoved"]) {
                let name = removed["name"].as_str().or(removed.as_str());
                tools.retain(|tool| Some(tool.name.as_str()) != name);
            }
            for added in array(&message["toolsAdded"]).iter().filter_map(tool) {
                match tools.iter_mut().find(|tool| tool.name == added.name) {
                    Some(tool) => *tool = added,
                    None => tools.push(added),
                }
            }
        }
        let parts = texts
            .into_iter()
            .chain(sections.into_iter().map(|(_, text)| text));
        let parts: Vec<String> = parts.filter(|part| !part.trim().is_empty()).collect();
        Self {
            system: parts.join("\n\n"),
            tools,
            messages: rest,
        }
    }
}

/// Applies changes to sections. A section keeps its position when its text changes; `null` removes
/// it.
fn patch(sections: &mut Vec<(String, String)>, changes: &Json) {
    let Json::Object(changes) = changes else {
        return;
    };
    for (name, change) in changes {
        match change {
            Json::String(text) => match sections.iter_mut().find(|(known, _)| known == name) {
                Some((_, old)) => old.clone_from(text),
                None => sections.push((name.clone(), text.clone())),
            },
            _ => sections.retain(|(known, _)| known != name),
        }
    }
}

fn array(value: &Json) -> &[Json] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(content: &Json) -> Option<String> {
    match content {
        Json::String(text) => Some(text.clone()),
        Json::Array(blocks) => {
            let texts: Vec<&str> = blocks.iter().filter_map(|b| b["text"].as_str()).collect();
            Some(texts.join("\n"))
        }
        _ => None,
    }
}

fn tool(value: &Json) -> Option<Tool> {
    Some(Tool {
        name: value["name"].as_str()?.to_owned(),
        description: value["description"].as_str().unwrap_or_default().to_owned(),
        parameters: value["parameters"].clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(transcript: &Transcript) -> Vec<&str> {
        transcript.tools.iter().map(|t| t.name.as_str()).collect()
    }

    #[test]
    fn a_separate_prompt_is_used_unchanged() {
        let tool = Tool {
            name: "a".into(),
            description: String::new(),
            parameters: json!({}),
        };
        let user = json!({"role": "user", "content": "hi"});
        let read = Transcript::read(Some("S".into()), Some(vec![tool]), vec![user.clone()]);
        assert_eq!((read.system.as_str(), names(&read)), ("S", vec!["a"]));
        assert_eq!(read.messages, [user]);
    }

    #[test]
    fn system_messages_are_applied_in_order() {
        let read = Transcript::read(
            None,
            None,
            vec![
                json!({"role": "system", "content": "Base.", "sections": {"tools": "T1", "cwd": "C", "docs": "D"},
                       "toolsAdded": [{"name": "a", "description": "first", "parameters": {"type": "object"}},
                                      {"name": "b", "parameters": {}}]}),
                json!({"role": "user", "content": "hi"}),
                json!({"role": "system", "content": "", "sections": {"tools": "T2", "docs": null},
                       "toolsRemoved": [{"name": "b"}],
                       "toolsAdded": [{"name": "a", "description": "second", "parameters": {}}, {"name": "c", "parameters": {}}]}),
                json!({"role": "system", "content": "More."}),
            ],
        );
        assert_eq!(read.system, "Base.\n\nMore.\n\nT2\n\nC");
        assert_eq!(names(&read), ["a", "c"]);
        assert_eq!(read.tools[0].description, "second");
        assert_eq!(read.messages.len(), 1);
    }

    /// A test for defect 15 of `docs/recovery-tests.md`, which other clients have.
    #[test]
    fn a_developers_message_is_one_of_the_system() {
        let developer = json!({"role": "developer", "content": [{"type": "text", "text": "D"}]});
        let read = Transcript::read(Some("S".into()), None, vec![developer]);
        assert_eq!((read.system.as_str(), read.messages.len()), ("S\n\nD", 0));
    }

    #[test]
    fn invalid_fields_are_ignored() {
        let read = Transcript::read(
            None,
            None,
            vec![
                json!({"role": "system", "content": 7, "sections": [1], "toolsAdded": {"name": "x"}, "toolsRemoved": "y"}),
                json!({"role": "system", "content": [{"type": "text", "text": "A"}], "toolsAdded": [{"nope": 1}]}),
                json!(null),
            ],
        );
        assert_eq!((read.system.as_str(), read.tools.len()), ("A", 0));
        assert_eq!(read.messages, [Json::Null]);
    }
}
