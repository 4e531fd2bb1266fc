//! The plain-text edit (`pi_edit`): replaces parts of a file, each of which must occur once.

use super::{PiToolError, number};
use crate::handlers::pi_tools;
use crate::handlers::text_file;
use crate::line_diff::LineDiff;
use crate::prompts;
use crate::workspace::path_guard::PathGuard;
use cursor_proto::agent::v1::*;

/// Replaces parts of a file. If one of them does not occur exactly, all of them are searched in a
/// normalized text (see [`loose`]), and the normalized text is written to the file.
pub(crate) fn edit(
    guard: &PathGuard,
    args: &PiEditExecArgs,
) -> Result<PiEditExecSuccess, PiToolError> {
    if args.edits.is_empty() {
        return Err(PiToolError(
            "edits must contain at least one replacement.".into(),
        ));
    }
    let path = guard.absolute(pi_tools::named(&args.path));
    // The file keeps its encoding, so an edit of one we cannot decode would damage it.
    let text = text_file::faithful(&pi_tools::whole(guard, &path)?)
        .ok_or_else(|| PiToolError(prompts::tools::ENCODING_UNKNOWN.into()))?;
    let old = text.replace("\r\n", "\n");
    let mut wanted: Vec<String> = args
        .edits
        .iter()
        .map(|edit| edit.old_text.replace("\r\n", "\n"))
        .collect();
    if wanted.iter().any(String::is_empty) {
        return Err(PiToolError("oldText must not be empty.".into()));
    }
    let exact = wanted.iter().all(|wanted| old.contains(wanted.as_str()));
    let base = if exact {
        old.clone()
    } else {
        wanted = wanted.iter().map(|wanted| loose(wanted)).collect();
        loose(&old)
    };
    let mut places = Vec::new();
    for (wanted, edit) in wanted.iter().zip(&args.edits) {
        let mut found = base.match_indices(wanted.as_str());
        match (found.next(), found.next()) {
            (Some((at, _)), None) => places.push((at, wanted.len(), &edit.new_text)),
            (Some(_), Some(_)) if !wanted.is_empty() => {
                return Err(PiToolError("oldText must be unique in the file.".into()));
            }
            _ => return Err(PiToolError("oldText was not found in the file.".into())),
        }
    }
    places.sort_by_key(|(at, ..)| *at);
    let mut new = String::with_capacity(base.len());
    let mut end = 0;
    for (at, length, text) in &places {
        if *at < end {
            return Err(PiToolError("edits must not overlap.".into()));
        }
        new.push_str(&base[end..*at]);
        new.push_str(&text.replace("\r\n", "\n"));
        end = at + length;
    }
    new.push_str(&base[end..]);
    if new == old {
        return Err(PiToolError("edits did not change the file.".into()));
    }
    pi_tools::put(guard, &args.path, &new)?;
    let patch = patch(&args.path, &old, &new);
    Ok(PiEditExecSuccess {
        output: format!(
            "Successfully replaced {} block(s) in {}.",
            places.len(),
            args.path
        ),
        first_changed_line: first_change(&old, &new),
        diff: patch.clone(),
        patch,
    })
}

/// Normalizes what models get wrong: trailing space, and kinds of quotes, dashes and spaces.
fn loose(text: &str) -> String {
    let lines: Vec<&str> = text.split('\n').map(str::trim_end).collect();
    let letters = lines.join("\n");
    letters
        .chars()
        .map(|letter| match letter {
            '\u{2018}'..='\u{201b}' => '\'',
            '\u{201c}'..='\u{201f}' => '"',
            '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
            '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
            other => other,
        })
        .collect()
}

fn first_change(old: &str, new: &str) -> Option<u32> {
    let same = old
        .split('\n')
        .zip(new.split('\n'))
        .take_while(|(a, b)| a == b)
        .count();
    Some(number(same + 1))
}

/// Returns a patch in the form the official client sends.
fn patch(path: &str, old: &str, new: &str) -> String {
    let diff = LineDiff::of(old, new);
    let mut patch = format!(
        "Index: {path}\n{}\n--- {path}\t\n+++ {path}\t\n",
        "=".repeat(67)
    );
    for group in diff.groups(4) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            continue;
        };
        let start = |range: std::ops::Range<usize>| {
            if range.is_empty() {
                range.start
            } else {
                range.start + 1
            }
        };
        let (was, is) = (
            first.old_range().start..last.old_range().end,
            first.new_range().start..last.new_range().end,
        );
        let (were, are) = (was.len(), is.len());
        patch.push_str(&format!(
            "@@ -{},{were} +{},{are} @@\n",
            start(was),
            start(is)
        ));
        for change in group.iter().flat_map(|it| diff.changes(it)) {
            let sign = match change.tag() {
                similar::ChangeTag::Equal => ' ',
                similar::ChangeTag::Delete => '-',
                similar::ChangeTag::Insert => '+',
            };
            patch.push(sign);
            patch.push_str(change.value());
            if change.missing_newline() {
                patch.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_edit_changes_no_other_byte() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("f");
        let guard = PathGuard::new(home.path(), None, false);
        let edited = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            let args = PiEditExecArgs {
                path: "f".into(),
                edits: vec![PiEditReplacement {
                    old_text: "name".into(),
                    new_text: "NAME".into(),
                }],
            };
            let done = edit(&guard, &args);
            (
                done.map_err(|error| error.to_string()),
                fs::read(&file).unwrap(),
            )
        };
        let wide =
            |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
        for (before, after) in [
            (b"caf\xe9\nname\n".to_vec(), b"caf\xe9\nNAME\n".to_vec()),
            (
                b"\xef\xbb\xbfname\n".to_vec(),
                b"\xef\xbb\xbfNAME\n".to_vec(),
            ),
            (wide("\u{feff}\u{e9} name\n"), wide("\u{feff}\u{e9} NAME\n")),
        ] {
            let (done, left) = edited(&before);
            assert_eq!(
                done.unwrap().first_changed_line,
                Some(1 + u32::from(before[0] == b'c'))
            );
            assert_eq!(left, after);
        }
        let strange = b"name \0 \xe9\n";
        let (done, left) = edited(strange);
        assert!(done.unwrap_err().contains("would damage it"));
        assert_eq!(left, strange);
    }
}
