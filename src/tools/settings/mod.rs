//! The user's Cursor settings: rules, skills, MCP servers, hooks.
//!
//! Read from files only, when a turn begins, and read again when one of the files or folders
//! looks different. Nothing here writes to stdout or stderr; what a person should know is a
//! notice. Commands a project names are run only if the user trusts it ([`sources::Trust`]).

mod front_matter;
pub mod hooks;
mod jsonc;
pub mod mcp;
pub mod rules;
mod scan;
pub mod skills;
pub mod sources;
mod survey;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hooks::Hooks;
use mcp::config::ServerConfig;
use mcp::{Server, Servers, Times};
use rules::Rule;
use scan::{Place, Scanned};
use skills::Skill;
use sources::Choice;

/// How long a turn waits for its settings to be read; what is not read by then comes with a
/// later one.
const PATIENCE: Duration = Duration::from_secs(5);
/// Workspaces whose settings are kept.
const MOST_KEPT: usize = 16;

/// The settings of a workspace, as they were read.
#[derive(Debug, Default)]
pub struct Settings {
    /// Rules, the nearest first.
    pub rules: Vec<Rule>,
    /// Skills.
    pub skills: Vec<Skill>,
    /// Hooks.
    pub hooks: Hooks,
    /// MCP servers.
    pub servers: Servers,
    /// What a person should know.
    pub notices: Vec<String>,
}

/// The settings of every workspace of this process.
#[derive(Debug, Default)]
pub struct Library {
    home: Option<PathBuf>,
    kept: Mutex<HashMap<PathBuf, Arc<Kept>>>,
    /// Held while settings are read: who comes meanwhile waits and finds them.
    reading: Mutex<()>,
}

/// What was read of one place.
#[derive(Debug)]
struct Kept {
    place: Place,
    scanned: Scanned,
    settings: Arc<Settings>,
}

impl Library {
    /// A library for a user with this home.
    pub fn new(home: Option<PathBuf>) -> Self {
        Self {
            home,
            ..Self::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Arc<Kept>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The settings of a workspace: read now, or as they were if nothing looks different.
    pub async fn open(self: &Arc<Self>, choice: &Choice, workspace: &Path) -> Arc<Settings> {
        let place = Place {
            workspace: std::path::absolute(workspace).unwrap_or_else(|_| workspace.to_owned()),
            home: self.home.clone(),
            choice: choice.clone(),
        };
        let before = self.lock().get(&place.workspace).cloned();
        let library = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || library.read(place));
        match tokio::time::timeout(PATIENCE, reading).await {
            Ok(Ok(kept)) => {
                kept.settings.servers.wake().await;
                Arc::clone(&kept.settings)
            }
            Ok(Err(_)) | Err(_) => {
                tracing::debug!("the settings of the workspace are not read yet");
                before
                    .map(|kept| Arc::clone(&kept.settings))
                    .unwrap_or_default()
            }
        }
    }

    /// Ends everything that was started for settings. Nothing is started afterwards by those
    /// who still hold some.
    pub fn close(&self) {
        for kept in self.lock().drain() {
            for server in &kept.1.settings.servers.0 {
                server.end();
            }
        }
    }

    fn read(&self, place: Place) -> Arc<Kept> {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.lock().get(&place.workspace).cloned();
        if let Some(old) = &old
            && old.place == place
            && old.scanned.looks.hold()
        {
            return Arc::clone(old);
        }
        let mut scanned = scan::scan(&place);
        let times = Times {
            connect: place.choice.connect_timeout,
            call: place.choice.tool_timeout,
        };
        let before = old.as_ref().map(|old| &old.settings.servers.0);
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
            scanned,
            settings,
        });
        let mut all = self.lock();
        if all.len() >= MOST_KEPT && !all.contains_key(&workspace) {
            all.clear(); // they are read again when they are needed
        }
        all.insert(workspace, Arc::clone(&kept));
        kept
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
}
