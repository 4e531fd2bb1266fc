//! Which session a request belongs to.
//!
//! By the calls whose results it brings, else by the session the client names, else by the calls
//! it goes on without, else by a history that ends with an answer given here and to nobody else.
//! Never by how a chat begins: two clients that say the same first words have nothing to do with
//! each other.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
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
    /// Sessions without a name, and when they were last used.
    unnamed: HashMap<String, Instant>,
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
            known.unnamed.insert(name.clone(), Instant::now());
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
        Seat {
            session,
            name,
            keep,
            found_by,
            answers: before(told, &told.messages),
        }
    }

    fn forget_unused(&self, known: &mut Known) {
        known.unnamed.retain(|name, used| {
            let stays = used.elapsed() < self.unused;
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

    /// A turn came to nothing: the client may ask for it again.
    pub(super) fn failed(&self, seat: &Seat) {
        let Some(history) = &seat.found_by else {
            return;
        };
        let mut known = self.known();
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
        let (unnamed, named) = (desk.seat(&asked(None)), desk.seat(&asked(Some("me"))));
        let there = |seat: &Seat| desk.sessions.find(&seat.name).is_some();
        tokio::time::advance(UNUSED - Duration::from_secs(1)).await;
        let second = desk.seat(&asked(None));
        assert!(there(&unnamed) && second.name != unnamed.name);
        tokio::time::advance(Duration::from_secs(2)).await;
        desk.seat(&asked(None));
        assert!(!there(&unnamed), "its time is up");
        assert!(there(&second) && there(&named));
    }
}
