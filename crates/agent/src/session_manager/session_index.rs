//! Which session a transcript belongs to.
//!
//! It is found by the calls whose results the transcript contains, else by the client's session id,
//! else by the calls that it leaves unanswered, else by a history that ends with an answer of
//! exactly one session here. Sessions are never matched by their first message, because unrelated
//! clients may send the same one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use crate::conversation::fingerprint::Fingerprint;
use crate::conversation::send_plan::latest_start;
use crate::conversation::transcript::Transcript;
use crate::hex::hex;
use crate::message::Message;

/// How many calls and answers are remembered.
const MAX_REMEMBERED: usize = 8192;
/// The prefix of the ids that are made up for clients that send none.
const UNNAMED: &str = "unnamed/";

/// What identifies the sessions of clients without a session id.
#[derive(Default)]
pub(super) struct SessionIndex {
    /// Calls that were sent to clients, and their sessions.
    calls: BoundedMap<String>,
    /// Histories that were answered, and by which session.
    histories: BoundedMap<HistoryOwner>,
    /// Sessions without a client's id.
    unnamed: HashMap<String, UnnamedSession>,
}

/// Which session answered a history.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HistoryOwner {
    /// A session that has not continued since.
    Latest(String),
    /// A session that has continued since.
    Continued(String),
    /// Several sessions, so that the history does not identify one.
    Ambiguous,
}

struct UnnamedSession {
    last_used: Instant,
    /// Also held by its active turns.
    turns: Arc<()>,
}

impl UnnamedSession {
    fn is_active(&self) -> bool {
        Arc::strong_count(&self.turns) > 1
    }
}

/// The session of a transcript.
pub(super) struct SessionMatch {
    pub(super) session_id: String,
    /// The history by which the session was found.
    found_by: Option<String>,
    /// The history that the turn answers.
    answers: String,
    /// Marks the turn of an unnamed session as active.
    active: Option<Arc<()>>,
}

impl SessionMatch {
    /// Returns whether the session has no client's id. It is then kept in memory only.
    pub(super) fn is_unnamed(&self) -> bool {
        self.session_id.starts_with(UNNAMED)
    }
}

impl SessionIndex {
    /// Returns the session of a transcript. `id` is the client's, if it sends one.
    pub(super) fn find(&mut self, transcript: &Transcript, id: Option<&str>) -> SessionMatch {
        let mut found_by = None;
        let session_of = |call: &str| self.calls.get(call).cloned();
        let by_results = results(&transcript.messages).find_map(session_of);
        let by_id = || id.map(str::to_owned);
        let by_calls = || calls(&transcript.messages).find_map(session_of);
        let found = by_results.or_else(by_id).or_else(by_calls);
        let found = found.or_else(|| {
            let history = continued_history(transcript)?;
            let Some(HistoryOwner::Latest(id)) = self.histories.get(&history).cloned() else {
                return None;
            };
            let owner = HistoryOwner::Continued(id.clone());
            self.histories.set(&history, owner);
            found_by = Some(history);
            Some(id)
        });
        SessionMatch {
            session_id: found.unwrap_or_else(unnamed_id),
            found_by,
            answers: digest_before(transcript, &transcript.messages),
            active: None,
        }
    }

    /// Marks the turn of an unnamed session as active.
    pub(super) fn begin_turn(&mut self, found: &mut SessionMatch) {
        if found.is_unnamed() {
            let session = self.unnamed.entry(found.session_id.clone());
            let session = session.or_insert_with(|| UnnamedSession {
                last_used: Instant::now(),
                turns: Arc::default(),
            });
            session.last_used = Instant::now();
            found.active = Some(Arc::clone(&session.turns));
        }
    }

    /// Removes and returns the unnamed sessions that were unused for so long.
    pub(super) fn take_unused(&mut self, idle: Duration) -> Vec<String> {
        let is_unused =
            |session: &UnnamedSession| !session.is_active() && session.last_used.elapsed() >= idle;
        let unused = self
            .unnamed
            .extract_if(|_, session| is_unused(session))
            .map(|(id, _)| id);
        unused.collect()
    }

    /// Forgets unnamed sessions that are no longer open.
    pub(super) fn retain_open(&mut self, is_open: impl Fn(&str) -> bool) {
        self.unnamed.retain(|id, _| is_open(id));
    }

    #[cfg(test)]
    pub(super) fn unnamed_count(&self) -> usize {
        self.unnamed.len()
    }

    /// Records a complete turn: a transcript that continues its answer belongs to its session.
    pub(super) fn record_answer(&mut self, found: &SessionMatch, answer: &str) {
        if !found.is_unnamed() {
            return;
        }
        self.mark_used(&found.session_id);
        let history = history_digest(&found.answers, answer);
        let owner = match self.histories.get(&history) {
            None => HistoryOwner::Latest(found.session_id.clone()),
            Some(_) => HistoryOwner::Ambiguous,
        };
        self.histories.set(&history, owner);
    }

    /// Records calls: a transcript with their results belongs to the session.
    pub(super) fn record_calls(&mut self, found: &SessionMatch, calls: &[String]) {
        self.mark_used(&found.session_id);
        for call in calls {
            self.calls.set(call, found.session_id.clone());
        }
    }

    /// Records a failed turn: the client may repeat the request.
    pub(super) fn record_failure(&mut self, found: &SessionMatch) {
        self.mark_used(&found.session_id);
        let Some(history) = &found.found_by else {
            return;
        };
        let id = &found.session_id;
        if self.histories.get(history) == Some(&HistoryOwner::Continued(id.clone())) {
            self.histories
                .set(history, HistoryOwner::Latest(id.clone()));
        }
    }

    fn mark_used(&mut self, id: &str) {
        if let Some(session) = self.unnamed.get_mut(id) {
            session.last_used = Instant::now();
        }
    }
}

/// Returns a new id for a client that sends none; short, because ids of calls may contain it.
fn unnamed_id() -> String {
    let id = Uuid::new_v4().simple().to_string();
    format!("{UNNAMED}{}", &id[..16])
}

/// Returns the ids of the calls whose results follow the last assistant message.
fn results(messages: &[Message]) -> impl Iterator<Item = &str> {
    let results = messages[latest_start(messages)..].iter();
    let results = results.filter_map(Message::as_tool_result);
    results.map(|result| result.call_id.as_str())
}

/// Returns the ids of the calls in the last assistant message: a user may continue without waiting
/// for a tool.
fn calls(messages: &[Message]) -> impl Iterator<Item = &str> {
    let last = messages[..latest_start(messages)].last();
    last.into_iter().flat_map(Message::call_ids)
}

/// Returns the digest of the history that a transcript continues, up to the last assistant message.
fn continued_history(transcript: &Transcript) -> Option<String> {
    let (answer, earlier) =
        transcript.messages[..latest_start(&transcript.messages)].split_last()?;
    let texts: Vec<&str> = answer.as_answer()?.texts().collect();
    Some(history_digest(
        &digest_before(transcript, earlier),
        &texts.join("\n"),
    ))
}

/// Returns the digest of the messages that an answer follows.
fn digest_before(transcript: &Transcript, messages: &[Message]) -> String {
    let fingerprint = Fingerprint::of(&transcript.system, messages);
    digest(&serde_json::to_string(&fingerprint).unwrap_or_default())
}

/// Returns the digest of a history and its answer. White space around the answer is ignored,
/// because clients trim it.
fn history_digest(before: &str, answer: &str) -> String {
    digest(&format!("{before}\n{}", answer.trim()))
}

fn digest(text: &str) -> String {
    hex(Sha256::digest(text))
}

/// A map that drops its oldest entry when it is full.
struct BoundedMap<T> {
    map: HashMap<String, T>,
    order: VecDeque<String>,
}

impl<T> Default for BoundedMap<T> {
    fn default() -> Self {
        Self {
            map: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<T> BoundedMap<T> {
    fn get(&self, key: &str) -> Option<&T> {
        self.map.get(key)
    }

    fn set(&mut self, key: &str, value: T) {
        if self.map.insert(key.to_owned(), value).is_some() {
            return;
        }
        self.order.push_back(key.to_owned());
        if self.order.len() > MAX_REMEMBERED
            && let Some(first) = self.order.pop_front()
        {
            self.map.remove(&first);
        }
    }
}
