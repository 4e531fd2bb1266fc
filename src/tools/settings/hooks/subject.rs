//! What of a request hooks are asked about.

use serde_json::{Map, Value as Json, json};

use super::config::Event;
use crate::tools::Request;
use crate::tools::settings::mcp::Servers;
use crate::wire::proto::agent::v1::McpArgs;
use crate::wire::value;

/// One question for hooks.
pub(super) struct Question {
    pub(super) event: Event,
    /// What matchers look at.
    pub(super) subject: String,
    /// What the hook reads.
    pub(super) about: Map<String, Json>,
}

/// What is said of a tool that was kept from running.
pub(super) fn what(request: &Request) -> &'static str {
    match request {
        Request::McpArgs(_) => "The call of the MCP tool",
        Request::ReadArgs(_) | Request::RedactedReadArgs(_) | Request::PiReadArgs(_) => {
            "Reading the file"
        }
        request if command(request).is_some() => "The command",
        _ => "The tool",
    }
}

/// What is asked before a request is executed, in order.
pub(super) fn questions(request: &Request, servers: &Servers) -> Vec<Question> {
    if let Request::McpArgs(args) = request {
        return mcp(args, servers);
    }
    let Some((tool, input)) = tool(request) else {
        return Vec::new();
    };
    let call = call_id(request);
    let mut questions = vec![tool_use(tool, &input, call)];
    if let Some((command, folder)) = command(request) {
        questions.push(Question {
            event: Event::BeforeShellExecution,
            subject: command.to_owned(),
            about: object(json!({"command": command, "cwd": folder, "sandbox": false})),
        });
    }
    questions
}

/// What is asked before the text of a file is told.
pub(super) fn before_read(request: &Request, content: &str) -> Option<Question> {
    let path = read_path(request)?;
    Some(Question {
        event: Event::BeforeReadFile,
        subject: "Read".into(),
        about: object(json!({"file_path": path, "content": content, "attachments": []})),
    })
}

/// The file a request reads.
pub(super) fn read_path(request: &Request) -> Option<&str> {
    match request {
        Request::ReadArgs(args) | Request::RedactedReadArgs(args) => Some(&args.path),
        Request::PiReadArgs(args) => Some(&args.path),
        _ => None,
    }
}

fn object(json: Json) -> Map<String, Json> {
    match json {
        Json::Object(object) => object,
        _ => Map::new(),
    }
}

fn tool_use(tool: &str, input: &Json, call: &str) -> Question {
    Question {
        event: Event::PreToolUse,
        subject: tool.to_owned(),
        about: object(json!({"tool_name": tool, "tool_input": input, "tool_use_id": call})),
    }
}

fn mcp(args: &McpArgs, servers: &Servers) -> Vec<Question> {
    let input: Map<String, Json> = args
        .args
        .iter()
        .map(|entry| (entry.key.clone(), value::decode_or_text(&entry.value)))
        .collect();
    let name = match args.tool_name.is_empty() {
        true => &args.name,
        false => &args.tool_name,
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
        |server| server.place(),
    );
    about.insert(key.into(), place.into());
    vec![
        tool_use(&subject, &input, &args.tool_call_id),
        Question {
            event: Event::BeforeMcpExecution,
            subject,
            about,
        },
    ]
}

/// The command of a request, and where it is to run.
fn command(request: &Request) -> Option<(&str, &str)> {
    match request {
        Request::ShellArgs(args)
        | Request::ShellStreamArgs(args)
        | Request::MiniSweAgentBashArgs(args) => Some((&args.command, &args.working_directory)),
        Request::BackgroundShellSpawnArgs(args) => Some((&args.command, &args.working_directory)),
        Request::PiBashArgs(args) => Some((&args.command, "")),
        _ => None,
    }
}

/// Cursor's name of the tool, and its input as hooks know it. Requests that are no tools
/// have none.
fn tool(request: &Request) -> Option<(&'static str, Json)> {
    if let Some((command, folder)) = command(request) {
        return Some(("Shell", json!({"command": command, "cwd": folder})));
    }
    if let Some(path) = read_path(request) {
        return Some(("Read", json!({"file_path": path})));
    }
    Some(match request {
        Request::WriteShellStdinArgs(args) => (
            "WriteShellStdin",
            json!({"shell_id": args.shell_id, "chars_length": args.chars.chars().count()}),
        ),
        Request::LsArgs(args) => ("List", json!({"file_path": args.path})),
        Request::PiLsArgs(args) => ("List", json!({"file_path": args.path})),
        Request::PiFindArgs(args) => (
            "List",
            json!({"file_path": args.path, "pattern": args.pattern}),
        ),
        Request::GrepArgs(args) => (
            "Grep",
            json!({"pattern": args.pattern, "file_path": args.path, "glob": args.glob,
                   "output_mode": args.output_mode}),
        ),
        Request::PiGrepArgs(args) => (
            "Grep",
            json!({"pattern": args.pattern, "file_path": args.path}),
        ),
        Request::WriteArgs(args) => (
            "Write",
            json!({"file_path": args.path, "content": args.file_text}),
        ),
        Request::PiWriteArgs(args) => (
            "Write",
            json!({"file_path": args.path, "content": args.content}),
        ),
        Request::PiEditArgs(args) => ("Write", json!({"file_path": args.path})),
        Request::DeleteArgs(args) => ("Delete", json!({"file_path": args.path})),
        Request::DiagnosticsArgs(args) => ("ReadLints", json!({"file_path": args.path})),
        Request::FetchArgs(args) => ("Fetch", json!({"url": args.url})),
        Request::GitDiffRequest(_) => ("GitDiff", json!({})),
        Request::ListMcpResourcesExecArgs(args) => {
            ("ListMcpResources", json!({"server": args.server}))
        }
        Request::ReadMcpResourceExecArgs(args) => (
            "FetchMcpResource",
            json!({"server": args.server, "uri": args.uri, "download_path": args.download_path}),
        ),
        _ => return None,
    })
}

fn call_id(request: &Request) -> &str {
    match request {
        Request::ReadArgs(args) | Request::RedactedReadArgs(args) => &args.tool_call_id,
        Request::ShellArgs(args)
        | Request::ShellStreamArgs(args)
        | Request::MiniSweAgentBashArgs(args) => &args.tool_call_id,
        Request::BackgroundShellSpawnArgs(args) => &args.tool_call_id,
        Request::LsArgs(args) => &args.tool_call_id,
        Request::GrepArgs(args) => &args.tool_call_id,
        Request::WriteArgs(args) => &args.tool_call_id,
        Request::DeleteArgs(args) => &args.tool_call_id,
        Request::DiagnosticsArgs(args) => &args.tool_call_id,
        Request::FetchArgs(args) => &args.tool_call_id,
        Request::ReadMcpResourceExecArgs(args) => &args.tool_call_id,
        _ => "",
    }
}
