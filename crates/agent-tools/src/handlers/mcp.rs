//! Answers requests about MCP servers: those in the user's settings, and the groups in which the
//! host's tools are offered.

use tokio_util::sync::CancellationToken;

use crate::prompts::tools;
use crate::request_context::RunContext;
use cursor_proto::agent::v1::*;

/// Returns the state and tools of the requested servers.
pub(crate) fn state(facts: &RunContext, args: &McpStateExecArgs) -> McpStateExecResult {
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

/// The error of a request that was cancelled.
use crate::prompts::tools::REQUEST_CANCELLED as CANCELLED;

fn not_found(server: &str) -> String {
    format!("Server \"{server}\" not found")
}

/// Lists resources of the MCP servers; groups of host tools have none.
pub(crate) async fn resources(
    facts: &RunContext,
    args: &ListMcpResourcesExecArgs,
    abort: &CancellationToken,
) -> ListMcpResourcesExecResult {
    use list_mcp_resources_exec_result::Result as Answer;
    let servers = &facts.settings.servers;
    let unknown = args.server.as_deref().filter(|name| {
        !servers.has(name) && !facts.offers.iter().any(|offer| offer.provider == *name)
    });
    let listed = match unknown {
        Some(name) => Err(not_found(name)),
        None => tokio::select! {
            listed = servers.resources(args.server.as_deref()) => listed,
            () = abort.cancelled() => Err(CANCELLED.to_owned()),
        },
    };
    let result = match listed {
        Ok(resources) => Answer::Success(ListMcpResourcesSuccess { resources }),
        Err(error) => Answer::Error(ListMcpResourcesError { error }),
    };
    ListMcpResourcesExecResult {
        result: Some(result),
    }
}

/// Whether a resource is to be saved to a file instead of returned.
pub(crate) fn is_saved(args: &ReadMcpResourceExecArgs) -> bool {
    let path = args.download_path.as_ref();
    path.is_some_and(|path| !path.is_empty())
}

/// Reads a resource of a server. One that is to be saved needs a handler that may write.
pub(crate) async fn read(
    facts: &RunContext,
    args: ReadMcpResourceExecArgs,
    abort: &CancellationToken,
) -> ReadMcpResourceExecResult {
    let result = Some(if is_saved(&args) {
        read_error(args, tools::MCP_RESOURCE_NOT_SAVED)
    } else {
        resource(facts, args, abort).await
    });
    ReadMcpResourceExecResult { result }
}

/// Returns the content of a resource, or an error.
pub(crate) async fn resource(
    facts: &RunContext,
    args: ReadMcpResourceExecArgs,
    abort: &CancellationToken,
) -> read_mcp_resource_exec_result::Result {
    let read = tokio::select! {
        read = facts.settings.servers.resource(&args) => read,
        () = abort.cancelled() => return read_error(args, CANCELLED),
    };
    read.unwrap_or_else(|| {
        let why = not_found(&args.server);
        read_error(args, &why)
    })
}

/// Returns the error result for a resource that was not read.
pub(crate) fn read_error(
    args: ReadMcpResourceExecArgs,
    why: &str,
) -> read_mcp_resource_exec_result::Result {
    read_mcp_resource_exec_result::Result::Error(ReadMcpResourceError {
        uri: args.uri,
        error: why.to_owned(),
    })
}
