//! An OpenAI-compatible HTTP endpoint on this machine: chat completions, models, metrics.
//!
//! It binds 127.0.0.1 only, lets in who knows its token, and executes nothing: a client's tools
//! are called by ending the answer with `tool_calls`, and the request that brings their results
//! goes on with the same run. What Cursor's own tools ask for, the client's do, or nobody.

mod ask;
mod chat;
mod desk;
mod fault;
mod metrics;
mod models;
mod reply;
mod site;
mod token;
mod transcript;

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::desk::Desk;
use self::site::{House, MOST_TURNS};
pub use self::token::{Token, TokenError};
use super::backends::Backends;
use super::files;
use super::leaving::told_to_leave;
use super::misread;
use super::model_resolver::ModelResolver;
use crate::tools::loopback::{Bounds, Loopback, serve};
use crate::turn::Policy;

/// The longest body. A request takes several times its size while it is read.
const MOST_BYTES: usize = 32 * 1024 * 1024;
/// What requests may hold together before they are read, in KiB.
const ROOM_KIB: usize = 4 * MOST_BYTES / 1024;
/// How long turns and their runs may take to end when we do.
const LAST_WORDS: Duration = Duration::from_millis(700);

/// Where settings come from.
pub type Env = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Serve OpenAI clients over HTTP on this machine.
///
/// Prints one line of JSON when ready: the base URL, and the file that holds the API key (no file
/// if CURSOR_SIDECAR_GATEWAY_TOKEN is set). See docs/gateway.md.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// The port on 127.0.0.1; 0 is any that is free.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// Why the door does not open.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// No socket.
    #[error("cannot listen on 127.0.0.1:{port}: {cause}")]
    Listen {
        /// The port that was asked for.
        port: u16,
        /// What the system said.
        cause: std::io::Error,
    },
    /// No token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Nobody reads our standard output.
    #[error("cannot say that the gateway is ready: {0}")]
    Io(#[from] std::io::Error),
}

impl Serve {
    /// Serves until a signal comes.
    pub async fn run(self, home: Option<PathBuf>) -> Result<(), GatewayError> {
        files::make_room();
        misread::told(home.as_deref());
        let env: Env = Arc::new(|name: &str| std::env::var(name).ok());
        // Heard from now on: whoever has read that we are ready may tell us to go.
        let mut leaving = std::pin::pin!(told_to_leave());
        let gateway = tokio::select! {
            biased;
            () = &mut leaving => return Ok(()),
            gateway = Gateway::open(self.port, env, home) => gateway?,
        };
        gateway.announce()?;
        leaving.await;
        gateway.close().await;
        Ok(())
    }
}

/// A door that is open. Dropped, it shuts at once; [`Self::close`] lets turns end first.
pub struct Gateway {
    house: Arc<House>,
    token: Token,
    _end: DropGuard,
}

impl Gateway {
    /// Opens the door.
    pub async fn open(port: u16, env: Env, home: Option<PathBuf>) -> Result<Self, GatewayError> {
        let read = |name: &str| env(name);
        let token = Token::find(&read, home.as_deref())?;
        let bounds = Bounds {
            body: MOST_BYTES,
            room_kib: ROOM_KIB,
        };
        let (listener, place) =
            Loopback::bind(port, bounds).map_err(|cause| GatewayError::Listen { port, cause })?;
        let (policy, _) = Policy::from_env(&read);
        let catalogue = ModelResolver::new(&read, home.as_deref());
        let house = Arc::new(House {
            place: Arc::clone(&place),
            secret: token.secret.clone(),
            backends: Backends::default(),
            catalogue,
            desk: Desk::new(&read, home.as_deref(), &policy),
            policy: policy.hands_off(),
            workspace: std::env::current_dir().unwrap_or_default(),
            env,
            home,
            turns: TaskTracker::new(),
            places: Arc::new(Semaphore::new(MOST_TURNS)),
            leaving: CancellationToken::new(),
        });
        let end = CancellationToken::new();
        tracing::debug!(port = place.port(), "gateway.listening");
        tokio::spawn(serve(listener, place, Arc::clone(&house), end.clone()));
        Ok(Self {
            house,
            token,
            _end: end.drop_guard(),
        })
    }

    /// What clients call their base URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.house.place.port())
    }

    /// What clients have to show.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Says where it is: to programs on stdout, to a person on stderr too. Never the token.
    fn announce(&self) -> Result<(), std::io::Error> {
        let url = self.url();
        let mut ready = json!({ "url": url });
        if let Some(file) = &self.token.file {
            ready["tokenFile"] = file.display().to_string().into();
        }
        let mut out = std::io::stdout();
        writeln!(out, "{ready}")?;
        out.flush()?;
        if out.is_terminal() {
            let key = match &self.token.file {
                Some(file) => format!("the content of {}", file.display()),
                None => format!("what {} says", token::TOKEN),
            };
            let mut stderr = std::io::stderr();
            writeln!(
                stderr,
                "Give OpenAI clients {url} as base URL and {key} as API key. Ctrl-C ends it."
            )?;
        }
        Ok(())
    }

    /// Ends every turn and every run that waits, then shuts. Cursor is told of it.
    pub async fn close(self) {
        self.house.leaving.cancel();
        self.house.turns.close();
        let _ = tokio::time::timeout(LAST_WORDS, self.house.turns.wait()).await;
        let gone = self.house.desk.close();
        let all = futures_util::future::join_all(gone.into_iter().map(|gone| gone.wait()));
        let _ = tokio::time::timeout(LAST_WORDS, all).await;
    }
}
