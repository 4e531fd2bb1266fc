//! Display forms of paths, and which files must not be previewed.

use std::path::{Component, Path, PathBuf};

/// Returns the display form of a path, with slashes: relative to the workspace if it is inside,
/// else unchanged.
pub fn display(path: &str, root: &Path) -> String {
    let trimmed = path.trim();
    let inside = if trimmed.starts_with('/') {
        relative(trimmed, root)
    } else {
        None
    };
    match inside.as_deref() {
        Some("") => ".".to_owned(),
        Some(inside) => with_slashes(inside),
        None => with_slashes(trimmed),
    }
}

fn with_slashes(path: &str) -> String {
    path.replace('\\', "/")
}

/// Returns the path relative to the root, empty for the root itself; `None` if it is outside.
fn relative(path: &str, root: &Path) -> Option<String> {
    let inside = normalized(Path::new(path));
    let inside = inside.strip_prefix(normalized(root)).ok()?;
    Some(inside.to_str()?.to_owned())
}

/// Removes `.` and `..` lexically.
fn normalized(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normalized.pop();
            }
            component => normalized.push(component),
        }
    }
    normalized
}

/// Whether a path is a directory or inside it, compared lexically.
pub fn is_within(path: &Path, root: &Path) -> bool {
    normalized(path).starts_with(normalized(root))
}

/// Whether the name or directory of a file suggests that it contains secrets.
pub fn is_sensitive(path: &str) -> bool {
    let lower = path.to_lowercase();
    let segments: Vec<&str> = lower
        .split(['/', '\\'])
        .filter(|part| !part.is_empty())
        .collect();
    // A path with a trailing slash has no file name.
    let name = if lower.ends_with(['/', '\\']) {
        ""
    } else {
        segments.last().copied().unwrap_or_default()
    };
    let kept = ["pem", "key", "p12", "pfx"];
    segments
        .iter()
        .any(|part| [".ssh", "secrets"].contains(part))
        || [
            ".env",
            ".npmrc",
            ".netrc",
            "credentials",
            "id_rsa",
            "id_ed25519",
        ]
        .contains(&name)
        || name.starts_with(".env.")
        || name
            .rsplit_once('.')
            .is_some_and(|(_, end)| kept.contains(&end))
}

/// Returns a path that is short and harmless enough for a summary line: inside the workspace, and
/// no home directory, drive or URL.
pub fn compact(path: &str, root: Option<&Path>) -> Option<String> {
    let trimmed = path.trim();
    let shown = with_slashes(trimmed);
    if shown.is_empty() || shown.starts_with('~') || shown.split('/').any(|part| part == "..") {
        return None;
    }
    if is_windows_path(trimmed) {
        return relative_windows(&shown, root?.to_str()?);
    }
    let scheme = shown
        .split_once(':')
        .is_some_and(|(scheme, _)| is_scheme(scheme));
    if scheme {
        return None;
    }
    if trimmed.starts_with('/') {
        return relative(trimmed, root?)
            .filter(|inside| !inside.is_empty())
            .map(|inside| with_slashes(&inside));
    }
    Some(shown)
}

/// Whether a path starts with a Windows drive or a UNC server.
fn is_windows_path(path: &str) -> bool {
    let mut letters = path.chars();
    let drive = letters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && letters.next() == Some(':')
        && letters.next().is_some_and(|c| "\\/".contains(c));
    drive || path.starts_with("\\\\")
}

/// Returns the path relative to a Windows root, compared case-insensitively.
fn relative_windows(path: &str, root: &str) -> Option<String> {
    if !is_windows_path(root) {
        return None;
    }
    let root = with_slashes(root);
    let named = |part: &&str| !part.is_empty() && *part != ".";
    let mut parts = path.split('/').filter(named);
    for folder in root.split('/').filter(named) {
        parts
            .next()
            .filter(|part| part.to_lowercase() == folder.to_lowercase())?;
    }
    let inside: Vec<&str> = parts.collect();
    (!inside.is_empty()).then(|| inside.join("/"))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
}

/// Converts the path in a file header of a unified diff to its display form; other lines are
/// returned unchanged.
pub fn diff_header(line: &str, root: &Path) -> String {
    let read = || {
        let (marker, rest) = line.split_at_checked(3)?;
        let path = rest.trim_start();
        let spaced = path.len() < rest.len();
        (spaced && ["---", "+++"].contains(&marker)).then_some((marker, path))
    };
    let Some((marker, path)) = read() else {
        return line.to_owned();
    };
    if path == "/dev/null" {
        return format!("{marker} {path}");
    }
    match ["a/", "b/"]
        .into_iter()
        .find_map(|side| Some((side, path.strip_prefix(side)?)))
    {
        Some((side, path)) if !path.is_empty() => {
            let path = if path == "/dev/null" {
                path.to_owned()
            } else {
                display(path, root)
            };
            format!("{marker} {side}{path}")
        }
        _ => line.to_owned(),
    }
}

/// Converts the paths in the file headers of a unified diff to their display form.
pub fn diff(diff: &str, root: &Path) -> String {
    let lines: Vec<String> = diff
        .split('\n')
        .map(|line| diff_header(line, root))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_displayed_with_slashes() {
        let root = Path::new("/w");
        for (path, shown) in [
            ("src\\a.rs", "src/a.rs"),
            ("/w/src\\a.rs", "src/a.rs"),
            ("/etc\\hosts", "/etc/hosts"),
            ("C:\\x\\y", "C:/x/y"),
        ] {
            assert_eq!(display(path, root), shown);
        }
        assert_eq!(diff_header("--- a/src\\a.rs", root), "--- a/src/a.rs");
    }

    #[test]
    fn windows_paths_are_relative_to_a_windows_root() {
        let at = |path: &str, root: &str| compact(path, Some(Path::new(root)));
        assert_eq!(at("c:\\W\\src\\a.rs", "C:\\w\\"), Some("src/a.rs".into()));
        assert_eq!(at("C:/w/a.rs", "C:\\w"), Some("a.rs".into()));
        assert_eq!(at("C:\\w2\\a.rs", "C:\\w"), None);
        assert_eq!(at("C:\\w", "C:\\w"), None);
        assert_eq!(at("D:\\w\\a.rs", "C:\\w"), None);
        assert_eq!(at("C:\\w\\a.rs", "/w"), None);
        assert_eq!(at("\\\\srv\\share\\a", "\\\\srv\\share"), Some("a".into()));
    }
}
