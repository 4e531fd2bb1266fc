//! What tools did since the last checkpoint: a stream that goes on from it asks for it again,
//! and is given what came of it the first time. Nothing is done twice, neither by another
//! stream nor by another run for the same history. Where the stream may know it and ask on
//! purpose, it is told so once, and done if it asks once more.

mod outcome;
mod what;

use prost::Message as _;

pub use self::what::What;
pub(super) use self::what::call_id;
use self::what::what;
use super::retry::Shown;
use crate::prompts;
use crate::tools::{Reply, Request, Thrown};
use crate::wire::proto::agent::v1::ExecClientMessage;

/// More than this is not worth keeping; the run is then given up where it breaks.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// Requests that changed something and what they came to, in the order they ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memo {
    done: Vec<Done>,
    open: Vec<(u32, Done)>,
    bytes: usize,
    /// What was done since the newest checkpoint and cannot be told again.
    forgotten: Forgotten,
    /// What was done at all and cannot be told again.
    ever_forgotten: Forgotten,
    /// How many beginnings and ends there were.
    clock: u64,
}

/// A request that is done, or on its way.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Done {
    what: What,
    /// The server's name of the call.
    pub(super) call: String,
    by: By,
    /// What the server was told.
    pub(super) replies: Vec<Reply>,
    /// How it ended.
    pub(super) end: Result<(), Thrown>,
    /// Whether the stream at hand knows of it.
    known: Known,
    /// What the server asked for afterwards.
    then: Then,
    /// Its beginning and its end, by the clock of the memo.
    began: u64,
    ended: u64,
}

/// Who has done it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// We have, or the host while we waited, and the server may give the call another name when it asks again.
    Us,
    /// The host has, between turns, and knows it by itself.
    Host,
    /// A turn that was broken off has begun it.
    Earlier,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Nothing of the host.
    Nothing,
    /// The host has done something since, which is told to every run.
    Called,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// The answer was given. A checkpoint may have been on its way then, and not know it.
    Here,
    /// The server has gone on since.
    Heard,
    /// And a checkpoint has come.
    Lately,
    /// And another one.
    Settled,
    /// Not yet: an earlier stream asked for it.
    Before,
    /// An earlier stream asked for it, and a state or a history may tell of it.
    Perhaps,
    /// Of the host's: it should, but the same name would say that it does not.
    ByName,
}

/// What cannot be told again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Forgotten {
    #[default]
    Nothing,
    /// Work that was broken off: it can be told that it was.
    Broken,
    Something,
}

/// Where a run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// On the newest checkpoint.
    State,
    /// On the host's history, which knows nothing of what was done since.
    History,
}

impl Memo {
    /// Of a run that failed without a word about what it did.
    pub(super) fn lost() -> Self {
        Self {
            forgotten: Forgotten::Something,
            ever_forgotten: Forgotten::Something,
            ..Self::default()
        }
    }

    /// Of a turn that was broken off: what it has begun. However often it did, it is told once.
    pub fn begun(all: impl IntoIterator<Item = What>) -> Self {
        let unknown = |what| Done {
            what,
            call: String::new(),
            by: By::Earlier,
            replies: Vec::new(),
            end: Err(Thrown(prompts::RESULT_UNKNOWN.into())),
            known: Known::Before,
            then: Then::Nothing,
            began: 0,
            ended: 0,
        };
        let mut memo = Self::default();
        for what in all {
            if !memo.done.iter().any(|done| done.what == what) {
                memo.done.push(unknown(what));
            }
        }
        memo
    }

    /// For another run, asked for the same history. What was done before a call of the host's
    /// tools, the run is past: that call's result is told it.
    pub fn handed_on(mut self, start: Start) -> Self {
        self.restart();
        for done in &mut self.done {
            if start == Start::History && done.known == Known::Settled {
                done.known = Known::Before;
            }
            if (done.by, done.known, done.then) == (By::Us, Known::Before, Then::Called) {
                done.known = Known::Perhaps;
            }
        }
        // Whoever starts it answers for that.
        self.forgotten = Forgotten::Nothing;
        self
    }

    /// The same for a history that goes on: the person spoke, and may want it done again.
    pub fn handed_on_behind_words(self, start: Start) -> Self {
        let mut memo = self.handed_on(start);
        for done in memo.done.iter_mut().filter(|done| done.by == By::Us) {
            if done.known == Known::Before {
                done.known = Known::Perhaps;
            }
        }
        memo
    }

    /// Whether such a run would be told of everything that was done.
    pub fn tells_all(&self, start: Start) -> bool {
        let forgotten = match start {
            Start::State => self.forgotten,
            Start::History => self.ever_forgotten,
        };
        forgotten < Forgotten::Something
    }

    /// Another stream begins, where the newest checkpoint stands.
    pub(super) fn restart(&mut self) {
        for done in &mut self.done {
            done.known = match (done.by, done.known) {
                (By::Us | By::Earlier, Known::Settled) => Known::Settled,
                (By::Us, Known::Lately | Known::Perhaps) => Known::Perhaps,
                (By::Host, Known::Lately | Known::Settled | Known::ByName) => Known::ByName,
                _ => Known::Before,
            };
        }
        // What we had under way was broken off, and may have been done in part. What the host
        // has between turns, it does to the end.
        let ended = self.tick();
        for (_, mut done) in std::mem::take(&mut self.open) {
            if done.by == By::Us {
                done.replies.clear();
                done.end = Err(Thrown(prompts::EXECUTION_INTERRUPTED.into()));
                done.known = Known::Before;
                done.ended = ended;
                self.done.push(done);
                self.forgotten = self.forgotten.max(Forgotten::Broken);
            }
        }
        self.count();
    }

    /// A person ends what is under way, and may want it done again.
    pub(super) fn stop(&mut self) {
        self.open.clear();
        self.count();
    }

    /// The server goes on: it has heard what it was told.
    pub(super) fn worked(&mut self) {
        self.advance(Known::Here, Known::Heard);
    }

    /// A checkpoint came: it knows what this stream asked for before the last one. Gives what
    /// of our own it knows for the first time.
    pub(super) fn checkpoint(&mut self) -> Vec<What> {
        let ours = |done: &&Done| done.by != By::Host && done.known == Known::Lately;
        let settled = self
            .done
            .iter()
            .filter(ours)
            .map(|done| done.what)
            .collect();
        self.advance(Known::Lately, Known::Settled);
        self.advance(Known::Heard, Known::Lately);
        self.forgotten = Forgotten::Nothing;
        settled
    }

    fn advance(&mut self, from: Known, to: Known) {
        for done in self.done.iter_mut().filter(|done| done.known == from) {
            done.known = to;
        }
    }

    /// What came of a request that an earlier stream has asked for already.
    pub(super) fn recall(&mut self, request: &Request) -> Option<Done> {
        let (what, call) = (what(request)?, call_id(request));
        let same = |done: &Done| match done.known {
            Known::Before | Known::Perhaps => done.what == what,
            Known::ByName => done.what == what && !call.is_empty() && done.call == call,
            _ => false,
        };
        let at = self.done.iter().position(same)?;
        let found = &mut self.done[at];
        if found.known == Known::Perhaps && found.end.is_ok() {
            found.end = Err(Thrown(outcome::ran_before(&found.replies)));
            found.replies.clear();
        }
        found.known = Known::Here;
        let done = found.clone();
        if done.by == By::Us {
            // What came earlier and is not asked for, the checkpoint knew. What went on beside it
            // may still be asked for.
            let began = done.began;
            let passed = |done: &Done| done.by == By::Us && done.is_earlier();
            self.done.retain(|done| !passed(done) || done.ended > began);
        }
        self.count();
        Some(done)
    }

    /// A request is worked on here. What an earlier stream did after this one's last common
    /// step was done in another world; what nobody knows the outcome of is no old news in any.
    pub(super) fn begin(&mut self, id: u32, request: &Request) {
        self.done
            .retain(|done| done.by != By::Us || !done.is_earlier());
        match what(request) {
            Some(what) => self.enter(id, request, what, By::Us),
            None => self.forget(),
        }
    }

    /// Whether what the host did under this name can be told again.
    pub(super) fn holds(&self, call: &str) -> bool {
        let named = |done: &Done| done.by == By::Host && done.call == call;
        !call.is_empty() && self.done.iter().any(named)
    }

    /// The host is asked to do it.
    pub(super) fn call(&mut self, id: u32, request: &Request) {
        for done in &mut self.done {
            done.then = Then::Called;
        }
        if let Some(what) = what(request) {
            self.enter(id, request, what, By::Host);
        }
    }

    fn enter(&mut self, id: u32, request: &Request, what: What, by: By) {
        let began = self.tick();
        let done = Done {
            what,
            call: call_id(request).into(),
            by,
            replies: Vec::new(),
            end: Ok(()),
            known: Known::Here,
            then: Then::Nothing,
            began,
            ended: began,
        };
        self.open.push((id, done));
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn forget(&mut self) {
        self.forgotten = Forgotten::Something;
        self.ever_forgotten = Forgotten::Something;
    }

    /// The server is told something.
    pub(super) fn reply(&mut self, id: u32, reply: &Reply) {
        let Some(at) = self.open.iter().position(|(open, _)| *open == id) else {
            return;
        };
        self.bytes += size(reply);
        self.make_room();
        if self.bytes > MOST_BYTES {
            let (_, done) = self.open.remove(at);
            if done.by == By::Us {
                self.forget();
            }
            self.count();
            return;
        }
        self.open[at].1.replies.push(reply.clone());
    }

    /// Lets go of what is needed least: what the checkpoint knows.
    fn make_room(&mut self) {
        while self.bytes > MOST_BYTES
            && let Some(at) = (self.done.iter()).position(|done| done.known == Known::Settled)
        {
            let done = self.done.remove(at);
            self.bytes -= done.bytes().min(self.bytes);
            if done.by == By::Us {
                self.ever_forgotten = Forgotten::Something;
            }
        }
    }

    fn count(&mut self) {
        let open = self.open.iter().map(|(_, done)| done);
        self.bytes = self.done.iter().chain(open).map(Done::bytes).sum();
    }

    /// A request has ended.
    pub(super) fn end(&mut self, id: u32, end: &Result<(), Thrown>) {
        if let Some(at) = self.open.iter().position(|(open, _)| *open == id) {
            let (_, mut done) = self.open.remove(at);
            done.ended = self.tick();
            done.end.clone_from(end);
            self.done.push(done);
        }
    }

    /// What stands in the way of another attempt.
    pub(super) fn shown(&self) -> Shown {
        let ours = |done: &Done| done.by != By::Host;
        let unsettled =
            |done: &Done| ours(done) && done.known != Known::Settled && !done.is_earlier();
        if self.forgotten != Forgotten::Nothing || self.open.iter().any(|(_, open)| ours(open)) {
            Shown::Executed
        } else if self.done.iter().any(unsettled) {
            Shown::Remembered
        } else {
            Shown::Nothing
        }
    }
}

impl Done {
    /// Whether only an earlier stream asked for it.
    fn is_earlier(&self) -> bool {
        matches!(self.known, Known::Before | Known::Perhaps)
    }

    fn bytes(&self) -> usize {
        self.replies.iter().map(size).sum()
    }
}

fn size(reply: &Reply) -> usize {
    let message = Some(reply.clone());
    let reply = ExecClientMessage {
        message,
        ..ExecClientMessage::default()
    };
    reply.encoded_len()
}

#[cfg(test)]
mod tests;
