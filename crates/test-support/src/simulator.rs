//! `cursor-sidecar sim` as a process, and what it recorded.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use crate::{built_binary, root};

/// How clients connect to the simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Tls,
    H2c,
    Http1,
}

pub const TRANSPORTS: [Transport; 3] = [Transport::Tls, Transport::H2c, Transport::Http1];

/// A running simulator; killed when dropped.
pub struct Simulator {
    child: Child,
    _stdin: ChildStdin,
    pub url: String,
    pub ca: Option<PathBuf>,
}

impl Simulator {
    /// Plays everything in `tests/scenarios`.
    pub fn start(transport: Transport) -> Self {
        Self::with(transport, &root().join("tests/scenarios"))
    }

    /// Plays the scenarios at `path`.
    pub fn with(transport: Transport, path: &Path) -> Self {
        Self::launch(transport, Some(path), None)
    }

    /// The same, with a recording written to `record`.
    pub fn recording_at(transport: Transport, path: &Path, record: &Path) -> Self {
        Self::launch(transport, Some(path), Some(record))
    }

    /// Answers with the built-in responder.
    pub fn responder(transport: Transport) -> Self {
        Self::launch(transport, None, None)
    }

    fn launch(transport: Transport, scenarios: Option<&Path>, record: Option<&Path>) -> Self {
        let mut command = Command::new(built_binary());
        command.args(["sim", "--exit-with-stdin"]);
        if let Some(folder) = record {
            command.arg("--record").arg(folder);
        }
        if let Some(path) = scenarios {
            command.arg("--scenario").arg(path);
        }
        match transport {
            Transport::Tls => command.arg("--tls"),
            Transport::H2c => command.args(["--http2", "force"]),
            Transport::Http1 => &mut command,
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready: Json = serde_json::from_str(&line).expect("the simulator says it is ready");
        Self {
            child,
            _stdin: stdin,
            url: ready["url"].as_str().unwrap().to_owned(),
            ca: ready["ca"].as_str().map(PathBuf::from),
        }
    }

    /// Returns everything recorded so far.
    pub async fn recording(&self) -> Recording {
        let mut builder = reqwest::Client::builder().no_proxy().http1_only();
        if let Some(ca) = &self.ca {
            let pem = std::fs::read(ca).unwrap();
            builder = builder.tls_certs_only([reqwest::Certificate::from_pem(&pem).unwrap()]);
        }
        let url = format!("{}/__sim/recording", self.url);
        let client = builder.build().unwrap();
        let answer = client.get(url).send().await.unwrap();
        let mut recording: Json = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        // A cancelled run gets its verdict when the server notices, possibly after the next run.
        let verdicts = recording["verdicts"].as_array_mut().unwrap();
        verdicts.sort_by_key(|verdict| verdict["run"].as_u64());
        Recording(recording)
    }

    /// The same, for tests without a runtime.
    pub fn recorded(&self) -> Recording {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(self.recording())
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a secret as the simulator records it.
pub fn fingerprint(secret: &str) -> String {
    let digest = Sha256::digest(secret.as_bytes());
    let digits = digest.iter().take(4).map(|byte| format!("{byte:02x}"));
    let digits: String = digits.collect();
    format!("<{} characters, sha256 {digits}>", secret.len())
}

/// What the simulator recorded.
pub struct Recording(pub Json);

impl Recording {
    pub fn requests(&self, path: &str) -> Vec<&Json> {
        self.list("requests")
            .iter()
            .filter(|request| request["path"] == path)
            .collect()
    }

    /// Returns the credentials that requests to a path had, as [`fingerprint`]s.
    pub fn bearers(&self, path: &str) -> Vec<String> {
        let requests = self.requests(path).into_iter();
        requests
            .map(|request| request["bearer"].as_str().unwrap_or("none").to_owned())
            .collect()
    }

    /// Returns the paths of all requests.
    pub fn paths(&self) -> Vec<&str> {
        let paths = self.list("requests").iter();
        paths
            .map(|request| request["path"].as_str().unwrap())
            .collect()
    }

    /// Messages of one run (counted from 1), from one side.
    pub fn frames(&self, run: u64, from: &str) -> Vec<&Json> {
        self.list("frames")
            .iter()
            .filter(|frame| frame["run"] == run && frame["from"] == from)
            .collect()
    }

    /// The number of streams opened, over either transport.
    pub fn runs(&self) -> usize {
        self.requests("/agent.v1.AgentService/Run").len()
            + self.requests("/agent.v1.AgentService/RunSSE").len()
    }

    /// The JSON of client messages of a kind, over all runs.
    pub fn client(&self, kind: &str) -> Vec<&Json> {
        self.list("frames")
            .iter()
            .filter(|frame| frame["from"] == "client" && frame["kind"] == kind)
            .map(|frame| &frame["json"])
            .collect()
    }

    pub fn verdicts(&self) -> &[Json] {
        self.list("verdicts")
    }

    /// Fails with the simulator's messages unless every run matched its script.
    #[track_caller]
    pub fn assert_played(&self, outcomes: &[&str]) {
        let got: Vec<&str> = self
            .verdicts()
            .iter()
            .map(|verdict| verdict["outcome"].as_str().unwrap())
            .collect();
        let failures: Vec<String> = self
            .verdicts()
            .iter()
            .flat_map(|verdict| verdict["failures"].as_array().unwrap())
            .map(Json::to_string)
            .collect();
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        assert_eq!(got, outcomes);
    }

    fn list(&self, name: &str) -> &[Json] {
        self.0[name].as_array().unwrap()
    }
}
