//! Where a list of models comes from: the cache first, then Cursor, then what we have.
//!
//! Nobody waits long for a list they did not ask to refresh: after [`BUDGET`] there is an
//! older or the bundled one, and the question goes on behind it to fill the cache.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};

use super::cache::{self, Age, Fingerprint, Policy};
use super::discover::{Access, DEADLINE, DiscoverError};
use super::item::Item;
use super::snapshot::bundled;

/// How long a start waits for Cursor when there is no fresh list.
pub const BUDGET: Duration = Duration::from_secs(2);

/// A list of models and where it comes from.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The models.
    pub items: Arc<Vec<Item>>,
    /// Where they come from.
    pub source: Source,
    /// Why they do not come from Cursor or a fresh cache.
    pub reason: Option<Reason>,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// Where a list comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From Cursor, now.
    Live,
    /// From Cursor, earlier.
    Cache,
    /// From us.
    Bundled,
}

/// Why a list is not as new as it could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Nobody to ask as.
    MissingApiKey,
    /// Cursor could not be asked.
    DiscoveryFailed,
    /// Cursor knows no models.
    EmptyModelList,
    /// Cursor could not be asked; there is an old answer.
    CachedAfterError,
}

impl Reason {
    /// The word for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::MissingApiKey => "missing-api-key",
            Self::DiscoveryFailed => "discovery-failed",
            Self::EmptyModelList => "empty-model-list",
            Self::CachedAfterError => "cached-after-error",
        }
    }
}

/// How new a list has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// What is cached will do, and an old list is renewed behind; without one Cursor is
    /// asked, within [`BUDGET`].
    CacheFirst,
    /// Whatever is there; Cursor is not asked.
    CacheOnly,
    /// Cursor's answer.
    Live,
}

type Answer = Result<Arc<Vec<Item>>, DiscoverError>;
type Asking = Shared<BoxFuture<'static, Answer>>;

/// Finds lists. One question at a time is under way for an account, however many ask.
#[derive(Debug)]
pub struct Finder {
    policy: Policy,
    asking: Mutex<Option<(Fingerprint, Asking)>>,
}

impl Finder {
    /// A finder that caches as `policy` says.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            asking: Mutex::default(),
        }
    }

    /// The list when there is nobody to ask as.
    pub fn without_access(reason: Reason, problem: &str) -> Listing {
        fallback(None, reason, problem.to_owned(), Vec::new())
    }

    /// A list for an account. Must be called inside a Tokio runtime.
    pub async fn list(&self, access: &Access, wanted: Wanted) -> Listing {
        let account = access.fingerprint();
        let mut warnings = Vec::new();
        let cached =
            cache::load(&self.policy, &account, SystemTime::now()).unwrap_or_else(|error| {
                warnings.push(error.to_string());
                None
            });
        let patience = match (wanted, &cached) {
            (Wanted::CacheFirst, Some(cached)) if cached.age == Age::Fresh => None,
            (Wanted::CacheOnly, _) => None,
            // An old list now is better than a new one later; the new one is for the next start.
            (Wanted::CacheFirst, Some(_)) if self.policy.shows_old() => {
                drop(self.ask(access, account.clone()));
                None
            }
            (Wanted::CacheFirst, _) => Some(BUDGET),
            // The call has its own deadline; this one is for the token before it.
            (Wanted::Live, _) => Some(DEADLINE * 2),
        };
        let Some(patience) = patience else {
            if let (Wanted::CacheOnly, Some(items)) = (wanted, self.answered(&account)) {
                return Listing {
                    items,
                    source: Source::Live,
                    reason: None,
                    warnings,
                };
            }
            return match cached {
                Some(cached) => Listing {
                    items: Arc::new(cached.items),
                    source: Source::Cache,
                    reason: None,
                    warnings,
                },
                None => fallback(None, Reason::DiscoveryFailed, "not asked".into(), warnings),
            };
        };
        let asking = self.ask(access, account);
        let answer = tokio::time::timeout(patience, asking)
            .await
            .unwrap_or(Err(DiscoverError::Slow(patience)));
        match answer {
            Ok(items) => Listing {
                items,
                source: Source::Live,
                reason: None,
                warnings,
            },
            Err(error) => {
                let reason = match error {
                    DiscoverError::Empty => Reason::EmptyModelList,
                    _ => Reason::DiscoveryFailed,
                };
                let old = cached.map(|cached| cached.items);
                fallback(old, reason, error.to_string(), warnings)
            }
        }
    }

    /// The answer to the last question, if it was about this account.
    fn answered(&self, account: &Fingerprint) -> Option<Arc<Vec<Item>>> {
        let asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        match &*asking {
            Some((whose, question)) if whose == account => question.peek()?.clone().ok(),
            _ => None,
        }
    }

    /// The question that is under way for this account, or a new one.
    fn ask(&self, access: &Access, account: Fingerprint) -> Asking {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((whose, question)) = &*asking
            && *whose == account
            // An answered question is history.
            && question.peek().is_none()
        {
            return question.clone();
        }
        let question = discover_and_keep(access.clone(), self.policy.clone(), account.clone());
        let question = question.boxed().shared();
        // It goes on when nobody waits any more: the next start finds the answer.
        tokio::spawn(question.clone());
        *asking = Some((account, question.clone()));
        question
    }
}

async fn discover_and_keep(access: Access, policy: Policy, account: Fingerprint) -> Answer {
    let items = Arc::new(access.discover().await?);
    if let Err(error) = cache::save(&policy, &account, &items, SystemTime::now()) {
        tracing::warn!("the list of models is not cached: {error}");
    }
    Ok(items)
}

/// The old list, else the bundled one, and why.
fn fallback(
    old: Option<Vec<Item>>,
    reason: Reason,
    problem: String,
    mut warnings: Vec<String>,
) -> Listing {
    let (items, source, reason, shown) = match old {
        Some(items) => (items, Source::Cache, Reason::CachedAfterError, "an older"),
        None => (
            bundled().items.clone(),
            Source::Bundled,
            reason,
            "the bundled",
        ),
    };
    warnings.push(format!(
        "Cursor's list of models is not available ({problem}); showing {shown} one"
    ));
    Listing {
        items: Arc::new(items),
        source,
        reason: Some(reason),
        warnings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::ApiKey;
    use crate::catalog::Credential;
    use crate::wire::endpoint::Endpoints;
    use crate::wire::headers::Identity;
    use crate::wire::http::{Http, Trust};

    fn access(url: &str) -> Access {
        let env = |name: &str| (name == "CURSOR_BACKEND_URL").then(|| url.to_owned());
        Access {
            http: Arc::new(Http::new(Trust::from_env(env))),
            endpoints: Endpoints::resolve(env, None).unwrap(),
            identity: Identity::default(),
            credential: Credential::Key(ApiKey::parse("crsr_test").unwrap()),
        }
    }

    /// Somebody takes the call and never answers.
    #[tokio::test(start_paused = true)]
    async fn a_start_waits_two_seconds_and_no_more() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let access = access(&format!("http://{}", silent.local_addr().unwrap()));
        let finder = Finder::new(Policy::Off);
        let before = tokio::time::Instant::now();
        let listing = finder.list(&access, Wanted::CacheFirst).await;
        assert_eq!(before.elapsed().as_secs(), BUDGET.as_secs());
        assert_eq!(listing.source, Source::Bundled);
        assert_eq!(listing.reason, Some(Reason::DiscoveryFailed));
        insta::assert_snapshot!(listing.warnings.join("\n"), @"Cursor's list of models is not available (no answer within 2 s); showing the bundled one");
        // The question goes on: who asks for Cursor's own answer waits for the same call.
        let listing = finder.list(&access, Wanted::Live).await;
        assert_eq!(before.elapsed().as_secs(), DEADLINE.as_secs());
        assert_eq!(listing.source, Source::Bundled);
    }
}
