//! `bridge/*`: where other agents can call the host's tools.

use jsonrpsee::types::ErrorObjectOwned;
use secrecy::ExposeSecret as _;

use super::error;
use super::protocol::{BridgeEndpoint, BridgeEndpointResult, BridgeTool};
use agent::turn::Session;
use agent_tools::bridge::endpoint::McpEndpoint;

/// Returns the endpoint of a session's live run. The first request opens the port.
pub(super) async fn endpoint(
    server: &McpEndpoint,
    session: Option<Session>,
) -> Result<BridgeEndpointResult, ErrorObjectOwned> {
    let sender = session.and_then(|session| session.external_calls());
    let Some(sender) = sender.filter(|sender| !sender.bridge().snapshot().tools.is_empty()) else {
        return Ok(BridgeEndpointResult { endpoint: None });
    };
    let opened = server.open(&sender).await;
    let address = opened.map_err(|problem| error::internal(&problem.to_string()))?;
    let tools = sender.bridge().snapshot().tools.iter();
    let endpoint = BridgeEndpoint {
        url: address.url.expose_secret().to_owned(),
        token: address.token.expose_secret().to_owned(),
        tools: tools
            .map(|tool| BridgeTool {
                name: tool.offered.clone(),
                host_name: tool.host.clone(),
            })
            .collect(),
    };
    Ok(BridgeEndpointResult {
        endpoint: Some(endpoint),
    })
}
