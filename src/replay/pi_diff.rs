//! A unified diff in the form pi's own edit card draws.
//!
//! Each line is a sign, a right-aligned line number, a space and the text; unshown stretches
//! are one line of dots.

/// The diff of an edit's result: the first of the fields it may be in.
pub(super) const FIELDS: [&str; 4] = ["diffString", "diff", "unifiedDiff", "patch"];

enum Line<'a> {
    Text(char, u32, &'a str),
    Gap,
}

/// Turns a unified diff into pi's form. Text without a hunk is given back as it is.
pub fn from_unified(diff: &str) -> String {
    let mut lines = Vec::new();
    let mut at: Option<(u32, u32)> = None;
    for line in diff.lines() {
        if let Some(start) = hunk(line) {
            if !lines.is_empty() || start.0.max(start.1) > 1 {
                lines.push(Line::Gap);
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
            // Some tools drop the blank of an empty context line.
            None if line.is_empty() => (' ', ""),
            _ => continue, // "\ No newline at end of file" and the like
        };
        lines.push(Line::Text(
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
    drawn(&lines)
}

/// Where a hunk starts on either side.
fn hunk(line: &str) -> Option<(u32, u32)> {
    let ranges = line.strip_prefix("@@ ")?.split(" @@").next()?;
    let (old, new) = ranges.split_once(' ')?;
    let start = |range: &str, sign: char| {
        let range = range.strip_prefix(sign)?;
        range.split(',').next()?.parse::<u32>().ok()
    };
    // An empty side starts at line 0.
    Some((start(old, '-')?.max(1), start(new, '+')?.max(1)))
}

fn drawn(lines: &[Line<'_>]) -> String {
    let largest = lines.iter().map(|line| match line {
        Line::Text(_, number, _) => *number,
        Line::Gap => 0,
    });
    let width = largest.max().unwrap_or(0).to_string().len();
    let drawn: Vec<String> = lines
        .iter()
        .map(|line| match line {
            Line::Text(sign, number, text) => format!("{sign}{number:>width$} {text}"),
            Line::Gap => format!(" {:>width$} ...", ""),
        })
        .collect();
    drawn.join("\n")
}

/// The first line of the new file that a diff changes.
pub(super) fn first_changed_line(diff: &str) -> Option<u32> {
    let (_, mut new) = diff.lines().find_map(hunk)?;
    let after = diff.lines().skip_while(|line| hunk(line).is_none()).skip(1);
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
    fn a_new_file_and_a_missing_line_end() {
        let diff = "--- /dev/null\n+++ b/x\n@@ -0,0 +1,1 @@\n+a\n\\ No newline at end of file";
        assert_eq!(from_unified(diff), "+1 a");
    }

    #[test]
    fn what_is_no_unified_diff_stays() {
        assert_eq!(from_unified("D"), "D");
        assert_eq!(first_changed_line("D"), None);
    }
}
