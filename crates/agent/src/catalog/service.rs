//! Returns model lists: from the cache, else from Cursor, else the bundled one.
//!
//! Unless a refresh was requested, a caller waits at most [`WAIT_BUDGET`] and then receives a
//! stale or the bundled list. The fetch continues in the background; its result is used for host
//! models and turns as soon as it arrives, and is cached for the next start.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::time::Instant;

use super::cache::{self, AccountFingerprint, CachePolicy};
use super::client::{CatalogClient, DEADLINE, DiscoverError};
use super::last_account;
use super::model_list::{FallbackReason, FetchedModels, ListSource, ModelList};
use cursor_client::endpoint::{EndpointOptions, Endpoints};

/// How long a process waits in total for lists whose refresh was not requested.
pub const WAIT_BUDGET: Duration = Duration::from_secs(2);
/// A cached list that is older is refreshed when it is listed.
const REFRESH_AGE: Duration = Duration::from_secs(600);
/// Minimum time between automatic fetches after a failed one.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// How fresh a list has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchMode {
    /// Returns a cached list, and refreshes a stale one in the background. Without a cached
    /// list it is fetched, within [`WAIT_BUDGET`].
    CacheFirst,
    /// Like `CacheFirst`, but a stale list is returned only if Cursor takes longer than this.
    WaitForRefresh(Duration),
    /// Always fetches.
    Live,
}

type FetchResult = Result<FetchedModels, DiscoverError>;
type SharedFetch = Shared<BoxFuture<'static, FetchResult>>;

/// Returns the model lists of accounts. Concurrent callers of one account share one fetch.
#[derive(Debug)]
pub struct ModelCatalog {
    policy: CachePolicy,
    accounts: Mutex<BTreeMap<AccountFingerprint, AccountState>>,
    /// How much of [`WAIT_BUDGET`] is spent.
    waited: Mutex<Duration>,
}

/// The state of one account.
#[derive(Debug, Default)]
struct AccountState {
    /// The latest fetch, until its result has been recorded.
    fetch: Option<SharedFetch>,
    /// The list that was last returned, or a newer one that has arrived since.
    served: Option<ServedList>,
}

#[derive(Debug, Clone)]
struct ServedList {
    list: ModelList,
    /// When Cursor or the cache was last asked for it.
    checked_at: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ModelCatalog {
    /// Creates a catalog with this cache policy.
    pub fn new(policy: CachePolicy) -> Self {
        Self {
            policy,
            accounts: Mutex::default(),
            waited: Mutex::default(),
        }
    }

    /// Returns the list to use without a key: that of the account last used with the configured
    /// server, because a host may send its key later.
    pub fn without_key(&self, endpoints: &EndpointOptions, problem: &str) -> ModelList {
        let reason = FallbackReason::MissingApiKey;
        let host = Endpoints::resolve(endpoints).ok();
        let account =
            host.and_then(|host| last_account::load(&self.policy, &host.rest.to_string()));
        let cached = account
            .and_then(|account| cache::load(&self.policy, &account, SystemTime::now()).ok()?);
        match cached {
            Some(cached) => {
                let shown = "the list of the account used last";
                ModelList::stale(cached.fetched, problem, reason, shown)
            }
            None => ModelList::bundled(reason, problem),
        }
    }

    /// Returns a list for an account. A cached list is refreshed in the background unless it is
    /// new, so that a start or a reload brings new models. Must be called inside a Tokio runtime.
    pub async fn list(&self, client: &CatalogClient, mode: FetchMode) -> ModelList {
        let budget_left = WAIT_BUDGET.saturating_sub(*lock(&self.waited));
        let (list, waited) = self.load(client, mode, budget_left).await;
        if mode != FetchMode::Live {
            *lock(&self.waited) += waited;
        }
        if list.source == ListSource::Cache && is_older_than(&list, REFRESH_AGE) {
            // It runs by itself; its result is for the next call.
            drop(self.join_or_start_fetch(client, &client.fingerprint()));
        }
        list
    }

    /// Returns the newest list, for turns. It is fetched if there is none or it is stale, at most
    /// once per [`RETRY_INTERVAL`]. Time spent at startup does not count, because a turn needs
    /// the list.
    pub async fn current(&self, client: &CatalogClient) -> ModelList {
        match self.latest_served(&client.fingerprint()) {
            Some(served)
                if served.checked_at.elapsed() < RETRY_INTERVAL || !self.is_stale(&served.list) =>
            {
                served.list
            }
            _ => {
                self.load(client, FetchMode::CacheFirst, WAIT_BUDGET)
                    .await
                    .0
            }
        }
    }

    /// Returns the list and how long it was waited for.
    async fn load(
        &self,
        client: &CatalogClient,
        mode: FetchMode,
        budget_left: Duration,
    ) -> (ModelList, Duration) {
        let account = client.fingerprint();
        let previous = self.latest_served(&account);
        let mut warnings = Vec::new();
        let cached = cache::load(&self.policy, &account, SystemTime::now());
        let cached = cached.unwrap_or_else(|error| {
            warnings.push(error.to_string());
            None
        });
        if mode != FetchMode::Live {
            if let Some(cached) = cached.as_ref().filter(|cached| cached.is_fresh) {
                let list =
                    ModelList::from_fetch(cached.fetched.clone(), ListSource::Cache, warnings);
                return (self.record_served(client, list), Duration::ZERO);
            }
            if let (None, Some(served)) = (&cached, &previous)
                && served.list.source == ListSource::Bundled
                && served.checked_at.elapsed() < RETRY_INTERVAL
            {
                return (served.list.clone(), Duration::ZERO);
            }
        }
        let may_show_stale = cached.is_some() && self.policy.may_show_stale();
        let max_wait = match mode {
            // Twice the time limit of a request, because a token may be needed first.
            FetchMode::Live => DEADLINE * 2,
            FetchMode::CacheFirst if may_show_stale => Duration::ZERO,
            FetchMode::WaitForRefresh(most) if may_show_stale => {
                budget_left.saturating_sub(WAIT_BUDGET.saturating_sub(most))
            }
            FetchMode::CacheFirst | FetchMode::WaitForRefresh(_) => budget_left,
        };
        let started = Instant::now();
        let result = self.fetch_within(client, &account, max_wait).await;
        let waited = started.elapsed();
        let remembered = previous
            .as_ref()
            .and_then(|served| served.list.fetched_models());
        let old = cached.map(|cached| cached.fetched);
        let old = [old, remembered].into_iter().flatten();
        let old = old.max_by_key(|fetched| fetched.at);
        let list = match (result, old) {
            (Ok(fetched), _) => ModelList::from_fetch(fetched, ListSource::Live, warnings),
            // A stale list now is better than a fresh one later.
            (Err(DiscoverError::Pending), Some(old)) if may_show_stale => {
                let failed = |served: &ServedList| {
                    served.list.reason == Some(FallbackReason::CachedAfterError)
                };
                match previous.filter(failed) {
                    Some(served) => served.list,
                    None => ModelList::from_fetch(old, ListSource::Cache, warnings),
                }
            }
            (Err(error), old) => {
                let mut list = fallback(old, &error);
                list.warnings.splice(0..0, warnings);
                list
            }
        };
        (self.record_served(client, list), waited)
    }

    /// Fetches the list and waits at most `max_wait` for the result.
    async fn fetch_within(
        &self,
        client: &CatalogClient,
        account: &AccountFingerprint,
        max_wait: Duration,
    ) -> FetchResult {
        let fetch = self.join_or_start_fetch(client, account);
        if max_wait.is_zero() {
            return Err(DiscoverError::Pending);
        }
        let Ok(result) = tokio::time::timeout(max_wait, fetch).await else {
            return Err(DiscoverError::Timeout(max_wait));
        };
        // The result is returned to the caller, so `latest_served` must not record it again.
        if let Some(state) = lock(&self.accounts).get_mut(account) {
            state.fetch = state.fetch.take().filter(|fetch| fetch.peek().is_none());
        }
        result
    }

    /// Returns the list that was last served, updated with a fetch that has finished since: a
    /// result replaces it, and an error is added to it as a warning.
    fn latest_served(&self, account: &AccountFingerprint) -> Option<ServedList> {
        let mut accounts = lock(&self.accounts);
        let state = accounts.get_mut(account)?;
        let result = state.fetch.as_ref().and_then(|fetch| fetch.peek());
        if let Some(result) = result.cloned() {
            state.fetch = None;
            let previous = state.served.as_ref();
            let list = match result {
                Ok(fetched) => Some(ModelList::from_fetch(fetched, ListSource::Live, Vec::new())),
                // A list that is fresh enough needs no excuse.
                Err(error) => previous
                    .filter(|served| served.list.reason.is_none() && self.is_stale(&served.list))
                    .map(|served| fallback(served.list.fetched_models(), &error)),
            };
            if let Some(list) = list {
                let checked_at = previous.map_or_else(Instant::now, |served| served.checked_at);
                state.served = Some(ServedList { list, checked_at });
            }
        }
        state.served.clone()
    }

    /// Records the list that is returned and, unless it is a fallback, the account it belongs to.
    fn record_served(&self, client: &CatalogClient, list: ModelList) -> ModelList {
        let account = client.fingerprint();
        if list.reason.is_none() {
            last_account::save(&self.policy, &client.host(), &account);
        }
        let mut accounts = lock(&self.accounts);
        let state = accounts.entry(account).or_default();
        state.served = Some(ServedList {
            list: list.clone(),
            checked_at: Instant::now(),
        });
        list
    }

    fn is_stale(&self, list: &ModelList) -> bool {
        is_older_than(list, self.policy.max_age())
    }

    /// Returns the running fetch of this account, or starts one.
    fn join_or_start_fetch(
        &self,
        client: &CatalogClient,
        account: &AccountFingerprint,
    ) -> SharedFetch {
        let mut accounts = lock(&self.accounts);
        let state = accounts.entry(account.clone()).or_default();
        let running = state.fetch.as_ref().filter(|fetch| fetch.peek().is_none());
        if let Some(fetch) = running {
            return fetch.clone();
        }
        let fetch = fetch_and_cache(client.clone(), self.policy.clone(), account.clone());
        let fetch = fetch.boxed().shared();
        // It continues after the caller stops waiting, so that the next start finds it cached.
        tokio::spawn(fetch.clone());
        state.fetch = Some(fetch.clone());
        fetch
    }
}

/// Returns whether a list was fetched before that time, or never.
fn is_older_than(list: &ModelList, age: Duration) -> bool {
    let is_younger = |at| SystemTime::now().duration_since(at).unwrap_or_default() < age;
    !list.fetched_at.is_some_and(is_younger)
}

async fn fetch_and_cache(
    client: CatalogClient,
    policy: CachePolicy,
    account: AccountFingerprint,
) -> FetchResult {
    let models = Arc::new(client.fetch_models().await?);
    let at = SystemTime::now();
    if let Err(error) = cache::save(&policy, &account, &models, at) {
        tracing::warn!("cannot cache the model list: {error}");
    }
    Ok(FetchedModels { models, at })
}

/// Returns the stale list, else the bundled one, with the reason.
fn fallback(old: Option<FetchedModels>, error: &DiscoverError) -> ModelList {
    let problem = error.to_string();
    match old {
        Some(old) => ModelList::stale(
            old,
            &problem,
            FallbackReason::CachedAfterError,
            "an older list",
        ),
        None => {
            let reason = match error {
                DiscoverError::Empty => FallbackReason::EmptyModelList,
                _ => FallbackReason::DiscoveryFailed,
            };
            ModelList::bundled(reason, &problem)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CatalogCredential;
    use cursor_client::account::{Account, ApiKey, HttpExchange};
    use cursor_client::headers::Identity;
    use cursor_client::http_clients::{Http, TrustRoots};

    fn client(url: &str, key: &str) -> CatalogClient {
        let http = Arc::new(Http::new(TrustRoots::default()));
        let endpoints = Endpoints::resolve(&EndpointOptions {
            backend: Some(url.to_owned()),
            ..EndpointOptions::default()
        })
        .unwrap();
        let key = ApiKey::parse(key).unwrap();
        let account = Account::start(HttpExchange {
            http: Arc::clone(&http),
            base: endpoints.backend.clone(),
            key: key.clone(),
        });
        CatalogClient {
            http,
            endpoints,
            identity: Identity::default(),
            credential: CatalogCredential::Key { key, account },
        }
    }

    /// The server accepts the connection and never responds.
    #[tokio::test(start_paused = true)]
    async fn startup_waits_at_most_two_seconds() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let one = client(&url, "crsr_one");
        let catalog = ModelCatalog::new(CachePolicy::Off);
        let previous = Instant::now();
        let list = catalog.list(&one, FetchMode::CacheFirst).await;
        assert_eq!(previous.elapsed().as_secs(), WAIT_BUDGET.as_secs());
        assert_eq!(list.source, ListSource::Bundled);
        assert_eq!(list.reason, Some(FallbackReason::DiscoveryFailed));
        insta::assert_snapshot!(list.warnings.join("\n"), @"Cursor's model list is not available (no answer within 2 s); showing the bundled list");
        // The wait for another key counts toward the same budget.
        let list = catalog
            .list(&client(&url, "crsr_two"), FetchMode::CacheFirst)
            .await;
        assert_eq!(previous.elapsed().as_secs(), WAIT_BUDGET.as_secs());
        insta::assert_snapshot!(list.warnings.join("\n"), @"Cursor's model list is not available (no answer yet); showing the bundled list");
        // A turn waits again, unless its account was fetched a moment ago.
        catalog.current(&one).await;
        assert_eq!(previous.elapsed().as_secs(), WAIT_BUDGET.as_secs());
        catalog.current(&client(&url, "crsr_three")).await;
        assert_eq!(previous.elapsed().as_secs(), 2 * WAIT_BUDGET.as_secs());
        // The fetch still runs: a live request waits for the same call.
        let list = catalog.list(&one, FetchMode::Live).await;
        assert_eq!(previous.elapsed().as_secs(), DEADLINE.as_secs());
        assert_eq!(list.source, ListSource::Bundled);
    }
}
