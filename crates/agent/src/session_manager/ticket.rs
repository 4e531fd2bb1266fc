//! A turn's place in the queue of its session.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::session_index::SessionMatch;
use super::{ReserveError, SessionManager};
use crate::run::queue;
use crate::turn::{
    Keep, Session, Stop, TurnChannels, TurnEvent, TurnHandle, TurnRequest, TurnResult,
    turn_channels,
};

/// The parts of an answer that identify the session of the next request.
#[derive(Debug, Default)]
pub struct AnswerSummary {
    /// The answer.
    pub text: String,
    /// The ids of the calls the host was sent.
    pub calls: Vec<String>,
}

/// A reserved turn. Dropping it cancels the turn.
pub struct TurnTicket {
    manager: Arc<SessionManager>,
    turn_id: String,
    /// `None` for a temporary session.
    session_id: Option<String>,
    session: Session,
    handle: Option<TurnHandle>,
    /// How the session was found, if by the transcript.
    found: Option<SessionMatch>,
    cancel: CancellationToken,
    is_active: bool,
    is_finished: bool,
}

impl TurnTicket {
    pub(super) fn new(
        manager: Arc<SessionManager>,
        turn_id: &str,
        session_id: Option<String>,
        session: Session,
        found: Option<SessionMatch>,
        cancel: CancellationToken,
        handle: TurnHandle,
    ) -> Self {
        Self {
            manager,
            turn_id: turn_id.to_owned(),
            session_id,
            session,
            handle: Some(handle),
            found,
            cancel,
            is_active: true,
            is_finished: false,
        }
    }

    pub(super) async fn enqueue(&self, channels: TurnChannels) -> Result<(), ReserveError> {
        tokio::select! {
            () = self.session.enqueue(channels) => Ok(()),
            () = self.cancel.cancelled() => Err(ReserveError::Cancelled),
        }
    }

    /// Returns the id of the session; empty for a temporary one.
    pub fn session_id(&self) -> &str {
        self.session_id.as_deref().unwrap_or_default()
    }

    /// Returns the token that cancels the turn.
    pub fn cancel_token(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Returns where the conversation is kept, if the host does not decide it.
    pub fn keep(&self) -> Keep {
        let is_unnamed = self.found.as_ref().is_some_and(SessionMatch::is_unnamed);
        if is_unnamed { Keep::Memory } else { Keep::Disk }
    }

    /// Starts the turn, once. Returns its events, which must be read, and its result. A ticket that
    /// is dropped instead abandons the turn, and the next one sends its injected messages.
    pub async fn start(
        &mut self,
        request: TurnRequest,
    ) -> (
        queue::Receiver<TurnEvent>,
        impl Future<Output = TurnResult> + use<>,
    ) {
        if let Some(id) = &self.session_id {
            // The turn takes over what was parked.
            self.manager.state().parked.remove_session(id);
        }
        let handle = self.handle.take();
        // A second turn has no place in the queue, and fails.
        let handle = handle.unwrap_or_else(|| turn_channels(self.cancel.clone()).0);
        handle.start(request).await
    }

    /// Records how the turn ended. A run that waits for tool results is parked; if too many are, the
    /// one that waited longest is released. Returns `false` if the turn was cancelled after it had
    /// ended with tool calls: its run is then released.
    pub async fn finish(&mut self, stop: &Stop, answer: &AnswerSummary) -> bool {
        self.is_finished = true;
        let is_waiting = *stop == Stop::ToolUse;
        let mut is_wanted = true;
        let released = {
            let mut guard = self.manager.state();
            let state = &mut *guard;
            if let Some(found) = &self.found {
                match stop {
                    Stop::Finished => state.index.record_answer(found, &answer.text),
                    Stop::ToolUse => state.index.record_calls(found, &answer.calls),
                    Stop::Aborted | Stop::Failed(_) => state.index.record_failure(found),
                }
            }
            match &self.session_id {
                _ if is_waiting && self.cancel.is_cancelled() => {
                    is_wanted = false;
                    Some(self.session.clone())
                }
                Some(id) if is_waiting => {
                    self.is_active = false;
                    state.active.remove(&self.turn_id);
                    let max = self.manager.options.max_parked;
                    let longest = state.parked.add(&self.turn_id, id, max);
                    longest.and_then(|id| state.sessions.find(&id))
                }
                _ => None,
            }
        };
        if let Some(session) = released {
            session.start_release().await;
        }
        let store = self.manager.options.store.as_ref();
        self.manager.retention.sweep_if_due(store);
        is_wanted
    }

    /// Releases a parked run whose calls did not reach the host.
    pub async fn release(&mut self) {
        self.manager.state().parked.remove(&self.turn_id);
        self.session.start_release().await;
    }
}

impl Drop for TurnTicket {
    fn drop(&mut self) {
        self.cancel.cancel();
        let mut state = self.manager.state();
        if self.is_active {
            state.active.remove(&self.turn_id);
        }
        if let Some(found) = self.found.as_ref().filter(|_| !self.is_finished) {
            state.index.record_failure(found);
        }
    }
}
