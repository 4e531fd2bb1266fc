//! Tools as they are offered to Cursor.

use serde_json::Value as Json;

use cursor_proto::agent::v1::McpToolDefinition;
use cursor_proto::protobuf_value;

/// A tool that is offered to Cursor.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// The name the model calls.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: Json,
    /// The MCP provider it belongs to.
    pub provider: String,
    /// Its name within the provider.
    pub tool: String,
}

impl ToolDefinition {
    /// Returns the protobuf definition; the order of schema keys is kept.
    pub fn definition(&self) -> McpToolDefinition {
        McpToolDefinition {
            name: self.name.clone(),
            description: self.description.clone(),
            input_schema: Some(protobuf_value::encode(&self.schema)),
            provider_identifier: self.provider.clone(),
            tool_name: self.tool.clone(),
            input_schema_json: None,
            output_schema_json: None,
            annotations_json: None,
        }
    }
}
