//! The catalogue on disk, one file a key: a start need not wait for Cursor.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use secrecy::ExposeSecret as _;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use super::item::Item;
use super::listing::Answered;
use crate::account::ApiKey;
use crate::diag::parse;
use crate::diag::private::{self as store, StoreError};
use crate::diag::settings::{self, Warning};

const VERSION: u64 = 1;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Clocks differ; a file from further ahead was not written by a sane one.
const AHEAD: Duration = Duration::from_secs(5 * 60);

/// How the cache is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Policy {
    /// Neither read nor written.
    Off,
    /// In this folder.
    On {
        /// The folder.
        folder: PathBuf,
        /// How long an entry is as good as an answer of Cursor's.
        fresh_for: Duration,
    },
}

const TIME_TO_LIVE: &str = "PI_CURSOR_SDK_MODEL_CACHE_TTL_MS";
const DISABLE: &str = "PI_CURSOR_SDK_DISABLE_MODEL_CACHE";

impl Policy {
    /// Whether an old entry may be shown while a new one is fetched: not if the user wants
    /// every list to be Cursor's answer.
    pub(super) fn shows_old(&self) -> bool {
        matches!(self, Self::On { fresh_for, .. } if !fresh_for.is_zero())
    }

    /// How long a list may be gone by before Cursor is asked again.
    pub(super) fn good_for(&self) -> Duration {
        match self {
            // Who wants every list to be Cursor's answer does not want every turn to ask.
            Self::On { fresh_for, .. } if !fresh_for.is_zero() => *fresh_for,
            _ => DAY,
        }
    }

    /// The policy settings give, in a state folder; and what of them was not understood.
    pub fn from_env(
        env: &impl Fn(&str) -> Option<String>,
        state: Option<&Path>,
    ) -> (Self, Vec<Warning>) {
        let set = |name| env(name).filter(|text| !text.trim().is_empty());
        let (life, disabled) = (set(TIME_TO_LIVE), set(DISABLE));
        let mut warnings = Vec::new();
        if life
            .as_deref()
            .is_some_and(|text| parse::leading_whole(text).is_none())
        {
            warnings.extend(settings::not_understood(TIME_TO_LIVE, life.as_deref()));
        }
        let off = parse::switch(disabled.as_deref());
        if disabled.is_some() && off.is_none() {
            warnings.extend(settings::not_understood(DISABLE, disabled.as_deref()));
        }
        let policy = match state {
            Some(folder) if off != Some(true) => Self::On {
                folder: folder.to_owned(),
                fresh_for: time_to_live(life.as_deref()),
            },
            _ => Self::Off,
        };
        (policy, warnings)
    }
}

/// How long an entry is fresh: whole milliseconds, 0 for never; a day for anything else.
pub fn time_to_live(text: Option<&str>) -> Duration {
    text.and_then(parse::leading_whole)
        .map_or(DAY, Duration::from_millis)
}

/// Which account a list belongs to: nothing that could be turned back into a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint(String);

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Fingerprint {
    /// The fingerprint of a key at a host. Another host may have other models.
    pub fn of_key(key: &ApiKey, host: &str) -> Self {
        Self::digest(&["key", host, key.secret().expose_secret()])
    }

    /// The fingerprint of a login at a host.
    pub fn of_login(name: &str, host: &str) -> Self {
        Self::digest(&["login", host, name])
    }

    /// A short name for a host.
    pub(super) fn of_host(host: &str) -> Self {
        Self::digest(&["host", host])
    }

    /// One as it was written.
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
pub(super) struct Cached {
    /// The models.
    pub(super) answered: Answered,
    /// Whether it is as good as asking.
    pub(super) age: Age,
}

/// Whether a cached list is still as good as an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub(super) enum Age {
    Fresh,
    Stale,
}

/// Why a cached list is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CacheError {
    /// The file cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file is not what we write.
    #[error("the cached list of models {} is not usable ({problem}); it is ignored", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
}

fn path(folder: &Path, account: &Fingerprint) -> PathBuf {
    folder.join(format!("models-{}.json", account.0))
}

/// The cached list of an account.
pub(super) fn load(
    policy: &Policy,
    account: &Fingerprint,
    now: SystemTime,
) -> Result<Option<Cached>, CacheError> {
    let Policy::On { folder, fresh_for } = policy else {
        return Ok(None);
    };
    let path = path(folder, account);
    let Some(text) = store::read(&path)? else {
        return Ok(None);
    };
    match read(&text, account, *fresh_for, now) {
        Ok(cached) => Ok(Some(cached)),
        Err(problem) => Err(CacheError::Unusable { path, problem }),
    }
}

fn read(
    text: &str,
    account: &Fingerprint,
    fresh_for: Duration,
    now: SystemTime,
) -> Result<Cached, &'static str> {
    let json: Json = serde_json::from_str(text).map_err(|_| "no JSON")?;
    if json["version"] != VERSION {
        return Err("of another version");
    }
    if json["account"] != account.0 {
        return Err("of another account");
    }
    let fetched = json["fetchedAt"].as_u64().ok_or("without a time")?;
    let fetched = UNIX_EPOCH + Duration::from_millis(fetched);
    if fetched > now + AHEAD {
        return Err("from the future");
    }
    let items = Item::read_list(&json).unwrap_or_default();
    if items.is_empty() {
        return Err("empty");
    }
    let age = match now.duration_since(fetched).unwrap_or_default() < fresh_for {
        true => Age::Fresh,
        false => Age::Stale,
    };
    let answered = Answered {
        items: Arc::new(items),
        at: fetched,
    };
    Ok(Cached { answered, age })
}

/// Keeps a list Cursor just gave.
pub(super) fn save(
    policy: &Policy,
    account: &Fingerprint,
    items: &[Item],
    now: SystemTime,
) -> Result<(), StoreError> {
    let Policy::On { folder, .. } = policy else {
        return Ok(());
    };
    let fetched = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let entry = json!({
        "version": VERSION,
        "account": account.0,
        "fetchedAt": fetched.as_millis() as u64,
        "items": items,
    });
    store::write(&path(folder, account), entry.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(key: &str) -> Fingerprint {
        Fingerprint::of_key(&ApiKey::parse(key).unwrap(), "https://host")
    }

    #[test]
    fn a_list_is_fresh_for_a_day_and_kept_longer() {
        let folder = tempfile::tempdir().unwrap();
        let (policy, _) = Policy::from_env(&|_| None, Some(folder.path()));
        let item = Item {
            id: "m".into(),
            ..Item::default()
        };
        let then = UNIX_EPOCH + DAY * 20_000;
        let load_at = |now| load(&policy, &account("k1"), now);
        assert!(load_at(then).unwrap().is_none());
        save(&policy, &account("k1"), std::slice::from_ref(&item), then).unwrap();
        let age = |now| load_at(now).unwrap().unwrap().age;
        assert_eq!(age(then), Age::Fresh);
        assert_eq!(age(then - AHEAD), Age::Fresh, "clocks differ a little");
        assert_eq!(age(then + DAY - Duration::from_millis(1)), Age::Fresh);
        assert_eq!(age(then + DAY), Age::Stale);
        assert!(load_at(then - AHEAD - Duration::from_millis(1)).is_err());
        assert!(load(&policy, &account("k2"), then).unwrap().is_none());
        assert!(load(&Policy::Off, &account("k1"), then).unwrap().is_none());
    }

    #[test]
    fn whatever_is_in_the_file_is_no_panic_and_no_list() {
        let me = account("k");
        let valid = json!({"version": 1, "account": me.0, "fetchedAt": 5, "items": [{"id": "m"}]});
        let now = UNIX_EPOCH + DAY;
        let judge = |json: &Json| read(&json.to_string(), &me, DAY, now).map(|_| ());
        assert_eq!(judge(&valid), Ok(()));
        for (field, value, problem) in [
            ("version", json!(2), "of another version"),
            ("account", json!("0"), "of another account"),
            ("fetchedAt", json!(-1), "without a time"),
            ("fetchedAt", json!(u64::MAX), "from the future"),
            ("items", json!([]), "empty"),
            ("items", json!({"id": "m"}), "empty"),
        ] {
            let mut broken = valid.clone();
            broken[field] = value;
            assert_eq!(judge(&broken), Err(problem));
        }
        assert_eq!(read("{", &me, DAY, now).unwrap_err(), "no JSON");
    }

    #[test]
    fn settings_that_are_not_understood_are_told() {
        let read = |life: &'static str, disabled: &'static str| {
            let env = |name: &str| match name {
                TIME_TO_LIVE => Some(life.to_owned()),
                DISABLE => Some(disabled.to_owned()),
                _ => None,
            };
            Policy::from_env(&env, Some(Path::new("/state")))
        };
        assert_eq!(read("5", "yes"), (Policy::Off, vec![]));
        let (policy, warnings) = read("soon", "perhaps");
        let fresh_for = DAY;
        let folder = "/state".into();
        assert_eq!(policy, Policy::On { folder, fresh_for });
        let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(told.join("\n"), @r#"
        PI_CURSOR_SDK_MODEL_CACHE_TTL_MS: "soon" is not one of 0, 1, 2 … milliseconds; using 86400000
        PI_CURSOR_SDK_DISABLE_MODEL_CACHE: "perhaps" is not one of off, on; using off
        "#);
    }

    #[test]
    fn neither_key_nor_its_hash_is_in_a_file_name() {
        let me = account("crsr_secret");
        assert_eq!(me.0.len(), 16);
        assert_ne!(
            me,
            Fingerprint::of_key(&ApiKey::parse("crsr_secret").unwrap(), "https://other")
        );
        assert!(!format!("{me:?}").contains("secret"));
    }
}
