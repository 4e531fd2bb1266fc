//! A backend that is broken or hostile: memory stays bounded, and the host receives a typed error.

mod server;

use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};

use self::server::{Server, blob, checkpoint, field, packed, text, turn_ended};

use test_support::binary;
use test_support::gateway::GatewayProcess;
use test_support::rpc_session::{RpcSession, TurnOutcome};
use test_support::simulator::{Simulator, Transport};

const MIB: usize = 1024 * 1024;
/// The most memory the sidecar may use.
const MOST_MIB: u64 = 200;
const TOO_MUCH_TEXT: &str = "Cursor sent more than 16 MiB of text and thinking in one run";

/// Environment variables for the sidecar: runs go to the server, everything else to the simulator.
fn env<'a>(simulator: &'a Simulator, server: &'a Server) -> [(&'static str, &'a str); 4] {
    [
        ("CURSOR_BACKEND_URL", simulator.url.as_str()),
        ("CURSOR_API_KEY", "crsr_test"),
        ("CURSOR_AGENT_URL", server.url.as_str()),
        ("PI_CURSOR_HTTP", "2"),
    ]
}

fn simulator() -> Simulator {
    Simulator::responder(Transport::H2c)
}

/// Runs one turn and returns its result and the peak of the sidecar's memory in MiB.
fn turn(server: &Server, change: impl FnOnce(&mut Json)) -> (TurnOutcome, u64) {
    let simulator = simulator();
    let mut talk = RpcSession::new(&simulator, "s1", &env(&simulator, server));
    talk.user("go");
    let mut params = talk.params();
    change(&mut params);
    let id = talk.begin_with(&params);
    let taken = talk.finish(&id);
    let peak = talk.host.peak_kib().map_or(0, |kib| kib / 1024);
    (taken, peak)
}

#[track_caller]
fn assert_refused(server: &Server, why: &str) {
    let (taken, peak) = turn(server, |_| {});
    assert_eq!(taken.stop, "error", "{}", taken.error);
    assert!(taken.error.contains(why), "{}", taken.error);
    assert!(peak <= MOST_MIB, "{peak} MiB");
}

/// Returns the field headers around a text of this many bytes.
fn around_text(bytes: usize) -> Vec<u8> {
    let delta = field(1, bytes);
    let update = field(1, delta.len() + bytes);
    let message = field(1, update.len() + delta.len() + bytes);
    [message, update, delta].concat()
}

#[test]
fn packed_texts_of_sixty_mebibytes_are_refused() {
    let envelope = packed(&around_text(60 * MIB), &vec![b'x'; MIB], 60);
    assert!(envelope.len() < MIB);
    let server = Server::start(move || Box::new(std::iter::repeat_n(envelope.clone(), 200)));
    assert_refused(&server, "no more than 16777216 are taken");
}

#[test]
fn a_frame_of_sixty_mebibytes_is_refused() {
    let envelope = text("x".repeat(60 * MIB));
    let server = Server::start(move || Box::new(std::iter::repeat_n(envelope.clone(), 2)));
    assert_refused(&server, "no more than 16777216 are taken");
}

#[test]
fn a_packed_frame_over_the_limit_of_frames_is_refused() {
    let envelope = packed(&around_text(80 * MIB), &vec![b'x'; MIB], 80);
    let server = Server::start(move || Box::new(std::iter::once(envelope.clone())));
    assert_refused(&server, "over the limit of 67108864 bytes");
}

/// Field 127 of a server message, which is not declared.
const UNKNOWN: [u8; 4] = [0xf8, 0x07, 1, 0];

#[test]
fn unknown_fields_take_no_memory_and_do_not_end_the_turn() {
    let block = UNKNOWN[..3].repeat(MIB / 4);
    let envelope = packed(&[], &block, 10);
    let server = Server::start(move || {
        let drift = std::iter::repeat_n(envelope.clone(), 3);
        Box::new(drift.chain([text("ok"), turn_ended()]))
    });
    let (taken, peak) = turn(&server, |_| {});
    assert_eq!((taken.text.as_str(), taken.stop.as_str()), ("ok", "stop"));
    assert!(peak <= MOST_MIB, "{peak} MiB");
}

#[test]
fn sixty_four_mebibytes_of_unknown_fields_are_refused() {
    let block = UNKNOWN[..3].repeat(MIB / 4);
    let envelope = packed(&[], &block, 85);
    assert!(envelope.len() < MIB);
    let server = Server::start(move || Box::new(std::iter::once(envelope.clone())));
    assert_refused(&server, "no more than 16777216 are taken");
}

#[test]
fn endless_text_ends_the_turn() {
    let piece = text("All work and no play. ".repeat(1000));
    let server = Server::start(move || Box::new(std::iter::repeat(piece.clone())));
    assert_refused(&server, TOO_MUCH_TEXT);
    assert!(server.sent() < 64 * MIB, "nobody reads the rest");
}

#[test]
fn endless_text_ends_an_ask() {
    let piece = text("All work and no play. ".repeat(1000));
    let server = Server::start(move || Box::new(std::iter::repeat(piece.clone())));
    let (simulator, home) = (simulator(), tempfile::tempdir().unwrap());
    let output = Command::new(binary())
        .args(["ask", "go"])
        .env_clear()
        .env("HOME", home.path())
        .envs(env(&simulator, &server))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains(TOO_MUCH_TEXT), "{stderr}");
    assert!(output.stdout.len() <= 17 * MIB);
}

#[tokio::test]
async fn endless_text_is_an_error_of_the_gateway() {
    let piece = text("All work and no play. ".repeat(1000));
    let server = Server::start(move || Box::new(std::iter::repeat(piece.clone())));
    let simulator = simulator();
    let gateway = GatewayProcess::launch(&env(&simulator, &server));
    let mut chat = gateway.chat();
    chat.stream = false;
    chat.user("go");
    let answer = chat.send(&chat.body()).await;
    assert_eq!(answer.status(), 502);
    let told = answer.text().await.unwrap();
    assert!(told.contains(TOO_MUCH_TEXT), "{told}");
    let peak = gateway.peak_kib().map_or(0, |kib| kib / 1024);
    assert!(peak <= MOST_MIB, "{peak} MiB");
}

/// Checkpoints may be larger than other messages, because they are passed on unchanged.
#[test]
fn large_checkpoints_are_accepted_within_the_bound() {
    let state = [field(1000, 20 * MIB), vec![b'c'; 20 * MIB]].concat();
    let envelope = checkpoint(state);
    let server = Server::start(move || {
        let checkpoints = std::iter::repeat_n(envelope.clone(), 3);
        Box::new(checkpoints.chain([text("ok"), turn_ended()]))
    });
    let (taken, peak) = turn(&server, |_| {});
    assert_eq!((taken.text.as_str(), taken.stop.as_str()), ("ok", "stop"));
    assert!(peak <= MOST_MIB, "{peak} MiB");
}

#[test]
fn endless_blobs_end_the_turn() {
    let server = Server::start(|| Box::new((0..).map(|id| blob(id, MIB))));
    let (taken, peak) = turn(&server, |params| params["keep"] = json!("memory"));
    assert_eq!(taken.stop, "error");
    let why = "Cursor stored more than 64 MiB of blobs in this conversation";
    assert!(taken.error.contains(why), "{}", taken.error);
    assert!(peak <= MOST_MIB, "{peak} MiB");
}

#[test]
fn a_host_that_reads_late_gets_everything_in_order_and_costs_little() {
    const PIECES: usize = 15 * MIB / 4096;
    let piece = |number: usize| format!("{number:<4096}");
    let server = Server::start(move || {
        let pieces = (0..PIECES).map(move |number| text(piece(number)));
        Box::new(pieces.chain([turn_ended()]))
    });
    let simulator = simulator();
    let mut talk = RpcSession::new(&simulator, "s1", &env(&simulator, &server));
    let before = talk.host.peak_kib();
    talk.user("go");
    let id = talk.begin();
    // The host reads nothing until the server is blocked.
    server.wait_until_blocked();
    let sent = server.sent();
    assert!(sent < PIECES * 4096, "it has to wait for the host");
    if let (Some(before), Some(peak)) = (before, talk.host.peak_kib()) {
        let more = (peak - before) / 1024;
        assert!(more <= 64, "{more} MiB more");
    }
    let taken = talk.finish(&id);
    assert_eq!(taken.stop, "stop", "{}", taken.error);
    assert_eq!(taken.text.len(), PIECES * 4096);
    let in_order = |(number, line): (usize, &[u8])| line == piece(number).as_bytes();
    let mut lines = taken.text.as_bytes().chunks(4096).enumerate();
    assert!(lines.all(in_order));
}
