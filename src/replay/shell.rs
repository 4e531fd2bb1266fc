//! Shell commands.

use serde_json::{Map, Value as Json, json};

use super::activity::Outcome;
use super::text::{self, TRANSCRIPT};
use super::{Card, Verdict, View};

/// What a command gave, in words.
struct Output {
    text: String,
    verdict: Verdict,
}

fn output(view: &View<'_>) -> Output {
    let stream = |key| text::string(view.value(key)).unwrap_or_default();
    let exit = text::number(view.value("exitCode")).filter(|code| *code != 0.0);
    let timeout = text::number(view.args.get("timeout"));
    let took = text::number(view.value("executionTime"));
    let timed_out = timeout.filter(|timeout| took.is_some_and(|took| took >= *timeout));
    let parts: Vec<String> = [
        Some(stream("stdout").trim_end().to_owned()),
        Some(stream("stderr").trim_end().to_owned()),
        exit.map(|code| format!("Command exited with code {}", text::shown(code))),
        timed_out.map(|timeout| {
            let seconds = text::shown((timeout / 1000.0 + 0.5).floor());
            format!("Command backgrounded after {seconds} second timeout")
        }),
    ]
    .into_iter()
    .flatten()
    .filter(|part| !part.is_empty())
    .collect();
    Output {
        text: match parts.is_empty() {
            true => "(no output)".into(),
            false => parts.join("\n\n"),
        },
        verdict: match exit.is_some() || timed_out.is_some() {
            true => Verdict::Failed,
            false => Verdict::Done,
        },
    }
}

pub(super) fn transcript(view: &View<'_>) -> String {
    let command = match text::string(view.args.get("command")) {
        Some(command) => command.to_owned(),
        None => serde_json::to_string_pretty(view.args).unwrap_or_default(),
    };
    let header = match command.as_str() {
        "" => "$ shell".to_owned(),
        command => format!("$ {command}"),
    };
    if let Outcome::Failed(error) = view.outcome {
        return text::section(&header, &text::error(error));
    }
    let mut body = output(view).text;
    if let Some(took) = text::number(view.value("executionTime")) {
        body.push_str(&format!("\n\nTook {}s", text::tenths(took / 1000.0)));
    }
    text::section(&header, &text::bounded(&body, TRANSCRIPT, None))
}

pub(super) fn card(view: &View<'_>) -> Card {
    let command = text::string(view.args.get("command")).filter(|command| !command.is_empty());
    let mut arguments = match command {
        Some(command) => Map::from_iter([("command".to_owned(), Json::from(command))]),
        None => view.args.clone(),
    };
    if let Some(timeout) = text::number(view.args.get("timeout")) {
        arguments.insert("timeout".into(), text::json_number(timeout / 1000.0));
    }
    let (content, verdict) = match view.outcome {
        Outcome::Failed(error) => (text::error(error), Verdict::Failed),
        Outcome::Done(_) => {
            let output = output(view);
            (
                text::bounded(&output.text, TRANSCRIPT, None),
                output.verdict,
            )
        }
    };
    Card {
        tool: "bash",
        arguments: arguments.into(),
        content,
        details: Json::Null,
        verdict,
    }
}

/// The time Cursor says a command took, for the host to tell instead of its own.
pub(super) fn time(view: &View<'_>) -> Json {
    match text::number(view.value("executionTime")) {
        Some(took) => json!({"executionTime": text::json_number(took)}),
        None => Json::Null,
    }
}
