//! The questions that hooks are asked about a request. They describe the effect of the request,
//! however it is written: paths are absolute and without `.` and `..`, and if a path leads
//! through links, its target is asked about too.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};

use super::HookContext;
use super::config::HookEvent;
use crate::ExecRequest;
use crate::cursor_config::mcp::McpServers;
use crate::handlers::text_file::faithful;
use crate::prompts::refusals;
use crate::workspace::paths::resolve_path;
use cursor_proto::agent::v1::{McpArgs, PiEditReplacement};
use cursor_proto::protobuf_value;

/// One question for hooks.
pub(super) struct HookInput {
    pub(super) event: HookEvent,
    /// The text that matchers are applied to.
    pub(super) subject: String,
    /// The fields of the hook's input.
    pub(super) about: Map<String, Json>,
    /// The path in those fields, and where it is.
    path: Option<(&'static str, PathBuf)>,
}

/// The most links that are followed, equal to the system's limit.
const MAX_LINKS: usize = 40;

impl HookInput {
    /// Returns the same question about the resolved path; `None` if there is no path or it has no
    /// links. Accesses the file system.
    pub(super) fn resolved(&self) -> Option<Self> {
        let (place, path) = self.path.as_ref()?;
        let real = resolved(path);
        if real == *path {
            return None;
        }
        let mut about = Json::Object(self.about.clone());
        *about.pointer_mut(place)? = text(&real).into();
        Some(Self {
            event: self.event,
            subject: self.subject.clone(),
            about: object(about),
            path: None,
        })
    }
}

/// Resolves all links of a path, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    let mut there = path.to_owned();
    let mut links = 0;
    loop {
        match there.canonicalize() {
            Ok(mut real) => {
                real.extend(missing.iter().rev());
                return real;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let parent = there.parent().map(Path::to_owned);
                let (Some(parent), Some(name)) = (parent, there.file_name()) else {
                    return path.to_owned();
                };
                match there.read_link() {
                    // A dangling link: writing to it would create its target.
                    Ok(target) if links < MAX_LINKS => {
                        links += 1;
                        there = parent.join(target);
                    }
                    _ => {
                        missing.push(name.to_owned());
                        there = parent;
                    }
                }
            }
            Err(_) => return path.to_owned(),
        }
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl HookContext {
    /// Returns the absolute path that a request's path refers to.
    fn resolve_path(&self, path: &str) -> PathBuf {
        resolve_path(path, &self.workspace, self.home.as_deref())
    }

    /// Returns the folder a command runs in.
    fn folder(&self, given: &str) -> PathBuf {
        if given.is_empty() {
            self.shell_session.cwd(&self.workspace)
        } else {
            self.resolve_path(given)
        }
    }
}

/// Describes the denied action for the refusal message.
pub(super) fn what(request: &ExecRequest) -> &'static str {
    match request {
        ExecRequest::McpArgs(_) => refusals::MCP_CALL,
        ExecRequest::ReadArgs(_)
        | ExecRequest::RedactedReadArgs(_)
        | ExecRequest::PiReadArgs(_) => refusals::FILE_READ,
        ExecRequest::WriteShellStdinArgs(_) => refusals::COMMAND_INPUT,
        request if command(request).is_some() => refusals::COMMAND,
        _ => refusals::OTHER_TOOL,
    }
}

/// Returns the questions to ask before a request is executed, in order.
pub(super) fn questions(
    request: &ExecRequest,
    servers: &McpServers,
    context: &HookContext,
) -> Vec<HookInput> {
    if let ExecRequest::McpArgs(args) = request {
        return mcp(args, servers);
    }
    let Some((tool, mut input)) = tool(request) else {
        return Vec::new();
    };
    let path = path_of(request).map(|(member, path)| (member, context.resolve_path(path)));
    if let Some((member, path)) = &path {
        input[*member] = text(path).into();
    }
    let executed = match request {
        // Join it with the unfinished line, because a line may be sent in parts.
        ExecRequest::WriteShellStdinArgs(args) => {
            let line = context.shell_session.unfinished(args.shell_id) + &args.chars;
            Some((line, context.folder("")))
        }
        request => {
            command(request).map(|(command, folder)| (command.to_owned(), context.folder(folder)))
        }
    };
    if let Some((command, folder)) = &executed {
        input["command"] = command.as_str().into();
        input["cwd"] = text(folder).into();
    }
    let mut tool_use = tool_use(tool, &input, call_id(request));
    tool_use.path = path.map(|(member, path)| (pointer(member), path));
    let mut questions = vec![tool_use];
    if let Some((command, folder)) = executed {
        let about = json!({"command": command, "cwd": text(&folder), "sandbox": false});
        questions.push(HookInput {
            event: HookEvent::BeforeShellExecution,
            subject: command,
            about: object(about),
            path: None,
        });
    }
    questions
}

/// Returns the question to ask before content of a file is returned.
pub(super) fn before_read(path: PathBuf, content: &str) -> HookInput {
    let about = json!({"file_path": text(&path), "content": content, "attachments": []});
    HookInput {
        event: HookEvent::BeforeReadFile,
        subject: READ.into(),
        about: object(about),
        path: Some(("/file_path", path)),
    }
}

/// The subject of `beforeReadFile`.
pub(super) const READ: &str = "Read";

/// Whether the result of a request contains file content.
pub(super) fn returns_content(request: &ExecRequest) -> bool {
    matches!(
        request,
        ExecRequest::ReadArgs(_)
            | ExecRequest::RedactedReadArgs(_)
            | ExecRequest::PiReadArgs(_)
            | ExecRequest::DeleteArgs(_)
            | ExecRequest::PiEditArgs(_)
            | ExecRequest::GrepArgs(_)
            | ExecRequest::PiGrepArgs(_)
            | ExecRequest::GitDiffRequest(_)
    )
}

/// Returns the absolute path that a request names.
pub(super) fn file(request: &ExecRequest, context: &HookContext) -> Option<PathBuf> {
    path_of(request).map(|(_, path)| context.resolve_path(path))
}

fn pointer(member: &str) -> &'static str {
    match member {
        "download_path" => "/tool_input/download_path",
        _ => "/tool_input/file_path",
    }
}

/// Returns the path of a request as it is written there, and the name of its member in a hook's
/// input.
fn path_of(request: &ExecRequest) -> Option<(&'static str, &str)> {
    // The plain-text tools strip the `@` of a mention.
    let named = |path| str::strip_prefix(path, '@').unwrap_or(path);
    let path: &str = match request {
        ExecRequest::ReadArgs(args) | ExecRequest::RedactedReadArgs(args) => &args.path,
        ExecRequest::LsArgs(args) => &args.path,
        ExecRequest::WriteArgs(args) => &args.path,
        ExecRequest::DeleteArgs(args) => &args.path,
        ExecRequest::DiagnosticsArgs(args) => &args.path,
        ExecRequest::GrepArgs(args) => args.path.as_deref().unwrap_or_default(),
        ExecRequest::PiReadArgs(args) => named(&args.path),
        ExecRequest::PiWriteArgs(args) => named(&args.path),
        ExecRequest::PiEditArgs(args) => named(&args.path),
        ExecRequest::PiLsArgs(args) => named(args.path.as_deref().unwrap_or_default()),
        ExecRequest::PiFindArgs(args) => named(args.path.as_deref().unwrap_or_default()),
        ExecRequest::PiGrepArgs(args) => named(args.path.as_deref().unwrap_or_default()),
        ExecRequest::ReadMcpResourceExecArgs(args) => {
            let path = args.download_path.as_deref();
            return path
                .filter(|path| !path.is_empty())
                .map(|path| ("download_path", path));
        }
        _ => return None,
    };
    Some(("file_path", path))
}

/// Returns the bytes that a request writes as text.
fn bytes_as_text(bytes: &[u8]) -> String {
    faithful(bytes).unwrap_or_else(|| String::from_utf8_lossy(bytes).into_owned())
}

fn object(json: Json) -> Map<String, Json> {
    match json {
        Json::Object(object) => object,
        _ => Map::new(),
    }
}

fn tool_use(tool: &str, input: &Json, call: &str) -> HookInput {
    HookInput {
        event: HookEvent::PreToolUse,
        subject: tool.to_owned(),
        about: object(json!({"tool_name": tool, "tool_input": input, "tool_use_id": call})),
        path: None,
    }
}

fn mcp(args: &McpArgs, servers: &McpServers) -> Vec<HookInput> {
    let input: Map<String, Json> = args
        .args
        .iter()
        .map(|entry| {
            (
                entry.key.clone(),
                protobuf_value::decode_or_text(&entry.value),
            )
        })
        .collect();
    let name = if args.tool_name.is_empty() {
        &args.name
    } else {
        &args.tool_name
    };
    let subject = format!("MCP:{name}");
    let input = Json::Object(input);
    let mut about = object(json!({
        "tool_name": name,
        "tool_input": input.to_string(),
        "mcp_server_name": args.provider_identifier,
    }));
    let (key, place) = servers.of(args).map_or_else(
        || ("command", args.provider_identifier.clone()),
        |server| server.address(),
    );
    about.insert(key.into(), place.into());
    vec![
        tool_use(&subject, &input, &args.tool_call_id),
        HookInput {
            event: HookEvent::BeforeMcpExecution,
            subject,
            about,
            path: None,
        },
    ]
}

/// Returns the command of a request and the folder it names.
fn command(request: &ExecRequest) -> Option<(&str, &str)> {
    match request {
        ExecRequest::ShellArgs(args)
        | ExecRequest::ShellStreamArgs(args)
        | ExecRequest::MiniSweAgentBashArgs(args) => Some((&args.command, &args.working_directory)),
        ExecRequest::BackgroundShellSpawnArgs(args) => {
            Some((&args.command, &args.working_directory))
        }
        ExecRequest::PiBashArgs(args) => Some((&args.command, "")),
        _ => None,
    }
}

/// Returns Cursor's name of the tool and its input for hooks, without the path and the command;
/// `None` for a request that is not a tool call.
fn tool(request: &ExecRequest) -> Option<(&'static str, Json)> {
    Some(match request {
        ExecRequest::ShellArgs(_)
        | ExecRequest::ShellStreamArgs(_)
        | ExecRequest::MiniSweAgentBashArgs(_)
        | ExecRequest::BackgroundShellSpawnArgs(_)
        | ExecRequest::PiBashArgs(_) => ("Shell", json!({})),
        ExecRequest::ReadArgs(_)
        | ExecRequest::RedactedReadArgs(_)
        | ExecRequest::PiReadArgs(_) => ("Read", json!({})),
        ExecRequest::WriteShellStdinArgs(args) => (
            "WriteShellStdin",
            json!({"shell_id": args.shell_id, "chars": args.chars,
                   "chars_length": args.chars.chars().count()}),
        ),
        ExecRequest::LsArgs(_) | ExecRequest::PiLsArgs(_) => ("List", json!({})),
        ExecRequest::PiFindArgs(args) => ("List", json!({"pattern": args.pattern})),
        ExecRequest::GrepArgs(args) => (
            "Grep",
            json!({"pattern": args.pattern, "glob": args.glob,
                   "output_mode": args.output_mode}),
        ),
        ExecRequest::PiGrepArgs(args) => {
            ("Grep", json!({"pattern": args.pattern, "glob": args.glob}))
        }
        ExecRequest::WriteArgs(args) if args.file_bytes.is_empty() => {
            ("Write", json!({"content": args.file_text}))
        }
        ExecRequest::WriteArgs(args) => {
            ("Write", json!({"content": bytes_as_text(&args.file_bytes)}))
        }
        ExecRequest::PiWriteArgs(args) => ("Write", json!({"content": args.content})),
        ExecRequest::PiEditArgs(args) => {
            let edit = |edit: &PiEditReplacement| json!({"old_string": edit.old_text, "new_string": edit.new_text});
            let edits: Vec<Json> = args.edits.iter().map(edit).collect();
            ("Write", json!({"edits": edits}))
        }
        ExecRequest::DeleteArgs(_) => ("Delete", json!({})),
        ExecRequest::DiagnosticsArgs(_) => ("ReadLints", json!({})),
        ExecRequest::FetchArgs(args) => ("Fetch", json!({"url": args.url})),
        ExecRequest::GitDiffRequest(args) => (
            "GitDiff",
            json!({"cwd": args.cwd, "paths": args.target_paths}),
        ),
        ExecRequest::ListMcpResourcesExecArgs(args) => {
            ("ListMcpResources", json!({"server": args.server}))
        }
        ExecRequest::ReadMcpResourceExecArgs(args) => (
            "FetchMcpResource",
            json!({"server": args.server, "uri": args.uri}),
        ),
        // Calls of MCP tools are asked about separately; the others execute nothing here.
        ExecRequest::RequestContextArgs(_)
        | ExecRequest::McpStateExecArgs(_)
        | ExecRequest::McpArgs(_)
        | ExecRequest::ExecuteHookArgs(_)
        | ExecRequest::ForceBackgroundShellArgs(_)
        | ExecRequest::ForceBackgroundSubagentArgs(_)
        | ExecRequest::SubagentArgs(_)
        | ExecRequest::SubagentAwaitArgs(_)
        | ExecRequest::RecordScreenArgs(_)
        | ExecRequest::ComputerUseArgs(_)
        | ExecRequest::SmartModeClassifierArgs(_)
        | ExecRequest::CanvasDiagnosticsArgs(_)
        | ExecRequest::ShellAllowlistPrecheckArgs(_)
        | ExecRequest::McpAllowlistPrecheckArgs(_)
        | ExecRequest::WebFetchAllowlistPrecheckArgs(_)
        | ExecRequest::ConversationSearchArgs(_)
        | ExecRequest::AgentStoreConflictArgs(_)
        | ExecRequest::AdoptArgs(_) => return None,
    })
}

fn call_id(request: &ExecRequest) -> &str {
    match request {
        ExecRequest::ReadArgs(args) | ExecRequest::RedactedReadArgs(args) => &args.tool_call_id,
        ExecRequest::ShellArgs(args)
        | ExecRequest::ShellStreamArgs(args)
        | ExecRequest::MiniSweAgentBashArgs(args) => &args.tool_call_id,
        ExecRequest::BackgroundShellSpawnArgs(args) => &args.tool_call_id,
        ExecRequest::LsArgs(args) => &args.tool_call_id,
        ExecRequest::GrepArgs(args) => &args.tool_call_id,
        ExecRequest::WriteArgs(args) => &args.tool_call_id,
        ExecRequest::DeleteArgs(args) => &args.tool_call_id,
        ExecRequest::DiagnosticsArgs(args) => &args.tool_call_id,
        ExecRequest::FetchArgs(args) => &args.tool_call_id,
        ExecRequest::ReadMcpResourceExecArgs(args) => &args.tool_call_id,
        _ => "",
    }
}
