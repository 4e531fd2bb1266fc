//! Paths that native tools do not change, because other programs (git, pi, editors, shells)
//! execute what is written there. Otherwise a model that may write files but not run commands
//! could still run them.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// The setting that changes the list.
pub(crate) const SETTING: &str = "PI_CURSOR_PROTECTED_PATHS";

/// What is protected unless the setting says otherwise: patterns as in `.gitignore`; those that
/// start with `~/` are relative to the home directory.
pub const DEFAULT: [&str; 12] = [
    GIT,
    // The short name of `.git` on some file systems.
    "git~1",
    ".pi",
    ".husky",
    ".envrc",
    ".mcp.json",
    "**/.cursor/*.json",
    "**/.claude/settings*",
    "**/.vscode/tasks.json",
    "**/.vscode/settings.json",
    "~/.*",
    "~/Library/LaunchAgents",
];
const GIT: &str = ".git";

/// Protected names that may be links to a file or directory with another name.
const LINKED: [&str; 14] = [
    ".git",
    ".pi",
    ".husky",
    ".envrc",
    ".mcp.json",
    ".cursor",
    ".cursor/hooks.json",
    ".cursor/mcp.json",
    ".claude",
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".vscode",
    ".vscode/tasks.json",
    ".vscode/settings.json",
];

/// The setting: patterns in order, exceptions with a `!`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedPaths(Vec<String>);

impl Default for ProtectedPaths {
    fn default() -> Self {
        Self(DEFAULT.map(str::to_owned).into())
    }
}

impl ProtectedPaths {
    /// Parses the setting: `default`, `off`, patterns to add, and exceptions. `off` drops everything
    /// before it. Returns the parts that are not understood too; they change nothing.
    pub fn parse(text: &str) -> (Self, Vec<String>) {
        let mut protected = Self::default();
        let mut invalid = Vec::new();
        for part in text.split(',').map(str::trim) {
            match part {
                "" => {}
                part if part.eq_ignore_ascii_case("default") => {}
                part if part.eq_ignore_ascii_case("off") => protected.0.clear(),
                part if is_pattern(part) => protected.0.push(part.to_owned()),
                part => invalid.push(part.to_owned()),
            }
        }
        (protected, invalid)
    }

    /// Returns the protected paths of a workspace. Both paths must have their links resolved.
    pub(crate) fn for_workspace(
        &self,
        workspace: &Path,
        home: Option<&Path>,
    ) -> ProtectedPathRules {
        ProtectedPathRules {
            workspace: workspace.to_owned(),
            home: home.map(Path::to_owned),
            protected: self.clone(),
            patterns: OnceLock::new(),
        }
    }

    fn compile(&self) -> CompiledPatterns {
        let mut inside = builder();
        let mut at_home = builder();
        for pattern in &self.0 {
            let (sign, rest) = match pattern.strip_prefix('!') {
                Some(rest) => ("!", rest),
                None => ("", pattern.as_str()),
            };
            let rest = rest.to_lowercase();
            // Patterns that do not parse were dropped with a warning before.
            let _ = match rest.strip_prefix('~') {
                Some(rest) => at_home.add_line(None, &format!("{sign}{rest}")),
                None => inside.add_line(None, &format!("{sign}{rest}")),
            };
        }
        let build =
            |builder: GitignoreBuilder| builder.build().unwrap_or_else(|_| Gitignore::empty());
        CompiledPatterns {
            inside: build(inside),
            at_home: build(at_home),
            git: self.0.iter().any(|pattern| pattern == GIT),
        }
    }
}

/// Returns a builder without a root, because paths are made relative before they are matched.
fn builder() -> GitignoreBuilder {
    GitignoreBuilder::new("")
}

/// Returns whether a part of the setting is a valid pattern and not a mistyped keyword.
fn is_pattern(part: &str) -> bool {
    part.contains(['.', '/', '*']) && builder().add_line(None, part).is_ok()
}

/// The protected paths of one workspace.
#[derive(Debug, Clone)]
pub(crate) struct ProtectedPathRules {
    workspace: PathBuf,
    home: Option<PathBuf>,
    protected: ProtectedPaths,
    /// Compiled at the first change, because most runs change nothing here.
    patterns: OnceLock<CompiledPatterns>,
}

#[derive(Debug, Clone)]
struct CompiledPatterns {
    inside: Gitignore,
    at_home: Gitignore,
    /// Whether git directories with other names are protected too.
    git: bool,
}

impl ProtectedPathRules {
    /// Returns the rule that protects an absolute path, or `None`. If the path has its links
    /// resolved, protected names that are links to it protect it as well.
    pub(crate) fn rule(&self, path: &Path) -> Option<String> {
        self.rule_by_name(path)
            .or_else(|| self.rule_through_links(path))
    }

    fn rule_by_name(&self, path: &Path) -> Option<String> {
        let patterns = self.patterns.get_or_init(|| self.protected.compile());
        let is_inside = path.starts_with(&self.workspace);
        let from = if is_inside {
            self.workspace.as_path()
        } else {
            Path::new("/")
        };
        let mut found = vec![("", matched(&patterns.inside, path, from))];
        if let Some(home) = &self.home
            && path.starts_with(home)
        {
            // A workspace inside a protected directory of the home directory may be changed.
            let exempt = is_inside && matched(&patterns.at_home, &self.workspace, home).is_ignore();
            if !exempt {
                found.push(("~", matched(&patterns.at_home, path, home)));
            }
        }
        if found.iter().any(|(_, found)| found.is_whitelist()) {
            return None;
        }
        let rule = found.iter().find_map(|(start, found)| match found {
            Match::Ignore(rule) => Some(format!("{start}{}", rule.original())),
            Match::Whitelist(_) | Match::None => None,
        });
        let in_git =
            || (patterns.git && is_inside && self.is_in_git_folder(path)).then(|| GIT.into());
        rule.or_else(in_git)
    }

    /// Returns whether a path is inside a git directory of any name, because a worktree or a
    /// submodule may keep it anywhere.
    fn is_in_git_folder(&self, path: &Path) -> bool {
        let folders = path.ancestors().skip(1);
        for folder in folders.take_while(|folder| folder.starts_with(&self.workspace)) {
            let has = |name: &str| folder.join(name);
            if has("HEAD").symlink_metadata().is_ok()
                && has("objects").is_dir()
                && has("refs").is_dir()
            {
                return true;
            }
            // The root of a work tree, which may itself be inside a git directory.
            if has(GIT).symlink_metadata().is_ok() {
                return false;
            }
        }
        false
    }

    /// Returns the rule of a protected name that is a link to the path or to a directory above it.
    fn rule_through_links(&self, path: &Path) -> Option<String> {
        let above = path.ancestors().skip(1);
        let folders = above.take_while(|folder| folder.starts_with(&self.workspace));
        let roots = [Some(self.workspace.as_path()), self.home.as_deref()];
        for folder in folders.chain(roots.into_iter().flatten()) {
            for name in LINKED {
                let name = folder.join(name);
                let Ok(real) = name.canonicalize() else {
                    continue;
                };
                if real == name {
                    continue;
                }
                let Ok(rest) = path.strip_prefix(&real) else {
                    continue;
                };
                let by_name = if rest.as_os_str().is_empty() {
                    name
                } else {
                    name.join(rest)
                };
                if let Some(rule) = self.rule_by_name(&by_name) {
                    return Some(rule);
                }
            }
        }
        None
    }
}

/// Matches a path and its parents, relative to `from`, against patterns.
fn matched<'a>(
    patterns: &'a Gitignore,
    path: &Path,
    from: &Path,
) -> Match<&'a ignore::gitignore::Glob> {
    match path.strip_prefix(from) {
        Ok(rest) if !rest.as_os_str().is_empty() => {
            patterns.matched_path_or_any_parents(fold(rest), false)
        }
        _ => Match::None,
    }
}

/// Returns a path as case-insensitive file systems compare it; some also ignore invisible
/// characters.
fn fold(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    let seen = text.chars().filter(|letter| {
        !matches!(letter,
            '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
    });
    // To upper case first, because some lower-case letters share one upper-case letter.
    let capitals: String = seen.flat_map(char::to_uppercase).collect();
    capitals.to_lowercase().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn rule(protected: &ProtectedPaths, workspace: &str, path: &str) -> Option<String> {
        let home = Some(Path::new("/no/home"));
        let protection = protected.for_workspace(Path::new(workspace), home);
        protection.rule(&Path::new(workspace).join(path))
    }

    #[test]
    fn files_other_programs_execute_are_protected_at_any_depth_in_any_case() {
        for (path, expected) in [
            (".git", ".git"),
            (".git/config", ".git"),
            ("a/b/.git/hooks/pre-commit", ".git"),
            (".GIT/config", ".git"),
            (".g\u{200c}it/config", ".git"),
            ("GIT~1/config", "git~1"),
            (".pi/extensions/evil.ts", ".pi"),
            (".husky/pre-push", ".husky"),
            ("sub/.envrc", ".envrc"),
            (".mcp.json", ".mcp.json"),
            (".cursor/sandbox.json", "**/.cursor/*.json"),
            ("sub/.Cur\u{17f}or/environment.JSON", "**/.cursor/*.json"),
            (".claude/settings.local.json", "**/.claude/settings*"),
            ("x/.vscode/tasks.json", "**/.vscode/tasks.json"),
            (".vscode/settings.json", "**/.vscode/settings.json"),
        ] {
            let found = rule(&ProtectedPaths::default(), "/no/ws", path);
            assert_eq!(found.as_deref(), Some(expected), "{path}");
        }
        for path in [
            "",
            "src/main.rs",
            ".gitignore",
            ".github/workflows/ci.yml",
            ".cursor/rules/a.mdc",
            ".cursor/rules/a.json",
            ".claude/commands/x.md",
            ".vscode/launch.json",
            "git/config",
            ".env",
        ] {
            let found = rule(&ProtectedPaths::default(), "/no/ws", path);
            assert_eq!(found, None, "{path}");
        }
        // The directories above the workspace are not matched.
        let nested = rule(&ProtectedPaths::default(), "/no/.claude/.git/ws", "a.rs");
        assert_eq!(nested, None);
    }

    #[test]
    fn dotfiles_of_the_home_directory_are_protected_unless_the_workspace_is_there() {
        let protected = ProtectedPaths::default();
        let home = Some(Path::new("/no/home"));
        for (workspace, path, expected) in [
            ("/no/home", "/no/home/.bashrc", true),
            ("/no/home", "/no/home/.ssh/authorized_keys", true),
            ("/no/home", "/no/home/.config/autostart/x.desktop", true),
            ("/no/home", "/no/home/Library/LaunchAgents/x.plist", true),
            ("/no", "/no/home/.profile", true),
            ("/no/home", "/no/home/src/.eslintrc", false),
            ("/no/home", "/no/home/notes.txt", false),
            ("/no/home/src", "/no/home/.bashrc", true),
            (
                "/no/home/.config/nvim",
                "/no/home/.config/nvim/init.lua",
                false,
            ),
            (
                "/no/home/.config/nvim",
                "/no/home/.config/nvim/.git/config",
                true,
            ),
        ] {
            let protection = protected.for_workspace(Path::new(workspace), home);
            let found = protection.rule(Path::new(path));
            assert_eq!(found.is_some(), expected, "{workspace} {path}: {found:?}");
        }
    }

    #[test]
    fn the_setting_adds_removes_and_turns_off_patterns() {
        assert_eq!(
            ProtectedPaths::parse("default"),
            (ProtectedPaths::default(), Vec::new())
        );
        assert_eq!(
            ProtectedPaths::parse(""),
            (ProtectedPaths::default(), Vec::new())
        );
        let (more, warnings) =
            ProtectedPaths::parse("infra/**, *.lock, !.vscode/settings.json,!.pi/skills/**");
        assert!(warnings.is_empty(), "{warnings:?}");
        for (path, expected) in [
            ("infra/main.tf", true),
            ("sub/infra/main.tf", false),
            ("sub/Cargo.lock", true),
            (".vscode/settings.json", false),
            (".vscode/tasks.json", true),
            (".pi/skills/a.md", false),
            (".pi/extensions/a.ts", true),
            (".git/config", true),
        ] {
            let found = rule(&more, "/no/ws", path);
            assert_eq!(found.is_some(), expected, "{path}: {found:?}");
        }
        let (off, _) = ProtectedPaths::parse("off");
        assert_eq!(rule(&off, "/no/ws", ".git/config"), None);
        let (only, _) = ProtectedPaths::parse("off,secrets/**");
        assert_eq!(rule(&only, "/no/ws", ".git/config"), None);
        assert!(rule(&only, "/no/ws", "secrets/a").is_some());
        // A mistyped keyword removes nothing.
        let (mistyped, warnings) = ProtectedPaths::parse("of");
        assert_eq!(mistyped, ProtectedPaths::default());
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn git_folders_are_protected_under_any_name_and_links_do_not_hide_one() {
        let root = tempfile::tempdir().unwrap();
        let workspace = root.path().canonicalize().unwrap();
        for folder in [".bare/objects", ".bare/refs", "work/src", "conf", "p"] {
            fs::create_dir_all(workspace.join(folder)).unwrap();
        }
        fs::write(workspace.join(".bare/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(
            workspace.join("work/.git"),
            "gitdir: ../.bare/worktrees/work\n",
        )
        .unwrap();
        fs::write(workspace.join("conf/tasks.json"), "{}").unwrap();
        symlink("p", workspace.join(".pi")).unwrap();
        fs::create_dir(workspace.join(".vscode")).unwrap();
        symlink("../conf/tasks.json", workspace.join(".vscode/tasks.json")).unwrap();
        let protection = ProtectedPaths::default().for_workspace(&workspace, None);
        for (path, expected) in [
            (".bare/config", Some(".git")),
            (".bare/hooks/post-checkout", Some(".git")),
            ("work/.git", Some(".git")),
            ("work/src/a.rs", None),
            ("p/extensions/a.ts", Some(".pi")),
            ("conf/tasks.json", Some("**/.vscode/tasks.json")),
            ("conf/other.json", None),
        ] {
            let found = protection.rule(&workspace.join(path));
            assert_eq!(found.as_deref(), expected, "{path}");
        }
        // A work tree inside a git directory is still a work tree.
        fs::create_dir_all(workspace.join(".bare/main/src")).unwrap();
        fs::write(workspace.join(".bare/main/.git"), "gitdir: ..\n").unwrap();
        assert_eq!(
            protection.rule(&workspace.join(".bare/main/src/a.rs")),
            None
        );
    }
}
