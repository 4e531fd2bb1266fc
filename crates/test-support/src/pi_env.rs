//! An environment to run pi in: a home, a workspace and a simulator.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::processes::is_running;
use crate::simulator::{Recording, Simulator, Transport};
use crate::wait::until_named;
use crate::{binary, root};

/// Generous time limit, for a loaded machine.
pub const TIMEOUT: Duration = Duration::from_secs(40);

/// The pi versions under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PiVersion {
    V074,
    V079,
    V087,
    V150,
}

impl PiVersion {
    fn program(self) -> PathBuf {
        let program = root().join("tests/pi").join(match self {
            Self::V074 => "node_modules/pi-074/dist/cli.js",
            Self::V079 => "node_modules/pi-079/dist/cli.js",
            Self::V087 => "node_modules/pi-087/dist/bundle/cli.js",
            Self::V150 => "newest/node_modules/pi-150/dist/bundle/cli.js",
        });
        assert!(
            program.exists(),
            "pi is not installed: run `make test`, or `npm ci` in tests/pi and tests/pi/newest"
        );
        program
    }
}

/// Answers every message with its text, a checkpoint and usage.
pub const ECHO: &str = r#"
name = "echo"
[[run]]
steps = [
  { exec = { requestContextArgs = {} } },
  { text = "Heard: $USER_TEXT" },
  { checkpoint = "auto" },
  { usage = { inputTokens = 100, outputTokens = 10, cacheReadTokens = 0, cacheWriteTokens = 0 } },
  { checkpoint = "auto" },
  { end = true },
]
"#;

pub struct PiEnv {
    pub home: TempDir,
    pub workspace: PathBuf,
    pub simulator: Simulator,
    pub version: PiVersion,
    key: Option<&'static str>,
    sidecar: PathBuf,
    settings: Vec<(&'static str, String)>,
}

impl PiEnv {
    /// With a simulator that plays one scenario.
    pub fn playing(version: PiVersion, scenario: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("scenario.toml");
        std::fs::write(&file, scenario).unwrap();
        let simulator = Simulator::with(Transport::Http1, &file);
        Self::at(version, home, simulator)
    }

    /// With a simulator that plays everything in `tests/scenarios`, selected by `@name`.
    pub fn open(version: PiVersion) -> Self {
        let home = tempfile::tempdir().unwrap();
        Self::at(version, home, Simulator::start(Transport::Http1))
    }

    fn at(version: PiVersion, home: TempDir, simulator: Simulator) -> Self {
        let workspace = home.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        // The extension starts this wrapper, which records the process ids.
        let wrapper = home.path().join("sidecar");
        let script = "#!/bin/sh\ndate +%s%3N >> \"$HOME/started\"\necho $$ >> \"$HOME/sidecars\"\nexec \"$SIDECAR\" \"$@\"\n";
        std::fs::write(&wrapper, script).unwrap();
        std::fs::set_permissions(&wrapper, Permissions::from_mode(0o755)).unwrap();
        // Short retry delays, and compaction of short conversations.
        let settings = r#"{"retry":{"enabled":true,"maxRetries":2,"baseDelayMs":10},"compaction":{"enabled":true,"reserveTokens":16384,"keepRecentTokens":1}}"#;
        std::fs::create_dir(home.path().join("agent")).unwrap();
        std::fs::write(home.path().join("agent/settings.json"), settings).unwrap();
        Self {
            workspace: workspace.canonicalize().unwrap(),
            home,
            simulator,
            version,
            key: Some("crsr_test"),
            sidecar: binary().into(),
            settings: Vec::new(),
        }
    }

    pub fn without_key(mut self) -> Self {
        self.key = None;
        self
    }

    /// With another program in place of the sidecar.
    pub fn with_sidecar(mut self, program: &str) -> Self {
        self.sidecar = root().join(program);
        self
    }

    /// Sets an environment variable, or replaces its value.
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.settings.push((name, value.to_owned()));
        self
    }

    /// Returns the environment of pi, which inherits nothing from the test.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let home = self.home.path().to_str().unwrap();
        let mut environment = vec![
            ("PATH", std::env::var("PATH").unwrap()),
            ("HOME", home.to_owned()),
            ("TMPDIR", shared_cache()),
            ("TERM", "xterm-256color".into()),
            ("LANG", "C.UTF-8".into()),
            ("PI_CODING_AGENT_DIR", format!("{home}/agent")),
            ("PI_OFFLINE", "1".into()),
            ("PI_SKIP_VERSION_CHECK", "1".into()),
            ("PI_TELEMETRY", "0".into()),
            ("PI_CURSOR_SIDECAR", format!("{home}/sidecar")),
            ("SIDECAR", self.sidecar.to_str().unwrap().into()),
            ("CURSOR_BACKEND_URL", self.simulator.url.clone()),
        ];
        if let Some(key) = self.key {
            environment.push(("CURSOR_API_KEY", key.into()));
        }
        environment.extend(self.settings.iter().cloned());
        environment
    }

    /// Returns the file that starts pi.
    pub fn program(&self) -> String {
        self.version.program().to_str().unwrap().to_owned()
    }

    /// Returns pi's program and arguments, including the extension.
    pub fn arguments(&self, more: &[&str]) -> Vec<String> {
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let mut arguments = vec![
            path(&root().join("tests/official/node_modules/.bin/node")),
            path(&self.version.program()),
            "--no-extensions".into(),
            "-e".into(),
            path(&root().join("js-shim")),
        ];
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        arguments
    }

    pub fn command(&self, more: &[&str]) -> Command {
        let arguments = self.arguments(more);
        let mut command = Command::new(&arguments[0]);
        command
            .args(&arguments[1..])
            .current_dir(&self.workspace)
            .env_clear()
            .envs(self.environment())
            .stdin(Stdio::null());
        command
    }

    /// Runs pi and returns its output.
    pub fn pi(&self, more: &[&str]) -> PiOutput {
        PiOutput::from(self.command(more).output().unwrap())
    }

    /// Runs `pi -p` with a model of the simulator.
    pub fn print(&self, prompt: &str) -> PiOutput {
        self.pi(&["--model", "cursor/composer-2", "-p", prompt])
    }

    /// Returns the process ids of the sidecars that were started, oldest first.
    pub fn sidecars(&self) -> Vec<i32> {
        let file = self.home.path().join("sidecars");
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Returns the start times of the sidecars in milliseconds since 1970.
    pub fn started(&self) -> Vec<u128> {
        let text = std::fs::read_to_string(self.home.path().join("started")).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Waits until no sidecar is running.
    #[track_caller]
    pub fn no_sidecar_is_left(&self) {
        self.no_sidecar_is_left_after(Duration::from_secs(20));
    }

    /// The same, with a time limit.
    #[track_caller]
    pub fn no_sidecar_is_left_after(&self, limit: Duration) {
        assert!(!self.sidecars().is_empty(), "none was started");
        let started = Instant::now();
        until_named("all sidecars are gone", || {
            let alive = self
                .sidecars()
                .into_iter()
                .filter(|id| is_running(*id))
                .count();
            (alive == 0).then_some(())
        });
        let took = started.elapsed();
        assert!(took < limit, "gone after {took:?}");
    }

    /// Waits until the recording satisfies a condition and returns it.
    #[track_caller]
    pub fn recorded(&self, what: &str, is_there: impl Fn(&Recording) -> bool) -> Recording {
        until_named(what, || {
            let recording = self.simulator.recorded();
            is_there(&recording).then_some(recording)
        })
    }
}

/// Returns the cache of pi's compiled extensions, which is the same for every run.
fn shared_cache() -> String {
    crate::shared_folder("pi").to_str().unwrap().to_owned()
}

/// The output and exit code of pi.
#[derive(Debug)]
pub struct PiOutput {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for PiOutput {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Returns the text of a run request's new user message.
pub fn user_text(request: &Json) -> &str {
    let action = &request["runRequest"]["action"]["userMessageAction"];
    action["userMessage"]["text"].as_str().unwrap_or_default()
}

pub fn conversation(request: &Json) -> &str {
    request["runRequest"]["conversationId"].as_str().unwrap()
}

/// Returns the rules that the simulator received, per run.
pub fn rules(recording: &Recording) -> Vec<String> {
    let contexts = recording.client("execClientMessage.requestContextResult");
    let rules = contexts.iter().map(|context| {
        let success = &context["execClientMessage"]["requestContextResult"]["success"];
        success["requestContext"]["rules"].to_string()
    });
    rules.collect()
}

/// Returns every entry of all of pi's session files.
pub fn written(pi_env: &PiEnv) -> Vec<Json> {
    fn files(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .flat_map(|path| {
                if path.is_dir() {
                    files(&path)
                } else {
                    vec![path]
                }
            })
            .collect()
    }
    let sessions = files(&pi_env.home.path().join("agent/sessions"));
    let texts = sessions
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap());
    texts
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect()
}
