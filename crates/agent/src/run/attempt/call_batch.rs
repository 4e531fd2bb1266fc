//! Which calls of host tools are offered together: those that Cursor requests in parallel.
//!
//! Cursor announces a call before it requests it. A batch therefore ends when every announced call
//! of a host tool has been requested and everything that has arrived is handled. If a call was not
//! announced, the next one may not be either: then no further one must follow within [`QUIET`]. It
//! lasts [`MAX_WAIT`] at most.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::{Attempt, AttemptEvent, CloseReason, MAX_OUTBOX};
use crate::effect_log::call_id;
use crate::run::event::RunEvent;
use agent_tools::ExecRequest;
use agent_tools::bridge::tool_set::PROVIDER;
use cursor_proto::agent::v1::{ToolCall, ToolCallStartedUpdate, tool_call};

/// How long no further call must follow one that was not announced. Parallel calls are in the network
/// together, so this covers only the time in which a busy machine passes them on. Such a call waits
/// for it, so it is short.
const QUIET: Duration = Duration::from_millis(2);
/// How long a batch waits for calls that were announced, and how long it goes on at most.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// The most announced calls that are remembered.
const MAX_ANNOUNCED: usize = 256;

/// The calls and completed tools that were emitted since the last [`RunEvent::BatchEnd`].
#[derive(Debug, Default)]
pub(super) struct CallBatch {
    /// Whether there is one that may be one of several.
    is_open: bool,
    /// When its first and its latest call of a host tool were emitted.
    calls: Option<(Instant, Instant)>,
    /// Calls of host tools that were announced and not requested yet.
    announced: BTreeSet<String>,
    /// Other calls that were announced: the host may execute them too, but need not.
    announced_others: BTreeSet<String>,
    /// The latest exec requests that were announced.
    announced_execs: BTreeSet<u32>,
    /// Whether one of its calls was not announced.
    has_unannounced: bool,
}

impl CallBatch {
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Records an event that was emitted.
    pub(super) fn record(&mut self, event: &RunEvent, now: Instant) {
        match event {
            RunEvent::HostCall(_) => {
                self.is_open = true;
                let first = self.calls.map_or(now, |(first, _)| first);
                self.calls = Some((first, now));
            }
            RunEvent::ToolCompleted(done) => {
                self.is_open = true;
                self.announced.remove(&done.call_id);
                self.announced_others.remove(&done.call_id);
            }
            RunEvent::ToolStarted(started) => {
                let is_host_call = is_host_call(started);
                let announced = if is_host_call {
                    &mut self.announced
                } else {
                    &mut self.announced_others
                };
                if announced.len() < MAX_ANNOUNCED {
                    announced.insert(started.call_id.clone());
                }
                if let Some((_, latest)) = &mut self.calls
                    && is_host_call
                {
                    *latest = now;
                }
            }
            _ => {}
        }
    }

    /// Records an exec request.
    pub(super) fn requested(&mut self, exec: u32, request: &ExecRequest) {
        let id = call_id(request);
        if self.announced.remove(id) || self.announced_others.remove(id) {
            self.announced_execs.insert(exec);
        }
        if self.announced_execs.len() > MAX_ANNOUNCED {
            self.announced_execs.pop_first();
        }
    }

    /// Records that the host is to execute a call for an exec request.
    pub(super) fn delegated(&mut self, exec: u32) {
        self.has_unannounced |= !self.announced_execs.contains(&exec);
    }

    /// Returns when the batch ends if nothing else happens; `None` if it ends now.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        let (first, latest) = self.calls?;
        let latest_end = first + MAX_WAIT;
        let quiet = if self.has_unannounced {
            latest + QUIET
        } else {
            latest
        };
        if self.announced.is_empty() {
            Some(latest_end.min(quiet))
        } else {
            Some(latest_end)
        }
    }

    /// Starts the next batch.
    fn end(&mut self) {
        (self.is_open, self.calls, self.has_unannounced) = (false, None, false);
    }
}

/// Returns whether a call is one of a host tool, which Cursor will request here.
fn is_host_call(started: &ToolCallStartedUpdate) -> bool {
    let Some(ToolCall {
        tool: Some(tool_call::Tool::McpToolCall(call)),
        ..
    }) = &started.tool_call
    else {
        return false;
    };
    let args = call.args.as_ref();
    args.is_some_and(|args| args.provider_identifier == PROVIDER)
}

impl Attempt<'_> {
    /// Handles everything that has already arrived, without waiting for more, and then emits
    /// [`RunEvent::BatchEnd`] if the batch is complete.
    pub(super) async fn end_batch(&mut self) -> Option<CloseReason> {
        let mut reason = None;
        // The connection's task passes on what it has read when it gets a turn.
        for _ in 0..2 {
            tokio::task::yield_now().await;
            while reason.is_none() && !self.pending.is_full() && self.outbox_bytes < MAX_OUTBOX {
                let Some(received) = self.stream.incoming.next().now_or_never() else {
                    break;
                };
                reason = self.handle(AttemptEvent::Received(received));
            }
        }
        let is_complete = self.batch.ends_at().is_none_or(|at| at <= Instant::now());
        if reason.is_none() && is_complete {
            self.batch.end();
            self.emit(RunEvent::BatchEnd);
        }
        reason
    }

    /// Emits the end of a batch that the end of the stream left open. The end of the run ends the
    /// batch too.
    pub(super) fn close_batch(&mut self, reason: &CloseReason) {
        if self.batch.is_open() && !matches!(reason, CloseReason::Finished | CloseReason::Cancelled)
        {
            self.batch.end();
            self.emit(RunEvent::BatchEnd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cursor_proto::agent::v1::{McpArgs, McpToolCall, ReadArgs, ToolCallCompletedUpdate};

    fn announce(batch: &mut CallBatch, id: &str, provider: &str, now: Instant) {
        let args = McpArgs {
            provider_identifier: provider.into(),
            ..McpArgs::default()
        };
        let call = ToolCall {
            tool: Some(tool_call::Tool::McpToolCall(McpToolCall {
                args: Some(args),
                ..McpToolCall::default()
            })),
            ..ToolCall::default()
        };
        let started = ToolCallStartedUpdate {
            call_id: id.into(),
            tool_call: Some(call),
            ..ToolCallStartedUpdate::default()
        };
        batch.record(&RunEvent::ToolStarted(Box::new(started)), now);
    }

    fn request(batch: &mut CallBatch, id: &str) {
        let request = ExecRequest::McpArgs(McpArgs {
            tool_call_id: id.into(),
            ..McpArgs::default()
        });
        let exec = id.bytes().map(u32::from).sum();
        batch.requested(exec, &request);
        batch.delegated(exec);
    }

    #[test]
    fn a_batch_waits_for_the_calls_that_were_announced() {
        let now = Instant::now();
        let mut batch = CallBatch {
            is_open: true,
            calls: Some((now, now)),
            ..CallBatch::default()
        };
        request(&mut batch, "a");
        assert_eq!(batch.ends_at(), Some(now + QUIET));
        announce(&mut batch, "other", "another server", now);
        assert_eq!(batch.ends_at(), Some(now + QUIET), "not requested here");
        let later = now + QUIET / 2;
        announce(&mut batch, "b", PROVIDER, later);
        assert_eq!(batch.ends_at(), Some(now + MAX_WAIT));
        request(&mut batch, "b");
        assert_eq!(batch.ends_at(), Some(later + QUIET));
        batch.end();
        assert_eq!((batch.is_open(), batch.ends_at()), (false, None));
    }

    /// Regression: a server that announced a call every millisecond kept the first one from the host.
    #[test]
    fn a_batch_ends_although_calls_keep_coming() {
        let now = Instant::now();
        let mut batch = CallBatch {
            is_open: true,
            calls: Some((now, now)),
            has_unannounced: true,
            ..CallBatch::default()
        };
        for (id, after) in [("b", QUIET / 2), ("c", MAX_WAIT - QUIET / 2)] {
            announce(&mut batch, id, PROVIDER, now + after);
            assert_eq!(batch.ends_at(), Some(now + MAX_WAIT));
            request(&mut batch, id);
        }
        assert_eq!(batch.ends_at(), Some(now + MAX_WAIT));
    }

    #[test]
    fn a_batch_of_announced_calls_ends_with_the_last_of_them() {
        let now = Instant::now();
        let mut batch = CallBatch::default();
        for id in ["a", "b"] {
            announce(&mut batch, id, PROVIDER, now);
        }
        announce(&mut batch, "shell", "another server", now);
        batch.calls = Some((now, now));
        request(&mut batch, "a");
        assert_eq!(batch.ends_at(), Some(now + MAX_WAIT));
        request(&mut batch, "b");
        assert_eq!(batch.ends_at(), Some(now));
        request(&mut batch, "shell");
        assert_eq!(batch.ends_at(), Some(now), "it was announced too");
        batch.requested(1, &ExecRequest::ReadArgs(ReadArgs::default()));
        assert_eq!(batch.ends_at(), Some(now), "not a call for the host");
        request(&mut batch, "c");
        assert_eq!(
            batch.ends_at(),
            Some(now + QUIET),
            "more like it may follow"
        );
        batch.end();
        batch.calls = Some((now, now));
        assert_eq!(batch.ends_at(), Some(now), "the next batch");
    }

    #[test]
    fn a_completed_tool_ends_its_batch_at_once() {
        let now = Instant::now();
        let mut batch = CallBatch::default();
        announce(&mut batch, "a", PROVIDER, now);
        assert!(!batch.is_open());
        let done = ToolCallCompletedUpdate {
            call_id: "a".into(),
            ..ToolCallCompletedUpdate::default()
        };
        batch.record(&RunEvent::ToolCompleted(Box::new(done)), now);
        assert!(batch.is_open() && batch.announced.is_empty());
        assert_eq!(batch.ends_at(), None);
    }
}
