//! The text of a comparison of schemas.

use std::path::Path;

use anyhow::Context as _;

use crate::schema_diff::{self, Difference, OtherChanges, SchemaDiff};

/// Compares our schema with a listing in a file. Returns the report, as text or JSON, and whether
/// something breaks.
pub(crate) fn compare(file: &Path, json: bool) -> anyhow::Result<(String, bool)> {
    let listing =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let diff = schema_diff::compare_with(&listing)
        .with_context(|| format!("{} is not a listing of messages", file.display()))?;
    let report = if json {
        format!("{:#}\n", serde_json::to_value(&diff)?)
    } else {
        render(&diff)
    };
    Ok((report, diff.breaks()))
}

/// Returns the differences as text, most important first.
fn render(diff: &SchemaDiff) -> String {
    let mut page = String::new();
    let mut part = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            page.push_str(&format!("{title}: {}\n", lines.len()));
            page.extend(lines.iter().map(|line| format!("  {line}\n")));
        }
    };
    let lines = |differences: &[Difference]| {
        let line = |Difference { what, how }: &Difference| format!("{what} {how}");
        differences.iter().map(line).collect::<Vec<_>>()
    };
    part("breaking", lines(&diff.breaking));
    part("messages we use that are gone", diff.gone.clone());
    part("new requests we would refuse", lines(&diff.refused));
    part(
        "not declared by us, in messages we read",
        lines(&diff.unread),
    );
    part(
        "not in the listing, not compared",
        diff.not_compared.clone(),
    );
    page.push_str(&other_changes(diff.other_changes));
    let compared = diff.compared;
    let verdict = if diff.breaks() {
        "this version has to change"
    } else {
        "nothing breaks"
    };
    let (messages, fields) = (compared.messages, compared.fields);
    page.push_str(&format!(
        "{messages} messages with {fields} fields compared: {verdict}\n"
    ));
    page
}

/// Returns the counts that are not zero, in one line.
fn other_changes(changes: OtherChanges) -> String {
    let counts = [
        (
            changes.new_fields_in_what_we_send,
            "new fields in messages we only send",
        ),
        (changes.fields_gone, "fields gone"),
        (changes.fields_renamed, "fields renamed"),
        (changes.new_enum_values, "new enum values"),
        (changes.messages_we_do_not_use, "messages we do not use"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if counts.is_empty() {
        String::new()
    } else {
        format!("also: {}\n", counts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::schema_listing::SchemaTable;

    fn report_on(listing: &[u8], json: bool) -> anyhow::Result<(String, bool)> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("newer.txt");
        std::fs::write(&path, listing)?;
        compare(&path, json)
    }

    /// Our own table as a listing, with some lines replaced.
    fn listing(changes: &[(&str, &str)]) -> String {
        let mut listing = format!("\n{}", SchemaTable::ours());
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
        let (page, breaks) = report_on(listing(&[]).as_bytes(), false).unwrap();
        assert_eq!(
            (without_totals(&page).as_str(), breaks),
            ("\nnothing breaks", false)
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
        let (page, breaks) = report_on(grown.as_bytes(), false).unwrap();
        assert!(!breaks);
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
    fn a_schema_that_changed_breaks_and_says_where() {
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
        let (page, breaks) = report_on(changed.as_bytes(), false).unwrap();
        assert!(breaks);
        insta::assert_snapshot!(without_totals(&page), @r"
    breaking: 2
      agent.v1.TextDeltaUpdate.text is number 7 there, 1 here
      agent.v1.ThinkingDeltaUpdate.text is agent.v1.Thought there, string here
    new requests we would refuse: 1
      agent.v1.ExecServerMessage.dream_args 991, agent.v1.DreamArgs: would be thrown back
    this version has to change
    ");

        let (json, breaks) = report_on(changed.as_bytes(), true).unwrap();
        assert!(breaks);
        let json: Json = serde_json::from_str(&json).unwrap();
        let number =
            json!({"what": "agent.v1.TextDeltaUpdate.text", "how": "is number 7 there, 1 here"});
        assert_eq!(json["breaking"][0], number);
        assert_eq!(json["refused"].as_array().unwrap().len(), 1);
        assert_eq!(json["otherChanges"]["fieldsGone"], 0);

        // A listing with one package, and only a part of it.
        let (page, breaks) =
            report_on(b"agent.v1.TextDeltaUpdate\n 1 text string\n", false).unwrap();
        assert!(breaks);
        assert!(
            page.starts_with("messages we use that are gone: "),
            "{page}"
        );
        assert!(page.contains("\n  agent.v1.AgentServerMessage\n"), "{page}");
        let silent = "\nnot in the listing, not compared: 1\n  aiserver.v1\n";
        assert!(page.contains(silent), "{page}");
    }

    #[test]
    fn an_error_names_the_file_and_the_line() {
        let not_a_listing = |content: &[u8]| {
            let error = report_on(content, true).unwrap_err();
            format!("{error:#}").replace(&error.to_string(), "")
        };
        let errors: Vec<String> = [
            b"".as_slice(),
            b"agent.v1.M\n x y z\n",
            b"message M {\n}\n",
            b"\xff\xfe",
        ]
        .into_iter()
        .map(not_a_listing)
        .collect();
        insta::assert_snapshot!(errors.join("\n"), @r#"
    : there is no message of agent.v1 or aiserver.v1 in it
    : line 2: expected "number name type", found "x y z"
    : line 1: expected a message's full name, found "message M {"
    : stream did not contain valid UTF-8
    "#);
        let missing = compare(Path::new("no/such.txt"), false).unwrap_err();
        assert_eq!(missing.to_string(), "cannot read no/such.txt");
    }
}
