//! A backend that is broken or hostile: memory stays bounded, and the host receives a typed error.

mod server;

use std::io::Read as _;
use std::process::{Command, Stdio};

use bytes::Bytes;
use serde_json::{Value as Json, json};

use self::server::{
    Envelopes, HostileServer, blob, checkpoint, field, packed, text, thinking, turn_ended,
};

use test_support::binary;
use test_support::gateway::GatewayProcess;
use test_support::processes::peak_kib;
use test_support::rpc_session::{CollectedTurn, RpcSession};
use test_support::simulator::{Simulator, Transport};

const MIB: usize = 1024 * 1024;
/// The most memory the sidecar may use.
const MAX_MIB: u64 = 200;
/// The most text and thinking of a run.
const LIMIT: usize = 16 * MIB;
const TOO_MUCH_TEXT: &str = "Cursor sent more than 16 MiB of text and thinking in one run";

/// Environment variables for the sidecar: runs go to the server, everything else to the simulator.
fn env<'a>(simulator: &'a Simulator, server: &'a HostileServer) -> [(&'static str, &'a str); 4] {
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

/// Asserts that a process used no more than [`MAX_MIB`], and prints the figure. Where the system
/// does not report it (`None`) nothing is asserted; Linux always does.
#[track_caller]
fn assert_small(case: &str, peak_kib: Option<u64>) {
    assert!(
        peak_kib.is_some_and(|kib| kib > 0) || !cfg!(target_os = "linux"),
        "{case}: not measured"
    );
    let peak = peak_kib.unwrap_or_default() / 1024;
    eprintln!("peak memory, {case}: {peak} MiB");
    assert!(peak <= MAX_MIB, "{case}: {peak} MiB");
}

/// Runs one turn, asserts that the sidecar used little memory, and returns the result.
#[track_caller]
fn turn(case: &str, server: &HostileServer, change: impl FnOnce(&mut Json)) -> CollectedTurn {
    let simulator = simulator();
    let mut session = RpcSession::new(&simulator, "s1", &env(&simulator, server));
    session.user("go");
    let mut params = session.params();
    change(&mut params);
    let id = session.begin_with(&params);
    let outcome = session.finish(&id);
    assert_small(case, session.host.peak_kib());
    outcome
}

/// Returns a run with four times the text that is accepted. It ends, so that a client without a
/// limit completes the turn and the test fails at once.
fn too_much(piece: Bytes) -> Envelopes {
    let count = 4 * LIMIT / piece.len();
    Box::new(std::iter::repeat_n(piece, count).chain([turn_ended()]))
}

#[track_caller]
fn assert_refused(case: &str, server: &HostileServer, why: &str) {
    let outcome = turn(case, server, |_| {});
    assert_eq!(outcome.stop, "error", "{}", outcome.error);
    assert!(outcome.error.contains(why), "{}", outcome.error);
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
    let server = HostileServer::start(move || Box::new(std::iter::repeat_n(envelope.clone(), 200)));
    assert_refused(
        "12 MB of gzip, 60 MiB of text each",
        &server,
        "no more than 16777216 are taken",
    );
}

/// Each message is within its limit, all of them together are not.
#[test]
fn packed_texts_within_the_limit_of_messages_end_the_turn() {
    let envelope = packed(&around_text(15 * MIB), &vec![b'x'; MIB], 15);
    let server = HostileServer::start(move || {
        let texts = std::iter::repeat_n(envelope.clone(), 3);
        Box::new(texts.chain([turn_ended()]))
    });
    assert_refused("3 times 15 MiB of text in gzip", &server, TOO_MUCH_TEXT);
}

#[test]
fn a_frame_of_sixty_mebibytes_is_refused() {
    let envelope = text("x".repeat(60 * MIB));
    let server = HostileServer::start(move || Box::new(std::iter::repeat_n(envelope.clone(), 2)));
    assert_refused("60 MiB of text", &server, "no more than 16777216 are taken");
}

#[test]
fn a_packed_frame_over_the_limit_of_frames_is_refused() {
    let envelope = packed(&around_text(80 * MIB), &vec![b'x'; MIB], 80);
    let server = HostileServer::start(move || Box::new(std::iter::once(envelope.clone())));
    assert_refused(
        "80 MiB in one gzip envelope",
        &server,
        "over the limit of 67108864 bytes",
    );
}

/// Field 127 of a server message, which is not declared.
const UNKNOWN: [u8; 4] = [0xf8, 0x07, 1, 0];

#[test]
fn unknown_fields_take_no_memory_and_do_not_end_the_turn() {
    let block = UNKNOWN[..3].repeat(MIB / 4);
    let envelope = packed(&[], &block, 20);
    let server = HostileServer::start(move || {
        let drift = std::iter::repeat_n(envelope.clone(), 3);
        Box::new(drift.chain([text("ok"), turn_ended()]))
    });
    let outcome = turn("3 times 15 MiB of unknown fields", &server, |_| {});
    assert_eq!(
        (outcome.text.as_str(), outcome.stop.as_str()),
        ("ok", "stop")
    );
}

#[test]
fn sixty_four_mebibytes_of_unknown_fields_are_refused() {
    let block = UNKNOWN[..3].repeat(MIB / 4);
    let envelope = packed(&[], &block, 85);
    assert!(envelope.len() < MIB);
    let server = HostileServer::start(move || {
        let drift = std::iter::once(envelope.clone());
        Box::new(drift.chain([text("ok"), turn_ended()]))
    });
    assert_refused(
        "64 MiB of unknown fields",
        &server,
        "no more than 16777216 are taken",
    );
}

#[test]
fn endless_text_ends_the_turn() {
    let server = HostileServer::start(|| too_much(text("All work and no play. ".repeat(1000))));
    assert_refused("endless text", &server, TOO_MUCH_TEXT);
    assert!(server.sent() < 3 * LIMIT, "the rest is not read");
}

#[test]
fn endless_thinking_ends_the_turn() {
    let server =
        HostileServer::start(|| too_much(thinking("Perhaps, or perhaps not. ".repeat(1000))));
    assert_refused("endless thinking", &server, TOO_MUCH_TEXT);
    assert!(server.sent() < 3 * LIMIT, "the rest is not read");
}

#[test]
fn endless_text_ends_an_ask() {
    let server = HostileServer::start(|| too_much(text("All work and no play. ".repeat(1000))));
    let (simulator, home) = (simulator(), tempfile::tempdir().unwrap());
    let errors = home.path().join("errors");
    let mut child = Command::new(binary())
        .args(["ask", "go"])
        .env_clear()
        .env("HOME", home.path())
        .envs(env(&simulator, &server))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&errors).unwrap())
        .spawn()
        .unwrap();
    // Its peak so far, whenever it has printed something, because none is reported after its end.
    let mut stdout = child.stdout.take().unwrap();
    let (mut printed, mut peak) = (0, None);
    let mut piece = vec![0; 64 * 1024];
    loop {
        peak = peak.max(peak_kib(child.id()));
        match stdout.read(&mut piece).unwrap() {
            0 => break,
            count => printed += count,
        }
        assert!(printed <= 17 * MIB, "more than the limit was printed");
    }
    assert!(printed > 0 && !child.wait().unwrap().success());
    let stderr = std::fs::read_to_string(errors).unwrap();
    assert!(stderr.contains(TOO_MUCH_TEXT), "{stderr}");
    assert_small("endless text, ask", peak);
}

#[tokio::test]
async fn endless_text_is_an_error_of_the_gateway() {
    let server = HostileServer::start(|| too_much(text("All work and no play. ".repeat(1000))));
    let simulator = simulator();
    let gateway = GatewayProcess::launch(&env(&simulator, &server));
    let mut chat = gateway.chat();
    chat.stream = false;
    chat.user("go");
    let answer = chat.send(&chat.body()).await;
    assert_eq!(answer.status(), 502);
    let printed = answer.text().await.unwrap();
    assert!(printed.contains(TOO_MUCH_TEXT), "{printed}");
    assert_small("endless text, gateway", gateway.peak_kib());
}

/// Checkpoints may be larger than other messages, because they are passed on unchanged.
#[test]
fn large_checkpoints_are_accepted_within_the_bound() {
    let state = [field(1000, 20 * MIB), vec![b'c'; 20 * MIB]].concat();
    let envelope = checkpoint(state);
    let server = HostileServer::start(move || {
        let checkpoints = std::iter::repeat_n(envelope.clone(), 3);
        Box::new(checkpoints.chain([text("ok"), turn_ended()]))
    });
    let outcome = turn("3 checkpoints of 20 MiB", &server, |_| {});
    assert_eq!(
        (outcome.text.as_str(), outcome.stop.as_str()),
        ("ok", "stop")
    );
}

#[test]
fn endless_blobs_end_the_turn() {
    let server = HostileServer::start(|| Box::new((0..).map(|id| blob(id, MIB))));
    let outcome = turn("endless blobs in memory", &server, |params| {
        params["keep"] = json!("memory")
    });
    assert_eq!(outcome.stop, "error");
    let why = "Cursor stored more than 64 MiB of blobs in this conversation";
    assert!(outcome.error.contains(why), "{}", outcome.error);
}

/// Blobs of a stored conversation go to disk, up to a limit of its own.
#[test]
fn endless_blobs_on_disk_end_the_turn() {
    let server = HostileServer::start(|| Box::new((0..).map(|id| blob(id, 16 * MIB))));
    let outcome = turn("endless blobs on disk", &server, |_| {});
    assert_eq!(outcome.stop, "error");
    let why = "Cursor stored more than 256 MiB of blobs in this conversation";
    assert!(outcome.error.contains(why), "{}", outcome.error);
}

#[test]
fn a_host_that_reads_late_gets_everything_in_order_and_costs_little() {
    const PIECES: usize = 15 * MIB / 4096;
    let piece = |number: usize| format!("{number:<4096}");
    let server = HostileServer::start(move || {
        let pieces = (0..PIECES).map(move |number| text(piece(number)));
        Box::new(pieces.chain([turn_ended()]))
    });
    let simulator = simulator();
    let mut session = RpcSession::new(&simulator, "s1", &env(&simulator, &server));
    let before = session.host.peak_kib();
    session.user("go");
    let id = session.begin();
    // The host reads nothing until the server is blocked.
    server.wait_until_blocked();
    let sent = server.sent();
    assert!(sent < PIECES * 4096, "it has to wait for the host");
    if let (Some(before), Some(peak)) = (before, session.host.peak_kib()) {
        let more = (peak - before) / 1024;
        assert!(more <= 64, "{more} MiB more");
    }
    let outcome = session.finish(&id);
    assert_small("a host that reads late", session.host.peak_kib());
    assert_eq!(outcome.stop, "stop", "{}", outcome.error);
    assert_eq!(outcome.text.len(), PIECES * 4096);
    let in_order = |(number, line): (usize, &[u8])| line == piece(number).as_bytes();
    let mut lines = outcome.text.as_bytes().chunks(4096).enumerate();
    assert!(lines.all(in_order));
}
