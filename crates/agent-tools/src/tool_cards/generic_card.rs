//! Generic cards, for activity that no host tool fits.

use serde_json::{Map, Value as Json};

use super::tool_names::{self, CursorTool};
use super::{ACTIVITY_TOOL, ActivityView, Card, files, misc_cards, tasks, text};

/// Fields of the arguments or details of a card; fields without a value are left out.
#[derive(Debug, Clone, Default)]
pub(super) struct FieldMap(Map<String, Json>);

impl FieldMap {
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

    /// Returns the fields with the name of the card variant.
    pub(super) fn variant(self, variant: &str) -> Json {
        let mut fields = Map::from_iter([("variant".to_owned(), Json::from(variant))]);
        fields.extend(self.0);
        fields.into()
    }

    pub(super) fn into_map(self) -> Map<String, Json> {
        self.0
    }
}

/// The parts of a generic card.
pub(super) struct CardDraft {
    pub(super) arguments: FieldMap,
    /// A one-line summary of the call.
    pub(super) summary: Option<String>,
    /// Further data for the renderer.
    pub(super) details: FieldMap,
}

pub(super) fn transcript(view: &ActivityView<'_>) -> String {
    match view.tool {
        CursorTool::Delete => files::delete(view),
        CursorTool::ReadLints => misc_cards::lints(view),
        CursorTool::UpdateTodos => tasks::todos(view, "updateTodos"),
        CursorTool::CreatePlan => tasks::plan(view),
        CursorTool::Task => tasks::task(view),
        CursorTool::GenerateImage => misc_cards::image(view),
        CursorTool::SemSearch => misc_cards::semantic_search(view),
        CursorTool::RecordScreen => misc_cards::recording(view),
        CursorTool::WebSearch => misc_cards::web(view, "web search", misc_cards::query(view)),
        CursorTool::WebFetch => misc_cards::web(view, "web fetch", misc_cards::url(view)),
        _ => misc_cards::mcp(view),
    }
}

pub(super) fn card(view: &ActivityView<'_>) -> Card {
    let draft = match view.tool {
        CursorTool::Delete => delete(view),
        CursorTool::ReadLints => misc_cards::lints_draft(view),
        CursorTool::UpdateTodos => tasks::todos_draft(view),
        CursorTool::CreatePlan => tasks::plan_draft(view),
        CursorTool::Task => tasks::task_draft(view),
        CursorTool::GenerateImage => misc_cards::image_draft(view),
        CursorTool::SemSearch => misc_cards::semantic_search_draft(view),
        CursorTool::RecordScreen => misc_cards::recording_draft(view),
        CursorTool::WebSearch => misc_cards::web_draft("query", misc_cards::query(view)),
        CursorTool::WebFetch => misc_cards::web_draft("url", misc_cards::url(view)),
        _ => misc_cards::mcp_draft(view),
    };
    let transcript = transcript(view);
    let content = transcript.trim_end();
    let arguments = draft.arguments.into_map();
    if view.tool == CursorTool::GenerateImage {
        let mut details = draft.details;
        if !view.failed() {
            details.text("summary", draft.summary.clone());
        }
        details.text("expandedText", Some(content.to_owned()));
        return Card {
            details: details.variant("generateImage"),
            ..assemble(
                view,
                arguments,
                draft.summary,
                None,
                content,
                FieldMap::default(),
            )
        };
    }
    let summary = draft.summary.clone();
    assemble(
        view,
        arguments,
        draft.summary,
        summary,
        content,
        draft.details,
    )
}

/// Number of lines that a collapsed card shows.
const MAX_GLANCE_LINES: usize = 8;
/// Maximum length of such a line.
const MAX_GLANCE_CHARS: usize = 240;

/// Adds to a generic card what it shows while collapsed: `glance`, a few lines of the diff or the
/// result, and `glanceMore`, the number of further lines.
pub(super) fn with_preview_lines(mut card: Card) -> Card {
    if card.tool != ACTIVITY_TOOL {
        return card;
    }
    let is_collapsed = card.details["collapseDetailsByDefault"] == true;
    let body = card.content.split_once("\n\n").map_or("", |(_, body)| body);
    let shown = card.details["diff"].as_str().unwrap_or(body).trim_end();
    let lines: Vec<&str> = shown.lines().collect();
    let glance: Vec<String> = lines
        .iter()
        .take(if is_collapsed { 0 } else { MAX_GLANCE_LINES })
        // The width of a tab depends on the terminal.
        .map(|line| text::truncate(&line.replace('\t', "   "), MAX_GLANCE_CHARS))
        .collect();
    let more = lines.len().saturating_sub(glance.len());
    if let Json::Object(details) = &mut card.details {
        details.insert("glance".into(), glance.into());
        details.insert("glanceMore".into(), more.into());
    }
    card
}

fn delete(view: &ActivityView<'_>) -> CardDraft {
    let path = text::string(view.args.get("path")).map(|path| view.path(path));
    let mut arguments = FieldMap::default();
    arguments.text("path", path.clone().filter(|path| !path.is_empty()));
    let mut details = FieldMap::default();
    details.text("path", path.clone());
    details.number("fileSize", view.value("fileSize"));
    CardDraft {
        arguments,
        summary: Some(
            path.filter(|path| !path.is_empty())
                .unwrap_or_else(|| "unknown".into()),
        ),
        details,
    }
}

/// Creates a generic card. `subject` is displayed with the call, `summary` with the result; a
/// failure has no summary, because its text is displayed.
pub(super) fn assemble(
    view: &ActivityView<'_>,
    mut arguments: Map<String, Json>,
    subject: Option<String>,
    summary: Option<String>,
    content: &str,
    details: FieldMap,
) -> Card {
    let title = tool_names::activity_title(view.tool.name());
    arguments.insert("activityTitle".into(), title.as_str().into());
    if let Some(subject) = subject.as_deref().map(str::trim).filter(|s| !s.is_empty()) {
        arguments.insert("activitySummary".into(), subject.into());
    }
    let mut all = FieldMap::default();
    all.text("sourceToolName", Some(view.tool.name().to_owned()));
    all.text("title", Some(title));
    if !view.failed() {
        all.text("summary", summary);
    }
    all.text("expandedText", Some(content.to_owned()));
    all.0.extend(details.0);
    let tool_error =
        view.tool == CursorTool::Mcp && view.value("isError") == Some(&Json::Bool(true));
    Card {
        tool: ACTIVITY_TOOL,
        arguments: arguments.into(),
        content: content.to_owned(),
        details: all.variant("activity"),
        is_error: tool_error || view.failed(),
    }
}
