//! Statistics of one stream. The log gets sums and first and last times, not every delta.

use tokio::time::Instant;

use super::attempt::CloseReason;

/// Count and size of one kind of message, and when the first and the last arrived.
#[derive(Debug, Default, Clone, Copy)]
struct TextStats {
    pieces: u64,
    bytes: u64,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl TextStats {
    /// Records a message, and returns whether it was the first.
    fn add(&mut self, bytes: usize, now: Instant) -> bool {
        self.pieces += 1;
        self.bytes += bytes as u64;
        self.last = Some(now);
        let first = self.first.is_none();
        self.first.get_or_insert(now);
        first
    }
}

/// The statistics of one stream.
#[derive(Debug)]
pub(super) struct StreamStats {
    started: Instant,
    text: TextStats,
    thinking: TextStats,
    gets: TextStats,
    sets: TextStats,
    messages: u64,
    heartbeats: u64,
    exec_heartbeats: u64,
    checkpoints: u64,
}

impl StreamStats {
    pub(super) fn new(started: Instant) -> Self {
        Self {
            started,
            text: TextStats::default(),
            thinking: TextStats::default(),
            gets: TextStats::default(),
            sets: TextStats::default(),
            messages: 0,
            heartbeats: 0,
            exec_heartbeats: 0,
            checkpoints: 0,
        }
    }

    fn ms(&self, at: Instant) -> u64 {
        at.duration_since(self.started).as_millis() as u64
    }

    pub(super) fn message(&mut self) {
        self.messages += 1;
    }

    pub(super) fn text(&mut self, bytes: usize, now: Instant) {
        if self.text.add(bytes, now) {
            tracing::debug!(ms = self.ms(now), "text.first");
        }
    }

    pub(super) fn thinking(&mut self, bytes: usize, now: Instant) {
        if self.thinking.add(bytes, now) {
            tracing::debug!(ms = self.ms(now), "thinking.first");
        }
    }

    pub(super) fn blob_read(&mut self, bytes: usize, now: Instant) {
        self.gets.add(bytes, now);
    }

    pub(super) fn blob_written(&mut self, bytes: usize, now: Instant) {
        self.sets.add(bytes, now);
    }

    pub(super) fn heartbeat(&mut self) {
        self.heartbeats += 1;
    }

    pub(super) fn exec_heartbeat(&mut self) {
        self.exec_heartbeats += 1;
    }

    pub(super) fn checkpoint(&mut self, bytes: usize) {
        self.checkpoints += 1;
        tracing::debug!(bytes, "checkpoint");
    }

    /// Logs the sums.
    pub(super) fn close(&self, reason: &CloseReason) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let outcome = match reason {
            CloseReason::Finished => "finished",
            CloseReason::Cancelled => "cancelled",
            CloseReason::Failed(_) => "failed",
            CloseReason::Idle(..) => "idle",
            CloseReason::Limit(..) => "limit",
        };
        let ms = |at: Option<Instant>| at.map(|at| self.ms(at));
        tracing::debug!(
            outcome,
            ms = self.ms(Instant::now()),
            messages = self.messages,
            text_pieces = self.text.pieces,
            text_bytes = self.text.bytes,
            text_first_ms = ms(self.text.first),
            text_last_ms = ms(self.text.last),
            thinking_pieces = self.thinking.pieces,
            thinking_bytes = self.thinking.bytes,
            thinking_first_ms = ms(self.thinking.first),
            thinking_last_ms = ms(self.thinking.last),
            blobs_read = self.gets.pieces,
            blobs_read_bytes = self.gets.bytes,
            blobs_written = self.sets.pieces,
            blobs_written_bytes = self.sets.bytes,
            checkpoints = self.checkpoints,
            heartbeats = self.heartbeats,
            exec_heartbeats = self.exec_heartbeats,
            "attempt.closed"
        );
    }
}
