//! What the server asks to be done: started once, told again where it was done before.

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::execs::MAX_OPEN;
use super::{Attempt, execs};
use crate::diag::Variant;
use crate::run::event::RunEvent;
use crate::run::memo::call_id;
use crate::run::owed::{Ask, Effect};
use crate::run::retry::Shown;
use crate::wire::proto::agent::v1::*;

impl Attempt<'_> {
    pub(super) fn exec(&mut self, exec: ExecServerMessage) {
        if self.leaving.is_some() {
            return self.decline(exec);
        }
        if !self.is_first(&exec) {
            tracing::debug!(exec = exec.id, "exec.repeated");
            self.around.drift.count("exec: the same request twice");
            return;
        }
        if self.execs.is_full() {
            tracing::warn!(exec = exec.id, "exec.refused");
            let error = format!("no more than {MAX_OPEN} requests are taken at once");
            self.post(&execs::throw(exec.id, error));
            self.post(&execs::close(exec.id));
            return;
        }
        match exec.message {
            Some(request) => {
                if let Some(done) = self.around.memo.recall(&request) {
                    tracing::debug!(exec = exec.id, kind = %Variant(&request), "exec.recalled");
                    self.around.owed.recalled(&done.call);
                    for frame in execs::again(exec.id, done) {
                        self.post(&frame);
                    }
                    return;
                }
                // The server goes on: it has what it was told before.
                self.around.memo.worked();
                let effect = effect(&request);
                let copy = (effect == Effect::Lasting).then(|| request.clone());
                let call = self.execs.start(exec.id, request, self.last_inbound);
                match (&call, &copy) {
                    (None, Some(request)) => self.around.memo.begin(exec.id, request),
                    (Some(_), Some(request)) => self.around.memo.call(exec.id, request),
                    _ => {}
                }
                if let Some(call) = call {
                    let name = copy.as_ref().map_or("", call_id);
                    self.around
                        .owed
                        .ask(Ask::Exec(exec.id), effect, name, &call.id);
                    if effect == Effect::Lasting {
                        self.progress.shown = self.progress.shown.max(Shown::Called);
                    }
                    self.hosted.insert(exec.id);
                    self.tell(RunEvent::HostCall(Box::new(call)));
                }
            }
            None => {
                tracing::debug!(exec = exec.id, "exec.unknown");
                self.around.drift.count("exec: unknown request");
                self.watchdog.refused_unknown_exec(exec.id);
                let error = "this client has no handler for this kind of request";
                self.post(&execs::throw(exec.id, error.into()));
                self.post(&execs::close(exec.id));
            }
        }
    }
}

impl Attempt<'_> {
    /// Whether a request has not come on this stream under the same names. One that has is at
    /// work or answered: another answer is not owed, and doing it twice may do harm.
    fn is_first(&mut self, exec: &ExecServerMessage) -> bool {
        // By its number alone another request of the same kind may go.
        exec.exec_id.is_empty() || self.asked.insert(Sent::of(exec))
    }
}

/// A digest of a request and its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sent([u8; 32]);

impl Sent {
    fn of(exec: &ExecServerMessage) -> Self {
        let named = ExecServerMessage {
            id: exec.id,
            exec_id: exec.exec_id.clone(),
            message: exec.message.clone(),
            ..ExecServerMessage::default()
        };
        Self(Sha256::digest(named.encode_to_vec()).into())
    }
}

/// Whether a request may leave something changed, so that it must not be asked for twice.
fn effect(request: &exec_server_message::Message) -> Effect {
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
        | Message::ExecuteHookArgs(_) => Effect::Lasting,
        _ => Effect::None,
    }
}
