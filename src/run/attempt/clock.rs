//! What a stream does by itself as time passes: beats, and gives up on silence.

use tokio::time::Instant;

use super::{Attempt, Closing, Reading};
use crate::wire::proto::agent::v1::*;

impl Attempt<'_> {
    /// Starts or stops reading. After a pause the silence counts anew.
    pub(super) fn pace(&mut self, reading: Reading) {
        if (self.reading, reading) == (Reading::Paused, Reading::On) {
            let now = Instant::now();
            self.last_inbound = now;
            self.watchdog.worked(now);
            self.turn_ended = self.turn_ended.map(|_| now);
        }
        self.reading = reading;
    }

    pub(super) fn next_deadline(&self) -> Instant {
        let mut next = self.next_heartbeat;
        let mut sooner = |deadline: Option<Instant>| {
            if let Some(deadline) = deadline {
                next = next.min(deadline);
            }
        };
        sooner(self.execs.next_beat());
        sooner(self.leaving);
        if self.reading == Reading::On {
            sooner(self.stalls_at());
            sooner(self.idles_at());
            sooner(
                self.turn_ended
                    .map(|ended| ended + self.around.timing.after_turn),
            );
        }
        next
    }

    /// A server that beats after the turn's end may still be at its last checkpoint.
    pub(super) fn lives_on(&mut self) {
        if self
            .beats_until
            .is_some_and(|until| self.last_inbound < until)
        {
            self.turn_ended = self.turn_ended.map(|_| self.last_inbound);
        }
    }

    /// Whether it is the server's turn: not while tools are at work here or a person is
    /// thinking.
    fn owed(&self) -> bool {
        self.execs.is_empty() && self.questions.is_empty()
    }

    /// When silence is a stall: never for those who want no watchdog. That a connection is dead
    /// shows without it.
    fn stalls_at(&self) -> Option<Instant> {
        self.watchdog.limit().filter(|_| self.owed())?;
        let since = self.last_inbound.max(self.watchdog.last_work());
        Some(since + self.around.timing.stall)
    }

    /// When a stream that lives has done nothing for too long.
    fn idles_at(&self) -> Option<Instant> {
        let owed = self.owed() && self.turn_ended.is_none() && self.leaving.is_none();
        self.watchdog.deadline().filter(|_| owed)
    }

    pub(super) fn tick(&mut self, now: Instant) -> Option<Closing> {
        if self.leaving.is_some_and(|deadline| now >= deadline) {
            return Some(Closing::Cancelled);
        }
        if self.reading == Reading::On {
            let after_turn = self.around.timing.after_turn;
            if self
                .turn_ended
                .is_some_and(|ended| now >= ended + after_turn)
            {
                return Some(Closing::Finished);
            }
            if self.stalls_at().is_some_and(|at| now >= at) {
                let stall = self.around.timing.stall;
                tracing::debug!(silence_s = stall.as_secs(), "stream.stalled");
                return Some(Closing::Idle(self.watchdog.bark(stall)));
            }
            if self.idles_at().is_some_and(|at| now >= at) {
                let after = self.watchdog.limit().unwrap_or_default();
                let phase = self.watchdog.phase();
                let ms = after.as_millis() as u64;
                tracing::debug!(ms, ?phase, "native.stream.idle_timeout");
                return Some(Closing::Idle(self.watchdog.bark(after)));
            }
        }
        if now >= self.next_heartbeat {
            self.next_heartbeat = now + self.around.timing.heartbeat;
            self.tally.heartbeat();
            self.post(&AgentClientMessage {
                message: Some(agent_client_message::Message::ClientHeartbeat(
                    ClientHeartbeat {},
                )),
            });
        }
        for frame in self.execs.beat(now) {
            self.tally.exec_heartbeat();
            self.post(&frame);
        }
        None
    }
}
