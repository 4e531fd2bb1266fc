//! Each kind of difference, and none.

use super::*;

fn listing() -> String {
    SchemaTable::ours().to_string()
}

/// Compares with our own table after one change.
fn changed(from: &str, to: &str) -> SchemaDiff {
    let (from, to) = (format!("\n{from}\n"), format!("\n{to}\n"));
    let listing = format!("\n{}", listing());
    assert_eq!(listing.matches(&from).count(), 1, "{from}");
    compare_with(&listing.replace(&from, &to)).unwrap()
}

fn lines(differences: &[Difference]) -> Vec<String> {
    let lines = differences.iter();
    lines
        .map(|difference| format!("{} {}", difference.what, difference.how))
        .collect()
}

#[test]
fn our_own_table_has_no_differences() {
    let same = compare_with(&listing()).unwrap();
    assert!(
        same.compared.messages > 300 && same.compared.fields > 1000,
        "{same:?}"
    );
    let nothing = SchemaDiff {
        compared: same.compared,
        ..SchemaDiff::default()
    };
    assert_eq!(same, nothing);
}

#[test]
fn a_changed_number_type_or_cardinality_is_breaking() {
    let cases = [
        (
            "agent.v1.TextDeltaUpdate\n 2 is_server_notice bool\n 1 text string",
            "agent.v1.TextDeltaUpdate\n 2 is_server_notice bool\n 7 text string",
            "agent.v1.TextDeltaUpdate.text is number 7 there, 1 here",
        ),
        (
            "agent.v1.TextDeltaUpdate\n 2 is_server_notice bool\n 1 text string",
            "agent.v1.TextDeltaUpdate\n 2 is_server_notice bool\n 1 text bytes",
            "agent.v1.TextDeltaUpdate.text is bytes there, string here",
        ),
        (
            "agent.v1.TextDeltaUpdate\n 2 is_server_notice bool\n 1 text string",
            "agent.v1.TextDeltaUpdate\n 2 is_server_notice bool\n 1 text string [repeated]",
            "agent.v1.TextDeltaUpdate.text is repeated there, single here",
        ),
        (
            "agent.v1.TextDeltaUpdate\n 2 is_server_notice bool\n 1 text string",
            "agent.v1.TextDeltaUpdate\n 2 is_server_notice bool\n 1 words int32",
            "agent.v1.TextDeltaUpdate.text its number 1 is now words, int32",
        ),
        (
            "agent.v1.McpArgs\n 2 args map<string,google.protobuf.Value>",
            "agent.v1.McpArgs\n 2 args map<string,string>",
            "agent.v1.McpArgs.args is map<string,string> there, map<string,google.protobuf.Value> here",
        ),
        (
            " 3 AGENT_MODE_PLAN",
            " 9 AGENT_MODE_PLAN",
            "agent.v1.AgentMode.AGENT_MODE_PLAN is 9 there, 3 here",
        ),
    ];
    for (from, to, wanted) in cases {
        let found = changed(from, to);
        assert_eq!(lines(&found.breaking), [wanted]);
        assert!(found.breaks() && found.refused.is_empty() && found.unread.is_empty());
    }
}

#[test]
fn a_missing_message_that_we_use_is_breaking() {
    let found = changed(
        "agent.v1.TextDeltaUpdate\n 2 is_server_notice bool\n 1 text string",
        "",
    );
    assert_eq!(found.gone, ["agent.v1.TextDeltaUpdate"]);
    assert!(found.breaks());
}

#[test]
fn new_requests_are_sorted_by_importance() {
    let mut listing = listing();
    for message in [
        "AgentServerMessage",
        "KvServerMessage",
        "InteractionQuery",
        "ExecServerMessage",
    ] {
        let line = format!("\nagent.v1.{message}\n");
        let more = format!("{line} 991 dream a.Dream [oneof message]\n");
        listing = listing.replace(&line, &more);
    }
    let found = compare_with(&listing).unwrap();
    assert_eq!(
        lines(&found.refused),
        [
            "agent.v1.ExecServerMessage.dream 991, a.Dream: would be thrown back",
            "agent.v1.InteractionQuery.dream 991, a.Dream: would get an empty answer",
            "agent.v1.KvServerMessage.dream 991, a.Dream: would get an error",
            "agent.v1.AgentServerMessage.dream 991, a.Dream: would be passed over",
        ]
    );
    assert!(!found.breaks() && found.unread.is_empty(), "{found:?}");
}

#[test]
fn new_fields_are_listed_only_in_messages_we_read() {
    let found = changed(
        "agent.v1.InteractionUpdate",
        "agent.v1.InteractionUpdate\n 991 mood a.Mood [oneof message]",
    );
    assert_eq!(
        lines(&found.unread),
        ["agent.v1.InteractionUpdate.mood 991, a.Mood, a new case"]
    );
    // A field outside the oneof of a request message is not a request.
    let found = changed(
        "agent.v1.ExecServerMessage",
        "agent.v1.ExecServerMessage\n 991 mood string",
    );
    assert_eq!(
        lines(&found.unread),
        ["agent.v1.ExecServerMessage.mood 991, string"]
    );
    let found = changed(
        "aiserver.v1.GetMeResponse",
        "aiserver.v1.GetMeResponse\n 991 mood string",
    );
    assert_eq!(
        lines(&found.unread),
        ["aiserver.v1.GetMeResponse.mood 991, string"]
    );
    for message in ["agent.v1.AgentRunRequest", "agent.v1.ReadResult", CARRIED] {
        let found = changed(message, &format!("{message}\n 991 mood string"));
        assert_eq!(lines(&found.unread), [""; 0], "{message}");
        assert_eq!(
            found.other_changes.new_fields_in_what_we_send, 1,
            "{message}"
        );
    }
}

#[test]
fn changes_with_the_same_encoding_are_only_counted() {
    let found = changed(
        "agent.v1.TextDeltaUpdate\n 2 is_server_notice bool\n 1 text string",
        "agent.v1.TextDeltaUpdate\n 2 is_server_notice bool\n 1 words string",
    );
    assert_eq!(
        (found.other_changes.fields_renamed, found.breaks()),
        (1, false)
    );
    let found = changed(
        "agent.v1.TextDeltaUpdate\n 2 is_server_notice bool\n 1 text string",
        "agent.v1.TextDeltaUpdate\n 2 is_server_notice bool",
    );
    assert_eq!(
        (found.other_changes.fields_gone, found.breaks()),
        (1, false)
    );
    let found = changed(
        "enum agent.v1.AgentMode",
        "agent.v1.Dream\nenum agent.v1.AgentMode\n 99 AGENT_MODE_DREAM",
    );
    let rest = OtherChanges {
        new_enum_values: 1,
        messages_we_do_not_use: 1,
        ..OtherChanges::default()
    };
    assert_eq!((found.other_changes, found.breaks()), (rest, false));
}

#[test]
fn messages_outside_the_listing_are_not_reported_as_missing() {
    let found = compare_with("agent.v1.AgentServerMessage\n").unwrap();
    assert_eq!(found.not_compared, ["aiserver.v1"]);
    assert!(found.gone.len() > 200);
    assert!(found.gone.iter().all(|name| name.starts_with("agent.v1.")));
    // A field whose message type has no name in the listing may have any of ours.
    let ours = SchemaTable::parse("agent.v1.M\n 1 of agent.v1.N\nagent.v1.N\n").unwrap();
    let theirs = SchemaTable::parse("agent.v1.M\n 1 of (message)\n").unwrap();
    let found = compare(&ours, &theirs);
    assert_eq!(found.not_compared, ["agent.v1.N"]);
    assert!(!found.breaks());
}

#[test]
fn opaque_bytes_match_any_message_type() {
    assert!(is_same_kind("bytes", "agent.v1.M"));
    assert!(is_same_kind("map<string,bytes>", "map<string,agent.v1.M>"));
    for (ours, theirs) in [
        ("bytes", "string"),
        ("bytes", "enum agent.v1.E"),
        ("agent.v1.M", "agent.v1.N"),
        ("string", "(message)"),
        ("map<string,bytes>", "map<int32,agent.v1.M>"),
    ] {
        assert!(!is_same_kind(ours, theirs), "{ours} {theirs}");
    }
}
