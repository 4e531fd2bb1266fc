//! Remembers what the host's `read` has shown of files, for the lifetime of a session.
//!
//! Cursor changes a file by writing it whole, based on what it read. If only a part was shown,
//! such a write would lose the rest, in this run or a later one.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::paths::PathResolver;
use super::translate_result;
use crate::ExecRequest;
use crate::bridge::HostResult;
use crate::bridge::content::Content;

/// How many files' texts are remembered for edits.
const MAX_FILES: usize = 64;
/// The maximum size of a remembered text.
const MAX_BYTES: usize = 1024 * 1024;

/// What was shown of files.
#[derive(Debug, Default)]
pub struct ReadCache(Mutex<CachedFiles>);

#[derive(Debug, Default)]
struct CachedFiles {
    /// Files of which only a part was shown. Kept until the whole file is shown, because
    /// forgetting one could lose its content.
    parts: HashSet<PathBuf>,
    /// Files that were shown whole and not changed since. May be evicted.
    texts: HashMap<PathBuf, String>,
}

impl ReadCache {
    fn files(&self) -> MutexGuard<'_, CachedFiles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the whole text of a file, if it was shown.
    pub(super) fn text(&self, place: &Path) -> Option<String> {
        self.files().texts.get(place).cloned()
    }

    /// Returns whether only a part of a file was shown.
    pub(super) fn is_part(&self, place: &Path) -> bool {
        self.files().parts.contains(place)
    }

    /// Records what a call showed or changed.
    pub(super) fn note(&self, request: &ExecRequest, result: &HostResult, resolver: &PathResolver) {
        let mut files = self.files();
        match request {
            ExecRequest::ReadArgs(args) => {
                let ([Content::Text(text)], false) = (&result.content[..], result.is_error) else {
                    return;
                };
                let ranged = args.offset.is_some_and(|line| line > 1) || args.limit.is_some();
                let place = resolver.of(&args.path);
                let is_part = translate_result::file_text(text).is_part;
                // The last lines, or a part of a file that is known whole, change nothing.
                if !is_part && !ranged {
                    files.show(place, text);
                } else if is_part && !(ranged && files.texts.contains_key(&place)) {
                    files.texts.remove(&place);
                    files.parts.insert(place);
                }
            }
            ExecRequest::WriteArgs(args) => files.change(&resolver.of(&args.path), result.is_error),
            ExecRequest::PiWriteArgs(args) => {
                files.change(&resolver.of(&args.path), result.is_error)
            }
            ExecRequest::LsArgs(_)
            | ExecRequest::GrepArgs(_)
            | ExecRequest::PiReadArgs(_)
            | ExecRequest::PiLsArgs(_)
            | ExecRequest::PiGrepArgs(_)
            | ExecRequest::PiFindArgs(_) => {}
            // A command may have changed any file. Parts stay parts.
            _ => files.texts.clear(),
        }
    }
}

impl CachedFiles {
    fn show(&mut self, place: PathBuf, text: &str) {
        self.parts.remove(&place);
        if self.texts.len() >= MAX_FILES {
            self.texts.clear();
        }
        if text.len() <= MAX_BYTES {
            self.texts.insert(place, text.to_owned());
        } else {
            self.texts.remove(&place);
        }
    }

    /// Records that a file was written whole.
    fn change(&mut self, place: &Path, is_error: bool) {
        self.texts.remove(place);
        if !is_error {
            self.parts.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cursor_proto::agent::v1::{PiWriteExecArgs, ReadArgs, ShellArgs};
    use serde_json::Value as Json;

    fn shown(text: &str) -> HostResult {
        HostResult {
            content: vec![Content::Text(text.into())],
            is_error: false,
            details: Json::Null,
            structured: None,
        }
    }

    fn read(path: &str, limit: Option<u32>) -> ExecRequest {
        ExecRequest::ReadArgs(ReadArgs {
            path: path.into(),
            limit,
            ..ReadArgs::default()
        })
    }

    const PART: &str = "a\n\n[Showing lines 1-1 of 90. Use offset=2 to continue.]";
    const TOO_LONG: &str =
        "[Line 1 is 60.0KB, exceeds 50.0KB limit. Use bash: sed -n '1p' a | head -c 51200]";

    #[test]
    fn a_part_stays_a_part_until_the_whole_file_is_shown() {
        let resolver = PathResolver {
            workspace: "/w".into(),
            home: None,
        };
        let seen = ReadCache::default();
        let note = |request: ExecRequest, text: &str| seen.note(&request, &shown(text), &resolver);
        let is_part = |path: &str| seen.is_part(&resolver.of(path));
        note(read("a", None), PART);
        note(read("b", None), TOO_LONG);
        note(ExecRequest::ShellArgs(ShellArgs::default()), "done");
        for number in 0..3 * MAX_FILES {
            note(read(&format!("other{number}"), None), "text");
        }
        // Neither a command, nor many files, nor another spelling of the path makes it whole.
        for path in ["a", "/w/a", "./x/../a", "b"] {
            assert!(is_part(path), "{path}");
        }
        note(read("/w/a", None), "all of it");
        note(
            ExecRequest::PiWriteArgs(PiWriteExecArgs {
                path: "b".into(),
                content: "new".into(),
            }),
            "written",
        );
        assert!(!is_part("a") && !is_part("b"));
        assert_eq!(seen.text(&resolver.of("a")).unwrap(), "all of it");
    }

    #[test]
    fn reading_a_part_of_a_known_file_keeps_it_known() {
        let resolver = PathResolver::default();
        let seen = ReadCache::default();
        let place = resolver.of("a");
        let more = "a\n\n[89 more lines in file. Use offset=2 to continue.]";
        seen.note(&read("a", Some(1)), &shown(more), &resolver);
        assert!(seen.is_part(&place));
        seen.note(&read("a", None), &shown("all"), &resolver);
        seen.note(&read("a", Some(1)), &shown(more), &resolver);
        assert_eq!(seen.text(&place).unwrap(), "all");
        assert!(!seen.is_part(&place));
        // Too long to be remembered, but shown whole.
        seen.note(&read("a", None), &shown(PART), &resolver);
        seen.note(
            &read("a", None),
            &shown(&"x".repeat(MAX_BYTES + 1)),
            &resolver,
        );
        assert!(!seen.is_part(&place));
        assert_eq!(seen.text(&place), None);
    }
}
