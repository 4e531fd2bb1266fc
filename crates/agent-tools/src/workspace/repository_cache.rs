//! What git reports about each workspace, read in the background and reused.
//!
//! In a large repository `git status` takes longer than a turn may wait. Its turns send the
//! reading that was started when the turn before ended.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::git::{self, Priority, Repositories};

/// How long the context waits for a reading that is in progress.
const DEFAULT_WAIT: Duration = Duration::from_millis(20);
/// A reading that took longer than this many times the wait is not repeated when a turn starts.
const SLOW: u32 = 5;
/// A reading that is younger than this needs no replacement within a run.
const FRESH: Duration = Duration::from_secs(1);
/// The most workspaces whose readings are kept.
const MAX_WORKSPACES: usize = 16;

/// What git reports about the workspaces of this process.
#[derive(Debug)]
pub struct RepositoryCache {
    wait: Duration,
    readings: Mutex<HashMap<PathBuf, watch::Sender<Readings>>>,
}

impl Default for RepositoryCache {
    fn default() -> Self {
        Self::waiting(DEFAULT_WAIT)
    }
}

/// The readings of one workspace.
#[derive(Debug, Default)]
struct Readings {
    /// How many readings were requested, and how many of them are served. A task reads while they
    /// differ.
    requested: u64,
    completed: u64,
    latest: Option<Arc<Repositories>>,
    /// When the latest reading ended, and how long it took.
    ended: Option<(Instant, Duration)>,
}

impl Readings {
    fn is_idle(&self) -> bool {
        self.completed == self.requested
    }

    /// Whether a complete reading is known, and it took so long that the start of a turn is better
    /// off without another one.
    fn is_slow(&self, wait: Duration) -> bool {
        self.latest.as_ref().is_some_and(|latest| latest.complete)
            && self
                .ended
                .is_some_and(|(_, duration)| duration > wait * SLOW)
    }
}

impl RepositoryCache {
    /// Returns a cache whose readers wait at most this long for a reading that is in progress.
    pub fn waiting(wait: Duration) -> Self {
        Self {
            wait,
            readings: Mutex::default(),
        }
    }

    /// Starts reading in the background, for a turn that starts. Where the turn could not wait
    /// for it, the last reading is kept.
    pub fn refresh(&self, workspace: &Path) {
        let readings = self.readings(workspace);
        let is_kept = readings.borrow().is_slow(self.wait);
        if !is_kept {
            request(workspace, &readings, Priority::Normal);
        }
    }

    /// Starts reading in the background, for the next run, where its turn could not wait for it.
    pub fn refresh_if_slow(&self, workspace: &Path) {
        let readings = self.readings(workspace);
        let takes_longer = |(_, duration): (Instant, Duration)| duration > self.wait;
        let is_slow = readings.borrow().ended.is_some_and(takes_longer);
        if is_slow {
            request(workspace, &readings, Priority::Background);
        }
    }

    /// Returns the newest reading that is available within a short time.
    pub(crate) async fn latest(&self, workspace: &Path) -> Arc<Repositories> {
        let readings = self.readings(workspace);
        let (needs_reading, is_slow) = {
            let known = readings.borrow();
            let is_fresh = |(at, _): (Instant, Duration)| at.elapsed() < FRESH;
            let needs_reading = known.is_idle() && !known.ended.is_some_and(is_fresh);
            (needs_reading, known.is_slow(self.wait))
        };
        let is_current = if is_slow {
            !needs_reading
        } else {
            if needs_reading {
                request(workspace, &readings, Priority::Normal);
            }
            let mut reader = readings.subscribe();
            let served = reader.wait_for(Readings::is_idle);
            tokio::time::timeout(self.wait, served).await.is_ok()
        };
        let latest = readings.borrow().latest.clone().unwrap_or_default();
        if !latest.complete {
            report_incomplete("git status is not read yet");
        } else if !is_current {
            report_incomplete("git status is of the end of an earlier turn");
        }
        latest
    }

    fn readings(&self, workspace: &Path) -> watch::Sender<Readings> {
        let mut all = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_WORKSPACES && !all.contains_key(workspace) {
            all.clear(); // they are read again when they are needed
        }
        all.entry(workspace.to_owned())
            .or_insert_with(|| watch::Sender::new(Readings::default()))
            .clone()
    }
}

/// Counts and logs that a context lacked something.
pub(crate) fn report_incomplete(part: &'static str) {
    foundation::metrics::counters().count("context.incomplete", &[("part", part)]);
    tracing::debug!(part, "context.incomplete");
}

/// Requests a reading. One task reads at a time, and again if it was requested meanwhile.
fn request(workspace: &Path, readings: &watch::Sender<Readings>, priority: Priority) {
    let mut is_idle = false;
    readings.send_modify(|known| {
        is_idle = known.is_idle();
        known.requested += 1;
    });
    if is_idle {
        tokio::spawn(read(workspace.to_owned(), readings.clone(), priority));
    }
}

/// Reads until every request is served.
async fn read(workspace: PathBuf, readings: watch::Sender<Readings>, priority: Priority) {
    let mut is_served = false;
    while !is_served {
        let wanted = readings.borrow().requested;
        let began = Instant::now();
        let read = git::repositories(&workspace, priority, |without_status| {
            readings.send_modify(|known| {
                // The status of an earlier turn is better than none.
                let latest = known.latest.get_or_insert_default();
                if !latest.complete {
                    *latest = Arc::new(without_status);
                }
            });
        });
        let read = read.await;
        readings.send_modify(|known| {
            known.completed = wanted;
            known.ended = Some((Instant::now(), began.elapsed()));
            let is_kept = known.latest.as_ref().is_some_and(|latest| latest.complete);
            if read.complete || !is_kept {
                known.latest = Some(Arc::new(read));
            }
            is_served = known.is_idle();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl RepositoryCache {
        /// Resolves when no reading is in progress.
        pub(crate) async fn settled(&self, workspace: &Path) {
            let mut readings = self.readings(workspace).subscribe();
            readings.wait_for(Readings::is_idle).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_later_turn_finds_what_an_earlier_one_changed() {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path();
        git::git(work, &["init", "--quiet"]).await.unwrap();
        let cache = RepositoryCache::waiting(Duration::from_secs(60));
        cache.refresh(work);
        cache.settled(work).await;
        let status = |found: Arc<Repositories>| found.found[0].status.clone();
        assert!(!status(cache.latest(work).await).contains("new.txt"));
        std::fs::write(work.join("new.txt"), "").unwrap();
        // Two requests, of which the second may join a reading that began before it.
        cache.refresh(work);
        cache.refresh(work);
        cache.settled(work).await;
        assert!(status(cache.latest(work).await).contains("new.txt"));
    }

    #[tokio::test]
    async fn a_folder_without_repository_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let cache = RepositoryCache::waiting(Duration::from_secs(60));
        cache.refresh(folder.path());
        cache.settled(folder.path()).await;
        let latest = cache.latest(folder.path()).await;
        assert_eq!((latest.found.len(), latest.complete), (0, true));
    }

    /// Returns a cache with a reading that is in progress and never ends, after one that took this
    /// long.
    fn held_open(work: &Path, took: Duration) -> (RepositoryCache, Arc<Repositories>) {
        let cache = RepositoryCache::default();
        let latest = Arc::new(Repositories {
            found: Vec::new(),
            complete: true,
        });
        cache.readings(work).send_modify(|known| {
            known.latest = Some(Arc::clone(&latest));
            known.ended = Some((Instant::now(), took));
            known.requested += 1;
        });
        (cache, latest)
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_waits_a_short_time_for_a_reading_that_is_held_open() {
        let work = Path::new("/no/such/folder");
        for (took, wait) in [
            (DEFAULT_WAIT, DEFAULT_WAIT),
            (DEFAULT_WAIT * (SLOW + 1), Duration::ZERO),
        ] {
            let (cache, known) = held_open(work, took);
            let began = Instant::now();
            cache.refresh(work);
            assert!(Arc::ptr_eq(&cache.latest(work).await, &known));
            // The clock of the test has a resolution of one millisecond.
            let waited = began.elapsed();
            assert!(
                (wait..=wait + Duration::from_millis(1)).contains(&waited),
                "{waited:?}"
            );
        }
    }
}
