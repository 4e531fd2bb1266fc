//! An HTTP endpoint on this machine for clients of OpenAI's and Anthropic's APIs: chat completions,
//! responses, messages, models, metrics, and a status page for the user.
//!
//! It binds 127.0.0.1 only, requires a token, and executes nothing. A client's tools are called by
//! ending the answer with the calls; the request with their results resumes the same run.
//! Requests of Cursor's native tools are executed by the client's tools, or refused.
//!
//! Each API is a thin translator: its requests become a [`client_turn::ClientTurn`], the one
//! [`turn_driver`] runs it, and an [`event_stream::EventEncoder`] writes what it sends.

mod answer;
mod answer_format;
mod answer_limits;
mod answer_state;
mod api_error;
mod body;
mod call_id;
mod chat;
mod client_config;
mod client_turn;
mod event_stream;
mod messages;
mod metrics;
mod model_names;
mod models;
mod remote_images;
mod responses;
mod router;
mod session_key;
mod status;
mod token;
mod tool_choice;
mod transcript_builder;
mod turn_driver;
mod workspace_hint;

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::api_error::ApiError;
use self::client_config::ClientKind;
pub use self::model_names::ModelNames;
use self::remote_images::ImageFetcher;
use self::router::{GatewayState, MAX_TURNS, router};
use self::status::StatusPage;
pub use self::token::{Token, TokenError};
use super::backends::Backends;
use super::file_limit;
use super::model_resolver::ModelResolver;
use super::session_options::session_options;
use super::shutdown_signal::shutdown_requested;
use crate::config::Config;
use agent::session_manager::{SessionManager, SessionOptions};
use agent::turn::Policy;
use agent_tools::local_http::{BodyReader, LocalServer};
use agent_tools::shell::reaper::ChildReaper;
use cursor_client::account::find_credential;

/// The largest body. A request takes several times its size while it is parsed.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;
/// How much memory unparsed requests may take together, in KiB.
const MEMORY_KIB: usize = 4 * MAX_BODY_BYTES / 1024;
/// How long turns and their runs may take to end at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(700);

/// Serve clients of OpenAI's and Anthropic's APIs over HTTP on this machine.
///
/// Prints one line of JSON when ready: the base URL, and the file that contains the API key (no
/// file if CURSOR_SIDECAR_GATEWAY_TOKEN is set). See docs/gateway.md.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// The port on 127.0.0.1; 0 chooses a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Print the settings with which a client uses the gateway on that port, and exit.
    #[arg(long, value_name = "CLIENT")]
    print_config: Option<ClientKind>,
}

/// Why the gateway could not start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The port is not available.
    #[error("cannot listen on 127.0.0.1:{port}: {cause}")]
    Listen {
        /// The requested port.
        port: u16,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// There is no usable token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Settings were requested for a port that is not known.
    #[error("--print-config needs the port that the gateway uses: add --port 4141, for example")]
    NoPort,
    /// Standard output is closed.
    #[error("cannot write to standard output: {0}")]
    Io(#[from] std::io::Error),
}

impl Serve {
    /// Serves until a signal arrives.
    pub async fn run(self, config: Arc<Config>) -> Result<(), GatewayError> {
        if let Some(client) = self.print_config {
            return client_config::print(client, self.port, &config);
        }
        file_limit::raise();
        config.log_warnings();
        // Not an error: the user may sign in later.
        if let Err(problem) = find_credential(None, &config.client) {
            tracing::warn!("{problem}; until then every request fails");
        }
        // Registered before the ready line, because a reader of that line may send a signal at
        // once.
        let mut shutdown = std::pin::pin!(shutdown_requested());
        let gateway = tokio::select! {
            biased;
            () = &mut shutdown => return Ok(()),
            gateway = Gateway::open(self.port, config) => gateway?,
        };
        gateway.announce()?;
        shutdown.await;
        gateway.close().await;
        Ok(())
    }
}

/// A running gateway. Dropping it stops it at once; [`Self::close`] lets turns end first.
pub struct Gateway {
    state: Arc<GatewayState>,
    port: u16,
    token: Token,
    _end: DropGuard,
}

impl Gateway {
    /// Starts the gateway.
    pub async fn open(port: u16, config: Arc<Config>) -> Result<Self, GatewayError> {
        let token = Token::find(config.gateway_token.as_ref(), config.state_dir.as_deref())?;
        let server =
            LocalServer::bind(port).map_err(|cause| GatewayError::Listen { port, cause })?;
        let port = server.port();
        // The gateway executes nothing, so there are no processes to watch.
        let idle = config.gateway.idle_timeout;
        let sessions = SessionOptions {
            park_timeout: idle,
            ..session_options(&config, ChildReaper::default())
        };
        let policy = Policy {
            park: idle,
            ..config.turn.clone().hands_off()
        };
        let state = Arc::new(GatewayState {
            token: token.secret.clone(),
            bodies: BodyReader::new(MAX_BODY_BYTES, MEMORY_KIB),
            backends: Backends::default(),
            models: ModelResolver::new(&config),
            sessions: Arc::new(SessionManager::new(sessions)),
            images: ImageFetcher::new(policy.native.allow_private_fetch),
            responses: Arc::default(),
            policy,
            workspace: std::env::current_dir().unwrap_or_default(),
            config,
            turns: TaskTracker::new(),
            turn_permits: Arc::new(Semaphore::new(MAX_TURNS)),
            status: StatusPage::new(port, &token, idle),
            shutdown: CancellationToken::new(),
        });
        let end = CancellationToken::new();
        tracing::debug!(port, "gateway.listening");
        let app = router(Arc::clone(&state));
        tokio::spawn(server.serve::<ApiError>(app, end.clone()));
        Ok(Self {
            state,
            port,
            token,
            _end: end.drop_guard(),
        })
    }

    /// Returns the base URL for clients.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Returns the token that clients must send.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Prints the address: for programs on stdout, for users on stderr too. Never prints the token.
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
            // Not in the line for programs, which may log it.
            if let Ok(link) = self.state.status.link() {
                let root = url.trim_end_matches("/v1");
                writeln!(
                    stderr,
                    "Status page: {root}{link} (works once, within ten minutes; later {root} asks for the token)"
                )?;
            }
            writeln!(
                stderr,
                "Give clients {url} as base URL and {key} as API key. `--print-config CLIENT` prints the settings of a client. Ctrl-C ends it."
            )?;
        }
        Ok(())
    }

    /// Cancels every turn and every parked run, notifies Cursor, then stops.
    pub async fn close(self) {
        self.state.shutdown.cancel();
        self.state.turns.close();
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, self.state.turns.wait()).await;
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, self.state.sessions.close_all()).await;
    }
}
