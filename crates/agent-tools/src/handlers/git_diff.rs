//! The changes in a repository, as git reports them.
//!
//! git finds the changes; file contents are read through the [`PathGuard`] as in every other tool.
//! The content of a link is its target path, and files hidden by the user are left out.

mod patch;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;

use super::io_errors;
use crate::ExecError;
use crate::prompts::tools;
use crate::shell::process_group::scrub;
use crate::workspace::git::git;
use crate::workspace::path_guard::PathGuard;
use cursor_proto::aiserver::v1::get_diff_request::OutputFormat;
use cursor_proto::aiserver::v1::{GetDiffRequest, GetDiffResponse, GitDiff};
use patch::Change;

/// How long git may take for one request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes of all files in one result together.
const MAX_CONTENTS: usize = 64 * 1024 * 1024;

/// Executes one diff request.
pub(super) async fn diff(
    guard: &Arc<PathGuard>,
    request: GetDiffRequest,
    abort: &CancellationToken,
) -> Result<GetDiffResponse, ExecError> {
    let answer = tokio::time::timeout(TIMEOUT, answer(guard, request));
    tokio::select! {
        answer = answer => answer.unwrap_or_else(|_| Err(failed(tools::GIT_TIMEOUT))),
        () = abort.cancelled() => Err(failed(tools::DIFF_CANCELLED)),
    }
}

async fn answer(
    guard: &Arc<PathGuard>,
    request: GetDiffRequest,
) -> Result<GetDiffResponse, ExecError> {
    let folder = guard.workspace().join(&request.cwd);
    let folder = folder
        .canonicalize()
        .map_err(|error| ExecError(io_errors::sentence(&error, "chdir", &folder)))?;
    let head = match request.r#ref.as_str() {
        "" => None,
        given => Some(commit(&folder, given).await?),
    };
    let mut base = commit(&folder, &base(&folder, &request.base_ref).await?).await?;
    if request.merge_base {
        let head = head.as_deref().unwrap_or("HEAD");
        let found = git(&folder, &["merge-base", &base, head]).await;
        base = found
            .ok_or_else(|| failed("git found no merge base"))?
            .trim()
            .to_owned();
    }
    let text = changes(&folder, &request, &base, head.as_deref()).await?;
    let patch_id = if request.compute_patch_id {
        patch_id(&folder, &text).await
    } else {
        None
    };
    let mut changes = patch::parse(&text);
    let top = git(&folder, &["rev-parse", "--show-toplevel"]).await;
    let top = PathBuf::from(top.unwrap_or_default().trim_end_matches('\n'));
    for change in &mut changes {
        change.resolve(&top);
    }
    let mut files = BoundedFiles {
        guard: Arc::clone(guard),
        room: MAX_CONTENTS,
    };
    changes.extend(untracked(&mut files, &folder, request.max_untracked_files).await?);
    changes.retain(|change| !change.paths().any(|path| guard.is_hidden(path)));
    if request.output_format() == OutputFormat::DiffsWithBeforeAndAfter {
        contents(&mut files, &folder, &base, head.as_deref(), &mut changes).await?;
    }
    let mut diffs: Vec<_> = changes.into_iter().map(|change| change.diff).collect();
    let with_chunks = matches!(
        request.output_format(),
        OutputFormat::FileDiffs | OutputFormat::Unspecified
    );
    for diff in &mut diffs {
        if !with_chunks {
            diff.chunks.clear();
        }
        // We do not guess which files are generated.
        diff.is_generated = Some(false);
    }
    let wants_head = request.return_head_sha == Some(true);
    let (head_sha, has_uncommitted_changes) = if wants_head {
        (
            git(&folder, &["rev-parse", "HEAD"])
                .await
                .map(|sha| sha.trim().to_owned()),
            git(
                &folder,
                &["status", "--porcelain=v1", "--untracked-files=all"],
            )
            .await
            .map(|status| !status.trim().is_empty()),
        )
    } else {
        (None, None)
    };
    let response = GetDiffResponse {
        diff: Some(GitDiff {
            diffs,
            ..GitDiff::default()
        }),
        patch_id,
        head_sha,
        has_uncommitted_changes,
        ..GetDiffResponse::default()
    };
    let (most, is) = (
        request.max_response_bytes.unwrap_or(0),
        response.encoded_len(),
    );
    if usize::try_from(most).is_ok_and(|most| most > 0 && is > most) {
        return Err(failed(&format!(
            "GetDiffResponseTooLarge: {is} bytes exceeds the {most} byte limit"
        )));
    }
    Ok(response)
}

fn failed(text: &str) -> ExecError {
    ExecError(text.into())
}

/// Returns git's diff of the tracked files.
async fn changes(
    folder: &Path,
    request: &GetDiffRequest,
    base: &str,
    head: Option<&str>,
) -> Result<String, ExecError> {
    let context = request
        .unified_context_lines
        .map(|lines| format!("-U{lines}"));
    let mut args = vec!["diff", "--no-color"];
    // The user's configuration may set other prefixes than the parser expects.
    args.extend(["--src-prefix=a/", "--dst-prefix=b/"]);
    if !request.include_space_changes {
        args.push("--ignore-space-change");
    }
    args.extend(context.as_deref());
    args.push(base);
    args.extend(head);
    args.push("--");
    args.extend(request.target_paths.iter().map(String::as_str));
    git(folder, &args)
        .await
        .ok_or_else(|| failed("git gave no diff"))
}

/// Returns the commit that a name stands for. Names are resolved first, because git treats unknown
/// names as files, also outside the repository, and shows their contents.
async fn commit(folder: &Path, name: &str) -> Result<String, ExecError> {
    let found = if name.starts_with('-') {
        None
    } else {
        git(folder, &["rev-parse", "--verify", "--quiet", name]).await
    };
    found
        .map(|id| id.trim().to_owned())
        .filter(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .ok_or_else(|| failed(&format!("git knows no revision {name}")))
}

/// Returns the revision to compare with: the requested one, or the default branch.
async fn base(folder: &Path, given: &str) -> Result<String, ExecError> {
    if !given.is_empty() {
        return Ok(given.to_owned());
    }
    let head = [
        "symbolic-ref",
        "--short",
        "--quiet",
        "refs/remotes/origin/HEAD",
    ];
    if let Some(name) = git(folder, &head)
        .await
        .filter(|name| !name.trim().is_empty())
    {
        return Ok(name.trim().to_owned());
    }
    for branch in ["origin/main", "origin/master", "origin/develop"] {
        if git(folder, &["rev-parse", "--verify", "--quiet", branch])
            .await
            .is_some()
        {
            return Ok(branch.to_owned());
        }
    }
    let default = git(folder, &["config", "--get", "init.defaultBranch"]).await;
    default
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .ok_or_else(|| failed("Could not determine default branch"))
}

/// Returns git's patch id, which stays the same when lines move, or `None` for an empty patch.
async fn patch_id(folder: &Path, patch: &str) -> Option<String> {
    let mut command = tokio::process::Command::new("git");
    scrub(&mut command);
    let mut child = command
        .args(["patch-id", "--stable"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take()?;
    // No deadlock: git prints its result only after it has read all input.
    stdin.write_all(patch.as_bytes()).await.ok()?;
    drop(stdin);
    let output = child.wait_with_output().await.ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().next().map(str::to_owned)
}

/// Reads files for one result, up to a size limit.
struct BoundedFiles {
    guard: Arc<PathGuard>,
    room: usize,
}

/// What is at a path.
enum PathContent {
    /// A link, with its target.
    Link(Vec<u8>),
    /// A file.
    File(Vec<u8>),
    /// A file that may not be read or does not fit.
    Unshown,
    /// A directory, a pipe, or nothing.
    Nothing,
}

impl BoundedFiles {
    /// Returns what is at each path; runs on a thread that may block.
    async fn look(&mut self, paths: Vec<PathBuf>) -> Result<Vec<PathContent>, ExecError> {
        let (guard, mut room) = (Arc::clone(&self.guard), self.room);
        let work = move || {
            let looked: Vec<_> = paths
                .iter()
                .map(|path| there(&guard, path, &mut room))
                .collect();
            (looked, room)
        };
        let (looked, room) = tokio::task::spawn_blocking(work)
            .await
            .map_err(|_| failed(tools::TOOL_CRASHED))?;
        self.room = room;
        Ok(looked)
    }

    /// Returns text from git if it still fits, and an empty text otherwise.
    fn keep(&mut self, text: String) -> String {
        match self.room.checked_sub(text.len()) {
            Some(room) => {
                self.room = room;
                text
            }
            None => String::new(),
        }
    }
}

fn there(guard: &PathGuard, path: &Path, room: &mut usize) -> PathContent {
    let Ok(about) = path.symlink_metadata() else {
        return PathContent::Nothing;
    };
    if about.is_symlink() {
        // git treats a link to a directory as a directory.
        return match (path.is_dir(), path.read_link()) {
            (false, Ok(target)) => PathContent::Link(target.into_os_string().into_encoded_bytes()),
            _ => PathContent::Nothing,
        };
    }
    if !about.is_file() {
        return PathContent::Nothing;
    }
    let Some(file) = guard
        .read(path)
        .ok()
        .and_then(|cleared| cleared.open().ok())
    else {
        return PathContent::Unshown;
    };
    let mut bytes = Vec::new();
    let read = file.take(*room as u64 + 1).read_to_end(&mut bytes);
    match room.checked_sub(bytes.len()) {
        Some(left) if read.is_ok() => {
            *room = left;
            PathContent::File(bytes)
        }
        _ => PathContent::Unshown,
    }
}

/// Returns untracked files as additions.
async fn untracked(
    files: &mut BoundedFiles,
    folder: &Path,
    most: i32,
) -> Result<Vec<Change>, ExecError> {
    let most = usize::try_from(most).unwrap_or(0);
    if most == 0 {
        return Ok(Vec::new());
    }
    let listed = git(
        folder,
        &["ls-files", "-z", "--others", "--exclude-standard"],
    )
    .await
    .unwrap_or_default();
    let names: Vec<&str> = listed
        .split('\0')
        .filter(|name| !name.is_empty())
        .take(most)
        .collect();
    let guard = Arc::clone(&files.guard);
    let shown = names
        .into_iter()
        .map(|name| (name, folder.join(name)))
        .filter(|(_, path)| !guard.is_hidden(path));
    let (names, paths): (Vec<&str>, Vec<PathBuf>) = shown.unzip();
    let looked = files.look(paths.clone()).await?;
    let changes = names.into_iter().zip(paths).zip(looked);
    Ok(changes
        .filter_map(|((name, path), there)| {
            let bytes = match there {
                PathContent::Link(bytes) | PathContent::File(bytes) => Some(bytes),
                PathContent::Unshown => None,
                PathContent::Nothing => return None,
            };
            Some(patch::addition(name, path, bytes.as_deref()))
        })
        .collect())
}

/// Adds the complete contents of files to their changes.
async fn contents(
    files: &mut BoundedFiles,
    folder: &Path,
    base: &str,
    head: Option<&str>,
    changes: &mut [Change],
) -> Result<(), ExecError> {
    for change in changes {
        // `git show` would show a commit that stands where a file was, and verify its signature
        // with a program that the repository names.
        let show = async |at: &str, name: &str| {
            let what = format!("{at}:{name}");
            git(folder, &["cat-file", "blob", &what])
                .await
                .unwrap_or_default()
        };
        let before = match &change.from {
            None => String::new(),
            Some(_) => show(base, &change.diff.from).await,
        };
        let after = match (&change.to, head) {
            (None, _) => String::new(),
            (Some(path), None) => match files.look(vec![path.clone()]).await?.pop() {
                Some(PathContent::Link(bytes) | PathContent::File(bytes)) => {
                    String::from_utf8_lossy(&bytes).into_owned()
                }
                _ => String::new(),
            },
            (Some(_), Some(head)) => {
                let text = show(head, &change.diff.to).await;
                files.keep(text)
            }
        };
        change.diff.before_file_contents = Some(files.keep(before));
        change.diff.after_file_contents = Some(after);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
