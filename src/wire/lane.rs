//! Connections side by side.
//!
//! An HTTP/2 server takes only so many streams on a connection. What a client asks for beyond
//! that waits in its queue, without a word, until another stream ends; and a run that waits
//! for its host may not end for an hour. So streams are spread over lanes, each with a
//! connection of its own, and one that was not taken moves on.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::awake;

/// Streams on one connection. Servers are asked to take 100 at least; the rest is room for
/// those that have ended here and not yet there.
const MOST_STREAMS: usize = 64;
/// How long a connection that works may keep a stream waiting.
const WAIT: Duration = Duration::from_secs(1);

/// The lanes to hosts of one kind.
#[derive(Debug)]
pub(super) struct Lanes(Mutex<Known>);

#[derive(Debug)]
struct Known {
    lanes: Vec<Arc<Lane>>,
    /// Streams a lane has room for; less, once a server has shown that it takes less.
    room: usize,
}

#[derive(Debug)]
struct Lane {
    client: reqwest::Client,
    open: AtomicUsize,
    /// Whether its connection has taken a stream.
    works: AtomicBool,
}

impl Lane {
    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

/// A place on a lane, for as long as it is held.
#[derive(Debug)]
pub(super) struct Seat {
    lane: Arc<Lane>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.lane.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Seat {
    /// The client whose connection this is.
    pub(super) fn client(&self) -> &reqwest::Client {
        &self.lane.client
    }

    /// Notes that the connection took a stream.
    pub(super) fn taken(&self) {
        self.lane.works.store(true, Ordering::Relaxed);
    }

    /// Resolves when a stream that is not yet taken should look elsewhere: the connection
    /// works and others are on it. One that is still being made is waited for.
    pub(super) async fn overdue(&self) {
        loop {
            awake::sleep(WAIT).await;
            if self.lane.works.load(Ordering::Relaxed) && self.lane.open() > 1 {
                return;
            }
        }
    }
}

impl Lanes {
    /// Lanes whose connections carry many streams.
    pub(super) fn shared() -> Self {
        Self::with_room(MOST_STREAMS)
    }

    /// One lane, with a connection for each stream.
    pub(super) fn single() -> Self {
        Self::with_room(usize::MAX)
    }

    fn with_room(room: usize) -> Self {
        Self(Mutex::new(Known {
            lanes: Vec::new(),
            room,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place on the first lane with room, or on a new one.
    pub(super) fn seat<E>(
        &self,
        build: impl FnOnce() -> Result<reqwest::Client, E>,
    ) -> Result<Seat, E> {
        let mut known = self.lock();
        let room = known.room;
        let at = match known.lanes.iter().position(|lane| lane.open() < room) {
            Some(at) => at,
            None => {
                known.lanes.push(Arc::new(Lane {
                    client: build()?,
                    open: AtomicUsize::new(0),
                    works: AtomicBool::new(false),
                }));
                known.lanes.len() - 1
            }
        };
        let lane = Arc::clone(&known.lanes[at]);
        lane.open.fetch_add(1, Ordering::Relaxed);
        // The first ones suffice again: those behind them close when they are empty.
        let mut place = 0..;
        known
            .lanes
            .retain(|lane| place.next().is_some_and(|place| place <= at) || lane.open() > 0);
        Ok(Seat { lane })
    }

    /// Notes that a lane took no more than it has, without the one that leaves.
    pub(super) fn full(&self, seat: Seat) {
        let mut known = self.lock();
        let others = seat.lane.open().saturating_sub(1);
        known.room = known.room.min(others.max(1));
        drop(seat);
    }

    /// Lets go of all: what is open stays open, the next stream opens a new connection.
    pub(super) fn clear(&self) {
        self.lock().lanes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Result<reqwest::Client, std::convert::Infallible> {
        let builder = reqwest::Client::builder().tls_certs_only(std::iter::empty());
        Ok(builder.build().unwrap())
    }

    fn seat(lanes: &Lanes) -> Seat {
        lanes.seat(client).unwrap()
    }

    fn open(lanes: &Lanes) -> Vec<usize> {
        lanes.lock().lanes.iter().map(|lane| lane.open()).collect()
    }

    #[test]
    fn lanes_fill_one_after_the_other_and_go_when_empty() {
        let lanes = Lanes::with_room(2);
        let mut seats: Vec<Seat> = (0..5).map(|_| seat(&lanes)).collect();
        assert_eq!(open(&lanes), [2, 2, 1]);
        seats.drain(1..);
        let again = seat(&lanes);
        assert_eq!(open(&lanes), [2]);
        drop((seats, again));
        let _one = seat(&lanes);
        assert_eq!(open(&lanes), [1], "an empty one is kept warm");
    }

    #[test]
    fn what_a_server_takes_is_learnt() {
        let lanes = Lanes::with_room(64);
        let mut seats: Vec<Seat> = (0..5).map(|_| seat(&lanes)).collect();
        for room in [4, 3] {
            lanes.full(seats.pop().unwrap());
            let learnt = lanes.lock().room;
            assert_eq!((learnt, open(&lanes)), (room, vec![room]));
        }
        let _elsewhere = seat(&lanes);
        assert_eq!(open(&lanes), [3, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_connection_that_works_for_others_is_left() {
        let lanes = Lanes::with_room(64);
        let first = seat(&lanes);
        let overdue = async |seat: &Seat| {
            let long = Duration::from_secs(60);
            tokio::time::timeout(long, seat.overdue()).await.is_ok()
        };
        assert!(!overdue(&first).await, "alone, and not connected");
        let second = seat(&lanes);
        assert!(!overdue(&second).await, "not connected");
        first.taken();
        assert!(overdue(&second).await);
        drop(first);
        assert!(
            !overdue(&second).await,
            "alone: it is being connected again"
        );
    }
}
