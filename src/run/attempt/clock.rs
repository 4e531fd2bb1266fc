//! What a stream does by itself as time passes: beats, and gives up on silence.

use std::time::Duration;

use tokio::time::Instant;

use super::{Attempt, Closing, Reading};
use crate::run::event::RunEvent;
use crate::wire::awake;
use crate::wire::proto::agent::v1::*;

impl Attempt<'_> {
    /// Starts or stops reading. After a pause the silence counts anew.
    pub(super) fn pace(&mut self, reading: Reading) {
        if (self.reading, reading) == (Reading::Paused, Reading::On) {
            let now = Instant::now();
            self.last_inbound = now;
            self.watchdog.worked(now);
            self.turn_ended = self.turn_ended.map(|_| now);
            self.ends_by = self.ends_by.map(|_| now + self.last_call());
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
        sooner(self.leaves_at());
        if self.reading == Reading::On {
            sooner(self.stalls_at().map(|at| self.heard_out(at)));
            sooner(self.idles_at().map(|at| self.heard_out(at)));
            sooner(self.ends_at());
        }
        next
    }

    /// No verdict before what came while we were stopped is read.
    fn heard_out(&self, at: Instant) -> Instant {
        at.max(self.listens_until)
    }

    fn leaves_at(&self) -> Option<Instant> {
        self.leaving.map(|at| self.heard_out(at))
    }

    fn ends_at(&self) -> Option<Instant> {
        let at = self.turn_ended? + self.around.timing.after_turn;
        let at = self.ends_by.map_or(at, |by| at.min(by));
        Some(self.heard_out(at))
    }

    /// What a server may take after a turn's end, whatever it sends but words.
    fn last_call(&self) -> Duration {
        self.around.timing.after_turn * 2
    }

    /// Whether it has been silent until then. That nothing is left to be read of what came by
    /// then shows a moment later.
    fn was_silent(&mut self, until: Option<Instant>, now: Instant) -> bool {
        let Some(until) = until.filter(|at| now >= self.heard_out(*at)) else {
            return false;
        };
        let looked = self.listens_until > until;
        if !looked {
            self.listens_until = now + awake::LOOK;
        }
        looked
    }

    /// The turn is over, as far as is known.
    pub(super) fn ended(&mut self) {
        self.goes_on();
        self.ends_by = Some(self.last_inbound + self.last_call());
    }

    fn goes_on(&mut self) {
        self.turn_ended = Some(self.last_inbound);
        self.beats_until = Some(self.last_inbound + self.around.timing.after_turn);
    }

    /// What follows a turn's end: if the person sees it, the turn was not over. Tools may come
    /// again and again and bring nothing, so only words are waited for without a limit.
    pub(super) fn behind_the_end(&mut self, event: &RunEvent) {
        if self.turn_ended.is_none() {
            return;
        }
        match event {
            RunEvent::Text(said) | RunEvent::Thinking(said) if !said.is_empty() => self.ended(),
            RunEvent::ToolStarted(_)
            | RunEvent::ToolPartial(_)
            | RunEvent::ToolDelta(_)
            | RunEvent::ToolCompleted(_) => self.goes_on(),
            _ => self.lives_on(),
        }
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

    /// The timer that was due then.
    pub(super) fn tick(&mut self, due: Instant, now: Instant) -> Option<Closing> {
        if awake::is_late(due, now) {
            self.listens_until = now + awake::extra(due, now);
        }
        if self.leaves_at().is_some_and(|at| now >= at) {
            return Some(Closing::Cancelled);
        }
        if self.reading == Reading::On {
            if self.ends_at().is_some_and(|at| now >= at) {
                return Some(Closing::Finished);
            }
            if self.was_silent(self.stalls_at(), now) {
                let stall = self.around.timing.stall;
                tracing::debug!(silence_s = stall.as_secs(), "stream.stalled");
                return Some(Closing::Idle(self.watchdog.bark(stall)));
            }
            if self.was_silent(self.idles_at(), now) {
                let after = self.watchdog.limit().unwrap_or_default();
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
