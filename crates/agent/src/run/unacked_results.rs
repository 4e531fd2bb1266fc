//! Results sent to the server that its newest checkpoint may not include.
//!
//! A checkpoint may already be in flight when a result is sent, and some arrive seconds after the
//! request they precede. A checkpoint is therefore taken to include a result only if the model
//! produced output, or the server reported the call complete, in between. The error is on the safe
//! side: sending a result twice is harmless, executing a call twice may not be.
//!
//! A checkpoint that lists a call as pending does not include its result. Checkpoints from the
//! next stream do not either, until that stream has been sent the result.

use cursor_proto::state::PendingCalls;

/// Requests that the host or the user answers, from the request until a checkpoint includes the
/// result.
#[derive(Debug, Default)]
pub(super) struct UnackedResults(Vec<UnackedResult>);

/// Identifies a request within its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKey {
    Exec(u32),
    Question(u32),
}

/// Whether executing a request twice would matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SideEffect {
    /// It only reads.
    None,
    /// It may change something, or asks the user.
    Lasting,
}

/// A request that has no result in a checkpoint yet.
#[derive(Debug)]
struct UnackedResult {
    /// The request on the current stream; `None` if only an earlier stream made it.
    key: Option<RequestKey>,
    effect: SideEffect,
    /// The server's tool call id; empty if it sent none.
    call: String,
    /// The host's ids of the calls made for this request.
    host: Vec<String>,
    stage: AckStage,
    in_checkpoint: InCheckpoint,
}

/// What the newest checkpoint says about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InCheckpoint {
    /// Does not mention it; the result may be included or not.
    Unknown,
    /// Does not include the result: it lists the call as pending, or its stream was never sent the
    /// result.
    No,
}

/// How far the result has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AckStage {
    /// An earlier stream was sent the result; the current one was not.
    EarlierStream,
    /// No result yet.
    Open,
    /// The result was sent on this stream.
    Sent,
    /// The server has made progress since, so it has the result.
    Received,
}

impl UnackedResults {
    /// Records a request that the host or the user answers, with the host's id of the call.
    pub(super) fn add(&mut self, key: RequestKey, effect: SideEffect, call: &str, host: &str) {
        if let Some(result) = self.0.iter_mut().find(|result| result.key == Some(key)) {
            result.host.push(host.into());
            return;
        }
        self.0.push(UnackedResult {
            key: Some(key),
            effect,
            call: call.into(),
            host: vec![host.into()],
            stage: AckStage::Open,
            in_checkpoint: InCheckpoint::Unknown,
        });
    }

    /// Starts another stream from the newest checkpoint. Keeps only results that this checkpoint
    /// is known to lack.
    pub(super) fn restart(&mut self) {
        let given = |result: &UnackedResult| {
            result.stage != AckStage::Open && result.in_checkpoint == InCheckpoint::No
        };
        self.0.retain(given);
        for result in &mut self.0 {
            (result.key, result.stage) = (None, AckStage::EarlierStream);
        }
    }

    /// Records that this stream repeated a call and was sent the recorded result.
    pub(super) fn replayed(&mut self, call: &str) {
        let before = |result: &&mut UnackedResult| {
            result.stage == AckStage::EarlierStream && result.call == call
        };
        for result in self.0.iter_mut().filter(before) {
            result.stage = AckStage::Sent;
        }
    }

    /// Returns whether a result of one of these host calls is still to be sent. A request that has
    /// made another call since has used the result.
    pub(super) fn awaits(&self, calls: &[String]) -> bool {
        let last = |result: &UnackedResult| result.host.last().is_some_and(|id| calls.contains(id));
        let open = |result: &&UnackedResult| result.stage == AckStage::Open;
        self.0.iter().filter(open).any(last)
    }

    /// Records that the result was sent.
    pub(super) fn answered(&mut self, key: RequestKey) {
        for result in self.0.iter_mut().filter(|result| result.key == Some(key)) {
            result.stage = AckStage::Sent;
        }
    }

    /// Records model output: the server has every result sent before it.
    pub(super) fn model_output(&mut self) {
        self.mark_received(|result| result.stage == AckStage::Sent);
    }

    /// Records that the server reported a call complete.
    pub(super) fn completed(&mut self, call: &str) {
        self.mark_received(|result| result.stage != AckStage::Open && result.call == call);
    }

    fn mark_received(&mut self, which: impl Fn(&UnackedResult) -> bool) {
        for result in self.0.iter_mut().filter(|result| which(result)) {
            result.stage = AckStage::Received;
        }
    }

    /// Records a checkpoint, and drops the results it includes.
    pub(super) fn checkpoint(&mut self, pending: &PendingCalls) {
        for result in &mut self.0 {
            let lists_as_pending = pending.names(&result.call);
            // Without being listed, it is missing too if this stream was never sent it.
            let is_missing = lists_as_pending || result.stage == AckStage::EarlierStream;
            result.in_checkpoint = if is_missing {
                InCheckpoint::No
            } else {
                InCheckpoint::Unknown
            };
        }
        self.0.retain(|result| {
            result.stage != AckStage::Received || result.in_checkpoint == InCheckpoint::No
        });
    }

    /// Returns whether the newest checkpoint can be resumed without a side effect being executed
    /// twice. A call for which `holds` returns true has a recorded result that can be replayed.
    pub(super) fn is_settled(&self, holds: impl Fn(&str) -> bool) -> bool {
        let harmless = |result: &UnackedResult| match result.stage {
            _ if result.effect == SideEffect::None => true,
            AckStage::Open => false,
            AckStage::EarlierStream | AckStage::Sent | AckStage::Received => holds(&result.call),
        };
        self.0.iter().all(harmless)
    }

    /// Returns the host's ids of calls whose results the newest checkpoint may not include.
    pub(super) fn unknown(&self) -> Vec<String> {
        self.0
            .iter()
            .flat_map(|result| result.host.iter().cloned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(call: &str) -> UnackedResults {
        let mut unacked = UnackedResults::default();
        unacked.add(RequestKey::Exec(1), SideEffect::Lasting, call, "host-1");
        unacked
    }

    #[test]
    fn a_checkpoint_includes_a_result_only_after_server_progress() {
        let mut unacked = requested("c");
        unacked.model_output();
        unacked.checkpoint(&PendingCalls::default());
        assert!(!unacked.is_settled(|_| true), "no result yet");
        unacked.answered(RequestKey::Exec(1));
        unacked.checkpoint(&PendingCalls::default());
        unacked.checkpoint(&PendingCalls::default());
        assert_eq!(
            unacked.unknown(),
            ["host-1"],
            "both checkpoints may be older than the result"
        );
        assert!(unacked.is_settled(|call| call == "c"), "it is on record");
        unacked.completed("another");
        unacked.checkpoint(&PendingCalls::default());
        assert!(!unacked.is_settled(|_| false));
        unacked.completed("c");
        unacked.checkpoint(&PendingCalls::default());
        assert!(unacked.is_settled(|_| false) && unacked.unknown().is_empty());
    }

    #[test]
    fn a_checkpoint_that_lists_a_call_as_pending_lacks_its_result() {
        let mut unacked = requested("c");
        unacked.answered(RequestKey::Exec(1));
        unacked.model_output();
        let lists_c = PendingCalls::of(["{\"id\":\"c\"}"]);
        unacked.checkpoint(&lists_c);
        assert!(!unacked.is_settled(|_| false));
        unacked.checkpoint(&PendingCalls::of(["{\"id\":\"d\"}"]));
        assert!(unacked.is_settled(|_| false));
        let mut without_id = requested("");
        without_id.answered(RequestKey::Exec(1));
        without_id.model_output();
        without_id.checkpoint(&lists_c);
        assert!(without_id.is_settled(|_| false));
    }

    #[test]
    fn a_pending_result_stays_missing_until_the_next_stream_is_sent_it() {
        let lists_c = PendingCalls::of(["{\"id\":\"c\"}"]);
        let late = |pending: &PendingCalls| {
            let mut unacked = requested("c");
            unacked.answered(RequestKey::Exec(1));
            unacked.checkpoint(pending);
            unacked.restart();
            unacked
        };
        // It is unknown whether this checkpoint includes the result.
        assert!(late(&PendingCalls::default()).unknown().is_empty());
        let mut unacked = late(&lists_c);
        unacked.model_output();
        unacked.checkpoint(&PendingCalls::default());
        // Exec ids are only unique within a stream, so this one matches nothing.
        unacked.answered(RequestKey::Exec(1));
        unacked.restart();
        unacked.model_output();
        unacked.checkpoint(&PendingCalls::default());
        assert_eq!(unacked.unknown(), ["host-1"]);
        assert!(unacked.is_settled(|call| call == "c"));
        unacked.replayed("c");
        unacked.model_output();
        unacked.checkpoint(&PendingCalls::default());
        assert!(unacked.unknown().is_empty());
        let mut unacked = late(&lists_c);
        unacked.completed("c");
        unacked.checkpoint(&PendingCalls::default());
        assert!(unacked.unknown().is_empty(), "the server has it");
        let mut unacked = requested("c");
        unacked.checkpoint(&lists_c);
        unacked.restart();
        assert!(unacked.unknown().is_empty(), "no result yet");
    }

    #[test]
    fn a_read_only_request_is_settled_but_still_unacknowledged() {
        let mut unacked = UnackedResults::default();
        unacked.add(RequestKey::Question(1), SideEffect::None, "", "a");
        unacked.add(RequestKey::Question(1), SideEffect::None, "", "b");
        assert!(unacked.is_settled(|_| false));
        assert_eq!(unacked.unknown(), ["a", "b"]);
    }
}
