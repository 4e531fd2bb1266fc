//! What the server asks to be done: started once, told again where it was done before.

use super::{Attempt, execs};
use crate::diag::Variant;
use crate::run::answer::GIVEN_UP;
use crate::run::event::RunEvent;
use crate::run::retry::Shown;
use crate::wire::proto::agent::v1::*;

impl Attempt<'_> {
    pub(super) fn exec(&mut self, exec: ExecServerMessage) {
        if self.leaving.is_some() {
            tracing::debug!(exec = exec.id, "exec.declined");
            self.post(&execs::throw(exec.id, GIVEN_UP.into()));
            self.post(&execs::close(exec.id));
            self.works_on();
            return;
        }
        match exec.message {
            Some(request) => {
                if let Some(done) = self.around.memo.recall(&request) {
                    tracing::debug!(exec = exec.id, kind = %Variant(&request), "exec.recalled");
                    for frame in execs::again(exec.id, done) {
                        self.post(&frame);
                    }
                    return;
                }
                let changes = changes_something(&request);
                let asks_host = matches!(request, exec_server_message::Message::McpArgs(_));
                let copy = (changes && !asks_host).then(|| request.clone());
                let call = self.execs.start(exec.id, request, self.last_inbound);
                match copy {
                    Some(request) if call.is_none() => self.around.memo.begin(exec.id, &request),
                    _ if changes => {
                        self.progress.shown = self.progress.shown.max(Shown::Called);
                        self.changing.insert(exec.id);
                    }
                    _ => {}
                }
                if let Some(call) = call {
                    self.hosted.insert(exec.id);
                    self.tell(RunEvent::HostCall(Box::new(call)));
                }
            }
            None => {
                tracing::debug!(exec = exec.id, "exec.unknown");
                self.around.drift.count("exec: unknown request");
                let error = "this client has no handler for this kind of request";
                self.post(&execs::throw(exec.id, error.into()));
                self.post(&execs::close(exec.id));
            }
        }
    }
}

/// Whether a request may leave something changed, so that it must not be asked for twice.
fn changes_something(request: &exec_server_message::Message) -> bool {
    use exec_server_message::Message;
    matches!(
        request,
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
            | Message::ExecuteHookArgs(_)
    )
}
