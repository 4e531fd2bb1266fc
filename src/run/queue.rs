//! A queue bounded in number and in bytes: an item may be anything from a word to megabytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a queue holds at most. One item larger than all of it goes alone.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Items.
    pub items: usize,
    /// Bytes of all items together.
    pub bytes: u32,
}

/// An item that knows how many bytes it takes.
pub trait Weighed {
    /// About how much memory it holds.
    fn bytes(&self) -> usize;
}

/// The reader is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue has no reader any more")]
pub struct Closed;

/// An item in the queue; its room is free when it is dropped.
#[derive(Debug)]
pub struct Queued<T> {
    /// The item.
    pub item: T,
    _room: OwnedSemaphorePermit,
}

/// Where items are put. Cheap to clone.
#[derive(Debug)]
pub struct Sender<T> {
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
pub struct Room<T> {
    item: OwnedPermit<Queued<T>>,
    bytes: OwnedSemaphorePermit,
}

impl<T> Room<T> {
    /// Puts the item into the queue.
    pub fn put(self, item: T) {
        self.item.send(Queued {
            item,
            _room: self.bytes,
        });
    }
}

/// A new queue.
pub fn queue<T>(bounds: Bounds) -> (Sender<T>, mpsc::Receiver<Queued<T>>) {
    let (items, receiver) = mpsc::channel(bounds.items);
    let sender = Sender {
        items,
        room: Arc::new(Semaphore::new(bounds.bytes as usize)),
        bounds,
        waiting: Arc::default(),
    };
    (sender, receiver)
}

/// The reading end of a queue of weighed items; an item's room is free when it is taken.
#[derive(Debug)]
pub struct Receiver<T>(mpsc::Receiver<Queued<T>>);

/// A new queue of items that know their size.
pub fn weighed<T: Weighed>(bounds: Bounds) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = queue(bounds);
    (sender, Receiver(receiver))
}

impl<T> Receiver<T> {
    /// The next item; `None` when all senders are gone. Safe to drop and call again.
    pub async fn recv(&mut self) -> Option<T> {
        self.0.recv().await.map(|queued| queued.item)
    }

    /// Takes up to `limit` items that are there, waiting for the first; returns how many. Safe
    /// to drop and call again.
    pub async fn recv_many(&mut self, items: &mut Vec<T>, limit: usize) -> usize {
        let Some(first) = self.recv().await else {
            return 0;
        };
        items.push(first);
        let mut taken = 1;
        while taken < limit
            && let Some(next) = self.try_recv()
        {
            items.push(next);
            taken += 1;
        }
        taken
    }

    /// The next item, if one is there.
    pub fn try_recv(&mut self) -> Option<T> {
        self.0.try_recv().ok().map(|queued| queued.item)
    }
}

impl<T: Weighed + Send + 'static> Sender<T> {
    /// Waits for room and puts the item into the queue.
    pub async fn send(&self, item: T) -> Result<(), Closed> {
        let room = self.reserve(item.bytes()).await.ok_or(Closed)?;
        room.put(item);
        Ok(())
    }
}

impl<T: Send + 'static> Sender<T> {
    /// Room for an item of that size, first come first served; `None` if nobody reads any
    /// more. Counts as waiting from now on.
    pub fn reserve(&self, bytes: usize) -> impl Future<Output = Option<Room<T>>> + Send + use<T> {
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
    pub fn try_reserve(&self, bytes: usize) -> Option<Room<T>> {
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
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Resolves when nobody reads any more.
    pub async fn closed(&self) {
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

    #[derive(Debug, PartialEq)]
    struct Text(&'static str);

    impl Weighed for Text {
        fn bytes(&self) -> usize {
            self.0.len()
        }
    }

    #[tokio::test]
    async fn weighed_items_wait_for_bytes_and_keep_their_order() {
        let (sender, mut receiver) = weighed(BOUNDS);
        sender.send(Text("eight ..")).await.unwrap();
        let mut late = std::pin::pin!(sender.send(Text("four")));
        assert!((&mut late).now_or_never().is_none());
        assert_eq!(receiver.recv().await, Some(Text("eight ..")));
        late.await.unwrap();
        sender.send(Text("five.")).await.unwrap();
        let mut taken = Vec::new();
        assert_eq!(receiver.recv_many(&mut taken, 5).await, 2);
        assert_eq!(taken, [Text("four"), Text("five.")]);
        drop(receiver);
        assert_eq!(sender.send(Text("late")).await, Err(Closed));
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
