//! `cursor-sidecar sim`: the simulator as a command.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::json;

use super::{Http2, Options, ScenarioSource, Sim, SimError};

/// Run a simulated Cursor backend on a loopback port.
///
/// Prints one JSON line when it is ready: {"url": …, "ca": …, "pid": …}. Point a client at
/// the url (for the official SDK: CURSOR_BACKEND_URL, and NODE_EXTRA_CA_CERTS with the ca for
/// --tls) and use any API key. Without a scenario a built-in responder answers.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Loopback address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Serve TLS (HTTP/2 and HTTP/1.1) with a temporary certificate
    #[arg(long)]
    tls: bool,

    /// Scenario file or folder; may be repeated. A single scenario plays every message; with
    /// several, a message selects one by starting with @name
    #[arg(long = "scenario", value_name = "FILE|DIR")]
    scenarios: Vec<PathBuf>,

    /// Write requests.jsonl, frames.jsonl and verdicts.jsonl to this folder
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// HTTP/2 setting that GetServerConfig returns to clients
    #[arg(long, value_enum, default_value_t)]
    http2: Http2,

    /// Exit when standard input closes
    #[arg(long)]
    exit_with_stdin: bool,
}

impl Args {
    /// Serves until a stop signal or, if requested, the end of standard input.
    pub async fn run(self) -> Result<(), SimError> {
        let record = self.record.clone();
        let sim = Sim::start(Options {
            listen: self.listen,
            tls: self.tls,
            scenarios: self
                .scenarios
                .into_iter()
                .map(ScenarioSource::Path)
                .collect(),
            record: self.record,
            http2: self.http2,
        })
        .await?;
        let ca = CaFile::write(&sim, record)?;
        print_ready_line(&sim, ca.as_ref())?;
        tokio::select! {
            () = stop_signal() => {}
            () = stdin_closed(), if self.exit_with_stdin => {}
        }
        sim.shutdown().await;
        Ok(())
    }
}

/// The certificate authority in a file.
struct CaFile {
    path: PathBuf,
    /// A folder created for the file, removed on drop.
    own_folder: Option<PathBuf>,
}

impl CaFile {
    fn write(sim: &Sim, record: Option<PathBuf>) -> Result<Option<Self>, SimError> {
        let Some(pem) = sim.ca_pem() else {
            return Ok(None);
        };
        let (folder, own_folder) = match record {
            Some(folder) => (folder, None),
            None => {
                let name = format!("cursor-sidecar-sim-{}", uuid::Uuid::new_v4());
                let folder = std::env::temp_dir().join(name);
                (folder.clone(), Some(folder))
            }
        };
        let path = folder.join("ca.pem");
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&path, pem))
            .map_err(|reason| SimError::Write {
                path: path.clone(),
                reason,
            })?;
        Ok(Some(Self { path, own_folder }))
    }
}

impl Drop for CaFile {
    fn drop(&mut self) {
        if let Some(folder) = &self.own_folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn print_ready_line(sim: &Sim, ca: Option<&CaFile>) -> Result<(), SimError> {
    let mut line = json!({ "url": sim.url(), "pid": std::process::id() });
    if let Some(ca) = ca {
        line["ca"] = ca.path.display().to_string().into();
    }
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")
        .and_then(|()| stdout.flush())
        .map_err(|reason| SimError::Write {
            path: "standard output".into(),
            reason,
        })
}

async fn stop_signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

/// Resolves when standard input closes. Reads in a separate thread, because a read of standard
/// input cannot be cancelled and must not delay the exit of the process.
async fn stdin_closed() {
    let (closed, wait) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = closed.send(());
    });
    let _ = wait.await;
}
