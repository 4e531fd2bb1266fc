//! The official client, driven by `tests/official/drive.mjs`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::root;
use crate::simulator::Simulator;

/// A scratch home and workspace for one or more runs of the official client.
pub struct OfficialClient {
    pub home: TempDir,
    pub workspace: PathBuf,
}

fn node() -> PathBuf {
    let node = root().join("tests/official/node_modules/.bin/node");
    assert!(
        node.exists(),
        "the official client is not installed: run `make test`, or `npm ci` in tests/official"
    );
    node
}

pub fn script(name: &str) -> PathBuf {
    root().join("tests/official").join(name)
}

impl OfficialClient {
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let workspace = home.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        std::fs::write(workspace.join("a.txt"), "alpha\nbeta\ngamma\n").unwrap();
        let git = Command::new("git")
            .args(["init", "--quiet", "--initial-branch", "main"])
            .current_dir(&workspace)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", home.path())
            .status();
        assert!(git.is_ok_and(|status| status.success()), "git is needed");
        // macOS returns /var, which is a symlink; the client reports the real path.
        let workspace = workspace.canonicalize().unwrap();
        Self { home, workspace }
    }

    pub fn command(&self, script_name: &str) -> Command {
        let mut command = Command::new(node());
        command
            .arg(script(script_name))
            .current_dir(&self.workspace)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.home.path())
            .env("CURSOR_API_KEY", "crsr_test")
            .env("NODE_NO_WARNINGS", "1");
        command
    }

    /// Runs a spec and returns the client's report.
    pub fn drive(&self, simulator: &Simulator, mut spec: Json) -> Json {
        if spec.get("agent").is_some() && spec["agent"].get("cwd").is_none() {
            spec["agent"]["cwd"] = self.workspace.to_str().unwrap().into();
        }
        self.run("drive.mjs", simulator, &spec)
    }

    pub fn run(&self, script_name: &str, simulator: &Simulator, spec: &Json) -> Json {
        let mut command = self.command(script_name);
        command.env("CURSOR_BACKEND_URL", &simulator.url);
        if let Some(ca) = &simulator.ca {
            command.env("NODE_EXTRA_CA_CERTS", ca);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(spec.to_string().as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        serde_json::from_str(&stdout)
            .unwrap_or_else(|_| panic!("no report from {script_name}: {stdout}\n{stderr}"))
    }
}

/// Returns the only send of a report.
#[track_caller]
pub fn only_send(report: &Json) -> &Json {
    let sends = report["sends"]
        .as_array()
        .unwrap_or_else(|| panic!("{report}"));
    assert_eq!(sends.len(), 1, "{report}");
    &sends[0]
}

#[track_caller]
pub fn assert_finished(send: &Json, result: &str) {
    assert_eq!(send["status"], "finished", "{send}");
    assert_eq!(send["result"], result, "{send}");
}

pub fn mcp_stdio() -> Json {
    serde_json::json!({"command": node(), "args": [script("mcp-stdio.mjs")]})
}

/// An MCP server that exits on request and counts its starts in a file.
pub fn mcp_that_exits(lives: &std::path::Path) -> Json {
    serde_json::json!({"command": node(), "args": [script("mcp-mortal.mjs"), lives]})
}

/// The HTTP MCP server; ends when this is dropped.
pub struct McpHttpServer {
    child: std::process::Child,
    pub url: String,
}

impl McpHttpServer {
    pub fn start(sdk: &OfficialClient) -> Self {
        Self::listen(sdk, "0")
    }

    /// Starts another server at the same address, after this one has ended.
    pub fn again(self, sdk: &OfficialClient) -> Self {
        let port = self.url.rsplit([':', '/']).nth(1).unwrap().to_owned();
        drop(self);
        Self::listen(sdk, &port)
    }

    fn listen(sdk: &OfficialClient, port: &str) -> Self {
        Self::run(sdk.command("mcp-http.mjs").arg(port))
    }

    /// Starts a server whose answers are too long.
    pub fn giant(sdk: &OfficialClient) -> Self {
        Self::run(&mut sdk.command("mcp-giant-http.mjs"))
    }

    fn run(command: &mut Command) -> Self {
        use std::io::BufRead as _;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready: Json = serde_json::from_str(&line).unwrap();
        Self {
            child,
            url: ready["url"].as_str().unwrap().to_owned(),
        }
    }
}

impl McpHttpServer {
    pub fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for McpHttpServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// An image of one pixel.
pub const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
