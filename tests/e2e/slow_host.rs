//! A host that does not read what it is sent.

use serde_json::{Value as Json, json};

use test_support::sidecar::SidecarProcess;

fn request(id: usize, method: &str) -> Json {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {}})
}

fn ready() -> SidecarProcess {
    let mut host = SidecarProcess::start(&[]);
    host.initialize();
    host
}

#[test]
fn the_exit_request_is_handled_while_answers_are_unread() {
    let refused: Vec<Json> = (0..1300).map(|id| request(id, "nope")).collect();
    let mut host = ready();
    host.send_all(&refused);
    assert_eq!(host.exits(), Some(1), "the end of the input");
    let mut host = ready();
    host.send_all(&refused);
    host.send(&json!({"jsonrpc": "2.0", "method": "exit"}));
    let stdin = host.keep_open();
    assert_eq!(host.exits(), Some(1), "exit");
    drop(stdin);
}

#[test]
fn unread_answers_take_no_memory() {
    const ALL: usize = 8000;
    let mut host = ready();
    let before = host.peak_kib();
    let asked: Vec<Json> = (0..ALL)
        .map(|id| request(id, "diagnostics/report"))
        .collect();
    host.send_all(&asked);
    let (mut answered, mut refused) = (0, 0);
    for _ in 0..ALL {
        let answer = host.receive();
        match answer["error"]["code"].as_i64() {
            None => answered += 1,
            Some(-32001) => refused += 1,
            Some(_) => panic!("{answer}"),
        }
    }
    assert!(answered >= 1024 && refused > 0, "{answered} and {refused}");
    if let (Some(before), Some(peak)) = (before, host.peak_kib()) {
        let more = (peak - before) / 1024;
        assert!(more < 32, "{more} MiB more");
    }
    assert!(host.call("diagnostics/report", json!({}))["result"].is_object());
}

#[test]
fn a_frame_that_is_too_large_is_reported_from_its_header() {
    let mut host = ready();
    host.write(b"Content-Length: 999999999999\r\n\r\n");
    assert_eq!(host.receive()["error"]["code"], -32700);
    assert_eq!(host.exits(), Some(1));
}
