//! When stored conversations are removed.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::conversation::store::{RetentionLimits, Store};

/// How much is kept on disk, and for how long.
const BOUNDS: RetentionLimits = RetentionLimits {
    unused: Duration::from_secs(30 * 24 * 3600),
    bytes: 1024 * 1024 * 1024,
};
/// How often old conversations are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// When the store was swept last.
#[derive(Default)]
pub(super) struct Retention(Mutex<Option<Instant>>);

impl Retention {
    /// Removes conversations that were unused for long, at most once a day.
    pub(super) fn sweep_if_due(&self, store: Option<&Store>) {
        let Some(store) = store.filter(|_| self.is_due()).cloned() else {
            return;
        };
        tokio::task::spawn_blocking(move || {
            if let Err(error) = store.sweep(SystemTime::now(), BOUNDS) {
                tracing::debug!(%error, "old conversations could not be removed");
            }
        });
    }

    fn is_due(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| last.elapsed() > SWEEP_INTERVAL);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}
