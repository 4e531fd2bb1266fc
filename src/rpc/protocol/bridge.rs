//! `bridge/*`: the host's tools for other agents.

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

/// `bridge/endpoint`: where another agent can call the tools of a session's live run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BridgeEndpointParams {
    /// The session.
    pub session_id: String,
}

/// The answer to `bridge/endpoint`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct BridgeEndpointResult {
    /// `null` if the session has no live run, or the run offers no tools.
    pub endpoint: Option<BridgeEndpoint>,
}

/// An MCP server (Streamable HTTP) on this machine, available while the run exists.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct BridgeEndpoint {
    /// Its URL. Requests also need the token.
    pub url: String,
    /// The token for `Authorization: Bearer …`.
    pub token: String,
    /// The tools it offers.
    pub tools: Vec<BridgeTool>,
}

/// A tool of the endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct BridgeTool {
    /// Its name in the endpoint.
    pub name: String,
    /// The host's name for it.
    pub host_name: String,
}

impl std::fmt::Debug for BridgeEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BridgeEndpoint")
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}
