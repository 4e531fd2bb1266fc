//! A simulated Cursor backend, scripted by scenario files.
//!
//! It serves everything a client needs for conversations on one loopback port: sign-in, model
//! lists, runs over HTTP/2 and HTTP/1.1. A scenario file or the built-in responder decides what
//! happens in a run; the client's requests and messages are recorded and checked. The official
//! client must work with the simulator, so it is never adapted to our own client: this module
//! uses `wire` for envelopes and the schema, and no other module of the crate.
//!
//! The path of a request: `listen` → `http1`/`http2` → `exchange` → `backend` → either
//! `unary`/`rest`, or `run` → `server_run`, driven by a `script` or the `responder`.

mod accounts;
mod append;
mod backend;
mod certificate;
mod cli;
mod connect;
mod conversation;
mod conversation_state;
mod exchange;
mod history;
mod http1;
mod http2;
mod inbox;
mod listen;
mod matcher;
mod models;
mod recording;
mod redact;
mod request;
mod responder;
mod rest;
mod run;
mod scenario;
mod schema;
mod script;
mod server_run;
mod unary;
mod variables;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use backend::{SimBackend, Tasks};

pub use cli::Args;
pub use recording::{FrameEntry, RecordingHandle, RequestEntry, RunVerdict, Side, VerdictOutcome};
pub use scenario::{ScenarioError, ScenarioSource};

/// Why the simulator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The address is reachable from other machines.
    #[error("{0} is not a loopback address: the simulator serves this machine only")]
    NotLoopback(SocketAddr),
    /// The port cannot be opened.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        reason: std::io::Error,
    },
    /// A scenario is invalid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The certificate cannot be generated.
    #[error("cannot generate a certificate: {0}")]
    Tls(String),
    /// A file cannot be written.
    #[error("cannot write {}: {reason}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        reason: std::io::Error,
    },
}

/// The HTTP/2 setting that GetServerConfig returns to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Http2 {
    /// The scenario's setting; without one, clients decide.
    #[default]
    Auto,
    /// Never (`FORCE_ALL_DISABLED`).
    Off,
    /// Always (`FORCE_ALL_ENABLED`).
    Force,
}

/// Options of a simulator.
#[derive(Debug, Clone)]
pub struct Options {
    /// A loopback address; port 0 selects a free port.
    pub listen: SocketAddr,
    /// Serve TLS with a temporary certificate instead of plain HTTP/1.1 and h2c with prior
    /// knowledge.
    pub tls: bool,
    /// The scenarios. A single one plays every message; with several, a message selects one by
    /// starting with `@name`.
    pub scenarios: Vec<ScenarioSource>,
    /// A folder for the recording as JSON lines.
    pub record: Option<PathBuf>,
    /// The HTTP/2 setting for clients.
    pub http2: Http2,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: false,
            scenarios: Vec::new(),
            record: None,
            http2: Http2::Auto,
        }
    }
}

/// Reads scenarios; returns their names or the first error. Public for fuzzing only.
#[doc(hidden)]
pub fn names_of(sources: &[ScenarioSource]) -> Result<Vec<String>, ScenarioError> {
    let library = scenario::ScenarioLibrary::load(sources)?;
    Ok(library.names().map(str::to_owned).collect())
}

/// A running simulator; dropping it closes the port and every connection.
#[derive(Debug)]
pub struct Sim {
    address: SocketAddr,
    ca_pem: Option<String>,
    recording: RecordingHandle,
    tasks: Tasks,
}

impl Sim {
    /// Opens the port and starts serving. Must be called in a Tokio runtime.
    pub async fn start(options: Options) -> Result<Self, SimError> {
        if !options.listen.ip().is_loopback() {
            return Err(SimError::NotLoopback(options.listen));
        }
        let library = scenario::ScenarioLibrary::load(&options.scenarios)?;
        let recording = RecordingHandle::start(options.record.as_deref()).map_err(|reason| {
            SimError::Write {
                path: options.record.clone().unwrap_or_default(),
                reason,
            }
        })?;
        let (acceptor, ca_pem) = if options.tls {
            let certificate = certificate::generate()?;
            let acceptor = TlsAcceptor::from(certificate.config);
            (Some(acceptor), Some(certificate.ca_pem))
        } else {
            (None, None)
        };
        let listen_error = |reason| SimError::Listen {
            address: options.listen,
            reason,
        };
        let listener = TcpListener::bind(options.listen)
            .await
            .map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let backend = Arc::new(SimBackend::new(library, options.http2, recording.clone()));
        let tasks = backend.tasks().clone();
        tasks.spawn(listen::accept(listener, acceptor, backend));
        Ok(Self {
            address,
            ca_pem,
            recording,
            tasks,
        })
    }

    /// Returns the base URL for clients.
    pub fn url(&self) -> String {
        let scheme = if self.ca_pem.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the certificate authority clients must trust, if it serves TLS.
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }

    /// Returns the recording, which stays usable after the simulator is dropped.
    pub fn recording(&self) -> RecordingHandle {
        self.recording.clone()
    }

    /// Closes the port and all connections, and waits until they are closed.
    pub async fn shutdown(self) {
        self.tasks.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}
