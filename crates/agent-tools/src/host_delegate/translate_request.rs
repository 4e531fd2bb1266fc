//! Translates requests for Cursor's own tools into calls of the host's tools. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};

use super::text_edits;
use crate::ExecRequest;
use crate::policy::NativeTool;
use cursor_proto::agent::v1::*;

/// The host's active tools by name, with the names of their arguments where known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostToolSet(BTreeMap<String, Option<Vec<String>>>);

impl HostToolSet {
    /// Creates the set from names and argument schemas.
    pub fn new<'a>(tools: impl IntoIterator<Item = (&'a str, &'a Json)>) -> Self {
        let arguments = |schema: &Json| -> Vec<String> {
            let known = schema["properties"].as_object();
            known
                .map(|known| known.keys().cloned().collect())
                .unwrap_or_default()
        };
        let tools = tools.into_iter();
        Self(
            tools
                .map(|(name, schema)| (name.to_owned(), Some(arguments(schema))))
                .collect(),
        )
    }

    /// Creates a set of tools with unknown schemas: each is assumed to accept any argument.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names = names.into_iter();
        Self(names.map(|name| (name.to_owned(), None)).collect())
    }

    /// Returns whether no tool is active.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a tool with this name is active.
    pub fn has(&self, tool: &str) -> bool {
        self.0.contains_key(tool)
    }

    /// Returns whether the host's tools can do the work of a native tool.
    pub fn can_execute(&self, tool: NativeTool) -> bool {
        match tool {
            NativeTool::Read => self.take("read", &["path"]),
            NativeTool::Ls => self.take("ls", &["path"]) || self.take("find", &["pattern"]),
            NativeTool::Grep => self.take("grep", &["pattern"]),
            NativeTool::Write => {
                self.take("write", &["path", "content"]) || self.take("edit", &["path", "edits"])
            }
            NativeTool::Delete | NativeTool::Shell => self.take("bash", &["command"]),
            NativeTool::Fetch | NativeTool::GitDiff | NativeTool::Diagnostics => false,
        }
    }

    /// Returns whether a tool with this name is active and accepts all these arguments.
    pub fn take(&self, tool: &str, arguments: &[&str]) -> bool {
        self.0.get(tool).is_some_and(|known| {
            let Some(known) = known else {
                return true;
            };
            let takes = |name: &&str| known.iter().any(|known| known == name);
            arguments.iter().all(takes)
        })
    }
}

/// A call of one of the host's tools.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HostToolCall {
    pub(super) tool: &'static str,
    pub(super) arguments: Json,
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
    let made = |tool: &'static str, arguments: Map<String, Json>| {
        let names: Vec<&str> = arguments.keys().map(String::as_str).collect();
        around.tools.take(tool, &names).then(|| HostToolCall {
            tool,
            arguments: Json::Object(arguments.clone()),
        })
    };
    match request {
        ExecRequest::ReadArgs(args) => {
            let offset = args.offset.filter(|offset| *offset > 0);
            // The host's tool cannot count from the end of the file.
            if args.offset.is_some_and(|offset| offset < 0) {
                return None;
            }
            made(
                "read",
                set(&[
                    ("path", args.path.clone().into()),
                    ("offset", offset.into()),
                    ("limit", args.limit.into()),
                ]),
            )
        }
        ExecRequest::PiReadArgs(args) => made(
            "read",
            set(&[
                ("path", args.path.clone().into()),
                ("offset", args.offset.into()),
                ("limit", args.limit.into()),
            ]),
        ),
        ExecRequest::ShellArgs(args)
        | ExecRequest::ShellStreamArgs(args)
        | ExecRequest::MiniSweAgentBashArgs(args) => {
            let command = inside(&args.command, &args.working_directory, around.workspace);
            made(
                "bash",
                set(&[
                    ("command", command.into()),
                    ("timeout", timeout(args).map(|ms| ms.div_ceil(1000)).into()),
                ]),
            )
        }
        ExecRequest::PiBashArgs(args) => made(
            "bash",
            set(&[
                ("command", args.command.clone().into()),
                ("timeout", args.timeout.map(f64::ceil).into()),
            ]),
        ),
        ExecRequest::GrepArgs(args) => {
            grep(args).and_then(|(tool, arguments)| made(tool, arguments))
        }
        ExecRequest::PiGrepArgs(args) => made(
            "grep",
            set(&[
                ("pattern", args.pattern.clone().into()),
                ("path", args.path.clone().into()),
                ("glob", args.glob.clone().into()),
                ("ignoreCase", args.ignore_case.into()),
                ("literal", args.literal.into()),
                ("context", args.context.into()),
                ("limit", args.limit.into()),
            ]),
        ),
        ExecRequest::PiFindArgs(args) => made(
            "find",
            set(&[
                ("pattern", args.pattern.clone().into()),
                ("path", args.path.clone().into()),
                ("limit", args.limit.into()),
            ]),
        ),
        ExecRequest::LsArgs(args) => made("ls", set(&[("path", args.path.clone().into())])),
        ExecRequest::PiLsArgs(args) => made(
            "ls",
            set(&[
                ("path", args.path.clone().into()),
                ("limit", args.limit.into()),
            ]),
        ),
        ExecRequest::WriteArgs(args) => {
            let text = written(args)?;
            let edit = around
                .before
                .and_then(|before| text_edits::of(before, &text));
            let edit = edit.and_then(|edits| made("edit", edit_arguments(&args.path, edits)));
            edit.or_else(|| {
                made(
                    "write",
                    set(&[("path", args.path.clone().into()), ("content", text.into())]),
                )
            })
        }
        ExecRequest::DeleteArgs(args) => {
            let path = (around.absolute)(&args.path);
            let command = format!("rm -- {}", quoted(path.to_str()?));
            made("bash", set(&[("command", command.into())]))
        }
        ExecRequest::PiWriteArgs(args) => made(
            "write",
            set(&[
                ("path", args.path.clone().into()),
                ("content", args.content.clone().into()),
            ]),
        ),
        ExecRequest::PiEditArgs(args) => {
            let edits = args
                .edits
                .iter()
                .map(|edit| (edit.old_text.clone(), edit.new_text.clone()));
            made("edit", edit_arguments(&args.path, edits.collect()))
        }
        _ => None,
    }
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

fn edit_arguments(path: &str, edits: Vec<(String, String)>) -> Map<String, Json> {
    let edits: Vec<Json> = edits
        .into_iter()
        .map(|(old, new)| json!({"oldText": old, "newText": new}))
        .collect();
    set(&[("path", path.into()), ("edits", edits.into())])
}

fn grep(args: &GrepArgs) -> Option<(&'static str, Map<String, Json>)> {
    if args.multiline == Some(true) || args.r#type.as_deref().is_some_and(|kind| !kind.is_empty()) {
        return None; // more than the host's tool can do
    }
    let path = || Json::from(args.path.clone().filter(|path| !path.is_empty()));
    let glob = args.glob.clone().filter(|glob| !glob.is_empty());
    if let (true, Some(glob)) = (args.pattern.is_empty(), &glob) {
        return Some((
            "find",
            set(&[("pattern", glob.clone().into()), ("path", path())]),
        ));
    }
    let around = [args.context, args.context_before, args.context_after];
    let context = around
        .into_iter()
        .flatten()
        .max()
        .filter(|lines| *lines > 0);
    let content = args.output_mode.as_deref().unwrap_or("content") == "content";
    let arguments = set(&[
        ("pattern", args.pattern.clone().into()),
        ("path", path()),
        ("glob", glob.into()),
        (
            "ignoreCase",
            args.case_insensitive
                .filter(|insensitive| *insensitive)
                .into(),
        ),
        ("context", context.filter(|_| content).into()),
        (
            "limit",
            args.head_limit.filter(|limit| content && *limit > 0).into(),
        ),
    ]);
    Some(("grep", arguments))
}

/// Builds arguments from the pairs whose value is not null.
fn set(pairs: &[(&str, Json)]) -> Map<String, Json> {
    let given = pairs.iter().filter(|(_, value)| !value.is_null());
    given
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
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

/// Runs a command in a folder; the host's shell starts in the workspace.
fn inside(command: &str, folder: &str, workspace: &Path) -> String {
    let folder = folder.trim_end_matches('/');
    if folder.is_empty() || workspace.join(folder) == workspace {
        return command.to_owned();
    }
    format!("cd {} && {{ {command}\n}}", quoted(folder))
}

/// Quotes a text as one word of a shell command.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> HostToolSet {
        let schema = |names: &[&str]| {
            let members = names.iter().map(|name| ((*name).to_owned(), json!({})));
            json!({"type": "object", "properties": members.collect::<Map<_, _>>()})
        };
        let known = [
            ("read", schema(&["path", "offset", "limit"])),
            ("bash", schema(&["command", "timeout"])),
            (
                "grep",
                schema(&["pattern", "path", "glob", "ignoreCase", "context", "limit"]),
            ),
            ("find", schema(&["pattern", "path"])),
            ("write", schema(&["path", "content"])),
            ("edit", schema(&["path", "edits"])),
        ];
        HostToolSet::new(known.iter().map(|(name, schema)| (*name, schema)))
    }

    fn planned(request: &ExecRequest, seen: Option<&str>) -> Option<(&'static str, Json)> {
        let around = CallContext {
            tools: &tools(),
            workspace: Path::new("/w"),
            absolute: &|path| Path::new("/w").join(path),
            before: seen,
        };
        call(request, &around).map(|call| (call.tool, call.arguments))
    }

    #[test]
    fn commands_run_in_their_working_directory() {
        let shell = |folder: &str, timeout| {
            ExecRequest::ShellStreamArgs(ShellArgs {
                command: "ls".into(),
                working_directory: folder.into(),
                timeout,
                ..ShellArgs::default()
            })
        };
        let command = |folder, timeout| planned(&shell(folder, timeout), None).unwrap().1;
        assert_eq!(command("/w/", 1500), json!({"command": "ls", "timeout": 2}));
        assert_eq!(command("", 0), json!({"command": "ls"}));
        let serving = |hard_timeout| {
            let shell = ExecRequest::ShellStreamArgs(ShellArgs {
                command: "serve".into(),
                timeout: 1500,
                timeout_behavior: TimeoutBehavior::Background as i32,
                hard_timeout,
                ..ShellArgs::default()
            });
            planned(&shell, None).unwrap().1
        };
        assert_eq!(serving(None), json!({"command": "serve"}));
        assert_eq!(
            serving(Some(60_000)),
            json!({"command": "serve", "timeout": 60})
        );
        assert_eq!(
            command("/w/it's", 0)["command"],
            "cd '/w/it'\\''s' && { ls\n}"
        );
    }

    #[test]
    fn a_search_becomes_a_grep_or_a_find() {
        let grep = |args: GrepArgs| planned(&ExecRequest::GrepArgs(args), None);
        let plain = GrepArgs {
            pattern: "x".into(),
            case_insensitive: Some(true),
            context: Some(2),
            head_limit: Some(5),
            ..GrepArgs::default()
        };
        assert_eq!(
            grep(plain.clone()).unwrap(),
            (
                "grep",
                json!({"pattern": "x", "ignoreCase": true, "context": 2, "limit": 5})
            )
        );
        let files = GrepArgs {
            output_mode: Some("files_with_matches".into()),
            ..plain.clone()
        };
        assert_eq!(
            grep(files).unwrap().1,
            json!({"pattern": "x", "ignoreCase": true})
        );
        let find = GrepArgs {
            pattern: String::new(),
            glob: Some("*.rs".into()),
            ..GrepArgs::default()
        };
        assert_eq!(grep(find).unwrap(), ("find", json!({"pattern": "*.rs"})));
        assert_eq!(
            grep(GrepArgs {
                multiline: Some(true),
                ..plain
            }),
            None
        );
    }

    #[test]
    fn a_write_to_a_file_that_was_read_becomes_an_edit() {
        let write = |text: &str| {
            ExecRequest::WriteArgs(WriteArgs {
                path: "/w/a".into(),
                file_text: text.into(),
                ..WriteArgs::default()
            })
        };
        assert_eq!(
            planned(&write("one\nTWO\n"), None).unwrap(),
            ("write", json!({"path": "/w/a", "content": "one\nTWO\n"}))
        );
        let (tool, arguments) =
            planned(&write("one\nTWO\nthree\n"), Some("one\ntwo\nthree\n")).unwrap();
        assert_eq!(
            (tool, &arguments["edits"]),
            ("edit", &json!([{"oldText": "two\n", "newText": "TWO\n"}]))
        );
        let bytes = ExecRequest::WriteArgs(WriteArgs {
            file_bytes: vec![0xff, 0].into(),
            ..WriteArgs::default()
        });
        assert_eq!(planned(&bytes, None), None);
    }

    #[test]
    fn a_delete_becomes_an_rm_of_one_file() {
        let delete = |path: &str| {
            let path = path.to_owned();
            let request = ExecRequest::DeleteArgs(DeleteArgs {
                path,
                ..DeleteArgs::default()
            });
            planned(&request, None).unwrap()
        };
        assert_eq!(
            delete("-rf it's"),
            ("bash", json!({"command": r"rm -- '/w/-rf it'\''s'"}))
        );
    }

    #[test]
    fn tools_without_the_needed_arguments_are_not_called() {
        let ls = ExecRequest::LsArgs(LsArgs {
            path: "/w".into(),
            ..LsArgs::default()
        });
        assert_eq!(planned(&ls, None), None);
        let from_the_end = ExecRequest::ReadArgs(ReadArgs {
            path: "a".into(),
            offset: Some(-5),
            ..ReadArgs::default()
        });
        assert_eq!(planned(&from_the_end, None), None);
        let literal = ExecRequest::PiGrepArgs(PiGrepExecArgs {
            pattern: "x".into(),
            literal: Some(true),
            ..PiGrepExecArgs::default()
        });
        assert_eq!(
            planned(&literal, None),
            None,
            "its grep takes no such argument"
        );
    }
}
