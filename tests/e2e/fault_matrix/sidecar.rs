//! A sidecar on a socket pair; both the sidecar and its host can be killed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use test_support::binary;

/// The running sidecar, shared with the code that injects faults.
#[derive(Default)]
pub struct SidecarControl(Mutex<ProcessState>);

#[derive(Default)]
struct ProcessState {
    process: Option<u32>,
    cable: Option<UnixStream>,
    dead: bool,
}

impl SidecarControl {
    /// Kills the sidecar without a chance to shut down.
    pub fn kill_sidecar(&self) {
        let process = self.0.lock().unwrap().process;
        let process = process.and_then(|id| rustix::process::Pid::from_raw(id.try_into().ok()?));
        if let Some(process) = process {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
    }

    /// Does what the exit of a host process does: closes its ends of all pipes at once.
    pub fn kill_host(&self) {
        let mut control = self.0.lock().unwrap();
        control.dead = true;
        if let Some(cable) = &control.cable {
            let _ = cable.shutdown(Shutdown::Both);
        }
    }

    /// Returns whether the host has died since the last call.
    pub fn host_died(&self) -> bool {
        std::mem::take(&mut self.0.lock().unwrap().dead)
    }
}

/// The HTTP version a sidecar uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SidecarHttp {
    Two,
    One,
}

impl SidecarHttp {
    fn setting(self) -> &'static str {
        match self {
            Self::Two => "2",
            Self::One => "1",
        }
    }
}

/// A sidecar and its socket.
pub struct Sidecar {
    child: Option<Child>,
    cable: UnixStream,
    incoming: BufReader<UnixStream>,
}

impl Sidecar {
    pub fn start(port: u16, http: SidecarHttp, state: &Path, control: &SidecarControl) -> Self {
        let (cable, end) = UnixStream::pair().unwrap();
        let end = || Stdio::from(OwnedFd::from(end.try_clone().unwrap()));
        let child = Command::new(binary())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("PI_CURSOR_STATE_DIR", state)
            .env("CURSOR_BACKEND_URL", format!("http://127.0.0.1:{port}"))
            .env("CURSOR_API_KEY", "crsr_matrix")
            .env("PI_CURSOR_HTTP", http.setting())
            .env("PI_CURSOR_STREAM_IDLE_TIMEOUT_MS", "1000")
            .env("PI_CURSOR_RESUME_IDLE_TIMEOUT_MS", "1000")
            .env("PI_CURSOR_PROVIDER_DEBUG", "1")
            .env("PI_CURSOR_PROVIDER_DEBUG_FILE", state.join("debug.jsonl"))
            .stdin(end())
            .stdout(end())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        {
            let mut control = control.0.lock().unwrap();
            control.process = Some(child.id());
            control.cable = Some(cable.try_clone().unwrap());
        }
        let mut sidecar = Self {
            child: Some(child),
            incoming: BufReader::new(cable.try_clone().unwrap()),
            cable,
        };
        let hello = json!({"protocolVersion": 1, "nativeTools": {"default": "local"}, "host": {"name": "matrix"}});
        sidecar.send("hello", "initialize", &hello);
        sidecar.receive();
        sidecar
    }

    pub fn send(&mut self, id: &str, method: &str, params: &Json) {
        let body =
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        // A dead sidecar is noticed by the missing response.
        let _ = write!(self.cable, "Content-Length: {}\r\n\r\n{body}", body.len());
        let _ = self.cable.flush();
    }

    pub fn receive(&mut self) -> Option<Json> {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if self.incoming.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim().strip_prefix("Content-Length: ") {
                Some(number) => length = number.parse().unwrap(),
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.incoming.read_exact(&mut body).ok()?;
        Some(serde_json::from_slice(&body).unwrap())
    }

    pub fn has_died(&mut self) -> bool {
        let child = self.child.as_mut();
        child.is_none_or(|child| child.try_wait().unwrap().is_some())
    }

    /// Waits for the exit of a killed sidecar.
    pub fn wait_for_exit(&mut self) {
        if let Some(child) = &mut self.child {
            child.wait().unwrap();
        }
    }

    /// Closes the socket and waits for the sidecar to exit; returns how long that took, or `None`
    /// if it did not exit in time.
    pub fn exits_within(&mut self, limit: Duration) -> Option<Duration> {
        let _ = self.cable.shutdown(Shutdown::Both);
        let begun = Instant::now();
        let mut child = self.child.take()?;
        let (done, gone) = mpsc::channel();
        std::thread::spawn(move || done.send(child.wait().is_ok()));
        match gone.recv_timeout(limit) {
            Ok(true) => Some(begun.elapsed()),
            _ => None,
        }
    }
}

/// Returns the processes that use a state folder.
pub fn leftovers(state: &Path) -> Vec<String> {
    let mark = format!("PI_CURSOR_STATE_DIR={}", state.display());
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ours = processes.filter(|entry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|variable| variable == mark.as_bytes())
    });
    ours.map(|entry| entry.path().display().to_string())
        .collect()
}
