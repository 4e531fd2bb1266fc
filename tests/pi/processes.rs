//! No exit of pi leaves a process running; no exit of the sidecar ends pi.

use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use test_support::pi_env::{ECHO, PiEnv, PiOutput, PiVersion};
use test_support::wait::until_named;

crate::on_every_pi!(
    a_killed_pi_leaves_nothing,
    control_c_ends_print_mode,
    a_killed_sidecar_costs_the_turn_nothing,
);

/// Sends text and then nothing until the client disconnects.
const STALL: &str = r#"
name = "stall"
[[run]]
steps = [ { text = "Wait" }, { stall = true } ]
"#;

fn print_in_background(pi_env: &PiEnv) -> Child {
    let child = pi_env
        .command(&["--model", "cursor/composer-2", "-p", "hi"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    pi_env.recorded("the run is open", |recording| {
        !recording.client("runRequest").is_empty()
    });
    child
}

fn signal(child: &Child, signal: Signal) {
    let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(id, signal).unwrap();
}

fn a_killed_pi_leaves_nothing(version: PiVersion) {
    let pi_env = PiEnv::playing(version, STALL);
    let mut pi = print_in_background(&pi_env);
    signal(&pi, Signal::KILL);
    pi.wait().unwrap();
    // One second is guaranteed; a loaded machine gets three.
    pi_env.no_sidecar_is_left_after(Duration::from_secs(3));
}

fn control_c_ends_print_mode(version: PiVersion) {
    let pi_env = PiEnv::playing(version, STALL);
    let pi = print_in_background(&pi_env);
    signal(&pi, Signal::INT);
    let ran = PiOutput::from(pi.wait_with_output().unwrap());
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.stdout, "");
    pi_env.no_sidecar_is_left();
}

/// pi retries the turn, and another sidecar continues from the saved state.
fn a_killed_sidecar_costs_the_turn_nothing(version: PiVersion) {
    let scenario = r#"
name = "killed"
attempts = "all"
[[run]]
steps = [ { text = "Wait" }, { kv_set = { text = "read this far" } }, { stall = true } ]
[[run]]
steps = [ { text = "Here." }, { checkpoint = "auto" }, { usage = {} }, { end = true } ]
"#;
    let pi_env = PiEnv::playing(version, scenario);
    let pi = print_in_background(&pi_env);
    pi_env.recorded("a word has come", |recording| {
        !recording.client("kvClientMessage.setBlobResult").is_empty()
    });
    let sidecar = Pid::from_raw(pi_env.sidecars()[0]).unwrap();
    kill_process(sidecar, Signal::KILL).unwrap();
    let ran = PiOutput::from(pi.wait_with_output().unwrap());
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (Some(0), "Here.\n"),
        "{ran:?}"
    );
    pi_env.no_sidecar_is_left();
    let recording = pi_env.recorded("both runs", |recording| recording.verdicts().len() == 2);
    recording.assert_played(&["cancelled by client", "completed"]);
}

#[test]
fn a_missing_program_is_named() {
    let pi_env = PiEnv::playing(PiVersion::V087, ECHO);
    let mut command = pi_env.command(&["--model", "cursor/composer-2", "-p", "hi"]);
    let ran = PiOutput::from(
        command
            .env("PI_CURSOR_SIDECAR", "/nowhere/x")
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("cannot start /nowhere/x"), "{ran:?}");
    assert!(ran.stderr.contains("correct PI_CURSOR_SIDECAR"), "{ran:?}");
}

/// `cat` echoes requests and never responds.
#[test]
fn another_program_is_named_at_once() {
    let pi_env = PiEnv::playing(PiVersion::V087, ECHO).with_sidecar("/bin/cat");
    let ran = pi_env.print("hi");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let named = ran
        .stderr
        .contains("/sidecar is not cursor-sidecar; correct PI_CURSOR_SIDECAR");
    assert!(named && !ran.stderr.contains("undefined"), "{ran:?}");
    pi_env.no_sidecar_is_left();
}

/// `tail` never answers; without a timeout every start of pi would hang.
#[test]
fn a_program_that_never_answers_is_abandoned() {
    let pi_env = PiEnv::playing(PiVersion::V087, ECHO).with_sidecar("/usr/bin/tail");
    let ran = pi_env.pi(&["--list-models", "cursor"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("Cursor Auto") || ran.stdout.contains("auto"));
    pi_env.no_sidecar_is_left();
}

#[test]
fn without_a_key_the_three_ways_are_named() {
    let pi_env = PiEnv::playing(PiVersion::V087, ECHO).without_key();
    let ran = pi_env.print("hi");
    assert_eq!(ran.code, Some(1));
    for way in ["CURSOR_API_KEY", "/login", "--api-key"] {
        assert!(ran.stderr.contains(way), "{ran:?}");
    }
    let ran = pi_env.pi(&[
        "--model",
        "cursor/composer-2",
        "--api-key",
        "crsr_x",
        "-p",
        "hi",
    ]);
    assert_eq!(ran.stdout, "Heard: hi\n", "{ran:?}");
    until_named("both sidecars are known", || {
        (pi_env.sidecars().len() == 2).then_some(())
    });
}
