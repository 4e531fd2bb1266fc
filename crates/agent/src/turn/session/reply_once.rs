//! The answer of a turn, which its end and its cancellation both send.

use tokio::sync::oneshot;

use crate::turn::request::TurnResult;

/// The host's answer, sent once: when the turn ends or when the host cancels it.
pub(super) struct ReplyOnce(pub(super) Option<oneshot::Sender<TurnResult>>);

impl ReplyOnce {
    pub(super) fn send(&mut self, result: TurnResult) {
        if let Some(reply) = self.0.take() {
            let _ = reply.send(result);
        }
    }
}
