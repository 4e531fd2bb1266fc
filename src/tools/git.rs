//! What git says of the workspace.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use super::native;
use crate::wire::proto::agent::v1::GitRepoInfo;

/// A context must not wait for a slow disk.
const PATIENCE: Duration = Duration::from_secs(3);
/// What is told of a long status.
const MAX_STATUS: usize = 32 * 1024;
/// What git may answer at all.
const MAX_OUTPUT: u64 = 32 * 1024 * 1024;

/// What is known of repositories.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Repositories {
    /// The one the workspace is in, if it is in one.
    pub(super) found: Vec<GitRepoInfo>,
    /// Whether that is all there is to know.
    pub(super) complete: bool,
}

/// Asks git about the workspace.
pub(super) async fn repositories(workspace: &Path) -> Repositories {
    let root = git(workspace, &["rev-parse", "--show-toplevel"]);
    let status = git(workspace, &["status", "--short", "--branch"]);
    let branch = git(workspace, &["symbolic-ref", "--short", "--quiet", "HEAD"]);
    let remote = git(workspace, &["config", "--get", "remote.origin.url"]);
    let asked = async { tokio::join!(root, status, branch, remote) };
    let Ok((root, status, branch, remote)) = tokio::time::timeout(PATIENCE, asked).await else {
        return Repositories::default();
    };
    let line = |text: Option<String>| text.map(|text| text.trim().to_owned());
    let Some(path) = line(root).filter(|path| !path.is_empty()) else {
        return Repositories {
            found: Vec::new(),
            complete: true,
        };
    };
    let repository = GitRepoInfo {
        path,
        status: shortened(status.unwrap_or_default()),
        branch_name: line(branch).unwrap_or_default(),
        remote_url: line(remote)
            .filter(|url| !url.is_empty())
            .map(|url| without_credentials(&url)),
        previous_branch_is_ancestor: None,
        is_origin_backed: Some(false),
    };
    Repositories {
        found: vec![repository],
        complete: true,
    }
}

/// What git answers, up to a bound; `None` if it does not. Nothing a repository configures
/// is run.
pub(super) async fn git(folder: &Path, args: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    native::scrub(&mut command);
    let mut child = command
        .args(["-c", "core.fsmonitor=false", "-c", "core.quotePath=true"])
        .args(args)
        .current_dir(folder)
        .env("GIT_OPTIONAL_LOCKS", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .ok()?;
    let mut output = Vec::new();
    let mut pipe = child.stdout.take()?.take(MAX_OUTPUT);
    pipe.read_to_end(&mut output).await.ok()?;
    drop(pipe); // who has more to say is told that nobody listens
    let status = child.wait().await.ok()?;
    let text = String::from_utf8_lossy(&output).into_owned();
    status.success().then_some(text)
}

/// The first lines of a status.
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

/// A URL may carry a password; nobody needs it.
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
    async fn no_repository_is_an_answer_too() {
        let folder = tempfile::tempdir().unwrap();
        let found = repositories(folder.path()).await;
        assert_eq!(found.found, []);
        assert!(found.complete);
    }

    #[tokio::test]
    async fn branch_status_and_remote_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let made = git(&real, &["init", "--quiet", "--initial-branch", "trunk"]).await;
        assert!(made.is_some());
        let remote = "https://user:secret@example.org/x.git";
        git(&real, &["remote", "add", "origin", remote])
            .await
            .unwrap();
        std::fs::write(real.join("new.txt"), "x").unwrap();
        let found = repositories(&real).await.found.remove(0);
        assert_eq!(found.path, real.to_string_lossy());
        assert_eq!(found.branch_name, "trunk");
        assert_eq!(found.status, "## No commits yet on trunk\n?? new.txt\n");
        assert_eq!(found.remote_url.unwrap(), "https://example.org/x.git");
    }

    #[test]
    fn a_long_status_is_cut_at_a_line() {
        let long = "?? some/file.txt\n".repeat(10_000);
        let cut = shortened(long);
        assert!(cut.len() < MAX_STATUS + 64);
        assert!(cut.ends_with(" more\n"));
    }
}
