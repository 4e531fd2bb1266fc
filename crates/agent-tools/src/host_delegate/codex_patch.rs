//! Writes a change of one file in the format of Codex's `apply_patch`. Pure.

use std::fmt::Write as _;

use similar::ChangeTag;

use crate::line_diff::LineDiff;

/// Lines around a change, by which it is located.
const CONTEXT: usize = 3;

/// Returns the patch that gives a file this text; `None` if the format cannot express it, because
/// every line of a patch ends with a line break.
pub(super) fn of(path: &str, before: Option<&str>, after: &str) -> Option<String> {
    let breaks = |text: &str| text.ends_with('\n') && !text.contains('\r');
    if !breaks(after) || before.is_some_and(|before| !breaks(before)) {
        return None;
    }
    let mut patch = String::from("*** Begin Patch\n");
    match before {
        None => {
            let _ = writeln!(patch, "*** Add File: {path}");
            for line in after.lines() {
                let _ = writeln!(patch, "+{line}");
            }
        }
        Some(before) => {
            let _ = writeln!(patch, "*** Update File: {path}");
            let diff = LineDiff::of(before, after);
            for group in diff.groups(CONTEXT) {
                patch.push_str("@@\n");
                for change in group.iter().flat_map(|it| diff.changes(it)) {
                    patch.push(match change.tag() {
                        ChangeTag::Equal => ' ',
                        ChangeTag::Delete => '-',
                        ChangeTag::Insert => '+',
                    });
                    patch.push_str(change.value());
                }
            }
        }
    }
    patch.push_str("*** End Patch\n");
    Some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_adds_a_file_or_changes_lines() {
        assert_eq!(
            of("/w/a", None, "one\ntwo\n").unwrap(),
            "*** Begin Patch\n*** Add File: /w/a\n+one\n+two\n*** End Patch\n"
        );
        assert_eq!(
            of("/w/a", Some("one\ntwo\n"), "one\nTWO\n").unwrap(),
            "*** Begin Patch\n*** Update File: /w/a\n@@\n one\n-two\n+TWO\n*** End Patch\n"
        );
        assert_eq!(of("/w/a", None, "no line break"), None);
    }
}
