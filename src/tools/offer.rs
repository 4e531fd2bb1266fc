//! Tools the host offers, as Cursor lists them.

use serde_json::Value as Json;

use crate::wire::proto::agent::v1::McpToolDefinition;
use crate::wire::value;

/// One tool of the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// The name the model calls.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: Json,
    /// The group it belongs to.
    pub provider: String,
    /// Its name within the group.
    pub tool: String,
}

impl Offer {
    /// The definition, schema keys in their order.
    pub fn definition(&self) -> McpToolDefinition {
        McpToolDefinition {
            name: self.name.clone(),
            description: self.description.clone(),
            input_schema: Some(value::encode(&self.schema)),
            provider_identifier: self.provider.clone(),
            tool_name: self.tool.clone(),
            input_schema_json: None,
            output_schema_json: None,
            annotations_json: None,
        }
    }
}
