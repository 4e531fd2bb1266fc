//! `bridge/*`: the host's tools for other agents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// `bridge/endpoint`: where another agent finds the tools of a session's live run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BridgeEndpointParams {
    /// The session.
    pub session_id: String,
}

/// The answer to `bridge/endpoint`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct BridgeEndpointResult {
    /// `null` if the session has no live run, or the run offers no tools.
    pub endpoint: Option<BridgeEndpoint>,
}

/// An MCP server (Streamable HTTP) on this machine, for as long as the run lives.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct BridgeEndpoint {
    /// Its URL. Whoever knows it still needs the token.
    pub url: String,
    /// What to send as `Authorization: Bearer …`.
    pub token: String,
    /// What it offers.
    pub tools: Vec<BridgeTool>,
}

/// A tool as it is offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "camelCase")]
pub struct BridgeTool {
    /// The name it is called by.
    pub name: String,
    /// The host's name of it.
    pub host_name: String,
}

impl std::fmt::Debug for BridgeEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BridgeEndpoint")
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}
