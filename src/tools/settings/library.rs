//! The settings of every workspace, read when a turn needs them and kept until they look
//! different.
//!
//! A turn does not wait for a large workspace to be looked through: it goes on with what lies
//! near (hooks, servers, the workspace's own rules), the rest counts from a later turn.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::Settings;
use super::hooks::Hooks;
use super::hooks::config::Hook;
use super::mcp::config::ServerConfig;
use super::mcp::{Server, Servers, Times};
use super::scan::{self, Large, Place, Reach, Scanned};
use super::sources::Choice;

/// How long a turn waits for settings that cannot be read, as on a disk that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Workspaces whose settings are kept.
const MOST_KEPT: usize = 16;

/// The settings of every workspace of this process.
#[derive(Debug, Default)]
pub struct Library {
    home: Option<PathBuf>,
    large: Large,
    kept: Mutex<HashMap<PathBuf, Arc<Kept>>>,
    /// One a workspace, held while it is read: who comes meanwhile waits and finds it.
    doors: Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>,
    /// Workspaces that are large and being looked through.
    busy: Mutex<BTreeSet<PathBuf>>,
}

/// What was read of one place.
#[derive(Debug)]
struct Kept {
    place: Place,
    extent: Extent,
    scanned: Scanned,
    settings: Arc<Settings>,
}

/// How much was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    /// Without what may lie further down.
    Near,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Library {
    /// A library for a user with this home.
    pub fn new(home: Option<PathBuf>) -> Self {
        Self {
            home,
            ..Self::default()
        }
    }

    /// The settings of a workspace: read now, or as they were if nothing looks different.
    pub async fn open(self: &Arc<Self>, choice: &Choice, workspace: &Path) -> Arc<Settings> {
        let place = Place {
            workspace: std::path::absolute(workspace).unwrap_or_else(|_| workspace.to_owned()),
            home: self.home.clone(),
            choice: choice.clone(),
        };
        let read = match lock(&self.busy).contains(&place.workspace) {
            true => None,
            false => Some(self.read_all(place.clone())),
        };
        let read = match read {
            Some(reading) => reading.await,
            None => None,
        };
        let kept = match read {
            Some(kept) => Some(kept),
            None => self.read_near(place.clone()).await,
        };
        let settings = match kept {
            Some(kept) => Arc::clone(&kept.settings),
            None => self.unread(&place),
        };
        settings.servers.wake().await;
        settings
    }

    /// Reads all, unless that takes longer than a turn can wait: then it goes on behind.
    async fn read_all(self: &Arc<Self>, place: Place) -> Option<Arc<Kept>> {
        let large = Arc::new(Notify::new());
        let (library, told) = (Arc::clone(self), Arc::clone(&large));
        let reading = tokio::task::spawn_blocking(move || {
            let workspace = place.workspace.clone();
            let kept = library.read(place, &|| {
                tracing::debug!("settings.large");
                lock(&library.busy).insert(workspace.clone());
                told.notify_one();
            });
            lock(&library.busy).remove(&workspace);
            kept
        });
        tokio::select! {
            biased;
            () = large.notified() => None,
            kept = reading => kept.ok(),
            () = tokio::time::sleep(PATIENCE) => None,
        }
    }

    fn read(&self, place: Place, large: &dyn Fn()) -> Arc<Kept> {
        let door = Arc::clone(
            lock(&self.doors)
                .entry(place.workspace.clone())
                .or_default(),
        );
        let _reading = lock(&door);
        let old = lock(&self.kept).get(&place.workspace).cloned();
        if let Some(old) = old
            && old.extent == Extent::Whole
            && old.place == place
            && old.scanned.looks.hold()
        {
            return old;
        }
        let scanned = scan::scan(&place, &Reach::Far(self.large, large));
        self.keep(place, scanned, Extent::Whole)
    }

    /// Reads what lies near: quick, however large the workspace is. What was known of the rest
    /// still counts.
    async fn read_near(self: &Arc<Self>, place: Place) -> Option<Arc<Kept>> {
        let library = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || {
            let mut scanned = scan::scan(&place, &Reach::Near);
            let before = lock(&library.kept).get(&place.workspace).cloned();
            match before.filter(|before| before.place == place) {
                Some(before) => {
                    scanned.rules.clone_from(&before.settings.rules);
                    scanned.skills.clone_from(&before.settings.skills);
                }
                None => scanned.notices.push(format!(
                    "{} is large: rules and skills deep inside it count from a later turn",
                    place.workspace.display()
                )),
            }
            library.keep(place, scanned, Extent::Near)
        });
        let read = tokio::time::timeout(PATIENCE, reading).await;
        read.ok()?.ok()
    }

    /// When nothing can be read: what was known, or hooks that let nothing run, as there may
    /// be some that would not.
    fn unread(&self, place: &Place) -> Arc<Settings> {
        let before = lock(&self.kept).get(&place.workspace).cloned();
        let why = "the settings of the workspace cannot be read";
        before.map_or_else(
            || {
                Arc::new(Settings {
                    hooks: Hooks(Hook::against_all(why)),
                    notices: vec![format!("{why}: no tool is run")],
                    ..Settings::default()
                })
            },
            |kept| Arc::clone(&kept.settings),
        )
    }

    /// Keeps what was read. Servers that are there already stay.
    fn keep(&self, place: Place, mut scanned: Scanned, extent: Extent) -> Arc<Kept> {
        let times = Times {
            connect: place.choice.connect_timeout,
            call: place.choice.tool_timeout,
        };
        let mut all = lock(&self.kept);
        let before = all.get(&place.workspace);
        let before = before.map(|before| &before.settings.servers.0);
        let server = |config: ServerConfig| {
            let same = before.and_then(|before| {
                let same = |server: &&Arc<Server>| server.is_like(&config, times);
                before.iter().find(same)
            });
            same.map_or_else(|| Server::new(config, times), Arc::clone)
        };
        let servers = std::mem::take(&mut scanned.servers);
        let servers = Servers(servers.into_iter().map(server).collect());
        let settings = Arc::new(Settings {
            rules: std::mem::take(&mut scanned.rules),
            skills: std::mem::take(&mut scanned.skills),
            hooks: Hooks(std::mem::take(&mut scanned.hooks)),
            servers,
            notices: std::mem::take(&mut scanned.notices),
        });
        tracing::debug!(
            rules = settings.rules.len(),
            skills = settings.skills.len(),
            servers = settings.servers.0.len(),
            hooks = settings.hooks.0.len(),
            "settings.read"
        );
        let workspace = place.workspace.clone();
        let kept = Arc::new(Kept {
            place,
            extent,
            scanned,
            settings,
        });
        if all.len() >= MOST_KEPT && !all.contains_key(&workspace) {
            all.clear(); // they are read again when they are needed
        }
        all.insert(workspace, Arc::clone(&kept));
        kept
    }

    /// Ends everything that was started for settings. Nothing is started afterwards by those
    /// who still hold some.
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
        let library = Arc::new(Library::new(None));
        let choice = Choice::default();
        let first = library.open(&choice, folder.path()).await;
        assert_eq!(first.rules[0].content, "one");
        assert!(Arc::ptr_eq(
            &first,
            &library.open(&choice, folder.path()).await
        ));
        std::fs::write(&file, "two, longer").unwrap();
        let second = library.open(&choice, folder.path()).await;
        assert_eq!(second.rules[0].content, "two, longer");
        let none = library.open(&Choice::nothing(), folder.path()).await;
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
        let library = Arc::new(Library {
            // Any workspace is large, at its first entry.
            large: Large {
                entries: 0,
                time: Duration::ZERO,
            },
            ..Library::new(Some(home))
        });
        let choice = Choice::default();
        let first = library.open(&choice, &workspace).await;
        let told = |settings: &Settings| -> Vec<String> {
            let rules = settings.rules.iter();
            rules.map(|rule| rule.content.clone()).collect()
        };
        assert_eq!(told(&first), ["near"]);
        assert_eq!((first.hooks.0.len(), first.notices.len()), (1, 1));
        // It is looked through behind, once it is not read any more.
        let place = first_place(&library);
        let whole = tokio::task::spawn_blocking({
            let library = Arc::clone(&library);
            move || library.read(place, &|| ())
        });
        assert_eq!(told(&whole.await.unwrap().settings), ["near", "far"]);
        let later = library.open(&choice, &workspace).await;
        assert_eq!(told(&later), ["near", "far"]);
        assert!(Arc::ptr_eq(&first.servers.0[0], &later.servers.0[0]));
    }

    fn first_place(library: &Library) -> Place {
        lock(&library.kept).values().next().unwrap().place.clone()
    }

    #[tokio::test]
    async fn settings_nobody_could_read_let_nothing_run() {
        let library = Library::new(None);
        let place = Place {
            workspace: "/w".into(),
            home: None,
            choice: Choice::default(),
        };
        let settings = library.unread(&place);
        assert_eq!(settings.hooks.events().len(), 4);
    }
}
