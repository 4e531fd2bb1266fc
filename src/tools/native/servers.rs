//! What is known of MCP servers: the groups the host's tools are offered in, and nothing else.

use crate::tools::context::Facts;
use crate::wire::proto::agent::v1::*;

/// The servers and their tools.
pub(super) fn state(facts: &Facts, args: &McpStateExecArgs) -> McpStateExecResult {
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
    McpStateExecResult {
        result: Some(mcp_state_exec_result::Result::Success(McpStateSuccess {
            servers,
        })),
    }
}

fn not_found(server: &str) -> String {
    format!("Server \"{server}\" not found")
}

/// The host's tools come without resources.
pub(super) fn resources(
    facts: &Facts,
    args: &ListMcpResourcesExecArgs,
) -> ListMcpResourcesExecResult {
    let unknown = args
        .server
        .as_deref()
        .filter(|name| !facts.offers.iter().any(|offer| offer.provider == *name));
    let result = match unknown {
        Some(name) => list_mcp_resources_exec_result::Result::Error(ListMcpResourcesError {
            error: not_found(name),
        }),
        None => list_mcp_resources_exec_result::Result::Success(ListMcpResourcesSuccess::default()),
    };
    ListMcpResourcesExecResult {
        result: Some(result),
    }
}

/// No resource is there to be read.
pub(super) fn resource(args: ReadMcpResourceExecArgs) -> ReadMcpResourceExecResult {
    ReadMcpResourceExecResult {
        result: Some(read_mcp_resource_exec_result::Result::Error(
            ReadMcpResourceError {
                uri: args.uri,
                error: not_found(&args.server),
            },
        )),
    }
}
