use uuid::Uuid;

use super::*;
use crate::message::{AnswerPart, Message, ToolCall};
use crate::turn::{Keep, Stop};

fn manager(options: SessionOptions) -> Arc<SessionManager> {
    Arc::new(SessionManager::new(options))
}

fn unnamed_for(park_timeout: Duration) -> Arc<SessionManager> {
    manager(SessionOptions {
        park_timeout,
        max_parked: 8,
        ..SessionOptions::default()
    })
}

fn user(text: &str) -> Message {
    Message::user(text)
}

async fn reserve(
    manager: &Arc<SessionManager>,
    messages: Vec<Message>,
    id: Option<&str>,
) -> TurnTicket {
    let transcript = &Transcript {
        messages,
        ..Transcript::default()
    };
    let selector = SessionSelector::Transcript { transcript, id };
    let turn_id = Uuid::new_v4().to_string();
    let reserved = manager.reserve(&turn_id, selector, CancellationToken::new());
    reserved.await.unwrap()
}

async fn reserve_unnamed(manager: &Arc<SessionManager>) -> TurnTicket {
    reserve(manager, vec![user("go")], None).await
}

fn is_open(manager: &SessionManager, id: &str) -> bool {
    manager.state().sessions.contains(id)
}

const IDLE: Duration = MIN_UNNAMED_IDLE;
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn an_unused_unnamed_session_is_closed() {
    let manager = unnamed_for(IDLE);
    let unnamed = reserve_unnamed(&manager).await.session_id().to_owned();
    let named = reserve(&manager, vec![user("go")], Some("me")).await;
    let named = named.session_id().to_owned();
    tokio::time::advance(IDLE - SECOND).await;
    let second = reserve_unnamed(&manager).await.session_id().to_owned();
    assert!(is_open(&manager, &unnamed) && second != unnamed);
    tokio::time::advance(2 * SECOND).await;
    reserve_unnamed(&manager).await;
    assert!(!is_open(&manager, &unnamed), "its time is up");
    assert!(is_open(&manager, &second) && is_open(&manager, &named));
}

#[tokio::test(start_paused = true)]
async fn an_active_turn_keeps_its_session_open() {
    let manager = unnamed_for(IDLE);
    let mut answers = reserve_unnamed(&manager).await;
    let mut waits = reserve_unnamed(&manager).await;
    let mut fails = reserve_unnamed(&manager).await;
    let ids = [&answers, &waits, &fails].map(|turn| turn.session_id().to_owned());
    let open = || ids.each_ref().map(|id| is_open(&manager, id));
    tokio::time::advance(3 * IDLE).await;
    reserve_unnamed(&manager).await;
    assert_eq!(open(), [true; 3], "their turns are active");
    let answer = AnswerSummary {
        text: "words".into(),
        calls: vec!["call".into()],
    };
    answers.finish(&Stop::Finished, &answer).await;
    waits.finish(&Stop::ToolUse, &answer).await;
    fails.finish(&Stop::Aborted, &answer).await;
    drop((answers, waits, fails));
    tokio::time::advance(IDLE - SECOND).await;
    reserve_unnamed(&manager).await;
    assert_eq!(open(), [true; 3]);
    tokio::time::advance(2 * SECOND).await;
    reserve_unnamed(&manager).await;
    assert_eq!(open(), [false; 3]);
}

#[tokio::test]
async fn sessions_over_the_limit_are_forgotten() {
    let manager = manager(SessionOptions {
        max_parked: 1,
        ..SessionOptions::default()
    });
    let mut ids = Vec::new();
    for _ in 0..1000 {
        ids.push(reserve_unnamed(&manager).await.session_id().to_owned());
    }
    let open = ids.iter().filter(|id| is_open(&manager, id)).count();
    assert!(open < 1000);
    assert_eq!(manager.state().index.unnamed_count(), open);
}

#[tokio::test]
async fn a_turn_of_a_disconnected_client_is_not_parked() {
    let manager = unnamed_for(IDLE);
    let mut gone = reserve_unnamed(&manager).await;
    assert!(gone.finish(&Stop::ToolUse, &AnswerSummary::default()).await);
    gone.release().await;
    let stays = reserve_unnamed(&manager).await;
    let evicted = manager.state().parked.add("stays", stays.session_id(), 1);
    assert_eq!(evicted, None, "there is room");
}

#[tokio::test]
async fn a_transcript_belongs_to_the_session_that_answered_it() {
    let manager = unnamed_for(IDLE);
    let history = |question: &str, answer: &str| {
        let answer = Message::assistant(answer);
        vec![user(question), answer, user("more")]
    };
    let answer = |text: &str| AnswerSummary {
        text: text.into(),
        calls: Vec::new(),
    };
    let mut first = reserve(&manager, vec![user("a")], None).await;
    assert_eq!(first.keep(), Keep::Memory);
    first.finish(&Stop::Finished, &answer("one ")).await;
    let continued = reserve(&manager, history("a", "one"), None).await;
    assert_eq!(continued.session_id(), first.session_id());
    let other = reserve(&manager, history("a", "one"), None).await;
    assert_ne!(other.session_id(), first.session_id(), "it has continued");
    // A turn that did not run can be repeated.
    drop(continued);
    let repeated = reserve(&manager, history("a", "one"), None).await;
    assert_eq!(repeated.session_id(), first.session_id());
    let mut second = reserve(&manager, vec![user("a")], None).await;
    second.finish(&Stop::Finished, &answer("one")).await;
    drop(repeated);
    let ambiguous = reserve(&manager, history("a", "one"), None).await;
    let id = ambiguous.session_id();
    assert!(id != first.session_id() && id != second.session_id());
}

#[tokio::test]
async fn results_belong_to_the_session_that_made_the_call() {
    let manager = unnamed_for(IDLE);
    let mut first = reserve(&manager, vec![user("a")], Some("named")).await;
    assert_eq!((first.session_id(), first.keep()), ("named", Keep::Disk));
    let answer = AnswerSummary {
        text: String::new(),
        calls: vec!["c1".into()],
    };
    first.finish(&Stop::ToolUse, &answer).await;
    let calls = Message::answer(vec![AnswerPart::Call(ToolCall {
        id: "c1".into(),
        name: "t".into(),
        arguments: serde_json::Value::Null,
    })]);
    let result = Message::tool_result("c1", "t", "");
    let with_result = vec![user("a"), calls.clone(), result];
    let found = reserve(&manager, with_result.clone(), Some("other")).await;
    assert_eq!(found.session_id(), "named");
    let without_result = vec![user("a"), calls, user("never mind")];
    let found = reserve(&manager, without_result.clone(), None).await;
    assert_eq!(found.session_id(), "named");
    let found = reserve(&manager, without_result, Some("other")).await;
    assert_eq!(found.session_id(), "other");
}

#[tokio::test]
async fn a_turn_is_cancelled_while_it_is_active_or_parked() {
    let manager = unnamed_for(IDLE);
    let reserve = |turn| {
        let selector = SessionSelector::Id("s");
        manager.reserve(turn, selector, CancellationToken::new())
    };
    let nothing = AnswerSummary::default();
    let mut active = reserve("t1").await.unwrap();
    let again = reserve("t1").await.map(|_| ());
    assert_eq!(again, Err(ReserveError::AlreadyActive));
    assert!(manager.cancel("t1").await && active.cancel_token().is_cancelled());
    assert!(!active.finish(&Stop::ToolUse, &nothing).await, "cancelled");
    drop(active);
    assert!(!manager.cancel("t1").await, "it was not parked");
    let mut parked = reserve("t2").await.unwrap();
    assert!(parked.finish(&Stop::ToolUse, &nothing).await);
    drop(parked);
    assert!(manager.cancel("t2").await);
    assert!(!manager.cancel("t2").await);
}
