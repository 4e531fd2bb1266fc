//! The settings of every workspace, read when a turn needs them and cached until a file or
//! folder changes.
//!
//! A turn checks the files and folders that are known to matter: hooks, servers, the workspace's
//! own rules, nested rules and skills that an earlier search found. It does not wait for the
//! search of a large workspace. That is done in the background, and what it finds applies to a
//! later turn.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::CursorConfig;
use super::consent::{self, ConsentError};
use super::hooks::Hooks;
use super::hooks::config::Hook;
use super::mcp::config::ServerConfig;
use super::mcp::{McpServer, McpServers, Timeouts};
use super::scan::{self, LargeWorkspace, ScanDepth, ScanResult, ScanRoot};
use super::sources::SourceFilter;
use crate::shell::reaper::ChildReaper;
use crate::workspace::repository_cache::RepositoryCache;

/// How long a turn waits for settings to be read, for example from a disk that hangs.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The folders of a large workspace are checked again after this many times the time that it
/// took, so that checks need a small part of one processor only.
const CHECK_PAUSE: u32 = 20;
/// How long a check waits, so that it does not slow down the start of the turn.
const CHECK_DELAY: Duration = Duration::from_millis(500);
/// The most workspaces whose settings are cached.
const MAX_WORKSPACES: usize = 16;

/// The settings of every workspace of this process.
#[derive(Debug, Default)]
pub struct ConfigCache {
    home: Option<PathBuf>,
    /// The state folder, which records the project settings that were accepted.
    state: Option<PathBuf>,
    /// Workspaces that the host reports as trusted by its user.
    trusted: Mutex<BTreeSet<PathBuf>>,
    reaper: ChildReaper,
    /// Servers that the host adds to those of every workspace.
    host_servers: Vec<ServerConfig>,
    kept: Mutex<HashMap<PathBuf, Arc<CachedConfig>>>,
    /// One lock for each workspace, held while it is read, so that concurrent turns read it once.
    load_locks: Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>,
    /// Large workspaces that are being scanned.
    busy: Mutex<BTreeSet<PathBuf>>,
    /// Notified when a workspace is added to `busy`.
    large_found: Notify,
    /// When the folders of a large workspace may be checked again; `None` during a check.
    next_checks: Mutex<HashMap<PathBuf, Option<Instant>>>,
    /// Notified when a check of folders ends.
    check_ended: Notify,
    /// What git reports about the workspaces.
    repositories: Arc<RepositoryCache>,
}

/// The cached settings of one place.
#[derive(Debug)]
struct CachedConfig {
    place: ScanRoot,
    /// Whether the workspace was not searched for nested settings.
    is_partial: bool,
    scanned: ScanResult,
    settings: Arc<CursorConfig>,
}

impl CachedConfig {
    /// Whether a search for this place finds the same nested files. Trust decides about commands
    /// only, which are never nested.
    fn is_of(&self, place: &ScanRoot) -> bool {
        self.place.home == place.home && self.place.choice.sources == place.choice.sources
    }
}

fn absolute(workspace: &Path) -> PathBuf {
    std::path::absolute(workspace).unwrap_or_else(|_| workspace.to_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ConfigCache {
    /// Creates an empty cache for a user with this home; `reaper` covers its servers and hooks.
    pub fn new(home: Option<PathBuf>, reaper: ChildReaper) -> Self {
        Self {
            home,
            reaper,
            ..Self::default()
        }
    }

    /// Sets the state folder, which records the project settings that were accepted.
    pub fn with_state(mut self, state: Option<PathBuf>) -> Self {
        self.state = state;
        self
    }

    /// Adds servers of the host to those of every workspace.
    pub fn with_host_servers(mut self, servers: Vec<ServerConfig>) -> Self {
        self.host_servers = servers;
        self
    }

    /// Records whether the host reports a workspace as trusted by its user.
    pub fn set_host_trust(&self, workspace: &Path, is_trusted: bool) {
        let mut trusted = lock(&self.trusted);
        if is_trusted {
            trusted.insert(absolute(workspace));
        } else {
            trusted.remove(&absolute(workspace));
        }
    }

    /// Accepts the current content of a project's settings; returns a message for the user.
    pub fn accept(&self, workspace: &Path) -> Result<String, ConsentError> {
        let workspace = absolute(workspace);
        let names = consent::accept(self.state.as_deref(), &workspace)?;
        Ok(consent::accepted(&workspace, &names))
    }

    /// The reaper of servers and hooks, which ends commands when we cannot.
    pub fn reaper(&self) -> &ChildReaper {
        &self.reaper
    }

    /// What git reports about the workspaces.
    pub fn repositories(&self) -> &Arc<RepositoryCache> {
        &self.repositories
    }

    /// Starts reading the settings of a workspace in the background if nothing of it is cached.
    /// Starts no server.
    pub fn prefetch(self: &Arc<Self>, choice: &SourceFilter, workspace: &Path) {
        let (cache, place) = (Arc::clone(self), self.place(choice, workspace));
        if lock(&self.kept).contains_key(&place.workspace) {
            return;
        }
        tokio::spawn(async move { drop(cache.read_all(place).await) });
    }

    /// Returns the settings of a workspace, from the cache if no file or folder has changed.
    pub async fn open(
        self: &Arc<Self>,
        choice: &SourceFilter,
        workspace: &Path,
    ) -> Arc<CursorConfig> {
        let place = self.place(choice, workspace);
        let kept = match self.read_all(place.clone()).await {
            Some(kept) => Some(kept),
            None => self.read_near(place.clone()).await,
        };
        let settings = match kept {
            Some(kept) => Arc::clone(&kept.settings),
            None => self.failed_closed(&place),
        };
        settings.servers.start_connecting().await;
        settings
    }

    fn place(&self, choice: &SourceFilter, workspace: &Path) -> ScanRoot {
        let workspace = absolute(workspace);
        ScanRoot {
            is_trusted_by_host: lock(&self.trusted).contains(&workspace),
            workspace,
            home: self.home.clone(),
            choice: choice.clone(),
            state: self.state.clone(),
        }
    }

    fn is_busy(&self, workspace: &Path) -> bool {
        lock(&self.busy).contains(workspace)
    }

    /// Resolves when any scan finds that the workspace is large.
    async fn large(&self, workspace: &Path) {
        loop {
            let notified = self.large_found.notified();
            tokio::pin!(notified);
            // Enable before the check, so that no notification is missed.
            notified.as_mut().enable();
            if self.is_busy(workspace) {
                return;
            }
            notified.await;
        }
    }

    /// Reads everything; returns `None` if that takes too long for a turn. The search then
    /// continues in the background.
    async fn read_all(self: &Arc<Self>, place: ScanRoot) -> Option<Arc<CachedConfig>> {
        let workspace = place.workspace.clone();
        if self.is_busy(&workspace) {
            return None;
        }
        let cache = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || cache.read(place));
        tokio::select! {
            kept = reading => kept.ok(),
            () = self.large(&workspace) => None,
            () = tokio::time::sleep(TIMEOUT) => {
                // Later turns do not wait for it.
                lock(&self.busy).insert(workspace);
                None
            }
        }
    }

    fn read(self: &Arc<Self>, place: ScanRoot) -> Arc<CachedConfig> {
        let load_lock = Arc::clone(
            lock(&self.load_locks)
                .entry(place.workspace.clone())
                .or_default(),
        );
        let _reading = lock(&load_lock);
        let old = lock(&self.kept).get(&place.workspace).cloned();
        let old = old.filter(|old| !old.is_partial && old.is_of(&place));
        let kept = match old {
            Some(old) if !old.scanned.stamps.can_check_all_folders() => {
                let kept = if old.place == place && old.scanned.stamps.are_known_current() {
                    old
                } else {
                    self.read_known(place, Some(&old))
                };
                self.check_folders_later(&kept);
                kept
            }
            Some(old) if old.place == place && old.scanned.stamps.are_current() => old,
            _ => self.search(place),
        };
        lock(&self.busy).remove(&kept.place.workspace);
        kept
    }

    /// Reads everything, with a search of the whole workspace.
    fn search(&self, place: ScanRoot) -> Arc<CachedConfig> {
        let large_found = || {
            tracing::debug!("settings.large");
            lock(&self.busy).insert(place.workspace.clone());
            self.large_found.notify_waiters();
        };
        let scanned = scan::scan(
            &place,
            &ScanDepth::Far(LargeWorkspace::default(), &large_found),
        );
        self.keep(place, scanned, false)
    }

    /// Reads all but nested settings that the last search did not find.
    fn read_known(&self, place: ScanRoot, old: Option<&CachedConfig>) -> Arc<CachedConfig> {
        let nested = old.map_or(&[][..], |old| &old.scanned.nested);
        let mut scanned = scan::scan(&place, &ScanDepth::Known(nested));
        if let Some(old) = old {
            scanned.stamps.folders = Arc::clone(&old.scanned.stamps.folders);
        }
        self.keep(place, scanned, old.is_none())
    }

    /// Checks in the background whether a folder of a large workspace has changed, and if so,
    /// searches it again.
    fn check_folders_later(self: &Arc<Self>, kept: &Arc<CachedConfig>) {
        let workspace = kept.place.workspace.clone();
        let mut next = lock(&self.next_checks);
        let is_due = match next.get(&workspace) {
            Some(at) => at.is_some_and(|at| at <= Instant::now()),
            None => true,
        };
        if !is_due {
            return;
        }
        next.insert(workspace.clone(), None);
        let (cache, kept) = (Arc::clone(self), Arc::clone(kept));
        let check = move || {
            let began = Instant::now();
            if !kept.scanned.stamps.are_folders_current() {
                let scanned = scan::scan(
                    &kept.place,
                    &ScanDepth::Far(LargeWorkspace::default(), &|| ()),
                );
                cache.keep(kept.place.clone(), scanned, false);
            }
            let next = Instant::now() + began.elapsed() * CHECK_PAUSE;
            lock(&cache.next_checks).insert(workspace, Some(next));
            cache.check_ended.notify_waiters();
        };
        tokio::spawn(async move {
            tokio::time::sleep(CHECK_DELAY).await;
            tokio::task::spawn_blocking(check);
        });
    }

    /// Reads without a search, which is quick in a workspace of any size.
    async fn read_near(self: &Arc<Self>, place: ScanRoot) -> Option<Arc<CachedConfig>> {
        let cache = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || {
            let old = lock(&cache.kept).get(&place.workspace).cloned();
            let old = old.filter(|old| !old.is_partial && old.is_of(&place));
            cache.read_known(place, old.as_deref())
        });
        let read = tokio::time::timeout(TIMEOUT, reading).await;
        read.ok()?.ok()
    }

    /// Returns the settings to use when nothing can be read: the cached ones, or hooks that deny
    /// everything, because the unread settings may contain hooks that would.
    fn failed_closed(&self, place: &ScanRoot) -> Arc<CursorConfig> {
        let before = lock(&self.kept).get(&place.workspace).cloned();
        let why = "the settings of the workspace cannot be read";
        before.map_or_else(
            || {
                Arc::new(CursorConfig {
                    hooks: self.hooks(Hook::denying_all(why)),
                    notices: vec![format!("{why}: no tool is run")],
                    ..CursorConfig::default()
                })
            },
            |kept| Arc::clone(&kept.settings),
        )
    }

    fn hooks(&self, all: Vec<Hook>) -> Hooks {
        let reaper = self.reaper.clone();
        Hooks { all, reaper }
    }

    /// Caches what was read. Servers whose configuration is unchanged are kept.
    fn keep(
        &self,
        place: ScanRoot,
        mut scanned: ScanResult,
        is_partial: bool,
    ) -> Arc<CachedConfig> {
        let times = Timeouts {
            connect: place.choice.connect_timeout,
            call: place.choice.tool_timeout,
        };
        let mut all = lock(&self.kept);
        let before = all.get(&place.workspace);
        // A search may have ended meanwhile.
        if let Some(before) = before
            && is_partial
            && !before.is_partial
            && before.place == place
        {
            return Arc::clone(before);
        }
        let before = before.map(|before| &before.settings.servers.0);
        let server = |config: ServerConfig| {
            let same = before.and_then(|before| {
                let same = |server: &&Arc<McpServer>| server.is_like(&config, times);
                before.iter().find(same)
            });
            same.map_or_else(|| McpServer::new(config, times, &self.reaper), Arc::clone)
        };
        let mut servers = std::mem::take(&mut scanned.servers);
        for config in &self.host_servers {
            let mut config = config.clone();
            config.make_label_unique(&servers);
            servers.push(config);
        }
        let servers = McpServers(servers.into_iter().map(server).collect());
        let settings = Arc::new(CursorConfig {
            rules: std::mem::take(&mut scanned.rules),
            skills: std::mem::take(&mut scanned.skills),
            hooks: self.hooks(std::mem::take(&mut scanned.hooks)),
            servers,
            notices: std::mem::take(&mut scanned.notices),
            is_partial,
        });
        tracing::debug!(
            rules = settings.rules.len(),
            skills = settings.skills.len(),
            servers = settings.servers.0.len(),
            hooks = settings.hooks.all.len(),
            "settings.read"
        );
        let workspace = place.workspace.clone();
        let kept = Arc::new(CachedConfig {
            place,
            is_partial,
            scanned,
            settings,
        });
        if all.len() >= MAX_WORKSPACES && !all.contains_key(&workspace) {
            all.clear(); // they are read again when they are needed
        }
        all.insert(workspace, Arc::clone(&kept));
        kept
    }

    /// Ends everything that was started for settings. Turns that still hold settings cannot start
    /// their servers again.
    pub fn close(&self) {
        for kept in lock(&self.kept).drain() {
            for server in &kept.1.settings.servers.0 {
                server.end();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn settings_are_read_once_and_again_after_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("AGENTS.md");
        std::fs::write(&file, "one").unwrap();
        let cache = Arc::new(ConfigCache::new(None, ChildReaper::default()));
        let choice = SourceFilter::default();
        let first = cache.open(&choice, folder.path()).await;
        assert_eq!(first.rules[0].content, "one");
        assert!(Arc::ptr_eq(
            &first,
            &cache.open(&choice, folder.path()).await
        ));
        std::fs::write(&file, "two, longer").unwrap();
        let second = cache.open(&choice, folder.path()).await;
        assert_eq!(second.rules[0].content, "two, longer");
        let none = cache.open(&SourceFilter::nothing(), folder.path()).await;
        assert!(none.rules.is_empty());
    }

    #[tokio::test]
    async fn a_large_workspace_keeps_no_turn_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        let workspace = folder.path().join("work");
        std::fs::create_dir_all(home.join(".cursor")).unwrap();
        std::fs::create_dir_all(workspace.join("deep")).unwrap();
        let hooks = r#"{"version": 1, "hooks": {"preToolUse": [{"command": "exit 2"}]}}"#;
        std::fs::write(home.join(".cursor/hooks.json"), hooks).unwrap();
        let servers = r#"{"mcpServers": {"s": {"command": "/no/such/program"}}}"#;
        std::fs::write(home.join(".cursor/mcp.json"), servers).unwrap();
        std::fs::write(workspace.join("AGENTS.md"), "near").unwrap();
        std::fs::write(workspace.join("deep/AGENTS.md"), "far").unwrap();
        let cache = Arc::new(ConfigCache::new(Some(home), ChildReaper::default()));
        let choice = SourceFilter::default();
        let contents = |settings: &CursorConfig| -> Vec<String> {
            let rules = settings.rules.iter();
            rules.map(|rule| rule.content.clone()).collect()
        };
        // A scan is in progress.
        lock(&cache.busy).insert(workspace.clone());
        let first = cache.open(&choice, &workspace).await;
        assert_eq!(contents(&first), ["near"]);
        assert_eq!((first.hooks.all.len(), first.is_partial), (1, true));
        let second = cache.open(&choice, &workspace).await;
        assert_eq!((contents(&second).len(), second.is_partial), (1, true));
        lock(&cache.busy).clear();
        let later = cache.open(&choice, &workspace).await;
        assert_eq!(contents(&later), ["near", "far"]);
        assert!(!later.is_partial);
        assert!(Arc::ptr_eq(&first.servers.0[0], &later.servers.0[0]));
        // The files that the earlier search found are known, and read again.
        lock(&cache.busy).insert(workspace.clone());
        std::fs::write(workspace.join("deep/AGENTS.md"), "far, changed").unwrap();
        let again = cache.open(&choice, &workspace).await;
        assert_eq!(contents(&again), ["near", "far, changed"]);
        assert!(!again.is_partial);
    }

    #[tokio::test]
    async fn a_turn_checks_only_what_is_known_to_matter_in_a_large_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().canonicalize().unwrap();
        for number in 0..400 {
            std::fs::create_dir(workspace.join(format!("d{number}"))).unwrap();
        }
        std::fs::write(workspace.join("d1/AGENTS.md"), "one").unwrap();
        let cache = Arc::new(ConfigCache::new(None, ChildReaper::default()));
        let choice = SourceFilter::default();
        let contents = async || -> Vec<String> {
            let settings = cache.open(&choice, &workspace).await;
            let rules = settings.rules.iter();
            rules.map(|rule| rule.content.clone()).collect()
        };
        // The search ends in the background if this machine is slow.
        let (read, place) = (Arc::clone(&cache), cache.place(&choice, &workspace));
        tokio::task::spawn_blocking(move || drop(read.read(place)))
            .await
            .unwrap();
        // No check of folders is due.
        let later = Instant::now() + Duration::from_secs(3600);
        lock(&cache.next_checks).insert(workspace.clone(), Some(later));
        assert_eq!(contents().await, ["one"]);
        std::fs::write(workspace.join("d1/AGENTS.md"), "one, changed").unwrap();
        std::fs::write(workspace.join("d1/CLAUDE.md"), "beside it").unwrap();
        std::fs::write(workspace.join("d2/AGENTS.md"), "two").unwrap();
        assert_eq!(contents().await, ["one, changed", "beside it"]);
        std::fs::remove_file(workspace.join("d1/CLAUDE.md")).unwrap();
        assert_eq!(contents().await, ["one, changed"]);
        // The check in the background finds the new file.
        lock(&cache.next_checks).clear();
        let ended = cache.check_ended.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        contents().await;
        ended.await;
        assert_eq!(contents().await, ["one, changed", "two"]);
    }

    #[tokio::test]
    async fn trust_that_comes_later_needs_no_new_search() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().canonicalize().unwrap();
        for number in 0..400 {
            std::fs::create_dir(workspace.join(format!("d{number}"))).unwrap();
        }
        let cache = Arc::new(ConfigCache::new(None, ChildReaper::default()));
        let choice = SourceFilter::default();
        let read = |cache: &Arc<ConfigCache>| {
            let (cache, place) = (Arc::clone(cache), cache.place(&choice, &workspace));
            tokio::task::spawn_blocking(move || cache.read(place))
        };
        let first = read(&cache).await.unwrap();
        cache.set_host_trust(&workspace, true);
        let second = read(&cache).await.unwrap();
        assert!(second.place.is_trusted_by_host);
        let folders = |kept: &CachedConfig| Arc::clone(&kept.scanned.stamps.folders);
        assert!(Arc::ptr_eq(&folders(&first), &folders(&second)));
    }

    #[tokio::test]
    async fn a_waiting_caller_is_notified_of_a_large_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Arc::new(ConfigCache::new(None, ChildReaper::default()));
        let load_lock = Arc::clone(
            lock(&cache.load_locks)
                .entry(folder.path().to_owned())
                .or_default(),
        );
        // Another turn holds the lock, and its scan finds that the workspace is large.
        let (held, is_held) = tokio::sync::oneshot::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let reading = std::thread::spawn(move || {
            let _reading = lock(&load_lock);
            held.send(()).unwrap();
            let _ = released.recv();
        });
        is_held.await.unwrap();
        let turn = {
            let (cache, workspace) = (Arc::clone(&cache), folder.path().to_owned());
            tokio::spawn(async move { cache.open(&SourceFilter::default(), &workspace).await })
        };
        tokio::task::yield_now().await;
        lock(&cache.busy).insert(folder.path().to_owned());
        cache.large_found.notify_waiters();
        let settings = turn.await.unwrap();
        drop(release);
        reading.join().unwrap();
        assert!(settings.is_partial);
    }

    #[tokio::test]
    async fn unreadable_settings_let_nothing_run() {
        let cache = ConfigCache::new(None, ChildReaper::default());
        let place = ScanRoot {
            workspace: "/w".into(),
            home: None,
            choice: SourceFilter::default(),
            ..ScanRoot::default()
        };
        let settings = cache.failed_closed(&place);
        assert_eq!(settings.hooks.events().len(), 4);
    }
}
