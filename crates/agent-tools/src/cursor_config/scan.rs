//! Finds and reads the settings of a workspace and its user.
//!
//! Project rules and skills come from the workspace, from its parent folders in the same
//! repository (rules only) and from nested folders that git and `.cursorignore` do not exclude.
//! The user's come from the home folder.

mod commands;
mod plugins;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use commands::EnvFiles;

use super::file_stamps::{ConfigReader, FileStamps};
use super::hooks::config::{Hook, HookTrust};
use super::mcp::config::ServerConfig;
use super::rules::{RuleFile, WHOLE};
use super::skills::{self, Skill};
use super::sources::{ConfigSource, SourceFilter};
use crate::workspace::cursorignore;
use crate::workspace::walk::walk;
use foundation::private_files::is_open_to_all;

/// The greatest depth of nested settings.
const DEEPEST: usize = 10;
/// The most folders searched for nested settings.
const MOST_FOLDERS: usize = 50_000;
/// The time limit of that search. No turn waits that long, see [`LargeWorkspace`].
const LONGEST: Duration = Duration::from_secs(10);
/// The most rules and skills that are read.
const MAX_FILES: usize = 500;
/// Folders that are skipped, because they contain nothing that the user wrote.
const FOREIGN: [&str; 3] = ["node_modules", "__pycache__", "target"];

/// The administrator's hooks.
#[cfg(target_os = "macos")]
const ADMINISTRATOR: &str = "/Library/Application Support/Cursor/hooks.json";
#[cfg(not(target_os = "macos"))]
const ADMINISTRATOR: &str = "/etc/cursor/hooks.json";

/// Where settings are read from, and under which choices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ScanRoot {
    pub(super) workspace: PathBuf,
    pub(super) home: Option<PathBuf>,
    pub(super) choice: SourceFilter,
    /// The state folder, which records the project settings that were accepted.
    pub(super) state: Option<PathBuf>,
    /// Whether the host reports the workspace as trusted by its user.
    pub(super) is_trusted_by_host: bool,
}

/// The settings that were found, and the metadata of every path that was checked.
#[derive(Debug, Default)]
pub(super) struct ScanResult {
    pub(super) rules: Vec<RuleFile>,
    pub(super) skills: Vec<Skill>,
    pub(super) servers: Vec<ServerConfig>,
    pub(super) hooks: Vec<Hook>,
    pub(super) notices: Vec<String>,
    pub(super) stamps: FileStamps,
    /// The nested files with settings.
    pub(super) nested: Vec<PathBuf>,
}

/// How far to search.
pub(super) enum ScanDepth<'a> {
    /// Of nested settings only these files, which an earlier search found, and new ones beside
    /// them. Quick in a workspace of any size.
    Known(&'a [PathBuf]),
    /// With nested folders. Calls the function once if the workspace turns out to be large.
    Far(LargeWorkspace, &'a dyn Fn()),
}

/// A workspace is large if it has more entries than this and the search takes longer than this.
/// A small one on a slow machine is not large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LargeWorkspace {
    pub(super) entries: usize,
    pub(super) time: Duration,
}

impl Default for LargeWorkspace {
    fn default() -> Self {
        Self {
            entries: 500,
            time: Duration::from_millis(20),
        }
    }
}

/// Reads the settings of a place. Blocks, so it must not be called on an async thread.
pub(super) fn scan(place: &ScanRoot, reach: &ScanDepth<'_>) -> ScanResult {
    let mut scan = Scan {
        place,
        reach,
        reader: ConfigReader::default(),
        loaded: BTreeSet::new(),
        rules: Vec::new(),
        skills: Vec::new(),
        servers: Vec::new(),
        hooks: Vec::new(),
        nested: Vec::new(),
    };
    if place.choice.has(ConfigSource::Mdm) {
        let file = Path::new(ADMINISTRATOR);
        let text = scan.reader.text(file, None);
        let folder = file.parent().unwrap_or(file);
        scan.hook_file(file, text, folder, &HookTrust::Trusted, None);
    }
    if place.choice.has(ConfigSource::Project) {
        scan.project();
    }
    if place.choice.has(ConfigSource::User)
        && let Some(home) = &place.home
    {
        scan.user(home);
    }
    if place.choice.has(ConfigSource::Plugins)
        && let Some(home) = &place.home
    {
        scan.plugins(home);
    }
    ScanResult {
        rules: scan.rules,
        skills: scan.skills,
        servers: scan.servers,
        hooks: scan.hooks,
        notices: scan.reader.notices,
        stamps: scan.reader.stamps,
        nested: scan.nested,
    }
}

struct Scan<'a> {
    place: &'a ScanRoot,
    reach: &'a ScanDepth<'a>,
    reader: ConfigReader,
    /// Files that have been read, and skills by their path without the skill folder's name.
    loaded: BTreeSet<PathBuf>,
    rules: Vec<RuleFile>,
    skills: Vec<Skill>,
    servers: Vec<ServerConfig>,
    hooks: Vec<Hook>,
    nested: Vec<PathBuf>,
}

impl Scan<'_> {
    fn project(&mut self) {
        let workspace = self.place.workspace.clone();
        let home = self.place.home.clone();
        // Folders above the repository belong to other projects; so does every parent if the
        // workspace is in no repository.
        let mut folders: Vec<&Path> = Vec::from_iter(workspace.ancestors());
        let top = folders.iter().position(|it| it.join(".git").exists());
        folders.truncate(top.unwrap_or(0) + 1);
        let repository = folders.last().copied().unwrap_or(&workspace).to_owned();
        let old = repository.join(".cursorrules");
        if let Some(text) = self.read(&old, Some(&repository)) {
            self.rules.push(RuleFile::whole(&old, text));
        }
        for folder in folders.into_iter().rev() {
            // Any user can put a file into a world-writable folder such as /tmp.
            if folder != workspace && is_open_to_all(folder) {
                continue;
            }
            if Some(folder) != home.as_deref() {
                self.rule_folder(&folder.join(".cursor/rules"), Some(folder));
            }
            for name in WHOLE {
                self.whole(&folder.join(name), folder);
            }
        }
        self.whole(&workspace.join(".claude/CLAUDE.md"), &workspace);
        self.skill_folders(&workspace, Some(&workspace));
        if Some(&workspace) != home.as_ref() {
            self.project_commands(&workspace);
            if workspace.parent().is_some() {
                let files = match self.reach {
                    ScanDepth::Known(files) => self.beside(files, &workspace),
                    ScanDepth::Far(large, grown) => self.find(&workspace, *large, *grown),
                };
                self.nested(files, &workspace);
            }
        }
    }

    fn user(&mut self, home: &Path) {
        self.rule_folder(&home.join(".cursor/rules"), None);
        self.skill_folders(home, None);
        self.skill_folder(&home.join(".cursor/skills-cursor"), None);
        let folder = home.join(".cursor");
        let file = folder.join("mcp.json");
        let text = self.reader.text(&file, None);
        let servers = self.server_file(&file, text, EnvFiles::Read, None);
        self.add_servers(servers);
        let file = folder.join("hooks.json");
        let text = self.reader.text(&file, None);
        self.hook_file(&file, text, &folder, &HookTrust::Trusted, None);
    }

    /// Returns a file's text the first time it is requested; `None` later, or if the file is
    /// excluded from the model or over the limits.
    fn read(&mut self, path: &Path, within: Option<&Path>) -> Option<String> {
        if self.rules.len() + self.skills.len() >= MAX_FILES
            || !self.loaded.insert(path.to_owned())
            || cursorignore::is_ignored(&self.place.workspace, path)
        {
            return None;
        }
        self.reader.text(path, within)
    }

    fn whole(&mut self, path: &Path, within: &Path) {
        if let Some(text) = self.read(path, Some(within)) {
            self.rules.push(RuleFile::whole(path, text));
        }
    }

    fn headed(&mut self, path: &Path, within: Option<&Path>) {
        if let Some(text) = self.read(path, within) {
            self.rules.extend(RuleFile::headed(path, &text));
        }
    }

    fn skill(&mut self, path: &Path, within: Option<&Path>) {
        if let Some(same) = across_folders(path)
            && !self.loaded.insert(same)
        {
            return;
        }
        if let Some(text) = self.read(path, within) {
            self.skills.push(Skill::read(path, text));
        }
    }

    fn rule_folder(&mut self, folder: &Path, within: Option<&Path>) {
        for path in self.below(folder, &|name| name.ends_with(".mdc")) {
            self.headed(&path, within);
        }
    }

    fn skill_folders(&mut self, root: &Path, within: Option<&Path>) {
        for (config, skills) in skills::FOLDERS {
            self.skill_folder(&root.join(config).join(skills), within);
        }
    }

    fn skill_folder(&mut self, folder: &Path, within: Option<&Path>) {
        for path in self.below(folder, &|name| name == skills::FILE) {
            self.skill(&path, within);
        }
    }

    /// Returns the wanted files in a folder and its subfolders, sorted.
    fn below(&mut self, folder: &Path, wanted: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut folders = vec![(folder.to_owned(), 0)];
        while let Some((folder, depth)) = folders.pop() {
            for name in self.reader.names(&folder) {
                let path = folder.join(&name);
                if wanted(&name) {
                    files.push(path);
                } else if depth < DEEPEST
                    && folders.len() + files.len() < MAX_FILES
                    && !name.starts_with('.')
                    && !FOREIGN.contains(&name.as_str())
                    && path.is_dir()
                {
                    folders.push((path, depth + 1));
                }
            }
        }
        files.sort_unstable();
        files
    }

    /// Returns the files with settings in the folders of these files.
    fn beside(&mut self, files: &[PathBuf], workspace: &Path) -> Vec<PathBuf> {
        let folders: BTreeSet<&Path> = files.iter().filter_map(|file| file.parent()).collect();
        let mut found = Vec::new();
        for folder in folders {
            let paths = self.reader.names(folder).into_iter();
            let paths = paths.map(|name| folder.join(name));
            let wanted = |path: &PathBuf| kind(path, workspace).is_some() && path.is_file();
            found.extend(paths.filter(wanted));
        }
        found
    }

    /// Searches the workspace for files with nested settings.
    fn find(&mut self, workspace: &Path, large: LargeWorkspace, grown: &dyn Fn()) -> Vec<PathBuf> {
        let started = Instant::now();
        let walk = walk(workspace, &[cursorignore::FILE], |entry| {
            let name = entry.file_name().to_string_lossy();
            let folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            let config = |name: &str| skills::FOLDERS.iter().any(|(config, _)| *config == name);
            !folder
                || entry.depth() == 0
                || !(name.starts_with('.') && !config(&name) || FOREIGN.contains(&&*name))
        })
        .max_depth(Some(DEEPEST))
        .build();
        let mut folders = 0;
        let mut found = Vec::new();
        let mut grown = Some(grown);
        for (entries, entry) in walk.filter_map(Result::ok).enumerate() {
            if entries >= large.entries
                && started.elapsed() >= large.time
                && let Some(grown) = grown.take()
            {
                grown();
            }
            if entry.file_type().is_some_and(|kind| kind.is_dir()) {
                folders += 1;
                self.reader.note_folder(entry.path());
            } else if kind(entry.path(), workspace).is_some() {
                found.push(entry.into_path());
            }
            if folders > MOST_FOLDERS || started.elapsed() > LONGEST {
                self.reader.notices.push(format!(
                    "{} is large: rules and skills deep inside it may have been left out",
                    workspace.display()
                ));
                break;
            }
        }
        found
    }

    /// Reads nested settings.
    fn nested(&mut self, mut files: Vec<PathBuf>, workspace: &Path) {
        files.sort_unstable();
        for path in &files {
            if let Some(folder) = path.parent() {
                self.reader.note(folder);
            }
            match kind(path, workspace) {
                Some(ConfigFileKind::Whole) => self.whole(path, workspace),
                Some(ConfigFileKind::Headed) => self.headed(path, Some(workspace)),
                Some(ConfigFileKind::Skill) => self.skill(path, Some(workspace)),
                None => {}
            }
        }
        self.nested = files;
    }
}

enum ConfigFileKind {
    Whole,
    Headed,
    Skill,
}

/// Returns which kind of setting a nested file is.
fn kind(path: &Path, workspace: &Path) -> Option<ConfigFileKind> {
    let name = path.file_name()?.to_str()?;
    // Check the name first, because most files are no settings.
    if !name.ends_with(".mdc") && name != skills::FILE && !WHOLE.contains(&name) {
        return None;
    }
    let inside = path.strip_prefix(workspace).ok()?;
    let parts: Vec<&str> = inside.iter().filter_map(|part| part.to_str()).collect();
    let lies_in =
        |config: &str, folder: &str| parts.windows(2).any(|pair| pair == [config, folder]);
    if name.ends_with(".mdc") && lies_in(".cursor", "rules") {
        Some(ConfigFileKind::Headed)
    } else if name == skills::FILE
        && skills::FOLDERS
            .iter()
            .any(|(config, folder)| lies_in(config, folder))
    {
        Some(ConfigFileKind::Skill)
    } else if WHOLE.contains(&name) && !parts.iter().any(|part| part.starts_with('.')) {
        Some(ConfigFileKind::Whole)
    } else {
        None
    }
}

/// Returns the path of a skill without the name of its skill folder, because the same skill is
/// often stored for several agents.
fn across_folders(path: &Path) -> Option<PathBuf> {
    let parts: Vec<_> = path.iter().collect();
    let at = parts.windows(2).position(|pair| {
        let named = |(config, folder): &(&str, &str)| pair[0] == *config && pair[1] == *folder;
        skills::FOLDERS.iter().any(named)
    })?;
    let root: PathBuf = parts[..at].iter().collect();
    let inside: PathBuf = parts[at + 2..].iter().collect();
    Some(root.join("::skills").join(inside))
}

#[cfg(test)]
mod tests;
