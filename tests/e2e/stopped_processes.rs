//! A process that is stopped for a while (Ctrl-Z, a closed lid) and continued: what arrived
//! meanwhile counts, however long ago the last data was read.

use serde_json::json;
use std::time::Duration;

use agent::turn::Stop;
use cursor_sim::{FrameEntry, Sim};
use rustix::process::{Pid, Signal, kill_process};

use test_support::in_process;
use test_support::in_process::{CancelAfter, END, InProcessSession, played, requests, simulating};
use test_support::rpc_session::{CollectedTurn, RpcSession};
use test_support::scenario::{Steps, script};
use test_support::simulator::{Recording, Simulator};
use test_support::wait::until;

/// Returns steps that send text, with a delay before each.
fn words(count: usize, ms: u64) -> String {
    let all = (0..count).fold(Steps::new(), |steps, _| steps.delay_ms(ms).text("word "));
    all.build()
}

/// A sidecar with short watchdog limits.
fn hasty(simulator: &Simulator) -> RpcSession {
    let env = [
        ("PI_CURSOR_HTTP", "2"),
        ("PATH", "/usr/bin:/bin"),
        ("PI_CURSOR_STREAM_IDLE_TIMEOUT_MS", "4000"),
        ("PI_CURSOR_STREAM_IDLE_MAX_RETRIES", "0"),
    ];
    RpcSession::new(simulator, "s", &env)
}

fn signal(session: &RpcSession, signal: Signal) {
    let id = i32::try_from(session.host.id()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}

/// Stops the sidecar at the first text of a turn, until `enough` holds for the server.
fn stopped(
    session: &mut RpcSession,
    simulator: &Simulator,
    enough: impl Fn(&Recording) -> bool,
) -> CollectedTurn {
    let turn = session.begin();
    let mut begun = CollectedTurn::default();
    while begun.text.is_empty() {
        begun.receive(&session.host.receive());
    }
    let mut outcome = after_a_stop(session, &turn, simulator, enough);
    outcome.text.insert_str(0, &begun.text);
    outcome
}

/// Finishes a turn after a stop until `enough` holds for the server.
fn after_a_stop(
    session: &mut RpcSession,
    turn: &str,
    simulator: &Simulator,
    enough: impl Fn(&Recording) -> bool,
) -> CollectedTurn {
    signal(session, Signal::STOP);
    until(|| enough(&simulator.recorded()).then_some(()));
    signal(session, Signal::CONT);
    session.finish(turn)
}

fn spoken(recording: &Recording) -> usize {
    let sent_frames = recording.frames(1, "server").into_iter();
    sent_frames
        .filter(|frame| frame["kind"] == "interactionUpdate.textDelta")
        .count()
}

#[test]
fn a_stream_that_sent_while_we_were_stopped_is_not_silent() {
    let steps = Steps::new()
        .text("word ")
        .then(words(16, 400))
        .then(END)
        .build();
    let simulator = script(&[&steps]);
    let mut session = hasty(&simulator);
    session.user("go");
    // Twelve delays take longer than the limit.
    let outcome = stopped(&mut session, &simulator, |sent| spoken(sent) > 12);
    assert_eq!(
        (outcome.stop.as_str(), outcome.text),
        ("stop", "word ".repeat(17)),
        "{}",
        outcome.error
    );
    assert_eq!(simulator.recorded().runs(), 1);
}

/// A stream that is alive but sends no output is still restarted, if a little later.
#[test]
fn a_stream_that_sent_nothing_while_we_were_stopped_is_abandoned() {
    let nothing = words(40, 400).replace("word ", "");
    let simulator = script(&[&Steps::new().text("word ").then(nothing).then(END).build()]);
    let mut session = hasty(&simulator);
    session.user("go");
    let outcome = stopped(&mut session, &simulator, |sent| spoken(sent) > 12);
    let says = "Cursor stream idle timeout after 4000ms";
    assert!(outcome.error.starts_with(says), "{outcome:?}");
}

/// A command that ended while we were stopped has not timed out.
#[test]
fn a_command_that_ended_while_we_were_stopped_ended_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let command = r#"{ exec = { shellStreamArgs = { command = "echo > begun; until [ -e go ]; do sleep 0.05; done; echo ended > ended", workingDirectory = "$WS", toolCallId = "c", timeout = 6000 } }, open = true, name = "c", expect = { shellStream = { exit = { code = 0, aborted = false } } } }"#;
    let steps = Steps::new()
        .context()
        .then(command)
        .text("word ")
        .then(words(20, 400))
        .wait_for(&["c"])
        .then(END)
        .build();
    let simulator = script(&[&steps]);
    let mut session = hasty(&simulator);
    session.workspace = folder.path().to_str().unwrap().into();
    session.user("go");
    let turn = session.begin();
    let is_there = |name: &str| folder.path().join(name).exists();
    until(|| is_there("begun").then_some(()));
    let outcome = after_a_stop(&mut session, &turn, &simulator, |sent| {
        std::fs::write(folder.path().join("go"), "").unwrap();
        is_there("ended") && spoken(sent) > 17
    });
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
}

/// The client answers this, so it has read everything sent before it.
const READ: &str = r#"{ kv_set = { text = "x" } }"#;

/// Takes a turn on a machine that sleeps for `seconds` after [`READ`]: when it wakes, all timers
/// are due at once, ours and the server's.
async fn slept(guest: &mut InProcessSession, sim: &Sim, seconds: u64) -> in_process::InProcessTurn {
    let sleeping = async {
        let read = |frame: &FrameEntry| frame.kind.starts_with("kvClientMessage");
        while !sim.recording().frames().iter().any(read) {
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
    };
    tokio::join!(guest.turn(CancelAfter::Endless), sleeping).0
}

#[tokio::test]
async fn a_stream_survives_the_sleep_of_the_machine() {
    let steps = Steps::new()
        .text("Half. ")
        .then(READ)
        .step(json!({"silence_ms": 31000}))
        .text("Rest.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[steps]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.user("go");
    let outcome = slept(&mut guest, &sim, 33).await;
    assert_eq!(
        (outcome.stop, outcome.text.as_str(), requests(&sim).len()),
        (Stop::Finished, "Half. Rest.", 1)
    );
}

/// The checkpoint is sent after the end of the turn.
#[tokio::test]
async fn the_last_checkpoint_survives_the_sleep_of_the_machine() {
    let first = Steps::new()
        .text("One.")
        .usage()
        .then(READ)
        .step(json!({"silence_ms": 6000}))
        .checkpoint()
        .end()
        .build();
    let second = Steps::new()
        .expect_state("last checkpoint")
        .text("Two.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[first, second]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.user("go");
    assert_eq!(slept(&mut guest, &sim, 20).await.text, "One.");
    assert_eq!(guest.prompt("on").await.text, "Two.");
    played(&sim.recording()).await;
}

/// A confirmation of an injected message has not timed out either.
#[tokio::test]
async fn text_sent_before_the_machine_slept_is_kept() {
    let steps = Steps::new()
        .text("Hm. ")
        .step(json!({
            "expect_client": {"conversationAction": {"injectContextAction": {}}},
            "capture": {"I": "/conversationAction/injectContextAction/injectionId"},
        }))
        .text("So. ")
        .then(READ)
        .step(json!({"silence_ms": 16000}))
        .step(json!({
            "update": {
                "contextInjectionState": {"injectionId": "$I", "state": {"delivered": {"step": 1}}},
            },
        }))
        .text("Heard.")
        .then(END)
        .build();
    let (sim, backend) = simulating(&[steps]).await;
    let mut guest = InProcessSession::new(&backend, None);
    guest.interjection = Some("hurry".into());
    guest.user("go");
    let outcome = slept(&mut guest, &sim, 20).await;
    assert_eq!(
        (outcome.stop, outcome.text.as_str(), requests(&sim).len()),
        (Stop::Finished, "Hm. So. Heard.", 1)
    );
}
