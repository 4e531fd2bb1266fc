//! Distributes streams over several connections.
//!
//! An HTTP/2 server limits the number of streams on a connection. Further streams wait silently
//! in the client's queue until another stream ends, and a parked run may not end for an hour.
//! Therefore streams are distributed over several connections, and a stream that was not accepted
//! moves to another one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::http_clients::HttpClient;
use super::suspend_aware_timer;

/// Maximum number of streams on one connection. HTTP/2 recommends that servers accept at least
/// 100; the rest is a reserve for streams that have ended here but not yet on the server.
const MAX_STREAMS: usize = 64;
/// How long a working connection may keep a stream waiting.
const WAIT: Duration = Duration::from_secs(1);

/// The connections to hosts of one kind.
#[derive(Debug)]
pub(super) struct ConnectionPool(Mutex<PoolState>);

#[derive(Debug)]
struct PoolState {
    connections: Vec<Arc<PooledConnection>>,
    /// Maximum number of streams on a connection; lowered when a server accepts fewer.
    room: usize,
}

#[derive(Debug)]
struct PooledConnection {
    client: HttpClient,
    open: AtomicUsize,
    /// Whether its connection has accepted a stream.
    works: AtomicBool,
}

impl PooledConnection {
    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

/// A reserved stream on a connection; released when dropped.
#[derive(Debug)]
pub(super) struct StreamPermit {
    connection: Arc<PooledConnection>,
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.connection.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl StreamPermit {
    /// Returns the HTTP client of the connection.
    pub(super) fn client(&self) -> &HttpClient {
        &self.connection.client
    }

    /// Records that the connection accepted a stream.
    pub(super) fn mark_used(&self) {
        self.connection.works.store(true, Ordering::Relaxed);
    }

    /// Resolves when a stream that is not accepted yet should move elsewhere, because its
    /// connection works and has other streams. A connection that is still being established is
    /// waited for.
    pub(super) async fn overdue(&self) {
        loop {
            suspend_aware_timer::sleep(WAIT).await;
            if self.connection.works.load(Ordering::Relaxed) && self.connection.open() > 1 {
                return;
            }
        }
    }
}

impl ConnectionPool {
    /// Returns a pool whose connections carry many streams.
    pub(super) fn shared() -> Self {
        Self::with_room(MAX_STREAMS)
    }

    /// Returns a pool of one client, which opens a connection for each stream.
    pub(super) fn single() -> Self {
        Self::with_room(usize::MAX)
    }

    fn with_room(room: usize) -> Self {
        Self(Mutex::new(PoolState {
            connections: Vec::new(),
            room,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a stream on the first connection with room, or on a new one.
    pub(super) fn permit<E>(
        &self,
        build: impl FnOnce() -> Result<HttpClient, E>,
    ) -> Result<StreamPermit, E> {
        let mut pool = self.lock();
        let room = pool.room;
        let at = match pool
            .connections
            .iter()
            .position(|connection| connection.open() < room)
        {
            Some(at) => at,
            None => {
                pool.connections.push(Arc::new(PooledConnection {
                    client: build()?,
                    open: AtomicUsize::new(0),
                    works: AtomicBool::new(false),
                }));
                pool.connections.len() - 1
            }
        };
        let connection = Arc::clone(&pool.connections[at]);
        connection.open.fetch_add(1, Ordering::Relaxed);
        // Close empty connections after this one, because those up to it have room again.
        let mut place = 0..;
        pool.connections.retain(|connection| {
            place.next().is_some_and(|place| place <= at) || connection.open() > 0
        });
        Ok(StreamPermit { connection })
    }

    /// Records that a connection accepts no more than its other streams, and releases this permit.
    pub(super) fn full(&self, permit: StreamPermit) {
        let mut pool = self.lock();
        let others = permit.connection.open().saturating_sub(1);
        pool.room = pool.room.min(others.max(1));
        drop(permit);
    }

    /// Releases all connections: open streams are kept, the next stream opens a new connection.
    pub(super) fn clear(&self) {
        self.lock().connections.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::headers::HttpVersion;
    use super::super::http_clients::SetupError;
    use super::*;

    fn client() -> Result<HttpClient, SetupError> {
        HttpClient::plain(HttpVersion::Http2)
    }

    fn permit(connections: &ConnectionPool) -> StreamPermit {
        connections.permit(client).unwrap()
    }

    fn open(connections: &ConnectionPool) -> Vec<usize> {
        connections
            .lock()
            .connections
            .iter()
            .map(|connection| connection.open())
            .collect()
    }

    #[test]
    fn connections_fill_in_order_and_close_when_empty() {
        let connections = ConnectionPool::with_room(2);
        let mut permits: Vec<StreamPermit> = (0..5).map(|_| permit(&connections)).collect();
        assert_eq!(open(&connections), [2, 2, 1]);
        permits.drain(1..);
        let again = permit(&connections);
        assert_eq!(open(&connections), [2]);
        drop((permits, again));
        let _one = permit(&connections);
        assert_eq!(open(&connections), [1], "one empty connection is kept open");
    }

    #[test]
    fn the_limit_of_a_server_is_learned() {
        let connections = ConnectionPool::with_room(64);
        let mut permits: Vec<StreamPermit> = (0..5).map(|_| permit(&connections)).collect();
        for room in [4, 3] {
            connections.full(permits.pop().unwrap());
            let learned = connections.lock().room;
            assert_eq!((learned, open(&connections)), (room, vec![room]));
        }
        let _elsewhere = permit(&connections);
        assert_eq!(open(&connections), [3, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_leaves_only_a_working_connection_with_other_streams() {
        let connections = ConnectionPool::with_room(64);
        let first = permit(&connections);
        let overdue = async |permit: &StreamPermit| {
            let long = Duration::from_secs(60);
            tokio::time::timeout(long, permit.overdue()).await.is_ok()
        };
        assert!(!overdue(&first).await, "alone, and not connected");
        let second = permit(&connections);
        assert!(!overdue(&second).await, "not connected");
        first.mark_used();
        assert!(overdue(&second).await);
        drop(first);
        assert!(
            !overdue(&second).await,
            "alone: it is being connected again"
        );
    }
}
