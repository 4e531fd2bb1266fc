//! JSON-RPC 2.0 on standard input and output, for hosts such as pi.
//!
//! stdout carries frames and nothing else. The process ends when its input ends, when the host's
//! process ends, or on `exit`, whichever comes first.

mod account;
mod bridge_endpoint;
mod early_params;
mod error;
// Public for fuzzing only.
#[doc(hidden)]
pub mod frame;
mod host_info;
mod host_watch;
// Public for tests and fuzzing only.
#[doc(hidden)]
pub mod host_messages;
mod message_peek;
mod message_type;
#[cfg(test)]
mod method_types;
mod methods;
mod models;
mod peer;
mod protocol;
mod reply_queue;
mod schema;
mod session_usage;
mod slash_commands;
mod stdio;
mod turn_events;
mod turn_result;
mod turns;
#[cfg(test)]
mod typescript;
mod user_choices;
mod wait_clock;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::watch;

use super::file_limit;
use super::shutdown_signal::shutdown_requested;
use crate::config::Config;
use agent_tools::bridge::endpoint::McpEndpoint;
use agent_tools::cursor_config::ConfigCache;
use agent_tools::shell::reaper::ChildReaper;

pub use peer::{ExitKind, Peer, RequestError};
pub use protocol::*;
pub use schema::SCHEMA;

/// How long the last responses may take to be written.
const WRITE_TIMEOUT: Duration = Duration::from_millis(500);

/// Why the front end could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The threads for standard input and output could not be started.
    #[error("cannot start reading standard input: {0}")]
    Io(#[from] std::io::Error),
    /// A method was registered twice.
    #[error("internal error: {0}")]
    Methods(#[from] jsonrpsee::core::RegisterMethodError),
}

/// Serves one host.
pub async fn serve(config: Arc<Config>, reaper: ChildReaper) -> Result<ExitKind, ServeError> {
    file_limit::raise();
    let stdio::Stdio {
        inbound,
        out,
        written,
    } = stdio::start()?;
    let (host_process, host) = watch::channel(None);
    let library =
        ConfigCache::new(config.home.clone(), reaper).with_state(config.state_dir.clone());
    let library = Arc::new(library);
    config.log_warnings();
    let module = methods::register(methods::Context {
        models: models::ModelService::new(Arc::clone(&config)),
        host: OnceLock::new(),
        cwd: Mutex::default(),
        tools: Mutex::default(),
        native_tools: Mutex::default(),
        shows_waits: AtomicBool::default(),
        turns: turns::Turns::new(Arc::clone(&library), Arc::clone(&config)),
        endpoints: McpEndpoint::default(),
        logins: account::Logins::default(),
        host_process,
        shown_notices: slash_commands::ShownNotices::default(),
        config,
    })?;
    let peer = Peer::new(out);
    let ended = tokio::select! {
        ended = peer::serve(module.into(), peer, inbound, host_watch::has_hung_up, shutdown_requested()) => ended,
        () = host_watch::host_gone(host) => ExitKind::Abrupt,
    };
    // MCP servers are processes: end them first.
    library.close();
    // The writer ends when the last handle to its queue is dropped, which is now.
    let _ = tokio::time::timeout(WRITE_TIMEOUT, written).await;
    Ok(ended)
}
