//! What the request context needs is read in the background: a turn does not wait for it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value as Json, json};

use test_support::rpc_session::RpcSession;
use test_support::scenario::{CONTEXT, END, playing};
use test_support::simulator::Transport;

/// The most turns until a reading in the background must have ended.
const MAX_TURNS: usize = 500;

/// Creates a repository, and a `git` whose `status` waits as long as a file exists.
fn repository_with_slow_status(root: &Path) {
    let work = root.join("work");
    fs::create_dir_all(&work).unwrap();
    let init = ["init", "--quiet", "--initial-branch=trunk"];
    let done = Command::new("git").args(init).current_dir(&work).status();
    assert!(done.unwrap().success());
    fs::write(work.join("new.txt"), "").unwrap();
    let git = root.join("bin/git");
    fs::create_dir_all(git.parent().unwrap()).unwrap();
    let path = std::env::var("PATH").unwrap();
    let gate = root.join("gate");
    let script = format!(
        "#!/bin/sh\nPATH='{path}'\ncase \" $* \" in *' status '*)\n\
         while [ -e '{}' ]; do sleep 0.02; done ;;\nesac\nexec git \"$@\"\n",
        gate.display()
    );
    fs::write(&git, script).unwrap();
    fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(gate, "").unwrap();
}

#[tokio::test]
async fn a_turn_does_not_wait_for_git_and_a_later_one_sends_its_status() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    repository_with_slow_status(&root);
    let steps = format!("{CONTEXT}, {{ text = \"Done.\" }}, {END}");
    let simulator = playing(Transport::H2c, &steps);
    let path = root.join("bin");
    let mut session = RpcSession::new(&simulator, "s", &[("PATH", path.to_str().unwrap())]);
    session.workspace = root.join("work").display().to_string();
    let mut turn = async || {
        assert_eq!(session.prompt("go").stop, "stop");
        let recording = simulator.recording().await;
        let sent = recording.client("execClientMessage.requestContextResult");
        let context = "/execClientMessage/requestContextResult/success/requestContext";
        sent.last().unwrap().pointer(context).unwrap().clone()
    };
    // The turn ends although git does not.
    let context = turn().await;
    assert_ne!(context["gitRepoInfoComplete"], true, "{context}");
    fs::remove_file(root.join("gate")).unwrap();
    let mut later = Json::Null;
    for _ in 0..MAX_TURNS {
        later = turn().await;
        if later["gitRepoInfoComplete"] == true {
            break;
        }
    }
    let repository = &later["gitRepos"][0];
    assert_eq!(repository["branchName"], "trunk", "{later}");
    assert!(
        repository["status"]
            .as_str()
            .unwrap()
            .contains("?? new.txt"),
        "{later}"
    );
    let report = session.host.call("diagnostics/report", json!({}));
    let counters = report["result"]["counters"].as_object().unwrap();
    let incomplete = r#"context.incomplete{part="git status is not read yet"}"#;
    assert!(counters[incomplete].as_u64().unwrap() >= 1, "{report}");
}
