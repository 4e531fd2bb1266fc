//! One test for each statement about the planner.

use super::*;
use proptest::prelude::*;

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
const HERE: TurnPosition<'static> = TurnPosition {
    turns: 1,
    history: "h",
};

fn pause(pending: &[&'static str]) -> StoredPause<'static> {
    StoredPause {
        pending: pending.to_vec(),
        turns: Some(HERE.turns),
        history: Some(HERE.history),
        recorded_at: Some(UnixMillis(NOW.0 - 1_000)),
    }
}

fn row(pause: Option<StoredPause<'static>>) -> StoredConversation<'static> {
    StoredConversation {
        owner: ConversationOwner::Anyone,
        checkpoint: None,
        pause,
    }
}

fn checkpoint() -> Option<StoredCheckpoint<'static>> {
    Some(StoredCheckpoint {
        state: Bytes::from_static(b"\x5a\x02pi"),
        at: Some(HERE),
    })
}

/// Returns a conversation with a checkpoint of the current turn.
fn saved(pending: &[&'static str]) -> StoredConversation<'static> {
    StoredConversation {
        checkpoint: checkpoint(),
        ..row(Some(pause(pending)))
    }
}

fn request_with(ids: &[&'static str]) -> RecoveryRequest<'static> {
    RecoveryRequest {
        session: None,
        at: HERE,
        in_flight: Some(ids.to_vec()),
        received: ids.to_vec(),
        loss: LossKind::Gone,
    }
}

fn planned(row: &StoredConversation<'_>, request: &RecoveryRequest<'_>) -> RecoveryPlan {
    plan_recovery(Some(row), request, NOW).plan
}

const REBUILT: RecoveryPlan = RecoveryPlan::RebuildHistory(RebuildReason::NoCheckpoint);

fn differ(expected: &[&str], received: &[&str]) -> RecoveryPlan {
    RecoveryPlan::Skip(mismatch(expected, received))
}

#[test]
fn a_fresh_process_never_rebuilds() {
    let decision = plan_recovery(None, &request_with(&["t"]), NOW);
    assert_eq!(
        decision.plan,
        RecoveryPlan::Skip(RecoverySkip::NoStoredConversation)
    );
    assert!(!decision.had_checkpoint);
}

#[test]
fn a_conversation_without_a_pause_never_rebuilds() {
    for pause in [None, Some(pause(&[])), Some(pause(&[""]))] {
        let plan = planned(&row(pause), &request_with(&["t"]));
        assert_eq!(plan, RecoveryPlan::Skip(RecoverySkip::NoMidpauseSnapshot));
    }
}

#[test]
fn checks_are_reported_in_order() {
    // Everything is wrong at first; each step fixes the reported problem, and the next one is
    // reported.
    let mut row = row(None);
    row.owner = ConversationOwner::Session(Some("mine"));
    let mut request = RecoveryRequest {
        session: Some("other"),
        in_flight: None,
        ..request_with(&[])
    };
    let mut reported = Vec::new();
    for step in 0..8 {
        match planned(&row, &request) {
            RecoveryPlan::Skip(skip) => reported.push(skip.name()),
            plan => {
                assert_eq!(plan, REBUILT);
                break;
            }
        }
        match step {
            0 => {
                row.pause = Some(StoredPause {
                    pending: vec!["t"],
                    turns: Some(7),
                    history: Some("other"),
                    recorded_at: None,
                });
            }
            1 => request.session = Some("mine"),
            2 => row.pause.as_mut().unwrap().turns = Some(HERE.turns),
            3 => row.pause.as_mut().unwrap().history = Some(HERE.history),
            4 => row.pause.as_mut().unwrap().recorded_at = Some(NOW),
            5 => {
                request.in_flight = Some(vec!["u"]);
                request.received = vec!["u"];
            }
            _ => {
                request.in_flight = Some(vec!["t"]);
                request.received = vec!["t"];
            }
        }
    }
    assert_eq!(
        reported,
        [
            "no_midpause_snapshot",
            "session_mismatch",
            "midpause_turn_count_mismatch",
            "midpause_history_fingerprint_mismatch",
            "midpause_metadata_stale",
            "no_inflight_tool_continuation",
            "pending_tool_call_mismatch",
        ]
    );
}

#[test]
fn some_failures_clear_the_pause_and_others_keep_it() {
    let clears =
        |change: &dyn Fn(&mut StoredConversation<'static>, &mut RecoveryRequest<'static>)| {
            let (mut row, mut request) = (row(Some(pause(&["t"]))), request_with(&["t"]));
            change(&mut row, &mut request);
            plan_recovery(Some(&row), &request, NOW).clears_pause
        };
    assert!(clears(&|_, request| request.at.turns = 2));
    assert!(clears(&|_, request| request.at.history = "other"));
    assert!(clears(
        &|row, _| row.pause.as_mut().unwrap().recorded_at = None
    ));
    assert!(!clears(
        &|row, _| row.owner = ConversationOwner::Session(Some("s"))
    ));
    assert!(!clears(&|_, request| request.received = vec!["u"]));
    assert!(!clears(&|_, request| request.in_flight = None));
    assert!(!clears(&|_, _| {}));
}

#[test]
fn the_limits_of_the_time_are_exact() {
    let (oldest, skew) = (OLDEST_PAUSE.as_millis(), CLOCK_SKEW.as_millis());
    let (oldest, skew) = (oldest as i64, skew as i64);
    let stale = RecoveryPlan::Skip(RecoverySkip::MidpauseMetadataStale);
    for (recorded, expected) in [
        (Some(NOW.0 - oldest), &REBUILT),
        (Some(NOW.0 - oldest - 1), &stale),
        (Some(i64::MIN), &stale),
        (Some(NOW.0 + skew), &REBUILT),
        (Some(NOW.0 + skew + 1), &stale),
        (Some(i64::MAX), &stale),
        (None, &stale),
    ] {
        let mut row = row(Some(pause(&["t"])));
        row.pause.as_mut().unwrap().recorded_at = recorded.map(UnixMillis);
        let plan = planned(&row, &request_with(&["t"]));
        assert_eq!(plan, *expected, "{recorded:?}");
    }
}

#[test]
fn every_pending_call_needs_its_result() {
    let paused = |pending| row(Some(pause(pending)));
    let both: &[&str] = &["a", "b"];
    let resumed = RecoveryPlan::RecoverCheckpoint;
    for (row, received, expected) in [
        (paused(both), &["b", "a"][..], REBUILT),
        (paused(both), &["a"], differ(both, &["a"])),
        (saved(&["a"]), &["b"], differ(&["a"], &["b"])),
        // Later rounds bring the results of earlier ones too.
        (paused(&["b"]), both, REBUILT),
        (saved(&["b"]), both, resumed.clone()),
        // Two results of one call.
        (paused(&["t", "t"]), &["t", "t"], REBUILT),
        (saved(&["t"]), &["t", "t"], resumed),
        // A checkpoint without a pause accepts no results.
        (saved(&[]), &["t"], differ(&[], &["t"])),
        (
            StoredConversation {
                pause: None,
                ..saved(&[])
            },
            &["t"],
            differ(&[], &["t"]),
        ),
        (
            StoredConversation {
                pause: None,
                ..saved(&[])
            },
            &[],
            RecoveryPlan::Skip(RecoverySkip::NoMidpauseSnapshot),
        ),
    ] {
        let plan = planned(&row, &request_with(received));
        assert_eq!(plan, expected, "{:?} {received:?}", row.pause);
    }
    let forged = RecoveryRequest {
        in_flight: Some(both.to_vec()),
        ..request_with(&["a", "b", "c"])
    };
    assert_eq!(
        planned(&paused(both), &forged),
        differ(both, &["a", "b", "c"]),
        "one was never requested"
    );
}

#[test]
fn a_stale_checkpoint_is_never_resumed_but_the_pause_is_kept() {
    let stale = [
        StoredCheckpoint {
            at: Some(TurnPosition { turns: 5, ..HERE }),
            ..checkpoint().unwrap()
        },
        StoredCheckpoint {
            at: Some(TurnPosition {
                history: "other",
                ..HERE
            }),
            ..checkpoint().unwrap()
        },
        StoredCheckpoint {
            at: None,
            ..checkpoint().unwrap()
        },
    ];
    for checkpoint in stale {
        let mut row = saved(&["t"]);
        row.checkpoint = Some(checkpoint);
        let decision = plan_recovery(Some(&row), &request_with(&["t"]), NOW);
        let rebuilt = RecoveryPlan::RebuildHistory(RebuildReason::StaleCheckpoint);
        assert_eq!(decision.plan, rebuilt);
        assert!(decision.clears_checkpoint && !decision.clears_pause);
        assert!(decision.had_checkpoint, "before it is cleared");
        row.pause = None;
        let decision = plan_recovery(Some(&row), &request_with(&["t"]), NOW);
        assert_eq!(
            decision.plan,
            RecoveryPlan::Skip(RecoverySkip::StaleCheckpoint)
        );
    }
}

#[test]
fn a_checkpoint_is_checked_too() {
    let request = request_with(&["t"]);
    assert_eq!(
        planned(&saved(&["t"]), &request),
        RecoveryPlan::RecoverCheckpoint
    );
    let mut other = saved(&["t"]);
    other.owner = ConversationOwner::Session(Some("other"));
    assert_eq!(
        planned(&other, &request),
        RecoveryPlan::Skip(RecoverySkip::SessionMismatch)
    );
    let mut old = saved(&["t"]);
    old.pause.as_mut().unwrap().recorded_at = Some(UnixMillis(NOW.0 - 3_600_000));
    let decision = plan_recovery(Some(&old), &request, NOW);
    assert_eq!(
        decision.plan,
        RecoveryPlan::Skip(RecoverySkip::MidpauseMetadataStale)
    );
    assert!(decision.clears_pause && !decision.clears_checkpoint);
    let damaged: [Bytes; 3] = [
        Bytes::new(),
        Bytes::from_static(b"\x5a\x20pi"),
        vec![0; LARGEST_CHECKPOINT + 1].into(),
    ];
    for state in damaged {
        let mut row = saved(&["t"]);
        row.checkpoint.as_mut().unwrap().state = state;
        let rebuilt = RecoveryPlan::RebuildHistory(RebuildReason::StaleCheckpoint);
        assert_eq!(planned(&row, &request), rebuilt);
        row.pause = None;
        let skipped = RecoveryPlan::Skip(RecoverySkip::StaleCheckpoint);
        assert_eq!(planned(&row, &request), skipped);
    }
}

fn any_row() -> impl Strategy<Value = StoredConversation<'static>> {
    let ids = proptest::collection::vec(prop_oneof![Just("a"), Just("b"), Just("")], 0..3);
    let point = (0_usize..3, prop_oneof![Just("h"), Just("g")]);
    let state = prop_oneof![Just(&b""[..]), Just(&b"\x5a\x02pi"[..]), Just(&b"\xff"[..])];
    let checkpoint =
        (state, proptest::option::of(point.clone())).prop_map(|(state, at)| StoredCheckpoint {
            state: Bytes::from_static(state),
            at: at.map(|(turns, history)| TurnPosition { turns, history }),
        });
    let stamp = proptest::option::of(NOW.0 - 1_000_000..NOW.0 + 100_000);
    let pause = (ids, point, stamp).prop_map(|(pending, (turns, history), stamp)| StoredPause {
        pending,
        turns: Some(turns),
        history: Some(history),
        recorded_at: stamp.map(UnixMillis),
    });
    let owner = prop_oneof![
        Just(ConversationOwner::Anyone),
        Just(ConversationOwner::Session(None)),
        Just(ConversationOwner::Session(Some("s")))
    ];
    (
        owner,
        proptest::option::of(checkpoint),
        proptest::option::of(pause),
    )
        .prop_map(|(owner, checkpoint, pause)| StoredConversation {
            owner,
            checkpoint,
            pause,
        })
}

#[test]
fn the_largest_turn_count_does_not_overflow() {
    let end = TurnPosition {
        turns: usize::MAX,
        ..HERE
    };
    let request = RecoveryRequest {
        at: end,
        ..request_with(&["t"])
    };
    let decision = plan_recovery(Some(&saved(&["t"])), &request, NOW);
    assert_eq!(
        decision.plan,
        RecoveryPlan::Skip(RecoverySkip::StaleCheckpoint)
    );
}

proptest! {
    /// The same input returns the same plan, and no plan recovers without a fresh pause whose
    /// calls have results.
    #[test]
    fn the_planner_is_a_pure_function(row in any_row(), received in proptest::collection::vec(prop_oneof![Just("a"), Just("b")], 0..3)) {
        let request = RecoveryRequest { session: Some("s"), ..request_with(&[]) };
        let request = RecoveryRequest { in_flight: Some(received.clone()), received, ..request };
        let decision = plan_recovery(Some(&row), &request, NOW);
        prop_assert_eq!(&decision, &plan_recovery(Some(&row.clone()), &request.clone(), NOW));
        if !matches!(decision.plan, RecoveryPlan::Skip(_)) {
            let pause = row.pause.as_ref().unwrap();
            prop_assert!(check_age(pause, NOW).is_ok());
            prop_assert!(check_results(&ids(&pause.pending), &request.received).is_ok());
            prop_assert!(check_owner(&row, &request).is_ok());
        }
        if decision.plan == RecoveryPlan::RecoverCheckpoint {
            prop_assert!(!row.checkpoint.unwrap().state.is_empty());
        }
    }
}
