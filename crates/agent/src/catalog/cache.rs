//! The model list on disk, one file per account, so that a start need not wait for Cursor.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use secrecy::ExposeSecret as _;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use super::model::CatalogModel;
use super::model_list::FetchedModels;
use cursor_client::account::ApiKey;
use foundation::private_files::{self as store, PrivateFileError};

const VERSION: u64 = 1;
/// How long an entry is fresh by default.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Tolerated clock difference; a file from further in the future is ignored.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// Whether and how the cache is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachePolicy {
    /// The cache is neither read nor written.
    Off,
    /// The cache is on.
    On {
        /// The directory of the cache files.
        dir: PathBuf,
        /// How long an entry is fresh. Zero means never.
        fresh_for: Duration,
    },
}

impl CachePolicy {
    /// Whether a stale list may be shown while a new one is fetched. Not if the TTL is zero,
    /// because then the user wants every list to come from Cursor.
    pub(super) fn may_show_stale(&self) -> bool {
        matches!(self, Self::On { fresh_for, .. } if !fresh_for.is_zero())
    }

    /// How old a list in memory may get before turns fetch it again.
    pub(super) fn max_age(&self) -> Duration {
        match self {
            // With a TTL of zero every listing fetches, but not every turn.
            Self::On { fresh_for, .. } if !fresh_for.is_zero() => *fresh_for,
            _ => DAY,
        }
    }
}

/// Identifies the account a list belongs to. The key cannot be recovered from it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccountFingerprint(String);

impl std::fmt::Display for AccountFingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl AccountFingerprint {
    /// Returns the fingerprint of a key at a server. The server is included, because another
    /// server may have other models.
    pub fn of_key(key: &ApiKey, host: &str) -> Self {
        Self::digest(&["key", host, key.secret().expose_secret()])
    }

    /// Returns the fingerprint of a login at a server.
    pub fn of_login(name: &str, host: &str) -> Self {
        Self::digest(&["login", host, name])
    }

    /// Returns the fingerprint of a server.
    pub(super) fn of_host(host: &str) -> Self {
        Self::digest(&["host", host])
    }

    /// Parses a fingerprint as written by `Display`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (text.len() == 16 && text.bytes().all(digit)).then(|| Self(text.to_owned()))
    }

    fn digest(parts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest = hash.finalize();
        Self(
            digest
                .iter()
                .take(8)
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        )
    }
}

/// A cached list.
#[derive(Debug, Clone)]
pub(super) struct CachedList {
    /// The models and when they were fetched.
    pub(super) fetched: FetchedModels,
    /// Whether it is young enough to be used without asking Cursor.
    pub(super) is_fresh: bool,
}

/// Why a cached list is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CacheError {
    /// The file cannot be read.
    #[error(transparent)]
    Store(#[from] PrivateFileError),
    /// The file is invalid.
    #[error("ignoring the cached model list {}: {problem}", path.display())]
    InvalidState {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
}

fn path(dir: &Path, account: &AccountFingerprint) -> PathBuf {
    dir.join(format!("models-{}.json", account.0))
}

/// Returns the cached list of an account.
pub(super) fn load(
    policy: &CachePolicy,
    account: &AccountFingerprint,
    now: SystemTime,
) -> Result<Option<CachedList>, CacheError> {
    let CachePolicy::On { dir, fresh_for } = policy else {
        return Ok(None);
    };
    let path = path(dir, account);
    let Some(text) = store::read(&path)? else {
        return Ok(None);
    };
    match read(&text, account, *fresh_for, now) {
        Ok(cached) => Ok(Some(cached)),
        Err(problem) => Err(CacheError::InvalidState { path, problem }),
    }
}

fn read(
    text: &str,
    account: &AccountFingerprint,
    fresh_for: Duration,
    now: SystemTime,
) -> Result<CachedList, &'static str> {
    let json: Json = serde_json::from_str(text).map_err(|_| "not JSON")?;
    if json["version"] != VERSION {
        return Err("wrong version");
    }
    if json["account"] != account.0 {
        return Err("wrong account");
    }
    let fetched_at = json["fetchedAt"].as_u64().ok_or("no timestamp")?;
    let fetched_at = UNIX_EPOCH + Duration::from_millis(fetched_at);
    if fetched_at > now + MAX_CLOCK_SKEW {
        return Err("from the future");
    }
    let models = CatalogModel::list_from_json(&json).unwrap_or_default();
    if models.is_empty() {
        return Err("empty");
    }
    let is_fresh = now.duration_since(fetched_at).unwrap_or_default() < fresh_for;
    let fetched = FetchedModels {
        models: Arc::new(models),
        at: fetched_at,
    };
    Ok(CachedList { fetched, is_fresh })
}

/// Stores a list that Cursor just returned.
pub(super) fn save(
    policy: &CachePolicy,
    account: &AccountFingerprint,
    models: &[CatalogModel],
    now: SystemTime,
) -> Result<(), PrivateFileError> {
    let CachePolicy::On { dir, .. } = policy else {
        return Ok(());
    };
    let fetched_at = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let entry = json!({
        "version": VERSION,
        "account": account.0,
        "fetchedAt": fetched_at.as_millis() as u64,
        "items": models,
    });
    store::write(&path(dir, account), entry.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(key: &str) -> AccountFingerprint {
        AccountFingerprint::of_key(&ApiKey::parse(key).unwrap(), "https://host")
    }

    #[test]
    fn a_list_is_fresh_for_a_day_and_stored_longer() {
        let dir = tempfile::tempdir().unwrap();
        let policy = CachePolicy::On {
            dir: dir.path().to_owned(),
            fresh_for: DAY,
        };
        let item = CatalogModel {
            id: "m".into(),
            ..CatalogModel::default()
        };
        let then = UNIX_EPOCH + DAY * 20_000;
        let load_at = |now| load(&policy, &account("k1"), now);
        assert!(load_at(then).unwrap().is_none());
        save(&policy, &account("k1"), std::slice::from_ref(&item), then).unwrap();
        let is_fresh = |now| load_at(now).unwrap().unwrap().is_fresh;
        assert!(is_fresh(then));
        assert!(is_fresh(then - MAX_CLOCK_SKEW));
        assert!(is_fresh(then + DAY - Duration::from_millis(1)));
        assert!(!is_fresh(then + DAY));
        assert!(load_at(then - MAX_CLOCK_SKEW - Duration::from_millis(1)).is_err());
        assert!(load(&policy, &account("k2"), then).unwrap().is_none());
        assert!(
            load(&CachePolicy::Off, &account("k1"), then)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn invalid_files_are_rejected() {
        let me = account("k");
        let valid = json!({"version": 1, "account": me.0, "fetchedAt": 5, "items": [{"id": "m"}]});
        let now = UNIX_EPOCH + DAY;
        let check = |json: &Json| read(&json.to_string(), &me, DAY, now).map(|_| ());
        assert_eq!(check(&valid), Ok(()));
        for (field, value, problem) in [
            ("version", json!(2), "wrong version"),
            ("account", json!("0"), "wrong account"),
            ("fetchedAt", json!(-1), "no timestamp"),
            ("fetchedAt", json!(u64::MAX), "from the future"),
            ("items", json!([]), "empty"),
            ("items", json!({"id": "m"}), "empty"),
        ] {
            let mut broken = valid.clone();
            broken[field] = value;
            assert_eq!(check(&broken), Err(problem));
        }
        assert_eq!(read("{", &me, DAY, now).unwrap_err(), "not JSON");
    }

    #[test]
    fn the_fingerprint_does_not_contain_the_key() {
        let me = account("crsr_secret");
        assert_eq!(me.0.len(), 16);
        assert_ne!(
            me,
            AccountFingerprint::of_key(&ApiKey::parse("crsr_secret").unwrap(), "https://other")
        );
        assert!(!format!("{me:?}").contains("secret"));
    }
}
