//! The MCP server of one run: its list of tools, and calls that wait for the host.

use std::sync::Arc;

use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, JsonObject, ListToolsResult, MetaObject, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value as Json;

use super::route::CallerDisconnected;
use crate::bridge::HostResult;
use crate::bridge::content::Content;
use crate::bridge::external_calls::{ExternalCallError, ExternalCallSender};

/// The MCP service for the tools of one run.
pub(super) struct Tools {
    pub(super) sender: Arc<ExternalCallSender>,
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let us = Implementation::new("cursor-sidecar", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(us)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools(&self.sender)))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let connection = context
            .extensions
            .get::<http::request::Parts>()
            .and_then(|parts| parts.extensions.get::<CallerDisconnected>().cloned());
        let left = async {
            match connection {
                Some(connection) => tokio::select! {
                    () = context.ct.cancelled() => {}
                    () = connection.0.cancelled() => {}
                },
                None => context.ct.cancelled().await,
            }
        };
        let arguments = Json::Object(request.arguments.unwrap_or_default());
        match self.sender.call(&request.name, arguments, left).await {
            Ok(result) => Ok(call_result(result).into()),
            // Models read the text of a result, but not that of a protocol error.
            Err(
                refused @ (ExternalCallError::Unknown { .. }
                | ExternalCallError::TimedOut(_)
                | ExternalCallError::CallDropped),
            ) => {
                let text = ContentBlock::text(refused.to_string());
                Ok(CallToolResult::error(vec![text]).into())
            }
            Err(
                refused @ (ExternalCallError::RunEnded | ExternalCallError::CallerDisconnected),
            ) => Err(ErrorData::internal_error(refused.to_string(), None)),
        }
    }
}

/// Returns the tools as offered to Cursor, with the host's own name in the metadata.
fn tools(sender: &ExternalCallSender) -> Vec<Tool> {
    let snapshot = sender.bridge().snapshot();
    let offers = snapshot.offers().into_iter();
    offers
        .zip(&snapshot.tools)
        .map(|(offer, tool)| {
            let schema = match offer.schema {
                Json::Object(schema) => schema,
                _ => JsonObject::new(),
            };
            let mut meta = JsonObject::new();
            meta.insert("piToolName".into(), tool.host.clone().into());
            Tool::new(offer.name, offer.description, Arc::new(schema)).with_meta(MetaObject(meta))
        })
        .collect()
}

fn call_result(result: HostResult) -> CallToolResult {
    let content = result
        .content
        .into_iter()
        .map(|content| match content {
            Content::Text(text) => ContentBlock::text(text),
            Content::Image { data, mime_type } => ContentBlock::image(data, mime_type),
        })
        .collect();
    let mut call_result = if result.is_error {
        CallToolResult::error(content)
    } else {
        CallToolResult::success(content)
    };
    call_result.structured_content = result.structured.map(Json::Object);
    call_result
}
