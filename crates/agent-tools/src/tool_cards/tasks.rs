//! Todos, plans and subagents.

use serde_json::Value as Json;

use super::activity::CallOutcome;
use super::generic_card::{CardDraft, FieldMap};
use super::text::{self, MAX_ARGUMENT_CHARS, TRANSCRIPT};
use super::{ActivityView, paths};

struct Todo<'a> {
    content: &'a str,
    status: Option<&'a str>,
}

fn items<'a>(view: &ActivityView<'a>) -> Vec<Todo<'a>> {
    let reported = view
        .outcome
        .value()
        .and_then(|value| value["todos"].as_array());
    let listed = reported.or_else(|| view.args.get("todos").and_then(Json::as_array));
    let read = |todo: &'a Json| {
        let field = |key: &str| todo[key].as_str().filter(|text| !text.is_empty());
        Some(Todo {
            content: field("content")?,
            status: field("status"),
        })
    };
    listed.into_iter().flatten().filter_map(read).collect()
}

pub(super) fn todos(view: &ActivityView<'_>, header: &str) -> String {
    let value = match view.outcome {
        CallOutcome::Failed(error) => return text::section(header, &text::error(error)),
        CallOutcome::Done(value) => value,
    };
    let lines: Vec<String> = items(view)
        .iter()
        .map(|todo| match todo.status {
            Some(status) => {
                let mark = match status {
                    "completed" => "✓",
                    "inProgress" => "…",
                    "pending" => "○",
                    _ => "•",
                };
                format!("{mark} {} ({status})", todo.content)
            }
            None => format!("• {}", todo.content),
        })
        .collect();
    let body = if lines.is_empty() {
        text::to_text(value)
    } else {
        lines.join("\n")
    };
    text::section(header, &text::truncate_lines(&body, TRANSCRIPT, None))
}

pub(super) fn todos_draft(view: &ActivityView<'_>) -> CardDraft {
    let todos = items(view);
    #[allow(clippy::cast_precision_loss)]
    let total = text::number(view.value("totalCount"))
        .or_else(|| text::number(view.args.get("totalCount")))
        .unwrap_or(todos.len() as f64);
    let mut arguments = FieldMap::default();
    arguments.put("totalCount", Some(text::json_number(total)));
    if todos.is_empty() {
        return CardDraft {
            arguments,
            summary: Some(text::with_unit(total, "item", "items")),
            details: FieldMap::default(),
        };
    }
    let with = |status| {
        todos
            .iter()
            .filter(|todo| todo.status == Some(status))
            .count()
    };
    let (completed, running, pending) = (with("completed"), with("inProgress"), with("pending"));
    arguments.put("completedCount", Some(completed.into()));
    arguments.put("inProgressCount", Some(running.into()));
    arguments.put("pendingCount", Some(pending.into()));
    let mut summary = format!("{completed}/{} completed", text::format_number(total));
    for (count, what) in [(running, "in progress"), (pending, "pending")] {
        if count > 0 {
            summary.push_str(&format!(", {count} {what}"));
        }
    }
    CardDraft {
        arguments,
        summary: Some(summary),
        details: FieldMap::default(),
    }
}

/// Returns the unmodified text of the plan.
pub(super) fn plan_text<'a>(view: &ActivityView<'a>) -> Option<&'a str> {
    let result = view
        .outcome
        .value()
        .and_then(|value| value["plan"].as_str());
    text::string(view.args.get("plan")).or(result)
}

pub(super) fn plan(view: &ActivityView<'_>) -> String {
    let plan = plan_text(view).filter(|plan| !plan.trim().is_empty());
    match (plan, view.outcome) {
        (Some(plan), CallOutcome::Done(_)) => {
            text::section("createPlan", &text::truncate_lines(plan, TRANSCRIPT, None))
        }
        _ => todos(view, "createPlan"),
    }
}

pub(super) fn plan_draft(view: &ActivityView<'_>) -> CardDraft {
    let mut draft = todos_draft(view);
    if let Some(title) = plan_text(view).and_then(text::first_line) {
        let title = text::truncate(title, MAX_ARGUMENT_CHARS);
        draft.arguments.text("planTitle", Some(title.clone()));
        draft.summary = Some(title);
    }
    draft
}

fn description<'a>(view: &ActivityView<'a>) -> &'a str {
    let result = view
        .outcome
        .value()
        .and_then(|value| value["description"].as_str());
    text::string(view.args.get("description"))
        .or(result)
        .unwrap_or("task")
}

fn subagent_type<'a>(view: &ActivityView<'a>, key: &str) -> Option<&'a str> {
    view.args.get("subagentType")?[key]
        .as_str()
        .filter(|text| !text.is_empty())
}

pub(super) fn task(view: &ActivityView<'_>) -> String {
    let mut header = "subagent".to_owned();
    let name = subagent_type(view, "name")
        .map(str::trim)
        .filter(|name| !name.is_empty());
    if let Some(name) = name {
        header.push_str(&format!(" {name}"));
    }
    match description(view).trim() {
        "" => header.push_str(" task"),
        description => header.push_str(&format!(" {description}")),
    }
    match view.outcome {
        CallOutcome::Failed(error) => text::section(&header, &text::error(error)),
        CallOutcome::Done(value) => {
            let steps = steps(view);
            let body = if steps.is_empty() {
                text::to_text(value)
            } else {
                steps
            };
            text::section(&header, &text::truncate_lines(&body, TRANSCRIPT, None))
        }
    }
}

/// Formats the steps of a subagent.
fn steps(view: &ActivityView<'_>) -> String {
    let Some(value) = view.outcome.value() else {
        return String::new();
    };
    let field = |key: &str| {
        let text = value["result"]["success"][key].as_str();
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let mut parts: Vec<String> = field("command")
        .map(|command| format!("$ {command}"))
        .into_iter()
        .chain(field("stdout").or_else(|| field("interleavedOutput")))
        .collect();
    let steps = value["conversationSteps"].as_array();
    parts.extend(
        steps
            .into_iter()
            .flatten()
            .filter_map(|step| step_text(view, step)),
    );
    parts.join("\n")
}

fn step_text(view: &ActivityView<'_>, step: &Json) -> Option<String> {
    let message = &step["message"];
    let text = match step["type"].as_str() {
        Some("toolCall") => return call_text(view, message),
        Some("assistantMessage") => message["text"].as_str(),
        _ => None,
    };
    let text = step["assistantMessage"]["text"].as_str().or(text);
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Formats a tool call of a subagent as a line; shells with their output.
fn call_text(view: &ActivityView<'_>, call: &Json) -> Option<String> {
    let name = call["type"].as_str().filter(|name| !name.is_empty())?;
    let name = match name.split_whitespace().collect::<Vec<_>>().join(" ") {
        blank if blank.is_empty() => "unknown".to_owned(),
        name => name,
    };
    let argument = |key: &str| call["args"][key].as_str().filter(|text| !text.is_empty());
    if name == "shell" {
        let printed = |key: &str| call["result"]["value"][key].as_str().unwrap_or_default();
        let command = argument("command").map(|command| format!("$ {command}"));
        let parts = [
            command.as_deref().unwrap_or("shell"),
            printed("stdout"),
            printed("stderr"),
        ];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        return Some(parts.join("\n"));
    }
    let about = argument("path")
        .and_then(|path| paths::compact(path, Some(&view.root)))
        .or_else(|| {
            argument("query")
                .or_else(|| argument("pattern"))
                .map(str::to_owned)
        });
    Some(match about {
        Some(about) => format!("{name} {about}"),
        None => name,
    })
}

pub(super) fn task_draft(view: &ActivityView<'_>) -> CardDraft {
    let short = |text: &str| text::truncate(text, MAX_ARGUMENT_CHARS);
    let steps = steps(view);
    let preview = text::first_line(&steps).map(short);
    let description = short(description(view));
    let capital = |kind: &str| {
        let kind = kind.trim();
        let mut letters = kind.chars();
        letters
            .next()
            .map(|first| first.to_uppercase().chain(letters).collect::<String>())
    };
    let kind = subagent_type(view, "kind")
        .and_then(capital)
        .map(|kind| short(&kind));
    let model = text::string(view.args.get("model")).filter(|model| !model.is_empty());
    let agent = text::string(view.args.get("agentId"))
        .or_else(|| text::string(view.value("agentId")))
        .and_then(agent_id);
    let background = view.value("isBackground") == Some(&Json::Bool(true));
    let mut arguments = FieldMap::default();
    arguments.text("description", Some(description.clone()));
    arguments.text("preview", preview.clone());
    arguments.text("subagentName", subagent_type(view, "name").map(short));
    arguments.text("subagentKind", kind.clone());
    arguments.text("model", model.map(short));
    arguments.text("agentId", agent.clone());
    arguments.put("isBackground", background.then_some(true.into()));
    let meta: Vec<String> = [
        kind.filter(|kind| !kind.trim().is_empty()),
        model.map(short).filter(|model| !model.trim().is_empty()),
        agent.map(|agent| format!("ID: {agent}")),
        background.then(|| "backgrounded".to_owned()),
    ]
    .into_iter()
    .flatten()
    .collect();
    let subject = description.trim();
    let summary = match (meta.is_empty(), preview) {
        (false, _) if subject.is_empty() => meta.join(" · "),
        (false, _) => format!("{subject} · {}", meta.join(" · ")),
        (true, Some(preview)) if subject.is_empty() => preview,
        (true, Some(preview)) if preview != subject => format!("{subject}: {preview}"),
        (true, _) => subject.to_owned(),
    };
    CardDraft {
        arguments,
        summary: Some(summary),
        details: FieldMap::default(),
    }
}

/// Returns a short form of an agent id; `None` if the id has an unexpected format.
fn agent_id(id: &str) -> Option<String> {
    let id = id.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    if id.is_empty() || !id.chars().all(plain) {
        return None;
    }
    Some(if id.len() > 12 {
        id[..8].to_owned()
    } else {
        id.to_owned()
    })
}
