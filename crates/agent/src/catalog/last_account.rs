//! Remembers which account was last used with a server. Its list is shown while there is no key,
//! because a host may send the key only after it has registered our models.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use super::cache::{AccountFingerprint, CachePolicy};
use foundation::private_files as store;

const VERSION: u64 = 1;

fn path(dir: &Path, host: &str) -> PathBuf {
    dir.join(format!(
        "last-models-{}.json",
        AccountFingerprint::of_host(host)
    ))
}

/// Returns the account that was used last.
pub(super) fn load(policy: &CachePolicy, host: &str) -> Option<AccountFingerprint> {
    let CachePolicy::On { dir, .. } = policy else {
        return None;
    };
    let text = store::read(&path(dir, host)).ok()??;
    let json: Json = serde_json::from_str(&text).ok()?;
    if json["version"] != VERSION {
        return None;
    }
    AccountFingerprint::parse(json["account"].as_str()?)
}

/// Stores the account that is used now.
pub(super) fn save(policy: &CachePolicy, host: &str, account: &AccountFingerprint) {
    let CachePolicy::On { dir, .. } = policy else {
        return;
    };
    if load(policy, host).as_ref() == Some(account) {
        return;
    }
    let entry = json!({"version": VERSION, "account": account.to_string()});
    if let Err(error) = store::write(&path(dir, host), entry.to_string().as_bytes()) {
        tracing::debug!(%error, "cannot save the last account");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cursor_client::account::ApiKey;

    #[test]
    fn each_server_has_its_last_account_and_invalid_files_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let policy = CachePolicy::On {
            dir: dir.path().to_owned(),
            fresh_for: std::time::Duration::from_secs(1),
        };
        let account = |key: &str| AccountFingerprint::of_key(&ApiKey::parse(key).unwrap(), "h");
        assert_eq!(load(&policy, "h"), None);
        for key in ["k1", "k2"] {
            save(&policy, "h", &account(key));
            assert_eq!(load(&policy, "h"), Some(account(key)));
        }
        assert_eq!(load(&policy, "other"), None);
        assert_eq!(load(&CachePolicy::Off, "h"), None);
        for invalid in [
            "{",
            r#"{"version":2,"account":"0123456789abcdef"}"#,
            r#"{"version":1,"account":"../../etc/passwd"}"#,
            r#"{"version":1,"account":"0123456789ABCDEF"}"#,
        ] {
            std::fs::write(path(dir.path(), "h"), invalid).unwrap();
            assert_eq!(load(&policy, "h"), None, "{invalid}");
        }
    }
}
