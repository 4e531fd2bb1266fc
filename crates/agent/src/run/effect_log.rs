//! Records the tool calls executed for a history and the replies sent for them.
//!
//! A stream that resumes from a checkpoint requests the same work again, because that checkpoint
//! does not include it. Such a request is answered with the recorded replies instead of being
//! executed twice, by this run or by the next run for the same history. Where the server may
//! already know the result, and may therefore be repeating the request on purpose, it is first
//! answered with a note that the work was already executed; if it sends the request once more, the
//! request is executed.
//!
//! What was executed stays recorded when a checkpoint includes it: the checkpoint may be given up,
//! and then nothing else knows.

mod digest;
mod replayed_text;

use prost::Message as _;
use uuid::Uuid;

pub use self::digest::EffectDigest;
pub(super) use self::digest::call_id;
use self::digest::what;
use super::retry::VisibleProgress;
use crate::prompts;
use agent_tools::{ExecError, ExecReply, ExecRequest};
use cursor_proto::agent::v1::ExecClientMessage;

/// Upper limit for the recorded replies. An effect that does not fit is dropped, and the run is
/// not retried after a failure that would need it.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// Requests with side effects and their replies, in the order in which they completed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EffectLog {
    /// Completed requests.
    done: Vec<Effect>,
    /// Requests that are still executing, by exec id.
    open: Vec<(u32, Effect)>,
    /// Encoded size of all recorded replies.
    bytes: usize,
    /// Whether effects since the newest checkpoint cannot be replayed.
    forgotten: Unreplayable,
    /// Whether any effect of the run cannot be replayed, including those that are in a checkpoint.
    ever_forgotten: Unreplayable,
    /// Logical time: incremented whenever a request starts or completes.
    clock: u64,
    /// Whether an interrupted turn may have executed requests that are not recorded here.
    anything: bool,
}

/// A request with a side effect, completed or executing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Effect {
    what: EffectDigest,
    /// The server's tool call id; empty if it sent none.
    pub(super) call: String,
    origin: Origin,
    /// The replies sent to the server.
    pub(super) replies: Vec<ExecReply>,
    /// The outcome: success, or the error sent to the server.
    pub(super) end: Result<(), ExecError>,
    /// What the server knows of the result.
    ack: AckState,
    /// Whether this stream has continued without requesting it. The checkpoint it started from
    /// includes the result, or the model has chosen something else.
    passed: bool,
    /// Whether the host was called after this request.
    host_call: HostCall,
    /// Logical times at which it started and completed.
    began: u64,
    ended: u64,
}

/// Where the request was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// By us, or by the host while we waited. The server may use another call id when it asks
    /// again.
    Us,
    /// By the host between turns. The host has the result in its own transcript.
    Host,
    /// By a turn that was interrupted, possibly in another process; the outcome is unknown.
    Earlier,
}

/// Whether a host tool was called after this request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostCall {
    /// No host tool was called.
    Nothing,
    /// A host tool was called, and its result is sent to every later run.
    Called,
}

/// How far the result is known to have reached the server. Moves forward from `Sent` to
/// `InCheckpoint` within a stream; a restart moves it to one of the last three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AckState {
    /// The result was sent on this stream. A checkpoint that arrives now may have been written
    /// before it.
    Sent,
    /// The server has made progress since, so it has received the result.
    Progressed,
    /// One checkpoint has arrived after that progress; it may still be older than the result.
    OneCheckpoint,
    /// A second checkpoint has arrived: the newest checkpoint includes the result.
    InCheckpoint,
    /// Sent on an earlier stream only; the checkpoint this stream resumed from does not include
    /// it.
    EarlierStream,
    /// Sent on an earlier stream; the checkpoint or the host's history may include it.
    MaybeInCheckpoint,
    /// The checkpoint this stream resumed from should include the result. If the server asks again
    /// with the same call id, it does not.
    SameCallOnly,
}

/// Whether executed effects exist that cannot be replayed to another stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Unreplayable {
    #[default]
    /// Every effect can be replayed.
    Nothing,
    /// An execution was interrupted. Its result is lost, but the interruption can be reported.
    Broken,
    /// An effect was executed of which no replayable record exists.
    Something,
}

/// What a new run starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The newest checkpoint.
    State,
    /// The host's transcript, which includes none of the effects executed since.
    History,
}

impl EffectLog {
    /// Returns the log of a run that ended without reporting what it executed, such as one that
    /// panicked.
    pub(super) fn lost() -> Self {
        Self {
            forgotten: Unreplayable::Something,
            ever_forgotten: Unreplayable::Something,
            ..Self::default()
        }
    }

    /// Returns the log of an interrupted turn from the requests it had started: those that no
    /// stored checkpoint includes, and those that the newest one includes. A request that was
    /// started several times is reported once.
    pub fn begun(
        unsaved: impl IntoIterator<Item = EffectDigest>,
        saved: impl IntoIterator<Item = EffectDigest>,
    ) -> Self {
        let unsaved = unsaved
            .into_iter()
            .map(|what| (what, AckState::EarlierStream));
        let saved = saved.into_iter().map(|what| (what, AckState::InCheckpoint));
        let mut memo = Self::default();
        for (what, ack) in unsaved.chain(saved) {
            if !memo.done.iter().any(|done| done.what == what) {
                memo.done.push(Effect::unknown(what, ack));
            }
        }
        memo
    }

    /// Returns the log of an interrupted turn whose record cannot be read: it may have executed
    /// any request.
    pub fn unreadable() -> Self {
        Self {
            anything: true,
            ..Self::default()
        }
    }

    /// Prepares the log for another run that answers the same history. The new run is sent the
    /// results of host calls, so it has moved past effects executed before such a call; a repeated
    /// request for them is answered with a note first.
    pub fn handed_on(mut self, start: Start) -> Self {
        self.restart();
        for done in &mut self.done {
            // The history includes what the host executed, and nothing that was executed here.
            let settled = matches!(done.ack, AckState::InCheckpoint | AckState::SameCallOnly);
            if start == Start::History && settled && done.origin != Origin::Host {
                done.ack = AckState::EarlierStream;
            }
            if (done.origin, done.ack, done.host_call)
                == (Origin::Us, AckState::EarlierStream, HostCall::Called)
            {
                done.ack = AckState::MaybeInCheckpoint;
            }
        }
        // The caller decides whether a log that is incomplete (see `tells_all`) may be used.
        self.forgotten = Unreplayable::Nothing;
        self
    }

    /// Like [`Self::handed_on`], for a history that the user has extended: the user may want the
    /// work to be repeated.
    pub fn handed_on_behind_words(self, start: Start) -> Self {
        let mut memo = self.handed_on(start);
        for done in memo
            .done
            .iter_mut()
            .filter(|done| done.origin == Origin::Us)
        {
            if done.ack == AckState::EarlierStream {
                done.ack = AckState::MaybeInCheckpoint;
            }
        }
        memo
    }

    /// Returns whether a run started this way can be sent every effect that was executed.
    pub fn tells_all(&self, start: Start) -> bool {
        let forgotten = match start {
            Start::State => self.forgotten,
            Start::History => self.ever_forgotten,
        };
        forgotten < Unreplayable::Something
    }

    /// Starts another stream from the newest checkpoint.
    pub(super) fn restart(&mut self) {
        for done in &mut self.done {
            done.passed = false;
            done.ack = match (done.origin, done.ack) {
                (Origin::Earlier, AckState::InCheckpoint) => AckState::InCheckpoint,
                (Origin::Us, AckState::OneCheckpoint | AckState::MaybeInCheckpoint) => {
                    AckState::MaybeInCheckpoint
                }
                (Origin::Host, AckState::OneCheckpoint)
                | (Origin::Host | Origin::Us, AckState::InCheckpoint | AckState::SameCallOnly) => {
                    AckState::SameCallOnly
                }
                _ => AckState::EarlierStream,
            };
        }
        self.interrupt_open();
    }

    /// Records that the open requests were interrupted and may have been executed partly. Calls
    /// that the host executes between turns run to completion, so they are not recorded here.
    pub(super) fn interrupt_open(&mut self) {
        let ended = self.tick();
        for (_, mut done) in std::mem::take(&mut self.open) {
            if done.origin == Origin::Us {
                done.replies.clear();
                done.end = Err(ExecError(prompts::EXECUTION_INTERRUPTED.into()));
                done.ack = AckState::EarlierStream;
                done.ended = ended;
                self.done.push(done);
                self.forgotten = self.forgotten.max(Unreplayable::Broken);
            }
        }
        self.count();
    }

    /// Drops the open requests because the user cancelled them and may want them repeated.
    pub(super) fn discard_open(&mut self) {
        self.open.clear();
        self.count();
    }

    /// Records that the server made progress, so it has received every result sent so far.
    pub(super) fn server_progressed(&mut self) {
        self.advance(AckState::Sent, AckState::Progressed);
    }

    /// Records a checkpoint, and returns the digests of our own requests that it is the first to
    /// include. Requests that the stream has passed are not repeated by one that resumes from it.
    pub(super) fn checkpoint(&mut self) -> Vec<EffectDigest> {
        let ours =
            |done: &&Effect| done.origin != Origin::Host && done.ack == AckState::OneCheckpoint;
        let settled = self
            .done
            .iter()
            .filter(ours)
            .map(|done| done.what)
            .collect();
        for done in self.done.iter_mut().filter(|done| done.passed) {
            (done.passed, done.ack) = (false, AckState::SameCallOnly);
        }
        self.advance(AckState::OneCheckpoint, AckState::InCheckpoint);
        self.advance(AckState::Progressed, AckState::OneCheckpoint);
        self.forgotten = Unreplayable::Nothing;
        settled
    }

    fn advance(&mut self, from: AckState, to: AckState) {
        for done in self.done.iter_mut().filter(|done| done.ack == from) {
            done.ack = to;
        }
    }

    /// Returns the recorded result of a request that only an earlier stream has made, and marks it
    /// as sent on this one.
    pub(super) fn recall(&mut self, request: &ExecRequest) -> Option<Effect> {
        let (what, call) = (what(request)?, call_id(request));
        let same_call = |done: &Effect| !call.is_empty() && done.call == call;
        let same = |done: &Effect| match done.ack {
            _ if done.what != what => false,
            AckState::EarlierStream | AckState::MaybeInCheckpoint => {
                !done.passed || same_call(done)
            }
            AckState::SameCallOnly => same_call(done),
            _ => false,
        };
        let Some(at) = self.done.iter().position(same) else {
            return self.maybe_executed(what);
        };
        let found = &mut self.done[at];
        if found.ack == AckState::MaybeInCheckpoint && found.end.is_ok() {
            found.end = Err(ExecError(replayed_text::ran_before(&found.replies)));
            found.replies.clear();
        }
        found.ack = AckState::Sent;
        found.passed = false;
        let done = found.clone();
        if done.origin == Origin::Us {
            // The checkpoint included earlier requests that this stream did not repeat. Requests
            // that were executed concurrently with this one may still be repeated.
            self.pass(|earlier| earlier.ended <= done.began);
        }
        self.count();
        Some(done)
    }

    /// Returns an answer of unknown outcome to the first request for something that an interrupted
    /// turn may have executed, because its record cannot be read.
    fn maybe_executed(&mut self, what: EffectDigest) -> Option<Effect> {
        if !self.anything || self.done.iter().any(|done| done.what == what) {
            return None;
        }
        let done = Effect::unknown(what, AckState::Sent);
        self.done.push(done.clone());
        Some(done)
    }

    /// Records that this stream has continued without these requests.
    fn pass(&mut self, which: impl Fn(&Effect) -> bool) {
        let earlier = |done: &&mut Effect| done.origin == Origin::Us && done.is_earlier();
        for done in self.done.iter_mut().filter(earlier) {
            done.passed |= which(done);
        }
    }

    /// Records that a request is being executed here. The new stream has therefore diverged: it may
    /// want to execute what an earlier stream executed after the last request both share. Effects
    /// with an unknown outcome are reported on any path.
    pub(super) fn begin(&mut self, id: u32, request: &ExecRequest) {
        self.pass(|_| true);
        match what(request) {
            Some(what) => self.enter(id, request, what, Origin::Us),
            None => self.forget(),
        }
    }

    /// Returns whether the result of the host call with this id can be replayed.
    pub(super) fn holds(&self, call: &str) -> bool {
        let named = |done: &Effect| done.origin == Origin::Host && done.call == call;
        !call.is_empty() && self.done.iter().any(named)
    }

    /// Records that the host was asked to execute a request.
    pub(super) fn call(&mut self, id: u32, request: &ExecRequest) {
        for done in &mut self.done {
            done.host_call = HostCall::Called;
        }
        if let Some(what) = what(request) {
            self.enter(id, request, what, Origin::Host);
        }
    }

    fn enter(&mut self, id: u32, request: &ExecRequest, what: EffectDigest, origin: Origin) {
        let began = self.tick();
        let done = Effect {
            what,
            call: call_id(request).into(),
            origin,
            replies: Vec::new(),
            end: Ok(()),
            ack: AckState::Sent,
            passed: false,
            host_call: HostCall::Nothing,
            began,
            ended: began,
        };
        self.open.push((id, done));
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Records that an effect without a replayable record was executed.
    fn forget(&mut self) {
        self.forgotten = Unreplayable::Something;
        self.ever_forgotten = Unreplayable::Something;
    }

    /// Records a reply sent to the server.
    pub(super) fn reply(&mut self, id: u32, reply: &ExecReply) {
        let Some(at) = self.open.iter().position(|(open, _)| *open == id) else {
            return;
        };
        self.bytes += size(reply);
        self.make_room();
        if self.bytes > MOST_BYTES {
            let (_, done) = self.open.remove(at);
            if done.origin == Origin::Us {
                self.forget();
            }
            self.count();
            return;
        }
        self.open[at].1.replies.push(reply.clone());
    }

    /// Drops results that the checkpoint includes, because they are needed least, until the log
    /// fits.
    fn make_room(&mut self) {
        while self.bytes > MOST_BYTES
            && let Some(at) = self.done.iter().position(Effect::is_settled)
        {
            let done = self.done.remove(at);
            self.bytes -= done.bytes().min(self.bytes);
            if done.origin == Origin::Us {
                self.ever_forgotten = Unreplayable::Something;
            }
        }
    }

    fn count(&mut self) {
        let open = self.open.iter().map(|(_, done)| done);
        self.bytes = self.done.iter().chain(open).map(Effect::bytes).sum();
    }

    /// Records that a request has completed.
    pub(super) fn end(&mut self, id: u32, end: &Result<(), ExecError>) {
        if let Some(at) = self.open.iter().position(|(open, _)| *open == id) {
            let (_, mut done) = self.open.remove(at);
            done.ended = self.tick();
            done.end.clone_from(end);
            self.done.push(done);
        }
    }

    /// Returns the results that a stream which resumes from the newest checkpoint does not know, as
    /// text for its first message, and records that it may know them then.
    pub(super) fn send_results(&mut self) -> Vec<String> {
        self.restart();
        let mark = Uuid::new_v4().to_string();
        let unknown =
            |done: &&mut Effect| (done.origin, done.ack) == (Origin::Us, AckState::EarlierStream);
        let mut results = Vec::new();
        for done in self.done.iter_mut().filter(unknown) {
            done.ack = AckState::MaybeInCheckpoint;
            let (is_error, text) = match &done.end {
                Ok(()) => (false, replayed_text::output(&done.replies)),
                Err(ExecError(error)) => (true, error.clone()),
            };
            let result = prompts::recovered_result(&mark, &done.call, None, is_error, &text);
            results.push(result);
        }
        results
    }

    /// Returns what this log means for a retry: effects that cannot be replayed, effects that can,
    /// or none.
    pub(super) fn visible_progress(&self) -> VisibleProgress {
        let ours = |done: &Effect| done.origin != Origin::Host;
        let unsettled = |done: &Effect| ours(done) && !done.is_settled() && !done.is_earlier();
        if self.forgotten != Unreplayable::Nothing || self.open.iter().any(|(_, open)| ours(open)) {
            VisibleProgress::Executed
        } else if self.done.iter().any(unsettled) {
            VisibleProgress::Remembered
        } else {
            VisibleProgress::Nothing
        }
    }
}

impl Effect {
    /// Returns the effect of an interrupted turn, which may have been executed.
    fn unknown(what: EffectDigest, ack: AckState) -> Self {
        Self {
            what,
            call: String::new(),
            origin: Origin::Earlier,
            replies: Vec::new(),
            end: Err(ExecError(prompts::RESULT_UNKNOWN.into())),
            ack,
            passed: false,
            host_call: HostCall::Nothing,
            began: 0,
            ended: 0,
        }
    }

    /// Returns whether the newest checkpoint includes the result.
    fn is_settled(&self) -> bool {
        matches!(self.ack, AckState::InCheckpoint | AckState::SameCallOnly)
    }

    /// Returns whether only an earlier stream has made this request.
    fn is_earlier(&self) -> bool {
        matches!(
            self.ack,
            AckState::EarlierStream | AckState::MaybeInCheckpoint
        )
    }

    fn bytes(&self) -> usize {
        self.replies.iter().map(size).sum()
    }
}

fn size(reply: &ExecReply) -> usize {
    let message = Some(reply.clone());
    let reply = ExecClientMessage {
        message,
        ..ExecClientMessage::default()
    };
    reply.encoded_len()
}

#[cfg(test)]
mod tests;
