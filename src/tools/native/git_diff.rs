//! What changed in a repository, as git tells it.

use std::path::Path;

use crate::tools::Thrown;
use crate::tools::git::git;
use crate::wire::proto::aiserver::v1::file_diff::Chunk;
use crate::wire::proto::aiserver::v1::get_diff_request::OutputFormat;
use crate::wire::proto::aiserver::v1::{FileDiff, GetDiffRequest, GetDiffResponse, GitDiff};
use prost::Message as _;

/// No file.
const NOTHING: &str = "/dev/null";

/// Answers one request for a diff.
pub(super) async fn diff(
    workspace: &Path,
    request: GetDiffRequest,
) -> Result<GetDiffResponse, Thrown> {
    let folder = workspace.join(&request.cwd);
    let head = if request.r#ref.is_empty() {
        "HEAD"
    } else {
        &request.r#ref
    };
    let mut base = base(&folder, &request.base_ref).await?;
    if request.merge_base {
        let found = git(&folder, &["merge-base", "--end-of-options", &base, head]).await;
        base = found
            .ok_or_else(|| failed("git found no merge base"))?
            .trim()
            .to_owned();
    }
    let context = request
        .unified_context_lines
        .map(|lines| format!("-U{lines}"));
    let mut args = vec!["diff", "--no-color", "--no-ext-diff", "--no-textconv"];
    if !request.include_space_changes {
        args.push("--ignore-space-change");
    }
    args.extend(context.as_deref());
    args.extend(["--end-of-options", &base]);
    if !request.r#ref.is_empty() {
        args.push(&request.r#ref);
    }
    args.push("--");
    args.extend(request.target_paths.iter().map(String::as_str));
    let text = git(&folder, &args).await;
    let mut diffs = parse(&text.ok_or_else(|| failed("git gave no diff"))?);
    diffs.extend(untracked(&folder, request.max_untracked_files).await);
    if request.output_format() == OutputFormat::DiffsWithBeforeAndAfter {
        contents(&folder, &base, &request.r#ref, &mut diffs).await;
    }
    if !matches!(
        request.output_format(),
        OutputFormat::FileDiffs | OutputFormat::Unspecified
    ) {
        diffs.iter_mut().for_each(|diff| diff.chunks.clear());
    }
    // Which files are generated is a guess we do not make.
    diffs
        .iter_mut()
        .for_each(|diff| diff.is_generated = Some(false));
    let wants_head = request.return_head_sha == Some(true);
    let (head_sha, has_uncommitted_changes) = match wants_head {
        true => (
            git(&folder, &["rev-parse", "HEAD"])
                .await
                .map(|sha| sha.trim().to_owned()),
            git(
                &folder,
                &["status", "--porcelain=v1", "--untracked-files=all"],
            )
            .await
            .map(|status| !status.trim().is_empty()),
        ),
        false => (None, None),
    };
    let response = GetDiffResponse {
        diff: Some(GitDiff {
            diffs,
            ..GitDiff::default()
        }),
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

fn failed(text: &str) -> Thrown {
    Thrown(text.into())
}

/// What to compare with: what is asked for, or the branch others start from.
async fn base(folder: &Path, given: &str) -> Result<String, Thrown> {
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

/// Files git does not know yet, as additions.
async fn untracked(folder: &Path, most: i32) -> Vec<FileDiff> {
    let most = usize::try_from(most).unwrap_or(0);
    if most == 0 {
        return Vec::new();
    }
    let listed = git(folder, &["ls-files", "--others", "--exclude-standard"]).await;
    let mut diffs = Vec::new();
    for name in listed.unwrap_or_default().lines().take(most) {
        let Ok(text) = tokio::fs::read_to_string(folder.join(name)).await else {
            continue;
        };
        let lines: Vec<String> = text.lines().map(|line| format!("+{line}")).collect();
        let count = i32::try_from(lines.len()).unwrap_or(i32::MAX);
        diffs.push(FileDiff {
            from: NOTHING.into(),
            to: name.into(),
            added: count,
            chunks: vec![Chunk {
                content: format!("@@ -0,0 +1,{count} @@"),
                lines,
                new_start: 1,
                new_lines: count,
                ..Chunk::default()
            }],
            ..FileDiff::default()
        });
    }
    diffs
}

/// Puts whole files beside their changes.
async fn contents(folder: &Path, base: &str, head: &str, diffs: &mut [FileDiff]) {
    for diff in diffs {
        let show = async |at: &str, name: &str| {
            let what = format!("{at}:{name}");
            git(
                folder,
                &["show", "--no-textconv", "--end-of-options", &what],
            )
            .await
            .unwrap_or_default()
        };
        let before = match diff.from.as_str() {
            NOTHING => String::new(),
            name => show(base, name).await,
        };
        let after = match (diff.to.as_str(), head) {
            (NOTHING, _) => String::new(),
            (name, "") => tokio::fs::read_to_string(folder.join(name))
                .await
                .unwrap_or_default(),
            (name, head) => show(head, name).await,
        };
        diff.before_file_contents = Some(before);
        diff.after_file_contents = Some(after);
    }
}

/// A diff as files and chunks.
fn parse(text: &str) -> Vec<FileDiff> {
    let mut diffs: Vec<FileDiff> = Vec::new();
    // Lines the open chunk still has, before and after.
    let mut left = (0, 0);
    for line in text.lines() {
        if let Some(names) = line.strip_prefix("diff --git ").filter(|_| left == (0, 0)) {
            let (from, to) = names.split_once(" b/").unwrap_or((names, names));
            diffs.push(FileDiff {
                from: from.trim_start_matches("a/").into(),
                to: to.into(),
                ..FileDiff::default()
            });
            continue;
        }
        let Some(diff) = diffs.last_mut() else {
            continue;
        };
        if left == (0, 0) {
            if let Some(chunk) = chunk(line) {
                left = (chunk.old_lines, chunk.new_lines);
                diff.chunks.push(chunk);
            } else if line.starts_with("new file mode") {
                diff.from = NOTHING.into();
            } else if line.starts_with("deleted file mode") {
                diff.to = NOTHING.into();
            } else if line.starts_with('\\')
                && let Some(chunk) = diff.chunks.last_mut()
            {
                chunk.lines.push(line.into());
            }
            continue;
        }
        match line.as_bytes().first() {
            Some(b'-') => (left.0, diff.removed) = (left.0 - 1, diff.removed + 1),
            Some(b'+') => (left.1, diff.added) = (left.1 - 1, diff.added + 1),
            Some(b'\\') => {}
            _ => left = (left.0 - 1, left.1 - 1),
        }
        if let Some(chunk) = diff.chunks.last_mut() {
            chunk.lines.push(line.into());
        }
    }
    diffs
}

/// The head of a chunk: `@@ -1,2 +3,4 @@`.
fn chunk(line: &str) -> Option<Chunk> {
    let (old, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let range = |text: &str| -> Option<(i32, i32)> {
        match text.split_once(',') {
            Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
            None => Some((text.parse().ok()?, 1)),
        }
    };
    let ((old_start, old_lines), (new_start, new_lines)) = (range(old)?, range(new)?);
    Some(Chunk {
        content: line.into(),
        lines: Vec::new(),
        old_start,
        old_lines,
        new_start,
        new_lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn changes_and_new_files_are_told() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path();
        let run = async |args: &[&str]| git(root, args).await.unwrap();
        run(&["init", "--quiet"]).await;
        std::fs::write(root.join("a"), "one\ntwo\nthree\n").unwrap();
        run(&["add", "a"]).await;
        let me = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        run(&[&me[..], &["commit", "--quiet", "-m", "x"]].concat()).await;
        std::fs::write(root.join("a"), "one\n-- 2\nthree").unwrap();
        std::fs::write(root.join("b"), "new\n").unwrap();
        let request = GetDiffRequest {
            base_ref: "HEAD".into(),
            max_untracked_files: 9,
            include_space_changes: true,
            return_head_sha: Some(true),
            ..GetDiffRequest::default()
        };
        let response = diff(root, request).await.unwrap();
        assert_eq!(response.has_uncommitted_changes, Some(true));
        assert_eq!(response.head_sha.unwrap().len(), 40);
        let diffs = response.diff.unwrap().diffs;
        let told: Vec<_> = diffs
            .iter()
            .map(|diff| {
                (
                    diff.from.as_str(),
                    diff.to.as_str(),
                    diff.added,
                    diff.removed,
                )
            })
            .collect();
        assert_eq!(told, [("a", "a", 2, 2), (NOTHING, "b", 1, 0)]);
        let lines = &diffs[0].chunks[0].lines;
        assert_eq!(lines.last().unwrap(), "\\ No newline at end of file");
    }

    #[tokio::test]
    async fn a_reference_is_no_option() {
        let home = tempfile::tempdir().unwrap();
        git(home.path(), &["init", "--quiet"]).await.unwrap();
        let request = GetDiffRequest {
            base_ref: "--output=made".into(),
            ..GetDiffRequest::default()
        };
        assert!(diff(home.path(), request).await.is_err());
        assert!(!home.path().join("made").exists());
    }
}
