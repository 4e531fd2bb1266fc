//! A host that repeats a request whose results were delivered and answered: it gets the same answer
//! again, and nothing is requested of the model.

use super::SessionTask;
use crate::conversation::fingerprint::Fingerprint;
use crate::message::Message;
use crate::turn::channels::OpenTurn;
use crate::turn::request::{Stop, TurnEvent, TurnRequest, TurnResult};
use crate::turn::turn_progress::{TurnProgress, send_event};

/// The longest answer that is kept.
const MAX_ANSWER: usize = 1024 * 1024;

/// The answer of the last turn, if its request ended with tool results.
#[derive(Debug)]
pub(super) struct LastAnswer {
    history: Fingerprint,
    text: String,
}

impl LastAnswer {
    pub(super) fn of(request: &TurnRequest, text: &str) -> Option<Self> {
        let is_kept = !text.is_empty() && text.len() <= MAX_ANSWER && ends_with_results(request);
        is_kept.then(|| Self {
            history: request.history(),
            text: text.to_owned(),
        })
    }
}

impl SessionTask {
    /// Returns the result of a turn that repeats the last one, after its answer was sent again. A
    /// user who asks again wants another answer, so only requests that end with results count.
    pub(super) async fn repeat_answer(
        &mut self,
        request: &OpenTurn,
        progress: &mut TurnProgress,
    ) -> Option<TurnResult> {
        let last = self.last_answer.take()?;
        if !ends_with_results(request) || request.history() != last.history {
            return None;
        }
        tracing::debug!("turn.repeated");
        send_event(TurnEvent::Text(last.text.clone()), request, progress).await;
        self.last_answer = Some(last);
        Some(progress.result(Stop::Finished, None, request))
    }
}

fn ends_with_results(request: &TurnRequest) -> bool {
    let last = request.transcript.messages.last();
    last.and_then(Message::as_tool_result).is_some()
}
