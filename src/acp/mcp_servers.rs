//! The MCP servers that a client names for a session.

use std::path::Path;

use agent_client_protocol::v1::schema::McpServer;

use super::AcpError;
use agent_tools::cursor_config::mcp::config::{McpTransport, ServerConfig};

/// Converts the servers. Returns an error for a transport that is not supported.
pub(super) fn convert(servers: Vec<McpServer>, cwd: &Path) -> Result<Vec<ServerConfig>, AcpError> {
    servers
        .into_iter()
        .map(|server| match server {
            McpServer::Stdio(stdio) => {
                let env = stdio.env.into_iter();
                let transport = McpTransport::Command {
                    program: stdio.command.to_string_lossy().into_owned(),
                    args: stdio.args,
                    env: env.map(|it| (it.name, it.value)).collect(),
                    folder: cwd.to_owned(),
                };
                Ok(ServerConfig::new(stdio.name, transport))
            }
            McpServer::Http(http) => {
                let headers = http.headers.into_iter();
                let transport = McpTransport::Http {
                    url: http.url,
                    headers: headers.map(|it| (it.name, it.value)).collect(),
                };
                Ok(ServerConfig::new(http.name, transport))
            }
            _ => Err(AcpError::new(
                -32602,
                "mcpServers: only the transports stdio and http are supported",
            )),
        })
        .collect()
}
