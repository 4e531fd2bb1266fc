//! Where rules and skills lie, and reading them.
//!
//! Of the workspace: its own, those of the folders above it, and nested ones where git (and
//! `.cursorignore`) lets them be seen. Of the user: those in the home folder.

mod commands;

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ignore::WalkBuilder;

use super::hooks::config::{Hook, Standing};
use super::mcp::config::ServerConfig;
use super::rules::{Rule, WHOLE};
use super::skills::{self, Skill};
use super::sources::{Choice, Source};
use super::survey::{Looks, Survey};
use crate::tools::native;

/// How deep nested settings lie at most.
const DEEPEST: usize = 10;
/// Folders looked into for nested settings.
const MOST_FOLDERS: usize = 50_000;
/// The time for it.
const LONGEST: Duration = Duration::from_secs(3);
/// Rules and skills that are told.
const MOST_FILES: usize = 500;
/// Folders with nothing of the user's.
const FOREIGN: [&str; 3] = ["node_modules", "__pycache__", "target"];

/// The administrator's hooks.
#[cfg(target_os = "macos")]
const ADMINISTRATOR: &str = "/Library/Application Support/Cursor/hooks.json";
#[cfg(not(target_os = "macos"))]
const ADMINISTRATOR: &str = "/etc/cursor/hooks.json";

/// Where to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) workspace: PathBuf,
    pub(super) home: Option<PathBuf>,
    pub(super) choice: Choice,
}

/// What was found, and how everything looked.
#[derive(Debug, Default)]
pub(super) struct Scanned {
    pub(super) rules: Vec<Rule>,
    pub(super) skills: Vec<Skill>,
    pub(super) servers: Vec<ServerConfig>,
    pub(super) hooks: Vec<Hook>,
    pub(super) notices: Vec<String>,
    pub(super) looks: Looks,
}

/// Reads the settings of a place. Takes its time: not for async threads.
pub(super) fn scan(place: &Place) -> Scanned {
    let mut scan = Scan {
        place,
        survey: Survey::default(),
        taken: BTreeSet::new(),
        rules: Vec::new(),
        skills: Vec::new(),
        servers: Vec::new(),
        hooks: Vec::new(),
    };
    if place.choice.has(Source::Mdm) {
        let file = Path::new(ADMINISTRATOR);
        scan.hook_file(
            file,
            None,
            file.parent().unwrap_or(file),
            &Standing::Trusted,
        );
    }
    if place.choice.has(Source::Project) {
        scan.project();
    }
    if place.choice.has(Source::User)
        && let Some(home) = &place.home
    {
        scan.user(home);
    }
    Scanned {
        rules: scan.rules,
        skills: scan.skills,
        servers: scan.servers,
        hooks: scan.hooks,
        notices: scan.survey.notices,
        looks: scan.survey.looks,
    }
}

struct Scan<'a> {
    place: &'a Place,
    survey: Survey,
    /// Files that have been read, and skills by their place in whatever folder of skills.
    taken: BTreeSet<PathBuf>,
    rules: Vec<Rule>,
    skills: Vec<Skill>,
    servers: Vec<ServerConfig>,
    hooks: Vec<Hook>,
}

impl Scan<'_> {
    fn project(&mut self) {
        let workspace = self.place.workspace.clone();
        let home = self.place.home.clone();
        let repository = workspace
            .ancestors()
            .find(|folder| folder.join(".git").exists())
            .unwrap_or(&workspace)
            .to_owned();
        let old = repository.join(".cursorrules");
        if let Some(text) = self.read(&old, Some(&repository)) {
            self.rules.push(Rule::whole(&old, text));
        }
        for folder in workspace.ancestors() {
            // Anybody may put a file into a folder such as /tmp.
            if !folder.starts_with(&repository) && !is_ours(folder) {
                continue;
            }
            if Some(folder) != home.as_deref() {
                self.rule_folder(&folder.join(".cursor/rules"), Some(folder));
            }
            for name in WHOLE {
                self.whole(&folder.join(name), folder);
            }
        }
        self.skill_folders(&workspace, Some(&workspace));
        if Some(&workspace) != home.as_ref() {
            self.project_servers(&workspace);
            self.project_hooks(&workspace);
            if workspace.parent().is_some() {
                self.nested(&workspace);
            }
        }
    }

    fn user(&mut self, home: &Path) {
        self.rule_folder(&home.join(".cursor/rules"), None);
        self.skill_folders(home, None);
        self.skill_folder(&home.join(".cursor/skills-cursor"), None);
        let servers = self.server_file(&home.join(".cursor/mcp.json"), None);
        self.add_servers(servers);
        let folder = home.join(".cursor");
        self.hook_file(
            &folder.join("hooks.json"),
            None,
            &folder,
            &Standing::Trusted,
        );
    }

    /// A file's text, once; `None` if the user keeps it from the model.
    fn read(&mut self, path: &Path, within: Option<&Path>) -> Option<String> {
        if self.rules.len() + self.skills.len() >= MOST_FILES
            || !self.taken.insert(path.to_owned())
            || native::is_ignored(&self.place.workspace, path)
        {
            return None;
        }
        self.survey.text(path, within)
    }

    fn whole(&mut self, path: &Path, within: &Path) {
        if let Some(text) = self.read(path, Some(within)) {
            self.rules.push(Rule::whole(path, text));
        }
    }

    fn headed(&mut self, path: &Path, within: Option<&Path>) {
        if let Some(text) = self.read(path, within) {
            self.rules.extend(Rule::headed(path, &text));
        }
    }

    fn skill(&mut self, path: &Path, within: Option<&Path>) {
        if let Some(same) = across_folders(path)
            && !self.taken.insert(same)
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

    /// Files in a folder and those in it, in order.
    fn below(&mut self, folder: &Path, wanted: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut folders = vec![(folder.to_owned(), 0)];
        while let Some((folder, depth)) = folders.pop() {
            for name in self.survey.names(&folder) {
                let path = folder.join(&name);
                if wanted(&name) {
                    files.push(path);
                } else if depth < DEEPEST
                    && folders.len() + files.len() < MOST_FILES
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

    /// What lies further down in the workspace.
    fn nested(&mut self, workspace: &Path) {
        let started = Instant::now();
        let walk = WalkBuilder::new(workspace)
            .hidden(false)
            .parents(true)
            .max_depth(Some(DEEPEST))
            .add_custom_ignore_filename(".cursorignore")
            .filter_entry(|entry| {
                let name = entry.file_name().to_string_lossy();
                let folder = entry.file_type().is_some_and(|kind| kind.is_dir());
                let config = |name: &str| skills::FOLDERS.iter().any(|(config, _)| *config == name);
                !folder
                    || entry.depth() == 0
                    || !(name.starts_with('.') && !config(&name) || FOREIGN.contains(&&*name))
            })
            .build();
        let mut folders = 0;
        let mut found = Vec::new();
        for entry in walk.filter_map(Result::ok) {
            if entry.file_type().is_some_and(|kind| kind.is_dir()) {
                folders += 1;
                self.survey.note(entry.path());
            } else if kind(entry.path(), workspace).is_some() {
                found.push(entry.into_path());
            }
            if folders > MOST_FOLDERS || started.elapsed() > LONGEST {
                self.survey.notices.push(format!(
                    "{} is large: rules and skills deep inside it may have been left out",
                    workspace.display()
                ));
                break;
            }
        }
        found.sort_unstable();
        for path in found {
            match kind(&path, workspace) {
                Some(Kind::Whole) => self.whole(&path, workspace),
                Some(Kind::Headed) => self.headed(&path, Some(workspace)),
                Some(Kind::Skill) => self.skill(&path, Some(workspace)),
                None => {}
            }
        }
    }
}

enum Kind {
    Whole,
    Headed,
    Skill,
}

/// What a nested file is.
fn kind(path: &Path, workspace: &Path) -> Option<Kind> {
    let name = path.file_name()?.to_str()?;
    // Most files are none of it: they cost no more than a look at their names.
    if !name.ends_with(".mdc") && name != skills::FILE && !WHOLE.contains(&name) {
        return None;
    }
    let inside = path.strip_prefix(workspace).ok()?;
    let parts: Vec<&str> = inside.iter().filter_map(|part| part.to_str()).collect();
    let lies_in =
        |config: &str, folder: &str| parts.windows(2).any(|pair| pair == [config, folder]);
    if name.ends_with(".mdc") && lies_in(".cursor", "rules") {
        Some(Kind::Headed)
    } else if name == skills::FILE
        && skills::FOLDERS
            .iter()
            .any(|(config, folder)| lies_in(config, folder))
    {
        Some(Kind::Skill)
    } else if WHOLE.contains(&name) && !parts.iter().any(|part| part.starts_with('.')) {
        Some(Kind::Whole)
    } else {
        None
    }
}

/// The place of a skill without the name of the folder of skills it lies in: the same skill
/// is often kept for several agents.
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

/// Whether nobody but us and the administrator can have put files there.
fn is_ours(folder: &Path) -> bool {
    let us = rustix::process::geteuid().as_raw();
    folder.metadata().is_ok_and(|folder| {
        let others_write = folder.mode() & 0o022 != 0;
        (folder.uid() == us || folder.uid() == 0) && !others_write
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::settings::hooks::config::Asked;
    use crate::tools::settings::mcp::config::Way;
    use crate::tools::settings::sources::Trust;
    use std::fs;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn found(place: &Place) -> (Vec<String>, Vec<String>) {
        let root = place.workspace.parent().unwrap().to_owned();
        let name = |path: &Path| path.strip_prefix(&root).unwrap().display().to_string();
        let scanned = scan(place);
        assert!(scanned.looks.hold());
        (
            scanned.rules.iter().map(|rule| name(&rule.path)).collect(),
            scanned
                .skills
                .iter()
                .map(|skill| name(&skill.path))
                .collect(),
        )
    }

    #[test]
    fn everything_in_its_place_is_found_once() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let rule = "---\nalwaysApply: true\n---\nx";
        for (path, text) in [
            ("AGENTS.md", "above"),
            ("work/.git/HEAD", ""),
            ("work/.gitignore", "/.cursor\n/made\n"),
            ("work/.cursorignore", "kept\n"),
            ("work/.cursorrules", "old"),
            ("work/AGENTS.md", "here"),
            ("work/CLAUDE.md", "here too"),
            ("work/.cursor/rules/a/one.mdc", rule),
            ("work/.cursor/rules/notes.txt", ""),
            ("work/.cursor/rules/plain.mdc", "no head"),
            (
                "work/.cursor/skills/fly/SKILL.md",
                "---\ndescription: d\n---\n",
            ),
            ("work/.claude/skills/fly/SKILL.md", "the same"),
            (
                "work/.agents/skills/swim/SKILL.md",
                "---\ndescription: d\n---\n",
            ),
            ("work/deep/down/AGENTS.md", "nested"),
            ("work/deep/.cursor/rules/two.mdc", rule),
            ("work/deep/.cursor/AGENTS.md", "not a rule"),
            ("work/made/AGENTS.md", "ignored by git"),
            ("work/kept/AGENTS.md", "kept from the model"),
            ("work/node_modules/x/AGENTS.md", "foreign"),
            ("home/.cursor/rules/mine.mdc", rule),
            (
                "home/.cursor/skills-cursor/own/SKILL.md",
                "---\ndescription: d\n---\n",
            ),
        ] {
            write(&root, path, text);
        }
        let mut place = Place {
            workspace: root.join("work"),
            home: Some(root.join("home")),
            choice: Choice::default(),
        };
        let (rules, skills) = found(&place);
        assert_eq!(
            rules,
            [
                "work/.cursorrules",
                "work/.cursor/rules/a/one.mdc",
                "work/AGENTS.md",
                "work/CLAUDE.md",
                "AGENTS.md",
                "work/deep/.cursor/rules/two.mdc",
                "work/deep/down/AGENTS.md",
                "home/.cursor/rules/mine.mdc",
            ]
        );
        assert_eq!(
            skills,
            [
                "work/.cursor/skills/fly/SKILL.md",
                "work/.agents/skills/swim/SKILL.md",
                "home/.cursor/skills-cursor/own/SKILL.md",
            ]
        );
        place.choice = Choice::nothing();
        assert_eq!(found(&place), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_nested_file_that_appears_shows() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        write(&root, "a/b/c.txt", "");
        let place = Place {
            workspace: root.clone(),
            home: None,
            choice: Choice::default(),
        };
        let before = scan(&place);
        assert!(before.looks.hold());
        write(&root, "a/b/AGENTS.md", "new");
        assert!(!before.looks.hold());
        assert_eq!(scan(&place).rules[0].content, "new");
    }

    #[test]
    fn files_of_others_above_the_workspace_are_not_ours() {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().join("shared");
        fs::create_dir(&shared).unwrap();
        assert!(is_ours(&shared));
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(&shared, open).unwrap();
        assert!(!is_ours(&shared));
    }

    #[test]
    fn a_projects_commands_count_once_it_is_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let server =
            |program: &str| format!(r#"{{"mcpServers": {{"s": {{"command": "{program}"}}}}}}"#);
        write(&root, "work/.cursor/mcp.json", &server("theirs"));
        write(&root, "home/.cursor/mcp.json", &server("mine"));
        let hooks = r#"{"version": 1, "hooks": {"preToolUse": [{"command": "x"}]}}"#;
        write(&root, "work/.cursor/hooks.json", hooks);
        let looked = |trust: Trust| {
            let scanned = scan(&Place {
                workspace: root.join("work"),
                home: Some(root.join("home")),
                choice: Choice {
                    trust,
                    ..Choice::default()
                },
            });
            let own = |hook: &&Hook| matches!(hook.asked, Asked::Command { .. });
            let run = scanned.hooks.iter().filter(own).count();
            let Way::Command { program, .. } = &scanned.servers[0].way else {
                panic!("{scanned:?}");
            };
            (program.clone(), run, scanned.notices.len())
        };
        assert_eq!(looked(Trust::Nobody), ("mine".into(), 0, 2));
        let here = Trust::Folders(vec![root.join("work")]);
        assert_eq!(looked(here), ("theirs".into(), 1, 0));
    }
}
