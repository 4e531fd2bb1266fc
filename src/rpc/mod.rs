//! JSON-RPC 2.0 on standard input and output, for hosts such as pi.
//!
//! stdout carries frames and nothing else. The process ends with its input, with its host,
//! or on `exit`, whichever comes first.

mod account;
mod bridge;
mod commands;
mod controls;
mod ending;
mod error;
// Public for fuzzing only.
#[doc(hidden)]
pub mod frame;
mod heading;
mod host;
mod methods;
mod models;
mod peer;
mod protocol;
mod replies;
mod schema;
mod stdio;
mod telling;
mod turns;
mod typescript;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::watch;

use super::files;
use super::leaving::shutdown_requested;
use super::misread;
use agent_tools::bridge::endpoint::Server;
use agent_tools::cursor_config::ConfigCache;
use agent_tools::shell::reaper::ChildReaper;
use foundation::place;

pub use peer::{AskError, Ended, Peer};
pub use protocol::*;
pub use schema::schema;

/// How often to check that the host is alive.
const HOST_CHECK: Duration = Duration::from_millis(250);
/// How long the last responses may take to be written.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Why the front end could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No threads for standard input and output.
    #[error("cannot start reading standard input: {0}")]
    Io(#[from] std::io::Error),
    /// A method was registered twice.
    #[error("internal error: {0}")]
    Methods(#[from] jsonrpsee::core::RegisterMethodError),
}

/// Serves one host.
pub async fn serve(home: Option<PathBuf>, reaper: ChildReaper) -> Result<Ended, ServeError> {
    files::make_room();
    let stdio::Stdio {
        inbound,
        out,
        written,
    } = stdio::start()?;
    let (host_process, host) = watch::channel(None);
    let state = place::state_dir(&|name: &str| std::env::var(name).ok(), home.as_deref());
    let library = Arc::new(ConfigCache::new(home.clone(), reaper).with_state(state));
    let misread = misread::log_all(home.as_deref());
    let module = methods::register(methods::Context {
        misread,
        models: models::ModelService::new(home.as_deref()),
        home,
        host: OnceLock::new(),
        cwd: Mutex::default(),
        tools: Mutex::default(),
        native_tools: Mutex::default(),
        turns: turns::Turns::new(Arc::clone(&library)),
        endpoints: Server::default(),
        logins: account::Logins::default(),
        host_process,
        shown_notices: commands::ShownNotices::default(),
    })?;
    let peer = Peer::new(out);
    let ended = tokio::select! {
        ended = peer::serve(module.into(), peer, inbound, stdio::has_hung_up) => ended,
        () = host_gone(host) => Ended::Abrupt,
        () = shutdown_requested() => Ended::Abrupt,
    };
    // MCP servers are processes: end them first.
    library.close();
    // The writer ends when the last handle to its queue is dropped, which is now.
    let _ = tokio::time::timeout(LAST_WORDS, written).await;
    Ok(ended)
}

/// Resolves when the process that started us, or the one that `initialize` named as our host, is
/// gone. Its end closes our input too, unless a third process holds the pipe open.
async fn host_gone(host: watch::Receiver<Option<u32>>) {
    let parent = rustix::process::getppid();
    let mut check = tokio::time::interval(HOST_CHECK);
    loop {
        check.tick().await;
        if rustix::process::getppid() != parent {
            return;
        }
        let stated = *host.borrow();
        if stated.is_some_and(|id| !is_alive(id)) {
            return;
        }
    }
}

/// Returns whether a process with this id exists and is visible to us.
fn is_alive(id: u32) -> bool {
    let id = i32::try_from(id)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    id.is_some_and(|id| rustix::process::test_kill_process(id) != Err(rustix::io::Errno::SRCH))
}
