//! Which native tools a run allows; sent as headers.

/// Which native tools the server may offer to its model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolGates {
    /// If set, only these tools (`read_tool_call`, …); an empty list allows none.
    pub allowed: Option<Vec<String>>,
    /// Tools that are never offered.
    pub excluded: Vec<String>,
}
