//! Which session a request belongs to.
//!
//! It is found by the calls whose results the request contains, else by the client's session id,
//! else by the calls that the request leaves unanswered, else by a history that ends with an answer
//! of exactly one session here. Sessions are never matched by their first message, because
//! unrelated clients may send the same one.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use super::ask::Asked;
use crate::keeping::Keeping;
use crate::parked::Parked;
use crate::sessions::Sessions;
use agent::conversation::fingerprint::Fingerprint;
use agent::conversation::message::{self, Pictures};
use agent::conversation::plan::latest;
use agent::conversation::store::Store;
use agent::conversation::transcript::Transcript;
use agent::turn::{Gone, Keep, Policy, Session};
use agent_tools::shell::reaper::ChildReaper;

/// How many calls and answers are remembered.
const MOST_KNOWN: usize = 8192;
/// How long, at least, an unnamed session is kept for its client's next request.
const UNUSED: Duration = Duration::from_secs(30 * 60);

/// The sessions of all clients.
pub(super) struct Desk {
    sessions: Sessions,
    parked: Parked,
    keeping: Keeping,
    store: Option<Store>,
    most_parked: usize,
    unused: Duration,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Calls that were sent to clients, and their sessions.
    calls: Bounded<String>,
    /// Histories that were answered, and by which session.
    ends: Bounded<End>,
    /// Sessions without a name.
    unnamed: HashMap<String, Unnamed>,
}

/// How a session without a name is used.
struct Unnamed {
    last: Instant,
    /// Also held by its active turns.
    turns: Arc<()>,
}

impl Unnamed {
    fn is_under_way(&self) -> bool {
        Arc::strong_count(&self.turns) > 1
    }
}

impl Known {
    /// Marks a session as used, if it has no name.
    fn used(&mut self, name: &str) {
        if let Some(unnamed) = self.unnamed.get_mut(name) {
            unnamed.last = Instant::now();
        }
    }
}

/// Which session answered a history.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// A session that has not continued since.
    Of(String),
    /// A session that has continued since.
    Past(String),
    /// Several sessions, so that the history does not identify one.
    Several,
}

/// A request's place in a session.
pub(super) struct Seat {
    pub(super) session: Session,
    pub(super) name: String,
    pub(super) keep: Keep,
    /// The history by which the session was found.
    found_by: Option<String>,
    /// The history that the turn answers.
    answers: String,
    /// Marks the turn of an unnamed session as active.
    _turn: Option<Arc<()>>,
}

impl Desk {
    /// Returns a registry without sessions.
    pub(super) fn new(
        env: &impl Fn(&str) -> Option<String>,
        home: Option<&Path>,
        policy: &Policy,
    ) -> Self {
        let keeping = Keeping::default();
        Self {
            sessions: Sessions::default(),
            parked: Parked::default(),
            store: keeping.store(env, home),
            keeping,
            most_parked: policy.most_parked,
            unused: policy.park.max(UNUSED),
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session of a request.
    pub(super) fn seat(&self, asked: &Asked) -> Seat {
        let transcript = &asked.transcript;
        let mut known = self.known();
        let mut found_by = None;
        let whose = |id: &str| known.calls.get(id).cloned();
        let by_results = results(&transcript.messages).find_map(whose);
        let by_name = || Some(named(asked.session.as_deref()?, transcript));
        let by_calls = || calls(&transcript.messages).find_map(whose);
        let name = by_results.or_else(by_name).or_else(by_calls);
        let name = name.or_else(|| {
            let history = ending(transcript)?;
            let Some(End::Of(name)) = known.ends.get(&history).cloned() else {
                return None;
            };
            known.ends.set(&history, End::Past(name.clone()));
            found_by = Some(history);
            Some(name)
        });
        let name = name.unwrap_or_else(|| format!("{UNNAMED}{}", Uuid::new_v4()));
        let keep = if name.starts_with(UNNAMED) {
            Keep::Memory
        } else {
            Keep::Disk
        };
        if keep == Keep::Memory {
            self.forget_unused(&mut known);
        }
        let session = self.sessions.enter(&name, self.most_parked, |last| {
            // The gateway executes nothing, so there are no processes to watch.
            let reaper = ChildReaper::default();
            match self.store.clone().filter(|_| keep == Keep::Disk) {
                Some(store) => Session::start_after(last, Some((store, name.clone())), reaper),
                None => Session::start_unkept(last, &name, reaper),
            }
        });
        self.parked.forget(&name);
        let turn = (keep == Keep::Memory).then(|| {
            let unnamed = known.unnamed.entry(name.clone());
            let unnamed = unnamed.or_insert_with(|| Unnamed {
                last: Instant::now(),
                turns: Arc::default(),
            });
            Arc::clone(&unnamed.turns)
        });
        known.used(&name);
        // The least recently used session may have been closed.
        known.unnamed.retain(|name, _| self.sessions.has(name));
        Seat {
            session,
            name,
            keep,
            found_by,
            answers: before(transcript, &transcript.messages),
            _turn: turn,
        }
    }

    fn forget_unused(&self, known: &mut Known) {
        known.unnamed.retain(|name, unnamed| {
            let stays = unnamed.is_under_way() || unnamed.last.elapsed() < self.unused;
            if !stays {
                self.sessions.remove(name);
            }
            stays
        });
    }

    /// Records a complete turn: a request that continues its answer belongs to its session.
    pub(super) fn answered(&self, seat: &Seat, answer: &str) {
        self.keeping.tidy();
        if seat.keep == Keep::Disk {
            return; // it has a name
        }
        let history = history(&seat.answers, answer);
        let mut known = self.known();
        known.used(&seat.name);
        let end = match known.ends.get(&history) {
            None => End::Of(seat.name.clone()),
            Some(_) => End::Several,
        };
        known.ends.set(&history, end);
    }

    /// Records a turn that waits for the results of these calls. If too many wait, the longest
    /// waiting is released.
    pub(super) async fn waits(&self, seat: &Seat, turn: &str, calls: Vec<String>) {
        {
            let mut known = self.known();
            known.used(&seat.name);
            for call in calls {
                known.calls.set(&call, seat.name.clone());
            }
        }
        let (turn, name) = (turn.to_owned(), seat.name.clone());
        let longest = self.parked.add(turn, name, self.most_parked);
        if let Some(session) = longest.and_then(|name| self.sessions.find(&name)) {
            session.let_go().await;
        }
    }

    /// Releases such a turn if its client has disconnected, because the calls were not delivered.
    pub(super) async fn left(&self, seat: &Seat, turn: &str) {
        self.parked.take(turn);
        seat.session.let_go().await;
    }

    /// Records a failed turn: the client may repeat the request.
    pub(super) fn failed(&self, seat: &Seat) {
        let mut known = self.known();
        known.used(&seat.name);
        let Some(history) = &seat.found_by else {
            return;
        };
        if known.ends.get(history) == Some(&End::Past(seat.name.clone())) {
            known.ends.set(history, End::Of(seat.name.clone()));
        }
    }

    /// Closes every session.
    pub(super) fn close(&self) -> Vec<Gone> {
        self.sessions.close()
    }
}

/// The prefix of unnamed sessions. No client can choose such a name.
const UNNAMED: &str = "gateway/unnamed/";

/// Returns the session for a client's session id. The system prompt is part of it, because a client
/// may send other requests (a title, a summary) under the same id.
fn named(name: &str, transcript: &Transcript) -> String {
    let prompt = hex(&Sha256::digest(transcript.system.as_bytes())[..8]);
    format!("gateway/named/{prompt}/{name}")
}

/// Returns the ids of the calls whose results follow the last assistant message.
fn results(messages: &[Json]) -> impl Iterator<Item = &str> {
    let results = messages[latest(messages)..].iter();
    let results = results.filter(|message| message["role"] == "toolResult");
    results.filter_map(|message| message["toolCallId"].as_str())
}

/// Returns the ids of the calls in the last assistant message: a user may continue without waiting
/// for a tool.
fn calls(messages: &[Json]) -> impl Iterator<Item = &str> {
    let last = messages[..latest(messages)].last();
    let blocks = last.and_then(|message| message["content"].as_array());
    let calls = blocks.into_iter().flatten();
    let calls = calls.filter(|block| block["type"] == "toolCall");
    calls.filter_map(|block| block["id"].as_str())
}

/// Returns the digest of the history that a request continues, up to the last assistant message.
fn ending(transcript: &Transcript) -> Option<String> {
    let (answer, earlier) = transcript.messages[..latest(&transcript.messages)].split_last()?;
    let text = message::text(&answer["content"], Pictures::Omitted);
    Some(history(&before(transcript, earlier), &text))
}

/// Returns the digest of the messages that an answer follows.
fn before(transcript: &Transcript, messages: &[Json]) -> String {
    let fingerprint = Fingerprint::of(&transcript.system, messages);
    hex(&Sha256::digest(
        serde_json::to_string(&fingerprint).unwrap_or_default(),
    ))
}

/// Returns the digest of a history and its answer. White space around the answer is ignored,
/// because clients trim it.
fn history(before: &str, answer: &str) -> String {
    hex(&Sha256::digest(format!("{before}\n{}", answer.trim())))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A map that drops its oldest entry when it is full.
struct Bounded<T> {
    map: HashMap<String, T>,
    order: VecDeque<String>,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self {
            map: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<T> Bounded<T> {
    fn get(&self, key: &str) -> Option<&T> {
        self.map.get(key)
    }

    fn set(&mut self, key: &str, value: T) {
        if self.map.insert(key.to_owned(), value).is_some() {
            return;
        }
        self.order.push_back(key.to_owned());
        if self.order.len() > MOST_KNOWN
            && let Some(first) = self.order.pop_front()
        {
            self.map.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(session: Option<&str>) -> Asked {
        let body = br#"{"model": "composer-2", "messages": [{"role": "user", "content": "go"}]}"#;
        Asked::read(body, session.map(str::to_owned)).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn s47_an_unused_unnamed_session_is_closed() {
        let policy = Policy {
            park: UNUSED,
            ..Policy::default()
        };
        let desk = Desk::new(&|_: &str| None, None, &policy);
        let sit = |name| desk.seat(&asked(name)).name;
        let there = |name: &str| desk.sessions.has(name);
        let (unnamed, named) = (sit(None), sit(Some("me")));
        tokio::time::advance(UNUSED - Duration::from_secs(1)).await;
        let second = sit(None);
        assert!(there(&unnamed) && second != unnamed);
        tokio::time::advance(Duration::from_secs(2)).await;
        sit(None);
        assert!(!there(&unnamed), "its time is up");
        assert!(there(&second) && there(&named));
    }

    #[tokio::test(start_paused = true)]
    async fn s47_an_active_turn_keeps_its_session_open() {
        let policy = Policy {
            park: UNUSED,
            ..Policy::default()
        };
        let desk = Desk::new(&|_: &str| None, None, &policy);
        let sit = || desk.seat(&asked(None));
        let [answers, waits, fails] = [sit(), sit(), sit()];
        let names = [&answers, &waits, &fails].map(|seat| seat.name.clone());
        let there = || names.each_ref().map(|name| desk.sessions.has(name));
        tokio::time::advance(3 * UNUSED).await;
        sit();
        assert_eq!(there(), [true; 3], "their turns are under way");
        desk.answered(&answers, "words");
        desk.waits(&waits, "turn", vec!["call".into()]).await;
        desk.failed(&fails);
        drop((answers, waits, fails));
        tokio::time::advance(UNUSED - Duration::from_secs(1)).await;
        sit();
        assert_eq!(there(), [true; 3]);
        tokio::time::advance(Duration::from_secs(2)).await;
        sit();
        assert_eq!(there(), [false; 3]);
    }

    #[tokio::test]
    async fn s47_sessions_over_the_limit_are_forgotten() {
        let policy = Policy {
            most_parked: 1,
            ..Policy::default()
        };
        let desk = Desk::new(&|_: &str| None, None, &policy);
        for _ in 0..1000 {
            desk.seat(&asked(None));
        }
        let known = desk.known();
        assert!(known.unnamed.len() < 1000);
        assert!(known.unnamed.keys().all(|name| desk.sessions.has(name)));
    }

    #[tokio::test]
    async fn a_turn_of_a_disconnected_client_is_not_parked() {
        let desk = Desk::new(&|_: &str| None, None, &Policy::default());
        let [gone, stays] = [desk.seat(&asked(None)), desk.seat(&asked(None))];
        desk.waits(&gone, "gone", Vec::new()).await;
        desk.left(&gone, "gone").await;
        assert_eq!(desk.parked.take("gone"), None);
        let evicts = desk.parked.add("stays".into(), stays.name, 1);
        assert_eq!(evicts, None, "there is room");
    }
}
