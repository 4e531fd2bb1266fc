//! However a sidecar ends, no process of it is left a second later.
//!
//! Wall-clock time is unreliable on a busy machine, so the processes that must end count the second
//! themselves: they count a hundred steps after the end and would then write a file. A delay of our
//! shutdown delays each of their steps as well.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde_json::json;

use test_support::processes::is_running;
use test_support::rpc_session::RpcSession;
use test_support::scenario::Steps;
use test_support::sidecar::SidecarProcess;
use test_support::simulator::{Simulator, Transport};
use test_support::wait::until;

/// Ignores signals, waits for the file `ended`, and counts to a hundred.
const COUNTING: &str = r#"
trap '' TERM HUP INT
cd "$1"
echo $$ > "$2.new"; mv "$2.new" "$2"
while [ ! -e ended ]; do sleep 0.01; done
step=0
while [ $step -lt 100 ]; do sleep 0.01; step=$((step + 1)); done
echo > "$2.outlived"
exec sleep 600
"#;

/// A sidecar with a foreground command, a background command and an MCP server, each of which
/// counts.
struct CountingSidecar {
    session: RpcSession,
    folder: tempfile::TempDir,
    processes: Vec<i32>,
    /// A process that is not the sidecar's, to check whether the sidecar itself ended in time.
    other: Child,
    _simulator: Simulator,
}

impl Drop for CountingSidecar {
    fn drop(&mut self) {
        let _ = self.other.kill();
        let _ = self.other.wait();
    }
}

fn process(folder: &Path, name: &str) -> i32 {
    until(|| {
        let id = std::fs::read_to_string(folder.join(name)).ok()?;
        id.trim().parse().ok()
    })
}

impl CountingSidecar {
    fn new(host_process: Option<u32>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().to_str().unwrap();
        let script = folder.path().join("counting.sh");
        std::fs::write(&script, COUNTING).unwrap();
        let script = script.to_str().unwrap();
        let step = |kind: &str, name: &str| {
            let args = json!({"command": format!("sh {script} {here} {name}"),
                "workingDirectory": "$WS", "toolCallId": name});
            Steps::new().step(json!({"exec": {kind: args}})).build()
        };
        let background = step("backgroundShellSpawnArgs", "behind");
        let front = step("shellStreamArgs", "front");
        let steps = Steps::new().context().then(background).then(front).build();
        let simulator = test_support::scenario::playing(Transport::Http1, &steps);
        let servers =
            json!({"mcpServers": {"s": {"command": "sh", "args": [script, here, "server"]}}});
        std::fs::create_dir(folder.path().join(".cursor")).unwrap();
        std::fs::write(folder.path().join(".cursor/mcp.json"), servers.to_string()).unwrap();
        let host = SidecarProcess::start(&[
            ("PATH", "/usr/bin:/bin"),
            ("HOME", here),
            ("TMPDIR", here),
            ("CURSOR_BACKEND_URL", &simulator.url),
            ("CURSOR_API_KEY", "crsr_test"),
        ]);
        let mut session = RpcSession::of(host, "busy", host_process);
        session.workspace = here.into();
        session.user("go");
        session.begin();
        let other = Command::new("sh").args([script, here, "other"]).spawn();
        process(folder.path(), "other");
        let processes = ["behind", "front", "server"].map(|name| process(folder.path(), name));
        assert!(processes.iter().all(|id| is_running(*id)));
        Self {
            processes: processes.into(),
            other: other.unwrap(),
            session,
            _simulator: simulator,
            folder,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the counting.
    fn begins_to_count(&self) {
        std::fs::write(self.file("ended"), "").unwrap();
    }

    /// Waits until all processes are gone and checks that none lived too long.
    fn all_end_in_time(mut self) {
        self.session.host.ended();
        assert!(!self.file("other.outlived").exists(), "the sidecar");
        for id in &self.processes {
            until(|| (!is_running(*id)).then_some(()));
        }
        for name in ["behind", "front", "server"] {
            assert!(!self.file(&format!("{name}.outlived")).exists(), "{name}");
        }
        // A process that lives longer does write its file, which shows that the checks can fail.
        until(|| self.file("other.outlived").exists().then_some(()));
    }
}

#[test]
fn a_killed_sidecar_leaves_no_process_after_a_second() {
    let mut busy = CountingSidecar::new(None);
    busy.session.host.kill();
    busy.begins_to_count();
    busy.all_end_in_time();
}

#[test]
fn a_sidecar_whose_input_ends_leaves_no_process_after_a_second() {
    let mut busy = CountingSidecar::new(None);
    drop(busy.session.host.keep_open());
    busy.begins_to_count();
    busy.all_end_in_time();
}

#[test]
fn a_sidecar_that_is_asked_to_exit_leaves_no_process_after_a_second() {
    let mut busy = CountingSidecar::new(None);
    let exit = json!({"jsonrpc": "2.0", "method": "exit"});
    busy.session.host.send(&exit);
    busy.begins_to_count();
    // Its input stays open.
    busy.all_end_in_time();
}

/// The host dies, but another process keeps the pipe open.
#[test]
fn a_sidecar_without_its_host_leaves_no_process_after_a_second() {
    let mut host = Command::new("sleep").arg("1000").spawn().unwrap();
    let busy = CountingSidecar::new(Some(host.id()));
    host.kill().unwrap();
    host.wait().unwrap();
    busy.begins_to_count();
    busy.all_end_in_time();
}
