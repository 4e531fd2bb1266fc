//! The Agent Client Protocol on standard input and output, for editors such as Zed.
//!
//! stdout carries messages and nothing else. The process ends with its input. One task
//! ([`agent_task`]) receives the client's messages, one task a session ([`session_task`]) owns its
//! history and runs its prompts.

mod agent_task;
mod client_tools;
mod history;
mod mcp_servers;
mod permissions;
mod prompt_content;
mod prompt_turn;
mod session_models;
mod session_task;
mod stdio_lines;
mod tool_call_display;

use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::v1::schema::{
    AuthenticateRequest, CancelNotification, CloseSessionRequest, DeleteSessionRequest,
    InitializeRequest, ListSessionsRequest, LoadSessionRequest, NewSessionRequest, PromptRequest,
    ResumeSessionRequest, SetSessionConfigOptionRequest, SetSessionModeRequest,
};
use agent_client_protocol::{Agent, Client, on_receive_notification, on_receive_request};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::agent_task::{AgentTask, ClientMessage};
use self::history::HistoryStore;
use self::session_models::SetModelRequest;
use crate::backends::Backends;
use crate::config::Config;
use crate::file_limit;
use crate::model_resolver::ModelResolver;
use crate::session_options::session_options;
use crate::shutdown_signal::shutdown_requested;
use agent::session_manager::SessionManager;
use agent_tools::shell::reaper::ChildReaper;

/// How long turns and their runs may take to end at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);
/// How many messages of the client may wait.
const MAX_MESSAGES: usize = 64;

/// The connection to the client.
type Connection = agent_client_protocol::v1::ConnectionTo<Client>;
/// An error response.
type AcpError = agent_client_protocol::Error;

/// Serve an editor over the Agent Client Protocol on standard input and output.
///
/// See docs/acp.md for the settings of Zed, JetBrains, Neovim and Emacs.
#[derive(Debug, clap::Args)]
pub struct AcpCommand {}

/// Why the front end ended.
#[derive(Debug, thiserror::Error)]
pub enum AcpServeError {
    /// No threads for standard input and output.
    #[error("cannot start reading standard input: {0}")]
    Io(#[from] std::io::Error),
    /// The connection failed.
    #[error("the connection to the editor failed: {0}")]
    Connection(String),
}

/// What all sessions of the process share.
struct AcpState {
    config: Arc<Config>,
    backends: Backends,
    models: ModelResolver,
    sessions: Arc<SessionManager>,
    reaper: ChildReaper,
    history: HistoryStore,
    shutdown: CancellationToken,
}

impl AcpCommand {
    /// Serves until the input ends or a signal arrives.
    pub async fn run(self, config: Arc<Config>, reaper: ChildReaper) -> Result<(), AcpServeError> {
        file_limit::raise();
        config.log_warnings();
        let shutdown = CancellationToken::new();
        let state = Arc::new(AcpState {
            backends: Backends::default(),
            models: ModelResolver::new(&config),
            sessions: Arc::new(SessionManager::new(session_options(
                &config,
                reaper.clone(),
            ))),
            history: HistoryStore::new(config.state_dir.as_deref()),
            config,
            reaper,
            shutdown: shutdown.clone(),
        });
        let (messages, inbox) = mpsc::channel(MAX_MESSAGES);
        let agent = tokio::spawn(AgentTask::new(Arc::clone(&state)).run(inbox));
        let ended = tokio::select! {
            ended = connect(messages) => ended,
            () = shutdown_requested() => Ok(()),
        };
        shutdown.cancel();
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, state.sessions.close_all()).await;
        agent.abort();
        ended
    }
}

/// Serves the connection until the input ends. Handlers only pass messages on, because the next
/// message is not read while one runs.
async fn connect(messages: mpsc::Sender<ClientMessage>) -> Result<(), AcpServeError> {
    let (transport, input_ended) = stdio_lines::open()?;
    macro_rules! request {
        ($request:ty, $variant:ident) => {{
            let messages = messages.clone();
            async move |request: $request, responder, _connection| {
                let message = ClientMessage::$variant(request.into(), responder);
                let _ = messages.send(message).await;
                Ok(())
            }
        }};
        ($request:ty, $variant:ident, connection) => {{
            let messages = messages.clone();
            async move |request: $request, responder, connection| {
                let message = ClientMessage::$variant(request, responder, connection);
                let _ = messages.send(message).await;
                Ok(())
            }
        }};
    }
    let cancelled = messages.clone();
    let connection = Agent
        .v1()
        .name("cursor-sidecar")
        .on_receive_request(
            request!(InitializeRequest, Initialize),
            on_receive_request!(),
        )
        .on_receive_request(
            request!(AuthenticateRequest, Authenticate),
            on_receive_request!(),
        )
        .on_receive_request(
            request!(NewSessionRequest, NewSession, connection),
            on_receive_request!(),
        )
        .on_receive_request(
            request!(LoadSessionRequest, LoadSession, connection),
            on_receive_request!(),
        )
        .on_receive_request(
            request!(ResumeSessionRequest, ResumeSession, connection),
            on_receive_request!(),
        )
        .on_receive_request(
            request!(ListSessionsRequest, ListSessions),
            on_receive_request!(),
        )
        .on_receive_request(
            request!(CloseSessionRequest, CloseSession),
            on_receive_request!(),
        )
        .on_receive_request(
            request!(DeleteSessionRequest, DeleteSession),
            on_receive_request!(),
        )
        .on_receive_request(request!(PromptRequest, Prompt), on_receive_request!())
        .on_receive_request(
            request!(SetSessionModeRequest, SetMode),
            on_receive_request!(),
        )
        .on_receive_request(
            request!(SetSessionConfigOptionRequest, SetOption),
            on_receive_request!(),
        )
        .on_receive_request(request!(SetModelRequest, SetModel), on_receive_request!())
        .on_receive_notification(
            async move |notification: CancelNotification, _connection| {
                let _ = cancelled.send(ClientMessage::Cancel(notification)).await;
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_to(transport);
    tokio::select! {
        ended = connection => ended.map_err(|error| AcpServeError::Connection(error.to_string())),
        () = input_ended.cancelled() => Ok(()),
    }
}
