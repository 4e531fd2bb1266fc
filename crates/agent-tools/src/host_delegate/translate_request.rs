//! Translates requests for Cursor's own tools into calls of the host's tools. Pure.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use super::HostToolSet;
use super::codex_patch;
use super::result_formats::{ResultReader, Slice};
use super::shell_recipes;
use super::text_edits;
use super::tool_shapes::{Operands, Operation, PollCall, ToolShape};
use crate::ExecRequest;
use crate::prompts::tools::FETCH_WHOLE_PAGE;
use cursor_proto::agent::v1::*;

/// How many characters of a command its description shows.
const MAX_DESCRIPTION: usize = 60;
/// How many lines are requested of a tool that needs a number together with an offset.
const DEFAULT_LIMIT: u32 = 2_000;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct HostToolCall {
    pub(super) tool: String,
    pub(super) arguments: Json,
    /// How its result is read.
    pub(super) reader: ResultReader,
    /// How the rest of its result is requested.
    pub(super) poll: Option<PollCall>,
}

/// The context in which a request is translated.
pub(super) struct CallContext<'a> {
    pub(super) tools: &'a HostToolSet,
    pub(super) workspace: &'a Path,
    /// Makes a path of the request absolute.
    pub(super) absolute: &'a dyn Fn(&str) -> PathBuf,
    /// The current text of the file that the request writes, if known.
    pub(super) before: Option<&'a str>,
}

/// Returns the call that executes a request; `None` if the host has no suitable tool.
pub(super) fn call(request: &ExecRequest, around: &CallContext<'_>) -> Option<HostToolCall> {
    match request {
        ExecRequest::ReadArgs(args) => {
            let values = around.at(Some(&args.path));
            around.read(values, args.offset, args.limit)
        }
        ExecRequest::PiReadArgs(args) => {
            let values = around.at(Some(&args.path));
            around.read(
                values,
                args.offset,
                args.limit.and_then(|n| u32::try_from(n).ok()),
            )
        }
        ExecRequest::ShellArgs(args)
        | ExecRequest::ShellStreamArgs(args)
        | ExecRequest::MiniSweAgentBashArgs(args) => {
            let mut values = Operands::new();
            if let Some(ms) = timeout(args) {
                values.insert("timeout_ms", ms.into());
                values.insert("timeout_s", ms.div_ceil(1000).into());
            }
            let described = args.description.as_deref().filter(|it| !it.is_empty());
            if let Some(description) = described {
                values.insert("description", description.into());
            }
            around.shell(&args.command, &args.working_directory, values)
        }
        ExecRequest::PiBashArgs(args) => {
            let mut values = Operands::new();
            if let Some(seconds) = args.timeout.map(f64::ceil) {
                values.insert("timeout_ms", (seconds * 1000.0).into());
                values.insert("timeout_s", seconds.into());
            }
            around.shell(&args.command, "", values)
        }
        ExecRequest::GrepArgs(args) => around.search(args),
        ExecRequest::PiGrepArgs(args) => {
            let mut values = around.at(args.path.as_deref());
            put_pattern(&mut values, &args.pattern, args.ignore_case);
            put(&mut values, "glob", args.glob.clone());
            put(&mut values, "ignore_case", args.ignore_case);
            put(&mut values, "literal", args.literal);
            put(&mut values, "context", args.context);
            put(&mut values, "limit", args.limit);
            around.made(Operation::Search, &values)
        }
        ExecRequest::PiFindArgs(args) => {
            let mut values = around.at(args.path.as_deref());
            values.insert("pattern", args.pattern.clone().into());
            put(&mut values, "limit", args.limit);
            around.made(Operation::Find, &values)
        }
        ExecRequest::LsArgs(args) => around.made(Operation::List, &around.at(Some(&args.path))),
        ExecRequest::PiLsArgs(args) => {
            let mut values = around.at(args.path.as_deref());
            put(&mut values, "limit", args.limit);
            around.made(Operation::List, &values)
        }
        ExecRequest::WriteArgs(args) => around.write(&args.path, &written(args)?),
        ExecRequest::PiWriteArgs(args) => around.write_whole(&args.path, &args.content),
        ExecRequest::PiEditArgs(args) => {
            let edits = args.edits.iter();
            let edits = edits.map(|edit| (edit.old_text.clone(), edit.new_text.clone()));
            around.edit(&args.path, edits.collect())
        }
        ExecRequest::DeleteArgs(args) => {
            around.made(Operation::Delete, &around.at(Some(&args.path)))
        }
        ExecRequest::FetchArgs(args) => {
            let values = Operands::from([
                ("url", args.url.clone().into()),
                ("prompt", FETCH_WHOLE_PAGE.into()),
            ]);
            around.made(Operation::Fetch, &values)
        }
        _ => None,
    }
}

/// Returns another call that reads the same, for a host that does not show again what the same call
/// has shown: a range for the whole file, the whole file for a range.
pub(super) fn read_again(
    request: &ExecRequest,
    first: &ResultReader,
    around: &CallContext<'_>,
) -> Option<HostToolCall> {
    let ExecRequest::ReadArgs(args) = request else {
        return None;
    };
    let values = around.at(Some(&args.path));
    let part = args.offset.is_some() || args.limit.is_some();
    if part && first.slice.is_none() {
        let mut whole = around.read(values, None, None)?;
        whole.reader.slice = Some(Slice {
            offset: args.offset.unwrap_or(1),
            limit: args.limit,
        });
        Some(whole)
    } else {
        let mut lines = around.read(values, Some(1), Some(DEFAULT_LIMIT))?;
        lines.reader.slice = first.slice;
        Some(lines)
    }
}

fn put(values: &mut Operands, name: &'static str, value: Option<impl Into<Json>>) {
    if let Some(value) = value {
        values.insert(name, value.into());
    }
}

fn put_pattern(values: &mut Operands, pattern: &str, ignore_case: Option<bool>) {
    let flag = if ignore_case == Some(true) {
        "(?i)"
    } else {
        ""
    };
    values.insert("rg_pattern", format!("{flag}{pattern}").into());
    values.insert("pattern", pattern.into());
}

/// Returns the text a request writes; `None` if it is not UTF-8, because the host's tool writes
/// text.
pub(super) fn written(args: &WriteArgs) -> Option<String> {
    if args.file_bytes.is_empty() {
        Some(args.file_text.clone())
    } else {
        String::from_utf8(args.file_bytes.to_vec()).ok()
    }
}

/// Returns the timeout in milliseconds. A command that would only move to the background gets
/// none, because the host's shell would kill it instead.
fn timeout(args: &ShellArgs) -> Option<u32> {
    let limit = match args.timeout_behavior() {
        TimeoutBehavior::Background => args.hard_timeout?,
        TimeoutBehavior::Unspecified | TimeoutBehavior::Cancel => args.timeout,
    };
    u32::try_from(limit).ok().filter(|ms| *ms > 0)
}

impl CallContext<'_> {
    /// Returns the values for a path, in every form that a template may use.
    fn at(&self, path: Option<&str>) -> Operands {
        let mut values = Operands::new();
        let project = self.workspace.file_name().and_then(|name| name.to_str());
        put(&mut values, "project", project);
        let Some(path) = path.filter(|path| !path.is_empty()) else {
            return values;
        };
        values.insert("path", path.into());
        let absolute = (self.absolute)(path);
        if let Some(absolute) = absolute.to_str() {
            values.insert("abs_path", absolute.into());
        }
        let inside = absolute.strip_prefix(self.workspace);
        if let (Some(project), Some(inside)) = (project, inside.ok().and_then(Path::to_str)) {
            let path = format!("{project}/{inside}");
            values.insert("project_path", path.trim_end_matches('/').into());
        }
        values
    }

    /// Returns whether a path is the workspace itself, which every tool starts in.
    fn is_workspace(&self, values: &Operands) -> bool {
        let path = values.get("abs_path").and_then(Json::as_str);
        path.is_none_or(|path| Path::new(path) == self.workspace)
    }

    /// Returns the call for an operation; `None` if the tool cannot do exactly this.
    fn made(&self, operation: Operation, values: &Operands) -> Option<HostToolCall> {
        let shape = self.tools.shape(operation)?;
        if shape.operation != operation {
            return self.by_command(shape, operation, values);
        }
        let mut takes = shape.values();
        let narrows = match operation {
            Operation::Search => &["glob", "ignore_case", "literal", "type", "multiline"][..],
            _ => &[],
        };
        let is_set = |name: &&&str| {
            values
                .get(**name)
                .is_some_and(|it| *it != Json::Bool(false))
        };
        if takes.contains("rg_pattern") {
            takes.insert("ignore_case");
        }
        if narrows
            .iter()
            .filter(is_set)
            .any(|name| !takes.contains(name))
        {
            return None;
        }
        let takes_path = ["path", "abs_path", "project_path", "patch"]
            .iter()
            .any(|name| takes.contains(name) && values.contains_key(name));
        if !takes_path && !self.is_workspace(values) {
            return None;
        }
        Some(called(shape, shape.fill(values), None))
    }

    /// Returns the call of the shell that does the work of another tool.
    fn by_command(
        &self,
        shell: &ToolShape,
        operation: Operation,
        values: &Operands,
    ) -> Option<HostToolCall> {
        let unsupported = ["literal", "type", "multiline"];
        let is_set = |name: &&str| values.get(name).is_some_and(|it| *it != Json::Bool(false));
        if unsupported.iter().any(is_set) {
            return None;
        }
        let command = shell_recipes::command(operation, values)?;
        let mut values = self.at(None);
        values.insert("description", described(&command).into());
        values.insert("command", command.into());
        Some(called(shell, shell.fill(&values), Some(operation)))
    }

    fn shell(&self, command: &str, folder: &str, mut values: Operands) -> Option<HostToolCall> {
        let shape = self.tools.shape(Operation::Shell)?;
        values.extend(self.at(None));
        let description = described(command).into();
        values.entry("description").or_insert(description);
        let trimmed = folder.trim_end_matches('/');
        let elsewhere = !trimmed.is_empty() && self.workspace.join(trimmed) != self.workspace;
        let command = if elsewhere && shape.values().contains("cwd") {
            values.insert("cwd", self.workspace.join(trimmed).to_str()?.into());
            command.to_owned()
        } else if elsewhere {
            shell_recipes::in_folder(command, trimmed)
        } else {
            command.to_owned()
        };
        values.insert("command", command.into());
        Some(called(shape, shape.fill(&values), None))
    }

    /// Returns the call that reads a file. A part that the tool cannot be asked for is cut out of
    /// the whole text.
    fn read(
        &self,
        mut values: Operands,
        offset: Option<i32>,
        limit: Option<u32>,
    ) -> Option<HostToolCall> {
        let shape = self.tools.shape(Operation::Read)?;
        let by_command = shape.operation != Operation::Read;
        let takes = shape.values();
        let first = offset.filter(|offset| *offset != 0);
        let takes_first = by_command || takes.contains("offset") || takes.contains("offset0");
        let takes_limit = by_command || takes.contains("limit") || takes.contains("end_line");
        let from_end = first.is_some_and(|first| first < 0);
        let cut =
            from_end || (first.is_some() && !takes_first) || (limit.is_some() && !takes_limit);
        if !cut {
            let start = i64::from(first.unwrap_or(1));
            put(&mut values, "offset", first);
            put(&mut values, "offset0", first.map(|first| first - 1));
            let limit = if first.is_some() && takes.contains("offset0") {
                limit.or(Some(DEFAULT_LIMIT))
            } else {
                limit
            };
            put(&mut values, "limit", limit);
            put(
                &mut values,
                "end_line",
                limit.map(|limit| start + i64::from(limit) - 1),
            );
        }
        let mut call = self.made(Operation::Read, &values)?;
        call.reader.slice = cut.then_some(Slice {
            offset: first.unwrap_or(1),
            limit,
        });
        Some(call)
    }

    fn search(&self, args: &GrepArgs) -> Option<HostToolCall> {
        let mut values = self.at(args.path.as_deref());
        let glob = args.glob.clone().filter(|glob| !glob.is_empty());
        if let (true, Some(glob)) = (args.pattern.is_empty(), &glob) {
            if args.multiline == Some(true) {
                return None;
            }
            values.insert("pattern", glob.clone().into());
            return self.made(Operation::Find, &values);
        }
        let context = [args.context, args.context_before, args.context_after];
        let context = context.into_iter().flatten().max();
        let content = args.output_mode.as_deref().unwrap_or("content") == "content";
        let kind = args.r#type.clone().filter(|kind| !kind.is_empty());
        put_pattern(&mut values, &args.pattern, args.case_insensitive);
        put(&mut values, "glob", glob);
        put(&mut values, "type", kind);
        put(&mut values, "multiline", args.multiline.filter(|on| *on));
        put(
            &mut values,
            "ignore_case",
            args.case_insensitive.filter(|on| *on),
        );
        put(
            &mut values,
            "context",
            context.filter(|lines| content && *lines > 0),
        );
        put(
            &mut values,
            "limit",
            args.head_limit.filter(|limit| content && *limit > 0),
        );
        self.made(Operation::Search, &values)
    }

    /// Returns the call that writes a file: an edit if its text is known, because the host then
    /// shows what changes.
    fn write(&self, path: &str, text: &str) -> Option<HostToolCall> {
        let edits = self.before.and_then(|before| text_edits::of(before, text));
        let edit = edits.and_then(|edits| self.edit(path, edits));
        edit.or_else(|| self.write_whole(path, text))
    }

    fn write_whole(&self, path: &str, text: &str) -> Option<HostToolCall> {
        let mut values = self.at(Some(path));
        values.insert("content", text.into());
        let shape = self.tools.shape(Operation::Write)?;
        if shape.values().contains("patch") {
            let absolute = values.get("abs_path").and_then(Json::as_str)?;
            let patch = codex_patch::of(absolute, self.before, text);
            let Some(patch) = patch else {
                // A patch cannot express this text, but a command can.
                let shell = self.tools.shape(Operation::Shell)?;
                let can = shell.recipes.contains(&Operation::Write);
                return can.then(|| self.by_command(shell, Operation::Write, &values))?;
            };
            values.insert("patch", patch.into());
        }
        self.made(Operation::Write, &values)
    }

    fn edit(&self, path: &str, edits: Vec<(String, String)>) -> Option<HostToolCall> {
        let mut values = self.at(Some(path));
        if self
            .tools
            .shape(Operation::Edit)?
            .values()
            .contains("edits")
        {
            let edits = edits.iter();
            let edits = edits.map(|(old, new)| json!({"oldText": old, "newText": new}));
            values.insert("edits", edits.collect());
        } else {
            let (old, new) = match &edits[..] {
                [one] => one.clone(),
                several => text_edits::merged(self.before?, several)?,
            };
            let before = self.before.unwrap_or_default();
            let (old, new) = text_edits::without_final_break(before, (old, new));
            values.insert("old", old.into());
            values.insert("new", new.into());
        }
        self.made(Operation::Edit, &values)
    }
}

fn called(shape: &ToolShape, arguments: Json, recipe: Option<Operation>) -> HostToolCall {
    HostToolCall {
        tool: shape.tool.clone(),
        arguments,
        reader: ResultReader {
            format: shape.result,
            success: shape.success.clone(),
            recipe,
            slice: None,
        },
        poll: shape.poll.clone(),
    }
}

/// Returns a description of a command for tools that require one.
fn described(command: &str) -> String {
    let line = command.lines().next().unwrap_or_default();
    let short: String = line.chars().take(MAX_DESCRIPTION).collect();
    format!("Run: {short}")
}

#[cfg(test)]
mod tests;
