//! The last error of a turn, kept in the state folder for `doctor`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::checkup::Finding;
use foundation::{private_files, secrets, terminal_text};

const FILE: &str = "last-error.json";
/// How its finding begins.
pub(crate) const PREFIX: &str = "last error: ";
/// The longest text that is kept, in characters.
const MAX_TEXT: usize = 400;
/// How long a turn waits for the disk.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// An error that is older is displayed without a warning.
const RECENT: Duration = Duration::from_secs(24 * 60 * 60);

/// The last error of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastError {
    /// When it happened, in seconds since 1970.
    at: u64,
    /// The version that reported it.
    version: String,
    /// The front end: `rpc`, `gateway`, `acp` or `ask`.
    front_end: String,
    /// Its text without secrets.
    text: String,
}

/// Stores an error in place of the last one. It is not worth a second error, so a failure is only
/// logged.
pub(crate) async fn record(state_dir: Option<&Path>, front_end: &'static str, text: &str) {
    let Some(path) = state_dir.map(path_in) else {
        return;
    };
    let text = terminal_text::clean(&secrets().scrub(text))
        .chars()
        .take(MAX_TEXT)
        .collect();
    let error = LastError {
        at: seconds(SystemTime::now()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        front_end: front_end.to_owned(),
        text,
    };
    let write = move || {
        let json = serde_json::to_vec(&error).unwrap_or_default();
        private_files::write(&path, &json)
    };
    let written = tokio::time::timeout(WRITE_TIMEOUT, tokio::task::spawn_blocking(write)).await;
    if let Ok(Ok(Err(error))) = written {
        tracing::debug!(%error, "last_error.unsaved");
    }
}

/// Returns the last error; `None` if there was none or its file is invalid.
pub(crate) fn read(state_dir: &Path) -> Option<LastError> {
    let text = private_files::read_secret(&path_in(state_dir)).ok()??;
    serde_json::from_str(&text).ok()
}

impl LastError {
    /// Returns the error as it is displayed, with its age.
    pub(crate) fn finding(&self) -> Finding {
        let age = Duration::from_secs(seconds(SystemTime::now()).saturating_sub(self.at));
        let text = format!(
            "{PREFIX}{} ago, in {}: {}",
            rounded(age),
            self.front_end,
            self.text
        );
        if age < RECENT {
            Finding::warning(text)
        } else {
            Finding::ok(text)
        }
    }

    /// Returns when and where it happened, without its text.
    pub(crate) fn circumstances(&self) -> String {
        format!(
            "at {} (seconds since 1970), in {}, version {}",
            self.at, self.front_end, self.version
        )
    }
}

fn path_in(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// Returns a time in its largest unit.
fn rounded(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkup::Severity;
    use std::os::unix::fs::PermissionsExt as _;

    #[tokio::test]
    async fn the_last_error_is_stored_privately_without_secrets_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), None);
        let text = format!(
            "Bearer crsr_0123456789abcdef0123456789abcdef {}",
            "x".repeat(9_000)
        );
        record(Some(folder.path()), "rpc", "first").await;
        record(Some(folder.path()), "rpc", &text).await;
        let path = folder.path().join(FILE);
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        let stored = std::fs::read_to_string(&path).unwrap();
        assert!(
            !stored.contains("0123456789abcdef") && stored.len() < 1_000,
            "{stored}"
        );
        let error = read(folder.path()).unwrap();
        let finding = error.finding();
        assert_eq!(finding.severity, Severity::Warning);
        assert!(
            finding.text.starts_with("last error: 0 s ago, in rpc: "),
            "{finding:?}"
        );
        let old = LastError {
            at: error.at - 400_000,
            ..error
        };
        assert_eq!(old.finding().severity, Severity::Ok);
        assert!(old.finding().text.contains("4 days ago"));
        record(None, "rpc", "nowhere").await;
    }
}
