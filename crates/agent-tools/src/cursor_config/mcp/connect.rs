//! Connects to a server and maintains the connection until it ends.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use rmcp::handler::client::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, PaginatedRequestParams, Tool};
use rmcp::service::{NotificationContext, Peer, RoleClient, RunningService, ServiceExt as _};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::process::Command;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::config::{McpTransport, ServerConfig};
use super::http::BoundedHttpClient;
use super::lines::{MAX_LINE, bounded};
use super::{ConnectedServer, ConnectionId, ConnectionState, McpConnectError, McpServer};
use crate::shell::process_group::{scrub, spawn};

type Service = RunningService<RoleClient, McpClient>;

/// Connects to a server and publishes its state until it ends or is dropped.
pub(super) async fn maintain(
    server: Weak<McpServer>,
    connection: ConnectionId,
    config: ServerConfig,
    limit: Duration,
) {
    let set_state = |state: ConnectionState| {
        if let Some(server) = server.upgrade() {
            server.set_state(connection, state);
        }
    };
    let failed = |why: McpConnectError| ConnectionState::Failed {
        why,
        at: Instant::now(),
    };
    // Stores at most one permit, so a flood of notifications causes one listing at a time.
    let changed = Arc::new(Notify::new());
    let client = McpClient(Arc::clone(&changed));
    let connected = tokio::time::timeout(limit, open(&server, connection, &config, client)).await;
    let (service, ready) = match connected.unwrap_or(Err(McpConnectError::Slow(limit))) {
        Ok(connected) => connected,
        Err(why) => {
            tracing::debug!(%why, "mcp.failed");
            return set_state(failed(why));
        }
    };
    tracing::debug!(tools = ready.tools.len(), "mcp.connected");
    let peer = ready.peer.clone();
    set_state(ConnectionState::Ready(Arc::new(ready)));
    tokio::select! {
        _ = service.waiting() => {}
        () = refresh(&server, peer, &changed, limit) => {}
    }
    tracing::debug!("mcp.ended");
    set_state(failed(McpConnectError::Ended));
}

/// Lists the server's tools again whenever it reports a change, one listing at a time. Returns
/// when the server has been dropped.
async fn refresh(
    server: &Weak<McpServer>,
    peer: Peer<RoleClient>,
    changed: &Notify,
    limit: Duration,
) {
    loop {
        changed.notified().await;
        let listed = tokio::time::timeout(limit, list_tools(&peer)).await;
        let Some(server) = server.upgrade() else {
            return;
        };
        if let Ok(Ok(tools)) = listed {
            tracing::debug!(tools = tools.len(), "mcp.tools_changed");
            server.replace_tools(tools);
        }
    }
}

async fn open(
    server: &Weak<McpServer>,
    connection: ConnectionId,
    config: &ServerConfig,
    client: McpClient,
) -> Result<(Service, ConnectedServer), McpConnectError> {
    let (service, http) = match &config.transport {
        McpTransport::Command {
            program,
            args,
            env,
            folder,
        } => {
            let mut command = Command::new(program);
            scrub(&mut command);
            command
                .args(args)
                .envs(env)
                .current_dir(folder)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                // Its stderr is discarded, because ours is not for the output of servers.
                .stderr(Stdio::null());
            let server = server.upgrade().ok_or(McpConnectError::Refused)?;
            let (mut child, group) = spawn(&mut command, &server.reaper)
                .map_err(|error| McpConnectError::Start(error.kind()))?;
            let pipes = child.stdout.take().zip(child.stdin.take());
            // Dropping the server ends its processes.
            server.keep_group(connection, group);
            drop(server);
            let (output, input) = pipes.ok_or(McpConnectError::Refused)?;
            let connected = client.serve((bounded(output), input)).await;
            (connected.map_err(|_| McpConnectError::Refused)?, None)
        }
        McpTransport::Http { url, headers } => {
            let http = BoundedHttpClient::new(http_client(url)?);
            let transport = StreamableHttpClientTransport::with_client(
                http.clone(),
                StreamableHttpClientTransportConfig::with_uri(url.as_str())
                    .custom_headers(header_map(headers)?),
            );
            let connected = client.serve(transport).await;
            (connected.map_err(|_| refused(Some(&http)))?, Some(http))
        }
    };
    match ask(&service).await {
        Ok(ready) => Ok((service, ready)),
        Err(ListError::Failed) => Err(refused(http.as_ref())),
        Err(ListError::TooLong) => Err(McpConnectError::TooManyTools),
    }
}

/// Returns why a server could not be connected: it wants a sign-in if it answered so over HTTP.
fn refused(http: Option<&BoundedHttpClient>) -> McpConnectError {
    match http {
        Some(http) if http.wants_sign_in() => McpConnectError::SignIn,
        _ => McpConnectError::Refused,
    }
}

/// The most bytes of a server's tool definitions. A page counts as a kibibyte at least, because a
/// server may send empty pages without end.
const MAX_TOOL_BYTES: usize = MAX_LINE;
const MIN_PAGE_BYTES: usize = 1024;

/// Why a server's tools are not known.
enum ListError {
    /// It does not list them.
    Failed,
    /// They are longer than [`MAX_TOOL_BYTES`].
    TooLong,
}

/// Returns the tools of a server, which sends them in pages.
async fn list_tools(peer: &Peer<RoleClient>) -> Result<Vec<Tool>, ListError> {
    let (mut tools, mut bytes) = (Vec::new(), 0);
    let mut params = PaginatedRequestParams::default();
    loop {
        let page = peer.list_tools(Some(params)).await;
        let page = page.map_err(|_| ListError::Failed)?;
        let length = serde_json::to_string(&page.tools).map_or(0, |text| text.len());
        bytes += length.max(MIN_PAGE_BYTES);
        if bytes > MAX_TOOL_BYTES {
            tracing::warn!("an MCP server's list of tools is too long and is not used");
            return Err(ListError::TooLong);
        }
        tools.extend(page.tools);
        if page.next_cursor.is_none() {
            return Ok(tools);
        }
        params = PaginatedRequestParams::default().with_cursor(page.next_cursor);
    }
}

/// Queries the tools and instructions of a server.
async fn ask(service: &Service) -> Result<ConnectedServer, ListError> {
    let info = service.peer_info();
    let has_tools = info
        .as_ref()
        .is_some_and(|info| info.capabilities.tools.is_some());
    let tools = if has_tools {
        list_tools(service.peer()).await?
    } else {
        Vec::new()
    };
    Ok(ConnectedServer {
        peer: service.peer().clone(),
        tools,
        instructions: info
            .and_then(|info| info.instructions.clone())
            .filter(|text| !text.trim().is_empty()),
    })
}

fn http_client(url: &str) -> Result<reqwest::Client, McpConnectError> {
    let builder = reqwest::Client::builder()
        // A response that was not read to its end must not stall the next request.
        .pool_max_idle_per_host(0)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false);
    let builder = if url.starts_with("http://") {
        builder.tls_certs_only(std::iter::empty())
    } else {
        builder
    };
    builder
        .build()
        .map_err(|_| McpConnectError::Settings("the system's certificates cannot be read"))
}

fn header_map(
    headers: &std::collections::BTreeMap<String, String>,
) -> Result<HashMap<HeaderName, HeaderValue>, McpConnectError> {
    let header = |(name, value): (&String, &String)| {
        let name = name.parse::<HeaderName>().ok()?;
        let mut value = value.parse::<HeaderValue>().ok()?;
        value.set_sensitive(true);
        Some((name, value))
    };
    headers
        .iter()
        .map(header)
        .collect::<Option<_>>()
        .ok_or(McpConnectError::Settings("its headers are no HTTP headers"))
}

/// Our client handler: it only records that the server's tools changed.
#[derive(Debug, Clone)]
pub(super) struct McpClient(Arc<Notify>);

impl ClientHandler for McpClient {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("cursor-sidecar", env!("CARGO_PKG_VERSION")),
        )
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        // Not listed here: the response would wait for this handler, and the handler for it.
        self.0.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor_config::mcp::Timeouts;
    use crate::shell::reaper::ChildReaper;
    use std::collections::BTreeMap;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    async fn state_after_connecting(transport: McpTransport) -> ConnectionState {
        let config = ServerConfig::new("s".into(), transport);
        let times = Timeouts {
            connect: Duration::from_secs(20),
            call: Duration::from_secs(20),
        };
        let server = McpServer::new(config, times, &ChildReaper::default());
        server.start_connecting();
        server.wait_until_connected_or_failed().await
    }

    fn command(script: &str) -> McpTransport {
        McpTransport::Command {
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: BTreeMap::new(),
            folder: std::env::temp_dir(),
        }
    }

    async fn answering(status: &'static str) -> McpTransport {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let answer = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: 0\r\nWWW-Authenticate: Bearer\r\nConnection: close\r\n\r\n"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        McpTransport::Http {
            url,
            headers: BTreeMap::new(),
        }
    }

    /// A free port that refuses connections, with this path.
    async fn unused_port_at(path: &str) -> McpTransport {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{path}", listener.local_addr().unwrap());
        McpTransport::Http {
            url,
            headers: BTreeMap::new(),
        }
    }

    /// A server whose pages of tools never end; `description` is a command that prints that of the
    /// one tool of a page.
    fn endless_pages(description: &str) -> McpTransport {
        command(&format!(
            r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"protocolVersion":"2025-06-18","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"s","version":"1"}}}}}}' ;;
    *tools/list*)
      printf '{{"jsonrpc":"2.0","id":%s,"result":{{"nextCursor":"n","tools":[{{"name":"t","inputSchema":{{"type":"object"}},"description":"' $id
      {description}
      echo '"}}]}}}}' ;;
  esac
done"#
        ))
    }

    #[tokio::test]
    async fn a_list_of_tools_without_end_is_refused() {
        let transport = endless_pages("head -c 6000000 /dev/zero | tr '\\0' x");
        let ConnectionState::Failed { why, .. } = state_after_connecting(transport).await else {
            panic!("it is there");
        };
        assert_eq!(why, McpConnectError::TooManyTools);
    }

    #[tokio::test]
    async fn the_reason_a_server_is_missing_is_reported() {
        for (transport, expected) in [
            (answering("401 Unauthorized").await, McpConnectError::SignIn),
            (answering("403 Forbidden").await, McpConnectError::SignIn),
            (answering("500 Oh").await, McpConnectError::Refused),
            // The status counts, not a text that looks like one.
            (
                answering("500 Not 401, Unauthorized or 403").await,
                McpConnectError::Refused,
            ),
            (unused_port_at("/401/403").await, McpConnectError::Refused),
            (command("exit 3"), McpConnectError::Refused),
            (command("echo what"), McpConnectError::Refused),
        ] {
            let ConnectionState::Failed { why, .. } =
                state_after_connecting(transport.clone()).await
            else {
                panic!("{transport:?} is there");
            };
            assert_eq!(why, expected, "{transport:?}");
        }
    }
}
