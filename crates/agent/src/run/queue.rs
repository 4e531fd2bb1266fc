//! A queue bounded in number and in bytes, because an item may be a few bytes or megabytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limits of a queue. An item larger than all of it is accepted when the queue is empty.
#[derive(Debug, Clone, Copy)]
pub struct QueueBounds {
    /// Items.
    pub items: usize,
    /// Bytes of all items together.
    pub bytes: u32,
}

/// An item that knows its size.
pub trait Weighed {
    /// Returns about how much memory it holds.
    fn bytes(&self) -> usize;
}

/// The receiver was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue's receiver was dropped")]
pub struct Closed;

/// An item in the queue; its capacity is released when it is dropped.
#[derive(Debug)]
pub struct QueuedItem<T> {
    /// The item.
    pub item: T,
    _room: OwnedSemaphorePermit,
}

/// The sending end of a queue. Cheap to clone.
#[derive(Debug)]
pub struct Sender<T> {
    items: mpsc::Sender<QueuedItem<T>>,
    room: Arc<Semaphore>,
    bounds: QueueBounds,
    /// Bytes of items that wait for capacity.
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

/// A sender that does not keep the queue open.
#[derive(Debug)]
pub struct WeakSender<T> {
    items: mpsc::WeakSender<QueuedItem<T>>,
    room: Arc<Semaphore>,
    bounds: QueueBounds,
    waiting: Arc<AtomicUsize>,
}

impl<T> WeakSender<T> {
    /// Returns a sender while the queue is open.
    pub fn upgrade(&self) -> Option<Sender<T>> {
        Some(Sender {
            items: self.items.upgrade()?,
            room: Arc::clone(&self.room),
            bounds: self.bounds,
            waiting: Arc::clone(&self.waiting),
        })
    }
}

impl<T> Sender<T> {
    /// Returns a sender that does not keep the queue open.
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender {
            items: self.items.downgrade(),
            room: Arc::clone(&self.room),
            bounds: self.bounds,
            waiting: Arc::clone(&self.waiting),
        }
    }
}

/// Reserved capacity for one item.
pub struct QueuePermit<T> {
    item: OwnedPermit<QueuedItem<T>>,
    bytes: OwnedSemaphorePermit,
}

impl<T> QueuePermit<T> {
    /// Puts the item into the queue.
    pub fn put(self, item: T) {
        self.item.send(QueuedItem {
            item,
            _room: self.bytes,
        });
    }
}

/// Creates a queue.
pub fn queue<T>(bounds: QueueBounds) -> (Sender<T>, mpsc::Receiver<QueuedItem<T>>) {
    let (items, receiver) = mpsc::channel(bounds.items);
    let sender = Sender {
        items,
        room: Arc::new(Semaphore::new(bounds.bytes as usize)),
        bounds,
        waiting: Arc::default(),
    };
    (sender, receiver)
}

/// The receiving end of a queue of weighed items; an item's capacity is released when it is
/// received.
#[derive(Debug)]
pub struct Receiver<T>(mpsc::Receiver<QueuedItem<T>>);

/// Creates a queue of items that know their size.
pub fn weighed<T: Weighed>(bounds: QueueBounds) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = queue(bounds);
    (sender, Receiver(receiver))
}

impl<T> Receiver<T> {
    /// Returns the next item; `None` when all senders were dropped. Cancel-safe.
    pub async fn recv(&mut self) -> Option<T> {
        self.0.recv().await.map(|queued| queued.item)
    }

    /// Moves up to `limit` queued items to `items`, waiting for the first, and returns how many.
    /// Cancel-safe.
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

    /// Returns the next item if one is queued.
    pub fn try_recv(&mut self) -> Option<T> {
        self.0.try_recv().ok().map(|queued| queued.item)
    }
}

impl<T: Weighed + Send + 'static> Sender<T> {
    /// Waits for capacity and puts the item into the queue.
    pub async fn send(&self, item: T) -> Result<(), Closed> {
        let room = self.reserve(item.bytes()).await.ok_or(Closed)?;
        room.put(item);
        Ok(())
    }
}

impl<T: Send + 'static> Sender<T> {
    /// Reserves capacity for an item of that size, first come first served; `None` if the receiver
    /// was dropped. The bytes count as waiting from this call on, not from the first poll.
    pub fn reserve(
        &self,
        bytes: usize,
    ) -> impl Future<Output = Option<QueuePermit<T>>> + Send + use<T> {
        let waiting = PendingBytes::new(&self.waiting, bytes);
        let (room, items) = (Arc::clone(&self.room), self.items.clone());
        let cost = self.cost(bytes);
        async move {
            let _waiting = waiting;
            let bytes = room.acquire_many_owned(cost).await.ok()?;
            let item = items.reserve_owned().await.ok()?;
            Some(QueuePermit { item, bytes })
        }
    }

    /// Reserves capacity if it is available now.
    pub fn try_reserve(&self, bytes: usize) -> Option<QueuePermit<T>> {
        let room = Arc::clone(&self.room);
        let bytes = room.try_acquire_many_owned(self.cost(bytes)).ok()?;
        let item = self.items.clone().try_reserve_owned().ok()?;
        Some(QueuePermit { item, bytes })
    }

    fn cost(&self, bytes: usize) -> u32 {
        u32::try_from(bytes)
            .unwrap_or(u32::MAX)
            .min(self.bounds.bytes)
    }

    /// Returns the bytes that wait for capacity.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Resolves when the receiver was dropped.
    pub async fn closed(&self) {
        self.items.closed().await;
    }
}

/// Counts bytes as waiting until it is dropped.
struct PendingBytes(Arc<AtomicUsize>, usize);

impl PendingBytes {
    fn new(all: &Arc<AtomicUsize>, bytes: usize) -> Self {
        all.fetch_add(bytes, Ordering::Relaxed);
        Self(Arc::clone(all), bytes)
    }
}

impl Drop for PendingBytes {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const BOUNDS: QueueBounds = QueueBounds {
        items: 3,
        bytes: 10,
    };

    #[tokio::test]
    async fn both_bytes_and_items_are_limited() {
        let (sender, mut receiver) = queue(BOUNDS);
        sender.reserve(6).await.unwrap().put("six");
        assert!(sender.try_reserve(5).is_none(), "no room for the bytes");
        let mut late = std::pin::pin!(sender.reserve(5));
        assert!((&mut late).now_or_never().is_none());
        assert_eq!(sender.waiting(), 5);
        let first = receiver.recv().await.unwrap();
        assert!(
            (&mut late).now_or_never().is_none(),
            "the item is not dropped yet"
        );
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
    async fn weighed_items_wait_for_capacity_and_keep_their_order() {
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
    async fn an_oversized_item_is_sent_alone_and_a_dropped_receiver_ends_the_wait() {
        let (sender, mut receiver) = queue(BOUNDS);
        sender.reserve(1000).await.unwrap().put("giant");
        let late = sender.reserve(1);
        assert_eq!(receiver.recv().await.unwrap().item, "giant");
        late.await.unwrap().put("late");
        let blocked = sender.reserve(1000);
        drop(receiver);
        assert!(blocked.await.is_none());
        sender.closed().await;
    }
}
