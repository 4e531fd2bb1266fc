//! A queue bounded in number and in bytes: a frame may be anything from a word to megabytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a queue holds at most. One item larger than all of it goes alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) items: usize,
    pub(super) bytes: u32,
}

/// An item in the queue; its room is free when it is dropped.
#[derive(Debug)]
pub(super) struct Queued<T> {
    pub(super) item: T,
    _room: OwnedSemaphorePermit,
}

/// Where items are put. Cheap to clone.
#[derive(Debug)]
pub(super) struct Sender<T> {
    items: mpsc::Sender<Queued<T>>,
    room: Arc<Semaphore>,
    bounds: Bounds,
    /// Bytes nobody has found room for.
    waiting: Arc<AtomicUsize>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            items: self.items.clone(),
            room: Arc::clone(&self.room),
            bounds: self.bounds,
            waiting: Arc::clone(&self.waiting),
        }
    }
}

/// Room for one item.
pub(super) struct Room<T> {
    item: OwnedPermit<Queued<T>>,
    bytes: OwnedSemaphorePermit,
}

impl<T> Room<T> {
    pub(super) fn put(self, item: T) {
        self.item.send(Queued {
            item,
            _room: self.bytes,
        });
    }
}

/// A new queue.
pub(super) fn queue<T>(bounds: Bounds) -> (Sender<T>, mpsc::Receiver<Queued<T>>) {
    let (items, receiver) = mpsc::channel(bounds.items);
    let sender = Sender {
        items,
        room: Arc::new(Semaphore::new(bounds.bytes as usize)),
        bounds,
        waiting: Arc::default(),
    };
    (sender, receiver)
}

impl<T: Send + 'static> Sender<T> {
    /// Room for an item of that size, first come first served; `None` if nobody reads any
    /// more. Counts as waiting from now on.
    pub(super) fn reserve(
        &self,
        bytes: usize,
    ) -> impl Future<Output = Option<Room<T>>> + Send + use<T> {
        let waiting = Waiting::new(&self.waiting, bytes);
        let (room, items) = (Arc::clone(&self.room), self.items.clone());
        let cost = self.cost(bytes);
        async move {
            let _waiting = waiting;
            let bytes = room.acquire_many_owned(cost).await.ok()?;
            let item = items.reserve_owned().await.ok()?;
            Some(Room { item, bytes })
        }
    }

    /// Room, if there is some now.
    pub(super) fn try_reserve(&self, bytes: usize) -> Option<Room<T>> {
        let room = Arc::clone(&self.room);
        let bytes = room.try_acquire_many_owned(self.cost(bytes)).ok()?;
        let item = self.items.clone().try_reserve_owned().ok()?;
        Some(Room { item, bytes })
    }

    fn cost(&self, bytes: usize) -> u32 {
        u32::try_from(bytes)
            .unwrap_or(u32::MAX)
            .min(self.bounds.bytes)
    }

    /// Bytes that wait for room.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Resolves when nobody reads any more.
    pub(super) async fn closed(&self) {
        self.items.closed().await;
    }
}

/// Bytes that are counted while they wait.
struct Waiting(Arc<AtomicUsize>, usize);

impl Waiting {
    fn new(all: &Arc<AtomicUsize>, bytes: usize) -> Self {
        all.fetch_add(bytes, Ordering::Relaxed);
        Self(Arc::clone(all), bytes)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        items: 3,
        bytes: 10,
    };

    #[tokio::test]
    async fn bytes_count_as_well_as_items() {
        let (sender, mut receiver) = queue(BOUNDS);
        sender.reserve(6).await.unwrap().put("six");
        assert!(sender.try_reserve(5).is_none(), "no room for the bytes");
        let mut late = std::pin::pin!(sender.reserve(5));
        assert!((&mut late).now_or_never().is_none());
        assert_eq!(sender.waiting(), 5);
        let first = receiver.recv().await.unwrap();
        assert!((&mut late).now_or_never().is_none(), "still in hand");
        drop(first);
        late.await.unwrap().put("five");
        assert_eq!(sender.waiting(), 0);
        for _ in 0..2 {
            sender.try_reserve(0).unwrap().put("nothing");
        }
        assert!(sender.try_reserve(0).is_none(), "no room for another item");
    }

    #[tokio::test]
    async fn a_giant_goes_alone_and_nobody_waits_for_a_reader_who_is_gone() {
        let (sender, mut receiver) = queue(BOUNDS);
        sender.reserve(1000).await.unwrap().put("giant");
        let late = sender.reserve(1);
        assert_eq!(receiver.recv().await.unwrap().item, "giant");
        late.await.unwrap().put("late");
        let behind = sender.reserve(1000);
        drop(receiver);
        assert!(behind.await.is_none());
        sender.closed().await;
    }
}
