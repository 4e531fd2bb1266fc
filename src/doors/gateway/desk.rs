//! Which session a request belongs to.
//!
//! By the calls whose results it brings, else by the session the client names, else by the calls
//! it goes on without, else by a history that ends with an answer given here and to nobody else.
//! Never by how a chat begins: two clients that say the same first words have nothing to do with
//! each other.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use super::ask::Asked;
use crate::conversation::fingerprint::Fingerprint;
use crate::conversation::message::{self, Pictures};
use crate::conversation::plan::latest;
use crate::conversation::store::Store;
use crate::conversation::transcript::Transcript;
use crate::doors::keeping::Keeping;
use crate::doors::parked::Parked;
use crate::doors::sessions::Sessions;
use crate::tools::leash::Leash;
use crate::turn::{Gone, Keep, Policy, Session};

/// Calls and answers that are remembered at most.
const MOST_KNOWN: usize = 8192;
/// How long an unnamed session is kept for its client's next request, at least.
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
    /// Calls that were handed out, and whose they are.
    calls: Bounded<String>,
    /// Histories that were answered, and by whom.
    ends: Bounded<End>,
    /// Sessions without a name.
    unnamed: HashMap<String, Unnamed>,
}

/// How a session without a name is used.
struct Unnamed {
    last: Instant,
    /// Held by its turns, too.
    turns: Arc<()>,
}

impl Unnamed {
    fn is_under_way(&self) -> bool {
        Arc::strong_count(&self.turns) > 1
    }
}

impl Known {
    /// A session is used, if it has no name.
    fn used(&mut self, name: &str) {
        if let Some(unnamed) = self.unnamed.get_mut(name) {
            unnamed.last = Instant::now();
        }
    }
}

/// Whose a history is that was answered here.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// A session that waits for what follows.
    Of(String),
    /// A session that has gone on from it.
    Past(String),
    /// Several came to it: nobody can tell which one is meant.
    Several,
}

/// A place in a session.
pub(super) struct Seat {
    pub(super) session: Session,
    pub(super) name: String,
    pub(super) keep: Keep,
    /// The history it was found by.
    found_by: Option<String>,
    /// The history it answers.
    answers: String,
    /// Says that its turn is under way, if it has no name.
    _turn: Option<Arc<()>>,
}

impl Desk {
    /// No sessions yet.
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

    /// The session of a request.
    pub(super) fn seat(&self, asked: &Asked) -> Seat {
        let told = &asked.transcript;
        let mut known = self.known();
        let mut found_by = None;
        let whose = |id: &str| known.calls.get(id).cloned();
        let by_results = results(&told.messages).find_map(whose);
        let by_name = || Some(named(asked.session.as_deref()?, told));
        let by_calls = || calls(&told.messages).find_map(whose);
        let name = by_results.or_else(by_name).or_else(by_calls);
        let name = name.or_else(|| {
            let history = ending(told)?;
            let Some(End::Of(name)) = known.ends.get(&history).cloned() else {
                return None;
            };
            known.ends.set(&history, End::Past(name.clone()));
            found_by = Some(history);
            Some(name)
        });
        let name = name.unwrap_or_else(|| format!("{UNNAMED}{}", Uuid::new_v4()));
        let keep = match name.starts_with(UNNAMED) {
            true => Keep::Memory,
            false => Keep::Disk,
        };
        if keep == Keep::Memory {
            self.forget_unused(&mut known);
        }
        let session = self.sessions.enter(&name, self.most_parked, |last| {
            // Nothing is executed here: there is nobody to be held on a leash.
            let leash = Leash::default();
            match self.store.clone().filter(|_| keep == Keep::Disk) {
                Some(store) => Session::start_after(last, Some((store, name.clone())), leash),
                None => Session::start_unkept(last, &name, leash),
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
        // Of too many the longest unused has gone.
        known.unnamed.retain(|name, _| self.sessions.has(name));
        Seat {
            session,
            name,
            keep,
            found_by,
            answers: before(told, &told.messages),
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

    /// A turn is complete: what follows its answer belongs to its session.
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

    /// A turn waits for results of these calls. Of too many such turns the longest waiting goes.
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

    /// The client of such a turn has left: nobody knows of its calls.
    pub(super) async fn left(&self, seat: &Seat, turn: &str) {
        self.parked.take(turn);
        seat.session.let_go().await;
    }

    /// A turn came to nothing: the client may ask for it again.
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

    /// Lets go of every session.
    pub(super) fn close(&self) -> Vec<Gone> {
        self.sessions.close()
    }
}

/// How sessions without a name are called. No client can name one so.
const UNNAMED: &str = "gateway/unnamed/";

/// The session a client names. A client may ask for something else beside its conversation
/// under the same name (a title, a summary), with another prompt: that is not this session.
fn named(name: &str, told: &Transcript) -> String {
    let prompt = hex(&Sha256::digest(told.system.as_bytes())[..8]);
    format!("gateway/named/{prompt}/{name}")
}

/// The calls whose results a request brings: those after the model's last words.
fn results(messages: &[Json]) -> impl Iterator<Item = &str> {
    let results = messages[latest(messages)..].iter();
    let results = results.filter(|message| message["role"] == "toolResult");
    results.filter_map(|message| message["toolCallId"].as_str())
}

/// The calls of the model's last words: a person may go on without waiting for a tool.
fn calls(messages: &[Json]) -> impl Iterator<Item = &str> {
    let last = messages[..latest(messages)].last();
    let blocks = last.and_then(|message| message["content"].as_array());
    let calls = blocks.into_iter().flatten();
    let calls = calls.filter(|block| block["type"] == "toolCall");
    calls.filter_map(|block| block["id"].as_str())
}

/// The history a request goes on with, up to the model's last words.
fn ending(told: &Transcript) -> Option<String> {
    let (answer, earlier) = told.messages[..latest(&told.messages)].split_last()?;
    let text = message::text(&answer["content"], Pictures::Omitted);
    Some(history(&before(told, earlier), &text))
}

/// What an answer follows.
fn before(told: &Transcript, messages: &[Json]) -> String {
    let fingerprint = Fingerprint::of(&told.system, messages);
    hex(&Sha256::digest(
        serde_json::to_string(&fingerprint).unwrap_or_default(),
    ))
}

/// A history and the answer to it in one short text. Clients trim.
fn history(before: &str, answer: &str) -> String {
    hex(&Sha256::digest(format!("{before}\n{}", answer.trim())))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A map that forgets what it was told first.
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
    async fn s47_a_session_without_a_name_goes_with_its_time() {
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
    async fn s47_the_time_of_a_session_begins_when_its_turn_is_over() {
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
    async fn s47_sessions_of_which_there_are_too_many_are_forgotten() {
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
    async fn a_turn_whose_client_has_left_takes_nobodys_place() {
        let desk = Desk::new(&|_: &str| None, None, &Policy::default());
        let [gone, stays] = [desk.seat(&asked(None)), desk.seat(&asked(None))];
        desk.waits(&gone, "gone", Vec::new()).await;
        desk.left(&gone, "gone").await;
        assert_eq!(desk.parked.take("gone"), None);
        let evicts = desk.parked.add("stays".into(), stays.name, 1);
        assert_eq!(evicts, None, "there is room");
    }
}
