//! Timers of a stream: heartbeats, and deadlines for silence.

use std::time::Duration;

use tokio::time::Instant;

use super::{Attempt, CloseReason};
use crate::run::event::RunEvent;
use crate::run::watchdog::IdleTimeout;
use cursor_client::suspend_aware_timer;
use cursor_proto::agent::v1::*;

impl Attempt<'_> {
    /// Starts or pauses reading. After a pause, silence is measured from now.
    pub(super) fn set_reading(&mut self, is_reading: bool) {
        if is_reading && !self.is_reading {
            let now = Instant::now();
            self.last_inbound = now;
            self.watchdog.worked(now);
            self.turn_ended = self.turn_ended.map(|_| now);
            self.latest_end = self.latest_end.map(|_| now + self.max_after_turn());
        }
        self.is_reading = is_reading;
    }

    /// Returns when the next timer is due.
    pub(super) fn next_deadline(&self) -> Instant {
        let mut next = self.next_heartbeat;
        let mut sooner = |deadline: Option<Instant>| {
            if let Some(deadline) = deadline {
                next = next.min(deadline);
            }
        };
        sooner(self.execs.next_beat());
        sooner(self.cancels_at());
        sooner(self.batch.ends_at());
        sooner(self.results_first.as_ref().map(|(_, until)| *until));
        if self.is_reading {
            sooner(self.stalls_at().map(|at| self.after_grace(at)));
            sooner(self.idles_at().map(|at| self.after_grace(at)));
            sooner(self.ends_at());
        }
        next
    }

    /// Delays a deadline until input that arrived while the process was suspended has been read.
    fn after_grace(&self, at: Instant) -> Instant {
        at.max(self.no_timeout_before)
    }

    fn cancels_at(&self) -> Option<Instant> {
        self.cancel_deadline.map(|at| self.after_grace(at))
    }

    fn ends_at(&self) -> Option<Instant> {
        let at = self.turn_ended? + self.context.timing.after_turn;
        let at = self.latest_end.map_or(at, |by| at.min(by));
        Some(self.after_grace(at))
    }

    /// Returns how long the stream may stay open after the turn's end if no more text arrives.
    fn max_after_turn(&self) -> Duration {
        self.context.timing.after_turn * 2
    }

    /// Returns whether the server was silent until the deadline. On the first call after it, only
    /// schedules another look a moment later, because input may be queued that has not been read.
    fn was_silent(&mut self, until: Option<Instant>, now: Instant) -> bool {
        let Some(until) = until.filter(|at| now >= self.after_grace(*at)) else {
            return false;
        };
        let looked = self.no_timeout_before > until;
        if !looked {
            self.no_timeout_before = now + suspend_aware_timer::LOOK;
        }
        looked
    }

    /// Records that the turn ended, as far as is known.
    pub(super) fn note_turn_end(&mut self) {
        self.restart_end_wait();
        self.latest_end = Some(self.last_inbound + self.max_after_turn());
    }

    /// Restarts the wait for the end of the stream, without extending its upper limit.
    fn restart_end_wait(&mut self) {
        self.turn_ended = Some(self.last_inbound);
        self.liveness_counts_until = Some(self.last_inbound + self.context.timing.after_turn);
    }

    /// Handles an event after the turn's end. If the user sees it, the turn was not over. Tool
    /// calls may repeat without any output, so only text extends the upper limit of the wait.
    pub(super) fn after_turn_end(&mut self, event: &RunEvent) {
        if self.turn_ended.is_none() {
            return;
        }
        match event {
            RunEvent::Text(text) | RunEvent::Thinking(text) if !text.is_empty() => {
                self.note_turn_end()
            }
            RunEvent::ToolStarted(_)
            | RunEvent::ToolPartial(_)
            | RunEvent::ToolDelta(_)
            | RunEvent::ToolCompleted(_) => self.restart_end_wait(),
            _ => self.note_liveness(),
        }
    }

    /// Records a sign of life. A server that sends heartbeats after the turn's end may still be
    /// writing its last checkpoint.
    pub(super) fn note_liveness(&mut self) {
        if self
            .liveness_counts_until
            .is_some_and(|until| self.last_inbound < until)
        {
            self.turn_ended = self.turn_ended.map(|_| self.last_inbound);
        }
    }

    /// Returns whether we are waiting for the server: not while tools are executing here or the
    /// user has an open question.
    fn is_waiting_for_server(&self) -> bool {
        self.execs.is_empty() && self.questions.is_empty()
    }

    /// Returns when silence counts as a stall. `None` if the watchdog is off: a dead connection is
    /// detected without it.
    fn stalls_at(&self) -> Option<Instant> {
        self.watchdog
            .limit()
            .filter(|_| self.is_waiting_for_server())?;
        let since = self.last_inbound.max(self.watchdog.last_work());
        Some(since + self.context.timing.stall)
    }

    /// Returns when a stream that is alive has made no progress for too long.
    fn idles_at(&self) -> Option<Instant> {
        let is_waiting = self.is_waiting_for_server()
            && self.turn_ended.is_none()
            && self.cancel_deadline.is_none();
        self.watchdog.deadline().filter(|_| is_waiting)
    }

    /// Handles the timer that was due at `due`.
    pub(super) fn tick(&mut self, due: Instant, now: Instant) -> Option<CloseReason> {
        if suspend_aware_timer::is_late(due, now) {
            self.no_timeout_before = now + suspend_aware_timer::extra(due, now);
        }
        if self.cancels_at().is_some_and(|at| now >= at) {
            return Some(CloseReason::Cancelled);
        }
        if self.is_reading {
            if self.ends_at().is_some_and(|at| now >= at) {
                return Some(CloseReason::Finished);
            }
            if self.was_silent(self.stalls_at(), now) {
                let stall = self.context.timing.stall;
                tracing::debug!(silence_s = stall.as_secs(), "stream.stalled");
                let timeout = self.watchdog.idle_timeout(stall);
                return Some(CloseReason::Idle(IdleTimeout {
                    is_silent: true,
                    ..timeout
                }));
            }
            if self.was_silent(self.idles_at(), now) {
                let after = self.watchdog.limit().unwrap_or_default();
                return Some(CloseReason::Idle(self.watchdog.idle_timeout(after)));
            }
        }
        if now >= self.next_heartbeat {
            self.next_heartbeat = now + self.context.timing.heartbeat;
            self.stats.heartbeat();
            self.post(&AgentClientMessage {
                message: Some(agent_client_message::Message::ClientHeartbeat(
                    ClientHeartbeat {},
                )),
            });
        }
        for frame in self.execs.beat(now) {
            self.stats.exec_heartbeat();
            self.post(&frame);
        }
        None
    }
}
