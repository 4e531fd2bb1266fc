//! Calls of the host's tools that do not come from Cursor.
//!
//! Every run has one queue for them, which costs nothing until its address is requested
//! ([`super::endpoint`]). Calls are queued for the session that owns the run, like Cursor's own. The
//! sender waits for the result and never executes anything.

use std::future::Future;
use std::sync::{Arc, Weak};

use serde_json::Value as Json;
use tokio::sync::{OnceCell, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::call_log::Rejection;
use super::endpoint::Address;
use super::{Bridge, HostCall, HostResult, QueuedCall};
use crate::prompts::tools;

/// How many calls of one run the host handles concurrently; further calls wait.
pub const MAX_CONCURRENT_CALLS: usize = 256;

/// The callers' side: calls wait here for their results.
pub struct ExternalCallSender {
    bridge: Arc<Bridge>,
    calls: mpsc::Sender<HostCall>,
    permits: Semaphore,
    over: CancellationToken,
    /// The URL and token with which these tools can be called, once requested.
    pub(super) address: OnceCell<Address>,
}

/// The session's side. Dropping it ends all calls.
pub struct ExternalCallReceiver {
    sender: Arc<ExternalCallSender>,
    calls: mpsc::Receiver<HostCall>,
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExternalCallError {
    /// No tool with this name is offered.
    #[error("{}", tools::no_such_tool(name, known))]
    Unknown {
        /// The name that was called.
        name: String,
        /// The names that can be called.
        known: String,
    },
    /// The run has ended.
    #[error("{}", tools::RUN_ENDED)]
    RunEnded,
    /// The session dropped the call without answering it.
    #[error("{}", tools::HOST_CANCELLED)]
    CallDropped,
    /// The host did not answer before the deadline.
    #[error("{}", tools::host_timed_out(std::time::Duration::from_secs(*.0)))]
    TimedOut(u64),
    /// The caller disconnected.
    #[error("{}", tools::CALLER_CANCELLED)]
    CallerDisconnected,
}

/// Opens the queue of external calls for the tools of a bridge.
pub fn open(bridge: Arc<Bridge>) -> ExternalCallReceiver {
    let (queue, calls) = mpsc::channel(MAX_CONCURRENT_CALLS);
    let sender = ExternalCallSender {
        bridge,
        calls: queue,
        permits: Semaphore::new(MAX_CONCURRENT_CALLS),
        over: CancellationToken::new(),
        address: OnceCell::new(),
    };
    ExternalCallReceiver {
        sender: Arc::new(sender),
        calls,
    }
}

impl ExternalCallSender {
    /// Returns the bridge whose tools can be called.
    pub fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// Returns the token that fires when the run is over.
    pub fn over(&self) -> &CancellationToken {
        &self.over
    }

    /// Lets the host execute a tool; cancelled if `disconnected` completes first.
    pub async fn call(
        &self,
        offered: &str,
        arguments: Json,
        disconnected: impl Future<Output = ()>,
    ) -> Result<HostResult, ExternalCallError> {
        let Some(QueuedCall {
            call,
            result,
            entry,
        }) = self.bridge.queue(offered, arguments, None)
        else {
            return Err(self.unknown(offered));
        };
        let deadline = self.bridge.deadline;
        let answered = async {
            // First come, first served, and the host gets a bounded number of calls.
            let _permit = self
                .permits
                .acquire()
                .await
                .map_err(|_| ExternalCallError::RunEnded)?;
            self.calls
                .send(call)
                .await
                .map_err(|_| ExternalCallError::RunEnded)?;
            result.await.map_err(|_| {
                if self.over.is_cancelled() {
                    ExternalCallError::RunEnded
                } else {
                    ExternalCallError::CallDropped
                }
            })
        };
        let outcome = tokio::select! {
            biased;
            answer = answered => answer,
            () = self.over.cancelled() => Err(ExternalCallError::RunEnded),
            () = disconnected => Err(ExternalCallError::CallerDisconnected),
            () = tokio::time::sleep(deadline) => Err(ExternalCallError::TimedOut(deadline.as_secs())),
        };
        match &outcome {
            Ok(result) => entry.resolve(result.is_error),
            Err(ExternalCallError::TimedOut(_)) => entry.reject(Rejection::Error),
            Err(_) => entry.reject(Rejection::Cancelled),
        }
        outcome
    }

    fn unknown(&self, offered: &str) -> ExternalCallError {
        let tools = &self.bridge.snapshot().tools;
        let known: Vec<&str> = tools.iter().map(|tool| tool.offered.as_str()).collect();
        ExternalCallError::Unknown {
            name: offered.into(),
            known: known.join(", "),
        }
    }
}

impl ExternalCallReceiver {
    /// Returns the callers' side, which lives as long as this one.
    pub fn sender(&self) -> Weak<ExternalCallSender> {
        Arc::downgrade(&self.sender)
    }

    /// Returns the next call; pending forever once closed. Cancel-safe.
    pub async fn next(&mut self) -> HostCall {
        match self.calls.recv().await {
            Some(call) => call,
            None => std::future::pending().await,
        }
    }

    /// Closes the queue: waiting and new calls fail with [`ExternalCallError::RunEnded`].
    pub fn close(&mut self) {
        self.sender.over.cancel();
        self.calls.close();
        while self.calls.try_recv().is_ok() {}
    }
}

impl Drop for ExternalCallReceiver {
    fn drop(&mut self) {
        self.sender.over.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use serde_json::json;

    use super::*;
    use crate::bridge::call_log::CallLogTarget;
    use crate::bridge::content::Content;
    use crate::bridge::tool_set::{HostTool, OfferedTools, ToolFilter};

    fn receiver(deadline: Duration) -> (ExternalCallReceiver, Arc<ExternalCallSender>) {
        let look = HostTool {
            name: "look".into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
            origin: Json::Null,
        };
        let snapshot = OfferedTools::of([&look], &ToolFilter::default());
        let receiver = open(Bridge::new(snapshot, deadline, CallLogTarget::default()));
        let sender = receiver.sender().upgrade().unwrap();
        (receiver, sender)
    }

    fn receiver_with_an_hour() -> (ExternalCallReceiver, Arc<ExternalCallSender>) {
        receiver(Duration::from_secs(3600))
    }

    fn text_result(text: &str) -> HostResult {
        HostResult {
            content: vec![Content::Text(text.into())],
            is_error: false,
            details: Json::Null,
            structured: None,
        }
    }

    #[tokio::test]
    async fn a_call_waits_for_the_hosts_result() {
        let (mut receiver, sender) = receiver_with_an_hour();
        let host = async {
            let call = receiver.next().await;
            assert_eq!((call.tool.as_str(), &call.arguments), ("look", &json!({})));
            call.answer(text_result("42"));
        };
        let (result, ()) = tokio::join!(sender.call("pi__look", Json::Null, pending()), host);
        assert_eq!(result, Ok(text_result("42")));
    }

    #[tokio::test]
    async fn an_unknown_tool_is_refused_by_name() {
        let (_inlet, sender) = receiver_with_an_hour();
        let refused = sender
            .call("look", Json::Null, pending())
            .await
            .unwrap_err();
        insta::assert_snapshot!(refused, @r#"there is no tool "look"; available: pi__look"#);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_past_its_deadline_is_cancelled() {
        let (mut receiver, sender) = receiver(Duration::from_secs(60));
        let refused = sender.call("pi__look", Json::Null, pending()).await;
        assert_eq!(refused, Err(ExternalCallError::TimedOut(60)));
        assert!(receiver.next().await.is_void());
    }

    #[tokio::test]
    async fn a_disconnected_caller_cancels_its_call() {
        let (mut receiver, sender) = receiver_with_an_hour();
        let (leave, left) = tokio::sync::oneshot::channel::<()>();
        let host = async {
            let call = receiver.next().await;
            drop(leave);
            call
        };
        let left = async {
            let _ = left.await;
        };
        let (refused, call) = tokio::join!(sender.call("pi__look", Json::Null, left), host);
        assert_eq!(refused, Err(ExternalCallError::CallerDisconnected));
        assert!(call.is_void());
    }

    #[tokio::test]
    async fn the_end_of_the_run_fails_waiting_and_new_calls() {
        let (mut receiver, sender) = receiver_with_an_hour();
        let end = async {
            let open = receiver.next().await;
            receiver.close();
            open
        };
        let calls = async {
            tokio::join!(
                sender.call("pi__look", Json::Null, pending()),
                sender.call("pi__look", Json::Null, pending()),
            )
        };
        let ((first, second), _open) = tokio::join!(calls, end);
        assert_eq!(
            (first, second),
            (
                Err(ExternalCallError::RunEnded),
                Err(ExternalCallError::RunEnded)
            )
        );
        let late = sender.call("pi__look", Json::Null, pending()).await;
        assert_eq!(late, Err(ExternalCallError::RunEnded));
    }

    /// A call above the limit waits; it is not refused.
    #[tokio::test]
    async fn a_call_above_the_limit_is_executed_next() {
        let (mut receiver, sender) = receiver_with_an_hour();
        let mut waiting = tokio::task::JoinSet::new();
        let call = |sender: &Arc<ExternalCallSender>, n: usize| {
            let sender = Arc::clone(sender);
            async move { sender.call("pi__look", json!({ "n": n }), pending()).await }
        };
        let mut calls = Vec::new();
        for n in 0..MAX_CONCURRENT_CALLS {
            waiting.spawn(call(&sender, n));
            calls.push(receiver.next().await);
        }
        let mut next = std::pin::pin!(call(&sender, MAX_CONCURRENT_CALLS));
        assert!(next.as_mut().now_or_never().is_none(), "it waits");
        assert!(receiver.next().now_or_never().is_none(), "for a hand");
        calls.pop().unwrap().answer(text_result("one"));
        assert_eq!(
            waiting.join_next().await.unwrap().unwrap(),
            Ok(text_result("one"))
        );
        let host = async {
            let call = receiver.next().await;
            assert_eq!(call.arguments, json!({ "n": MAX_CONCURRENT_CALLS }));
            call.answer(text_result("two"));
        };
        let (result, ()) = tokio::join!(next, host);
        assert_eq!(result, Ok(text_result("two")));
    }

    /// The abandoned call neither takes a permit nor reaches the host.
    #[tokio::test]
    async fn a_caller_that_leaves_while_queued_is_removed() {
        let (mut receiver, sender) = receiver_with_an_hour();
        let mut calls = Vec::new();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..MAX_CONCURRENT_CALLS {
            let sender = Arc::clone(&sender);
            waiting.spawn(async move { sender.call("pi__look", Json::Null, pending()).await });
            calls.push(receiver.next().await);
        }
        let left = std::future::ready(());
        let refused = sender.call("pi__look", Json::Null, left).await;
        assert_eq!(refused, Err(ExternalCallError::CallerDisconnected));
        calls.pop().unwrap().answer(text_result("one"));
        waiting.join_next().await.unwrap().unwrap().unwrap();
        assert!(receiver.next().now_or_never().is_none());
    }
}
