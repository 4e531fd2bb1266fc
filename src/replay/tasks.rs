//! What the agent plans and hands on: todos, plans, subagents.

use serde_json::Value as Json;

use super::activity::Outcome;
use super::neutral::{Details, Sketch};
use super::text::{self, ARGUMENT, TRANSCRIPT};
use super::{View, paths};

struct Todo<'a> {
    content: &'a str,
    status: Option<&'a str>,
}

fn items<'a>(view: &View<'a>) -> Vec<Todo<'a>> {
    let told = view
        .outcome
        .value()
        .and_then(|value| value["todos"].as_array());
    let listed = told.or_else(|| view.args.get("todos").and_then(Json::as_array));
    let read = |todo: &'a Json| {
        let field = |key: &str| todo[key].as_str().filter(|text| !text.is_empty());
        Some(Todo {
            content: field("content")?,
            status: field("status"),
        })
    };
    listed.into_iter().flatten().filter_map(read).collect()
}

pub(super) fn todos(view: &View<'_>, header: &str) -> String {
    let value = match view.outcome {
        Outcome::Failed(error) => return text::section(header, &text::error(error)),
        Outcome::Done(value) => value,
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
    let body = match lines.is_empty() {
        true => text::any(value),
        false => lines.join("\n"),
    };
    text::section(header, &text::bounded(&body, TRANSCRIPT, None))
}

pub(super) fn todos_sketch(view: &View<'_>) -> Sketch {
    let todos = items(view);
    #[allow(clippy::cast_precision_loss)]
    let total = text::number(view.value("totalCount"))
        .or_else(|| text::number(view.args.get("totalCount")))
        .unwrap_or(todos.len() as f64);
    let mut arguments = Details::default();
    arguments.put("totalCount", Some(text::json_number(total)));
    if todos.is_empty() {
        return Sketch {
            arguments,
            summary: Some(text::counted(total, "item", "items")),
            details: Details::default(),
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
    let mut summary = format!("{completed}/{} completed", text::shown(total));
    for (count, what) in [(running, "in progress"), (pending, "pending")] {
        if count > 0 {
            summary.push_str(&format!(", {count} {what}"));
        }
    }
    Sketch {
        arguments,
        summary: Some(summary),
        details: Details::default(),
    }
}

/// The plan's text, as it was told.
pub(super) fn plan_text<'a>(view: &View<'a>) -> Option<&'a str> {
    let result = view
        .outcome
        .value()
        .and_then(|value| value["plan"].as_str());
    text::string(view.args.get("plan")).or(result)
}

pub(super) fn plan(view: &View<'_>) -> String {
    let plan = plan_text(view).filter(|plan| !plan.trim().is_empty());
    match (plan, view.outcome) {
        (Some(plan), Outcome::Done(_)) => {
            text::section("createPlan", &text::bounded(plan, TRANSCRIPT, None))
        }
        _ => todos(view, "createPlan"),
    }
}

pub(super) fn plan_sketch(view: &View<'_>) -> Sketch {
    let mut sketch = todos_sketch(view);
    if let Some(title) = plan_text(view).and_then(text::first_line) {
        let title = text::short(title, ARGUMENT);
        sketch.arguments.text("planTitle", Some(title.clone()));
        sketch.summary = Some(title);
    }
    sketch
}

fn description<'a>(view: &View<'a>) -> &'a str {
    let result = view
        .outcome
        .value()
        .and_then(|value| value["description"].as_str());
    text::string(view.args.get("description"))
        .or(result)
        .unwrap_or("task")
}

fn kind_of_agent<'a>(view: &View<'a>, key: &str) -> Option<&'a str> {
    view.args.get("subagentType")?[key]
        .as_str()
        .filter(|text| !text.is_empty())
}

pub(super) fn task(view: &View<'_>) -> String {
    let mut header = "subagent".to_owned();
    let name = kind_of_agent(view, "name")
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
        Outcome::Failed(error) => text::section(&header, &text::error(error)),
        Outcome::Done(value) => {
            let steps = steps(view);
            let body = match steps.is_empty() {
                true => text::any(value),
                false => steps,
            };
            text::section(&header, &text::bounded(&body, TRANSCRIPT, None))
        }
    }
}

/// What the subagent did, a line or a text a step.
fn steps(view: &View<'_>) -> String {
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
            .filter_map(|step| said_or_done(view, step)),
    );
    parts.join("\n")
}

fn said_or_done(view: &View<'_>, step: &Json) -> Option<String> {
    let message = &step["message"];
    let said = match step["type"].as_str() {
        Some("toolCall") => return done(view, message),
        Some("assistantMessage") => message["text"].as_str(),
        _ => None,
    };
    let said = step["assistantMessage"]["text"].as_str().or(said);
    said.filter(|said| !said.is_empty()).map(str::to_owned)
}

/// A subagent's tool call in a line; shells with what they printed.
fn done(view: &View<'_>, call: &Json) -> Option<String> {
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

pub(super) fn task_sketch(view: &View<'_>) -> Sketch {
    let short = |text: &str| text::short(text, ARGUMENT);
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
    let kind = kind_of_agent(view, "kind")
        .and_then(capital)
        .map(|kind| short(&kind));
    let model = text::string(view.args.get("model")).filter(|model| !model.is_empty());
    let agent = text::string(view.args.get("agentId"))
        .or_else(|| text::string(view.value("agentId")))
        .and_then(agent_id);
    let background = view.value("isBackground") == Some(&Json::Bool(true));
    let mut arguments = Details::default();
    arguments.text("description", Some(description.clone()));
    arguments.text("preview", preview.clone());
    arguments.text("subagentName", kind_of_agent(view, "name").map(short));
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
    Sketch {
        arguments,
        summary: Some(summary),
        details: Details::default(),
    }
}

/// Enough of an agent's id to tell it from others; ids of a strange form are not shown.
fn agent_id(id: &str) -> Option<String> {
    let id = id.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    if id.is_empty() || !id.chars().all(plain) {
        return None;
    }
    Some(match id.len() > 12 {
        true => id[..8].to_owned(),
        false => id.to_owned(),
    })
}
