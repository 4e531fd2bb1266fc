use super::*;
use crate::run::blobs::MemoryBlobs;
use crate::tools::refuse::Refuse;

/// What a stream tells that is asked to settle and has broken off meanwhile.
async fn told() -> Vec<RunEvent> {
    let bounds = queue::Bounds {
        items: 16,
        bytes: 4096,
    };
    let (events, mut inbox) = queue::weighed(bounds);
    let (asking, mut commands) = mpsc::channel(16);
    asking.send(Command::Settle).await.unwrap();
    let executor: Arc<dyn Executor> = Arc::new(Refuse::default());
    let closed = drive(
        RunStream::broken(),
        Surroundings {
            events: &events,
            commands: &mut commands,
            executor: &executor,
            blobs: &MemoryBlobs::default(),
            drift: &Drift::default(),
            timing: &Timing::default(),
            run_id: Uuid::nil(),
            held: &mut Vec::new(),
            answer_bytes: &mut 0,
            overlap: &mut Overlap::after(String::new()),
            memo: &mut Memo::default(),
            owed: &mut Owed::default(),
            on_accepted: &|| {},
        },
    )
    .await;
    assert!(matches!(closed.closing, Closing::Failed(_)));
    // Not asked of this stream: the next one, or the run between the two, will answer.
    if commands.try_recv().is_ok() {
        events.send(RunEvent::Settled).await.unwrap();
    }
    drop(events);
    std::iter::from_fn(|| inbox.try_recv()).collect()
}

/// Which of the two it takes first is left to chance, so they meet often.
#[tokio::test]
async fn a_stream_that_breaks_while_it_settles_says_that_it_has() {
    for _ in 0..40 {
        let told = told().await;
        assert!(matches!(told[..], [RunEvent::Settled]), "{told:?}");
    }
}
