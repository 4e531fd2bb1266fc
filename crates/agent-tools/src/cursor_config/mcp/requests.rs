//! Answers the server's requests about MCP servers: calls, states and resources.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock,
    ReadResourceRequestParams, Resource, ResourceContents,
};
use rmcp::service::ServiceError;
use serde_json::{Map, Value as Json};
use tokio_util::sync::CancellationToken;

use super::{ConnectedServer, ConnectionState, McpServer, McpServers};
use crate::prompts::tools;
use cursor_proto::agent::v1::*;
use cursor_proto::protobuf_value;

impl McpServer {
    /// Returns the status string for Cursor and, unless it is connected, a message.
    fn status(&self) -> (&'static str, Option<String>) {
        match self.state() {
            ConnectionState::NotStarted | ConnectionState::Connecting => {
                ("loading", Some(tools::MCP_CONNECTING.into()))
            }
            ConnectionState::Ready(_) => ("connected", None),
            ConnectionState::Failed { why, .. } => {
                let word = match why {
                    super::McpConnectError::SignIn => "needsAuth",
                    _ => "error",
                };
                (word, Some(why.to_string()))
            }
        }
    }

    fn instructions(&self) -> Option<String> {
        match self.state() {
            ConnectionState::Ready(ready) => ready.instructions.clone(),
            _ => None,
        }
    }

    /// Connects the server if needed and waits for it; returns why if it is not connected.
    async fn ready(self: &Arc<Self>) -> Result<Arc<ConnectedServer>, String> {
        let name = &self.config.name;
        self.start_connecting();
        match self.wait_until_connected_or_failed().await {
            ConnectionState::Ready(ready) => Ok(ready),
            ConnectionState::Failed { why, .. } => Err(tools::mcp_server(name, &why.to_string())),
            ConnectionState::NotStarted | ConnectionState::Connecting => {
                Err(tools::mcp_server(name, tools::MCP_CONNECTING))
            }
        }
    }

    /// Returns the error message for the model: the server's own for an error it returned, a
    /// general one for a transport failure. A failed call is not retried, because the server may
    /// have executed it; the next call reconnects.
    fn words(&self, ready: &Arc<ConnectedServer>, problem: &ServiceError) -> String {
        let name = &self.config.name;
        match problem {
            ServiceError::McpError(problem) => problem.message.to_string(),
            ServiceError::TransportSend(_) | ServiceError::TransportClosed => {
                self.mark_broken(ready);
                format!("the MCP server {name:?} ended before it answered")
            }
            _ => format!("the MCP server {name:?} did not answer properly"),
        }
    }

    async fn call(self: &Arc<Self>, args: &McpArgs, abort: CancellationToken) -> McpResult {
        let ready = tokio::select! {
            ready = self.ready() => match ready {
                Ok(ready) => ready,
                Err(problem) => return error(problem),
            },
            () = abort.cancelled() => return error(tools::CALL_CANCELLED.into()),
        };
        let bare = self.tool(args);
        let Some(tool) = ready
            .tools
            .iter()
            .find(|tool| bare.as_deref() == Some(&*tool.name))
        else {
            let names = self.offers().into_iter().map(|offer| offer.name);
            return result(mcp_result::Result::ToolNotFound(McpToolNotFound {
                name: args.name.clone(),
                available_tools: names.collect(),
            }));
        };
        let arguments: Map<String, Json> = args
            .args
            .iter()
            .map(|entry| {
                (
                    entry.key.clone(),
                    protobuf_value::decode_or_text(&entry.value),
                )
            })
            .collect();
        let mut request = CallToolRequestParams::new(tool.name.clone());
        request.arguments = Some(arguments);
        let limit = self.times.call;
        // Dropping the call notifies the server that it is cancelled.
        let answer = tokio::select! {
            answer = ready.peer.call_tool_once(request) => answer,
            () = abort.cancelled() => return error(tools::CALL_CANCELLED.into()),
            () = tokio::time::sleep(limit) => {
                return error(tools::mcp_tool_timed_out(limit));
            }
        };
        match answer {
            Ok(CallToolResponse::Complete(complete)) => success(complete),
            Ok(_) => error(tools::MCP_NEEDS_INPUT.into()),
            Err(problem) => error(self.words(&ready, &problem)),
        }
    }

    async fn resources(
        &self,
        ready: Arc<ConnectedServer>,
    ) -> Result<Vec<list_mcp_resources_exec_result::McpResource>, String> {
        let limit = self.times.connect;
        let listing = ready.peer.list_all_resources();
        let list = match tokio::time::timeout(limit, listing).await {
            Ok(Ok(list)) => list,
            // Servers without resources often answer with an error.
            Ok(Err(ServiceError::McpError(_))) => Vec::new(),
            Ok(Err(problem)) => return Err(self.words(&ready, &problem)),
            Err(_) => return Err(self.silent(limit)),
        };
        let server = self.config.identifier();
        let to_wire = |resource: Resource| list_mcp_resources_exec_result::McpResource {
            uri: resource.uri.clone(),
            name: Some(resource.name.clone()),
            description: resource.description.clone(),
            mime_type: resource.mime_type.clone(),
            server: server.clone(),
            ..Default::default()
        };
        Ok(list.into_iter().map(to_wire).collect())
    }

    fn silent(&self, limit: Duration) -> String {
        let (name, limit) = (&self.config.name, limit.as_secs());
        format!("the MCP server {name:?} did not answer within {limit} s")
    }

    /// Returns the server's own name of the called tool.
    fn tool(&self, args: &McpArgs) -> Option<String> {
        let offers = self.offers();
        let prefixed = format!("mcp_{}_", self.config.identifier());
        let bare = |name: &str| name.strip_prefix(&prefixed).unwrap_or(name).to_owned();
        let called = [bare(&args.name), bare(&args.tool_name)];
        let offer = offers
            .into_iter()
            .find(|offer| called.contains(&offer.name) || called[1] == offer.tool);
        offer.map(|offer| offer.tool)
    }
}

impl McpServers {
    /// Returns the server that a call is for.
    pub(crate) fn of(&self, args: &McpArgs) -> Option<&Arc<McpServer>> {
        let named = |name: &str| {
            let mut all = self.0.iter();
            all.find(|server| server.config.identifier() == name)
        };
        [&args.provider_identifier, &args.server_identifier]
            .into_iter()
            .filter(|name| !name.is_empty())
            .find_map(|name| named(name))
            .or_else(|| {
                let offered = |server: &&Arc<McpServer>| {
                    server.offers().iter().any(|offer| offer.name == args.name)
                };
                let unnamed = args.provider_identifier.is_empty();
                self.0.iter().filter(|_| unnamed).find(offered)
            })
    }

    /// Calls a tool of a server; `None` if the call is for none of them.
    pub(crate) async fn call(&self, args: &McpArgs, abort: CancellationToken) -> Option<McpResult> {
        Some(self.of(args)?.call(args, abort).await)
    }

    /// Returns the status and tools of the wanted servers.
    pub(crate) fn states(&self, wanted: &dyn Fn(&str) -> bool) -> Vec<McpStateServer> {
        let state = |server: &Arc<McpServer>| {
            let (status, problem) = server.status();
            let identifier = server.config.identifier();
            McpStateServer {
                server_name: server.config.name.clone(),
                tools: server
                    .offers()
                    .iter()
                    .map(|offer| offer.definition())
                    .collect(),
                instructions: server
                    .instructions()
                    .map(|instructions| McpInstructions {
                        server_name: server.config.name.clone(),
                        instructions,
                        server_identifier: identifier.clone(),
                    })
                    .into_iter()
                    .collect(),
                server_identifier: identifier,
                status: Some(status.into()),
                error_message: problem,
                ..McpStateServer::default()
            }
        };
        let wanted = |server: &&Arc<McpServer>| wanted(&server.config.identifier());
        self.0.iter().filter(wanted).map(state).collect()
    }

    /// Returns the resources of one server, or of all connected ones. With several, a server that
    /// fails is left out if another one answers.
    pub(crate) async fn resources(
        &self,
        server: Option<&str>,
    ) -> Result<Vec<list_mcp_resources_exec_result::McpResource>, String> {
        if let Some(name) = server {
            let named = |server: &&Arc<McpServer>| server.config.identifier() == name;
            return match self.0.iter().find(named) {
                Some(server) => server.resources(server.ready().await?).await,
                None => Ok(Vec::new()),
            };
        }
        let there = self.0.iter().filter_map(|server| match server.state() {
            ConnectionState::Ready(ready) => Some(server.resources(ready)),
            _ => None,
        });
        let (mut all, mut problems, mut answered) = (Vec::new(), Vec::new(), 0);
        for listed in futures_util::future::join_all(there).await {
            match listed {
                Ok(list) => {
                    all.extend(list);
                    answered += 1;
                }
                Err(problem) => problems.push(problem),
            }
        }
        if answered == 0 && !problems.is_empty() {
            Err(problems.join("; "))
        } else {
            Ok(all)
        }
    }

    /// Whether a server has this identifier.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0
            .iter()
            .any(|server| server.config.identifier() == name)
    }

    /// Reads a resource; `None` if there is no such server.
    pub(crate) async fn resource(
        &self,
        args: &ReadMcpResourceExecArgs,
    ) -> Option<read_mcp_resource_exec_result::Result> {
        use read_mcp_resource_exec_result::Result as Answer;
        let server = self
            .0
            .iter()
            .find(|server| server.config.identifier() == args.server)?;
        let failed = |error: String| {
            Answer::Error(ReadMcpResourceError {
                uri: args.uri.clone(),
                error,
            })
        };
        let ready = match server.ready().await {
            Ok(ready) => ready,
            Err(problem) => return Some(failed(problem)),
        };
        let reading = ready
            .peer
            .read_resource(ReadResourceRequestParams::new(args.uri.clone()));
        let read = match tokio::time::timeout(server.times.call, reading).await {
            Ok(Ok(read)) => read,
            Ok(Err(problem)) => return Some(failed(server.words(&ready, &problem))),
            Err(_) => return Some(failed(server.silent(server.times.call))),
        };
        let Some(first) = read.contents.into_iter().next() else {
            return Some(Answer::NotFound(ReadMcpResourceNotFound {
                uri: args.uri.clone(),
            }));
        };
        let (uri, mime_type, content) = match first {
            ResourceContents::TextResourceContents {
                uri,
                mime_type,
                text,
                ..
            } => (
                uri,
                mime_type,
                read_mcp_resource_success::Content::Text(text),
            ),
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => {
                let bytes = BASE64.decode(blob).unwrap_or_default();
                let content = read_mcp_resource_success::Content::Blob(bytes.into());
                (uri, mime_type, content)
            }
            _ => return Some(failed(tools::MCP_NO_RESOURCES.into())),
        };
        Some(Answer::Success(ReadMcpResourceSuccess {
            uri,
            mime_type,
            content: Some(content),
            ..ReadMcpResourceSuccess::default()
        }))
    }
}

fn success(complete: CallToolResult) -> McpResult {
    let structured = match complete.structured_content {
        Some(Json::Object(object)) => Some(protobuf_value::encode_struct(&object)),
        _ => None,
    };
    result(mcp_result::Result::Success(McpSuccess {
        content: complete.content.into_iter().map(item).collect(),
        is_error: complete.is_error.unwrap_or(false),
        structured_content: structured,
    }))
}

fn item(content: ContentBlock) -> McpToolResultContentItem {
    use mcp_tool_result_content_item::Content as Item;
    let text = |text: String| {
        Item::Text(McpTextContent {
            text,
            ..McpTextContent::default()
        })
    };
    let content = match content {
        ContentBlock::Text(words) => text(words.text),
        ContentBlock::Image(image) => match BASE64.decode(&image.data) {
            Ok(data) => Item::Image(McpImageContent {
                data: data.into(),
                mime_type: image.mime_type,
            }),
            Err(_) => text(tools::UNREADABLE_IMAGE.into()),
        },
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text: words, .. } => text(words),
            ResourceContents::BlobResourceContents { uri, .. } => {
                text(format!("[binary resource {uri}]"))
            }
            _ => text("[a resource]".into()),
        },
        ContentBlock::ResourceLink(resource) => text(format!("Resource: {}", resource.uri)),
        ContentBlock::Audio(_) => text("[a sound]".into()),
        _ => text(tools::UNKNOWN_CONTENT.into()),
    };
    McpToolResultContentItem {
        content: Some(content),
    }
}

fn result(result: mcp_result::Result) -> McpResult {
    McpResult {
        result: Some(result),
    }
}

fn error(error: String) -> McpResult {
    result(mcp_result::Result::Error(McpError {
        error,
        ..McpError::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor_config::mcp::config::ServerConfig;
    use crate::cursor_config::mcp::{McpTransport, Timeouts};
    use crate::shell::reaper::ChildReaper;

    /// A server with two tools that never answers requests for resources.
    const SILENT: &str = r#"while read -r line; do
        id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
        case "$line" in
            *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"s","version":"1"}}}' ;;
            *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"t t","inputSchema":{"type":"object"}},{"name":"t_t","inputSchema":{"type":"object"}}]}}' ;;
        esac
    done"#;

    fn silent(label: &str) -> McpServers {
        let transport = McpTransport::Command {
            program: "sh".into(),
            args: vec!["-c".into(), SILENT.into()],
            env: Default::default(),
            folder: std::env::temp_dir(),
        };
        let mut config = ServerConfig::new("s".into(), transport);
        config.label = label.into();
        let limit = Duration::from_secs(60);
        let times = Timeouts {
            connect: limit,
            call: limit,
        };
        McpServers(vec![McpServer::new(config, times, &ChildReaper::default())])
    }

    #[tokio::test]
    async fn tools_whose_names_look_alike_have_names_of_their_own() {
        let servers = silent("s_2");
        let server = &servers.0[0];
        assert!(server.ready().await.is_ok());
        let names: Vec<String> = servers.offers(0).into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["s_2-t_t", "s_2-t_t_2"]);
        for (name, tool) in names.iter().zip(["t t", "t_t"]) {
            let args = McpArgs {
                name: name.clone(),
                ..McpArgs::default()
            };
            assert_eq!(server.tool(&args).as_deref(), Some(tool));
        }
    }

    #[tokio::test]
    async fn a_server_that_does_not_list_its_resources_is_reported() {
        let servers = silent("s");
        assert!(servers.0[0].ready().await.is_ok());
        tokio::time::pause();
        for server in [Some("s"), None] {
            let problem = servers.resources(server).await.unwrap_err();
            assert_eq!(problem, "the MCP server \"s\" did not answer within 60 s");
        }
        let args = ReadMcpResourceExecArgs {
            server: "s".into(),
            uri: "u:1".into(),
            ..ReadMcpResourceExecArgs::default()
        };
        let read = servers.resource(&args).await.unwrap();
        assert!(matches!(
            read,
            read_mcp_resource_exec_result::Result::Error(_)
        ));
    }
}
