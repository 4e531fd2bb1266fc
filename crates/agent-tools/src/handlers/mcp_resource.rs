//! A resource of an MCP server, saved to a file instead of returned.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::mcp::{read_error, resource};
use super::pi_tools;
use crate::prompts;
use crate::request_context::RunContext;
use crate::workspace::path_guard::PathGuard;
use cursor_proto::agent::v1::read_mcp_resource_exec_result::Result as Answer;
use cursor_proto::agent::v1::*;

/// Reads a resource and writes it to the path in the request, with the same checks as every write.
pub(super) async fn save(
    guard: &Arc<PathGuard>,
    facts: &RunContext,
    args: ReadMcpResourceExecArgs,
    abort: &CancellationToken,
) -> ReadMcpResourceExecResult {
    let mut answer = resource(facts, args.clone(), abort).await;
    if let Answer::Success(success) = &mut answer {
        let file_bytes = match success.content.take() {
            Some(read_mcp_resource_success::Content::Text(text)) => text.into_bytes().into(),
            Some(read_mcp_resource_success::Content::Blob(blob)) => blob,
            None => Default::default(),
        };
        let write = WriteArgs {
            path: args.download_path.clone().unwrap_or_default(),
            file_bytes,
            ..WriteArgs::default()
        };
        let guard = Arc::clone(guard);
        let written = tokio::task::spawn_blocking(move || pi_tools::save(&guard, &write)).await;
        let why = match written {
            Ok(Ok(())) => None,
            Ok(Err(pi_tools::PiToolError(why))) => Some(why),
            Err(_) => Some(prompts::tools::TOOL_CRASHED.into()),
        };
        if let Some(why) = why {
            answer = read_error(args, &format!("Failed to read MCP resource: {why}"));
        }
    }
    ReadMcpResourceExecResult {
        result: Some(answer),
    }
}
