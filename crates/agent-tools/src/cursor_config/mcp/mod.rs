//! The user's MCP servers. They are connected in the background, concurrently, when a turn first
//! needs them. A slow or failing server does not delay a turn; its tools are available once it
//! is connected. A server that ended is connected again by the next turn or call that needs it.

pub mod config;
mod connect;
mod http;
mod lines;
mod requests;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::Tool;
use rmcp::service::{Peer, RoleClient};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::bridge::schema_sanitizer;
use crate::prompts::tools;
use crate::shell::process_group::ProcessGroup;
use crate::shell::reaper::ChildReaper;
use crate::tool_definition::ToolDefinition;
use config::{McpTransport, ServerConfig, plain};

/// How long a turn waits for servers it has just started, so that it can offer their tools.
/// Counted once for each server; later turns do not wait.
const STARTUP_WAIT: Duration = Duration::from_millis(500);
/// The most tools offered; with many more, Cursor fails the whole request.
const MAX_TOOLS: usize = 250;
/// How long after a failure a server may be connected again.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// One server.
#[derive(Debug)]
pub struct McpServer {
    /// Its configuration.
    pub config: ServerConfig,
    reaper: ChildReaper,
    times: Timeouts,
    state: watch::Sender<ConnectionState>,
    slot: Mutex<ConnectionSlot>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timeouts {
    pub(super) connect: Duration,
    pub(super) call: Duration,
}

/// The connection's resources, released when the server ends.
#[derive(Debug, Default)]
struct ConnectionSlot {
    task: Option<AbortHandle>,
    group: Option<ProcessGroup>,
    /// When it was first needed since it was last connected.
    first_needed: Option<Instant>,
    /// The current connection; state changes of earlier ones are ignored.
    connection: ConnectionId,
    /// Set when the server has ended for good and must not be started again.
    has_ended: bool,
}

/// The number of a connection; each new one increments it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ConnectionId(u64);

impl ConnectionSlot {
    /// Ends the connection's task and processes.
    fn disconnect(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        self.group = None;
    }
}

/// The state of a server.
#[derive(Debug, Clone, Default)]
pub(super) enum ConnectionState {
    /// Not needed yet.
    #[default]
    NotStarted,
    Connecting,
    /// Connected.
    Ready(Arc<ConnectedServer>),
    /// Not connected, or no longer.
    Failed {
        why: McpConnectError,
        at: Instant,
    },
}

#[derive(Debug)]
pub(super) struct ConnectedServer {
    pub(super) peer: Peer<RoleClient>,
    pub(super) tools: Vec<Tool>,
    pub(super) instructions: Option<String>,
}

/// Why a server is not connected. The server's own text is omitted, because it may quote a
/// password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum McpConnectError {
    /// The program cannot be started.
    #[error("{}", tools::mcp_not_started(.0))]
    Start(std::io::ErrorKind),
    /// Its settings cannot be used.
    #[error("{0}")]
    Settings(&'static str),
    /// It did not answer in time.
    #[error("{}", tools::mcp_timed_out(*.0))]
    Slow(Duration),
    /// It wants a sign-in.
    #[error("{}", tools::MCP_SIGN_IN)]
    SignIn,
    /// It rejected the connection or sent an invalid answer.
    #[error("{}", tools::MCP_REFUSED)]
    Refused,
    /// Its tools are too many to keep.
    #[error("{}", tools::MCP_TOO_MANY_TOOLS)]
    TooManyTools,
    /// It was connected and has ended.
    #[error("{}", tools::MCP_ENDED)]
    Ended,
}

impl McpServer {
    pub(super) fn new(config: ServerConfig, times: Timeouts, reaper: &ChildReaper) -> Arc<Self> {
        Arc::new(Self {
            config,
            reaper: reaper.clone(),
            times,
            state: watch::Sender::new(ConnectionState::NotStarted),
            slot: Mutex::default(),
        })
    }

    fn slot(&self) -> MutexGuard<'_, ConnectionSlot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_like(&self, config: &ServerConfig, times: Timeouts) -> bool {
        self.config == *config && self.times == times
    }

    pub(super) fn state(&self) -> ConnectionState {
        self.state.borrow().clone()
    }

    /// Starts connecting, unless the server is connected or connecting, recently failed
    /// to connect, or has ended for good.
    pub(super) fn start_connecting(self: &Arc<Self>) {
        let mut slot = self.slot();
        let (wanted, was_connected) = match &*self.state.borrow() {
            ConnectionState::NotStarted => (true, false),
            ConnectionState::Failed {
                why: McpConnectError::Ended,
                ..
            } => (true, true),
            ConnectionState::Failed { at, .. } => (at.elapsed() >= RETRY_DELAY, false),
            ConnectionState::Connecting | ConnectionState::Ready(_) => (false, false),
        };
        if !wanted || slot.has_ended {
            return;
        }
        if was_connected {
            slot.first_needed = None;
        }
        self.state.send_replace(ConnectionState::Connecting);
        slot.group = None;
        slot.connection.0 += 1;
        let server = Arc::downgrade(self);
        let config = self.config.clone();
        let limit = self.times.connect;
        let task = tokio::spawn(connect::maintain(server, slot.connection, config, limit));
        slot.task = Some(task.abort_handle());
    }

    /// Returns the server's address for a hook's input: its kind and its value.
    pub(super) fn address(&self) -> (&'static str, String) {
        match &self.config.transport {
            McpTransport::Http { url, .. } => ("url", url.clone()),
            McpTransport::Command { program, args, .. } => (
                "command",
                [std::slice::from_ref(program), &args[..]]
                    .concat()
                    .join(" "),
            ),
        }
    }

    /// Publishes the state of a connection. A failed one releases its processes, because their ids
    /// may soon be reused.
    fn set_state(&self, connection: ConnectionId, state: ConnectionState) {
        let mut slot = self.slot();
        if slot.connection != connection {
            return;
        }
        if matches!(state, ConnectionState::Failed { .. }) {
            slot.group = None;
        }
        self.state.send_replace(state);
    }

    /// Ends a connection that turned out to be broken.
    fn mark_broken(&self, broken: &Arc<ConnectedServer>) {
        let mut slot = self.slot();
        let is_broken = matches!(&*self.state.borrow(), ConnectionState::Ready(ready) if Arc::ptr_eq(ready, broken));
        if is_broken {
            slot.disconnect();
            slot.connection.0 += 1;
            let (why, at) = (McpConnectError::Ended, Instant::now());
            self.state.send_replace(ConnectionState::Failed { why, at });
        }
    }

    /// Stores the processes of a connection, so that they end with it.
    fn keep_group(&self, connection: ConnectionId, group: ProcessGroup) {
        let mut slot = self.slot();
        if slot.connection == connection {
            slot.group = Some(group);
        }
    }

    /// Replaces the tools of the current connection.
    fn replace_tools(&self, tools: Vec<Tool>) {
        let _hold = self.slot();
        self.state.send_if_modified(|state| {
            let ConnectionState::Ready(old) = state else {
                return false;
            };
            *state = ConnectionState::Ready(Arc::new(ConnectedServer {
                peer: old.peer.clone(),
                tools,
                instructions: old.instructions.clone(),
            }));
            true
        });
    }

    /// Ends the server and its processes for good.
    pub(super) fn end(&self) {
        let mut slot = self.slot();
        slot.has_ended = true;
        slot.disconnect();
    }

    /// Waits until the server is no longer connecting; returns its state.
    async fn wait_until_connected_or_failed(&self) -> ConnectionState {
        let mut states = self.state.subscribe();
        let settled = states.wait_for(|state| !matches!(state, ConnectionState::Connecting));
        match settled.await {
            Ok(state) => state.clone(),
            Err(_) => self.state(),
        }
    }

    /// Returns its tools as they are offered to Cursor.
    pub(super) fn offers(&self) -> Vec<ToolDefinition> {
        let ConnectionState::Ready(ready) = self.state() else {
            return Vec::new();
        };
        let provider = self.config.identifier();
        let mut used = BTreeSet::new();
        let mut offer = |tool: &Tool| {
            let schema = serde_json::Value::Object((*tool.input_schema).clone());
            let own = format!("{}-{}", self.config.label, plain(&tool.name));
            let mut name = own.clone();
            let mut number = 1;
            while !used.insert(name.clone()) {
                number += 1;
                name = format!("{own}_{number}");
            }
            ToolDefinition {
                name,
                description: tool.description.clone().unwrap_or_default().into_owned(),
                schema: schema_sanitizer::reduced(&schema).0,
                provider: provider.clone(),
                tool: tool.name.to_string(),
            }
        };
        ready.tools.iter().map(&mut offer).collect()
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// The servers of a workspace.
#[derive(Debug, Default)]
pub struct McpServers(pub(super) Vec<Arc<McpServer>>);

impl McpServers {
    /// Whether there are no servers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the identifiers their tools are grouped under.
    pub fn names(&self) -> Vec<String> {
        let name = |server: &Arc<McpServer>| server.config.identifier();
        self.0.iter().map(name).collect()
    }

    /// Starts the servers that are not connected, and waits briefly for those that were just
    /// started for the first time.
    pub(super) async fn start_connecting(&self) {
        for server in &self.0 {
            server.start_connecting();
        }
        let now = Instant::now();
        // Concurrently, so that many slow servers cost no more than one.
        let waiting = self.0.iter().map(|server| {
            let since = *server.slot().first_needed.get_or_insert(now);
            tokio::time::timeout_at(
                since + STARTUP_WAIT,
                server.wait_until_connected_or_failed(),
            )
        });
        futures_util::future::join_all(waiting).await;
    }

    /// Returns all tools that are available now, up to the limit together with this many
    /// tools of the host.
    pub fn offers(&self, host_tools: usize) -> Vec<ToolDefinition> {
        let all = self.0.iter().flat_map(|server| server.offers());
        all.take(MAX_TOOLS.saturating_sub(host_tools)).collect()
    }

    /// Returns problems to report to the user: servers that failed, and too many tools.
    pub fn problems(&self, host_tools: usize) -> Vec<String> {
        let problem = |server: &Arc<McpServer>| match server.state() {
            ConnectionState::Failed { why, .. } => {
                Some(format!("MCP server {:?}: {why}", server.config.name))
            }
            _ => None,
        };
        let mut problems: Vec<String> = self.0.iter().filter_map(problem).collect();
        let all: usize = self.0.iter().map(|server| server.offers().len()).sum();
        if all + host_tools > MAX_TOOLS {
            let left_out = all + host_tools - MAX_TOOLS;
            problems.push(format!(
                "Cursor takes no more than {MAX_TOOLS} tools: {left_out} of MCP servers were left out"
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Servers that never answer.
    fn silent(count: usize) -> McpServers {
        let server = |number: usize| {
            let transport = McpTransport::Command {
                program: "sleep".into(),
                args: vec!["600".into()],
                env: BTreeMap::new(),
                folder: std::env::temp_dir(),
            };
            let config = ServerConfig::new(format!("s{number}"), transport);
            let times = Timeouts {
                connect: Duration::from_secs(60),
                call: Duration::from_secs(60),
            };
            McpServer::new(config, times, &ChildReaper::default())
        };
        McpServers((0..count).map(server).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn many_slow_servers_cost_a_first_turn_no_more_than_one() {
        let servers = silent(5);
        let started = Instant::now();
        servers.start_connecting().await;
        assert_eq!(started.elapsed(), STARTUP_WAIT);
        servers.start_connecting().await;
        assert_eq!(started.elapsed(), STARTUP_WAIT, "and a later one nothing");
        let connecting =
            |server: &Arc<McpServer>| matches!(server.state(), ConnectionState::Connecting);
        assert!(servers.0.iter().all(connecting));
    }
}
