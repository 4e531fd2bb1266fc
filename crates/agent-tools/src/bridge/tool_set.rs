//! Selects which of the host's tools a run is offered.

use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use super::{names, schema_sanitizer};
use crate::prompts;
use crate::tool_definition::ToolDefinition;

/// The provider name of all host tools.
pub const PROVIDER: &str = "pi";

/// Names of host tools that Cursor's agent also has.
pub const OVERLAPPING: [&str; 7] = ["read", "bash", "write", "edit", "grep", "find", "ls"];

/// Cursor fails the whole request if it is offered more tools than this.
const MAX_TOOLS: usize = 200;

/// A tool as the host describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTool {
    /// Its name in the host.
    pub name: String,
    /// Its description for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Json,
    /// Where the tool comes from, as the host reports it; part of the set's signature.
    pub origin: Json,
}

/// Settings that decide which tools are offered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolFilter {
    /// Whether tools that Cursor also has are offered.
    pub overlapping: BuiltinTools,
    /// Names of tools that only display recorded results.
    pub replay: Vec<String>,
}

/// Whether tools that Cursor also has are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BuiltinTools {
    /// They are not offered.
    #[default]
    Hidden,
    /// They are offered like any other.
    Offered,
}

/// The tools offered to one run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OfferedTools {
    /// The offered tools, in the host's order.
    pub tools: Vec<OfferedTool>,
    /// Messages about tools that were left out or changed.
    pub warnings: Vec<String>,
}

/// One offered tool.
#[derive(Debug, Clone, PartialEq)]
pub struct OfferedTool {
    /// The tool's name in the host.
    pub host: String,
    /// The name Cursor calls it by.
    pub offered: String,
    /// Its description for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: Json,
    origin: Json,
}

impl OfferedTools {
    /// Selects the tools of a host that a run is offered.
    pub fn of<'a>(tools: impl IntoIterator<Item = &'a HostTool>, filter: &ToolFilter) -> Self {
        let mut chosen: Vec<&HostTool> = tools
            .into_iter()
            .filter(|tool| {
                let overlaps = OVERLAPPING.contains(&tool.name.as_str());
                let hidden = overlaps && filter.overlapping == BuiltinTools::Hidden;
                !hidden && !filter.replay.contains(&tool.name)
            })
            .collect();
        let mut warnings = Vec::new();
        if chosen.len() > MAX_TOOLS {
            let left_out = chosen.len() - MAX_TOOLS;
            warnings.push(format!(
                "Cursor takes no more than {MAX_TOOLS} tools: {left_out} were left out"
            ));
            chosen.truncate(MAX_TOOLS);
        }
        let offered = names::offered(chosen.iter().map(|tool| tool.name.as_str()));
        let tools = chosen
            .into_iter()
            .zip(offered)
            .map(|(tool, offered)| {
                let (schema, changed) = schema_sanitizer::reduced(&tool.parameters);
                if changed {
                    warnings.push(format!(
                        "tool {}: its schema was simplified, since Cursor refuses oneOf, anyOf, allOf and $ref",
                        tool.name
                    ));
                }
                OfferedTool {
                    host: tool.name.clone(),
                    offered,
                    description: match tool.description.trim() {
                        "" => prompts::tools::default_description(&tool.name),
                        _ => tool.description.clone(),
                    },
                    schema,
                    origin: tool.origin.clone(),
                }
            })
            .collect();
        Self { tools, warnings }
    }

    /// Returns the tools as Cursor lists them. The description states the name to call, because
    /// the host's transcript shows the host's name.
    pub fn offers(&self) -> Vec<ToolDefinition> {
        let offer = |tool: &OfferedTool| ToolDefinition {
            name: tool.offered.clone(),
            description: prompts::tools::offered_description(
                &tool.description,
                &tool.offered,
                &tool.host,
            ),
            schema: tool.schema.clone(),
            provider: PROVIDER.into(),
            tool: tool.offered.clone(),
        };
        self.tools.iter().map(offer).collect()
    }

    /// Returns a short text that is the same for the same set of tools, in any order.
    pub fn signature(&self) -> String {
        if self.tools.is_empty() {
            return "bridge:empty".into();
        }
        let mut lines: Vec<String> = self
            .tools
            .iter()
            .map(|tool| {
                json!([
                    tool.host,
                    tool.offered,
                    tool.description,
                    tool.schema,
                    tool.origin
                ])
                .to_string()
            })
            .collect();
        lines.sort_unstable();
        let digest = Sha256::digest(lines.join("\n").as_bytes());
        let hex: String = digest
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("bridge:on:{hex}")
    }
}
