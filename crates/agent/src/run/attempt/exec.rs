//! Exec requests: each is executed once, and answered from the record if it was executed before.

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::open_execs::MAX_OPEN;
use super::{Attempt, open_execs};
use crate::run::effect_log::call_id;
use crate::run::event::RunEvent;
use crate::run::retry::VisibleProgress;
use crate::run::unacked_results::{RequestKey, SideEffect};
use cursor_proto::agent::v1::*;
use foundation::VariantName;

impl Attempt<'_> {
    pub(super) fn exec(&mut self, exec: ExecServerMessage) {
        if self.cancel_deadline.is_some() {
            return self.reject_exec(exec);
        }
        if !self.is_new(&exec) {
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
                if let Some(done) = self.context.memo.recall(&request) {
                    tracing::debug!(exec = exec.id, kind = %VariantName(&request), "exec.recalled");
                    self.context.unacked.replayed(&done.call);
                    for frame in open_execs::replayed_frames(exec.id, done) {
                        self.post(&frame);
                    }
                    return;
                }
                // A new request means that the server has received the results sent before it.
                self.context.memo.server_progressed();
                let effect = effect(&request);
                let copy = (effect == SideEffect::Lasting).then(|| request.clone());
                let call = self.execs.start(exec.id, request, self.last_inbound);
                match (&call, &copy) {
                    (None, Some(request)) => self.context.memo.begin(exec.id, request),
                    (Some(_), Some(request)) => self.context.memo.call(exec.id, request),
                    _ => {}
                }
                if let Some(call) = call {
                    let name = copy.as_ref().map_or("", call_id);
                    self.context
                        .unacked
                        .add(RequestKey::Exec(exec.id), effect, name, &call.id);
                    if effect == SideEffect::Lasting {
                        self.progress.shown = self.progress.shown.max(VisibleProgress::Called);
                    }
                    self.hosted.insert(exec.id);
                    self.emit(RunEvent::HostCall(Box::new(call)));
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

impl Attempt<'_> {
    /// Returns whether a request is new on this stream. A repeated one is executing or answered
    /// already: a second answer is not expected, and executing it twice may do harm.
    fn is_new(&mut self, exec: &ExecServerMessage) -> bool {
        // Without an exec id, another request of the same kind may have the same number.
        exec.exec_id.is_empty() || self.seen_execs.insert(ExecDigest::of(exec))
    }
}

/// Digest of a request and its ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExecDigest([u8; 32]);

impl ExecDigest {
    fn of(exec: &ExecServerMessage) -> Self {
        let identified = ExecServerMessage {
            id: exec.id,
            exec_id: exec.exec_id.clone(),
            message: exec.message.clone(),
            ..ExecServerMessage::default()
        };
        Self(Sha256::digest(identified.encode_to_vec()).into())
    }
}

/// Returns whether a request may change something, so that it must not be executed twice.
fn effect(request: &exec_server_message::Message) -> SideEffect {
    use exec_server_message::Message;
    match request {
        Message::ShellArgs(_)
        | Message::ShellStreamArgs(_)
        | Message::MiniSweAgentBashArgs(_)
        | Message::BackgroundShellSpawnArgs(_)
        | Message::WriteShellStdinArgs(_)
        | Message::WriteArgs(_)
        | Message::DeleteArgs(_)
        | Message::McpArgs(_)
        | Message::PiBashArgs(_)
        | Message::PiEditArgs(_)
        | Message::PiWriteArgs(_)
        | Message::SubagentArgs(_)
        | Message::ComputerUseArgs(_)
        | Message::ExecuteHookArgs(_) => SideEffect::Lasting,
        _ => SideEffect::None,
    }
}
