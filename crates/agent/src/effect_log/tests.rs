use super::*;
use crate::run::VisibleProgress;
use cursor_proto::agent::v1::{
    DeleteArgs, McpArgs, McpResult, ShellArgs, ShellResult, ShellStream, ShellStreamExit,
    ShellStreamStdout, shell_stream,
};
use cursor_proto::state::PendingCalls;

fn shell(command: &str, call: &str) -> ExecRequest {
    ExecRequest::ShellArgs(ShellArgs {
        command: command.into(),
        tool_call_id: call.into(),
        ..ShellArgs::default()
    })
}

fn run(log: &mut EffectLog, id: u32, command: &str) {
    log.execute(id, &shell(command, "first"));
    log.reply(id, &ExecReply::ShellResult(ShellResult::default()));
    log.end(RequestKey::Exec(id), &Ok(()));
}

#[test]
fn a_recorded_result_is_replayed_once_per_stream_until_a_checkpoint_includes_it() {
    let mut log = EffectLog::default();
    run(&mut log, 1, "make");
    run(&mut log, 2, "make");
    assert_eq!(log.visible_progress(), VisibleProgress::Remembered);
    assert!(
        log.recall(9, &shell("make", "x")).is_none(),
        "this stream knows"
    );
    log.restart();
    for _ in 0..2 {
        let done = log.recall(9, &shell("make", "another id")).unwrap();
        assert_eq!((done.replies.len(), done.end), (1, Ok(())));
    }
    assert!(log.recall(9, &shell("make", "x")).is_none());
    log.checkpoint(&CheckpointContents::default());
    log.checkpoint(&CheckpointContents::default());
    log.checkpoint(&CheckpointContents::default());
    assert_eq!(
        log.visible_progress(),
        VisibleProgress::Remembered,
        "all of them may have come too early"
    );
    log.server_progressed();
    log.checkpoint(&CheckpointContents::default());
    assert_eq!(
        log.visible_progress(),
        VisibleProgress::Remembered,
        "it may have come too early"
    );
    log.checkpoint(&CheckpointContents::default());
    assert_eq!(log.visible_progress(), VisibleProgress::Nothing);
}

#[test]
fn a_checkpoint_keeps_results_not_yet_requested_again() {
    let mut log = EffectLog::default();
    run(&mut log, 1, "one");
    run(&mut log, 2, "two");
    log.restart();
    log.recall(9, &shell("one", "x")).unwrap();
    log.checkpoint(&CheckpointContents::default());
    assert!(log.recall(9, &shell("one", "x")).is_none());
    assert!(log.recall(9, &shell("two", "x")).is_some());
}

#[test]
fn results_a_new_stream_skips_are_dropped() {
    let mut log = EffectLog::default();
    run(&mut log, 1, "make");
    log.checkpoint(&CheckpointContents::default());
    run(&mut log, 2, "edit");
    log.restart();
    log.recall(9, &shell("edit", "x")).unwrap();
    let again = log.recall(9, &shell("make", "x"));
    assert!(again.is_none(), "after the edit it is another make");
}

#[test]
fn concurrent_requests_may_be_repeated_in_any_order() {
    let mut log = EffectLog::default();
    run(&mut log, 1, "before");
    log.execute(2, &shell("slow", "a"));
    run(&mut log, 3, "quick");
    for (first, second) in [("slow", "quick"), ("quick", "slow")] {
        let mut log = log.clone();
        log.restart();
        assert!(log.recall(9, &shell(first, "x")).is_some());
        assert!(log.recall(9, &shell(second, "x")).is_some());
        assert!(log.recall(9, &shell("before", "x")).is_none());
    }
}

#[test]
fn a_diverging_stream_gets_no_recorded_results() {
    let mut log = EffectLog::default();
    run(&mut log, 1, "test");
    log.restart();
    run(&mut log, 1, "edit");
    assert!(log.recall(9, &shell("test", "x")).is_none());
}

#[test]
fn interrupted_and_unidentifiable_requests_cannot_be_replayed() {
    let mut log = EffectLog::default();
    log.execute(1, &ExecRequest::DeleteArgs(DeleteArgs::default()));
    assert_eq!(log.visible_progress(), VisibleProgress::Executed);
    log.restart();
    assert_eq!(log.visible_progress(), VisibleProgress::Executed);
    log.checkpoint(&CheckpointContents::default());
    assert_eq!(log.visible_progress(), VisibleProgress::Nothing);
    log.execute(2, &ExecRequest::SubagentArgs(Default::default()));
    assert_eq!(log.visible_progress(), VisibleProgress::Executed);
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
    let mut log = EffectLog::default();
    log.call_host(1, &call("a"), "host-1", true);
    log.reply(1, &ExecReply::McpResult(McpResult::default()));
    log.end(RequestKey::Exec(1), &Ok(()));
    log.call_host(2, &call("broken off"), "host-2", true);
    assert_eq!(log.visible_progress(), VisibleProgress::Called);
    let mut early = log.clone();
    early.checkpoint(&CheckpointContents::default());
    early.restart();
    assert!(
        early.recall(9, &call("b")).is_some(),
        "a state from before may give it another name"
    );
    log.server_progressed();
    log.checkpoint(&CheckpointContents::default());
    log.restart();
    run(&mut log, 1, "edit");
    assert!(log.recall(9, &call("b")).is_none());
    assert!(log.recall(9, &call("broken off")).is_none());
    assert_eq!(log.recall(9, &call("a")).unwrap().replies.len(), 1);
    assert!(log.recall(9, &call("a")).is_none(), "this stream knows");
}

#[test]
fn a_new_run_gets_the_results_its_start_does_not_include() {
    let mut log = EffectLog::default();
    run(&mut log, 1, "make");
    log.server_progressed();
    log.checkpoint(&CheckpointContents::default());
    log.checkpoint(&CheckpointContents::default());
    run(&mut log, 2, "test");
    log.execute(3, &shell("deploy", "x"));
    log.restart();
    for (start, makes) in [(Start::State, false), (Start::History, true)] {
        assert!(log.can_report_all(start));
        let mut log = log.clone().for_next_run(start, false);
        assert_eq!(log.visible_progress(), VisibleProgress::Nothing);
        assert_eq!(log.recall(9, &shell("make", "x")).is_some(), makes);
        assert!(log.recall(9, &shell("test", "x")).is_some());
        let broken = log.recall(9, &shell("deploy", "x")).unwrap();
        assert_eq!(
            broken.end,
            Err(ExecError(prompts::EXECUTION_INTERRUPTED.into()))
        );
    }
}

#[test]
fn an_unidentifiable_request_makes_the_log_incomplete() {
    let mut log = EffectLog::default();
    log.execute(1, &ExecRequest::SubagentArgs(Default::default()));
    assert!(!log.can_report_all(Start::State));
    log.checkpoint(&CheckpointContents::default());
    assert!(log.can_report_all(Start::State) && !log.can_report_all(Start::History));
    assert!(!EffectLog::lost().can_report_all(Start::State));
}

#[test]
fn a_request_started_by_another_process_is_reported_once_and_then_executed() {
    let what = EffectDigest::of(&shell("deploy", "x")).unwrap();
    assert_eq!(EffectDigest::parse(&what.to_string()), Some(what));
    for none in ["", "xyz", &"é".repeat(32), &what.to_string()[1..]] {
        assert_eq!(EffectDigest::parse(none), None, "{none}");
    }
    let other = EffectDigest::of(&shell("edit", "x")).unwrap();
    let mut log = EffectLog::replay(&[other, what, other, what].map(FileEntry::Executing));
    assert_eq!(log.visible_progress(), VisibleProgress::Nothing);
    assert!(log.recall(9, &shell("test", "x")).is_none());
    // Whatever is done first.
    run(&mut log, 1, "test");
    let replayed = log.recall(9, &shell("deploy", "y")).unwrap();
    assert_eq!(replayed.end, Err(ExecError(prompts::RESULT_UNKNOWN.into())));
    assert!(log.recall(9, &shell("deploy", "y")).is_none());
    // A stream that replaces this one gets the same answer.
    log.restart();
    assert_eq!(log.recall(9, &shell("deploy", "z")), Some(replayed));
    assert!(log.recall(9, &shell("edit", "z")).is_some());
}

#[test]
fn effects_of_another_process_are_reported_when_its_checkpoint_is_abandoned() {
    let what = EffectDigest::of(&shell("deploy", "x")).unwrap();
    let mut log = EffectLog::replay(&[FileEntry::InCheckpoint(what)]);
    assert!(log.recall(9, &shell("deploy", "x")).is_none());
    let mut kept = log.clone().for_next_run(Start::State, false);
    assert!(kept.recall(9, &shell("deploy", "x")).is_none());
    let mut log = log.for_next_run(Start::History, false);
    assert!(log.recall(9, &shell("deploy", "x")).unwrap().end.is_err());
    assert!(log.recall(9, &shell("deploy", "x")).is_none());
}

#[test]
fn without_a_readable_record_every_first_request_is_a_question() {
    let mut log = EffectLog::unreadable();
    for command in ["deploy", "test"] {
        let asked = log.recall(9, &shell(command, "x")).unwrap();
        assert_eq!(asked.end, Err(ExecError(prompts::RESULT_UNKNOWN.into())));
        assert!(log.recall(9, &shell(command, "x")).is_none());
        run(&mut log, 1, command);
        assert!(log.recall(9, &shell(command, "x")).is_none());
    }
}

#[test]
fn effects_stay_recorded_when_a_stream_passes_them() {
    let mut log = EffectLog::default();
    run(&mut log, 1, "make");
    log.server_progressed();
    log.checkpoint(&CheckpointContents::default());
    log.execute(2, &shell("deploy", "a"));
    log.restart();
    log.recall(9, &shell("deploy", "x")).unwrap();
    assert!(log.recall(9, &shell("make", "x")).is_none());
    run(&mut log, 3, "other");
    // Without a checkpoint the next stream may take either way.
    let mut again = log.clone();
    again.restart();
    for command in ["make", "deploy", "other"] {
        assert!(again.recall(9, &shell(command, "y")).is_some(), "{command}");
    }
    // After a checkpoint it continues from there, unless that checkpoint is abandoned.
    log.checkpoint(&CheckpointContents::default());
    log.restart();
    assert!(log.recall(9, &shell("make", "y")).is_none());
    let mut log = log.for_next_run(Start::History, false);
    for command in ["make", "deploy", "other"] {
        assert!(log.recall(9, &shell(command, "y")).is_some(), "{command}");
    }
}

#[test]
fn a_result_in_two_checkpoints_is_replayed_under_its_own_call_id() {
    let mut log = EffectLog::default();
    run(&mut log, 1, "make");
    log.server_progressed();
    log.checkpoint(&CheckpointContents::default());
    log.checkpoint(&CheckpointContents::default());
    assert!(
        log.recall(9, &shell("make", "first")).is_none(),
        "this stream knows"
    );
    log.restart();
    assert!(log.recall(9, &shell("make", "x")).is_none());
    let again = log.recall(9, &shell("make", "first")).unwrap();
    assert_eq!((again.replies.len(), again.end), (1, Ok(())));
}

#[test]
fn a_result_the_checkpoint_may_include_is_reported_as_text_and_then_executed() {
    let mut log = EffectLog::default();
    log.execute(1, &shell("test", "a"));
    let said = |event| ExecReply::ShellStream(ShellStream { event: Some(event) });
    let out = ShellStreamStdout {
        data: "broken".into(),
    };
    let exit = ShellStreamExit {
        code: 2,
        ..ShellStreamExit::default()
    };
    log.reply(1, &said(shell_stream::Event::Stdout(out)));
    log.reply(1, &said(shell_stream::Event::Exit(exit)));
    log.end(RequestKey::Exec(1), &Ok(()));
    log.server_progressed();
    assert_eq!(log.checkpoint(&CheckpointContents::default()), []);
    let mut known = log.clone();
    assert_eq!(
        known.checkpoint(&CheckpointContents::default()),
        [EffectDigest::of(&shell("test", "b")).unwrap()]
    );
    known.restart();
    assert!(known.recall(9, &shell("test", "b")).is_none());
    log.restart();
    let replayed = log.recall(9, &shell("test", "b")).unwrap();
    let Err(ExecError(message)) = &replayed.end else {
        panic!("{replayed:?}");
    };
    assert!(message.contains("broken\n[exit code 2]"), "{message}");
    assert!(replayed.replies.is_empty());
    assert!(log.recall(9, &shell("test", "b")).is_none());
    // Another stream gets the same answer.
    log.restart();
    assert_eq!(log.recall(9, &shell("test", "c")), Some(replayed));
}

#[test]
fn effects_before_a_host_call_are_reported_as_already_executed() {
    let mut log = EffectLog::default();
    run(&mut log, 1, "test");
    log.call_host(2, &call("a"), "host-2", true);
    let mut within = log.clone();
    within.restart();
    assert!(within.recall(9, &shell("test", "x")).unwrap().end.is_ok());
    for start in [Start::State, Start::History] {
        let mut log = log.clone().for_next_run(start, false);
        assert!(log.recall(9, &shell("test", "x")).unwrap().end.is_err());
    }
    run(&mut log, 3, "after");
    let mut spoken = log.clone().for_next_run(Start::State, true);
    assert!(spoken.recall(9, &shell("after", "x")).unwrap().end.is_err());
    let mut log = log.for_next_run(Start::State, false);
    assert!(log.recall(9, &shell("after", "x")).unwrap().end.is_ok());
}

fn lists(calls: &[&str]) -> CheckpointContents {
    CheckpointContents {
        pending: PendingCalls::of(calls.iter().copied()),
        ..CheckpointContents::default()
    }
}

/// Returns the log of a host call with or without a recorded result.
fn host_call(cursor_id: &str, has_result: bool) -> EffectLog {
    let mut log = EffectLog::default();
    log.call_host(1, &call(cursor_id), "host-1", true);
    if has_result {
        log.reply(1, &ExecReply::McpResult(McpResult::default()));
        assert!(
            log.end(RequestKey::Exec(1), &Ok(())),
            "the host executed it"
        );
    }
    log
}

#[test]
fn a_checkpoint_includes_a_host_result_only_after_the_model_progressed() {
    let mut log = host_call("c", false);
    log.model_progressed();
    log.checkpoint(&lists(&[]));
    assert_eq!(
        log.visible_progress(),
        VisibleProgress::Called,
        "no result yet"
    );
    assert!(log.awaits(&["host-1".into()]));
    log.end(RequestKey::Exec(1), &Ok(()));
    assert!(!log.awaits(&["host-1".into()]));
    log.checkpoint(&lists(&[]));
    log.checkpoint(&lists(&[]));
    assert_eq!(log.lacks(), ["host-1"], "both may be older than the result");
    assert_eq!(
        log.visible_progress(),
        VisibleProgress::Nothing,
        "it is on record"
    );
    log.completed("another");
    log.checkpoint(&lists(&[]));
    assert_eq!(log.lacks(), ["host-1"], "the server may not have it");
    log.completed("c");
    log.checkpoint(&lists(&[]));
    assert!(log.lacks().is_empty());
}

#[test]
fn a_checkpoint_that_lists_a_call_as_pending_lacks_its_result() {
    let mut log = host_call("c", true);
    log.model_progressed();
    log.checkpoint(&lists(&["{\"id\":\"c\"}"]));
    assert_eq!(log.lacks(), ["host-1"]);
    let mut resumed = log.clone();
    resumed.restart();
    assert!(resumed.recall(1, &call("other id")).is_some());
    log.checkpoint(&lists(&["{\"id\":\"d\"}"]));
    assert!(log.lacks().is_empty(), "it lists the call no more");
    let mut without_id = host_call("", true);
    without_id.model_progressed();
    for lacks in [true, false] {
        without_id.checkpoint(&lists(&["{\"id\":\"c\"}"]));
        assert_eq!(!without_id.lacks().is_empty(), lacks);
    }
}

#[test]
fn a_pending_result_stays_missing_until_the_next_stream_is_sent_it() {
    let late = |pending: &CheckpointContents| {
        let mut log = host_call("c", true);
        log.checkpoint(pending);
        log.restart();
        log
    };
    assert_eq!(late(&lists(&[])).lacks(), ["host-1"], "it may be older");
    let mut log = late(&lists(&["c"]));
    log.model_progressed();
    log.checkpoint(&lists(&[]));
    // Exec ids are only unique within a stream, so this one matches nothing.
    log.end(RequestKey::Exec(1), &Ok(()));
    log.restart();
    log.model_progressed();
    log.checkpoint(&lists(&[]));
    assert_eq!(log.lacks(), ["host-1"]);
    log.recall(5, &call("c")).unwrap();
    log.model_progressed();
    log.checkpoint(&lists(&[]));
    assert_eq!(log.lacks(), ["host-1"], "it may be older than the request");
    log.checkpoint(&lists(&[]));
    assert!(log.lacks().is_empty());
    let mut log = late(&lists(&["c"]));
    log.completed("c");
    log.checkpoint(&lists(&[]));
    assert!(log.lacks().is_empty(), "the server has it");
    let mut log = host_call("c", false);
    log.checkpoint(&lists(&["c"]));
    log.restart();
    assert!(log.lacks().is_empty(), "no result yet");
}

#[test]
fn calls_without_a_record_are_lacked_until_a_checkpoint_includes_them() {
    let mut log = EffectLog::default();
    log.add_part(1, "a");
    log.add_part(1, "b");
    assert_eq!(
        log.visible_progress(),
        VisibleProgress::Nothing,
        "they only read"
    );
    log.ask_user(2, "q", "c");
    assert_eq!(log.visible_progress(), VisibleProgress::Called);
    assert_eq!(log.lacks(), ["a", "b", "c"]);
    log.end(RequestKey::Question(2), &Ok(()));
    log.model_progressed();
    log.checkpoint(&lists(&[]));
    assert_eq!(log.lacks(), ["a", "b", "c"], "it may be older");
    log.checkpoint(&lists(&[]));
    assert_eq!(log.lacks(), ["a", "b"]);
    assert_eq!(log.visible_progress(), VisibleProgress::Nothing);
}

#[test]
fn the_same_frame_is_recorded_once_per_stream() {
    let mut log = EffectLog::default();
    let frame = |exec_id: &str| ExecServerMessage {
        exec_id: exec_id.into(),
        message: Some(shell("make", "x")),
        ..ExecServerMessage::default()
    };
    assert!(log.add_frame(&frame("e")) && !log.add_frame(&frame("e")));
    assert!(
        log.add_frame(&frame("")) && log.add_frame(&frame("")),
        "no exec id"
    );
    log.restart();
    assert!(log.add_frame(&frame("e")));
}

#[test]
fn a_checkpoint_before_a_call_is_repeated_lacks_its_result() {
    let resumed = || {
        let mut log = host_call("c", true);
        log.checkpoint(&lists(&[]));
        log.restart();
        log
    };
    let mut log = resumed();
    log.checkpoint(&lists(&[]));
    assert_eq!(log.lacks(), ["host-1"], "the stream may still request it");
    log.model_progressed();
    log.checkpoint(&lists(&[]));
    assert_eq!(log.lacks(), ["host-1"], "also after it has written text");
    log.recall(5, &call("c")).unwrap();
    log.model_progressed();
    log.checkpoint(&lists(&[]));
    assert_eq!(log.lacks(), ["host-1"], "it may be older than the result");
    log.checkpoint(&lists(&[]));
    assert!(log.lacks().is_empty(), "the stream was sent it again");
    let mut log = resumed();
    log.turn_ended();
    assert!(log.lacks().is_empty(), "the stream ended without it");
}

#[test]
fn a_checkpoint_that_names_a_result_includes_it() {
    let named = CheckpointContents {
        finished: ["c".to_owned()].into(),
        ..CheckpointContents::default()
    };
    let mut log = host_call("c", true);
    log.checkpoint(&named);
    assert!(log.lacks().is_empty());
    let mut log = host_call("c", true);
    log.checkpoint(&lists(&[]));
    log.restart();
    log.checkpoint(&named);
    assert!(log.lacks().is_empty(), "the stream started with it");
    let mut log = host_call("c", true);
    log.model_progressed();
    log.checkpoint(&lists(&[]));
    assert_eq!(log.lacks(), ["host-1"], "it may be older than the result");
    log.turn_ended();
    assert!(log.lacks().is_empty(), "it is the last one of the turn");
}

/// The host would execute a call twice that the next stream requests under another id.
#[test]
fn a_call_of_the_host_in_doubt_is_answered_under_another_id() {
    let mut log = host_call("c", true);
    log.model_progressed();
    log.checkpoint(&lists(&[]));
    log.restart();
    assert!(log.clone().recall(5, &call("c")).unwrap().end.is_ok());
    let note = log.recall(5, &call("d")).unwrap();
    assert!(note.end.is_err() && note.replies.is_empty(), "{note:?}");
    assert!(log.recall(6, &call("e")).is_none(), "wanted again");
}
