//! Converts a unified diff to the format of pi's edit card.
//!
//! Each line is a sign, a right-aligned line number, a space and the text; a line of dots stands for
//! omitted lines.

/// Fields of an edit's result that may contain the diff, in order of preference.
pub(super) const FIELDS: [&str; 4] = ["diffString", "diff", "unifiedDiff", "patch"];

enum DiffLine<'a> {
    Text(char, u32, &'a str),
    Gap,
}

/// Converts a unified diff to pi's format. Text without a hunk is returned unchanged.
pub fn from_unified(diff: &str) -> String {
    let mut lines = Vec::new();
    let mut at: Option<(u32, u32)> = None;
    for line in diff.lines() {
        if let Some(start) = hunk_start(line) {
            if !lines.is_empty() || start.0.max(start.1) > 1 {
                lines.push(DiffLine::Gap);
            }
            at = Some(start);
            continue;
        }
        let Some((old, new)) = at.as_mut() else {
            continue; // headers
        };
        let (sign, text) = match line.split_at_checked(1) {
            Some(("+", text)) => ('+', text),
            Some(("-", text)) => ('-', text),
            Some((" ", text)) => (' ', text),
            // Some tools omit the space of an empty context line.
            None if line.is_empty() => (' ', ""),
            _ => continue, // "\ No newline at end of file" and the like
        };
        lines.push(DiffLine::Text(
            sign,
            if sign == '-' { *old } else { *new },
            text,
        ));
        *old += u32::from(sign != '+');
        *new += u32::from(sign != '-');
    }
    if at.is_none() {
        return diff.to_owned();
    }
    render(&lines)
}

/// Returns the first line of a hunk in the old and the new file.
fn hunk_start(line: &str) -> Option<(u32, u32)> {
    let ranges = line.strip_prefix("@@ ")?.split(" @@").next()?;
    let (old, new) = ranges.split_once(' ')?;
    let start = |range: &str, sign: char| {
        let range = range.strip_prefix(sign)?;
        range.split(',').next()?.parse::<u32>().ok()
    };
    // An empty side starts at line 0.
    Some((start(old, '-')?.max(1), start(new, '+')?.max(1)))
}

fn render(lines: &[DiffLine<'_>]) -> String {
    let largest = lines.iter().map(|line| match line {
        DiffLine::Text(_, number, _) => *number,
        DiffLine::Gap => 0,
    });
    let width = largest.max().unwrap_or(0).to_string().len();
    let render: Vec<String> = lines
        .iter()
        .map(|line| match line {
            DiffLine::Text(sign, number, text) => format!("{sign}{number:>width$} {text}"),
            DiffLine::Gap => format!(" {:>width$} ...", ""),
        })
        .collect();
    render.join("\n")
}

/// Returns the first line of the new file that a diff changes.
pub(super) fn first_changed_line(diff: &str) -> Option<u32> {
    let (_, mut new) = diff.lines().find_map(hunk_start)?;
    let after = diff
        .lines()
        .skip_while(|line| hunk_start(line).is_none())
        .skip(1);
    for line in after {
        match line.chars().next() {
            Some('+' | '-') => return Some(new),
            _ => new += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn numbers_are_aligned_and_gaps_marked() {
        let diff =
            "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-a\n+b\n c\n@@ -9,2 +9,3 @@ fn main\n d\n+e\n f\n";
        let wanted = "- 1 a\n+ 1 b\n  2 c\n    ...\n  9 d\n+10 e\n 11 f";
        assert_eq!(from_unified(diff), wanted);
        assert_eq!(first_changed_line(diff), Some(1));
    }

    #[test]
    fn new_files_and_missing_line_ends_are_converted() {
        let diff = "--- /dev/null\n+++ b/x\n@@ -0,0 +1,1 @@\n+a\n\\ No newline at end of file";
        assert_eq!(from_unified(diff), "+1 a");
    }

    #[test]
    fn other_text_is_returned_unchanged() {
        assert_eq!(from_unified("D"), "D");
        assert_eq!(first_changed_line("D"), None);
    }
}
