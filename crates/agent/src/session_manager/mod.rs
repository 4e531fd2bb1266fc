//! The sessions of a front end: which one a turn belongs to, its place in the session's queue, and
//! what happens to its run afterwards.
//!
//! A front end calls [`SessionManager::reserve`] before anything else of a turn is awaited, because
//! the turns of a session run in the order they arrive. It then builds the request,
//! [runs](TurnTicket::run) it and [records](TurnTicket::finish) how it ended.

mod open_sessions;
mod parked_turns;
mod retention;
mod session_index;
mod ticket;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::open_sessions::OpenSessions;
use self::parked_turns::ParkedTurns;
use self::retention::Retention;
use self::session_index::SessionIndex;
pub use self::ticket::{AnswerSummary, TurnTicket};
use crate::conversation::store::Store;
use crate::conversation::transcript::Transcript;
use crate::run::UserMessage;
use crate::turn::usage::SessionUsage;
use crate::turn::{MessageSender, Record, Session, turn_channels};
use agent_tools::shell::reaper::ChildReaper;
use foundation::prefix;

/// How long, at least, an unnamed session is kept for its client's next request.
const MIN_UNNAMED_IDLE: Duration = Duration::from_secs(30 * 60);

/// The settings of a [`SessionManager`].
#[derive(Debug, Default)]
pub struct SessionOptions {
    /// Where conversations are stored; without it they are kept in memory.
    pub store: Option<Store>,
    /// How many runs may be parked.
    pub max_parked: usize,
    /// How long a run is parked.
    pub park_timeout: Duration,
    /// Ends the processes of the sessions.
    pub reaper: ChildReaper,
}

/// How a front end names the session of a turn.
#[derive(Debug, Clone, Copy)]
pub enum SessionSelector<'a> {
    /// The host's session id.
    Id(&'a str),
    /// A new session that is neither stored nor found again.
    Temporary,
    /// The session that the transcript continues: by its tool calls, then by the client's id, then
    /// by the whole history.
    Transcript {
        /// The client's history.
        transcript: &'a Transcript,
        /// The session id, if the client sends one.
        id: Option<&'a str>,
    },
}

/// Why a turn could not be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// An active turn has the same id.
    #[error("a turn of this id is already active")]
    AlreadyActive,
    /// It was cancelled while it waited for a place in the queue.
    #[error("the turn was cancelled")]
    Cancelled,
}

/// All sessions of a front end.
pub struct SessionManager {
    options: SessionOptions,
    retention: Retention,
    state: Mutex<State>,
}

/// Under one lock, so that for example a cancellation finds a turn either active or parked.
#[derive(Default)]
struct State {
    sessions: OpenSessions,
    active: HashMap<String, ActiveTurn>,
    parked: ParkedTurns,
    index: SessionIndex,
}

/// Handles to an active turn.
struct ActiveTurn {
    session_id: Option<String>,
    cancel: CancellationToken,
    messages: MessageSender,
}

impl SessionManager {
    /// Returns a manager without sessions.
    pub fn new(options: SessionOptions) -> Self {
        Self {
            options,
            retention: Retention::default(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the next place in the queue of a turn's session, at the first poll.
    pub async fn reserve(
        self: &Arc<Self>,
        turn_id: &str,
        selector: SessionSelector<'_>,
        cancel: CancellationToken,
    ) -> Result<TurnTicket, ReserveError> {
        let (handle, channels) = turn_channels(cancel.clone());
        let ticket = {
            let mut state = self.state();
            if state.active.contains_key(turn_id) {
                return Err(ReserveError::AlreadyActive);
            }
            let mut matched = None;
            let (session_id, session) = match selector {
                SessionSelector::Id(id) => (Some(id.to_owned()), self.open_in(&mut state, id)),
                SessionSelector::Temporary => {
                    let session = Session::start(None, self.options.reaper.clone());
                    (None, session)
                }
                SessionSelector::Transcript { transcript, id } => {
                    let (session, found) = self.open_matching(&mut state, transcript, id);
                    let session_id = found.session_id.clone();
                    matched = Some(found);
                    (Some(session_id), session)
                }
            };
            let turn = ActiveTurn {
                session_id: session_id.clone(),
                cancel: cancel.clone(),
                messages: handle.messages(),
            };
            state.active.insert(turn_id.to_owned(), turn);
            TurnTicket::new(
                Arc::clone(self),
                turn_id,
                session_id,
                session,
                matched,
                cancel,
                handle,
            )
        };
        ticket.enqueue(channels).await?;
        Ok(ticket)
    }

    /// Opens the session of a transcript, and closes unnamed ones that were not used for long.
    fn open_matching(
        &self,
        state: &mut State,
        transcript: &Transcript,
        id: Option<&str>,
    ) -> (Session, session_index::SessionMatch) {
        let mut found = state.index.find(transcript, id);
        if found.is_unnamed() {
            let idle = self.options.park_timeout.max(MIN_UNNAMED_IDLE);
            for unused in state.index.take_unused(idle) {
                state.sessions.close(&unused);
            }
        }
        // Each turn says whether an unnamed session is stored.
        let session = self.open_in(state, &found.session_id);
        state.index.begin_turn(&mut found);
        // The least recently used session may have been closed.
        let State {
            index, sessions, ..
        } = state;
        index.retain_open(|id| sessions.contains(id));
        (session, found)
    }

    /// Opens a session that is stored on disk, if there is a store.
    fn open_in(&self, state: &mut State, id: &str) -> Session {
        let reaper = self.options.reaper.clone();
        let max_parked = self.options.max_parked;
        state
            .sessions
            .open(id, max_parked, |last| match self.options.store.clone() {
                Some(store) => Session::start_after(last, Some((store, id.to_owned())), reaper),
                None => Session::start_unkept(last, id, reaper),
            })
    }

    /// Returns an open session.
    pub fn find(&self, id: &str) -> Option<Session> {
        self.state().sessions.find(id)
    }

    /// Returns how many turns wait for their host's results.
    pub fn parked_count(&self) -> usize {
        self.state().parked.count()
    }

    /// Returns Cursor's counters of an open session since it was opened.
    pub fn usage(&self, id: &str) -> Option<SessionUsage> {
        self.find(id).map(|session| session.usage())
    }

    /// Returns the recorded result of a card, also if its session was closed.
    pub fn recorded_card(&self, id: &str, call: &str) -> Option<Record> {
        self.state().sessions.recorded_card(id, call)
    }

    /// Cancels an active turn, or the parked run of an earlier one. Returns whether there is one.
    pub async fn cancel(&self, turn_id: &str) -> bool {
        let session = {
            let mut state = self.state();
            let is_active = match state.active.get(turn_id) {
                Some(turn) => {
                    turn.cancel.cancel();
                    true
                }
                None => false,
            };
            tracing::debug!(turn = turn_id, found = is_active, "turn.cancel");
            if is_active {
                return true;
            }
            let Some(session_id) = state.parked.remove(turn_id) else {
                return false;
            };
            state.sessions.find(&session_id)
        };
        if let Some(session) = session {
            session.release().await;
        }
        true
    }

    /// Sends a user message to an active turn. Returns whether the turn has accepted it.
    pub async fn inject(&self, turn_id: &str, message: UserMessage) -> bool {
        let turn = self
            .state()
            .active
            .get(turn_id)
            .map(|turn| turn.messages.clone());
        match turn {
            Some(messages) => messages.send(message).await,
            None => false,
        }
    }

    /// Forgets the conversation: the next turn of the session sends the whole history.
    pub async fn invalidate(&self, id: &str) {
        tracing::debug!(session = prefix(id), "session.invalidate");
        // Opens the session, so that the next turn is queued after this.
        let session = {
            let mut state = self.state();
            state.parked.remove_session(id);
            self.open_in(&mut state, id)
        };
        session.invalidate().await;
    }

    /// Closes a session and cancels its turns; what is stored stays.
    pub fn close(&self, id: &str) {
        tracing::debug!(session = prefix(id), "session.close");
        let mut state = self.state();
        for turn in state.active.values() {
            if turn.session_id.as_deref() == Some(id) {
                turn.cancel.cancel();
            }
        }
        state.parked.remove_session(id);
        state.sessions.close(id);
    }

    /// Closes every session, and waits until their runs are drained.
    pub async fn close_all(&self) {
        let ends = self.state().sessions.close_all();
        futures_util::future::join_all(ends.into_iter().map(|end| end.wait())).await;
    }
}

#[cfg(test)]
mod tests;
