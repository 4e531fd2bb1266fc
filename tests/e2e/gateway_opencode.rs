//! opencode from npm, unmodified, against the gateway: its own tools read a file, run a command and
//! edit the file, in one run, beside the title that it asks for under the same session id.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value as Json, json};

use test_support::gateway::GatewayProcess;
use test_support::root;
use test_support::scenario::{END, Steps, document, simulate};
use test_support::simulator::{Recording, Transport};

/// Returns opencode's program for this machine; `make test` installs it.
fn opencode() -> PathBuf {
    let modules = root().join("tests/clients/opencode/node_modules");
    let system = if cfg!(target_os = "macos") {
        "darwin"
    } else {
        "linux"
    };
    let processor = if cfg!(target_arch = "x86_64") {
        "x64"
    } else {
        "arm64"
    };
    let program = modules.join(format!("opencode-{system}-{processor}/bin/opencode"));
    assert!(
        program.exists(),
        "opencode is not installed: run `make test`, or `npm ci` in tests/clients/opencode"
    );
    program
}

fn call(id: &str, tool: &str, args: Json) -> Json {
    let name = format!("pi__{tool}");
    let call = json!({"name": name, "providerIdentifier": "pi", "toolName": name,
                      "toolCallId": id, "args": args});
    json!({"exec": {"mcpArgs": call}, "timeout_ms": 60000})
}

/// An opencode with its own home and project.
struct Window {
    place: tempfile::TempDir,
}

impl Window {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("work")).unwrap();
        let window = Self { place };
        std::fs::write(window.file(), "alpha\nbeta\ngamma\n").unwrap();
        window
    }

    fn configure(&self, gateway: &GatewayProcess) {
        let config = self.place.path().join("home/.config/opencode");
        std::fs::create_dir_all(&config).unwrap();
        let settings = json!({
            "model": "cursor/composer-2", "small_model": "cursor/composer-2",
            "autoupdate": false, "share": "disabled",
            "permission": {"edit": "allow", "bash": "allow", "external_directory": "allow"},
            "provider": {"cursor": {
                "npm": "@ai-sdk/openai-compatible", "name": "Cursor",
                "options": {"baseURL": gateway.url, "apiKey": gateway.token},
                "models": {"composer-2": {"tool_call": true}},
            }},
        });
        std::fs::write(config.join("opencode.json"), settings.to_string()).unwrap();
    }

    fn work(&self) -> PathBuf {
        self.place.path().join("work")
    }

    fn file(&self) -> PathBuf {
        self.work().join("a.txt")
    }

    fn prompt(&self, text: &str) -> Child {
        Command::new(opencode())
            .args(["run", "--model", "cursor/composer-2", text])
            .current_dir(self.work())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.place.path().join("home"))
            .env("TERM", "dumb")
            .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

#[track_caller]
fn assert_finished(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{problems}");
    text
}

/// Returns steps that read a file, count its lines and edit it.
fn steps(file: &Path) -> String {
    Steps::new()
        .context()
        .step(call("t1", "read", json!({"filePath": file})))
        .step(call(
            "t2",
            "bash",
            json!({"command": "wc -l < a.txt > lines.txt", "description": "Counts lines"}),
        ))
        .step(call(
            "t3",
            "edit",
            json!({"filePath": file, "oldString": "beta", "newString": "delta"}),
        ))
        .text("All done.")
        .then(END)
        .build()
}

/// Returns how many runs were offered tools. The title has none.
fn runs_with_tools(recording: &Recording) -> usize {
    let has_tools = |request: &&&Json| {
        let tools = &request["runRequest"]["mcpTools"]["mcpTools"];
        tools.as_array().is_some_and(|tools| !tools.is_empty())
    };
    recording
        .client("runRequest")
        .iter()
        .filter(has_tools)
        .count()
}

#[test]
fn three_tools_one_run() {
    let window = Window::new();
    let scenario = document("opencode", &[steps(&window.file())]);
    let scenario = scenario.replacen('\n', "\nattempts = \"all\"\n", 1);
    let simulator = simulate(Transport::H2c, &scenario);
    let gateway = GatewayProcess::start(&simulator, &[]);
    window.configure(&gateway);
    let text = assert_finished(window.prompt("change the file"));
    assert!(text.contains("All done."), "{text}");
    let edited = std::fs::read_to_string(window.file()).unwrap();
    assert_eq!(edited, "alpha\ndelta\ngamma\n");
    let lines = std::fs::read_to_string(window.work().join("lines.txt")).unwrap();
    assert_eq!(lines.trim(), "3");
    let recording = simulator.recorded();
    assert_eq!(runs_with_tools(&recording), 1, "three tools, one run");
    let results = recording.client("execClientMessage.mcpResult");
    let is_success =
        |result: &&&Json| result["execClientMessage"]["mcpResult"]["success"].is_object();
    assert_eq!(results.iter().filter(is_success).count(), 3);
}
