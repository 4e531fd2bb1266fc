//! The neutral card: activity no tool of the host stands for.

use serde_json::{Map, Value as Json};

use super::names::{self, Tool};
use super::{ACTIVITY, Card, Verdict, View, files, results, tasks, text};

/// What a card tells its renderer; fields without a value are left out.
#[derive(Debug, Clone, Default)]
pub(super) struct Details(Map<String, Json>);

impl Details {
    pub(super) fn put(&mut self, key: &str, value: Option<Json>) {
        if let Some(value) = value {
            self.0.insert(key.to_owned(), value);
        }
    }

    pub(super) fn text(&mut self, key: &str, value: Option<String>) {
        self.put(key, value.map(Json::from));
    }

    pub(super) fn number(&mut self, key: &str, value: Option<&Json>) {
        self.put(key, text::number(value).map(text::json_number));
    }

    /// The details, named by what kind of card they are for.
    pub(super) fn variant(self, variant: &str) -> Json {
        let mut fields = Map::from_iter([("variant".to_owned(), Json::from(variant))]);
        fields.extend(self.0);
        fields.into()
    }

    pub(super) fn into_map(self) -> Map<String, Json> {
        self.0
    }
}

/// What a neutral card says of a call, before it is put together.
pub(super) struct Sketch {
    /// Arguments of the card.
    pub(super) arguments: Details,
    /// One line that says what it was about.
    pub(super) summary: Option<String>,
    /// What the renderer needs besides.
    pub(super) details: Details,
}

pub(super) fn transcript(view: &View<'_>) -> String {
    match view.tool {
        Tool::Delete => files::delete(view),
        Tool::ReadLints => results::lints(view),
        Tool::UpdateTodos => tasks::todos(view, "updateTodos"),
        Tool::CreatePlan => tasks::plan(view),
        Tool::Task => tasks::task(view),
        Tool::GenerateImage => results::image(view),
        Tool::SemSearch => results::semantic(view),
        Tool::RecordScreen => results::recording(view),
        Tool::WebSearch => results::web(view, "web search", results::query(view)),
        Tool::WebFetch => results::web(view, "web fetch", results::address(view)),
        _ => results::mcp(view),
    }
}

pub(super) fn card(view: &View<'_>) -> Card {
    let sketch = match view.tool {
        Tool::Delete => delete(view),
        Tool::ReadLints => results::lints_sketch(view),
        Tool::UpdateTodos => tasks::todos_sketch(view),
        Tool::CreatePlan => tasks::plan_sketch(view),
        Tool::Task => tasks::task_sketch(view),
        Tool::GenerateImage => results::image_sketch(view),
        Tool::SemSearch => results::semantic_sketch(view),
        Tool::RecordScreen => results::recording_sketch(view),
        Tool::WebSearch => results::web_sketch("query", results::query(view)),
        Tool::WebFetch => results::web_sketch("url", results::address(view)),
        _ => results::mcp_sketch(view),
    };
    let transcript = transcript(view);
    let content = transcript.trim_end();
    let arguments = sketch.arguments.into_map();
    if view.tool == Tool::GenerateImage {
        let mut details = sketch.details;
        if !view.failed() {
            details.text("summary", sketch.summary.clone());
        }
        details.text("expandedText", Some(content.to_owned()));
        return Card {
            details: details.variant("generateImage"),
            ..assemble(
                view,
                arguments,
                sketch.summary,
                None,
                content,
                Details::default(),
            )
        };
    }
    let summary = sketch.summary.clone();
    assemble(
        view,
        arguments,
        sketch.summary,
        summary,
        content,
        sketch.details,
    )
}

/// Lines a folded card shows.
const GLANCE_LINES: usize = 8;
/// Characters of such a line.
const GLANCE_LINE: usize = 240;

/// A neutral card with what it shows while it is folded, so that the host has only to draw:
/// `glance`, a few lines of the change or of the result, and `glanceMore`, how many lines
/// there are besides.
pub(super) fn with_glance(mut card: Card) -> Card {
    if card.tool != ACTIVITY {
        return card;
    }
    let folded = card.details["collapseDetailsByDefault"] == true;
    let body = card.content.split_once("\n\n").map_or("", |(_, body)| body);
    let told = card.details["diff"].as_str().unwrap_or(body).trim_end();
    let lines: Vec<&str> = told.lines().collect();
    let glance: Vec<String> = lines
        .iter()
        .take(if folded { 0 } else { GLANCE_LINES })
        // A tab would be as wide as the terminal likes.
        .map(|line| text::short(&line.replace('\t', "   "), GLANCE_LINE))
        .collect();
    let more = lines.len().saturating_sub(glance.len());
    if let Json::Object(details) = &mut card.details {
        details.insert("glance".into(), glance.into());
        details.insert("glanceMore".into(), more.into());
    }
    card
}

fn delete(view: &View<'_>) -> Sketch {
    let path = text::string(view.args.get("path")).map(|path| view.path(path));
    let mut arguments = Details::default();
    arguments.text("path", path.clone().filter(|path| !path.is_empty()));
    let mut details = Details::default();
    details.text("path", path.clone());
    details.number("fileSize", view.value("fileSize"));
    Sketch {
        arguments,
        summary: Some(
            path.filter(|path| !path.is_empty())
                .unwrap_or_else(|| "unknown".into()),
        ),
        details,
    }
}

/// Puts a neutral card together. `subject` goes with the call, `summary` with the result;
/// a failure has none, its text says it.
pub(super) fn assemble(
    view: &View<'_>,
    mut arguments: Map<String, Json>,
    subject: Option<String>,
    summary: Option<String>,
    content: &str,
    details: Details,
) -> Card {
    let title = names::activity_title(view.tool.name());
    arguments.insert("activityTitle".into(), title.as_str().into());
    if let Some(subject) = subject.as_deref().map(str::trim).filter(|s| !s.is_empty()) {
        arguments.insert("activitySummary".into(), subject.into());
    }
    let mut all = Details::default();
    all.text("sourceToolName", Some(view.tool.name().to_owned()));
    all.text("title", Some(title));
    if !view.failed() {
        all.text("summary", summary);
    }
    all.text("expandedText", Some(content.to_owned()));
    all.0.extend(details.0);
    let refused = view.tool == Tool::Mcp && view.value("isError") == Some(&Json::Bool(true));
    Card {
        tool: ACTIVITY,
        arguments: arguments.into(),
        content: content.to_owned(),
        details: all.variant("activity"),
        verdict: match refused {
            true => Verdict::Failed,
            false => view.verdict(),
        },
    }
}
