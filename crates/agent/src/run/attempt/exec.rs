//! Exec requests: each is executed once, and answered from the record if it was executed before.

use super::open_execs::MAX_OPEN;
use super::{Attempt, open_execs};
use crate::effect_log::is_lasting;
use crate::run::event::RunEvent;
use cursor_proto::agent::v1::*;
use foundation::VariantName;

impl Attempt<'_> {
    pub(super) fn exec(&mut self, exec: ExecServerMessage) {
        if self.cancel_deadline.is_some() {
            return self.reject_exec(exec);
        }
        if !self.context.effects.add_frame(&exec) {
            tracing::debug!(exec = exec.id, "exec.repeated");
            self.context.drift.count("exec: the same request twice");
            return;
        }
        if self.execs.is_full() {
            tracing::warn!(exec = exec.id, "exec.refused");
            let error = format!("no more than {MAX_OPEN} requests are taken at once");
            self.post(&open_execs::throw(exec.id, error));
            self.post(&open_execs::close(exec.id));
            return;
        }
        match exec.message {
            Some(request) => {
                self.batch.requested(exec.id, &request);
                if let Some(replay) = self.context.effects.recall(exec.id, &request) {
                    tracing::debug!(exec = exec.id, kind = %VariantName(&request), "exec.recalled");
                    for frame in open_execs::replayed_frames(exec.id, replay) {
                        self.post(&frame);
                    }
                    return;
                }
                // A new request means that the server has received the results sent before it.
                self.context.effects.server_progressed();
                let is_lasting = is_lasting(&request);
                let copy = request.clone();
                let call = self.execs.start(exec.id, request, self.last_inbound);
                let effects = &mut *self.context.effects;
                if let Some(call) = call {
                    effects.call_host(exec.id, &copy, &call.id, is_lasting);
                    self.batch.delegated(exec.id);
                    self.emit(RunEvent::HostCall(Box::new(call)));
                } else if is_lasting {
                    effects.execute(exec.id, &copy);
                }
            }
            None => {
                tracing::debug!(exec = exec.id, "exec.unknown");
                self.context.drift.count("exec: unknown request");
                self.watchdog.refused_unknown_exec(exec.id);
                let error = "this client has no handler for this kind of request";
                self.post(&open_execs::throw(exec.id, error.into()));
                self.post(&open_execs::close(exec.id));
            }
        }
    }
}
