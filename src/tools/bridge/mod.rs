//! The host's tools inside Cursor's run.
//!
//! Cursor calls a tool by the name we offered it under; the call is queued for the host
//! and waits for the host's result. Other MCP clients come in by a run's [`gate`], if the
//! host has asked for its address ([`endpoint`]). This room never executes anything: it
//! names, queues, waits and translates.

pub mod content;
pub mod diagnostics;
pub mod dialog;
pub mod endpoint;
pub mod gate;
pub mod names;
pub mod question;
pub mod schema;
pub mod snapshot;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value as Json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::wire::proto::agent::v1::{
    AskQuestionArgs, AskQuestionResult, McpArgs, McpError, McpResult, McpSuccess, McpToolNotFound,
    McpToolResultContentItem, mcp_result,
};
use crate::wire::value;
use content::Content;
use diagnostics::{Book, Diagnostics, Entry, Rejection, Skipped, Waiting};
use snapshot::{Exposed, Snapshot};

/// What MCP calls a result for programs.
const STRUCTURED: &str = "structuredContent";

/// A call that waits for the host.
#[derive(Debug)]
pub struct HostCall {
    /// Its id: the host's result carries it.
    pub id: String,
    /// The host's name of the tool.
    pub tool: String,
    /// Its arguments, an object.
    pub arguments: Json,
    /// Cursor's own id of it, if Cursor called.
    pub cursor: Option<String>,
    reply: oneshot::Sender<HostResult>,
}

impl HostCall {
    /// A call and where its result will appear.
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

    /// Whether nobody waits for the result any more: aborted, or past its deadline.
    pub fn is_void(&self) -> bool {
        self.reply.is_closed()
    }

    /// Resolves when nobody waits for the result any more.
    pub async fn voided(&mut self) {
        self.reply.closed().await;
    }

    /// Answers the call. A caller that is gone takes nothing.
    pub fn answer(self, result: HostResult) {
        let _ = self.reply.send(result);
    }
}

/// What the host says of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct HostResult {
    /// What the tool gave.
    pub content: Vec<Content>,
    /// Whether it failed.
    pub verdict: Verdict,
    /// What the host says about it besides, in its own form; `Null` if nothing.
    pub details: Json,
    /// The same for programs, if the tool has it (`structuredContent` in MCP).
    pub structured: Option<Map<String, Json>>,
}

/// Whether a tool did its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It did.
    Done,
    /// It says it failed.
    Failed,
}

impl HostResult {
    /// A result as hosts tell it: pi's tool results, answers to `tool/call`. What a tool gives
    /// for programs may stand beside its content or among its details.
    pub fn read(told: &Json) -> Self {
        let structured = [&told[STRUCTURED], &told["details"][STRUCTURED]];
        Self {
            content: Content::read(&told["content"]),
            verdict: match told["isError"] {
                Json::Bool(true) => Verdict::Failed,
                _ => Verdict::Done,
            },
            structured: structured.into_iter().find_map(Json::as_object).cloned(),
            details: told["details"].clone(),
        }
    }

    /// A failure in words.
    pub fn failed(text: impl Into<String>) -> Self {
        Self {
            content: vec![Content::Text(text.into())],
            verdict: Verdict::Failed,
            details: Json::Null,
            structured: None,
        }
    }
}

/// The tools of one run and the calls Cursor makes to them.
#[derive(Debug)]
pub struct Bridge {
    run: String,
    snapshot: Snapshot,
    deadline: Duration,
    calls: AtomicU64,
    book: Arc<Book>,
}

/// A call that has been queued: what the host is told, where its result will appear, and
/// its line in the book.
struct Queued {
    call: HostCall,
    result: oneshot::Receiver<HostResult>,
    entry: Entry,
}

impl Bridge {
    /// A bridge for the tools of a snapshot. A call waits at most `deadline`.
    pub fn new(snapshot: Snapshot, deadline: Duration, diagnostics: Diagnostics) -> Arc<Self> {
        let skipped = snapshot.tools.is_empty().then_some(Skipped::NoExposedTools);
        Self::make(snapshot, deadline, diagnostics, skipped)
    }

    /// A bridge that was turned off: it has no tools. What it is asked to have called
    /// directly waits all the same.
    pub fn off(deadline: Duration, diagnostics: Diagnostics) -> Arc<Self> {
        let skipped = Some(Skipped::Disabled);
        Self::make(Snapshot::default(), deadline, diagnostics, skipped)
    }

    fn make(
        snapshot: Snapshot,
        deadline: Duration,
        diagnostics: Diagnostics,
        skipped: Option<Skipped>,
    ) -> Arc<Self> {
        let run = format!("cursor-pi-bridge-run-{}", Uuid::new_v4().simple());
        Arc::new(Self {
            book: Book::open(run.clone(), diagnostics, &snapshot, skipped),
            run,
            snapshot,
            deadline,
            calls: AtomicU64::new(0),
        })
    }

    /// The tools.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The run is given up while `queued` calls have not even been offered to the host.
    pub fn cancelled(&self, queued: usize) {
        self.book.cancelled(queued);
    }

    /// Queues a call by its offered name; `None` if there is no such tool.
    fn queue(&self, offered: &str, arguments: Json, cursor: Option<String>) -> Option<Queued> {
        let tool = self.find(offered)?;
        Some(self.enter(&tool.offered, &tool.host, arguments, cursor))
    }

    fn enter(&self, offered: &str, host: &str, arguments: Json, cursor: Option<String>) -> Queued {
        let count = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let id = format!("{}-tool-{count}", self.run);
        let entry = self.book.enter(Waiting {
            count,
            cursor: cursor.clone(),
            host: id.clone(),
            offered: offered.to_owned(),
            tool: host.to_owned(),
        });
        let (mut call, result) = HostCall::new(id, host.to_owned(), content::arguments(arguments));
        call.cursor = cursor.filter(|id| !id.is_empty());
        Queued {
            call,
            result,
            entry,
        }
    }

    /// Has one of the host's tools called by its own name, offered or not.
    pub fn direct(
        &self,
        tool: &str,
        arguments: Json,
        abort: CancellationToken,
    ) -> (HostCall, impl Future<Output = HostResult> + Send + use<>) {
        let Queued {
            call,
            result,
            entry,
        } = self.enter(tool, tool, arguments, None);
        let deadline = self.deadline;
        let answer = async move {
            match waited(result, abort, deadline).await {
                Ok(result) => {
                    entry.resolve(result.verdict);
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

    /// The server may put `mcp_<provider>_` before a tool's name.
    fn find(&self, offered: &str) -> Option<&Exposed> {
        let bare = offered
            .strip_prefix("mcp_")
            .and_then(|rest| rest.strip_prefix(snapshot::PROVIDER)?.strip_prefix('_'));
        [Some(offered), bare]
            .into_iter()
            .flatten()
            .find_map(|name| self.snapshot.tools.iter().find(|tool| tool.offered == name))
    }

    /// Begins what Cursor asks for: the call for the host, and the answer once there is one.
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
            .map(|entry| (entry.key.clone(), value::decode_or_text(&entry.value)))
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
            Some(Queued {
                call,
                result,
                entry,
            }) => (Some(call), Ok((result, entry))),
            None => (None, Err(self.unknown(args))),
        };
        let deadline = self.deadline;
        let answer = async move {
            match waits {
                Ok((result, entry)) => match waited(result, abort, deadline).await {
                    Ok(result) => {
                        entry.resolve(result.verdict);
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

    /// Puts a question to the person, if the host has a tool for that.
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
        let Queued {
            call,
            result,
            entry,
        } = self.queue(&tool.offered, question::arguments(&args), None)?;
        let deadline = self.deadline;
        let result = async move {
            let given = match waited(result, CancellationToken::new(), deadline).await {
                Ok(given) => {
                    entry.resolve(given.verdict);
                    given
                }
                Err(unanswered) => {
                    entry.reject(unanswered.rejection());
                    HostResult::failed("nobody answered")
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
enum Unanswered {
    /// The session let go of it: the turn was given up.
    #[error("the host gave this call up")]
    GivenUp,
    /// The server or the run wants no result any more.
    #[error("the call was cancelled")]
    Cancelled,
    /// It took too long.
    #[error("the host did not answer within {} s", .0.as_secs())]
    TooLate(Duration),
}

impl Unanswered {
    fn rejection(self) -> Rejection {
        match self {
            Self::GivenUp | Self::Cancelled => Rejection::Cancelled,
            Self::TooLate(_) => Rejection::Error,
        }
    }
}

async fn waited(
    result: oneshot::Receiver<HostResult>,
    abort: CancellationToken,
    deadline: Duration,
) -> Result<HostResult, Unanswered> {
    tokio::select! {
        result = result => result.map_err(|_| Unanswered::GivenUp),
        () = abort.cancelled() => Err(Unanswered::Cancelled),
        () = tokio::time::sleep(deadline) => Err(Unanswered::TooLate(deadline)),
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
            is_error: result.verdict == Verdict::Failed,
            structured_content: result.structured.as_ref().map(value::encode_struct),
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
