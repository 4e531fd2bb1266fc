use super::*;
use cursor_proto::agent::v1::{
    DeleteArgs, McpArgs, McpResult, ShellArgs, ShellResult, ShellStream, ShellStreamExit,
    ShellStreamStdout, shell_stream,
};

fn shell(command: &str, call: &str) -> ExecRequest {
    ExecRequest::ShellArgs(ShellArgs {
        command: command.into(),
        tool_call_id: call.into(),
        ..ShellArgs::default()
    })
}

fn run(memo: &mut EffectLog, id: u32, command: &str) {
    memo.begin(id, &shell(command, "first"));
    memo.reply(id, &ExecReply::ShellResult(ShellResult::default()));
    memo.end(id, &Ok(()));
}

#[test]
fn a_recorded_result_is_replayed_once_per_stream_until_a_checkpoint_includes_it() {
    let mut memo = EffectLog::default();
    run(&mut memo, 1, "make");
    run(&mut memo, 2, "make");
    assert_eq!(memo.visible_progress(), VisibleProgress::Remembered);
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
        memo.visible_progress(),
        VisibleProgress::Remembered,
        "all of them may have come too early"
    );
    memo.server_progressed();
    memo.checkpoint();
    assert_eq!(
        memo.visible_progress(),
        VisibleProgress::Remembered,
        "it may have come too early"
    );
    memo.checkpoint();
    assert_eq!(memo.visible_progress(), VisibleProgress::Nothing);
}

#[test]
fn a_checkpoint_keeps_results_not_yet_requested_again() {
    let mut memo = EffectLog::default();
    run(&mut memo, 1, "one");
    run(&mut memo, 2, "two");
    memo.restart();
    memo.recall(&shell("one", "x")).unwrap();
    memo.checkpoint();
    assert!(memo.recall(&shell("one", "x")).is_none());
    assert!(memo.recall(&shell("two", "x")).is_some());
}

#[test]
fn results_a_new_stream_skips_are_dropped() {
    let mut memo = EffectLog::default();
    run(&mut memo, 1, "make");
    memo.checkpoint();
    run(&mut memo, 2, "edit");
    memo.restart();
    memo.recall(&shell("edit", "x")).unwrap();
    let again = memo.recall(&shell("make", "x"));
    assert!(again.is_none(), "after the edit it is another make");
}

#[test]
fn concurrent_requests_may_be_repeated_in_any_order() {
    let mut memo = EffectLog::default();
    run(&mut memo, 1, "before");
    memo.begin(2, &shell("slow", "a"));
    run(&mut memo, 3, "quick");
    for (first, second) in [("slow", "quick"), ("quick", "slow")] {
        let mut memo = memo.clone();
        memo.restart();
        assert!(memo.recall(&shell(first, "x")).is_some());
        assert!(memo.recall(&shell(second, "x")).is_some());
        assert!(memo.recall(&shell("before", "x")).is_none());
    }
}

#[test]
fn a_diverging_stream_gets_no_recorded_results() {
    let mut memo = EffectLog::default();
    run(&mut memo, 1, "test");
    memo.restart();
    run(&mut memo, 1, "edit");
    assert!(memo.recall(&shell("test", "x")).is_none());
}

#[test]
fn interrupted_and_unidentifiable_requests_cannot_be_replayed() {
    let mut memo = EffectLog::default();
    memo.begin(1, &ExecRequest::DeleteArgs(DeleteArgs::default()));
    assert_eq!(memo.visible_progress(), VisibleProgress::Executed);
    memo.restart();
    assert_eq!(memo.visible_progress(), VisibleProgress::Executed);
    memo.checkpoint();
    assert_eq!(memo.visible_progress(), VisibleProgress::Nothing);
    memo.begin(2, &ExecRequest::SubagentArgs(Default::default()));
    assert_eq!(memo.visible_progress(), VisibleProgress::Executed);
}

fn call(id: &str) -> ExecRequest {
    ExecRequest::McpArgs(McpArgs {
        name: "look".into(),
        tool_call_id: id.into(),
        ..McpArgs::default()
    })
}

#[test]
fn host_calls_are_matched_by_call_id_after_a_checkpoint() {
    let mut memo = EffectLog::default();
    memo.call(1, &call("a"));
    memo.reply(1, &ExecReply::McpResult(McpResult::default()));
    memo.end(1, &Ok(()));
    memo.call(2, &call("broken off"));
    assert_eq!(
        memo.visible_progress(),
        VisibleProgress::Nothing,
        "the host knows what it did"
    );
    assert!(memo.holds("a") && !memo.holds("broken off") && !memo.holds(""));
    let mut early = memo.clone();
    early.checkpoint();
    early.restart();
    assert!(
        early.recall(&call("b")).is_some(),
        "a state from before may give it another name"
    );
    memo.server_progressed();
    memo.checkpoint();
    memo.restart();
    run(&mut memo, 1, "edit");
    assert!(memo.recall(&call("b")).is_none());
    assert!(memo.recall(&call("broken off")).is_none());
    assert_eq!(memo.recall(&call("a")).unwrap().replies.len(), 1);
    assert!(memo.recall(&call("a")).is_none(), "this stream knows");
}

#[test]
fn a_new_run_gets_the_results_its_start_does_not_include() {
    let mut memo = EffectLog::default();
    run(&mut memo, 1, "make");
    memo.server_progressed();
    memo.checkpoint();
    memo.checkpoint();
    run(&mut memo, 2, "test");
    memo.begin(3, &shell("deploy", "x"));
    memo.restart();
    for (start, makes) in [(Start::State, false), (Start::History, true)] {
        assert!(memo.tells_all(start));
        let mut memo = memo.clone().handed_on(start);
        assert_eq!(memo.visible_progress(), VisibleProgress::Nothing);
        assert_eq!(memo.recall(&shell("make", "x")).is_some(), makes);
        assert!(memo.recall(&shell("test", "x")).is_some());
        let broken = memo.recall(&shell("deploy", "x")).unwrap();
        assert_eq!(
            broken.end,
            Err(ExecError(prompts::EXECUTION_INTERRUPTED.into()))
        );
    }
}

#[test]
fn an_unidentifiable_request_makes_the_log_incomplete() {
    let mut memo = EffectLog::default();
    memo.begin(1, &ExecRequest::SubagentArgs(Default::default()));
    assert!(!memo.tells_all(Start::State));
    memo.checkpoint();
    assert!(memo.tells_all(Start::State) && !memo.tells_all(Start::History));
    assert!(!EffectLog::lost().tells_all(Start::State));
}

#[test]
fn a_request_started_by_another_process_is_reported_once_and_then_executed() {
    let what = EffectDigest::of(&shell("deploy", "x")).unwrap();
    assert_eq!(EffectDigest::parse(&what.to_string()), Some(what));
    for none in ["", "xyz", &"é".repeat(32), &what.to_string()[1..]] {
        assert_eq!(EffectDigest::parse(none), None, "{none}");
    }
    let other = EffectDigest::of(&shell("edit", "x")).unwrap();
    let mut memo = EffectLog::begun([other, what, other, what], []);
    assert_eq!(memo.visible_progress(), VisibleProgress::Nothing);
    assert!(memo.recall(&shell("test", "x")).is_none());
    // Whatever is done first.
    run(&mut memo, 1, "test");
    let replayed = memo.recall(&shell("deploy", "y")).unwrap();
    assert_eq!(replayed.end, Err(ExecError(prompts::RESULT_UNKNOWN.into())));
    assert!(memo.recall(&shell("deploy", "y")).is_none());
    // A stream that replaces this one gets the same answer.
    memo.restart();
    assert_eq!(memo.recall(&shell("deploy", "z")), Some(replayed));
    assert!(memo.recall(&shell("edit", "z")).is_some());
}

#[test]
fn effects_of_another_process_are_reported_when_its_checkpoint_is_given_up() {
    let what = EffectDigest::of(&shell("deploy", "x")).unwrap();
    let mut memo = EffectLog::begun([], [what]);
    assert!(memo.recall(&shell("deploy", "x")).is_none());
    let mut kept = memo.clone().handed_on(Start::State);
    assert!(kept.recall(&shell("deploy", "x")).is_none());
    let mut memo = memo.handed_on(Start::History);
    assert!(memo.recall(&shell("deploy", "x")).unwrap().end.is_err());
    assert!(memo.recall(&shell("deploy", "x")).is_none());
}

#[test]
fn without_a_readable_record_every_first_request_is_a_question() {
    let mut memo = EffectLog::unreadable();
    for command in ["deploy", "test"] {
        let asked = memo.recall(&shell(command, "x")).unwrap();
        assert_eq!(asked.end, Err(ExecError(prompts::RESULT_UNKNOWN.into())));
        assert!(memo.recall(&shell(command, "x")).is_none());
        run(&mut memo, 1, command);
        assert!(memo.recall(&shell(command, "x")).is_none());
    }
}

#[test]
fn effects_stay_recorded_when_a_stream_passes_them() {
    let mut memo = EffectLog::default();
    run(&mut memo, 1, "make");
    memo.server_progressed();
    memo.checkpoint();
    memo.begin(2, &shell("deploy", "a"));
    memo.restart();
    memo.recall(&shell("deploy", "x")).unwrap();
    assert!(memo.recall(&shell("make", "x")).is_none());
    run(&mut memo, 3, "other");
    // Without a checkpoint the next stream may take either way.
    let mut again = memo.clone();
    again.restart();
    for command in ["make", "deploy", "other"] {
        assert!(again.recall(&shell(command, "y")).is_some(), "{command}");
    }
    // After a checkpoint it continues from there, unless that checkpoint is given up.
    memo.checkpoint();
    memo.restart();
    assert!(memo.recall(&shell("make", "y")).is_none());
    let mut memo = memo.handed_on(Start::History);
    for command in ["make", "deploy", "other"] {
        assert!(memo.recall(&shell(command, "y")).is_some(), "{command}");
    }
}

#[test]
fn a_result_in_two_checkpoints_is_replayed_under_its_own_call_id() {
    let mut memo = EffectLog::default();
    run(&mut memo, 1, "make");
    memo.server_progressed();
    memo.checkpoint();
    memo.checkpoint();
    assert!(
        memo.recall(&shell("make", "first")).is_none(),
        "this stream knows"
    );
    memo.restart();
    assert!(memo.recall(&shell("make", "x")).is_none());
    let again = memo.recall(&shell("make", "first")).unwrap();
    assert_eq!((again.replies.len(), again.end), (1, Ok(())));
}

#[test]
fn a_result_the_checkpoint_may_include_is_reported_as_text_and_then_executed() {
    let mut memo = EffectLog::default();
    memo.begin(1, &shell("test", "a"));
    let said = |event| ExecReply::ShellStream(ShellStream { event: Some(event) });
    let out = ShellStreamStdout {
        data: "broken".into(),
    };
    let exit = ShellStreamExit {
        code: 2,
        ..ShellStreamExit::default()
    };
    memo.reply(1, &said(shell_stream::Event::Stdout(out)));
    memo.reply(1, &said(shell_stream::Event::Exit(exit)));
    memo.end(1, &Ok(()));
    memo.server_progressed();
    assert_eq!(memo.checkpoint(), []);
    let mut known = memo.clone();
    assert_eq!(
        known.checkpoint(),
        [EffectDigest::of(&shell("test", "b")).unwrap()]
    );
    known.restart();
    assert!(known.recall(&shell("test", "b")).is_none());
    memo.restart();
    let replayed = memo.recall(&shell("test", "b")).unwrap();
    let Err(ExecError(message)) = &replayed.end else {
        panic!("{replayed:?}");
    };
    assert!(message.contains("broken\n[exit code 2]"), "{message}");
    assert!(replayed.replies.is_empty());
    assert!(memo.recall(&shell("test", "b")).is_none());
    // Another stream gets the same answer.
    memo.restart();
    assert_eq!(memo.recall(&shell("test", "c")), Some(replayed));
}

#[test]
fn effects_before_a_host_call_are_reported_as_already_executed() {
    let mut memo = EffectLog::default();
    run(&mut memo, 1, "test");
    memo.call(2, &call("a"));
    let mut within = memo.clone();
    within.restart();
    assert!(within.recall(&shell("test", "x")).unwrap().end.is_ok());
    for start in [Start::State, Start::History] {
        let mut memo = memo.clone().handed_on(start);
        assert!(memo.recall(&shell("test", "x")).unwrap().end.is_err());
    }
    run(&mut memo, 3, "after");
    let mut spoken = memo.clone().handed_on_behind_words(Start::State);
    assert!(spoken.recall(&shell("after", "x")).unwrap().end.is_err());
    let mut memo = memo.handed_on(Start::State);
    assert!(memo.recall(&shell("after", "x")).unwrap().end.is_ok());
}
