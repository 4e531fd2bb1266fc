//! The host's tools inside Cursor's run.
//!
//! Cursor calls a tool by the name we offered it under; the call is queued for the host and waits
//! for the host's result. Other MCP clients send [`external_calls`], if the host has
//! requested its address ([`endpoint`]). This module never executes anything: it names, queues,
//! waits and translates.

pub mod call_log;
pub mod content;
pub mod endpoint;
pub mod external_calls;
pub mod names;
pub mod question;
pub mod question_dialog;
pub mod schema_sanitizer;
pub mod tool_set;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value as Json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::prompts::tools;
use call_log::{CallLog, CallLogEntry, CallLogTarget, Rejection, SkipReason, WaitingCall};
use content::Content;
use cursor_proto::agent::v1::{
    AskQuestionArgs, AskQuestionResult, McpArgs, McpError, McpResult, McpSuccess, McpToolNotFound,
    McpToolResultContentItem, mcp_result,
};
use cursor_proto::protobuf_value;
use tool_set::{OfferedTool, OfferedTools};

/// MCP's field for a machine-readable result.
const STRUCTURED: &str = "structuredContent";

/// A call that waits for the host.
#[derive(Debug)]
pub struct HostCall {
    /// Its id, which the host's result repeats.
    pub id: String,
    /// The host's name for the tool.
    pub tool: String,
    /// Its arguments, an object.
    pub arguments: Json,
    /// Cursor's own id of the call, if Cursor made it.
    pub cursor: Option<String>,
    reply: oneshot::Sender<HostResult>,
}

impl HostCall {
    /// Creates a call and the receiver of its result.
    pub fn new(id: String, tool: String, arguments: Json) -> (Self, oneshot::Receiver<HostResult>) {
        let (reply, result) = oneshot::channel();
        let call = Self {
            id,
            tool,
            arguments,
            cursor: None,
            reply,
        };
        (call, result)
    }

    /// Returns whether the result is no longer awaited: cancelled, or past its deadline.
    pub fn is_void(&self) -> bool {
        self.reply.is_closed()
    }

    /// Resolves when the result is no longer awaited.
    pub async fn voided(&mut self) {
        self.reply.closed().await;
    }

    /// Answers the call. The result is dropped if the caller is gone.
    pub fn answer(self, result: HostResult) {
        let _ = self.reply.send(result);
    }
}

/// The host's result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct HostResult {
    /// The content blocks the tool returned.
    pub content: Vec<Content>,
    /// Whether it failed.
    pub is_error: bool,
    /// Further details in the host's own format; `Null` if there are none.
    pub details: Json,
    /// The machine-readable result, if the tool has one (`structuredContent` in MCP).
    pub structured: Option<Map<String, Json>>,
}

impl HostResult {
    /// Parses a host's result: pi's tool results and the answers to `tool/call`. The structured
    /// result may be beside the content or inside `details`.
    pub fn read(result: &Json) -> Self {
        let structured = [&result[STRUCTURED], &result["details"][STRUCTURED]];
        Self {
            content: Content::read(&result["content"]),
            is_error: result["isError"] == Json::Bool(true),
            structured: structured.into_iter().find_map(Json::as_object).cloned(),
            details: result["details"].clone(),
        }
    }

    /// Returns a failed result with this text.
    pub fn failed(text: impl Into<String>) -> Self {
        Self {
            content: vec![Content::Text(text.into())],
            is_error: true,
            details: Json::Null,
            structured: None,
        }
    }
}

/// The tools of one run and Cursor's calls to them.
#[derive(Debug)]
pub struct Bridge {
    run: String,
    snapshot: OfferedTools,
    deadline: Duration,
    calls: AtomicU64,
    log: Arc<CallLog>,
}

/// A queued call: the call for the host, the receiver of its result, and its log entry.
struct QueuedCall {
    call: HostCall,
    result: oneshot::Receiver<HostResult>,
    entry: CallLogEntry,
}

impl Bridge {
    /// Creates a bridge for the tools of a snapshot. A call waits at most `deadline`.
    pub fn new(
        snapshot: OfferedTools,
        deadline: Duration,
        diagnostics: CallLogTarget,
    ) -> Arc<Self> {
        let skipped = snapshot
            .tools
            .is_empty()
            .then_some(SkipReason::NoExposedTools);
        Self::make(snapshot, deadline, diagnostics, skipped)
    }

    /// Creates a bridge that is turned off: it offers no tools. [`Self::direct`] still works.
    pub fn off(deadline: Duration, diagnostics: CallLogTarget) -> Arc<Self> {
        let skipped = Some(SkipReason::Disabled);
        Self::make(OfferedTools::default(), deadline, diagnostics, skipped)
    }

    fn make(
        snapshot: OfferedTools,
        deadline: Duration,
        diagnostics: CallLogTarget,
        skipped: Option<SkipReason>,
    ) -> Arc<Self> {
        let run = format!("cursor-pi-bridge-run-{}", Uuid::new_v4().simple());
        Arc::new(Self {
            log: CallLog::open(run.clone(), diagnostics, &snapshot, skipped),
            run,
            snapshot,
            deadline,
            calls: AtomicU64::new(0),
        })
    }

    /// Returns the offered tools.
    pub fn snapshot(&self) -> &OfferedTools {
        &self.snapshot
    }

    /// Logs that the run was cancelled while `queued` calls were not yet sent to the host.
    pub fn cancelled(&self, queued: usize) {
        self.log.cancelled(queued);
    }

    /// Queues a call by its offered name; returns `None` for an unknown tool.
    fn queue(&self, offered: &str, arguments: Json, cursor: Option<String>) -> Option<QueuedCall> {
        let tool = self.find(offered)?;
        Some(self.enter(&tool.offered, &tool.host, arguments, cursor))
    }

    fn enter(
        &self,
        offered: &str,
        host: &str,
        arguments: Json,
        cursor: Option<String>,
    ) -> QueuedCall {
        let count = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let id = format!("{}-tool-{count}", self.run);
        let entry = self.log.enter(WaitingCall {
            count,
            cursor: cursor.clone(),
            host: id.clone(),
            offered: offered.to_owned(),
            tool: host.to_owned(),
        });
        let (mut call, result) = HostCall::new(id, host.to_owned(), content::arguments(arguments));
        call.cursor = cursor.filter(|id| !id.is_empty());
        QueuedCall {
            call,
            result,
            entry,
        }
    }

    /// Queues a call of one of the host's tools by its own name, offered or not.
    pub fn direct(
        &self,
        tool: &str,
        arguments: Json,
        abort: CancellationToken,
    ) -> (HostCall, impl Future<Output = HostResult> + Send + use<>) {
        let QueuedCall {
            call,
            result,
            entry,
        } = self.enter(tool, tool, arguments, None);
        let deadline = self.deadline;
        let answer = async move {
            match wait_for_result(result, abort, deadline).await {
                Ok(result) => {
                    entry.resolve(result.is_error);
                    result
                }
                Err(unanswered) => {
                    entry.reject(unanswered.rejection());
                    HostResult::failed(unanswered.to_string())
                }
            }
        };
        (call, answer)
    }

    /// Finds an offered tool. The server may put `mcp_<provider>_` before its name.
    fn find(&self, offered: &str) -> Option<&OfferedTool> {
        let bare = offered
            .strip_prefix("mcp_")
            .and_then(|rest| rest.strip_prefix(tool_set::PROVIDER)?.strip_prefix('_'));
        [Some(offered), bare]
            .into_iter()
            .flatten()
            .find_map(|name| self.snapshot.tools.iter().find(|tool| tool.offered == name))
    }

    /// Starts a call from Cursor: returns the call for the host and the future answer.
    pub fn begin(
        &self,
        args: &McpArgs,
        abort: CancellationToken,
    ) -> (
        Option<HostCall>,
        impl Future<Output = McpResult> + Send + use<>,
    ) {
        let arguments: serde_json::Map<String, Json> = args
            .args
            .iter()
            .map(|entry| {
                (
                    entry.key.clone(),
                    protobuf_value::decode_or_text(&entry.value),
                )
            })
            .collect();
        let called = [&args.name, &args.tool_name];
        let found = called
            .into_iter()
            .find(|name| self.find(name).is_some())
            .and_then(|name| {
                let cursor = Some(args.tool_call_id.clone());
                self.queue(name, Json::Object(arguments), cursor)
            });
        let (call, waits) = match found {
            Some(QueuedCall {
                call,
                result,
                entry,
            }) => (Some(call), Ok((result, entry))),
            None => (None, Err(self.unknown(args))),
        };
        let deadline = self.deadline;
        let answer = async move {
            match waits {
                Ok((result, entry)) => match wait_for_result(result, abort, deadline).await {
                    Ok(result) => {
                        entry.resolve(result.is_error);
                        success(result)
                    }
                    Err(unanswered) => {
                        entry.reject(unanswered.rejection());
                        error(&unanswered.to_string())
                    }
                },
                Err(unknown) => unknown,
            }
        };
        (call, answer)
    }

    /// Asks the user a question, if the host has a tool for that.
    pub fn question(
        &self,
        args: AskQuestionArgs,
    ) -> Option<(
        HostCall,
        impl Future<Output = AskQuestionResult> + Send + use<>,
    )> {
        let tool = self
            .snapshot
            .tools
            .iter()
            .find(|tool| tool.host == question::TOOL)?;
        let QueuedCall {
            call,
            result,
            entry,
        } = self.queue(&tool.offered, question::arguments(&args), None)?;
        let deadline = self.deadline;
        let result = async move {
            let given = match wait_for_result(result, CancellationToken::new(), deadline).await {
                Ok(given) => {
                    entry.resolve(given.is_error);
                    given
                }
                Err(unanswered) => {
                    entry.reject(unanswered.rejection());
                    HostResult::failed(tools::NO_ANSWER)
                }
            };
            question::result(&args, given)
        };
        Some((call, result))
    }

    fn unknown(&self, args: &McpArgs) -> McpResult {
        McpResult {
            result: Some(mcp_result::Result::ToolNotFound(McpToolNotFound {
                name: args.name.clone(),
                available_tools: self
                    .snapshot
                    .tools
                    .iter()
                    .map(|tool| tool.offered.clone())
                    .collect(),
            })),
        }
    }
}

/// Why a call has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum NoResult {
    /// The session dropped the call because the turn was cancelled.
    #[error("{}", tools::HOST_CANCELLED)]
    Dropped,
    /// The server or the run no longer needs the result.
    #[error("{}", tools::CALL_CANCELLED)]
    Cancelled,
    /// The host did not answer before the deadline.
    #[error("{}", tools::host_timed_out(*.0))]
    TooLate(Duration),
}

impl NoResult {
    fn rejection(self) -> Rejection {
        match self {
            Self::Dropped | Self::Cancelled => Rejection::Cancelled,
            Self::TooLate(_) => Rejection::Error,
        }
    }
}

async fn wait_for_result(
    result: oneshot::Receiver<HostResult>,
    abort: CancellationToken,
    deadline: Duration,
) -> Result<HostResult, NoResult> {
    tokio::select! {
        // A result that has arrived counts, even if the call was cancelled since.
        biased;
        result = result => result.map_err(|_| NoResult::Dropped),
        () = abort.cancelled() => Err(NoResult::Cancelled),
        () = tokio::time::sleep(deadline) => Err(NoResult::TooLate(deadline)),
    }
}

fn success(result: HostResult) -> McpResult {
    McpResult {
        result: Some(mcp_result::Result::Success(McpSuccess {
            content: result
                .content
                .into_iter()
                .map(|content| McpToolResultContentItem {
                    content: Some(content.proto()),
                })
                .collect(),
            is_error: result.is_error,
            structured_content: result
                .structured
                .as_ref()
                .map(protobuf_value::encode_struct),
        })),
    }
}

fn error(text: &str) -> McpResult {
    McpResult {
        result: Some(mcp_result::Result::Error(McpError {
            error: text.into(),
            ..McpError::default()
        })),
    }
}
