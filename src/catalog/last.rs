//! Which account's list was used last with a server: what to show while no key is known, as a
//! host may give its key only after it has registered our rows.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use super::cache::{Fingerprint, Policy};
use crate::diag::private as store;

const VERSION: u64 = 1;

fn path(folder: &Path, host: &str) -> PathBuf {
    folder.join(format!("last-models-{}.json", Fingerprint::of_host(host)))
}

/// The account that was used last.
pub(super) fn recall(policy: &Policy, host: &str) -> Option<Fingerprint> {
    let Policy::On { folder, .. } = policy else {
        return None;
    };
    let text = store::read(&path(folder, host)).ok()??;
    let json: Json = serde_json::from_str(&text).ok()?;
    if json["version"] != VERSION {
        return None;
    }
    Fingerprint::parse(json["account"].as_str()?)
}

/// Keeps the account that is used now.
pub(super) fn remember(policy: &Policy, host: &str, account: &Fingerprint) {
    let Policy::On { folder, .. } = policy else {
        return;
    };
    if recall(policy, host).as_ref() == Some(account) {
        return;
    }
    let entry = json!({"version": VERSION, "account": account.to_string()});
    if let Err(error) = store::write(&path(folder, host), entry.to_string().as_bytes()) {
        tracing::debug!(%error, "the account is not remembered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::ApiKey;

    #[test]
    fn each_server_has_its_last_account_and_whatever_else_is_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let (policy, _) = Policy::from_env(&|_| None, Some(folder.path()));
        let account = |key: &str| Fingerprint::of_key(&ApiKey::parse(key).unwrap(), "h");
        assert_eq!(recall(&policy, "h"), None);
        for key in ["k1", "k2"] {
            remember(&policy, "h", &account(key));
            assert_eq!(recall(&policy, "h"), Some(account(key)));
        }
        assert_eq!(recall(&policy, "other"), None);
        assert_eq!(recall(&Policy::Off, "h"), None);
        for odd in [
            "{",
            r#"{"version":2,"account":"0123456789abcdef"}"#,
            r#"{"version":1,"account":"../../etc/passwd"}"#,
            r#"{"version":1,"account":"0123456789ABCDEF"}"#,
        ] {
            std::fs::write(path(folder.path(), "h"), odd).unwrap();
            assert_eq!(recall(&policy, "h"), None, "{odd}");
        }
    }
}
