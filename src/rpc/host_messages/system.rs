//! The effective system prompt and tools.
//!
//! Older versions of pi send prompt and tools separately from the messages. Newer ones put system
//! messages among them, each of which may add text, change named sections, and add or remove tools.
//! A developer message is treated as a system message.

use serde_json::Value as Json;

use super::{MessageError, MessageNode};
use agent::conversation::transcript::Tool;

/// A prompt and tools, to which system messages are applied in order.
pub(super) struct SystemPrompt {
    texts: Vec<String>,
    sections: Vec<(String, String)>,
    tools: Vec<Tool>,
}

impl SystemPrompt {
    pub(super) fn new(text: Option<String>, tools: Option<Vec<Tool>>) -> Self {
        Self {
            texts: text.into_iter().collect(),
            sections: Vec::new(),
            tools: tools.unwrap_or_default(),
        }
    }

    pub(super) fn apply(&mut self, message: &MessageNode<'_>) -> Result<(), MessageError> {
        let content = message.get("content");
        match content.value {
            Json::Null => {}
            Json::String(text) => self.texts.push(text.clone()),
            _ => {
                let mut lines = Vec::new();
                for block in content.items()? {
                    lines.push(block.get("text").text()?.to_owned());
                }
                self.texts.push(lines.join("\n"));
            }
        }
        self.change_sections(&message.get("sections"))?;
        for removed in message.get("toolsRemoved").items_or_none()? {
            let name = match removed.value {
                Json::String(name) => name,
                _ => removed.get("name").text()?,
            };
            self.tools.retain(|tool| tool.name != name);
        }
        for added in message.get("toolsAdded").items_or_none()? {
            let added = Tool {
                name: added.get("name").text()?.to_owned(),
                description: added.get("description").text_or_empty()?.to_owned(),
                parameters: added.value["parameters"].clone(),
            };
            match self.tools.iter_mut().find(|tool| tool.name == added.name) {
                Some(tool) => *tool = added,
                None => self.tools.push(added),
            }
        }
        Ok(())
    }

    /// Changes sections. A section keeps its position when its text changes; `null` removes it.
    fn change_sections(&mut self, changes: &MessageNode<'_>) -> Result<(), MessageError> {
        let changed = match changes.value {
            Json::Null => return Ok(()),
            Json::Object(changed) => changed,
            _ => return Err(changes.wrong("expected an object")),
        };
        let sections = &mut self.sections;
        for (name, change) in changed {
            if change.is_null() {
                sections.retain(|(known, _)| known != name);
                continue;
            }
            let text = changes.get(name).text()?.to_owned();
            match sections.iter_mut().find(|(known, _)| known == name) {
                Some((_, old)) => *old = text,
                None => sections.push((name.clone(), text)),
            }
        }
        Ok(())
    }

    /// Returns the effective prompt and tools.
    pub(super) fn finish(self) -> (String, Vec<Tool>) {
        let sections = self.sections.into_iter().map(|(_, text)| text);
        let parts: Vec<String> = self
            .texts
            .into_iter()
            .chain(sections)
            .filter(|part| !part.trim().is_empty())
            .collect();
        (parts.join("\n\n"), self.tools)
    }
}
