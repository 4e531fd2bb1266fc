//! The side entrance of a run: calls of the host's tools that do not come from Cursor.
//!
//! Every run has a gate. It costs nothing until somebody asks for its address
//! ([`super::endpoint`]). What comes in is queued for the session that owns the run, like a
//! call of Cursor's; the gate waits for the answer and never executes anything.

use std::future::Future;
use std::sync::{Arc, Weak};

use serde_json::Value as Json;
use tokio::sync::{OnceCell, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::diagnostics::Rejection;
use super::endpoint::Address;
use super::{Bridge, HostCall, HostResult, Queued};

/// Calls of one run the host has in hand at once; others wait their turn.
pub const MOST_IN_HAND: usize = 256;

/// The outer side: callers wait here.
pub struct Gate {
    bridge: Arc<Bridge>,
    calls: mpsc::Sender<HostCall>,
    hands: Semaphore,
    over: CancellationToken,
    /// Where callers find the gate, once somebody has asked.
    pub(super) address: OnceCell<Address>,
}

/// The inner side, owned by the session. Dropping it shuts the gate.
pub struct Inlet {
    gate: Arc<Gate>,
    calls: mpsc::Receiver<HostCall>,
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Nobody offers such a tool.
    #[error("there is no tool {name:?} here; there is: {known}")]
    Unknown {
        /// What was called.
        name: String,
        /// What could be called.
        known: String,
    },
    /// The run has ended.
    #[error("the run these tools belong to is over")]
    Over,
    /// The session let go of the call.
    #[error("the host gave this call up")]
    Dropped,
    /// The host took too long.
    #[error("the host did not answer within {0} s")]
    Late(u64),
    /// The caller is gone.
    #[error("the caller gave this call up")]
    Left,
}

/// A gate for the tools of a bridge.
pub fn open(bridge: Arc<Bridge>) -> Inlet {
    let (sender, calls) = mpsc::channel(MOST_IN_HAND);
    let gate = Gate {
        bridge,
        calls: sender,
        hands: Semaphore::new(MOST_IN_HAND),
        over: CancellationToken::new(),
        address: OnceCell::new(),
    };
    Inlet {
        gate: Arc::new(gate),
        calls,
    }
}

impl Gate {
    /// The tools behind it.
    pub fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// Fires when the run is over.
    pub fn over(&self) -> &CancellationToken {
        &self.over
    }

    /// Has the host execute a tool, unless the caller leaves first.
    pub async fn call(
        &self,
        offered: &str,
        arguments: Json,
        left: impl Future<Output = ()>,
    ) -> Result<HostResult, Refused> {
        let Some(Queued {
            call,
            result,
            entry,
        }) = self.bridge.queue(offered, arguments, None)
        else {
            return Err(self.unknown(offered));
        };
        let deadline = self.bridge.deadline;
        let answered = async {
            // Who came first is next. A host is not buried under calls.
            let _hand = self.hands.acquire().await.map_err(|_| Refused::Over)?;
            self.calls.send(call).await.map_err(|_| Refused::Over)?;
            result.await.map_err(|_| match self.over.is_cancelled() {
                true => Refused::Over,
                false => Refused::Dropped,
            })
        };
        let outcome = tokio::select! {
            biased;
            answer = answered => answer,
            () = self.over.cancelled() => Err(Refused::Over),
            () = left => Err(Refused::Left),
            () = tokio::time::sleep(deadline) => Err(Refused::Late(deadline.as_secs())),
        };
        match &outcome {
            Ok(result) => entry.resolve(result.verdict),
            Err(Refused::Late(_)) => entry.reject(Rejection::Error),
            Err(_) => entry.reject(Rejection::Cancelled),
        }
        outcome
    }

    fn unknown(&self, offered: &str) -> Refused {
        let tools = &self.bridge.snapshot().tools;
        let known: Vec<&str> = tools.iter().map(|tool| tool.offered.as_str()).collect();
        Refused::Unknown {
            name: offered.into(),
            known: known.join(", "),
        }
    }
}

impl Inlet {
    /// The outer side, for as long as this one lives.
    pub fn gate(&self) -> Weak<Gate> {
        Arc::downgrade(&self.gate)
    }

    /// The next call; pends for ever once shut. Safe to drop and call again.
    pub async fn next(&mut self) -> HostCall {
        match self.calls.recv().await {
            Some(call) => call,
            None => std::future::pending().await,
        }
    }

    /// Nobody gets in any more; who waits is told so.
    pub fn shut(&mut self) {
        self.gate.over.cancel();
        self.calls.close();
        while self.calls.try_recv().is_ok() {}
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        self.gate.over.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use serde_json::json;

    use super::super::Verdict;
    use super::super::content::Content;
    use super::super::diagnostics::Diagnostics;
    use super::super::snapshot::{Filter, HostTool, Snapshot};
    use super::*;

    fn inlet(deadline: Duration) -> (Inlet, Arc<Gate>) {
        let look = HostTool {
            name: "look".into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
            origin: Json::Null,
        };
        let snapshot = Snapshot::of([&look], &Filter::default());
        let inlet = open(Bridge::new(snapshot, deadline, Diagnostics::default()));
        let gate = inlet.gate().upgrade().unwrap();
        (inlet, gate)
    }

    fn hour() -> (Inlet, Arc<Gate>) {
        inlet(Duration::from_secs(3600))
    }

    fn said(text: &str) -> HostResult {
        HostResult {
            content: vec![Content::Text(text.into())],
            verdict: Verdict::Done,
            details: Json::Null,
            structured: None,
        }
    }

    #[tokio::test]
    async fn a_call_waits_for_the_hosts_result() {
        let (mut inlet, gate) = hour();
        let host = async {
            let call = inlet.next().await;
            assert_eq!((call.tool.as_str(), &call.arguments), ("look", &json!({})));
            call.answer(said("42"));
        };
        let (result, ()) = tokio::join!(gate.call("pi__look", Json::Null, pending()), host);
        assert_eq!(result, Ok(said("42")));
    }

    #[tokio::test]
    async fn an_unknown_tool_is_named() {
        let (_inlet, gate) = hour();
        let refused = gate.call("look", Json::Null, pending()).await.unwrap_err();
        insta::assert_snapshot!(refused, @r#"there is no tool "look" here; there is: pi__look"#);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_past_its_deadline_is_void() {
        let (mut inlet, gate) = inlet(Duration::from_secs(60));
        let refused = gate.call("pi__look", Json::Null, pending()).await;
        assert_eq!(refused, Err(Refused::Late(60)));
        assert!(inlet.next().await.is_void());
    }

    #[tokio::test]
    async fn a_caller_that_leaves_makes_its_call_void() {
        let (mut inlet, gate) = hour();
        let (leave, left) = tokio::sync::oneshot::channel::<()>();
        let host = async {
            let call = inlet.next().await;
            drop(leave);
            call
        };
        let left = async {
            let _ = left.await;
        };
        let (refused, call) = tokio::join!(gate.call("pi__look", Json::Null, left), host);
        assert_eq!(refused, Err(Refused::Left));
        assert!(call.is_void());
    }

    #[tokio::test]
    async fn the_end_of_the_run_answers_all_who_wait_and_all_who_come() {
        let (mut inlet, gate) = hour();
        let end = async {
            let open = inlet.next().await;
            inlet.shut();
            open
        };
        let calls = async {
            tokio::join!(
                gate.call("pi__look", Json::Null, pending()),
                gate.call("pi__look", Json::Null, pending()),
            )
        };
        let ((first, second), _open) = tokio::join!(calls, end);
        assert_eq!((first, second), (Err(Refused::Over), Err(Refused::Over)));
        let late = gate.call("pi__look", Json::Null, pending()).await;
        assert_eq!(late, Err(Refused::Over));
    }

    /// A call the host cannot take yet waits; it is not refused.
    #[tokio::test]
    async fn a_call_beyond_what_the_host_has_in_hand_is_the_next() {
        let (mut inlet, gate) = hour();
        let mut waiting = tokio::task::JoinSet::new();
        let call = |gate: &Arc<Gate>, n: usize| {
            let gate = Arc::clone(gate);
            async move { gate.call("pi__look", json!({ "n": n }), pending()).await }
        };
        let mut calls = Vec::new();
        for n in 0..MOST_IN_HAND {
            waiting.spawn(call(&gate, n));
            calls.push(inlet.next().await);
        }
        let mut next = std::pin::pin!(call(&gate, MOST_IN_HAND));
        assert!(next.as_mut().now_or_never().is_none(), "it waits");
        assert!(inlet.next().now_or_never().is_none(), "for a hand");
        calls.pop().unwrap().answer(said("one"));
        assert_eq!(waiting.join_next().await.unwrap().unwrap(), Ok(said("one")));
        let host = async {
            let call = inlet.next().await;
            assert_eq!(call.arguments, json!({ "n": MOST_IN_HAND }));
            call.answer(said("two"));
        };
        let (result, ()) = tokio::join!(next, host);
        assert_eq!(result, Ok(said("two")));
    }

    /// Neither a hand nor a word of it reaches the host.
    #[tokio::test]
    async fn a_caller_that_leaves_while_it_waits_its_turn_is_forgotten() {
        let (mut inlet, gate) = hour();
        let mut calls = Vec::new();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..MOST_IN_HAND {
            let gate = Arc::clone(&gate);
            waiting.spawn(async move { gate.call("pi__look", Json::Null, pending()).await });
            calls.push(inlet.next().await);
        }
        let left = std::future::ready(());
        let refused = gate.call("pi__look", Json::Null, left).await;
        assert_eq!(refused, Err(Refused::Left));
        calls.pop().unwrap().answer(said("one"));
        waiting.join_next().await.unwrap().unwrap().unwrap();
        assert!(inlet.next().now_or_never().is_none());
    }
}
