//! Shell commands.

use serde_json::{Map, Value as Json, json};

use super::activity::CallOutcome;
use super::text::{self, TRANSCRIPT};
use super::{Activity, ActivityView, Card};
use crate::shell::CapturedOutput;
use crate::shell::output_tail;
use cursor_proto::agent::v1::PiTruncation;

/// The field of a result with the file that contains the whole output.
pub(super) const FILE: &str = "fullOutputPath";
/// The field with the lines of the whole output, if the result has only a part.
const LINES: &str = "totalLines";

/// The output of a command, and what is said about its end.
struct FormattedOutput {
    printed: String,
    notes: Vec<String>,
}

impl FormattedOutput {
    fn text(&self) -> String {
        joined(&self.printed, &self.notes, "")
    }

    fn is_error(&self) -> bool {
        !self.notes.is_empty()
    }
}

/// Joins output and notes as paragraphs.
fn joined(printed: &str, notes: &[String], footer: &str) -> String {
    let notes = notes.iter().map(String::as_str);
    let parts: Vec<&str> = std::iter::once(printed)
        .chain(notes)
        .chain([footer])
        .filter(|part| !part.is_empty())
        .collect();
    if parts.is_empty() {
        "(no output)".into()
    } else {
        parts.join("\n\n")
    }
}

fn output(view: &ActivityView<'_>) -> FormattedOutput {
    let stream = |key| text::string(view.value(key)).unwrap_or_default().trim_end();
    let exit = text::number(view.value("exitCode")).filter(|code| *code != 0.0);
    let timeout = text::number(view.args.get("timeout"));
    let took = text::number(view.value("executionTime"));
    let timed_out = timeout.filter(|timeout| took.is_some_and(|took| took >= *timeout));
    let printed = [stream("stdout"), stream("stderr")];
    let printed: Vec<&str> = printed
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect();
    let exit = exit.map(|code| format!("Command exited with code {}", text::format_number(code)));
    let timed_out = timed_out.map(|timeout| {
        let seconds = text::format_number((timeout / 1000.0 + 0.5).floor());
        format!("Command backgrounded after {seconds} second timeout")
    });
    FormattedOutput {
        printed: printed.join("\n\n"),
        notes: [exit, timed_out].into_iter().flatten().collect(),
    }
}

pub(super) fn transcript(view: &ActivityView<'_>) -> String {
    let command = match text::string(view.args.get("command")) {
        Some(command) => command.to_owned(),
        None => serde_json::to_string_pretty(view.args).unwrap_or_default(),
    };
    let header = match command.as_str() {
        "" => "$ shell".to_owned(),
        command => format!("$ {command}"),
    };
    if let CallOutcome::Failed(error) = view.outcome {
        return text::section(&header, &text::error(error));
    }
    let mut body = output(view).text();
    if let Some(took) = text::number(view.value("executionTime")) {
        body.push_str(&format!("\n\nTook {}s", text::one_decimal(took / 1000.0)));
    }
    text::section(&header, &text::truncate_lines(&body, TRANSCRIPT, None))
}

pub(super) fn card(view: &ActivityView<'_>) -> Card {
    let command = text::string(view.args.get("command")).filter(|command| !command.is_empty());
    let mut arguments = match command {
        Some(command) => Map::from_iter([("command".to_owned(), Json::from(command))]),
        None => view.args.clone(),
    };
    if let Some(timeout) = text::number(view.args.get("timeout")) {
        arguments.insert("timeout".into(), text::json_number(timeout / 1000.0));
    }
    let (content, is_error) = match view.outcome {
        CallOutcome::Failed(error) => (text::error(error), true),
        CallOutcome::Done(_) => {
            let output = output(view);
            (
                text::truncate_lines(&output.text(), TRANSCRIPT, None),
                output.is_error(),
            )
        }
    };
    Card {
        tool: "bash",
        arguments: arguments.into(),
        content,
        details: Json::Null,
        is_error,
    }
}

/// Returns the text and the details of a card as pi's own shell tool has them: the end of the
/// output, and the file with all of it.
pub(super) fn with_tail(view: &ActivityView<'_>, card: Card) -> Card {
    let mut details = Map::new();
    if let Some(took) = text::number(view.value("executionTime")) {
        details.insert("executionTime".into(), text::json_number(took));
    }
    let mut content = card.content;
    if !view.failed() {
        let output = output(view);
        let printed = output.printed.as_str();
        let file = text::string(view.value(FILE));
        let lines = view.value(LINES).and_then(Json::as_u64).unwrap_or(0);
        let lines = usize::try_from(lines).unwrap_or(usize::MAX);
        let lines = lines.max(printed.lines().count());
        let (tail, cut) = output_tail::last_lines(printed, printed.len(), lines);
        let footer = match (&cut, file) {
            (Some(cut), Some(file)) => {
                let shown = output_tail::shown_part(cut);
                format!("[Showing {shown}. Full output: {file}]")
            }
            (Some(cut), None) => format!("[Showing {}]", output_tail::shown_part(cut)),
            (None, _) => String::new(),
        };
        content = joined(tail, &output.notes, &footer);
        // Without a file, pi would repeat what the text says.
        if let (Some(cut), Some(file)) = (cut, file) {
            details.insert(FILE.into(), file.into());
            details.insert("truncation".into(), truncation(&cut));
        }
    }
    Card {
        content,
        details: if details.is_empty() {
            Json::Null
        } else {
            details.into()
        },
        ..card
    }
}

/// Returns what pi's renderer reads.
fn truncation(cut: &PiTruncation) -> Json {
    json!({
        "truncated": cut.truncated,
        "truncatedBy": cut.truncated_by,
        "totalLines": cut.total_lines,
        "outputLines": cut.output_lines,
        "outputBytes": cut.output_bytes,
        "maxLines": cut.max_lines,
        "maxBytes": cut.max_bytes,
        "lastLinePartial": cut.last_line_partial,
    })
}

/// Fills in what Cursor's report of a command leaves out: output that it does not have or has only
/// in part, and the exit code.
pub(super) fn complete(activity: &mut Activity, captured: CapturedOutput) {
    let reported = activity.result.take().filter(|result| !result.is_null());
    let result = reported.unwrap_or_else(|| json!({"status": "success", "value": {}}));
    let result = activity.result.insert(result);
    if result["status"] == "error" {
        // A command that was ended has printed something too.
        if let Some(error) = result["error"].as_str()
            && !captured.text.trim().is_empty()
        {
            result["error"] = format!("{error}\n\n{}", captured.text.trim_end()).into();
        }
        return;
    }
    if result["status"] != "success" {
        return;
    }
    if !result["value"].is_object() {
        result["value"] = json!({});
    }
    let value = &mut result["value"];
    let reported = |key: &str| value[key].as_str().unwrap_or_default();
    let is_cut = captured.bytes > captured.text.len()
        && captured.bytes > reported("stdout").len() + reported("stderr").len();
    // The two streams may be joined differently.
    let is_more = ink(&captured.text) > ink(reported("stdout")) + ink(reported("stderr"));
    let is_exit_known = value["exitCode"].as_i64().is_some_and(|code| code != 0);
    if let Some(code) = captured.exit_code.filter(|_| !is_exit_known) {
        value["exitCode"] = code.into();
    }
    if let Some(file) = captured.file {
        value[FILE] = file.into();
        value[LINES] = captured.lines.into();
    }
    if is_cut || is_more {
        value["stdout"] = captured.text.into();
        value["stderr"] = "".into();
    }
}

/// Returns the number of characters that are not white space.
fn ink(text: &str) -> usize {
    text.chars().filter(|c| !c.is_whitespace()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool_cards::{Workspace, card};
    use std::path::Path;

    fn captured(text: &str, code: i32) -> CapturedOutput {
        CapturedOutput {
            text: text.into(),
            bytes: text.len(),
            lines: text.lines().count(),
            file: None,
            exit_code: Some(code),
        }
    }

    fn shown(result: Json, captured: CapturedOutput) -> Card {
        let call = json!({"name": "shell", "args": {"command": "c"}, "result": result});
        let mut activity = Activity::from_json(&call);
        complete(&mut activity, captured);
        let at = Workspace {
            root: Path::new("/w"),
            redact: &str::to_owned,
        };
        card(&activity, &at)
    }

    #[test]
    fn a_report_without_output_shows_what_was_captured() {
        for result in [
            json!({"status": "success", "value": {}}),
            json!({"status": "success", "value": {"stdout": "", "stderr": "", "exitCode": 0}}),
            json!({"status": "success"}),
            Json::Null,
        ] {
            let card = shown(result, captured("printed\n", 3));
            assert_eq!(card.content, "printed\n\nCommand exited with code 3");
            assert!(card.is_error);
        }
        let mut without = Activity::from_json(&json!({"name": "shell", "args": {"command": "c"}}));
        complete(&mut without, captured("printed", 0));
        assert_eq!(without.result.unwrap()["value"]["stdout"], "printed");
    }

    #[test]
    fn a_complete_report_is_not_changed() {
        let value = json!({"stdout": "out\n", "stderr": "err\n", "exitCode": 0});
        let card = shown(
            json!({"status": "success", "value": value}),
            captured("err\nout\n", 0),
        );
        assert_eq!(card.content, "out\n\nerr");
        assert!(!card.is_error);
    }

    #[test]
    fn a_command_that_was_ended_shows_what_it_printed() {
        let result = json!({"status": "error", "error": "the command timed out after 9 ms"});
        let card = shown(result, captured("half\n", 0));
        assert_eq!(card.content, "the command timed out after 9 ms\n\nhalf");
        assert!(card.is_error);
    }

    #[test]
    fn a_long_output_keeps_its_end_and_names_its_file() {
        let all: Vec<String> = (1..=3000).map(|n| format!("line {n}")).collect();
        let head = all[..100].join("\n");
        let long = CapturedOutput {
            text: all[1000..].join("\n"),
            bytes: all.join("\n").len(),
            lines: 3000,
            file: Some("/tmp/x/all.txt".into()),
            exit_code: Some(1),
        };
        let value = json!({"stdout": head, "exitCode": 1});
        let card = shown(json!({"status": "success", "value": value}), long);
        assert!(card.content.starts_with("line 1001\n"), "{}", card.content);
        let end = "line 3000\n\nCommand exited with code 1\n\n\
                   [Showing lines 1001-3000 of 3000. Full output: /tmp/x/all.txt]";
        assert!(card.content.ends_with(end), "{}", card.content);
        assert_eq!(card.details["fullOutputPath"], "/tmp/x/all.txt");
        assert_eq!(card.details["truncation"]["truncatedBy"], "lines");
        let value = json!({"stdout": all.join("\n"), "exitCode": 0});
        let nothing = captured("", 0);
        let card = shown(json!({"status": "success", "value": value}), nothing);
        assert!(
            card.content
                .ends_with("line 3000\n\n[Showing lines 1001-3000 of 3000]")
        );
        assert_eq!(card.details, Json::Null);
    }
}
