//! Reads the state of the workspace's git repository.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::shell::process_group;
use cursor_proto::agent::v1::GitRepoInfo;

/// The time limit for git, which runs in the background.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a status in bytes.
const MAX_STATUS: usize = 32 * 1024;
/// Maximum size of git's output in bytes.
const MAX_OUTPUT: u64 = 32 * 1024 * 1024;

/// Submodules are compared by their commits only.
const STATUS_OPTIONS: [&str; 1] = ["--ignore-submodules=dirty"];
/// As above, and no external program renders the differences. `--submodule=short` because with
/// `diff.submodule=diff` git starts another `git diff` inside each changed submodule, without the
/// options that keep it from running what the submodule configures.
const DIFF_OPTIONS: [&str; 4] = [
    "--ignore-submodules=dirty",
    "--submodule=short",
    "--no-ext-diff",
    "--no-textconv",
];

/// The repositories of a workspace.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Repositories {
    /// The repository that contains the workspace, if any.
    pub(crate) found: Vec<GitRepoInfo>,
    /// Whether git answered in time.
    pub(crate) complete: bool,
}

/// How much processor time git gets beside other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// As much as they.
    Normal,
    /// Little.
    Background,
}

/// Queries git about the workspace. Calls the function with what is known before the status,
/// which takes long in a large repository. Starts no process outside a repository.
pub(crate) async fn repositories(
    workspace: &Path,
    priority: Priority,
    without_status: impl FnOnce(Repositories),
) -> Repositories {
    let folder = workspace.to_owned();
    let is_repository = tokio::task::spawn_blocking(move || is_in_repository(&folder));
    if !is_repository.await.unwrap_or(true) {
        return Repositories {
            found: Vec::new(),
            complete: true,
        };
    }
    let found = async {
        let found = repository(workspace, priority).await;
        if let Some(found) = found.clone() {
            without_status(Repositories {
                found: vec![found],
                complete: false,
            });
        }
        found
    };
    let status = git_with(workspace, &["status", "--short", "--branch"], priority);
    let asked = async { tokio::join!(found, status) };
    let Ok((found, status)) = tokio::time::timeout(TIMEOUT, asked).await else {
        return Repositories::default();
    };
    let with_status = |found| GitRepoInfo {
        status: shortened(status.unwrap_or_default()),
        ..found
    };
    Repositories {
        found: found.map(with_status).into_iter().collect(),
        complete: true,
    }
}

/// Whether the workspace or a folder above it has a `.git`, which is a file in a worktree.
fn is_in_repository(workspace: &Path) -> bool {
    let real = workspace.canonicalize();
    let real = real.as_deref().unwrap_or(workspace);
    real.ancestors().any(|folder| folder.join(".git").exists())
}

/// Returns the repository that contains the workspace, without its status.
async fn repository(workspace: &Path, priority: Priority) -> Option<GitRepoInfo> {
    let git = |args| git_with(workspace, args, priority);
    let root = git(&["rev-parse", "--show-toplevel"]);
    let branch = git(&["symbolic-ref", "--short", "--quiet", "HEAD"]);
    let remote = git(&["config", "--get", "remote.origin.url"]);
    let (root, branch, remote) = tokio::join!(root, branch, remote);
    let line = |text: Option<String>| text.map(|text| text.trim().to_owned());
    let path = line(root).filter(|path| !path.is_empty())?;
    Some(GitRepoInfo {
        path,
        status: String::new(),
        branch_name: line(branch).unwrap_or_default(),
        remote_url: line(remote)
            .filter(|url| !url.is_empty())
            .map(|url| without_credentials(&url)),
        previous_branch_is_ancestor: None,
        is_origin_backed: Some(false),
    })
}

/// Returns git's output, up to a limit; `None` if git fails. Nothing that a repository configures
/// is run: no filter, monitor, hook or fetch, neither its own nor that of a nested repository.
pub(crate) async fn git(folder: &Path, args: &[&str]) -> Option<String> {
    git_with(folder, args, Priority::Normal).await
}

async fn git_with(folder: &Path, args: &[&str], priority: Priority) -> Option<String> {
    let mut all: Vec<String> = Vec::new();
    // These commands read file contents.
    let reads_files = matches!(args.first(), Some(&("status" | "diff")));
    if reads_files {
        all.extend(without_filters(folder, priority).await?);
    }
    let (first, rest) = args.split_at(args.len().min(1));
    let safe: &[&str] = match args.first() {
        Some(&"diff") => &DIFF_OPTIONS,
        Some(&"status") => &STATUS_OPTIONS,
        _ => &[],
    };
    let args = first.iter().chain(safe).chain(rest);
    all.extend(args.map(|arg| (*arg).to_owned()));
    let (status, text) = run_git(folder, &all, priority).await?;
    (status == Some(0)).then_some(text)
}

/// Returns options that turn off all filters, the user's too, because the repository often
/// decides what they do.
async fn without_filters(folder: &Path, priority: Priority) -> Option<Vec<String>> {
    let list = ["config", "-z", "--name-only", "--get-regexp", r"^filter\."];
    let names = match run_git(folder, &list.map(str::to_owned), priority).await? {
        (Some(0), names) => names,
        (Some(1), _) => return Some(Vec::new()), // there is none
        _ => return None,
    };
    let driver = |name: &str| Some(name.strip_prefix("filter.")?.rsplit_once('.')?.0.to_owned());
    let drivers: BTreeSet<String> = names.split('\0').filter_map(driver).collect();
    let off = ["clean=", "smudge=", "process=", "required=false"];
    // A filter whose name cannot be passed on a command line cannot be turned off.
    let clear = |driver: &String| !driver.contains(['=', '\n', '\u{fffd}']);
    drivers.iter().all(clear).then(|| {
        let settings = |driver: &String| {
            off.map(|setting| ["-c".into(), format!("filter.{driver}.{setting}")])
        };
        drivers.iter().flat_map(settings).flatten().collect()
    })
}

/// Runs git and returns its exit code and output.
async fn run_git(
    folder: &Path,
    args: &[String],
    priority: Priority,
) -> Option<(Option<i32>, String)> {
    let mut command = Command::new("git");
    process_group::scrub(&mut command);
    let mut child = command
        .args(["-c", "core.fsmonitor=false", "-c", "core.quotePath=true"])
        .args(["-c", "core.hooksPath=/dev/null"])
        .args(["-c", "diff.submodule=short"])
        .args(["-c", "status.submoduleSummary=false"])
        // A signature is verified by a program that the repository may name.
        .args(["-c", "log.showSignature=false"])
        .args(args)
        .current_dir(folder)
        .env("GIT_OPTIONAL_LOCKS", "0")
        // Missing objects are not fetched.
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_ALLOW_PROTOCOL", "none")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .ok()?;
    if priority == Priority::Background {
        process_group::lower_priority(&child);
    }
    let mut output = Vec::new();
    let mut pipe = child.stdout.take()?.take(MAX_OUTPUT);
    pipe.read_to_end(&mut output).await.ok()?;
    drop(pipe); // Output above the limit fails with a broken pipe.
    let status = child.wait().await.ok()?;
    let text = String::from_utf8_lossy(&output).into_owned();
    Some((status.code(), text))
}

/// Cuts a long status at a line and appends how many lines are missing.
fn shortened(status: String) -> String {
    if status.len() <= MAX_STATUS {
        return status;
    }
    let mut end = MAX_STATUS;
    while !status.is_char_boundary(end) {
        end -= 1;
    }
    let shown = status[..end].rfind('\n').map_or(end, |line| line + 1);
    let more = status[shown..].lines().count();
    format!("{}... and {more} more\n", &status[..shown])
}

/// Removes credentials from a URL, because the server does not need them.
fn without_credentials(url: &str) -> String {
    let Ok(mut parsed) = url::Url::parse(url) else {
        return url.to_owned();
    };
    if parsed.password().is_none() && parsed.username().is_empty() {
        return url.to_owned();
    }
    // Only URLs without a host refuse this, and those carry no credentials.
    let _ = parsed.set_password(None);
    if parsed.scheme() != "ssh" {
        let _ = parsed.set_username("");
    }
    parsed.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_folder_without_a_repository_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let found = repositories(folder.path(), Priority::Normal, drop).await;
        assert_eq!(found.found, []);
        assert!(found.complete);
    }

    #[tokio::test]
    async fn branch_status_and_remote_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let made = git(&real, &["init", "--quiet", "--initial-branch", "trunk"]).await;
        assert!(made.is_some());
        let remote = "https://user:secret@example.org/x.git";
        git(&real, &["remote", "add", "origin", remote])
            .await
            .unwrap();
        std::fs::write(real.join("new.txt"), "x").unwrap();
        let found = repositories(&real, Priority::Normal, drop)
            .await
            .found
            .remove(0);
        assert_eq!(found.path, real.to_string_lossy());
        assert_eq!(found.branch_name, "trunk");
        assert_eq!(found.status, "## No commits yet on trunk\n?? new.txt\n");
        assert_eq!(found.remote_url.unwrap(), "https://example.org/x.git");
    }

    #[tokio::test]
    async fn nothing_a_repository_configures_is_run() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let (work, ran) = (real.join("work"), real.join("ran"));
        std::fs::create_dir_all(work.join("inner")).unwrap();
        let evil = format!("touch '{}'; cat", ran.display());
        let did = async |folder: &Path, args: &[&str]| {
            let me = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
            git(folder, &[&me, args].concat()).await.unwrap();
        };
        for folder in [work.join("inner"), work.clone()] {
            std::fs::write(folder.join("f"), "one\n").unwrap();
            did(&folder, &["init", "--quiet"]).await;
            did(&folder, &["add", "."]).await;
            did(&folder, &["commit", "--quiet", "-m", "x"]).await;
            for (name, value) in [
                ("filter.evil.clean", evil.as_str()),
                ("filter.evil.required", "true"),
                ("filter.a.b.process", &evil),
                ("core.fsmonitor", &evil),
                ("submodule.inner.ignore", "none"),
            ] {
                did(&folder, &["config", name, value]).await;
            }
            let attributes = "f filter=evil\ng filter=a.b\n";
            std::fs::write(folder.join(".git/info/attributes"), attributes).unwrap();
            std::fs::write(folder.join("f"), "two\n").unwrap();
        }
        // A repository already in the index, and another one nested inside it.
        let status = repositories(&work, Priority::Background, drop)
            .await
            .found
            .remove(0)
            .status;
        assert!(status.ends_with("\n M f\n"), "{status}");
        let diff = git(&work, &["diff", "HEAD"]).await.unwrap();
        assert!(diff.contains("-one\n+two\n"), "{diff}");
        assert!(!ran.exists());
        // Nor in a submodule whose commit has changed, which git would compare in a separate
        // process.
        let inner = work.join("inner");
        std::fs::remove_file(inner.join(".git/info/attributes")).unwrap();
        did(&inner, &["commit", "--quiet", "--allow-empty", "-m", "y"]).await;
        let script = real.join("external.sh");
        std::fs::write(&script, format!("#!/bin/sh\n{evil}\n")).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, executable).unwrap();
        let script = script.to_str().unwrap();
        for folder in [&work, &inner] {
            for (name, value) in [
                ("diff.submodule", "diff"),
                ("diff.external", script),
                ("diff.evil.command", script),
                ("diff.evil.textconv", script),
                ("status.submoduleSummary", "true"),
            ] {
                did(folder, &["config", name, value]).await;
            }
            let attributes = "f filter=evil diff=evil\ng filter=a.b\n";
            std::fs::write(folder.join(".git/info/attributes"), attributes).unwrap();
        }
        let diff = git(&work, &["diff", "HEAD"]).await.unwrap();
        assert!(diff.contains("+Subproject commit "), "{diff}");
        assert!(diff.contains("-one\n+two\n"), "{diff}");
        let status = repositories(&work, Priority::Background, drop)
            .await
            .found
            .remove(0)
            .status;
        assert!(status.contains(" M inner\n"), "{status}");
        assert!(!ran.exists());
        // If a filter cannot be turned off, nothing is returned.
        did(&work, &["config", "filter.a=b.clean", &evil]).await;
        assert_eq!(git(&work, &["status"]).await, None);
        assert!(!ran.exists());
    }

    #[test]
    fn a_long_status_is_cut_at_a_line() {
        let long = "?? some/file.txt\n".repeat(10_000);
        let cut = shortened(long);
        assert!(cut.len() < MAX_STATUS + 64);
        assert!(cut.ends_with(" more\n"));
    }
}
