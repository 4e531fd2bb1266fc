//! What is known of MCP servers: those of the user's settings, and the groups the host's
//! tools are offered in.

use tokio_util::sync::CancellationToken;

use super::context::Facts;
use super::{Reply, Request};
use crate::wire::proto::agent::v1::*;

/// Answers what is about MCP servers and needs no host; other requests come back.
pub(super) async fn answer(
    facts: &Facts,
    request: Request,
    abort: CancellationToken,
) -> Result<Reply, Request> {
    Ok(match request {
        Request::McpStateExecArgs(args) => Reply::McpStateExecResult(state(facts, &args)),
        Request::ListMcpResourcesExecArgs(args) => {
            Reply::ListMcpResourcesExecResult(resources(facts, &args).await)
        }
        Request::ReadMcpResourceExecArgs(args) => {
            Reply::ReadMcpResourceExecResult(resource(facts, args).await)
        }
        Request::McpArgs(args) => match facts.settings.servers.call(&args, abort).await {
            Some(result) => Reply::McpResult(result),
            None => return Err(Request::McpArgs(args)),
        },
        other => return Err(other),
    })
}

/// The servers and their tools.
fn state(facts: &Facts, args: &McpStateExecArgs) -> McpStateExecResult {
    let wanted = |name: &str| {
        args.server_identifiers.is_empty()
            || args.server_identifiers.iter().any(|wanted| wanted == name)
    };
    let mut servers: Vec<McpStateServer> = Vec::new();
    for offer in facts.offers.iter().filter(|offer| wanted(&offer.provider)) {
        let definition = offer.definition();
        match servers
            .iter_mut()
            .find(|server| server.server_identifier == offer.provider)
        {
            Some(server) => server.tools.push(definition),
            None => servers.push(McpStateServer {
                server_name: offer.provider.clone(),
                server_identifier: offer.provider.clone(),
                tools: vec![definition],
                status: Some("connected".into()),
                ..McpStateServer::default()
            }),
        }
    }
    servers.extend(facts.settings.servers.states(&wanted));
    McpStateExecResult {
        result: Some(mcp_state_exec_result::Result::Success(McpStateSuccess {
            servers,
        })),
    }
}

fn not_found(server: &str) -> String {
    format!("Server \"{server}\" not found")
}

/// The host's tools come without resources; servers may have some.
async fn resources(facts: &Facts, args: &ListMcpResourcesExecArgs) -> ListMcpResourcesExecResult {
    use list_mcp_resources_exec_result::Result as Answer;
    let servers = &facts.settings.servers;
    let unknown = args.server.as_deref().filter(|name| {
        !servers.has(name) && !facts.offers.iter().any(|offer| offer.provider == *name)
    });
    let listed = match unknown {
        Some(name) => Err(not_found(name)),
        None => servers.resources(args.server.as_deref()).await,
    };
    let result = match listed {
        Ok(resources) => Answer::Success(ListMcpResourcesSuccess { resources }),
        Err(error) => Answer::Error(ListMcpResourcesError { error }),
    };
    ListMcpResourcesExecResult {
        result: Some(result),
    }
}

async fn resource(facts: &Facts, args: ReadMcpResourceExecArgs) -> ReadMcpResourceExecResult {
    let read = facts.settings.servers.resource(&args).await;
    let result = read.unwrap_or_else(|| {
        read_mcp_resource_exec_result::Result::Error(ReadMcpResourceError {
            uri: args.uri,
            error: not_found(&args.server),
        })
    });
    ReadMcpResourceExecResult {
        result: Some(result),
    }
}
