//! Tools we know nothing of: a few arguments and the beginning of the result.

use serde_json::{Map, Value as Json};

use super::activity::Outcome;
use super::neutral::Details;
use super::text::{self, ARGUMENT, Bounds, TRANSCRIPT};
use super::{ACTIVITY, Card, View, names};

const MOST_ARGUMENTS: usize = 8;
const MOST: Bounds = Bounds {
    chars: 240,
    lines: 6,
};

fn argument(value: &Json) -> String {
    match value {
        Json::String(text) => text::short(text, ARGUMENT),
        Json::Number(number) => number
            .as_f64()
            .map_or_else(|| number.to_string(), text::shown),
        Json::Bool(flag) => flag.to_string(),
        Json::Array(items) => {
            let shown: Vec<String> = items.iter().take(3).map(argument).collect();
            match items.len().saturating_sub(3) {
                0 => format!("[{}]", shown.join(", ")),
                more => format!("[{}, +{more} more]", shown.join(", ")),
            }
        }
        value => text::short(&text::spaced(&text::any(Some(value))), ARGUMENT),
    }
}

fn arguments(args: &Map<String, Json>) -> String {
    let shown: Vec<String> = args
        .iter()
        .take(MOST_ARGUMENTS)
        .map(|(key, value)| format!("{key}={}", argument(value)))
        .collect();
    match args.len().saturating_sub(MOST_ARGUMENTS) {
        0 => shown.join(", "),
        more => format!("{} (+{more} more)", shown.join(", ")),
    }
}

fn body(view: &View<'_>) -> String {
    let result = match view.outcome {
        Outcome::Failed(error) => text::bounded(&text::error(error), MOST, None),
        Outcome::Done(value) => text::bounded(&text::spaced(&text::any(value)), MOST, None),
    };
    let parts: Vec<String> = [arguments(view.args), result]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    text::bounded(&parts.join("\n\n"), TRANSCRIPT, None)
}

pub(super) fn transcript(view: &View<'_>, name: &str) -> String {
    let header = match name {
        "unknown" => "Cursor tool",
        name => name,
    };
    text::section(header, &body(view))
}

pub(super) fn card(view: &View<'_>, name: &str) -> Card {
    let told = match view.raw.trim() {
        "" => name,
        told => told,
    };
    let title = names::activity_title(told);
    let content = transcript(view, name);
    let body = content.split_once("\n\n").map(|(_, body)| body);
    let subject = body
        .filter(|_| !view.failed())
        .and_then(text::first_line)
        .map(str::to_owned);
    let mut arguments = Details::default();
    arguments.text("activityTitle", Some(title.clone()));
    arguments.text("activitySummary", subject.clone());
    let fallback = || match told {
        "unknown" => "tool".to_owned(),
        told => text::short(told, ARGUMENT),
    };
    let mut details = Details::default();
    details.text("sourceToolName", Some("unregisteredActivity".into()));
    details.text("title", Some(title));
    if !view.failed() {
        details.text("summary", Some(subject.unwrap_or_else(fallback)));
    }
    details.text("expandedText", Some(content.clone()));
    Card {
        tool: ACTIVITY,
        arguments: arguments.into_map().into(),
        content,
        details: details.variant("activity"),
        verdict: view.verdict(),
    }
}
