//! A run that is given up: the server is told, and has a while to send its last checkpoint.
//! Until then it gets its answers, and nothing is done for it any more.

use tokio::time::Instant;

use super::{Attempt, execs};
use crate::run::answer::GIVEN_UP;
use crate::wire::proto::agent::v1::*;

impl Attempt<'_> {
    /// Tells the server that the run is given up. It gets its answers, and a while to send
    /// the last checkpoint.
    pub(super) fn leave(&mut self) {
        if self.leaving.is_some() {
            return;
        }
        tracing::debug!("run.leaving");
        let now = Instant::now();
        self.leaving = Some(now + self.around.timing.linger);
        self.heeds_by = Some(now + self.around.timing.heed);
        self.execs.abort_all();
        self.around.memo.stop();
        self.act(conversation_action::Action::CancelAction(
            CancelAction::default(),
        ));
        self.untold = self.outbox.len();
    }

    /// Somebody waits for the end of a run that was given up.
    pub(super) fn hurry(&mut self) {
        if let Some(until) = self.leaving {
            let soon = Instant::now() + self.around.timing.farewell;
            self.leaving = Some(until.min(soon));
        }
    }

    /// Says no to what a run that was given up asks for.
    pub(super) fn decline(&mut self, exec: ExecServerMessage) {
        tracing::debug!(exec = exec.id, "exec.declined");
        match exec.message {
            // A call of the host's tools has a result that says what became of it.
            Some(exec_server_message::Message::McpArgs(_)) => {
                let error = McpError {
                    error: GIVEN_UP.into(),
                    ..McpError::default()
                };
                let result = McpResult {
                    result: Some(mcp_result::Result::Error(error)),
                };
                let reply = Box::new(exec_client_message::Message::McpResult(result));
                let progress = execs::Progress::Reply(exec.id, reply);
                for frame in self.execs.frames(progress, self.last_inbound) {
                    self.post(&frame);
                }
            }
            _ => self.post(&execs::throw(exec.id, GIVEN_UP.into())),
        }
        self.post(&execs::close(exec.id));
        self.works_on();
    }

    /// The server works on. If it has had time to hear that nobody wants that, it will not
    /// send a last checkpoint either.
    pub(super) fn works_on(&mut self) {
        if self.heeds_by.is_some_and(|by| self.last_inbound >= by) {
            self.hurry();
        }
    }
}
