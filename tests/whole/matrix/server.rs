//! The server of a trial: a simulator that tells a story and can be restarted where it was.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value as Json;

use crate::backend::{Recording, binary};

/// Words of the story.
pub const WORDS: usize = 36;

/// When the story's checkpoints come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Story {
    /// Before each call, knowing all that was said and done.
    Prompt,
    /// Only when all is told.
    Bare,
    /// After each result, not knowing it; none before the first call.
    Late,
}

impl Story {
    /// Sixty-odd frames, two rounds of the host's tools.
    fn steps(self) -> String {
        let words = |from: usize, to: usize| -> String {
            (from..=to)
                .map(|n| format!("{{ text = \"w{n:02} \" }},\n"))
                .collect()
        };
        let call = |name: &str| {
            format!(
                r#"{{ exec = {{ mcpArgs = {{ name = "pi__{name}", providerIdentifier = "pi", toolName = "pi__{name}", toolCallId = "call-{name}", args = {{ q = "{name}" }} }} }}, told = "found-{name}" }},
"#
            )
        };
        const SAVED: &str = "{ checkpoint = \"auto\" },\n";
        const LATE: &str = "{ checkpoint = \"late\" },\n";
        let in_time = |saved: &str| {
            [
                &words(1, 6),
                saved,
                &words(7, 12),
                &call("first"),
                saved,
                &words(13, 20),
                &call("second"),
                saved,
                &words(21, WORDS),
            ]
            .concat()
        };
        let told = match self {
            Self::Prompt => in_time(SAVED),
            Self::Bare => in_time(""),
            Self::Late => [
                &words(1, 12),
                &call("first"),
                LATE,
                LATE,
                &words(13, 16),
                SAVED,
                &words(17, 20),
                &call("second"),
                LATE,
                &words(21, 28),
                SAVED,
                &words(29, WORDS),
            ]
            .concat(),
        };
        [
            "{ exec = { requestContextArgs = {} } },\n{ thinking = \"hm\" }, { thinking_done = true },\n",
            &told,
            "{ usage = { inputTokens = 1, outputTokens = 1 } },\n",
            SAVED,
            "{ end = true },\n",
        ]
        .concat()
    }
}

/// The simulator.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    scenario: PathBuf,
}

impl Server {
    pub fn new(folder: &Path, story: Story) -> Self {
        let scenario = folder.join("story.toml");
        let steps = story.steps();
        let text = format!("name = \"story\"\n[[run]]\nstory = true\nsteps = [\n{steps}]\n");
        std::fs::write(&scenario, text).unwrap();
        Self::start(&scenario, "127.0.0.1:0")
    }

    fn start(scenario: &Path, listen: &str) -> Self {
        let mut child = Command::new(binary())
            .args(["sim", "--exit-with-stdin", "--http2", "force"])
            .args(["--listen", listen, "--scenario"])
            .arg(scenario)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready: Json = serde_json::from_str(&line).unwrap();
        let address = ready["url"].as_str().unwrap().trim_start_matches("http://");
        Self {
            child,
            address: address.parse().unwrap(),
            scenario: scenario.to_owned(),
        }
    }

    pub fn restart(&mut self) {
        self.stop();
        *self = Self::start(&self.scenario.clone(), &self.address.to_string());
    }

    /// The wire's threads outlive a trial, and hold on to their server.
    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn recording(&self) -> Recording {
        let url = format!("http://{}/__sim/recording", self.address);
        let answer = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(async {
                let client = reqwest::Client::builder().no_proxy().http1_only();
                let answer = client.build().unwrap().get(url).send().await.unwrap();
                answer.text().await.unwrap()
            });
        Recording(serde_json::from_str(&answer).unwrap())
    }
}
