//! A model of host, run and server, checked after every step: no message is lost.
//!
//! The server keeps a delivered message on its stream until a checkpoint includes it. Streams and
//! runs are lost, messages rejected; the next run gets what the inbox returns.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use context_injection_state::State;
use cursor_proto::agent::v1::{
    ContextInjectionDelivered, ContextInjectionQueued, ContextInjectionRejected,
    ContextInjectionState,
};

#[derive(Debug, Clone, Copy)]
enum InboxStep {
    /// The host sends a message, during a turn or between two.
    Arrive {
        is_injected: bool,
    },
    /// The server reports on the oldest message it has: queued, delivered, or rejected.
    Queue,
    Deliver,
    Reject,
    /// A checkpoint arrives; a late one is as old as the arrival of the one before.
    Checkpoint {
        is_late: bool,
        is_readable: bool,
    },
    LoseStream,
    /// The run ends, and another one is sent what is left.
    LoseRun,
}

fn step() -> impl Strategy<Value = InboxStep> {
    prop_oneof![
        4 => any::<bool>().prop_map(|is_injected| InboxStep::Arrive { is_injected }),
        2 => Just(InboxStep::Queue),
        4 => Just(InboxStep::Deliver),
        1 => Just(InboxStep::Reject),
        2 => any::<(bool, bool)>().prop_map(|(is_late, is_readable)| InboxStep::Checkpoint {
            is_late,
            is_readable,
        }),
        2 => Just(InboxStep::LoseStream),
        1 => Just(InboxStep::LoseRun),
    ]
}

#[derive(Default)]
struct InboxModel {
    inbox: Inbox,
    arrived: usize,
    /// What the stream was sent and has not delivered, in order.
    sent: Vec<Injection>,
    /// What the model has on this stream.
    delivered: BTreeSet<String>,
    /// What checkpoints include.
    saved: BTreeSet<String>,
    /// What the model had on this stream when the last checkpoint arrived.
    before: BTreeSet<String>,
}

impl InboxModel {
    fn report(&mut self, id: Uuid, state: State) -> InjectionStep {
        self.inbox.report(&ContextInjectionStateUpdate {
            injection_id: id.to_string(),
            state: Some(ContextInjectionState { state: Some(state) }),
        })
    }

    fn take(&mut self, step: InboxStep) {
        let now = Instant::now();
        let first = self.sent.first().map(|injection| injection.id);
        match (step, first) {
            (InboxStep::Arrive { is_injected }, _) => {
                self.arrived += 1;
                let text = format!("message {}", self.arrived);
                let message = UserMessage {
                    text,
                    ..UserMessage::default()
                };
                if is_injected && !self.inbox.is_released() {
                    self.sent
                        .push(self.inbox.inject(message, Source::Separate, now));
                } else {
                    self.inbox.add([message]);
                }
            }
            (InboxStep::Queue, Some(id)) => {
                self.report(id, State::Queued(ContextInjectionQueued {}));
            }
            (InboxStep::Deliver, Some(id)) => {
                self.delivered.insert(self.sent.remove(0).message.text);
                self.report(id, State::Delivered(ContextInjectionDelivered::default()));
            }
            (InboxStep::Reject, Some(id)) => {
                let rejected = State::Rejected(ContextInjectionRejected::default());
                if self.report(id, rejected) == InjectionStep::Release {
                    self.inbox.release();
                }
            }
            (
                InboxStep::Checkpoint {
                    is_late,
                    is_readable,
                },
                _,
            ) => {
                // The last checkpoint of a cancelled run may lack what was delivered to it.
                if !self.inbox.is_released() {
                    let included = if is_late {
                        &self.before
                    } else {
                        &self.delivered
                    };
                    self.saved.extend(included.iter().cloned());
                    let of_checkpoint = |message: &&InboxMessage| {
                        is_readable && included.contains(&message.unsaved.message.text)
                    };
                    let named = self.inbox.messages.iter().filter(of_checkpoint);
                    let named: Vec<String> = (named.filter_map(|message| message.injection))
                        .map(|id| id.to_string())
                        .collect();
                    self.before.clone_from(&self.delivered);
                    self.inbox.checkpoint(&named);
                }
            }
            (InboxStep::LoseStream, _) => {
                self.before.clear();
                self.delivered.clear();
                self.sent = self.inbox.reinject(now);
            }
            (InboxStep::LoseRun, _) => {
                (self.sent, self.delivered) = (Vec::new(), BTreeSet::new());
                self.before.clear();
                let left = self.inbox.take_except(0);
                self.inbox = Inbox::default();
                for message in left {
                    self.sent
                        .push(self.inbox.inject(message, Source::Separate, now));
                }
            }
            (InboxStep::Queue | InboxStep::Deliver | InboxStep::Reject, None) => {}
        }
    }

    /// The invariants of the inbox.
    fn check(&self) {
        let kept: Vec<String> = (self.inbox.separate().into_iter())
            .map(|message| message.text)
            .collect();
        for number in 1..=self.arrived {
            let text = format!("message {number}");
            let copies = kept.iter().filter(|kept| **kept == text).count();
            let is_saved = self.saved.contains(&text);
            assert!(is_saved || copies == 1, "{text} is kept {copies} times");
            assert!(copies <= 1, "{text} would be sent {copies} times");
        }
        // A message that is taken for delivered is with the model.
        for message in &self.inbox.messages {
            let is_delivered = message.phase == MessagePhase::Delivered;
            let text = &message.unsaved.message.text;
            assert!(!is_delivered || self.delivered.contains(text), "{text}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_message_is_kept_until_a_checkpoint_includes_it(
        steps in prop::collection::vec(step(), 1..40)
    ) {
        let mut world = InboxModel::default();
        for step in steps {
            world.take(step);
            world.check();
        }
    }
}
