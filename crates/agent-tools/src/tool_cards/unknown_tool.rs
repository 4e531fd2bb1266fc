//! Unknown tools: shows a few arguments and the beginning of the result.

use serde_json::{Map, Value as Json};

use super::activity::CallOutcome;
use super::generic_card::FieldMap;
use super::text::{self, MAX_ARGUMENT_CHARS, TRANSCRIPT, TextLimits};
use super::{ACTIVITY_TOOL, ActivityView, Card, tool_names};

const MAX_ARGUMENTS: usize = 8;
const RESULT_LIMITS: TextLimits = TextLimits {
    chars: 240,
    lines: 6,
};

fn argument(value: &Json) -> String {
    match value {
        Json::String(text) => text::truncate(text, MAX_ARGUMENT_CHARS),
        Json::Number(number) => number
            .as_f64()
            .map_or_else(|| number.to_string(), text::format_number),
        Json::Bool(flag) => flag.to_string(),
        Json::Array(items) => {
            let shown: Vec<String> = items.iter().take(3).map(argument).collect();
            match items.len().saturating_sub(3) {
                0 => format!("[{}]", shown.join(", ")),
                more => format!("[{}, +{more} more]", shown.join(", ")),
            }
        }
        value => text::truncate(
            &text::collapse_whitespace(&text::to_text(Some(value))),
            MAX_ARGUMENT_CHARS,
        ),
    }
}

fn arguments(args: &Map<String, Json>) -> String {
    let shown: Vec<String> = args
        .iter()
        .take(MAX_ARGUMENTS)
        .map(|(key, value)| format!("{key}={}", argument(value)))
        .collect();
    match args.len().saturating_sub(MAX_ARGUMENTS) {
        0 => shown.join(", "),
        more => format!("{} (+{more} more)", shown.join(", ")),
    }
}

fn body(view: &ActivityView<'_>) -> String {
    let result = match view.outcome {
        CallOutcome::Failed(error) => {
            text::truncate_lines(&text::error(error), RESULT_LIMITS, None)
        }
        CallOutcome::Done(value) => text::truncate_lines(
            &text::collapse_whitespace(&text::to_text(value)),
            RESULT_LIMITS,
            None,
        ),
    };
    let parts: Vec<String> = [arguments(view.args), result]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    text::truncate_lines(&parts.join("\n\n"), TRANSCRIPT, None)
}

pub(super) fn transcript(view: &ActivityView<'_>, name: &str) -> String {
    let header = match name {
        "unknown" => "Cursor tool",
        name => name,
    };
    text::section(header, &body(view))
}

pub(super) fn card(view: &ActivityView<'_>, name: &str) -> Card {
    let reported = match view.reported_name.trim() {
        "" => name,
        reported => reported,
    };
    let title = tool_names::activity_title(reported);
    let content = transcript(view, name);
    let body = content.split_once("\n\n").map(|(_, body)| body);
    let subject = body
        .filter(|_| !view.failed())
        .and_then(text::first_line)
        .map(str::to_owned);
    let mut arguments = FieldMap::default();
    arguments.text("activityTitle", Some(title.clone()));
    arguments.text("activitySummary", subject.clone());
    let fallback = || match reported {
        "unknown" => "tool".to_owned(),
        reported => text::truncate(reported, MAX_ARGUMENT_CHARS),
    };
    let mut details = FieldMap::default();
    details.text("sourceToolName", Some("unregisteredActivity".into()));
    details.text("title", Some(title));
    if !view.failed() {
        details.text("summary", Some(subject.unwrap_or_else(fallback)));
    }
    details.text("expandedText", Some(content.clone()));
    Card {
        tool: ACTIVITY_TOOL,
        arguments: arguments.into_map().into(),
        content,
        details: details.variant("activity"),
        is_error: view.failed(),
    }
}
