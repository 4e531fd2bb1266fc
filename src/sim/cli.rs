//! `cursor-sidecar sim`: the simulator as a command.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::json;

use super::{Http2, Options, ScenarioSource, Sim, SimError, Transport};

/// Run a simulated Cursor backend on a loopback port.
///
/// Prints one JSON line when it is ready: {"url": …, "ca": …, "pid": …}. Point a client at
/// the url (for the official SDK: CURSOR_BACKEND_URL, and NODE_EXTRA_CA_CERTS with the ca for
/// --tls) and use any API key. Without a scenario a built-in responder holds a small
/// conversation.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Loopback address to listen on; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Serve TLS (HTTP/2 and HTTP/1.1) with a certificate made for the occasion
    #[arg(long)]
    tls: bool,

    /// Scenario file, or folder of them; may be given more than once. A single scenario
    /// plays every message, of several a message chooses one by starting with @name
    #[arg(long = "scenario", value_name = "FILE|DIR")]
    scenarios: Vec<PathBuf>,

    /// Write requests.jsonl, frames.jsonl and verdicts.jsonl to this folder
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// What GetServerConfig tells clients about HTTP/2
    #[arg(long, value_enum, default_value_t)]
    http2: Http2,

    /// Exit when standard input closes
    #[arg(long)]
    exit_with_stdin: bool,
}

impl Args {
    /// Serves until told to stop.
    pub async fn run(self) -> Result<(), SimError> {
        let transport = if self.tls {
            Transport::Tls
        } else {
            Transport::Plain
        };
        let record = self.record.clone();
        let sim = Sim::start(Options {
            listen: self.listen,
            transport,
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
        announce(&sim, ca.as_ref())?;
        tokio::select! {
            () = told_to_stop() => {}
            () = stdin_closed(), if self.exit_with_stdin => {}
        }
        sim.shutdown().await;
        Ok(())
    }
}

/// The certificate authority in a file, for as long as the simulator runs.
struct CaFile {
    path: PathBuf,
    /// A folder made for it alone.
    folder: Option<PathBuf>,
}

impl CaFile {
    fn write(sim: &Sim, record: Option<PathBuf>) -> Result<Option<Self>, SimError> {
        let Some(pem) = sim.ca_pem() else {
            return Ok(None);
        };
        let (folder, own) = match record {
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
        Ok(Some(Self { path, folder: own }))
    }
}

impl Drop for CaFile {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn announce(sim: &Sim, ca: Option<&CaFile>) -> Result<(), SimError> {
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

async fn told_to_stop() {
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

/// A thread of its own: a read of standard input cannot be cancelled and must not hold up
/// the end of the process.
async fn stdin_closed() {
    let (closed, wait) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = closed.send(());
    });
    let _ = wait.await;
}
