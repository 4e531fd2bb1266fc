//! Asks hooks about file content in results before it is returned.
//!
//! A read is refused as a whole. Files that a hook denies are left out of a search or a diff, and
//! so is every file beyond [`MAX_FILES`], because each one costs a process. The content of a
//! deleted file and the context of an edit are removed from their results.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::HookDecision;
use super::executor::{HookedExecutor, refused};
use super::hook_input;
use crate::prompts::refusals;
use crate::workspace::paths::plain;
use crate::{ExecError, ExecReply, ExecRequest};
use cursor_proto::agent::v1::*;
use cursor_proto::aiserver::v1::{FileDiff, GetDiffRequest, GetDiffResponse};

/// The most files of one result that hooks are asked about.
const MAX_FILES: usize = 100;
/// How many of them are checked concurrently.
const AT_ONCE: usize = 8;

impl HookedExecutor {
    /// Returns the reply without the content that a hook denies.
    pub(super) async fn filter(
        &self,
        request: &ExecRequest,
        mut reply: ExecReply,
        abort: &CancellationToken,
    ) -> Result<ExecReply, ExecError> {
        let file = || hook_input::file(request, self.context()).unwrap_or_default();
        match &mut reply {
            ExecReply::ReadResult(ReadResult {
                result: Some(read_result::Result::Success(read)),
            }) => {
                let text = match &read.output {
                    Some(read_success::Output::Content(text)) => text.as_str(),
                    _ => "",
                };
                if let HookDecision::Deny(why) = self.may_read(file(), text, abort).await {
                    return refused(request.clone(), &why);
                }
            }
            ExecReply::PiReadResult(PiReadExecResult {
                result: Some(pi_read_exec_result::Result::Success(read)),
            }) => {
                if let HookDecision::Deny(why) = self.may_read(file(), &read.output, abort).await {
                    return refused(request.clone(), &why);
                }
            }
            ExecReply::DeleteResult(DeleteResult {
                result: Some(delete_result::Result::Success(deleted)),
            }) if !deleted.prev_content.is_empty() => {
                let asked = self.may_read(file(), &deleted.prev_content, abort).await;
                if asked != HookDecision::Allow {
                    deleted.prev_content.clear();
                }
            }
            ExecReply::PiEditResult(PiEditExecResult {
                result: Some(pi_edit_exec_result::Result::Success(edited)),
            }) => {
                let asked = self.may_read(file(), &edited.patch, abort).await;
                if asked != HookDecision::Allow {
                    edited.diff.clear();
                    edited.patch.clear();
                }
            }
            ExecReply::GrepResult(GrepResult {
                result: Some(grep_result::Result::Success(found)),
            }) => {
                for entry in &mut found.workspace_results {
                    if let Some(result) = &mut entry.value {
                        let root = self.context().workspace.join(&entry.key);
                        self.filter_matches(&root, result, abort).await;
                    }
                }
                if let Some(result) = &mut found.active_editor_result {
                    let root = self.context().workspace.clone();
                    self.filter_matches(&root, result, abort).await;
                }
            }
            ExecReply::PiGrepResult(PiGrepExecResult {
                result: Some(pi_grep_exec_result::Result::Success(found)),
            }) => self.filter_lines(&file(), found, abort).await,
            ExecReply::GitDiffResponse(response) => {
                if let ExecRequest::GitDiffRequest(asked) = request {
                    self.filter_diff(asked, response, abort).await;
                }
            }
            _ => {}
        }
        Ok(reply)
    }

    async fn may_read(
        &self,
        path: PathBuf,
        content: &str,
        abort: &CancellationToken,
    ) -> HookDecision {
        self.ask(hook_input::before_read(path, content), abort)
            .await
    }

    /// Returns which of these files may be read; at most [`MAX_FILES`] are checked.
    async fn readable(
        &self,
        files: BTreeMap<PathBuf, String>,
        abort: &CancellationToken,
    ) -> BTreeSet<PathBuf> {
        let files: Vec<_> = files.into_iter().take(MAX_FILES).collect();
        let mut readable = BTreeSet::new();
        for some in files.chunks(AT_ONCE) {
            let asking = some.iter().map(async |(path, content)| {
                let verdict = self.may_read(path.clone(), content, abort).await;
                (verdict == HookDecision::Allow).then(|| path.clone())
            });
            let allowed = futures_util::future::join_all(asking).await;
            readable.extend(allowed.into_iter().flatten());
        }
        readable
    }

    /// Removes denied files from the result of a search.
    async fn filter_matches(
        &self,
        root: &Path,
        result: &mut GrepUnionResult,
        abort: &CancellationToken,
    ) {
        let place = |file: &str| plain(&root.join(file));
        let mut files = BTreeMap::new();
        match &result.result {
            Some(grep_union_result::Result::Content(found)) => {
                for file in &found.matches {
                    let lines = file.matches.iter().map(|line| line.content.as_str());
                    let text: &mut String = files.entry(place(&file.file)).or_default();
                    text.push_str(&lines.collect::<Vec<_>>().join("\n"));
                }
            }
            Some(grep_union_result::Result::Files(found)) => {
                files.extend(found.files.iter().map(|file| (place(file), String::new())));
            }
            Some(grep_union_result::Result::Count(found)) => {
                let counts = found.counts.iter();
                files.extend(counts.map(|count| (place(&count.file), String::new())));
            }
            None => {}
        }
        let asked = files.len();
        let readable = self.readable(files, abort).await;
        if readable.len() == asked {
            return;
        }
        note(asked - readable.len());
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let stays = |file: &str| readable.contains(&place(file));
        match &mut result.result {
            Some(grep_union_result::Result::Content(found)) => {
                found.matches.retain(|file| stays(&file.file));
                let lines = || found.matches.iter().flat_map(|file| &file.matches);
                let matched = lines().filter(|line| !line.is_context_line).count();
                found.total_lines = number(lines().count());
                found.total_matched_lines = number(matched);
                found.client_truncated = true;
            }
            Some(grep_union_result::Result::Files(found)) => {
                found.files.retain(|file| stays(file));
                found.total_files = number(found.files.len());
                found.client_truncated = true;
            }
            Some(grep_union_result::Result::Count(found)) => {
                found.counts.retain(|count| stays(&count.file));
                found.total_files = number(found.counts.len());
                found.total_matches = found.counts.iter().map(|count| count.count).sum();
                found.client_truncated = true;
            }
            None => {}
        }
    }

    /// Removes lines of denied files from a plain-text search: `name:12: text`, `name-12- text`.
    async fn filter_lines(
        &self,
        target: &Path,
        found: &mut PiGrepExecSuccess,
        abort: &CancellationToken,
    ) {
        let base = if target.is_dir() {
            target
        } else {
            target.parent().unwrap_or(target)
        };
        let lines: Vec<(&str, Vec<PathBuf>)> = found
            .output
            .split('\n')
            .map(|line| (line, named(line, base)))
            .collect();
        let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
        for (line, names) in &lines {
            for name in names {
                let text = files.entry(name.clone()).or_default();
                text.push_str(line);
                text.push('\n');
            }
        }
        let asked = files.len();
        let readable = self.readable(files, abort).await;
        if readable.len() == asked {
            return;
        }
        let left_out = asked - readable.len();
        note(left_out);
        let stays = |names: &[PathBuf]| names.iter().all(|name| readable.contains(name));
        let lines = lines.iter().filter(|(_, names)| stays(names));
        let kept: Vec<&str> = lines.map(|(line, _)| *line).collect();
        found.output = format!(
            "{}\n\n{}",
            kept.join("\n"),
            refusals::files_omitted(left_out)
        );
        found.truncation = None;
    }

    /// Removes denied files from a diff.
    async fn filter_diff(
        &self,
        asked: &GetDiffRequest,
        response: &mut GetDiffResponse,
        abort: &CancellationToken,
    ) {
        // Our own diffs have no submodules; those of others cannot be checked by path.
        response.submodule_diffs.clear();
        let Some(diff) = &mut response.diff else {
            return;
        };
        let folder = plain(&self.context().workspace.join(&asked.cwd));
        let top = folder.ancestors().find(|it| it.join(".git").exists());
        let top = top.unwrap_or(&folder).to_owned();
        // Tracked files are named relative to the top of the repository, others to the folder.
        let places = |change: &FileDiff| -> Vec<PathBuf> {
            let names = [change.from.clone(), change.to.clone()];
            let names = names.into_iter().filter(|name| name != "/dev/null");
            let both = |name: String| [plain(&top.join(&name)), plain(&folder.join(&name))];
            names.flat_map(both).collect()
        };
        let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
        for change in &diff.diffs {
            let lines = change.chunks.iter().flat_map(|chunk| &chunk.lines);
            let mut text = lines.map(|line| format!("{line}\n")).collect::<String>();
            for whole in [&change.before_file_contents, &change.after_file_contents] {
                text.push_str(whole.as_deref().unwrap_or_default());
            }
            for place in places(change) {
                files.entry(place).or_default().push_str(&text);
            }
        }
        let asked = files.len();
        let readable = self.readable(files, abort).await;
        if readable.len() == asked {
            return;
        }
        note(asked - readable.len());
        let stays = |change: &FileDiff| places(change).iter().all(|it| readable.contains(it));
        diff.diffs.retain(stays);
        diff.file_contents_omitted = Some(true);
        response.patch_id = None;
    }
}

fn note(left_out: usize) {
    tracing::info!(left_out, "a hook kept files out of a result");
}

/// Returns the files a line of a plain-text search may belong to: several, because file names
/// can look like line numbers.
fn named(line: &str, base: &Path) -> Vec<PathBuf> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let ends = |mark: &'static str, end: &'static str| {
        line.match_indices(mark).filter_map(move |(at, _)| {
            let rest = &line[at + mark.len()..];
            let number = &rest[..rest.find(end)?];
            is_number(number).then(|| &line[..at])
        })
    };
    let names: Vec<&str> = ends(":", ": ").chain(ends("-", "- ")).collect();
    let places = |names: &[&str]| -> Vec<PathBuf> {
        names.iter().map(|name| plain(&base.join(name))).collect()
    };
    let there: Vec<PathBuf> = places(&names)
        .into_iter()
        .filter(|place| place.is_file())
        .collect();
    // If no candidate exists any more, all of them are checked.
    if there.is_empty() {
        places(&names)
    } else {
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_of_every_file_it_may_be_of() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        for name in ["a", "a:1: b", "c-2-d"] {
            std::fs::write(base.join(name), "").unwrap();
        }
        let of = |line: &str| named(line, base);
        assert_eq!(of("a:12: text"), [base.join("a")]);
        assert_eq!(of("a:1: b:3: text"), [base.join("a"), base.join("a:1: b")]);
        assert_eq!(of("c-2-d-7- text"), [base.join("c-2-d")]);
        assert_eq!(of("gone:3: text"), [base.join("gone")]);
        assert!(of("[100 matches limit reached]").is_empty());
    }
}
