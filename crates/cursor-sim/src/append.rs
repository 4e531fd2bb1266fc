//! BidiAppend: client messages that arrive in one request each, in any order.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;

/// Runs that may receive messages before RunSSE opens them.
const MAX_UNOPENED: usize = 256;
/// Ended runs that are kept, to distinguish a run that has ended from one not yet open.
const MAX_ENDED: usize = 4096;
/// Messages of one run that may wait for an earlier message.
const MAX_WAITING: usize = 4096;

/// Why a message was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum AppendError {
    /// The run has ended.
    #[error("the run of this request id has ended")]
    Ended,
    /// Too many messages wait for an earlier one.
    #[error("too many messages are waiting for an earlier one")]
    Full,
}

/// A run with this id is open or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AlreadyOpen;

/// All runs that receive their messages by BidiAppend.
#[derive(Debug, Default)]
pub(super) struct AppendStreams(Mutex<AppendState>);

#[derive(Debug, Default)]
struct AppendState {
    streams: HashMap<String, AppendStream>,
    unopened: VecDeque<String>,
    ended: VecDeque<String>,
}

#[derive(Debug, Default)]
struct AppendStream {
    next: i64,
    waiting: BTreeMap<i64, Bytes>,
    sink: Option<mpsc::UnboundedSender<Bytes>>,
}

impl AppendStream {
    /// Forwards the messages that are next in order.
    fn advance(&mut self) {
        let Some(sink) = &self.sink else {
            return;
        };
        while let Some(message) = self.waiting.remove(&self.next) {
            self.next += 1;
            let _ = sink.send(message);
        }
    }
}

impl AppendStreams {
    /// Adds a message; a repeated one is ignored.
    pub(super) fn append(&self, id: &str, seqno: i64, message: Bytes) -> Result<(), AppendError> {
        let mut state = self.lock();
        if state.ended.iter().any(|ended| ended == id) {
            return Err(AppendError::Ended);
        }
        if !state.streams.contains_key(id) {
            if state.unopened.len() == MAX_UNOPENED
                && let Some(oldest) = state.unopened.pop_front()
            {
                state.streams.remove(&oldest);
            }
            state.unopened.push_back(id.to_owned());
        }
        let stream = state.streams.entry(id.to_owned()).or_default();
        if seqno < stream.next {
            return Ok(());
        }
        if stream.waiting.len() >= MAX_WAITING {
            return Err(AppendError::Full);
        }
        stream.waiting.entry(seqno).or_insert(message);
        stream.advance();
        Ok(())
    }

    /// Opens a run; returns its past and future messages in order.
    pub(super) fn open(&self, id: &str) -> Result<mpsc::UnboundedReceiver<Bytes>, AlreadyOpen> {
        let mut state = self.lock();
        if state.ended.iter().any(|ended| ended == id) {
            return Err(AlreadyOpen);
        }
        state.unopened.retain(|waiting| waiting != id);
        let stream = state.streams.entry(id.to_owned()).or_default();
        if stream.sink.is_some() {
            return Err(AlreadyOpen);
        }
        let (sink, messages) = mpsc::unbounded_channel();
        stream.sink = Some(sink);
        stream.advance();
        Ok(messages)
    }

    /// Ends a run; later messages are rejected.
    pub(super) fn end(&self, id: &str) {
        let mut state = self.lock();
        state.streams.remove(id);
        if state.ended.len() == MAX_ENDED {
            state.ended.pop_front();
        }
        state.ended.push_back(id.to_owned());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, AppendState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn drain(messages: &mut mpsc::UnboundedReceiver<Bytes>) -> Vec<Bytes> {
        std::iter::from_fn(|| messages.try_recv().ok()).collect()
    }

    #[test]
    fn messages_are_forwarded_in_order() {
        let appends = AppendStreams::default();
        appends.append("r", 1, "b".into()).unwrap();
        appends.append("r", 0, "a".into()).unwrap();
        let mut messages = appends.open("r").unwrap();
        assert_eq!(drain(&mut messages), ["a", "b"]);
        appends.append("r", 3, "d".into()).unwrap();
        assert!(drain(&mut messages).is_empty());
        appends.append("r", 1, "again".into()).unwrap();
        appends.append("r", 3, "again".into()).unwrap();
        appends.append("r", 2, "c".into()).unwrap();
        assert_eq!(drain(&mut messages), ["c", "d"]);
    }

    #[test]
    fn an_ended_run_rejects_messages() {
        let appends = AppendStreams::default();
        let _messages = appends.open("r").unwrap();
        assert_eq!(appends.open("r").err(), Some(AlreadyOpen));
        appends.end("r");
        assert_eq!(appends.append("r", 0, "a".into()), Err(AppendError::Ended));
        assert_eq!(appends.open("r").err(), Some(AlreadyOpen));
    }
}
