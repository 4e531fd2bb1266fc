//! Diagnostic log of the bridge, one JSON line per event, off by default.
//!
//! Only the fields of [`CallLogRecord`] can be logged: names of tools, counts and ids. No field could
//! hold an address, a path, an argument or a result.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::tool_set::{OfferedTool, OfferedTools};

/// The prefix of every line on stderr.
pub const PREFIX: &str = "[pi-cursor-sdk:bridge] ";

/// Whether and where events are logged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CallLogTarget {
    /// Events are not logged.
    #[default]
    Off,
    /// Events are written to stderr.
    Stderr,
    /// Events are written to stderr and appended to a file.
    StderrAnd(PathBuf),
}

impl CallLogTarget {
    /// Logs the event that `record` returns; does not call it when logging is off.
    fn log<'a>(&self, record: impl FnOnce() -> CallLogRecord<'a>) {
        let file = match self {
            Self::Off => return,
            Self::Stderr => None,
            Self::StderrAnd(file) => Some(file.as_path()),
        };
        let Ok(json) = serde_json::to_string(&record()) else {
            return;
        };
        let line = format!("{PREFIX}{json}\n");
        // One write per line, because others write to stderr too. A closed stderr is ignored.
        let _ = std::io::stderr().write_all(line.as_bytes());
        if let Some(Err(error)) = file.map(|file| append(file, &json)) {
            tracing::debug!(%error, "bridge.diagnostics");
        }
    }
}

fn append(file: &Path, json: &str) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    foundation::private_files::owner_only(&mut options);
    let mut file = options.open(file)?;
    file.write_all(format!("{json}\n").as_bytes())
}

/// One logged event.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum CallLogRecord<'a> {
    RunCreated(RunRecord<'a>),
    RunDisposed(RunRecord<'a>),
    RunSkipped {
        #[serde(flatten)]
        run: RunRecord<'a>,
        reason: SkipReason,
    },
    ToolsExposed {
        #[serde(flatten)]
        run: RunRecord<'a>,
        pairs: Vec<Pair>,
    },
    #[serde(rename_all = "camelCase")]
    RunCancelled {
        #[serde(flatten)]
        run: RunRecord<'a>,
        queued_count: usize,
        cancelled_request_count: usize,
    },
    RequestQueued(CallRecord<'a>),
    #[serde(rename_all = "camelCase")]
    RequestResolved {
        #[serde(flatten)]
        request: CallRecord<'a>,
        is_error: bool,
    },
    #[serde(rename_all = "camelCase")]
    RequestRejected {
        #[serde(flatten)]
        request: CallRecord<'a>,
        rejection_kind: Rejection,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RunRecord<'a> {
    run_id: &'a str,
    enabled: bool,
    exposed_tool_count: usize,
    pending_count: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Pair {
    pi_tool_name: String,
    mcp_tool_name: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallRecord<'a> {
    run_id: &'a str,
    bridge_call_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor_mcp_call_id: Option<String>,
    pi_tool_call_id: &'a str,
    mcp_tool_name: &'a str,
    pi_tool_name: Cow<'a, str>,
    pending_count: usize,
}

/// Why a run has no bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SkipReason {
    /// The settings turn the bridge off.
    Disabled,
    /// The host has no tools to offer.
    NoExposedTools,
}

/// Why a call has no result from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Rejection {
    /// The host or the caller cancelled it.
    Cancelled,
    /// The host did not answer before the deadline.
    Error,
}

/// Counts and logs the pending calls of one run's bridge.
#[derive(Debug)]
pub(super) struct CallLog {
    run: String,
    diagnostics: CallLogTarget,
    exposed: usize,
    skipped: Option<SkipReason>,
    pending: AtomicUsize,
}

impl CallLog {
    /// Opens the log of a run and logs which tools it offers, or why none.
    pub(super) fn open(
        run: String,
        diagnostics: CallLogTarget,
        snapshot: &OfferedTools,
        skipped: Option<SkipReason>,
    ) -> Arc<Self> {
        let book = Self {
            run,
            diagnostics,
            exposed: snapshot.tools.len(),
            skipped,
            pending: AtomicUsize::new(0),
        };
        if let Some(reason) = skipped {
            book.diagnostics.log(|| CallLogRecord::RunSkipped {
                run: book.run(),
                reason,
            });
            return Arc::new(book);
        }
        book.diagnostics
            .log(|| CallLogRecord::RunCreated(book.run()));
        let pair = |tool: &OfferedTool| Pair {
            pi_tool_name: foundation::secrets().scrub(&tool.host).into_owned(),
            mcp_tool_name: tool.offered.clone(),
        };
        book.diagnostics.log(|| CallLogRecord::ToolsExposed {
            run: book.run(),
            pairs: snapshot.tools.iter().map(pair).collect(),
        });
        Arc::new(book)
    }

    fn run(&self) -> RunRecord<'_> {
        RunRecord {
            run_id: &self.run,
            enabled: self.skipped != Some(SkipReason::Disabled),
            exposed_tool_count: self.exposed,
            pending_count: self.pending.load(Ordering::Relaxed),
        }
    }

    /// Logs that the run was cancelled while `queued` calls were not yet sent to the host.
    pub(super) fn cancelled(&self, queued: usize) {
        let pending = self.pending.load(Ordering::Relaxed);
        if pending > 0 || queued > 0 {
            self.diagnostics.log(|| CallLogRecord::RunCancelled {
                run: self.run(),
                queued_count: queued,
                cancelled_request_count: pending,
            });
        }
    }

    /// Logs and counts a call that waits for the host.
    pub(super) fn enter(self: &Arc<Self>, call: WaitingCall) -> CallLogEntry {
        self.pending.fetch_add(1, Ordering::Relaxed);
        let entry = CallLogEntry {
            book: Arc::clone(self),
            call,
            settled: false,
        };
        self.diagnostics
            .log(|| CallLogRecord::RequestQueued(entry.request()));
        entry
    }
}

impl Drop for CallLog {
    fn drop(&mut self) {
        if self.skipped.is_none() {
            self.diagnostics
                .log(|| CallLogRecord::RunDisposed(self.run()));
        }
    }
}

/// A call that waits for the host.
#[derive(Debug)]
pub(super) struct WaitingCall {
    /// Its ordinal in the run.
    pub(super) count: u64,
    /// Cursor's id of the call, if it is an MCP call; logged only as a hash.
    pub(super) cursor: Option<String>,
    /// The host's id of the call.
    pub(super) host: String,
    /// The tool's name as offered to Cursor.
    pub(super) offered: String,
    /// The tool's name in the host.
    pub(super) tool: String,
}

/// A pending call in the log, settled exactly once. Dropping it counts as cancellation.
#[derive(Debug)]
pub(super) struct CallLogEntry {
    book: Arc<CallLog>,
    call: WaitingCall,
    settled: bool,
}

impl CallLogEntry {
    /// Records that the host returned a result.
    pub(super) fn resolve(mut self, is_error: bool) {
        self.settle(|request| CallLogRecord::RequestResolved { request, is_error });
    }

    /// Records that there will be no result.
    pub(super) fn reject(mut self, rejection_kind: Rejection) {
        self.settle(|request| CallLogRecord::RequestRejected {
            request,
            rejection_kind,
        });
    }

    fn settle<'a>(&'a mut self, record: impl FnOnce(CallRecord<'a>) -> CallLogRecord<'a>) {
        if !std::mem::replace(&mut self.settled, true) {
            self.book.pending.fetch_sub(1, Ordering::Relaxed);
            self.book.diagnostics.log(|| record(self.request()));
        }
    }

    fn request(&self) -> CallRecord<'_> {
        CallRecord {
            run_id: &self.book.run,
            bridge_call_id: format!("bridge-call-{}", self.call.count),
            cursor_mcp_call_id: self.call.cursor.as_deref().map(hash_id),
            pi_tool_call_id: &self.call.host,
            mcp_tool_name: &self.call.offered,
            pi_tool_name: foundation::secrets().scrub(&self.call.tool),
            pending_count: self.book.pending.load(Ordering::Relaxed),
        }
    }
}

impl Drop for CallLogEntry {
    fn drop(&mut self) {
        let rejection_kind = Rejection::Cancelled;
        self.settle(|request| CallLogRecord::RequestRejected {
            request,
            rejection_kind,
        });
    }
}

fn hash_id(id: &str) -> String {
    let digest = Sha256::digest(id.as_bytes());
    let hex: String = digest
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("cursor-mcp-call-{hex}")
}
