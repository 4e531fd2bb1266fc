//! Parses git's patches into messages.

use std::path::{Path, PathBuf};

use cursor_proto::aiserver::v1::FileDiff;
use cursor_proto::aiserver::v1::file_diff::Chunk;

/// git's name for a missing side of a change.
pub(super) const NOTHING: &str = "/dev/null";
/// How many bytes git searches for a zero byte, which makes a file binary.
const SAMPLE: usize = 8000;

/// One file that changed.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// The message.
    pub(super) diff: FileDiff,
    /// The old file, unless the file is new.
    pub(super) from: Option<PathBuf>,
    /// The new file, unless the file was deleted.
    pub(super) to: Option<PathBuf>,
}

impl Change {
    /// Makes its paths absolute.
    pub(super) fn resolve(&mut self, top: &Path) {
        for path in [&mut self.from, &mut self.to].into_iter().flatten() {
            *path = top.join(&*path);
        }
    }

    /// Returns the paths of the change.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.from, &self.to]
            .into_iter()
            .flatten()
            .map(AsRef::as_ref)
    }

    fn of(from: Option<PathBuf>, to: Option<PathBuf>) -> Self {
        let mut change = Self::default();
        change.set_from(from);
        change.set_to(to);
        change
    }

    fn set_from(&mut self, path: Option<PathBuf>) {
        self.diff.from = display_name(path.as_deref());
        self.from = path;
    }

    fn set_to(&mut self, path: Option<PathBuf>) {
        self.diff.to = display_name(path.as_deref());
        self.to = path;
    }
}

fn display_name(path: Option<&Path>) -> String {
    path.map_or_else(
        || NOTHING.into(),
        |path| path.to_string_lossy().into_owned(),
    )
}

/// Returns the addition of a file as git would show it. Without its bytes, or if they are binary,
/// it has no chunks.
pub(super) fn addition(name: &str, path: PathBuf, bytes: Option<&[u8]>) -> Change {
    let mut change = Change::of(None, Some(path));
    change.diff.to = name.into();
    let Some(bytes) = bytes.filter(|bytes| !bytes[..bytes.len().min(SAMPLE)].contains(&0)) else {
        return change;
    };
    let text = String::from_utf8_lossy(bytes);
    let mut lines: Vec<String> = text
        .split_terminator('\n')
        .map(|line| format!("+{line}"))
        .collect();
    if lines.is_empty() {
        return change;
    }
    let count = i32::try_from(lines.len()).unwrap_or(i32::MAX);
    if !text.ends_with('\n') {
        lines.push("\\ No newline at end of file".into());
    }
    let range = match count {
        1 => "+1".into(),
        count => format!("+1,{count}"),
    };
    change.diff.added = count;
    change.diff.chunks.push(Chunk {
        content: format!("@@ -0,0 {range} @@"),
        lines,
        new_start: 1,
        new_lines: count,
        ..Chunk::default()
    });
    change
}

/// Parses a diff into files and chunks.
pub(super) fn parse(text: &str) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    // The lines that the current chunk still has, old and new.
    let mut left = (0, 0);
    for line in text.split_terminator('\n') {
        if let Some(names) = line.strip_prefix("diff --git ").filter(|_| left == (0, 0)) {
            let (from, to) = both(names);
            changes.push(Change::of(Some(from), Some(to)));
            continue;
        }
        let Some(change) = changes.last_mut() else {
            continue;
        };
        if left == (0, 0) {
            if let Some(chunk) = chunk(line) {
                left = (chunk.old_lines, chunk.new_lines);
                change.diff.chunks.push(chunk);
            } else if line.starts_with('\\')
                && let Some(chunk) = change.diff.chunks.last_mut()
            {
                chunk.lines.push(line.into());
            } else {
                head(change, line);
            }
            continue;
        }
        let diff = &mut change.diff;
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
    changes
}

/// Applies a header line between the `diff --git` line of a file and its chunks.
fn head(change: &mut Change, line: &str) {
    if line.starts_with("new file mode") {
        change.set_from(None);
    } else if line.starts_with("deleted file mode") {
        change.set_to(None);
    } else if let Some(name) = line
        .strip_prefix("rename from ")
        .or_else(|| line.strip_prefix("copy from "))
    {
        change.set_from(Some(unquoted(name)));
    } else if let Some(name) = line
        .strip_prefix("rename to ")
        .or_else(|| line.strip_prefix("copy to "))
    {
        change.set_to(Some(unquoted(name)));
    }
}

/// Returns both names of `a/NAME b/NAME`. They differ only for a renamed file, whose names are on
/// separate header lines as well.
fn both(names: &str) -> (PathBuf, PathBuf) {
    let (from, to) = if names.starts_with('"') || names.ends_with('"') {
        let space = names.find("\" ").map(|end| end + 1);
        let space = space.or_else(|| names.find(" \"")).unwrap_or(names.len());
        names.split_at(space)
    } else {
        names.split_at(names.len() / 2)
    };
    let name = |text: &str, prefix: &str| {
        let path = unquoted(text.trim_start());
        path.strip_prefix(prefix)
            .map(Path::to_owned)
            .unwrap_or(path)
    };
    (name(from, "a"), name(to, "b"))
}

/// Returns a name without git's quotes and octal escapes.
fn unquoted(name: &str) -> PathBuf {
    let inside = name
        .strip_prefix('"')
        .and_then(|name| name.strip_suffix('"'));
    let Some(inside) = inside else {
        return name.into();
    };
    let mut bytes = Vec::with_capacity(inside.len());
    let mut rest = inside.as_bytes().iter();
    while let Some(&byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.as_slice();
        bytes.push(match rest.next().copied() {
            Some(b'a') => 7,
            Some(b'b') => 8,
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'v') => 11,
            Some(b'f') => 12,
            Some(b'r') => b'\r',
            Some(b'0'..=b'3') => {
                let digits = digits.get(..3).unwrap_or_default();
                rest.nth(1);
                digits.iter().fold(0, |number: u8, digit| {
                    number
                        .wrapping_mul(8)
                        .wrapping_add(digit.wrapping_sub(b'0'))
                })
            }
            Some(other) => other,
            None => b'\\',
        });
    }
    path_of(bytes)
}

#[cfg(unix)]
fn path_of(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    std::ffi::OsString::from_vec(bytes).into()
}

/// git writes paths in UTF-8.
#[cfg(windows)]
fn path_of(bytes: Vec<u8>) -> PathBuf {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// Parses the header of a chunk: `@@ -1,2 +3,4 @@`.
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

    #[test]
    fn quoted_names_are_read() {
        for (quoted, name) in [
            ("plain name", "plain name"),
            (r#""\303\274.txt""#, "\u{fc}.txt"),
            (r#""ta\tb \"q\" \\""#, "ta\tb \"q\" \\"),
        ] {
            assert_eq!(unquoted(quoted), Path::new(name), "{quoted}");
        }
        for odd in [r#""\30""#, r#""\""#, "\"", r#""\377\3""#] {
            let _ = unquoted(odd);
        }
    }

    #[test]
    fn both_names_of_the_first_line_are_read() {
        for (line, name) in [
            ("a/x b/x", "x"),
            ("a/x b/c b/x b/c", "x b/c"),
            (r#""a/\303\274" "b/\303\274""#, "\u{fc}"),
        ] {
            let (from, to) = both(line);
            assert_eq!(
                (from.as_path(), to.as_path()),
                (Path::new(name), Path::new(name))
            );
        }
    }

    #[test]
    fn a_rename_and_a_mode_have_no_chunks() {
        let text = "diff --git a/old b/new name\nsimilarity index 100%\nrename from old\n\
                    rename to new name\ndiff --git a/run b/run\nold mode 100644\n\
                    new mode 100755\n";
        let shown: Vec<_> = parse(text)
            .into_iter()
            .map(|change| (change.diff.from, change.diff.to))
            .collect();
        let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        assert_eq!(shown, [pair("old", "new name"), pair("run", "run")]);
    }

    #[test]
    fn new_files_are_shown_as_git_shows_them() {
        let shown = |bytes: &[u8]| {
            let change = addition("n", "n".into(), Some(bytes));
            change
                .diff
                .chunks
                .into_iter()
                .next()
                .map(|chunk| (chunk.content, chunk.lines))
        };
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(shown(b""), None);
        assert_eq!(shown(b"a\0b\n"), None);
        assert_eq!(
            shown(b"x\n"),
            Some(("@@ -0,0 +1 @@".into(), lines(&["+x"])))
        );
        assert_eq!(
            shown(b"r\r\ns"),
            Some((
                "@@ -0,0 +1,2 @@".into(),
                lines(&["+r\r", "+s", "\\ No newline at end of file"])
            ))
        );
    }
}
