use super::*;
use crate::run::blobs::MemoryBlobs;
use agent_tools::rejection::Rejector;

/// Returns the events of a stream that receives `Settle` and breaks at the same time.
async fn events_when_broken_while_settling() -> Vec<RunEvent> {
    let bounds = queue::QueueBounds {
        items: 16,
        bytes: 4096,
    };
    let (events, mut inbox) = queue::weighed(bounds);
    let (asking, mut commands) = mpsc::channel(16);
    asking.send(Command::Settle).await.unwrap();
    let executor: Arc<dyn Executor> = Arc::new(Rejector::default());
    let closed = drive(
        RunStream::broken(),
        AttemptContext {
            events: &events,
            commands: &mut commands,
            executor: &executor,
            blobs: &MemoryBlobs::default(),
            drift: &Drift::default(),
            timing: &Timing::default(),
            run_id: Uuid::nil(),
            held: &mut Vec::new(),
            answer_bytes: &mut 0,
            answer: &mut AnswerLog::after(String::new()),
            effects: &mut EffectLog::default(),
            on_accepted: &|| {},
        },
    )
    .await;
    assert!(matches!(closed.reason, CloseReason::Failed(_)));
    // The stream did not receive the command; the next stream or the run itself would answer it.
    if commands.try_recv().is_ok() {
        events.send(RunEvent::Settled).await.unwrap();
    }
    drop(events);
    std::iter::from_fn(|| inbox.try_recv()).collect()
}

/// Which of the two the stream handles first is random, so repeat the test.
#[tokio::test]
async fn a_stream_that_breaks_while_settling_emits_settled() {
    for _ in 0..40 {
        let events = events_when_broken_while_settling().await;
        assert!(matches!(events[..], [RunEvent::Settled]), "{events:?}");
    }
}
