//! Executes Cursor's own tools with the host's tools: when the model asks for a read, the host
//! runs its `read`, with its own permissions and display.
//!
//! A request becomes a call of the host ([`translate_request`]). Which tool is called, and how, comes
//! from the table of known hosts' tools (`known_tools.json`, [`tool_shapes`]), or from the tool's name
//! and schema ([`tool_inference`]). The result is converted to the text that pi's tool would
//! return ([`result_formats`]), and that becomes the typed result Cursor expects
//! ([`translate_result`]). A request without a suitable host tool is refused with the reason.

#[cfg(test)]
mod client_tests;
mod codex_patch;
mod host_tool_set;
mod parse_listing;
mod paths;
mod read_cache;
mod result_formats;
mod shell_recipes;
mod text_edits;
mod tool_inference;
mod tool_shapes;
mod translate_request;
mod translate_result;

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bridge::{Bridge, HostResult};
use crate::permission::CurrentTools;
use crate::policy::{NativeTool, ToolDecision};
use crate::prompts::refusals;
use crate::rejection::{self, Rejector};
use crate::shell::command_policy::{self, CommandDenied};
use crate::workspace::path_guard::PathGuard;
use crate::{ExecRequest, ExecTask, Executor, ReplySender};
pub use host_tool_set::HostToolSet;
use parse_listing::SearchTarget;
use paths::PathResolver;
pub use read_cache::ReadCache;
use result_formats::ResultReader;
use tool_shapes::PollCall;
use translate_request::{CallContext, HostToolCall};

/// Maximum size in bytes of a file whose change is sent as an edit; a larger one is written
/// whole.
const MAX_EDITED: u64 = 1024 * 1024;

/// An executor that uses the host's tools.
pub struct HostDelegate {
    bridge: Arc<Bridge>,
    current: CurrentTools,
    resolver: PathResolver,
    refuse: Arc<Rejector>,
    seen: Arc<ReadCache>,
    guard: Arc<PathGuard>,
}

impl HostDelegate {
    /// Creates an executor that uses the host's active tools and knows what they have shown
    /// before.
    pub fn new(
        bridge: Arc<Bridge>,
        current: CurrentTools,
        seen: Arc<ReadCache>,
        refuse: Rejector,
        guard: Arc<PathGuard>,
    ) -> Self {
        Self {
            bridge,
            current,
            resolver: PathResolver {
                workspace: refuse.facts.workspace.clone(),
                home: refuse.facts.home.clone(),
            },
            refuse: Arc::new(refuse),
            seen,
            guard,
        }
    }

    /// Returns whether a write would lose content that the host's `read` did not show.
    fn would_lose_content(&self, request: &ExecRequest) -> bool {
        let ExecRequest::WriteArgs(args) = request else {
            return false;
        };
        self.seen.is_part(&self.resolver.of(&args.path))
    }

    /// Returns what a search is executed on, because it decides how the host names files.
    async fn target(&self, request: &ExecRequest) -> SearchTarget {
        let ExecRequest::GrepArgs(args) = request else {
            return SearchTarget::Folder;
        };
        let place = self.resolver.of(args.path.as_deref().unwrap_or_default());
        let metadata = tokio::fs::metadata(place).await;
        if metadata.is_ok_and(|metadata| metadata.is_file()) {
            SearchTarget::File
        } else {
            SearchTarget::Folder
        }
    }

    /// Returns the current text of the file that a request writes: what the host has shown of it,
    /// or the file on disk if reads are executed locally, because host and sidecar then share the
    /// files.
    async fn text_before(&self, request: &ExecRequest) -> Option<String> {
        let ExecRequest::WriteArgs(args) = request else {
            return None;
        };
        let path = self.resolver.of(&args.path);
        if let Some(text) = self.seen.text(&path) {
            return Some(text);
        }
        if self.current.borrow().decisions.of(NativeTool::Read) != ToolDecision::Local {
            return None;
        }
        let about = tokio::fs::metadata(&path).await.ok()?;
        if !about.is_file() || about.len() > MAX_EDITED {
            return None;
        }
        tokio::fs::read_to_string(&path).await.ok()
    }

    /// Checks the request, looks up what the host's call depends on, then lets the host execute
    /// it. Commands forbidden by the administrator and protected paths are refused.
    async fn check_and_execute(
        self: Arc<Self>,
        request: ExecRequest,
        replies: ReplySender,
        abort: CancellationToken,
    ) -> Result<(), crate::ExecError> {
        if let Some(args) = command_policy::command(&request)
            && let Some(forbidden) = CommandDenied::of(args).await
        {
            for reply in forbidden.replies(request) {
                replies.send(reply).await;
            }
            return Ok(());
        }
        if let Some(reason) = self.protected(&request).await {
            replies.send(rejection::refusal(request, reason)?).await;
            return Ok(());
        }
        let before = self.text_before(&request).await;
        let work = self.execute_on_host(request, before, replies.clone(), abort);
        if let Some(call) = work.call {
            replies.call(call).await;
        }
        work.done.await
    }

    /// Returns why a request is refused even though the host could execute it: it would change a
    /// protected path or access credentials.
    async fn protected(&self, request: &ExecRequest) -> Option<String> {
        let (path, changes) = touched(request)?;
        // The host ignores an `@` before a path.
        let paths =
            [path, path.strip_prefix('@').unwrap_or(path)].map(|path| self.resolver.of(path));
        let guard = Arc::clone(&self.guard);
        let check = move || {
            paths.iter().find_map(|path| {
                let verdict = if changes {
                    guard.host_change(path)
                } else {
                    guard.host_read(path)
                };
                verdict.err().map(|refusal| refusal.to_string())
            })
        };
        let checked = tokio::task::spawn_blocking(check).await;
        checked.unwrap_or_else(|_| Some(refusals::PATH_NOT_CHECKED.into()))
    }

    async fn refuse_loss(
        request: ExecRequest,
        replies: ReplySender,
    ) -> Result<(), crate::ExecError> {
        let reason = refusals::PARTLY_READ;
        replies
            .send(rejection::refusal(request, reason.into())?)
            .await;
        Ok(())
    }
}

/// Returns the path that a request names, and whether the request changes it. Has no default arm,
/// because a path that is not named here is not checked before the host uses it.
fn touched(request: &ExecRequest) -> Option<(&str, bool)> {
    Some(match request {
        ExecRequest::WriteArgs(args) => (&args.path, true),
        ExecRequest::PiWriteArgs(args) => (&args.path, true),
        ExecRequest::PiEditArgs(args) => (&args.path, true),
        ExecRequest::DeleteArgs(args) => (&args.path, true),
        ExecRequest::ReadArgs(args) => (&args.path, false),
        ExecRequest::PiReadArgs(args) => (&args.path, false),
        ExecRequest::LsArgs(args) => (&args.path, false),
        ExecRequest::PiLsArgs(args) => (args.path.as_deref()?, false),
        ExecRequest::GrepArgs(args) => (args.path.as_deref()?, false),
        ExecRequest::PiGrepArgs(args) => (args.path.as_deref()?, false),
        ExecRequest::PiFindArgs(args) => (args.path.as_deref()?, false),
        ExecRequest::ReadMcpResourceExecArgs(_)
        | ExecRequest::ShellArgs(_)
        | ExecRequest::ShellStreamArgs(_)
        | ExecRequest::BackgroundShellSpawnArgs(_)
        | ExecRequest::WriteShellStdinArgs(_)
        | ExecRequest::ForceBackgroundShellArgs(_)
        | ExecRequest::MiniSweAgentBashArgs(_)
        | ExecRequest::PiBashArgs(_)
        | ExecRequest::FetchArgs(_)
        | ExecRequest::GitDiffRequest(_)
        | ExecRequest::DiagnosticsArgs(_)
        | ExecRequest::RequestContextArgs(_)
        | ExecRequest::McpStateExecArgs(_)
        | ExecRequest::McpArgs(_)
        | ExecRequest::ListMcpResourcesExecArgs(_)
        | ExecRequest::RedactedReadArgs(_)
        | ExecRequest::ExecuteHookArgs(_)
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

impl Executor for HostDelegate {
    fn execute(
        self: Arc<Self>,
        request: ExecRequest,
        replies: ReplySender,
        abort: CancellationToken,
    ) -> ExecTask {
        if self.would_lose_content(&request) {
            return ExecTask {
                done: Box::pin(Self::refuse_loss(request, replies)),
                call: None,
            };
        }
        let in_doubt = command_policy::command(&request).is_some_and(command_policy::is_in_doubt);
        if in_doubt || touched(&request).is_some() {
            return ExecTask {
                done: Box::pin(self.check_and_execute(request, replies, abort)),
                call: None,
            };
        }
        self.execute_on_host(request, None, replies, abort)
    }
}

impl HostDelegate {
    /// Lets the host execute a request.
    fn execute_on_host(
        self: Arc<Self>,
        request: ExecRequest,
        before: Option<String>,
        replies: ReplySender,
        abort: CancellationToken,
    ) -> ExecTask {
        let current = Arc::clone(&self.current.borrow());
        let around = CallContext {
            tools: &current.host,
            workspace: &self.resolver.workspace,
            absolute: &|path| self.resolver.of(path),
            before: before.as_deref(),
        };
        let Some(planned) = translate_request::call(&request, &around) else {
            return Arc::clone(&self.refuse).execute(request, replies, abort);
        };
        let (tool, arguments) = (&planned.tool, planned.arguments);
        let (call, answer) = self.bridge.direct(tool, arguments, abort.clone());
        let started = Instant::now();
        let done = async move {
            let mut result = answer.await;
            if let Some(poll) = &planned.poll {
                result = self.poll(poll, result, &replies, abort.clone()).await;
            }
            let mut reader = planned.reader;
            if reader.refers_to_an_earlier_read(&result)
                && let Some(again) = self.read_again(&request, &reader, &current.host)
            {
                let (call, answer) = self.bridge.direct(&again.tool, again.arguments, abort);
                replies.call(call).await;
                (reader, result) = (again.reader, answer.await);
            }
            let result = reader.read(result);
            self.seen.note(&request, &result, &self.resolver);
            let (target, took) = (self.target(&request).await, started.elapsed());
            for reply in translate_result::replies(request, result, &self.resolver, target, took)? {
                replies.send(reply).await;
            }
            Ok(())
        };
        ExecTask {
            done: Box::pin(done),
            call: Some(call),
        }
    }

    fn read_again(
        &self,
        request: &ExecRequest,
        first: &ResultReader,
        tools: &HostToolSet,
    ) -> Option<HostToolCall> {
        let around = CallContext {
            tools,
            workspace: &self.resolver.workspace,
            absolute: &|path| self.resolver.of(path),
            before: None,
        };
        translate_request::read_again(request, first, &around)
    }

    /// Asks the host for the rest of a command's output until the command has ended.
    async fn poll(
        &self,
        poll: &PollCall,
        mut result: HostResult,
        replies: &ReplySender,
        abort: CancellationToken,
    ) -> HostResult {
        let mut output = String::new();
        while let Some(session) = result_formats::running_session(&result) {
            output.push_str(&result_formats::output_so_far(&result));
            let arguments = poll.arguments(&session);
            let (call, answer) = self.bridge.direct(&poll.tool, arguments, abort.clone());
            replies.call(call).await;
            result = answer.await;
        }
        result_formats::with_output_before(&output, result)
    }
}
