//! Shell commands.

use serde_json::{Map, Value as Json, json};

use super::activity::CallOutcome;
use super::text::{self, TRANSCRIPT};
use super::{ActivityView, Card};

/// The formatted output of a command.
struct FormattedOutput {
    text: String,
    is_error: bool,
}

fn output(view: &ActivityView<'_>) -> FormattedOutput {
    let stream = |key| text::string(view.value(key)).unwrap_or_default();
    let exit = text::number(view.value("exitCode")).filter(|code| *code != 0.0);
    let timeout = text::number(view.args.get("timeout"));
    let took = text::number(view.value("executionTime"));
    let timed_out = timeout.filter(|timeout| took.is_some_and(|took| took >= *timeout));
    let parts: Vec<String> = [
        Some(stream("stdout").trim_end().to_owned()),
        Some(stream("stderr").trim_end().to_owned()),
        exit.map(|code| format!("Command exited with code {}", text::format_number(code))),
        timed_out.map(|timeout| {
            let seconds = text::format_number((timeout / 1000.0 + 0.5).floor());
            format!("Command backgrounded after {seconds} second timeout")
        }),
    ]
    .into_iter()
    .flatten()
    .filter(|part| !part.is_empty())
    .collect();
    FormattedOutput {
        text: if parts.is_empty() {
            "(no output)".into()
        } else {
            parts.join("\n\n")
        },
        is_error: exit.is_some() || timed_out.is_some(),
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
    let mut body = output(view).text;
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
                text::truncate_lines(&output.text, TRANSCRIPT, None),
                output.is_error,
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

/// Returns the duration that Cursor measured, for the host to display.
pub(super) fn time(view: &ActivityView<'_>) -> Json {
    match text::number(view.value("executionTime")) {
        Some(took) => json!({"executionTime": text::json_number(took)}),
        None => Json::Null,
    }
}
