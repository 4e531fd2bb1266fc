//! Cancelling a run: the server is sent a cancellation and has a limited time to send its last
//! checkpoint. Until then its requests are answered, but nothing more is executed.

use tokio::time::Instant;

use super::{Attempt, open_execs};
use crate::run::query_replies::RUN_CANCELLED;
use cursor_proto::agent::v1::*;

impl Attempt<'_> {
    /// Sends the cancellation, aborts running execs, and starts the wait for the last checkpoint.
    pub(super) fn begin_cancel(&mut self) {
        if self.cancel_deadline.is_some() {
            return;
        }
        tracing::debug!("run.leaving");
        let now = Instant::now();
        self.cancel_deadline = Some(now + self.context.timing.cancel_timeout);
        self.cancel_received_by = Some(now + self.context.timing.cancel_ack_timeout);
        self.execs.abort_all();
        self.act(conversation_action::Action::CancelAction(
            CancelAction::default(),
        ));
        self.unsent_until_cancel = self.outbox.len();
    }

    /// Shortens the wait, because the owner waits for the run to end.
    pub(super) fn shorten_cancel(&mut self) {
        if let Some(until) = self.cancel_deadline {
            let soon = Instant::now() + self.context.timing.final_checkpoint_grace;
            self.cancel_deadline = Some(until.min(soon));
        }
    }

    /// Rejects a request of a cancelled run.
    pub(super) fn reject_exec(&mut self, exec: ExecServerMessage) {
        tracing::debug!(exec = exec.id, "exec.declined");
        match exec.message {
            // A host tool call has a result type of its own for errors.
            Some(exec_server_message::Message::McpArgs(_)) => {
                let error = McpError {
                    error: RUN_CANCELLED.into(),
                    ..McpError::default()
                };
                let result = McpResult {
                    result: Some(mcp_result::Result::Error(error)),
                };
                let reply = Box::new(exec_client_message::Message::McpResult(result));
                let progress = open_execs::ExecEvent::Reply(exec.id, reply);
                for frame in self.execs.frames(progress, self.last_inbound) {
                    self.post(&frame);
                }
            }
            _ => self.post(&open_execs::throw(exec.id, RUN_CANCELLED.into())),
        }
        self.post(&open_execs::close(exec.id));
        self.note_still_working();
    }

    /// Notes that the server is still working. If it has had time to receive the cancellation, it
    /// will not send a last checkpoint either, so the wait is shortened.
    pub(super) fn note_still_working(&mut self) {
        if self
            .cancel_received_by
            .is_some_and(|by| self.last_inbound >= by)
        {
            self.shorten_cancel();
        }
    }
}
