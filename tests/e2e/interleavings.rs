//! Random interleavings of several sessions: properties that hold in any order.

use std::collections::BTreeMap;
use std::time::Duration;

use agent::run::Backend;
use agent::turn::{HostToolMode, Stop};
use cursor_sim::{FrameEntry, RecordingHandle, Side, VerdictOutcome};
use proptest::prelude::*;

use crate::soak::undelivered;
use serde_json::json;
use test_support::in_process::{
    CancelAfter, END, InProcessSession, InProcessTurn, opened, simulating_runs,
};
use test_support::scenario::{Steps, inline};

/// Expects a history in the run request.
const RECALL: &str = r#"{ expect_history = { "$any" = true } }"#;

/// What the model does in one run.
#[derive(Debug, Clone)]
struct ServerScript {
    rounds: Vec<ScriptRound>,
    close: StreamClose,
    /// How the server treats injected messages.
    injections: Option<&'static str>,
}

/// Some text, followed by concurrent calls.
#[derive(Debug, Clone)]
struct ScriptRound {
    deltas: u8,
    calls: u8,
    checkpoint: bool,
    /// Whether the server waits for the results before the next round.
    awaited: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamClose {
    Well,
    Cut,
    HalfClosed,
}

/// What a host does next.
#[derive(Debug, Clone, Copy)]
enum HostAction {
    Answer,
    AnswerBackwards,
    AnswerOnlyFirst,
    AnswerTwice,
    AnswerLate,
    Steer,
    Interject,
    MessageInsteadOfResults,
    Release,
    Invalidate,
    CancelAfterEvents(usize),
}

fn scripts() -> impl Strategy<Value = Vec<ServerScript>> {
    let round = (0..3u8, 1..4u8, any::<bool>(), any::<bool>());
    let round = round.prop_map(|(deltas, calls, checkpoint, awaited)| ScriptRound {
        deltas,
        calls,
        checkpoint,
        awaited,
    });
    let close = prop_oneof![
        4 => Just(StreamClose::Well),
        1 => Just(StreamClose::Cut),
        1 => Just(StreamClose::HalfClosed),
    ];
    let injections = prop_oneof![
        2 => Just(None),
        2 => Just(Some("delivered")),
        1 => Just(Some("deferred")),
        1 => Just(Some("rejected")),
    ];
    let script = (proptest::collection::vec(round, 1..4), close, injections).prop_map(
        |(rounds, close, injections)| ServerScript {
            rounds,
            close,
            injections,
        },
    );
    proptest::collection::vec(script, 1..9)
}

fn tool_modes() -> impl Strategy<Value = HostToolMode> {
    prop_oneof![3 => Just(HostToolMode::Between), 1 => Just(HostToolMode::Inline)]
}

fn actions() -> impl Strategy<Value = Vec<HostAction>> {
    let one = prop_oneof![
        3 => Just(HostAction::Answer),
        2 => Just(HostAction::AnswerBackwards),
        2 => Just(HostAction::AnswerOnlyFirst),
        2 => Just(HostAction::AnswerTwice),
        1 => Just(HostAction::AnswerLate),
        2 => Just(HostAction::Steer),
        2 => Just(HostAction::Interject),
        1 => Just(HostAction::MessageInsteadOfResults),
        1 => Just(HostAction::Release),
        1 => Just(HostAction::Invalidate),
        2 => (0..4usize).prop_map(HostAction::CancelAfterEvents),
    ];
    proptest::collection::vec(one, 0..6)
}

impl ServerScript {
    /// Returns the scenario of the script with this number. The number is part of the arguments,
    /// because a repeated call would otherwise be answered from the effect log.
    fn run(&self, number: usize) -> String {
        let injections = self
            .injections
            .map(|fate| format!("injections = {fate:?}\n"));
        format!(
            "{}steps = [ {RECALL}, {} ]\n",
            injections.unwrap_or_default(),
            self.steps()
                .replace("asked = ", &format!("script = \"{number}\", asked = "))
        )
    }

    fn steps(&self) -> String {
        let mut steps = Vec::new();
        for (n, round) in self.rounds.iter().enumerate() {
            steps.extend((0..round.deltas).map(|_| r#"{ text = "word " }"#.to_owned()));
            let names: Vec<String> = (0..round.calls)
                .map(|call| format!("c{n}-{call}"))
                .collect();
            steps.extend(names.iter().map(|name| opened("look", name)));
            if round.checkpoint {
                steps.push(r#"{ checkpoint = "auto" }"#.into());
            }
            if round.awaited {
                steps.push(inline(&json!({"await": names, "timeout_ms": 9_000_000})));
            }
        }
        steps.push(match self.close {
            StreamClose::Well => {
                let rounds = self.rounds.iter().enumerate();
                let late: Vec<String> = rounds
                    .filter(|(_, round)| !round.awaited)
                    .flat_map(|(n, round)| (0..round.calls).map(move |call| format!("c{n}-{call}")))
                    .collect();
                let waits = inline(&json!({"await": late, "timeout_ms": 9_000_000}));
                format!("{waits}, {END}")
            }
            StreamClose::Cut => "{ cut = true }".into(),
            StreamClose::HalfClosed => "{ half_close = true }".into(),
        });
        steps.join(", ")
    }
}

/// A user whose messages each contain a unique mark.
struct TestUser {
    name: String,
    marks: usize,
    /// Sent in the history, or injected into a turn that finished.
    sent: Vec<String>,
    /// Injected into a turn that has not finished.
    by_the_way: Vec<String>,
    /// The length of `sent` when a turn last finished.
    through: usize,
}

impl TestUser {
    fn words(&mut self, words: &str) -> String {
        self.marks += 1;
        format!("{} {words} ({}.{})", self.name, self.name, self.marks)
    }

    fn says(&mut self, words: &str) -> String {
        let words = self.words(words);
        self.sent.push(words.clone());
        words
    }

    /// Every sent message must reach Cursor, except those injected into a turn that is then
    /// cancelled.
    fn takes(&mut self, stop: &Stop) {
        match stop {
            Stop::Finished => {
                self.sent.append(&mut self.by_the_way);
                self.through = self.sent.len();
            }
            Stop::Aborted => self.by_the_way.clear(),
            Stop::ToolUse | Stop::Failed(_) => {}
        }
    }
}

/// Runs one session to its end and returns the messages that Cursor must have received.
async fn play_session(
    backend: Backend,
    name: String,
    tool_mode: HostToolMode,
    actions: Vec<HostAction>,
) -> Vec<String> {
    let mut user = TestUser {
        name: name.clone(),
        marks: 0,
        sent: Vec::new(),
        by_the_way: Vec::new(),
        through: 0,
    };
    let mut guest = InProcessSession::new(&backend, None);
    guest.tool_mode = tool_mode;
    let mut actions = actions.into_iter();
    let mut patience = CancelAfter::Endless;
    guest.user(&user.says("go"));
    for _ in 0..60 {
        let InProcessTurn {
            calls,
            stop,
            interjected,
            ..
        } = guest.turn(patience).await;
        user.by_the_way.extend(interjected);
        user.takes(&stop);
        patience = CancelAfter::Endless;
        let next = actions.next();
        if let Some(HostAction::CancelAfterEvents(events)) = next {
            patience = CancelAfter::Events(events);
        }
        if let Some(HostAction::Interject) = next {
            guest.interjection = Some(user.words("by the way"));
        }
        if tool_mode == HostToolMode::Inline {
            assert!(
                calls.is_empty() && stop != Stop::ToolUse,
                "{name}: {stop:?}"
            );
        }
        if stop == Stop::Finished {
            assert!(
                calls.is_empty(),
                "{name}: calls without a waiting run: {calls:?}"
            );
        }
        match stop {
            // A host cannot recover if the server breaks every run.
            Stop::Failed(_) if next.is_none() => {
                user.sent.truncate(user.through);
                return user.sent;
            }
            Stop::Finished if next.is_none() => return user.sent,
            Stop::Finished | Stop::Aborted | Stop::Failed(_) => {
                guest.user(&user.says("more"));
                continue;
            }
            Stop::ToolUse => assert!(!calls.is_empty(), "a tool turn without a call"),
        }
        let result =
            |call: &test_support::rpc_session::OfferedCall| format!("{name} did {}", call.id);
        match next.unwrap_or(HostAction::Answer) {
            HostAction::AnswerBackwards => {
                for call in calls.iter().rev() {
                    guest.result(call, &result(call));
                }
            }
            HostAction::AnswerOnlyFirst => guest.result(&calls[0], &result(&calls[0])),
            HostAction::MessageInsteadOfResults => guest.user(&user.says("stop that")),
            HostAction::Release => {
                guest.session.release().await;
                user.takes(&Stop::Aborted);
                guest.user(&user.says("never mind"));
            }
            HostAction::Invalidate => {
                guest.session.invalidate().await;
                user.takes(&Stop::Aborted);
                guest.user(&user.says("elsewhere"));
            }
            answered => {
                if let HostAction::AnswerLate = answered {
                    // Longer than an injected message may stay unacknowledged.
                    tokio::time::sleep(Duration::from_secs(20)).await;
                }
                for call in &calls {
                    guest.result(call, &result(call));
                }
                if let HostAction::AnswerTwice = answered {
                    guest.result(&calls[0], &result(&calls[0]));
                }
                if let HostAction::Steer = answered {
                    guest.user(&user.says("hurry"));
                }
            }
        }
    }
    panic!("{name} did not come to an end");
}

/// Counts the frames of a kind by run and exec id.
fn by_exec(frames: &[FrameEntry], kind: &str, id: &str) -> BTreeMap<(u64, u64), usize> {
    let mut found = BTreeMap::new();
    for frame in frames.iter().filter(|frame| frame.kind == kind) {
        let id = frame.json.pointer(id).and_then(|id| id.as_u64());
        *found.entry((frame.run, id.unwrap_or(0))).or_default() += 1;
    }
    found
}

fn check_recording(recording: &RecordingHandle) {
    let frames = recording.frames();
    let verdicts = recording.verdicts();
    for verdict in &verdicts {
        assert!(verdict.failures.is_empty(), "{verdict:?}");
    }
    let asked = by_exec(
        &frames,
        "execServerMessage.mcpArgs",
        "/execServerMessage/id",
    );
    let answers = by_exec(
        &frames,
        "execClientMessage.mcpResult",
        "/execClientMessage/id",
    );
    let closes = by_exec(
        &frames,
        "execClientControlMessage.streamClose",
        "/execClientControlMessage/streamClose/id",
    );
    for &(run, id) in asked.keys() {
        let count = |of: &BTreeMap<(u64, u64), usize>| of.get(&(run, id)).copied().unwrap_or(0);
        let (answers, closes) = (count(&answers), count(&closes));
        let whole = verdicts
            .iter()
            .any(|verdict| verdict.run == run && verdict.outcome == VerdictOutcome::Completed);
        assert!(
            answers <= 1 && closes <= 1,
            "run {run} exec {id}: {answers} answers, {closes} closes"
        );
        let cut = frames
            .iter()
            .any(|frame| frame.run == run && frame.kind.starts_with("fault."));
        if whole && !cut {
            assert_eq!(
                (answers, closes),
                (1, 1),
                "run {run} exec {id} was left open"
            );
        }
    }
    // Everything sent to a run comes from the session that owns the run.
    let mut owners: BTreeMap<u64, String> = BTreeMap::new();
    for frame in frames.iter().filter(|frame| frame.from == Side::Client) {
        let text = frame.json.to_string();
        let names = ["s0 ", "s1 ", "s2 "]
            .iter()
            .filter(|name| text.contains(**name));
        for name in names {
            let owner = owners.entry(frame.run).or_insert_with(|| (*name).into());
            assert_eq!(owner, name, "run {}: {text}", frame.run);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(24),
        failure_persistence: None,
        max_shrink_iters: 40,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_call_is_answered_once_by_its_own_session(
        scripts in scripts(),
        hosts in proptest::collection::vec((tool_modes(), actions()), 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut runs: Vec<String> = scripts.iter().enumerate().map(|(n, script)| script.run(n)).collect();
            let last = Steps::new().then(RECALL).text("Done.").then(END).build();
            runs.push(format!("steps = [ {last} ]"));
            // Runs are counted over all conversations, so that a history rebuilt in a new
            // conversation continues with the next script.
            let (sim, backend) = simulating_runs(&runs, "attempts = \"all\"\n").await;
            let sessions = hosts.into_iter().enumerate().map(|(n, (tool_mode, actions))| {
                tokio::spawn(play_session(backend.clone(), format!("s{n}"), tool_mode, actions))
            });
            let mut sent = Vec::new();
            for session in futures_util::future::join_all(sessions).await {
                sent.extend(session.unwrap());
            }
            drop(backend);
            // Cancelled runs have 6 s to send their last checkpoint.
            tokio::time::sleep(Duration::from_secs(30)).await;
            let recording = sim.recording();
            sim.shutdown().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            check_recording(&recording);
            let frames = recording.frames();
            let from_client = frames.iter().filter(|frame| frame.from == Side::Client);
            let recorded: String = from_client.map(|frame| frame.json.to_string()).collect();
            let lost = undelivered(&sent, &recorded);
            assert!(lost.is_empty(), "text never delivered: {lost:?}");
            let left = tokio::runtime::Handle::current().metrics().num_alive_tasks();
            assert_eq!(left, 0, "tasks left");
        });
    }
}
