//! Where conversations are stored, and when old ones are removed.

use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use agent::conversation::store::{RetentionLimits, Store};
use foundation::place;

/// How much is kept on disk, and for how long.
const BOUNDS: RetentionLimits = RetentionLimits {
    unused: Duration::from_secs(30 * 24 * 3600),
    bytes: 1024 * 1024 * 1024,
};
/// How often old conversations are removed.
const TIDY_EVERY: Duration = Duration::from_secs(24 * 3600);

/// The conversation store, opened once.
#[derive(Default)]
pub(super) struct Keeping {
    store: OnceLock<Option<Store>>,
    tidied: Mutex<Option<Instant>>,
}

impl Keeping {
    /// Returns the store; `None` on a machine without a home directory.
    pub(super) fn store(
        &self,
        env: &impl Fn(&str) -> Option<String>,
        home: Option<&Path>,
    ) -> Option<Store> {
        let made = || {
            let folder = place::state_dir(env, home)?;
            Some(Store::at(folder.join("conversations")).within(folder))
        };
        self.store.get_or_init(made).clone()
    }

    /// Removes conversations that were unused for long, at most once a day and only if the store
    /// was used.
    pub(super) fn tidy(&self) {
        let due = {
            let mut last = self.tidied.lock().unwrap_or_else(PoisonError::into_inner);
            let due = last.is_none_or(|last| last.elapsed() > TIDY_EVERY);
            if due {
                *last = Some(Instant::now());
            }
            due
        };
        if let (Some(Some(store)), true) = (self.store.get().cloned(), due) {
            tokio::task::spawn_blocking(move || {
                if let Err(error) = store.sweep(SystemTime::now(), BOUNDS) {
                    tracing::debug!(%error, "old conversations could not be removed");
                }
            });
        }
    }
}
