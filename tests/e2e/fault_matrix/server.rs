//! The server of a trial: a simulator that plays a story and can be restarted where it was.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value as Json, json};

use test_support::binary;
use test_support::scenario::Steps;
use test_support::simulator::Recording;

/// Number of distinct `w-NN` markers in the story's text; no folder name contains one.
pub const WORDS: usize = 36;

/// What the story asks for, and when its checkpoints are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrialScript {
    /// Before each call, including all text and effects so far.
    Prompt,
    /// Only at the end.
    Bare,
    /// After each result, without including it; none before the first call.
    Late,
    /// Three parallel calls, then one beside a command, with native tools in between. A checkpoint
    /// precedes each, and one includes only the second of three results.
    Busy,
    /// The same, with a checkpoint only at the end.
    BusyBare,
}

/// Part of the reply to a command or change that was started before, with a recorded or an unknown
/// result.
const BEGUN: &str = "If you send the same request again, it will be executed";
/// Part of the reply if the result is unknown.
pub const LOOK: &str = "Check its effects first";

impl TrialScript {
    /// Whether the story belongs to the conversation with this name.
    pub fn is(self, conversation: &str) -> bool {
        conversation
            == match self {
                Self::Prompt | Self::Bare | Self::Late => "rounds",
                Self::Busy | Self::BusyBare => "tools",
            }
    }

    /// Returns the host tools that are called.
    pub fn calls(self) -> &'static [&'static str] {
        match self {
            Self::Prompt | Self::Bare | Self::Late => &["first", "second"],
            Self::Busy | Self::BusyBare => &["first", "second", "third", "fourth"],
        }
    }

    /// Returns the lines that commands write, in order.
    pub fn lines(self) -> &'static [&'static str] {
        match self {
            Self::Prompt | Self::Bare | Self::Late => &[],
            Self::Busy | Self::BusyBare => &["ran-a", "ran-b", "ran-c"],
        }
    }

    /// Sixty-odd frames, two rounds of the host's tools.
    fn steps(self, workspace: &Path) -> String {
        let words = |from: usize, to: usize| -> String {
            (from..=to)
                .map(|n| Steps::new().text(format!("w-{n:02} ")).build() + ",\n")
                .collect()
        };
        let step = |step: Json| format!("{},\n", Steps::new().step(step).build());
        let exec = |name: &str| {
            json!({
                "exec": {
                    "mcpArgs": {
                        "name": format!("pi__{name}"),
                        "providerIdentifier": "pi",
                        "toolName": format!("pi__{name}"),
                        "toolCallId": format!("call-{name}"),
                        "args": {"q": name},
                    },
                },
                "answered_if": format!("found-{name}"),
            })
        };
        let call = |name: &str| step(exec(name));
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
        let at_once = |name: &str| {
            let mut exec = exec(name);
            exec["open"] = true.into();
            exec["name"] = name.into();
            step(exec)
        };
        let folder = workspace.display();
        let command = |line: &str, kind: &str, expect: Json| {
            let args = json!({
                "command": format!("echo {line} >> log; echo {line}"),
                "workingDirectory": workspace,
                "toolCallId": format!("call-{line}"),
                "timeout": 10000,
                "parsingResult": {},
            });
            json!({"exec": {kind: args}, "answered_if": line, "expect": expect, "may_throw": BEGUN})
        };
        let streamed = |line: &str| {
            let expect = json!({"shellStream": {"stdout": format!("{line}\n")}});
            command(line, "shellStreamArgs", expect)
        };
        let whole = |line: &str| {
            let expect = json!({"shellResult": {"success": {"stdout": format!("{line}\n")}}});
            step(command(line, "shellArgs", expect))
        };
        let ran_beside = {
            let mut command = streamed("ran-c");
            command["open"] = true.into();
            command["name"] = "ran-c".into();
            step(command)
        };
        let write = step(json!({
            "exec": {
                "writeArgs": {
                    "path": format!("{folder}/note"),
                    "fileText": "wrote it",
                    "toolCallId": "call-write",
                },
            },
            "answered_if": format!("{folder}/note"),
            "expect": {"writeResult": {"success": {}}},
            "may_throw": BEGUN,
        }));
        let read = step(json!({
            "exec": {"readArgs": {"path": format!("{folder}/seen"), "toolCallId": "call-read"}},
            "answered_if": "seen it",
            "expect": {"readResult": {"success": {"content": "seen it"}}},
        }));
        let busy = |saved: &str| {
            [
                &words(1, 4),
                saved,
                &step(streamed("ran-a")),
                &words(5, 6),
                &write,
                saved,
                &whole("ran-b"),
                &read,
                &words(7, 10),
                saved,
                &words(11, 12),
                &at_once("first"),
                &at_once("second"),
                &at_once("third"),
                "{ await = [ \"second\" ] },\n",
                saved,
                "{ await = [ \"first\", \"third\" ] },\n",
                saved,
                &words(13, 20),
                &ran_beside,
                &at_once("fourth"),
                "{ await = [ \"ran-c\", \"fourth\" ] },\n",
                saved,
                &words(21, WORDS),
            ]
            .concat()
        };
        let last_call = match self {
            Self::Busy => busy(SAVED),
            Self::BusyBare => busy(""),
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
            &last_call,
            "{ usage = { inputTokens = 1, outputTokens = 1 } },\n",
            SAVED,
            "{ end = true },\n",
        ]
        .concat()
    }
}

/// The simulator.
pub struct ScriptSimulator {
    child: Child,
    pub address: SocketAddr,
    scenario: PathBuf,
}

impl ScriptSimulator {
    pub fn new(folder: &Path, story: TrialScript) -> Self {
        let scenario = folder.join("story.toml");
        let steps = story.steps(folder);
        let text = format!("name = \"story\"\n[[run]]\nresumable = true\nsteps = [\n{steps}]\n");
        std::fs::write(&scenario, text).unwrap();
        std::fs::write(folder.join("seen"), "seen it").unwrap();
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

    /// Must be called, because the threads of the wire outlive a trial and keep their server.
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
