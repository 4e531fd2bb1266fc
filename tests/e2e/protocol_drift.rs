//! Protocol drift: what a newer Cursor has that this version does not know, on the wire or in a
//! schema listing.

use std::process::Command;

use cursor_proto::listing::Table;
use serde_json::{Value as Json, json};

use test_support::binary;
use test_support::rpc_session::RpcSession;
use test_support::scenario::playing;
use test_support::simulator::Transport;

/// An unknown request (field 99 of an exec message with id 5), an unknown query, and an unknown
/// field in a text message, twice.
const NEWER: &str = r#"{ send_hex = "1205 0805 9a0600" }, { expect_client = { execClientControlMessage = { throw = { id = 5 } } } }, { send_hex = "3a05 0809 e20300" }, { expect_client = { interactionResponse = { id = 9 } } }, { send_hex = "0a09 0a07 0a02 6f6b 900301" }, { send_hex = "0a09 0a07 0a02 6f6b 900301" }, { usage = {} }, { end = true }"#;

#[test]
fn drift_is_reported_by_the_report_the_command_and_the_doctor() {
    let simulator = playing(Transport::Http1, NEWER);
    let state = tempfile::tempdir().unwrap();
    let place = state.path().to_str().unwrap();
    let env = [
        ("PI_CURSOR_PROVIDER_DEBUG", "1"),
        ("PI_CURSOR_STATE_DIR", place),
    ];
    let mut talk = RpcSession::new(&simulator, "s1", &env);
    assert_eq!(talk.prompt("go").text, "okok");

    let report = talk.host.call("diagnostics/report", json!({}));
    let counts = json!({
        "agent.v1.ExecServerMessage.99": 1,
        "agent.v1.InteractionQuery.60": 1,
        "agent.v1.TextDeltaUpdate.50": 2,
        "exec: unknown request": 1,
        "query: unknown question": 1,
    });
    assert_eq!(report["result"]["wireDrift"], counts);

    let doctor = json!({"command": "cursor-doctor"});
    let told = talk.host.call("session/command", doctor);
    let told = told["result"]["message"].as_str().unwrap();
    let lines: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("unknown"))
        .collect();
    assert_eq!(
        lines,
        [
            "unknown to us: agent.v1.ExecServerMessage.99 (1 times)",
            "unknown to us: agent.v1.InteractionQuery.60 (1 times)",
            "unknown to us: agent.v1.TextDeltaUpdate.50 (2 times)",
            "unknown to us: exec: unknown request (1 times)",
            "unknown to us: query: unknown question (1 times)",
        ]
    );

    // The log remains after the sidecar has exited.
    talk.host.call("shutdown", json!(null));
    talk.host.send(&json!({"jsonrpc": "2.0", "method": "exit"}));
    assert_eq!(talk.host.exits(), Some(0));
    let doctor = |arguments: &[&str]| {
        let output = Command::new(binary())
            .args(arguments)
            .env_clear()
            .env("PI_CURSOR_STATE_DIR", place)
            .env("HOME", place)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let json: Json = serde_json::from_str(&doctor(&["doctor", "--json"])).unwrap();
    assert_eq!(json["wireDrift"], counts);
    let json: Json = serde_json::from_str(&doctor(&["doctor", "--last", "--json"])).unwrap();
    assert_eq!(json["drift"], counts);
    for page in [doctor(&["doctor"]), doctor(&["doctor", "--last"])] {
        for kind in counts.as_object().unwrap().keys() {
            assert!(page.contains(kind), "{kind} in {page}");
        }
    }
}

/// Runs `schema --compare` on a listing and returns the exit code, stdout and stderr.
fn compared(listing: &[u8], more: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("newer.txt");
    std::fs::write(&path, listing).unwrap();
    let output = Command::new(binary())
        .args(["schema", "--compare", "newer.txt"])
        .args(more)
        .current_dir(folder.path())
        .env_clear()
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

/// Our own table as a listing, with some lines replaced.
fn listing(changes: &[(&str, &str)]) -> String {
    let mut listing = format!("\n{}", Table::ours());
    for (line, changed) in changes {
        let line = format!("\n{line}\n");
        assert_eq!(listing.matches(&line).count(), 1, "{line}");
        listing = listing.replace(&line, &format!("\n{changed}\n"));
    }
    listing
}

/// Removes the totals, because they change with every message we add.
fn without_totals(page: &str) -> String {
    let (front, last) = page
        .trim_end()
        .rsplit_once('\n')
        .unwrap_or(("", page.trim_end()));
    let (_, verdict) = last.split_once(" compared: ").unwrap();
    format!("{front}\n{verdict}")
}

#[test]
fn a_schema_that_only_grew_breaks_nothing() {
    let (code, page, complaint) = compared(listing(&[]).as_bytes(), &[]);
    assert_eq!(
        (code, without_totals(&page).as_str(), complaint.as_str()),
        (0, "\nnothing breaks", "")
    );

    let grown = listing(&[
        (
            "agent.v1.ExecServerMessage",
            "agent.v1.ExecServerMessage\n 991 dream_args agent.v1.DreamArgs [oneof message]",
        ),
        (
            "agent.v1.InteractionQuery",
            "agent.v1.InteractionQuery\n 991 mood_query agent.v1.MoodQuery [oneof query]",
        ),
        (
            "agent.v1.TextDeltaUpdate",
            "agent.v1.TextDeltaUpdate\n 991 mood string [optional]",
        ),
        (
            "agent.v1.AgentRunRequest",
            "agent.v1.DreamArgs\n (no fields)\nagent.v1.AgentRunRequest\n 991 mood string",
        ),
        (
            "enum agent.v1.AgentMode",
            "enum agent.v1.AgentMode\n 991 AGENT_MODE_DREAM",
        ),
    ]);
    let (code, page, _) = compared(grown.as_bytes(), &[]);
    assert_eq!(code, 0);
    insta::assert_snapshot!(without_totals(&page), @r"
    new requests we would refuse: 2
      agent.v1.ExecServerMessage.dream_args 991, agent.v1.DreamArgs: would be thrown back
      agent.v1.InteractionQuery.mood_query 991, agent.v1.MoodQuery: would get an empty answer
    not declared by us, in messages we read: 1
      agent.v1.TextDeltaUpdate.mood 991, string
    also: 1 new fields in messages we only send, 1 new enum values, 1 messages we do not use
    nothing breaks
    ");
}

#[test]
fn an_incompatible_schema_change_fails_and_names_the_place() {
    let changed = listing(&[
        (
            "agent.v1.TextDeltaUpdate\n 2 is_server_notice bool\n 1 text string",
            "agent.v1.TextDeltaUpdate\n 2 is_server_notice bool\n 7 text string",
        ),
        (
            "agent.v1.ThinkingDeltaUpdate\n 1 text string",
            "agent.v1.ThinkingDeltaUpdate\n 1 text agent.v1.Thought",
        ),
        (
            "agent.v1.ExecServerMessage",
            "agent.v1.ExecServerMessage\n 991 dream_args agent.v1.DreamArgs [oneof message]",
        ),
    ]);
    let (code, page, _) = compared(changed.as_bytes(), &[]);
    assert_eq!(code, 1);
    insta::assert_snapshot!(without_totals(&page), @r"
    breaking: 2
      agent.v1.TextDeltaUpdate.text is number 7 there, 1 here
      agent.v1.ThinkingDeltaUpdate.text is agent.v1.Thought there, string here
    new requests we would refuse: 1
      agent.v1.ExecServerMessage.dream_args 991, agent.v1.DreamArgs: would be thrown back
    this version has to change
    ");

    let (code, json, _) = compared(changed.as_bytes(), &["--json"]);
    assert_eq!(code, 1);
    let json: Json = serde_json::from_str(&json).unwrap();
    let number =
        json!({"what": "agent.v1.TextDeltaUpdate.text", "how": "is number 7 there, 1 here"});
    assert_eq!(json["breaking"][0], number);
    assert_eq!(json["refused"].as_array().unwrap().len(), 1);
    assert_eq!(json["rest"]["fieldsGone"], 0);

    // A listing with one package, and only a part of it.
    let (code, page, _) = compared(b"agent.v1.TextDeltaUpdate\n 1 text string\n", &[]);
    assert_eq!(code, 1);
    assert!(
        page.starts_with("messages we use that are gone: "),
        "{page}"
    );
    assert!(page.contains("\n  agent.v1.AgentServerMessage\n"), "{page}");
    let silent = "\nnot in the listing, not compared: 1\n  aiserver.v1\n";
    assert!(page.contains(silent), "{page}");
}

#[test]
fn a_file_that_is_no_listing_is_reported_in_one_line() {
    let cases: [(&[u8], &str); 4] = [
        (
            b"",
            "newer.txt is no listing of messages: there is no message of agent.v1 or aiserver.v1 in it",
        ),
        (
            b"agent.v1.M\n x y z\n",
            "newer.txt is no listing of messages: line 2: expected \"number name type\", found \"x y z\"",
        ),
        (
            b"message M {\n}\n",
            "newer.txt is no listing of messages: line 1: expected a message's full name, found \"message M {\"",
        ),
        (
            b"\xff\xfe",
            "cannot read newer.txt: stream did not contain valid UTF-8",
        ),
    ];
    for (content, wanted) in cases {
        let (code, page, complaint) = compared(content, &["--json"]);
        assert_eq!(
            (code, page.as_str(), complaint),
            (2, "", format!("error: {wanted}\n"))
        );
    }
    let output = Command::new(binary())
        .args(["schema", "--compare", "no/such.txt"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(
        complaint.starts_with("error: cannot read no/such.txt: "),
        "{complaint}"
    );
    assert_eq!(complaint.lines().count(), 1);
}
