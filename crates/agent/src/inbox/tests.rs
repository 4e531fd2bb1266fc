use super::*;
use crate::run::Image;
use context_injection_state::State;
use cursor_proto::agent::v1::{
    ContextInjectionDelivered, ContextInjectionQueued, ContextInjectionRejected,
    ContextInjectionState,
};

fn message(text: &str) -> UserMessage {
    UserMessage {
        text: text.into(),
        ..UserMessage::default()
    }
}

fn report(id: Uuid, state: State) -> ContextInjectionStateUpdate {
    ContextInjectionStateUpdate {
        injection_id: id.to_string(),
        state: Some(ContextInjectionState { state: Some(state) }),
    }
}

#[test]
fn a_message_has_a_deadline_until_the_server_reports_on_it() {
    let now = Instant::now();
    let mut inbox = Inbox::default();
    let injected = inbox.inject(message("hurry"), Source::Separate, now);
    assert_eq!(inbox.deadline(), Some(now + REPORT_TIMEOUT));
    let queued = report(injected.id, State::Queued(ContextInjectionQueued {}));
    assert_eq!(inbox.report(&queued), InjectionStep::Continue);
    assert_eq!((inbox.deadline(), inbox.is_delivered()), (None, false));
    let delivered = report(
        injected.id,
        State::Delivered(ContextInjectionDelivered::default()),
    );
    assert_eq!(inbox.report(&delivered), InjectionStep::Continue);
    assert!(inbox.is_delivered());
    inbox.checkpoint(&[]);
    assert_eq!(inbox.separate(), [message("hurry")], "it may be older");
    inbox.checkpoint(&[]);
    assert_eq!(inbox.take(), []);
    let named = inbox.inject(message("faster"), Source::Separate, now);
    inbox.checkpoint(&[named.id.to_string()]);
    assert_eq!(inbox.take(), []);
}

#[test]
fn messages_without_a_checkpoint_are_injected_into_the_next_stream() {
    let now = Instant::now();
    let mut inbox = Inbox::default();
    let initial = UnsavedMessage {
        message: message("go"),
        source: Source::History(3),
    };
    inbox.start_with(vec![initial]);
    let injected = inbox.inject(message("hurry"), Source::Separate, now);
    let delivered = State::Delivered(ContextInjectionDelivered::default());
    inbox.report(&report(injected.id, delivered));
    assert!(inbox.is_delivered());
    // Messages the run started with are not injected.
    assert_eq!(inbox.reinject(now), [injected]);
    assert!(!inbox.is_delivered());
    let left = inbox.take().into_iter().map(|unsaved| unsaved.message.text);
    assert_eq!(left.collect::<Vec<_>>(), ["go", "hurry"]);
}

#[test]
fn a_rejected_message_stays_undelivered_whatever_is_reported_later() {
    let mut inbox = Inbox::default();
    let injected = inbox.inject(message("hurry"), Source::History(1), Instant::now());
    let refused = report(
        injected.id,
        State::Rejected(ContextInjectionRejected::default()),
    );
    assert_eq!(inbox.report(&refused), InjectionStep::Release);
    inbox.release();
    let late = report(
        injected.id,
        State::Delivered(ContextInjectionDelivered::default()),
    );
    assert_eq!(inbox.report(&late), InjectionStep::Continue);
    assert_eq!(inbox.deadline(), None);
    let picture = Image {
        mime_type: None,
        data: "dots".into(),
    };
    let shown = UserMessage {
        images: vec![picture.clone()],
        ..message("like this")
    };
    inbox.inject(shown, Source::Separate, Instant::now());
    let left = inbox.take().into_iter().map(|unsaved| unsaved.message);
    let left = joined(left).unwrap();
    assert_eq!(
        (left.text.as_str(), left.images),
        ("hurry\n\nlike this", vec![picture])
    );
}

#[test]
fn only_messages_without_a_report_get_a_new_deadline() {
    let now = Instant::now();
    let mut inbox = Inbox::default();
    let queued = inbox.inject(message("one"), Source::Separate, now);
    inbox.report(&report(queued.id, State::Queued(ContextInjectionQueued {})));
    let later = now + REPORT_TIMEOUT;
    inbox.rearm(later);
    assert_eq!(inbox.deadline(), None);
    inbox.inject(message("two"), Source::Separate, now);
    inbox.rearm(later);
    assert_eq!(inbox.deadline(), Some(later + REPORT_TIMEOUT));
}

#[test]
fn a_message_is_dropped_only_if_the_history_has_the_same_text() {
    let mut inbox = Inbox::default();
    for (text, source) in [("go", Source::Separate), ("hurry", Source::History(1))] {
        inbox.inject(message(text), source, Instant::now());
    }
    let left = |inbox: &Inbox| inbox.messages.len();
    inbox.drop_resent(&["please go".into(), "hurry".into()]);
    assert_eq!(left(&inbox), 2);
    inbox.drop_resent(&["go".into()]);
    assert_eq!(left(&inbox), 1);
}

#[test]
fn reports_on_unknown_injections_are_ignored() {
    let mut inbox = Inbox::default();
    inbox.inject(message("hurry"), Source::History(1), Instant::now());
    let other = report(
        Uuid::new_v4(),
        State::Rejected(ContextInjectionRejected::default()),
    );
    assert_eq!(inbox.report(&other), InjectionStep::Continue);
    assert!(!inbox.is_delivered());
}
