//! What tools did since the last checkpoint: a stream that goes on from it asks for it again,
//! and is given what came of it the first time. Nothing is done twice.

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::retry::Shown;
use crate::tools::{Reply, Request, Thrown};
use crate::wire::proto::agent::v1::ExecClientMessage;

/// More than this is not worth keeping; the run is then given up where it breaks.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// Requests that changed something and what they came to, in the order they ended.
#[derive(Debug, Default)]
pub(super) struct Memo {
    done: Vec<Done>,
    open: Vec<(u32, Done)>,
    bytes: usize,
    /// What was done and cannot be told again.
    forgotten: Forgotten,
}

/// A request that is done, or on its way.
#[derive(Debug, Clone)]
pub(super) struct Done {
    what: What,
    /// What the server was told.
    pub(super) replies: Vec<Reply>,
    /// How it ended.
    pub(super) end: Result<(), Thrown>,
    /// Whether the stream at hand knows of it.
    known: Known,
}

/// What a request does, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct What([u8; 32]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Since the newest checkpoint.
    Here,
    /// Since the one before it. A checkpoint may have been on its way when the answer was
    /// given, and not know it.
    Lately,
    /// Not yet: an earlier stream asked for it.
    Before,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Forgotten {
    #[default]
    Nothing,
    Something,
}

impl Memo {
    /// Another stream begins, where the newest checkpoint stands.
    pub(super) fn restart(&mut self) {
        for done in &mut self.done {
            done.known = Known::Before;
        }
        // What was on its way was broken off, and may have been done in part.
        if !self.open.is_empty() {
            self.open.clear();
            self.forgotten = Forgotten::Something;
        }
    }

    /// A checkpoint came: it knows what this stream asked for before the last one.
    pub(super) fn checkpoint(&mut self) {
        self.done.retain(|done| done.known != Known::Lately);
        for done in &mut self.done {
            if done.known == Known::Here {
                done.known = Known::Lately;
            }
        }
        self.bytes = self.done.iter().map(Done::bytes).sum();
        self.forgotten = Forgotten::Nothing;
    }

    /// What came of a request that an earlier stream has asked for already.
    pub(super) fn recall(&mut self, request: &Request) -> Option<Done> {
        let what = what(request)?;
        let before = |done: &Done| done.known == Known::Before;
        let at = (self.done.iter()).position(|done| before(done) && done.what == what)?;
        self.done[at].known = Known::Here;
        let done = self.done[at].clone();
        // What came earlier and is not asked for, the checkpoint knew.
        let mut index = 0;
        self.done.retain(|done| {
            index += 1;
            index > at || !before(done)
        });
        Some(done)
    }

    /// A request is worked on. What an earlier stream did after this one's last common step
    /// was done in another world.
    pub(super) fn begin(&mut self, id: u32, request: &Request) {
        self.done.retain(|done| done.known != Known::Before);
        match what(request) {
            Some(what) => self.open.push((
                id,
                Done {
                    what,
                    replies: Vec::new(),
                    end: Ok(()),
                    known: Known::Here,
                },
            )),
            None => self.forgotten = Forgotten::Something,
        }
    }

    /// The server is told something.
    pub(super) fn reply(&mut self, id: u32, reply: &Reply) {
        let Some(at) = self.open.iter().position(|(open, _)| *open == id) else {
            return;
        };
        self.bytes += size(reply);
        if self.bytes > MOST_BYTES {
            self.open.remove(at);
            self.forgotten = Forgotten::Something;
            return;
        }
        self.open[at].1.replies.push(reply.clone());
    }

    /// A request has ended.
    pub(super) fn end(&mut self, id: u32, end: &Result<(), Thrown>) {
        if let Some(at) = self.open.iter().position(|(open, _)| *open == id) {
            let (_, mut done) = self.open.remove(at);
            done.end.clone_from(end);
            self.done.push(done);
        }
    }

    /// What stands in the way of another attempt.
    pub(super) fn shown(&self) -> Shown {
        match self.forgotten {
            Forgotten::Something => Shown::Executed,
            Forgotten::Nothing if !self.open.is_empty() => Shown::Executed,
            Forgotten::Nothing if !self.done.is_empty() => Shown::Remembered,
            Forgotten::Nothing => Shown::Nothing,
        }
    }
}

impl Done {
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

/// The requests that can be told apart by what they do. Their ids and hints say nothing.
fn what(request: &Request) -> Option<What> {
    let shell = |command: &str, place: &str| ["shell", command, place].map(str::to_owned);
    let (parts, bytes) = match request {
        Request::ShellArgs(args) | Request::ShellStreamArgs(args) => {
            (shell(&args.command, &args.working_directory), &[][..])
        }
        Request::BackgroundShellSpawnArgs(args) => {
            let [_, command, place] = shell(&args.command, &args.working_directory);
            (["background".into(), command, place], &[][..])
        }
        Request::WriteShellStdinArgs(args) => (
            [
                "stdin".into(),
                args.shell_id.to_string(),
                args.chars.clone(),
            ],
            &[][..],
        ),
        Request::WriteArgs(args) => (
            ["write".into(), args.path.clone(), args.file_text.clone()],
            &args.file_bytes[..],
        ),
        Request::DeleteArgs(args) => (["delete".into(), args.path.clone(), String::new()], &[][..]),
        _ => return None,
    };
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.len().to_le_bytes());
        digest.update(part);
    }
    digest.update(bytes);
    Some(What(digest.finalize().into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::proto::agent::v1::{DeleteArgs, ShellArgs, ShellResult};

    fn shell(command: &str, call: &str) -> Request {
        Request::ShellArgs(ShellArgs {
            command: command.into(),
            tool_call_id: call.into(),
            ..ShellArgs::default()
        })
    }

    fn run(memo: &mut Memo, id: u32, command: &str) {
        memo.begin(id, &shell(command, "first"));
        memo.reply(id, &Reply::ShellResult(ShellResult::default()));
        memo.end(id, &Ok(()));
    }

    #[test]
    fn what_was_done_is_told_again_and_once() {
        let mut memo = Memo::default();
        run(&mut memo, 1, "make");
        run(&mut memo, 2, "make");
        assert_eq!(memo.shown(), Shown::Remembered);
        assert!(
            memo.recall(&shell("make", "x")).is_none(),
            "this stream knows"
        );
        memo.restart();
        for _ in 0..2 {
            let done = memo.recall(&shell("make", "another id")).unwrap();
            assert_eq!((done.replies.len(), done.end), (1, Ok(())));
        }
        assert!(memo.recall(&shell("make", "x")).is_none());
        memo.checkpoint();
        assert_eq!(
            memo.shown(),
            Shown::Remembered,
            "it may have come too early"
        );
        memo.checkpoint();
        assert_eq!(memo.shown(), Shown::Nothing);
    }

    #[test]
    fn a_checkpoint_keeps_what_is_still_to_be_asked_for() {
        let mut memo = Memo::default();
        run(&mut memo, 1, "one");
        run(&mut memo, 2, "two");
        memo.restart();
        memo.recall(&shell("one", "x")).unwrap();
        memo.checkpoint();
        assert!(memo.recall(&shell("one", "x")).is_none());
        assert!(memo.recall(&shell("two", "x")).is_some());
    }

    #[test]
    fn what_is_passed_over_was_known() {
        let mut memo = Memo::default();
        run(&mut memo, 1, "make");
        memo.checkpoint();
        run(&mut memo, 2, "edit");
        memo.restart();
        memo.recall(&shell("edit", "x")).unwrap();
        let again = memo.recall(&shell("make", "x"));
        assert!(again.is_none(), "after the edit it is another make");
    }

    #[test]
    fn a_stream_that_does_something_else_is_not_told_old_news() {
        let mut memo = Memo::default();
        run(&mut memo, 1, "test");
        memo.restart();
        run(&mut memo, 1, "edit");
        assert!(memo.recall(&shell("test", "x")).is_none());
    }

    #[test]
    fn what_was_broken_off_or_cannot_be_told_apart_ends_the_run() {
        let mut memo = Memo::default();
        memo.begin(1, &Request::DeleteArgs(DeleteArgs::default()));
        assert_eq!(memo.shown(), Shown::Executed);
        memo.restart();
        assert_eq!(memo.shown(), Shown::Executed);
        memo.checkpoint();
        assert_eq!(memo.shown(), Shown::Nothing);
        memo.begin(2, &Request::SubagentArgs(Default::default()));
        assert_eq!(memo.shown(), Shown::Executed);
    }
}
