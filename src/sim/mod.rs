//! A simulated Cursor backend, scripted by scenario files.
//!
//! It serves one loopback port with everything a client needs for whole conversations:
//! sign-in, model lists, runs over HTTP/2 and HTTP/1.1. What happens in a run is written
//! in a scenario file or made up by a built-in responder; what the client did is recorded
//! and judged. The official client must be able to talk to it, so it is never bent to suit
//! ours: this room uses `wire` for envelopes and the schema, and nothing else of the house.
//!
//! The way of a request: `listen` → `http1`/`http2` → `exchange` → `backend` → either
//! `unary`/`rest`, or `run` → `session`, driven by a `script` or the `responder`.

mod accounts;
mod append;
mod backend;
mod catalogue;
mod certificate;
mod cli;
mod connect;
mod conversation;
mod exchange;
mod history;
mod http1;
mod http2;
mod inbox;
mod listen;
mod matcher;
mod memory;
mod recording;
mod redact;
mod request;
mod responder;
mod rest;
mod run;
mod scenario;
mod schema;
mod script;
mod session;
mod unary;
mod variables;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use backend::{Backend, Tasks};

pub use cli::Args;
pub use recording::{FrameEntry, Outcome, Recording, RequestEntry, Side, Verdict};
pub use scenario::{ScenarioError, Source as ScenarioSource};

/// Why the simulator does not start.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// It must not be reachable from other machines.
    #[error("{0} is not a loopback address: the simulator serves this machine only")]
    NotLoopback(SocketAddr),
    /// The port cannot be opened.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        reason: std::io::Error,
    },
    /// A scenario has a mistake.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// No certificate could be made.
    #[error("cannot make a certificate: {0}")]
    Tls(String),
    /// A file cannot be written.
    #[error("cannot write {}: {reason}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        reason: std::io::Error,
    },
}

/// Plain text or TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// HTTP/1.1 and h2c with prior knowledge.
    #[default]
    Plain,
    /// TLS with a certificate made for the occasion.
    Tls,
}

/// What GetServerConfig tells clients about HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Http2 {
    /// As the scenario says, else nothing: clients decide.
    #[default]
    Auto,
    /// Never (`FORCE_ALL_DISABLED`).
    Off,
    /// Always (`FORCE_ALL_ENABLED`).
    Force,
}

/// How to start a simulator.
#[derive(Debug, Clone)]
pub struct Options {
    /// A loopback address; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Plain text or TLS.
    pub transport: Transport,
    /// What to play. A single scenario plays every message; of several, a message chooses
    /// one by starting with `@name`.
    pub scenarios: Vec<ScenarioSource>,
    /// Where to write the recording as JSON lines.
    pub record: Option<PathBuf>,
    /// What clients are told about HTTP/2.
    pub http2: Http2,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            transport: Transport::Plain,
            scenarios: Vec::new(),
            record: None,
            http2: Http2::Auto,
        }
    }
}

/// Reads scenarios and plays none: their names, or the first mistake. Public for fuzzing only.
#[doc(hidden)]
pub fn names_of(sources: &[ScenarioSource]) -> Result<Vec<String>, ScenarioError> {
    let library = scenario::Library::load(sources)?;
    Ok(library.names().map(str::to_owned).collect())
}

/// A running simulator; dropping it closes the port and every connection.
#[derive(Debug)]
pub struct Sim {
    address: SocketAddr,
    ca_pem: Option<String>,
    recording: Recording,
    tasks: Tasks,
}

impl Sim {
    /// Opens the port and starts to serve. Needs a Tokio runtime.
    pub async fn start(options: Options) -> Result<Self, SimError> {
        if !options.listen.ip().is_loopback() {
            return Err(SimError::NotLoopback(options.listen));
        }
        let library = scenario::Library::load(&options.scenarios)?;
        let recording =
            Recording::start(options.record.as_deref()).map_err(|reason| SimError::Write {
                path: options.record.clone().unwrap_or_default(),
                reason,
            })?;
        let (acceptor, ca_pem) = match options.transport {
            Transport::Plain => (None, None),
            Transport::Tls => {
                let certificate = certificate::generate()?;
                let acceptor = TlsAcceptor::from(certificate.config);
                (Some(acceptor), Some(certificate.ca_pem))
            }
        };
        let listen_error = |reason| SimError::Listen {
            address: options.listen,
            reason,
        };
        let listener = TcpListener::bind(options.listen)
            .await
            .map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let backend = Arc::new(Backend::new(library, options.http2, recording.clone()));
        let tasks = backend.tasks().clone();
        tasks.spawn(listen::accept(listener, acceptor, backend));
        Ok(Self {
            address,
            ca_pem,
            recording,
            tasks,
        })
    }

    /// Where clients reach it.
    pub fn url(&self) -> String {
        let scheme = if self.ca_pem.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.address)
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate authority clients must trust, with TLS.
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }

    /// What happened so far; the handle stays good after the simulator is gone.
    pub fn recording(&self) -> Recording {
        self.recording.clone()
    }

    /// Closes everything and waits until it is closed.
    pub async fn shutdown(self) {
        self.tasks.cancel();
        self.tasks.ended().await;
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}
