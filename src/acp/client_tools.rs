//! Tools that the client executes: its file system and its terminals.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_client_protocol::JsonRpcRequest;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, CreateTerminalRequest, Diff, KillTerminalRequest, ReadTextFileRequest,
    ReleaseTerminalRequest, SessionId, SessionNotification, SessionUpdate, Terminal, TerminalId,
    TerminalOutputRequest, ToolCall, ToolCallContent, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields, WaitForTerminalExitRequest, WriteTextFileRequest,
};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::Connection;
use super::history::{StoredCall, StoredContent};
use super::permissions::{RememberedPermissions, new_call};
use super::tool_call_display::ToolCallView;
use agent::conversation::transcript::Tool;
use agent_tools::policy::{ExecutedBy, HostPolicy, NativeTool};

/// How much output of a command the client keeps.
const MAX_OUTPUT: u64 = 1024 * 1024;
/// The largest image that is read.
const MAX_IMAGE: u64 = 16 * 1024 * 1024;
/// How long the output of a cancelled command is waited for.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
const CANCELLED: &str = "The user cancelled this.";

/// Returns the policy: the client executes what it offers. Reading and searching needs no
/// permission, everything else is asked for.
pub(super) fn native_policy(client: &ClientCapabilities) -> HostPolicy {
    let by_host = |offered: bool, otherwise| if offered { ExecutedBy::Host } else { otherwise };
    let local = [
        NativeTool::Ls,
        NativeTool::Grep,
        NativeTool::GitDiff,
        NativeTool::Diagnostics,
    ];
    let mut kinds: std::collections::BTreeMap<_, _> =
        local.map(|tool| (tool, ExecutedBy::Local)).into();
    let read = by_host(client.fs.read_text_file, ExecutedBy::Local);
    kinds.insert(NativeTool::Read, read);
    let write = by_host(client.fs.write_text_file, ExecutedBy::Ask);
    kinds.insert(NativeTool::Write, write);
    kinds.insert(NativeTool::Shell, by_host(client.terminal, ExecutedBy::Ask));
    HostPolicy {
        default: Some(ExecutedBy::Ask),
        kinds,
        requires_host_tool: false,
    }
}

/// Returns the client's tools in the form that native requests are translated into.
pub(super) fn tools(client: &ClientCapabilities) -> Vec<Tool> {
    let tool = |name: &str, arguments: &[(&str, &str)]| {
        let properties: serde_json::Map<String, Json> = arguments
            .iter()
            .map(|(name, kind)| ((*name).to_owned(), json!({"type": kind})))
            .collect();
        Tool {
            name: name.to_owned(),
            description: String::new(),
            parameters: json!({"type": "object", "properties": properties}),
        }
    };
    let mut tools = Vec::new();
    if client.fs.read_text_file {
        let arguments = [
            ("path", "string"),
            ("offset", "number"),
            ("limit", "number"),
        ];
        tools.push(tool("read", &arguments));
    }
    if client.fs.write_text_file {
        tools.push(tool("write", &[("path", "string"), ("content", "string")]));
    }
    if client.terminal {
        let arguments = [("command", "string"), ("timeout", "number")];
        tools.push(tool("bash", &arguments));
    }
    tools
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallResult {
    pub(super) content: Vec<StoredContent>,
    pub(super) is_error: bool,
}

impl CallResult {
    fn done(text: impl Into<String>) -> Self {
        Self {
            content: vec![StoredContent::Text(text.into())],
            is_error: false,
        }
    }

    fn failed(text: impl Into<String>) -> Self {
        Self {
            is_error: true,
            ..Self::done(text)
        }
    }
}

/// Executes calls of a session through the client.
pub(super) struct ClientTools<'a> {
    pub(super) client: &'a Connection,
    pub(super) session: &'a SessionId,
    pub(super) cwd: &'a Path,
    pub(super) shell: Option<&'a Path>,
    /// Cancelled with the prompt; then nothing more is executed and no response is waited for.
    pub(super) cancel: &'a CancellationToken,
}

impl ClientTools<'_> {
    /// Executes a call, and displays it.
    pub(super) async fn execute(
        &self,
        call: &StoredCall,
        permissions: &mut RememberedPermissions,
    ) -> CallResult {
        if self.cancel.is_cancelled() {
            return CallResult::failed(CANCELLED);
        }
        let view = ToolCallView::of_call(&call.name, &call.arguments, self.cwd);
        let path = view.path.clone();
        let mut shown = new_call(&call.id, &view, ToolCallStatus::Pending);
        let result = match (call.name.as_str(), path) {
            ("read", Some(path)) => {
                self.start(shown);
                self.read(&path, &call.arguments).await
            }
            ("write", Some(path)) => {
                let content = call.arguments["content"].as_str().unwrap_or_default();
                let before = self.read_text(&path).await.ok();
                let diff = Diff::new(path.clone(), content).old_text(before);
                shown = shown.content(vec![ToolCallContent::Diff(diff)]);
                self.start(shown.clone());
                self.permitted(NativeTool::Write, &shown, permissions, async {
                    let request = WriteTextFileRequest::new(self.session.clone(), path, content);
                    match self.ask(request).await {
                        Ok(_) => CallResult::done("The file was written."),
                        Err(problem) => CallResult::failed(problem),
                    }
                })
                .await
            }
            ("bash", _) => {
                self.start(shown.clone());
                let run = self.run(&call.id, &call.arguments);
                self.permitted(NativeTool::Shell, &shown, permissions, run)
                    .await
            }
            (other, _) => {
                self.start(shown);
                CallResult::failed(format!("the client has no tool {other}"))
            }
        };
        self.finish(call, &result);
        result
    }

    fn notify(&self, update: SessionUpdate) {
        // It fails only if the connection has ended.
        let notification = SessionNotification::new(self.session.clone(), update);
        let _ = self.client.send_notification(notification);
    }

    fn start(&self, call: ToolCall) {
        self.notify(SessionUpdate::ToolCall(call));
    }

    fn update(&self, id: &str, fields: ToolCallUpdateFields) {
        let update = ToolCallUpdate::new(id.to_owned(), fields);
        self.notify(SessionUpdate::ToolCallUpdate(update));
    }

    /// Displays the end of a call. Diffs and terminals stay as they are; the text of a file that
    /// was read is not repeated.
    fn finish(&self, call: &StoredCall, result: &CallResult) {
        let mut fields = ToolCallUpdateFields::new().status(if result.is_error {
            ToolCallStatus::Failed
        } else {
            ToolCallStatus::Completed
        });
        if let (true, Some(StoredContent::Text(text))) = (result.is_error, result.content.first())
            && call.name != "bash"
        {
            fields = fields.content(vec![ToolCallContent::from(text.clone())]);
        }
        self.update(&call.id, fields);
    }

    /// Executes something if the user permits it.
    async fn permitted(
        &self,
        tool: NativeTool,
        call: &ToolCall,
        permissions: &mut RememberedPermissions,
        work: impl Future<Output = CallResult>,
    ) -> CallResult {
        let deciding = permissions.is_allowed(tool, call, self.client, self.session);
        let allowed = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return CallResult::failed(CANCELLED),
            allowed = deciding => allowed,
        };
        if !allowed {
            return CallResult::failed("The user declined this; ask before you try again.");
        }
        let fields = ToolCallUpdateFields::new().status(ToolCallStatus::InProgress);
        self.update(&call.tool_call_id.0, fields);
        work.await
    }

    /// Sends a request to the client and returns its response, or why there is none.
    async fn ask<R: JsonRpcRequest>(&self, request: R) -> Result<R::Response, String> {
        if self.cancel.is_cancelled() {
            return Err(CANCELLED.into());
        }
        let sent = self.client.send_request(request);
        let cancellation = sent.cancellation_handle();
        tokio::select! {
            biased;
            response = sent.block_task() => response.map_err(|error| error.message),
            () = self.cancel.cancelled() => {
                // It fails only if the connection has ended.
                let _ = cancellation.cancel();
                Err(CANCELLED.into())
            }
        }
    }

    async fn read_text(&self, path: &Path) -> Result<String, String> {
        let request = ReadTextFileRequest::new(self.session.clone(), path.to_owned());
        self.ask(request).await.map(|read| read.content)
    }

    /// Reads a file through the client, which has unsaved changes. Images are read here, because
    /// clients read text.
    async fn read(&self, path: &Path, arguments: &Json) -> CallResult {
        if let Some(mime_type) = image_type(path) {
            return read_image(path.to_owned(), mime_type).await;
        }
        let number = |name: &str| {
            let number = arguments[name].as_u64();
            number.and_then(|number| u32::try_from(number).ok())
        };
        let mut request = ReadTextFileRequest::new(self.session.clone(), path.to_owned());
        request.line = number("offset");
        request.limit = number("limit");
        match self.ask(request).await {
            Ok(read) => CallResult::done(read.content),
            Err(problem) => {
                let missing = !self.cancel.is_cancelled() && !path.exists();
                CallResult::failed(if missing {
                    format!("ENOENT: no such file: {}", path.display())
                } else {
                    problem
                })
            }
        }
    }

    /// Starts a command. One that starts after the prompt was cancelled is ended.
    async fn create_terminal(&self, request: CreateTerminalRequest) -> Result<TerminalId, String> {
        if self.cancel.is_cancelled() {
            return Err(CANCELLED.into());
        }
        let mut creating = Box::pin(self.client.send_request(request).block_task());
        let created = tokio::select! {
            biased;
            created = &mut creating => created,
            () = self.cancel.cancelled() => {
                let (client, session) = (self.client.clone(), self.session.clone());
                tokio::spawn(async move {
                    if let Ok(created) = creating.await {
                        end_terminal(client, session, created.terminal_id).await;
                    }
                });
                return Err(CANCELLED.into());
            }
        };
        let created = created.map_err(|error| error.message)?;
        Ok(created.terminal_id)
    }

    /// Runs a command in a terminal of the client.
    async fn run(&self, id: &str, arguments: &Json) -> CallResult {
        let command = arguments["command"].as_str().unwrap_or_default();
        let shell = self.shell.map_or("sh".into(), Path::to_string_lossy);
        let mut request = CreateTerminalRequest::new(self.session.clone(), shell);
        request.args = vec!["-c".into(), command.into()];
        request.cwd = Some(self.cwd.to_owned());
        request.output_byte_limit = Some(MAX_OUTPUT);
        let terminal = match self.create_terminal(request).await {
            Ok(terminal) => terminal,
            Err(problem) => return CallResult::failed(problem),
        };
        let shown = Terminal::new(terminal.clone());
        self.update(
            id,
            ToolCallUpdateFields::new().content(vec![ToolCallContent::Terminal(shown)]),
        );
        let limit = arguments["timeout"].as_f64().map(Duration::from_secs_f64);
        let session = || self.session.clone();
        let exit = WaitForTerminalExitRequest::new(session(), terminal.clone());
        let ended = tokio::select! {
            exit = self.client.send_request(exit).block_task() => TerminalEnd::Exited(
                exit.ok().and_then(|exit| exit.exit_status.exit_code),
            ),
            () = self.cancel.cancelled() => TerminalEnd::Cancelled,
            () = at(limit) => TerminalEnd::TimedOut,
        };
        let reading = async {
            if ended == TerminalEnd::Cancelled || ended == TerminalEnd::TimedOut {
                let kill = KillTerminalRequest::new(session(), terminal.clone());
                let _ = self.client.send_request(kill).block_task().await;
            }
            let output = TerminalOutputRequest::new(session(), terminal.clone());
            let output = self.client.send_request(output).block_task().await;
            output.map(|output| output.output).unwrap_or_default()
        };
        let cancelled = async {
            self.cancel.cancelled().await;
            tokio::time::sleep(LAST_OUTPUT).await;
        };
        let output = tokio::select! {
            biased;
            output = reading => output,
            () = cancelled => String::new(),
        };
        let release = ReleaseTerminalRequest::new(session(), terminal);
        self.client.send_request(release).detach();
        let output = output.trim_end_matches('\n');
        match ended {
            TerminalEnd::Exited(Some(0)) => CallResult::done(output),
            TerminalEnd::Exited(Some(code)) => {
                CallResult::failed(format!("{output}\n\nCommand exited with code {code}"))
            }
            TerminalEnd::Exited(None) | TerminalEnd::Cancelled => {
                CallResult::failed(format!("{output}\n\nCommand aborted"))
            }
            TerminalEnd::TimedOut => {
                let seconds = limit.unwrap_or_default().as_secs_f64();
                let text = format!("{output}\n\nCommand timed out after {seconds} seconds");
                CallResult::failed(text)
            }
        }
    }
}

/// Ends a command that the client started after its prompt was cancelled.
async fn end_terminal(client: Connection, session: SessionId, terminal: TerminalId) {
    let kill = KillTerminalRequest::new(session.clone(), terminal.clone());
    let _ = client.send_request(kill).block_task().await;
    let release = ReleaseTerminalRequest::new(session, terminal);
    client.send_request(release).detach();
}

/// How a command of the client ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TerminalEnd {
    /// It exited with a code, or a signal ended it.
    Exited(Option<u32>),
    Cancelled,
    TimedOut,
}

/// Resolves after a time; never without one.
async fn at(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

fn image_type(path: &Path) -> Option<&'static str> {
    let extension = path.extension()?.to_str()?.to_lowercase();
    Some(match extension.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        _ => return None,
    })
}

async fn read_image(path: PathBuf, mime_type: &str) -> CallResult {
    let about = tokio::fs::metadata(&path).await;
    if about.is_ok_and(|about| about.len() > MAX_IMAGE) {
        return CallResult::failed("the image is too large");
    }
    match tokio::fs::read(&path).await {
        Ok(bytes) => CallResult {
            content: vec![StoredContent::Image {
                data: BASE64_STANDARD.encode(bytes),
                mime_type: mime_type.to_owned(),
            }],
            is_error: false,
        },
        Err(error) => CallResult::failed(error.to_string()),
    }
}
