use super::*;
use crate::wire::proto::agent::v1::{DeleteArgs, McpArgs, McpResult, ShellArgs, ShellResult};

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
    memo.checkpoint();
    memo.checkpoint();
    assert_eq!(
        memo.shown(),
        Shown::Remembered,
        "all of them may have come too early"
    );
    memo.worked();
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

fn call(id: &str) -> Request {
    Request::McpArgs(McpArgs {
        name: "look".into(),
        tool_call_id: id.into(),
        ..McpArgs::default()
    })
}

#[test]
fn what_the_host_did_is_known_by_its_name() {
    let mut memo = Memo::default();
    memo.call(1, &call("a"));
    memo.reply(1, &Reply::McpResult(McpResult::default()));
    memo.end(1, &Ok(()));
    memo.call(2, &call("broken off"));
    assert_eq!(memo.shown(), Shown::Nothing, "the host knows what it did");
    assert!(memo.holds("a") && !memo.holds("broken off") && !memo.holds(""));
    let mut early = memo.clone();
    early.checkpoint();
    early.restart();
    assert!(
        early.recall(&call("b")).is_some(),
        "a state from before may give it another name"
    );
    memo.worked();
    memo.checkpoint();
    memo.restart();
    run(&mut memo, 1, "edit");
    assert!(memo.recall(&call("b")).is_none());
    assert!(memo.recall(&call("broken off")).is_none());
    assert_eq!(memo.recall(&call("a")).unwrap().replies.len(), 1);
    assert!(memo.recall(&call("a")).is_none(), "this stream knows");
}

#[test]
fn another_run_is_told_as_much_as_its_beginning_does_not_know() {
    let mut memo = Memo::default();
    run(&mut memo, 1, "make");
    memo.worked();
    memo.checkpoint();
    memo.checkpoint();
    run(&mut memo, 2, "test");
    memo.begin(3, &shell("deploy", "x"));
    memo.restart();
    for (start, makes) in [(Start::State, false), (Start::History, true)] {
        assert!(memo.tells_all(start));
        let mut memo = memo.clone().handed_on(start);
        assert_eq!(memo.shown(), Shown::Nothing);
        assert_eq!(memo.recall(&shell("make", "x")).is_some(), makes);
        assert!(memo.recall(&shell("test", "x")).is_some());
        let broken = memo.recall(&shell("deploy", "x")).unwrap();
        assert_eq!(broken.end, Err(Thrown(BROKEN_OFF.into())));
    }
}

#[test]
fn what_cannot_be_told_apart_is_not_told() {
    let mut memo = Memo::default();
    memo.begin(1, &Request::SubagentArgs(Default::default()));
    assert!(!memo.tells_all(Start::State));
    memo.checkpoint();
    assert!(memo.tells_all(Start::State) && !memo.tells_all(Start::History));
    assert!(!Memo::lost().tells_all(Start::State));
}
