//! A panic in one run: it fails with an error that says so, and the others continue.

use std::sync::Arc;
use std::time::Duration;

use agent::run::{BlobError, Blobs, Handle, MemoryBlobs, Outcome, RunEvent, VisibleProgress};
use bytes::Bytes;
use cursor_client::failure::Failure;

use test_support::run_client::RunClient;
use test_support::scenario::playing;
use test_support::simulator::Transport;

/// Blobs that panic.
struct PanickingExecutor;

impl Blobs for PanickingExecutor {
    fn get(&self, _: &[u8]) -> Result<Option<Bytes>, BlobError> {
        panic!("a mistake of our own");
    }

    fn set(&self, _: &[u8], _: Bytes) -> Result<(), BlobError> {
        panic!("a mistake of our own");
    }
}

/// Returns the text up to the end and how the run ended; checks that nothing follows the end.
async fn ends(mut handle: Handle) -> (String, Outcome, VisibleProgress) {
    let mut text = String::new();
    loop {
        let event = tokio::time::timeout(Duration::from_secs(60), handle.events.recv());
        match event.await.expect("an event").expect("an end") {
            RunEvent::Text(piece) => text.push_str(&piece),
            RunEvent::Ended(ended) => {
                assert!(handle.events.recv().await.is_none(), "after the end");
                return (text, ended.outcome, ended.visible_progress);
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_panic_fails_its_run_and_no_other() {
    let steps = r#"{ text = "One " }, { kv_set = { text = "some blob", name = "b" } }, { text = "two." }, { checkpoint = "auto" }, { usage = {} }, { end = true }"#;
    let simulator = playing(Transport::H2c, steps);
    let mut ours = RunClient::new(&simulator, Transport::H2c);
    // Both use one connection, one account and one runtime.
    let broken = ours.begin_with("go", Arc::new(PanickingExecutor));
    let well = ours.begin_with("go", Arc::new(MemoryBlobs::default()));
    let (broken, well) = tokio::join!(ends(broken), ends(well));
    let (text, outcome, left) = broken;
    assert_eq!(text, "One ", "earlier text is not lost");
    let Outcome::Failed(Failure::Refused(words)) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(words, "the run failed inside cursor-sidecar");
    assert_eq!(
        left,
        VisibleProgress::Executed,
        "what it did is unknown, so nothing is repeated"
    );
    assert_eq!((well.0.as_str(), well.1), ("One two.", Outcome::Finished));
    // The next run finishes, too.
    let next = ours.begin_with("go", Arc::new(MemoryBlobs::default()));
    assert_eq!(ends(next).await.1, Outcome::Finished);
}
