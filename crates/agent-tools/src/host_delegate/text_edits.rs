//! Computes the replacements that turn one text into another, in the form an edit tool accepts:
//! each old piece must occur exactly once.

use similar::ChangeTag;

use crate::line_diff::LineDiff;

/// Above this many lines, writing the whole file is preferred.
const MAX_LINES: usize = 20_000;

/// Returns the replacements; `None` if there are none or the texts are too large.
pub(super) fn of(before: &str, after: &str) -> Option<Vec<(String, String)>> {
    if before.is_empty() || before == after {
        return None;
    }
    // Edit tools normalise line endings and byte order marks, so the result could differ.
    if [before, after]
        .iter()
        .any(|text| text.contains(['\r', '\u{feff}']))
    {
        return None;
    }
    let lines: Vec<&str> = before.split_inclusive('\n').collect();
    if lines.len() + after.lines().count() > MAX_LINES {
        return None;
    }
    let diff = LineDiff::of(before, after);
    let mut edits = Vec::new();
    for group in diff.groups(0) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            continue;
        };
        let mut old = first.old_range().start..last.old_range().end;
        let new: String = group
            .iter()
            .flat_map(|operation| diff.changes(operation))
            .filter(|change| change.tag() != ChangeTag::Delete)
            .map(|change| change.value().to_owned())
            .collect();
        // Add surrounding lines until the old piece is unique.
        let (mut head, mut tail) = (String::new(), String::new());
        loop {
            let piece = lines[old.clone()].concat();
            if !piece.is_empty() && occurs_once(before, &piece) {
                edits.push((piece, format!("{head}{new}{tail}")));
                break;
            }
            let (above, below) = (old.start.checked_sub(1), old.end);
            if let Some(above) = above {
                head.insert_str(0, lines[above]);
                old.start = above;
            } else if let Some(line) = lines.get(below) {
                tail.push_str(line);
                old.end = below + 1;
            } else {
                return None;
            }
        }
    }
    // Pieces that overlap after growing cannot be replaced one by one.
    (replaced(before, &edits)? == after).then_some(edits)
}

/// Returns one replacement that does the work of several: from the first to the last replaced
/// piece. `None` if the pieces cannot be located.
pub(super) fn merged(before: &str, edits: &[(String, String)]) -> Option<(String, String)> {
    let start = edits.iter().map(|edit| before.find(&edit.0)).min()??;
    let end = edits
        .iter()
        .map(|edit| Some(before.find(&edit.0)? + edit.0.len()))
        .max()??;
    let after = replaced(before, edits)?;
    let tail = before.len() - end;
    let old = before.get(start..end)?;
    let new = after.get(start..after.len().checked_sub(tail)?)?;
    occurs_once(before, old).then(|| (old.to_owned(), new.to_owned()))
}

/// Returns a replacement at the end of a file without the line break at the end, because a host that
/// shows numbered lines does not show whether there is one.
pub(super) fn without_final_break(before: &str, edit: (String, String)) -> (String, String) {
    let (old, new) = (edit.0.strip_suffix('\n'), edit.1.strip_suffix('\n'));
    match (old, new) {
        (Some(old), Some(new))
            if !old.is_empty() && before.ends_with(&edit.0) && occurs_once(before, old) =>
        {
            (old.to_owned(), new.to_owned())
        }
        _ => edit,
    }
}

fn occurs_once(text: &str, piece: &str) -> bool {
    let Some(at) = text.find(piece) else {
        return false;
    };
    let next = text[at..].char_indices().nth(1).map(|(step, _)| at + step);
    next.is_none_or(|next| !text[next..].contains(piece))
}

/// Returns the text after an edit tool applied the edits: every piece is searched in the
/// original.
fn replaced(before: &str, edits: &[(String, String)]) -> Option<String> {
    let mut resolver: Vec<(usize, &(String, String))> = edits
        .iter()
        .map(|edit| Some((before.find(&edit.0)?, edit)))
        .collect::<Option<_>>()?;
    resolver.sort_by_key(|(at, _)| *at);
    let mut out = String::new();
    let mut end = 0;
    for (at, (old, new)) in resolver {
        out.push_str(before.get(end..at)?);
        out.push_str(new);
        end = at + old.len();
    }
    out.push_str(before.get(end..)?);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_pieces_are_as_short_as_possible() {
        let before = "a\nb\nc\nb\nd\n";
        assert_eq!(
            of(before, "a\nb\nC\nb\nd\n").unwrap(),
            [("c\n".into(), "C\n".into())]
        );
        // The second b is identified by the line above it.
        assert_eq!(
            of(before, "a\nb\nc\nB\nd\n").unwrap(),
            [("c\nb\n".into(), "c\nB\n".into())]
        );
        // An insertion needs an existing line as its anchor.
        assert_eq!(
            of("a\nb\n", "a\nnew\nb\n").unwrap(),
            [("a\n".into(), "a\nnew\n".into())]
        );
        assert_eq!(of("", "a"), None);
        assert_eq!(of("a", "a"), None);
    }

    proptest::proptest! {
        #[test]
        fn edits_always_produce_the_new_text(before in "([ab]\n){0,12}[ab]?", after in "([abc]\n){0,12}[ab]?") {
            if let Some(edits) = of(&before, &after) {
                for (old, _) in &edits {
                    proptest::prop_assert!(occurs_once(&before, old));
                }
                proptest::prop_assert_eq!(replaced(&before, &edits).unwrap(), after.clone());
                let one = merged(&before, &edits).unwrap();
                proptest::prop_assert_eq!(replaced(&before, &[one]).unwrap(), after);
            }
        }
    }
}
