//! For any stored state and any request of a host: a lost turn is recovered only by its own
//! session, from a recorded pause, with the results that pause waits for; and no user message is
//! left out of what is sent.
#![no_main]

use std::collections::BTreeSet;

use agent::conversation::fingerprint::Fingerprint;
use agent::conversation::recovery::{
    CLOCK_SKEW, ConversationOwner, LARGEST_CHECKPOINT, LossKind, OLDEST_PAUSE, RebuildReason,
    RecoveryDecision, RecoveryPlan, RecoveryRequest, StoredCheckpoint, StoredConversation,
    StoredPause, TurnPosition, UnixMillis, plan_recovery,
};
use agent::conversation::send_plan::{self as send, SendPlan};
use agent::message::{AnswerPart, Message, ToolCall};
use arbitrary::Arbitrary;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

/// Only a few values, so that they collide.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum Word {
    Empty,
    A,
    B,
    C,
}

impl Word {
    fn text(self) -> &'static str {
        match self {
            Self::Empty => "",
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
        }
    }
}

#[derive(Arbitrary, Debug, Clone, Copy)]
enum ArbitraryCount {
    Small(u8),
    Any(usize),
    Last,
}

impl ArbitraryCount {
    fn value(self) -> usize {
        match self {
            Self::Small(number) => usize::from(number % 4),
            Self::Any(number) => number,
            Self::Last => usize::MAX,
        }
    }
}

#[derive(Arbitrary, Debug, Clone, Copy)]
struct ArbitraryPosition {
    turns: ArbitraryCount,
    history: Word,
}

impl ArbitraryPosition {
    fn point(self) -> TurnPosition<'static> {
        TurnPosition {
            turns: self.turns.value(),
            history: self.history.text(),
        }
    }
}

#[derive(Arbitrary, Debug, Clone)]
struct ArbitraryPause {
    pending: Vec<Word>,
    turns: Option<ArbitraryCount>,
    history: Option<Word>,
    recorded_at: Option<ArbitraryTime>,
}

/// A time near now, near the limits of what is fresh, or anywhere.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum ArbitraryTime {
    Near(i8),
    Oldest(i8),
    Youngest(i8),
    Any(i64),
}

impl ArbitraryTime {
    fn from(self, now: i64) -> UnixMillis {
        let millis = |time: std::time::Duration| time.as_millis() as i64;
        UnixMillis(match self {
            Self::Near(off) => now.saturating_add(i64::from(off)),
            Self::Oldest(off) => now.saturating_sub(millis(OLDEST_PAUSE) + i64::from(off)),
            Self::Youngest(off) => now.saturating_add(millis(CLOCK_SKEW) + i64::from(off)),
            Self::Any(time) => time,
        })
    }
}

#[derive(Arbitrary, Debug)]
struct ArbitraryConversation {
    owner: Option<Option<Word>>,
    checkpoint: Option<(Vec<u8>, Option<ArbitraryPosition>)>,
    pause: Option<ArbitraryPause>,
}

#[derive(Arbitrary, Debug)]
struct ArbitraryLoss {
    row: Option<ArbitraryConversation>,
    session: Option<Word>,
    at: ArbitraryPosition,
    in_flight: Option<Vec<Word>>,
    received: Vec<Word>,
    silent: bool,
    now: i64,
}

fn texts(words: &[Word]) -> Vec<&'static str> {
    words.iter().map(|word| word.text()).collect()
}

fn named<'a>(ids: &[&'a str]) -> BTreeSet<&'a str> {
    ids.iter().copied().filter(|id| !id.is_empty()).collect()
}

fn comes_back(decision: &RecoveryDecision) -> bool {
    matches!(
        decision.plan,
        RecoveryPlan::RecoverCheckpoint | RecoveryPlan::RebuildHistory(_)
    )
}

/// The decision without its ids, because their order follows the request.
fn gist(decision: &RecoveryDecision) -> String {
    let plan = match &decision.plan {
        RecoveryPlan::RecoverCheckpoint => "recover",
        RecoveryPlan::RebuildHistory(reason) => reason.name(),
        RecoveryPlan::Skip(skip) => skip.name(),
    };
    let RecoveryDecision {
        had_checkpoint,
        clears_pause,
        clears_checkpoint,
        ..
    } = decision;
    format!("{plan} {had_checkpoint} {clears_pause} {clears_checkpoint}")
}

fn recovery(lost: &ArbitraryLoss) {
    let row = lost.row.as_ref().map(|kept| StoredConversation {
        owner: match kept.owner {
            None => ConversationOwner::Anyone,
            Some(session) => ConversationOwner::Session(session.map(Word::text)),
        },
        checkpoint: kept
            .checkpoint
            .as_ref()
            .map(|(state, at)| StoredCheckpoint {
                state: Bytes::copy_from_slice(state),
                at: at.map(ArbitraryPosition::point),
            }),
        pause: kept.pause.as_ref().map(|pause| StoredPause {
            pending: texts(&pause.pending),
            turns: pause.turns.map(ArbitraryCount::value),
            history: pause.history.map(Word::text),
            recorded_at: pause.recorded_at.map(|stamp| stamp.from(lost.now)),
        }),
    });
    let request = RecoveryRequest {
        session: lost.session.map(Word::text),
        at: lost.at.point(),
        in_flight: lost.in_flight.as_deref().map(texts),
        received: texts(&lost.received),
        loss: if lost.silent {
            LossKind::Silent
        } else {
            LossKind::Gone
        },
    };
    let now = UnixMillis(lost.now);
    let decision = plan_recovery(row.as_ref(), &request, now);
    assert_eq!(
        decision,
        plan_recovery(row.as_ref(), &request, now),
        "not of its arguments alone"
    );

    // Order and repetition of ids do not matter.
    let mut stuttered = request.clone();
    stuttered.received.reverse();
    stuttered.received.extend(request.received.iter().copied());
    assert_eq!(
        gist(&decision),
        gist(&plan_recovery(row.as_ref(), &stuttered, now))
    );

    let Some(row) = row else {
        assert!(!comes_back(&decision), "{decision:?} from nothing");
        return;
    };
    let foreign = StoredConversation {
        owner: ConversationOwner::Session(Some("another's")),
        ..row.clone()
    };
    assert!(
        !comes_back(&plan_recovery(Some(&foreign), &request, now)),
        "of a foreign session"
    );
    let unpaused = StoredConversation {
        pause: None,
        ..row.clone()
    };
    assert!(
        !comes_back(&plan_recovery(Some(&unpaused), &request, now)),
        "without a pause"
    );

    assert_eq!(decision.had_checkpoint, row.checkpoint.is_some());
    assert!(decision.had_checkpoint || !decision.clears_checkpoint);
    if !comes_back(&decision) {
        return;
    }
    assert!(
        !decision.clears_pause,
        "{decision:?} loses what it comes back from"
    );
    if let ConversationOwner::Session(session) = row.owner {
        assert_eq!(session, request.session);
    }
    let pause = row.pause.as_ref().expect("a pause");
    let (pending, received) = (named(&pause.pending), named(&request.received));
    assert!(
        !pending.is_empty() && pending.is_subset(&received),
        "{pending:?} of {received:?}"
    );
    let age = i128::from(now.0) - i128::from(pause.recorded_at.expect("a time").0);
    assert!(
        age <= OLDEST_PAUSE.as_millis() as i128 && age >= -(CLOCK_SKEW.as_millis() as i128),
        "{age}"
    );
    match decision.plan {
        RecoveryPlan::RecoverCheckpoint => {
            let checkpoint = row.checkpoint.as_ref().expect("a checkpoint");
            assert!((1..=LARGEST_CHECKPOINT).contains(&checkpoint.state.len()));
            let at = checkpoint.at.expect("a place");
            let of_pause = (pause.turns, pause.history);
            assert!(
                at == request.at || of_pause == (Some(request.at.turns), Some(request.at.history))
            );
            assert!(!decision.clears_checkpoint);
        }
        RecoveryPlan::RebuildHistory(reason) => {
            assert_eq!(pause.turns, Some(request.at.turns));
            assert_eq!(pause.history, Some(request.at.history));
            assert_eq!(
                named(request.in_flight.as_deref().unwrap_or_default()),
                received
            );
            let without = matches!(
                reason,
                RebuildReason::NoCheckpoint | RebuildReason::SynthesizedAfterIdle
            );
            assert_eq!(without, row.checkpoint.is_none());
            assert_eq!(
                decision.clears_checkpoint,
                reason == RebuildReason::StaleCheckpoint
            );
        }
        RecoveryPlan::Skip(_) => unreachable!(),
    }
}

#[derive(Arbitrary, Debug, Clone, Copy, PartialEq)]
enum FuzzAuthor {
    User,
    Model,
    /// A tool call of the model.
    Call,
    /// A tool result, with any call id.
    Tool,
}

#[derive(Arbitrary, Debug)]
struct ArbitraryMessage {
    sender: FuzzAuthor,
    words: Word,
    call: Word,
    at: u8,
}

#[derive(Arbitrary, Debug)]
struct ArbitrarySend {
    /// How many messages were sent before, and whether with the same system prompt.
    sent: Option<(u8, bool)>,
    history: Vec<ArbitraryMessage>,
}

fn sending(sent_before: &ArbitrarySend) {
    let messages: Vec<Message> = sent_before
        .history
        .iter()
        .map(|item| {
            let (words, call) = (item.words.text(), item.call.text());
            let message = match item.sender {
                FuzzAuthor::User => Message::user(words),
                FuzzAuthor::Model => Message::assistant(words),
                FuzzAuthor::Call => {
                    let call = AnswerPart::Call(ToolCall {
                        id: call.into(),
                        name: "look".into(),
                        arguments: json!({}),
                    });
                    Message::answer(vec![AnswerPart::Text(words.into()), call])
                }
                FuzzAuthor::Tool => Message::tool_result(call, "look", words),
            };
            message.at(item.at)
        })
        .collect();
    let known = sent_before
        .sent
        .map(|(known, _)| usize::from(known).min(messages.len()));
    let sent = sent_before.sent.zip(known).map(|((_, same), known)| {
        Fingerprint::of(if same { "S" } else { "T" }, &messages[..known])
    });
    let answer = sent_before.history.last().map(|item| item.words.text());
    let planned = send::plan_send(sent.as_ref(), answer, &[], "S", &messages);
    assert_eq!(
        planned,
        send::plan_send(sent.as_ref(), answer, &[], "S", &messages),
        "not of its arguments alone"
    );
    let continues = matches!(sent_before.sent, Some((_, true)));
    let unseen = if continues { known.unwrap_or(0) } else { 0 };
    let latest = messages
        .iter()
        .rposition(Message::is_answer)
        .map_or(0, |index| index + 1);
    // User text is sent unchanged, tool results as recovered output.
    let words: Vec<String> = sent_before.history[latest.max(unseen)..]
        .iter()
        .filter(|item| !item.words.text().is_empty())
        .map(|item| match item.sender {
            FuzzAuthor::Tool => format!(
                "\nResult:\n{}\n[End recovered tool output",
                item.words.text()
            ),
            _ => item.words.text().to_owned(),
        })
        .collect();
    if words.is_empty() {
        return;
    }
    // Whether there is no tool result among them.
    let alone = !sent_before.history[latest.max(unseen)..]
        .iter()
        .any(|item| item.sender == FuzzAuthor::Tool);
    let are_in_order = |mut text: &str| {
        words.iter().all(|words| match text.split_once(words) {
            Some((_, rest)) => {
                text = rest;
                true
            }
            None => false,
        })
    };
    match planned {
        SendPlan::Incremental { text, .. } => {
            assert!(continues, "on a state that stands for another history");
            assert!(are_in_order(&text), "{words:?} in {text:?}");
            assert!(
                !alone || text.contains(&words.join("\n\n")),
                "{words:?} in {text:?}"
            );
        }
        SendPlan::Bootstrap { history, text, .. } => {
            assert!(are_in_order(&text), "{words:?} in {text:?}");
            assert!(
                !alone || text.ends_with(&words.join("\n\n")),
                "{words:?} in {text:?}"
            );
            assert_eq!(history.len(), latest);
        }
        SendPlan::Resume { .. } | SendPlan::Nothing => panic!("{words:?} are left out"),
    }
}

fuzz_target!(|input: (ArbitraryLoss, ArbitrarySend)| {
    recovery(&input.0);
    sending(&input.1);
});
