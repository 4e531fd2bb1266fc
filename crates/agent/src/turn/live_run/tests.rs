//! Tests of a run that is left.

use std::time::Duration;

use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::run::queue;
use agent_tools::bridge::call_log::CallLogTarget;
use agent_tools::bridge::external_calls;
use agent_tools::host_delegate::HostToolSet;
use agent_tools::policy::{HostPolicy, ToolPolicy};

/// Returns a run that emits these events.
async fn live_run(events: Vec<RunEvent>) -> LiveRun {
    let (sender, receiver) = queue::weighed(WAITING);
    for event in events {
        sender.send(event).await.unwrap();
    }
    let bridge = Bridge::off(Duration::MAX, CallLogTarget::Off);
    let (settings, stated) = (ToolPolicy::default(), HostPolicy::default());
    let tools = TurnTools::new(&settings, &stated, HostToolSet::default(), false, None);
    let show = ActivityDisplay::new(
        Default::default(),
        "/w".into(),
        [],
        tools.decisions.clone(),
        &Arc::default(),
    );
    LiveRun::new(
        Handle::of_events(receiver),
        Arc::clone(&bridge),
        Conversation::new("a".into(), None).unwrap(),
        AnswerRounds::new(Fingerprint::of("S", &[]), String::new()),
        show,
        external_calls::open(bridge),
        watch::channel(Arc::new(tools)).0,
    )
}

/// Regression: a call that the host had not seen was answered with a failure while the run was still
/// being cancelled, and the failure could be recorded as its result.
#[tokio::test]
async fn a_call_that_waits_is_not_answered_before_the_run_has_ended() {
    let (call, mut result) = HostCall::new("c".into(), "look".into(), serde_json::Value::Null);
    let events = vec![
        RunEvent::HostCall(Box::new(call)),
        RunEvent::Ended(Ended::lost(RetriesUsed::default())),
    ];
    let mut live = live_run(events).await;
    assert!(!live.idle().await && live.waiting_calls() == 1);
    live.leave().await;
    live.drain(std::future::pending()).await;
    assert_eq!(result.try_recv(), Err(TryRecvError::Empty));
    drop(live);
    assert_eq!(result.try_recv(), Err(TryRecvError::Closed));
}
