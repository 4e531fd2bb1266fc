//! The one record of tool calls: what was requested, executed, sent, acknowledged, and saved in a
//! checkpoint.
//!
//! A stream that resumes from a checkpoint requests the same work again, because that checkpoint
//! does not include it. Such a request is answered with the recorded replies instead of being
//! executed twice, by this run or by the next run for the same prompt. Where the server may
//! already know the result, and may therefore repeat the request on purpose, it is first answered
//! with a note that the work was already executed; if it sends the request once more, the request
//! is executed.
//!
//! An effect stays recorded when a checkpoint includes it, because the checkpoint may be abandoned,
//! and then nothing else knows.
//!
//! [`EffectLog`] is a value without I/O: functions record what happens, [`queries`] answer
//! questions. [`EffectLogFile`] is the same log on disk, for another process.

mod digest;
mod effect;
mod file;
mod phase;
mod queries;
mod replayed_text;

use std::collections::BTreeSet;

use prost::Message as _;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

pub use self::digest::EffectDigest;
pub(crate) use self::digest::{call_id, is_lasting};
pub(crate) use self::effect::{Effect, RequestKey};
use self::effect::{Origin, size};
pub use self::file::{EffectLogFile, FileEntry, LeftFile};
use self::phase::{Phase, PhaseEvent};
pub(crate) use self::queries::Replay;
use crate::prompts;
use crate::run::{CheckpointContents, ResultEvidence};
use agent_tools::{ExecError, ExecReply, ExecRequest};
use cursor_proto::agent::v1::ExecServerMessage;

/// Upper limit for the recorded replies. An effect that does not fit is dropped, and the run is
/// not retried after a failure that would need it.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// The tool calls of a prompt, in the order of their requests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EffectLog {
    effects: Vec<Effect>,
    /// Digests of all requests of the current stream with their ids, to detect repeated frames.
    frames: BTreeSet<[u8; 32]>,
    /// Encoded size of all recorded replies.
    bytes: usize,
    /// Whether effects since the newest checkpoint cannot be replayed.
    unreplayable: Unreplayable,
    /// Whether any effect cannot be replayed, including those that are in a checkpoint.
    ever_unreplayable: Unreplayable,
    /// Whether a stream that starts from the newest checkpoint would call the host again.
    would_call_again: bool,
    /// Logical time: incremented whenever a request starts or ends.
    clock: u64,
    /// Whether an earlier process may have executed requests that are not recorded here.
    is_unreadable: bool,
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

/// The logs of earlier runs.
impl EffectLog {
    /// Returns the log of a run that ended without reporting what it executed, such as one that
    /// panicked.
    pub(crate) fn lost() -> Self {
        Self {
            unreplayable: Unreplayable::Something,
            ever_unreplayable: Unreplayable::Something,
            ..Self::default()
        }
    }

    /// Returns the log of an interrupted turn whose file cannot be read: it may have executed any
    /// request.
    pub fn unreadable() -> Self {
        Self {
            is_unreadable: true,
            ..Self::default()
        }
    }

    /// Returns the log of an earlier process from the entries of its file. A request that was
    /// started several times is reported once.
    pub fn replay(entries: &[FileEntry]) -> Self {
        // How often each was started, and how often the stored checkpoint includes it.
        let mut counts: Vec<(EffectDigest, usize, usize)> = Vec::new();
        for entry in entries {
            let (digest, started, saved) = match entry {
                FileEntry::Executing(digest) => (*digest, 1, 0),
                FileEntry::InCheckpoint(digest) => (*digest, 0, 1),
                FileEntry::CheckpointLost => {
                    counts.iter_mut().for_each(|(.., saved)| *saved = 0);
                    continue;
                }
                FileEntry::Rewritten => continue,
            };
            match counts.iter_mut().find(|count| count.0 == digest) {
                Some(count) => (count.1, count.2) = (count.1 + started, count.2 + saved),
                None => counts.push((digest, 1, saved)),
            }
        }
        let unknown = |(digest, started, saved)| Effect::unknown(digest, saved >= started);
        Self {
            effects: counts.into_iter().map(unknown).collect(),
            ..Self::default()
        }
    }

    /// Prepares the log for another run that answers the same history, or one that the user has
    /// extended. The new run is sent the results of host calls, so it has moved past effects
    /// executed before such a call, and the user may want the work to be repeated: a repeated
    /// request for them is answered with a note first.
    pub fn for_next_run(mut self, start: Start, has_user_input: bool) -> Self {
        self.restart();
        // Host calls are tracked within a run: the next one is sent their results by its owner.
        self.effects.retain(|effect| effect.digest.is_some());
        for effect in &mut self.effects {
            (effect.is_missing, effect.is_unconfirmed) = (false, false);
            // The history includes what the host executed, and nothing that was executed here.
            if start == Start::History && effect.origin != Origin::Host {
                effect.apply(PhaseEvent::CheckpointLoss);
            }
            let has_input = has_user_input || effect.precedes_host_call;
            match effect.origin {
                Origin::Here if has_input => effect.apply(PhaseEvent::NewInput),
                // Its owner sends the run every result that the checkpoint may lack.
                Origin::Host if effect.is_doubtful() => effect.apply(PhaseEvent::Bypass),
                _ => {}
            }
        }
        // The caller decides whether a log that is incomplete (see `can_report_all`) may be used.
        self.unreplayable = Unreplayable::Nothing;
        self
    }
}

/// What happens to streams.
impl EffectLog {
    /// Starts another stream from the newest checkpoint.
    pub(crate) fn restart(&mut self) {
        self.interrupt_open();
        for effect in &mut self.effects {
            if effect.is_on_stream() {
                effect.is_unconfirmed = effect.is_lacked() && !effect.is_open();
                effect.apply(PhaseEvent::StreamLoss);
                effect.request = None;
            }
            effect.is_passed = false;
        }
        self.effects.retain(|effect| !effect.is_open());
        self.drop_unneeded();
        self.frames = BTreeSet::new();
        self.would_call_again = false;
    }

    /// Records that the open requests were interrupted and may have been executed partly. Calls
    /// that the host executes between turns run to completion, so no result is recorded for them.
    pub(crate) fn interrupt_open(&mut self) {
        let ended = self.tick();
        let here = |effect: &&mut Effect| effect.is_open() && effect.origin == Origin::Here;
        for effect in self.effects.iter_mut().filter(here) {
            effect.replies.clear();
            effect.end = Err(ExecError(prompts::EXECUTION_INTERRUPTED.into()));
            effect.is_missing = !effect.host_calls.is_empty();
            effect.request = None;
            effect.ended = ended;
            effect.apply(PhaseEvent::Interruption);
            self.unreplayable = self.unreplayable.max(Unreplayable::Broken);
        }
        self.discard_open();
    }

    /// Drops the open requests because the user cancelled them and may want them repeated. No
    /// checkpoint includes the results of those that the host executes.
    pub(crate) fn discard_open(&mut self) {
        let at_host =
            |effect: &Effect| effect.origin == Origin::Host && !effect.host_calls.is_empty();
        self.effects
            .retain(|effect| !effect.is_open() || at_host(effect));
        for effect in self.effects.iter_mut().filter(|effect| effect.is_open()) {
            effect.drop_replies();
        }
        self.count();
    }

    /// Records that the server requests or reports something: it has received every result sent
    /// so far.
    pub(crate) fn server_progressed(&mut self) {
        self.apply(PhaseEvent::ServerProgress, |_| true);
    }

    /// Records that the model continues.
    pub(crate) fn model_progressed(&mut self) {
        self.apply(PhaseEvent::ModelProgress, |_| true);
    }

    /// Records that the turn ends: the model has read every result, and this stream requests no
    /// call any more that it has not requested yet.
    pub(crate) fn turn_ended(&mut self) {
        for effect in &mut self.effects {
            effect.is_unconfirmed = false;
        }
        self.apply(PhaseEvent::TurnEnd, |_| true);
    }

    /// Records that the server reported a call complete.
    pub(crate) fn completed(&mut self, call: &str) {
        self.apply(PhaseEvent::ModelProgress, |effect| effect.call == call);
        self.server_progressed();
        // The server has the result of an earlier stream.
        for effect in self.effects.iter_mut().filter(|effect| effect.call == call) {
            effect.is_missing &= effect.is_on_stream();
            effect.is_unconfirmed = false;
        }
    }

    /// Records a checkpoint, and returns the digests of our own requests that it is the first to
    /// include for certain. Requests that the stream has passed are not repeated by one that
    /// resumes from it.
    pub(crate) fn checkpoint(&mut self, contents: &CheckpointContents) -> Vec<EffectDigest> {
        let mut saved = Vec::new();
        for effect in &mut self.effects {
            let evidence = contents.result_of(&effect.call);
            let is_listed = evidence == ResultEvidence::Missing;
            if effect.is_passed {
                effect.is_passed = false;
                effect.apply(PhaseEvent::Bypass);
            }
            if effect.is_on_stream() {
                let before = effect.phase;
                effect.apply(match evidence {
                    ResultEvidence::Missing => PhaseEvent::CheckpointWithout,
                    ResultEvidence::Included => PhaseEvent::CheckpointWith,
                    // It is newer than one of this stream that listed the call.
                    ResultEvidence::Unknown if effect.is_missing => PhaseEvent::CheckpointWith,
                    ResultEvidence::Unknown => PhaseEvent::Checkpoint,
                });
                effect.is_missing = is_listed;
                if before != effect.phase && effect.phase == Phase::InCheckpoint {
                    let ours = effect.digest.filter(|_| effect.origin != Origin::Host);
                    saved.extend(ours);
                }
            } else if evidence == ResultEvidence::Included {
                (effect.is_missing, effect.is_unconfirmed) = (false, false);
            } else {
                effect.is_missing |= is_listed;
            }
        }
        self.drop_unneeded();
        self.unreplayable = Unreplayable::Nothing;
        self.would_call_again = self.has_unreplayable_call();
        saved
    }

    /// Drops effects without replies, of which only a result that the checkpoint lacks is of interest.
    fn drop_unneeded(&mut self) {
        self.effects
            .retain(|effect| effect.is_open() || effect.digest.is_some() || effect.is_lacked());
    }

    /// Returns the results that a stream which resumes from the newest checkpoint does not know, as
    /// text for its first message, and records that it may know them then.
    pub(crate) fn send_results(&mut self) -> Vec<String> {
        self.restart();
        let mark = Uuid::new_v4().to_string();
        let unknown = |effect: &&mut Effect| {
            (effect.origin, effect.phase) == (Origin::Here, Phase::ResultSent)
        };
        let mut results = Vec::new();
        for effect in self.effects.iter_mut().filter(unknown) {
            effect.apply(PhaseEvent::NewInput);
            let (is_error, text) = match &effect.end {
                Ok(()) => (false, replayed_text::output(&effect.replies)),
                Err(ExecError(error)) => (true, error.clone()),
            };
            results.push(prompts::recovered_result(
                &mark,
                &effect.call,
                None,
                is_error,
                &text,
            ));
        }
        results
    }

    fn apply(&mut self, event: PhaseEvent, which: impl Fn(&Effect) -> bool) {
        let on_stream = |effect: &&mut Effect| effect.is_on_stream() && which(effect);
        for effect in self.effects.iter_mut().filter(on_stream) {
            effect.apply(event);
        }
    }
}

/// What happens to one request.
impl EffectLog {
    /// Records a frame, and returns whether it is new on this stream. A repeated one is executing
    /// or answered already: a second answer is not expected, and executing it twice may do harm.
    pub(crate) fn add_frame(&mut self, exec: &ExecServerMessage) -> bool {
        let identified = ExecServerMessage {
            id: exec.id,
            exec_id: exec.exec_id.clone(),
            message: exec.message.clone(),
            ..ExecServerMessage::default()
        };
        // Without an exec id, another request of the same kind may have the same number.
        exec.exec_id.is_empty()
            || self
                .frames
                .insert(Sha256::digest(identified.encode_to_vec()).into())
    }

    /// Returns the recorded result of a request that only an earlier stream has made, and marks it
    /// as sent on this one.
    pub(crate) fn recall(&mut self, id: u32, request: &ExecRequest) -> Option<Replay> {
        let digest = EffectDigest::of(request)?;
        let Some(at) = self.recorded(digest, call_id(request)) else {
            return self.maybe_executed(id, digest);
        };
        let found = &mut self.effects[at];
        // A call with the same id is the same call.
        let is_repeated = found.origin == Origin::Host && found.has_call_id(call_id(request));
        if found.is_doubtful() && !is_repeated && found.end.is_ok() {
            found.end = Err(ExecError(replayed_text::ran_before(&found.replies)));
            found.replies.clear();
        }
        found.apply(PhaseEvent::Replay);
        found.request = Some(RequestKey::Exec(id));
        (found.is_passed, found.is_unconfirmed, found.is_missing) = (false, false, false);
        let found = self.effects[at].clone();
        if found.origin == Origin::Here {
            // The checkpoint included earlier requests that this stream did not repeat. Requests
            // that were executed concurrently with this one may still be repeated.
            self.pass(|earlier| earlier.ended <= found.began);
        }
        self.count();
        Some(Replay::of(found))
    }

    /// Returns an answer of unknown outcome to the first request for something that an interrupted
    /// turn may have executed, because its file cannot be read.
    fn maybe_executed(&mut self, id: u32, digest: EffectDigest) -> Option<Replay> {
        if !self.is_unreadable || self.has(digest) {
            return None;
        }
        let mut effect = Effect::unknown(digest, false);
        effect.request = Some(RequestKey::Exec(id));
        self.effects.push(effect.clone());
        Some(Replay::of(effect))
    }

    /// Records that this stream has continued without these requests.
    fn pass(&mut self, which: impl Fn(&Effect) -> bool) {
        let earlier = |effect: &&mut Effect| {
            let may_be_skipped = match effect.origin {
                Origin::Here => effect.phase < Phase::InCheckpoint,
                Origin::Host => effect.is_doubtful(),
                Origin::Earlier => false,
            };
            may_be_skipped && !effect.is_on_stream()
        };
        for effect in self.effects.iter_mut().filter(earlier) {
            effect.is_passed |= which(effect);
        }
    }

    /// Records that a request is being executed here. The new stream has therefore diverged: it may
    /// want to execute what an earlier stream executed after the last request both share. Effects
    /// with an unknown outcome are reported on any path.
    pub(crate) fn execute(&mut self, id: u32, request: &ExecRequest) {
        self.pass(|_| true);
        match EffectDigest::of(request) {
            Some(digest) => {
                let (key, call) = (RequestKey::Exec(id), call_id(request));
                self.add(Effect::started(key, Some(digest), call, Origin::Here));
            }
            None => self.forget(),
        }
    }

    /// Records that the host is asked to execute a request, with the host's id of the call.
    /// `is_lasting` says whether executing it twice would matter.
    pub(crate) fn call_host(
        &mut self,
        id: u32,
        request: &ExecRequest,
        host_call: &str,
        is_lasting: bool,
    ) {
        let digest = EffectDigest::of(request).filter(|_| is_lasting);
        let call = if is_lasting { call_id(request) } else { "" };
        let effect = Effect::started(RequestKey::Exec(id), digest, call, Origin::Host);
        self.add_host_call(effect, host_call, is_lasting);
    }

    /// Records that the user is asked a question. A second stream that asks again would make the
    /// user answer twice.
    pub(crate) fn ask_user(&mut self, id: u32, call: &str, host_call: &str) {
        let effect = Effect::started(RequestKey::Question(id), None, call, Origin::Host);
        self.add_host_call(effect, host_call, true);
    }

    /// Records a call that the host executes as part of a request.
    pub(crate) fn add_part(&mut self, id: u32, host_call: &str) {
        let key = RequestKey::Exec(id);
        if let Some(effect) = self.open(key) {
            effect.host_calls.push(host_call.into());
        } else {
            let effect = Effect::started(key, None, "", Origin::Host);
            self.add_host_call(effect, host_call, false);
        }
    }

    fn add_host_call(&mut self, effect: Effect, host_call: &str, is_lasting: bool) {
        if is_lasting {
            self.would_call_again = true;
            for earlier in self.effects.iter_mut().filter(|earlier| !earlier.is_open()) {
                earlier.precedes_host_call = true;
            }
        }
        self.add(Effect {
            host_calls: vec![host_call.into()],
            is_lasting,
            ..effect
        });
    }

    fn add(&mut self, effect: Effect) {
        let began = self.tick();
        self.effects.push(Effect {
            began,
            ended: began,
            ..effect
        });
    }

    fn open(&mut self, key: RequestKey) -> Option<&mut Effect> {
        let mut effects = self.effects.iter_mut();
        effects.find(|effect| effect.is_open() && effect.request == Some(key))
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Records that an effect without a replayable record was executed.
    fn forget(&mut self) {
        self.unreplayable = Unreplayable::Something;
        self.ever_unreplayable = Unreplayable::Something;
    }

    /// Records a reply sent to the server.
    pub(crate) fn reply(&mut self, id: u32, reply: &ExecReply) {
        let bytes = size(reply);
        let Some(effect) = self.open(RequestKey::Exec(id)) else {
            return;
        };
        if effect.digest.is_none() {
            return;
        }
        effect.replies.push(reply.clone());
        self.bytes += bytes;
        self.make_room();
        if self.bytes > MAX_BYTES
            && let Some(effect) = self.open(RequestKey::Exec(id))
        {
            effect.drop_replies();
            if effect.origin == Origin::Here {
                self.forget();
            }
            self.count();
        }
    }

    /// Drops results that the checkpoint includes, because they are needed least, until the log
    /// fits.
    fn make_room(&mut self) {
        while self.bytes > MAX_BYTES
            && let Some(at) =
                (self.effects.iter()).position(|effect| effect.phase == Phase::InCheckpoint)
        {
            let effect = self.effects.remove(at);
            self.bytes -= effect.bytes().min(self.bytes);
            if effect.origin == Origin::Here {
                self.ever_unreplayable = Unreplayable::Something;
            }
        }
    }

    fn count(&mut self) {
        self.bytes = self.effects.iter().map(Effect::bytes).sum();
    }

    /// Records that a request has ended and its result was sent. Returns whether the host was
    /// called for it.
    pub(crate) fn end(&mut self, key: RequestKey, end: &Result<(), ExecError>) -> bool {
        let ended = self.tick();
        let Some(effect) = self.open(key) else {
            return false;
        };
        effect.ended = ended;
        effect.end.clone_from(end);
        effect.apply(PhaseEvent::Result);
        !effect.host_calls.is_empty()
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
