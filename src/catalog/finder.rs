//! Finds lists: the cache first, then Cursor, then what we have.
//!
//! Nobody waits long for a list they did not ask to refresh: after [`BUDGET`] there is an
//! older or the bundled one. The question goes on behind, and its answer counts as soon as it
//! is there: for the rows, for turns, and in the cache for the next start.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::time::Instant;

use super::cache::{self, Age, Fingerprint, Policy};
use super::discover::{Access, DEADLINE, DiscoverError};
use super::last;
use super::listing::{Answered, Listing, Reason, Source};
use crate::wire::endpoint::Endpoints;

/// How long a process waits for lists nobody asked to refresh, all of them together.
pub const BUDGET: Duration = Duration::from_secs(2);
/// How soon Cursor is asked again, unasked, after there was no answer.
const AGAIN: Duration = Duration::from_secs(60);

/// How new a list has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// What is cached will do, and an old list is renewed behind; without one Cursor is
    /// asked, within [`BUDGET`].
    CacheFirst,
    /// The same, but an old list is shown only if Cursor takes longer than this.
    Renewed(Duration),
    /// Cursor's answer.
    Live,
}

type Answer = Result<Answered, DiscoverError>;
type Asking = Shared<BoxFuture<'static, Answer>>;

/// Finds lists. One question at a time is under way for an account, however many ask.
#[derive(Debug)]
pub struct Finder {
    policy: Policy,
    accounts: Mutex<BTreeMap<Fingerprint, Known>>,
    /// How much of [`BUDGET`] is spent.
    waited: Mutex<Duration>,
}

/// What is known of an account.
#[derive(Debug, Default)]
struct Known {
    /// The last question, until its answer is taken in.
    asking: Option<Asking>,
    /// The last list that was given, or what came in since.
    given: Option<Given>,
}

#[derive(Debug, Clone)]
struct Given {
    listing: Listing,
    /// When Cursor was last asked for it, or its cache.
    since: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Finder {
    /// A finder that caches as `policy` says.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            accounts: Mutex::default(),
            waited: Mutex::default(),
        }
    }

    /// The list when there is no key: that of the account which was last used with the server
    /// in force, as its key may only be known later.
    pub fn without_key(
        &self,
        env: &impl Fn(&str) -> Option<String>,
        home: Option<&Path>,
        problem: &str,
    ) -> Listing {
        let reason = Reason::MissingApiKey;
        let host = Endpoints::resolve(env, home).ok();
        let account = host.and_then(|host| last::recall(&self.policy, &host.rest.to_string()));
        let cached = account
            .and_then(|account| cache::load(&self.policy, &account, SystemTime::now()).ok()?);
        match cached {
            Some(cached) => {
                let shown = "that of the account used last";
                Listing::older(cached.answered, problem, reason, shown)
            }
            None => Listing::bundled(reason, problem),
        }
    }

    /// A list for an account. Must be called inside a Tokio runtime.
    pub async fn list(&self, access: &Access, wanted: Wanted) -> Listing {
        let left = BUDGET.saturating_sub(*lock(&self.waited));
        let (listing, waited) = self.find(access, wanted, left).await;
        if wanted != Wanted::Live {
            *lock(&self.waited) += waited;
        }
        listing
    }

    /// The list turns go by: the newest there is. Cursor is asked for it if there is none or
    /// it is too old, at most once in a while. A turn needs it, so what a start spent does not
    /// count.
    pub async fn current(&self, access: &Access) -> Listing {
        match self.taken_in(&access.fingerprint()) {
            Some(given) if given.since.elapsed() < AGAIN || !self.is_old(&given.listing) => {
                given.listing
            }
            _ => self.find(access, Wanted::CacheFirst, BUDGET).await.0,
        }
    }

    /// The list, and how long it was waited for.
    async fn find(&self, access: &Access, wanted: Wanted, left: Duration) -> (Listing, Duration) {
        let account = access.fingerprint();
        let before = self.taken_in(&account);
        let mut warnings = Vec::new();
        let cached = cache::load(&self.policy, &account, SystemTime::now());
        let cached = cached.unwrap_or_else(|error| {
            warnings.push(error.to_string());
            None
        });
        if wanted != Wanted::Live {
            if let Some(cached) = cached.as_ref().filter(|cached| cached.age == Age::Fresh) {
                let listing = Listing::of(cached.answered.clone(), Source::Cache, warnings);
                return (self.give(access, listing), Duration::ZERO);
            }
            if let (None, Some(given)) = (&cached, &before)
                && given.listing.source == Source::Bundled
                && given.since.elapsed() < AGAIN
            {
                return (given.listing.clone(), Duration::ZERO);
            }
        }
        let shows_old = cached.is_some() && self.policy.shows_old();
        let patience = match wanted {
            // The call has its own deadline; this one is for the token before it.
            Wanted::Live => DEADLINE * 2,
            Wanted::CacheFirst if shows_old => Duration::ZERO,
            Wanted::Renewed(most) if shows_old => left.saturating_sub(BUDGET.saturating_sub(most)),
            Wanted::CacheFirst | Wanted::Renewed(_) => left,
        };
        let asked = Instant::now();
        let answer = self.answer(access, &account, patience).await;
        let waited = asked.elapsed();
        let remembered = before.as_ref().and_then(|given| given.listing.answered());
        let old = cached.map(|cached| cached.answered);
        let old = [old, remembered].into_iter().flatten();
        let old = old.max_by_key(|answered| answered.at);
        let listing = match (answer, old) {
            (Ok(answered), _) => Listing::of(answered, Source::Live, warnings),
            // An old list now is better than a new one later.
            (Err(DiscoverError::Pending), Some(old)) if shows_old => {
                let failed = |given: &Given| given.listing.reason == Some(Reason::CachedAfterError);
                match before.filter(failed) {
                    Some(given) => given.listing,
                    None => Listing::of(old, Source::Cache, warnings),
                }
            }
            (Err(error), old) => {
                let mut listing = fallback(old, &error);
                listing.warnings.splice(0..0, warnings);
                listing
            }
        };
        (self.give(access, listing), waited)
    }

    /// Cursor's answer, if it comes within the time.
    async fn answer(&self, access: &Access, account: &Fingerprint, patience: Duration) -> Answer {
        let asking = self.ask(access, account);
        if patience.is_zero() {
            return Err(DiscoverError::Pending);
        }
        let Ok(answer) = tokio::time::timeout(patience, asking).await else {
            return Err(DiscoverError::Slow(patience));
        };
        // What was waited for is not to be taken in once more.
        if let Some(known) = lock(&self.accounts).get_mut(account) {
            known.asking = known.asking.take().filter(|asking| asking.peek().is_none());
        }
        answer
    }

    /// What was given last, with what has come in since: an answer takes its place, a failure
    /// is told with it.
    fn taken_in(&self, account: &Fingerprint) -> Option<Given> {
        let mut accounts = lock(&self.accounts);
        let known = accounts.get_mut(account)?;
        let answer = known.asking.as_ref().and_then(|asking| asking.peek());
        if let Some(answer) = answer.cloned() {
            known.asking = None;
            let before = known.given.as_ref();
            let listing = match answer {
                Ok(answered) => Some(Listing::of(answered, Source::Live, Vec::new())),
                Err(error) => before
                    .filter(|given| given.listing.reason.is_none())
                    .map(|given| fallback(given.listing.answered(), &error)),
            };
            if let Some(listing) = listing {
                let since = before.map_or_else(Instant::now, |given| given.since);
                known.given = Some(Given { listing, since });
            }
        }
        known.given.clone()
    }

    /// Keeps a list that is given, and whose it is.
    fn give(&self, access: &Access, listing: Listing) -> Listing {
        let account = access.fingerprint();
        if listing.reason.is_none() {
            last::remember(&self.policy, &access.host(), &account);
        }
        let mut accounts = lock(&self.accounts);
        let known = accounts.entry(account).or_default();
        known.given = Some(Given {
            listing: listing.clone(),
            since: Instant::now(),
        });
        listing
    }

    fn is_old(&self, listing: &Listing) -> bool {
        let age = |at: SystemTime| SystemTime::now().duration_since(at).unwrap_or_default();
        let is_fresh = |at| age(at) < self.policy.good_for();
        !listing.fetched.is_some_and(is_fresh)
    }

    /// The question that is under way for this account, or a new one.
    fn ask(&self, access: &Access, account: &Fingerprint) -> Asking {
        let mut accounts = lock(&self.accounts);
        let known = accounts.entry(account.clone()).or_default();
        let under_way = known
            .asking
            .as_ref()
            .filter(|asking| asking.peek().is_none());
        if let Some(asking) = under_way {
            return asking.clone();
        }
        let question = discover_and_keep(access.clone(), self.policy.clone(), account.clone());
        let question = question.boxed().shared();
        // It goes on when nobody waits any more: the next start finds the answer.
        tokio::spawn(question.clone());
        known.asking = Some(question.clone());
        question
    }
}

async fn discover_and_keep(access: Access, policy: Policy, account: Fingerprint) -> Answer {
    let items = Arc::new(access.discover().await?);
    let at = SystemTime::now();
    if let Err(error) = cache::save(&policy, &account, &items, at) {
        tracing::warn!("the list of models is not cached: {error}");
    }
    Ok(Answered { items, at })
}

/// The old list, else the bundled one, and why.
fn fallback(old: Option<Answered>, error: &DiscoverError) -> Listing {
    let problem = error.to_string();
    match old {
        Some(old) => Listing::older(old, &problem, Reason::CachedAfterError, "an older one"),
        None => {
            let reason = match error {
                DiscoverError::Empty => Reason::EmptyModelList,
                _ => Reason::DiscoveryFailed,
            };
            Listing::bundled(reason, &problem)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Account, ApiKey, HttpExchange};
    use crate::catalog::Credential;
    use crate::wire::headers::Identity;
    use crate::wire::http::{Http, Trust};

    fn access(url: &str, key: &str) -> Access {
        let env = |name: &str| (name == "CURSOR_BACKEND_URL").then(|| url.to_owned());
        let http = Arc::new(Http::new(Trust::from_env(env)));
        let endpoints = Endpoints::resolve(env, None).unwrap();
        let key = ApiKey::parse(key).unwrap();
        let account = Account::start(HttpExchange {
            http: Arc::clone(&http),
            base: endpoints.backend.clone(),
            key: key.clone(),
        });
        Access {
            http,
            endpoints,
            identity: Identity::default(),
            credential: Credential::Key { key, account },
        }
    }

    /// Somebody takes the call and never answers.
    #[tokio::test(start_paused = true)]
    async fn a_start_waits_two_seconds_and_no_more() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let one = access(&url, "crsr_one");
        let finder = Finder::new(Policy::Off);
        let before = Instant::now();
        let listing = finder.list(&one, Wanted::CacheFirst).await;
        assert_eq!(before.elapsed().as_secs(), BUDGET.as_secs());
        assert_eq!(listing.source, Source::Bundled);
        assert_eq!(listing.reason, Some(Reason::DiscoveryFailed));
        insta::assert_snapshot!(listing.warnings.join("\n"), @"Cursor's list of models is not available (no answer within 2 s); showing the bundled one");
        // Another key is the same start.
        let listing = finder
            .list(&access(&url, "crsr_two"), Wanted::CacheFirst)
            .await;
        assert_eq!(before.elapsed().as_secs(), BUDGET.as_secs());
        insta::assert_snapshot!(listing.warnings.join("\n"), @"Cursor's list of models is not available (no answer yet); showing the bundled one");
        // A turn cannot do without, if nobody asked for its key just now.
        finder.current(&one).await;
        assert_eq!(before.elapsed().as_secs(), BUDGET.as_secs());
        finder.current(&access(&url, "crsr_three")).await;
        assert_eq!(before.elapsed().as_secs(), 2 * BUDGET.as_secs());
        // The question goes on: who asks for Cursor's own answer waits for the same call.
        let listing = finder.list(&one, Wanted::Live).await;
        assert_eq!(before.elapsed().as_secs(), DEADLINE.as_secs());
        assert_eq!(listing.source, Source::Bundled);
    }
}
