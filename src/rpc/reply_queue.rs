//! Replies of the connection itself, such as refusals. They are queued for a host that does not
//! read, so that its `exit` and its end are still seen after thousands of them.

use tokio::sync::mpsc;
use tokio::time::Duration;
use tokio_util::task::AbortOnDropHandle;

use agent::run::queue::{QueueBounds, QueuedItem, Sender, queue};

/// How much may be queued. Then reading stops, because the queue must not grow without limit.
const BOUNDS: QueueBounds = QueueBounds {
    items: 16 * 1024,
    bytes: 1024 * 1024,
};
/// How often to check that the host is alive while reading is stopped.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The host is gone and left replies unread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HostGone;

pub(super) struct ReplyQueue {
    out: Sender<Vec<u8>>,
    waiting: Sender<Vec<u8>>,
    task: AbortOnDropHandle<()>,
    hung_up: fn() -> bool,
}

impl ReplyQueue {
    /// Returns a queue that sends to `out`.
    pub(super) fn new(out: Sender<Vec<u8>>, hung_up: fn() -> bool) -> Self {
        let (waiting, inbox) = queue(BOUNDS);
        Self {
            task: AbortOnDropHandle::new(tokio::spawn(forward(inbox, out.clone()))),
            out,
            waiting,
            hung_up,
        }
    }

    /// Sends a reply now, or queues it. Waits only when the queue is full.
    pub(super) async fn send(&self, reply: Vec<u8>) -> Result<(), HostGone> {
        if let Some(room) = self.out.try_reserve(reply.len()) {
            room.put(reply);
            return Ok(());
        }
        let room = tokio::select! {
            biased; // a host that has sent everything may be gone
            room = self.waiting.reserve(reply.len()) => room,
            () = self.gone() => None,
        };
        room.ok_or(HostGone)?.put(reply);
        Ok(())
    }

    async fn gone(&self) {
        let mut look = tokio::time::interval(CHECK_INTERVAL);
        while !(self.hung_up)() {
            look.tick().await;
        }
    }

    /// Closes the queue and resolves when everything is sent.
    pub(super) async fn finish(&mut self) {
        self.waiting = queue(BOUNDS).0;
        let _ = (&mut self.task).await;
    }
}

async fn forward(mut inbox: mpsc::Receiver<QueuedItem<Vec<u8>>>, out: Sender<Vec<u8>>) {
    while let Some(reply) = inbox.recv().await {
        let Some(room) = out.reserve(reply.item.len()).await else {
            return;
        };
        room.put(reply.item);
    }
}
