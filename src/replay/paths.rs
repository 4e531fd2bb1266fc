//! Paths as they are shown, and which of them may be looked at.

use std::path::{Component, Path, PathBuf};

/// A path for a person, with slashes: relative to the workspace where it is inside, else as it
/// was told.
pub fn display(path: &str, root: &Path) -> String {
    let trimmed = path.trim();
    let inside = match trimmed.starts_with('/') {
        true => relative(trimmed, root),
        false => None,
    };
    match inside.as_deref() {
        Some("") => ".".to_owned(),
        Some(inside) => slashed(inside),
        None => slashed(trimmed),
    }
}

fn slashed(path: &str) -> String {
    path.replace('\\', "/")
}

/// The path from the root, empty for the root itself; `None` if it leads elsewhere.
fn relative(path: &str, root: &Path) -> Option<String> {
    let inside = folded(Path::new(path));
    let inside = inside.strip_prefix(folded(root)).ok()?;
    Some(inside.to_str()?.to_owned())
}

/// A path without `.` and `..`, by its letters alone.
fn folded(path: &Path) -> PathBuf {
    let mut folded = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                folded.pop();
            }
            component => folded.push(component),
        }
    }
    folded
}

/// Whether a path is inside a folder, or is it, by its letters alone.
pub fn within(path: &Path, root: &Path) -> bool {
    folded(path).starts_with(folded(root))
}

/// Whether a file's name or folder says that its content is nobody's business.
pub fn sensitive(path: &str) -> bool {
    let lower = path.to_lowercase();
    let segments: Vec<&str> = lower
        .split(['/', '\\'])
        .filter(|part| !part.is_empty())
        .collect();
    // A path that ends with a slash has no name.
    let name = match lower.ends_with(['/', '\\']) {
        true => "",
        false => segments.last().copied().unwrap_or_default(),
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

/// A path short and harmless enough for a line about something else: inside the workspace,
/// no home folder, no drive, no address.
pub fn compact(path: &str, root: Option<&Path>) -> Option<String> {
    let trimmed = path.trim();
    let shown = slashed(trimmed);
    if shown.is_empty() || shown.starts_with('~') || shown.split('/').any(|part| part == "..") {
        return None;
    }
    if on_windows(trimmed) {
        return within_windows(&shown, root?.to_str()?);
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
            .map(|inside| slashed(&inside));
    }
    Some(shown)
}

/// Whether a path starts with a drive or a server of Windows.
fn on_windows(path: &str) -> bool {
    let mut letters = path.chars();
    let drive = letters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && letters.next() == Some(':')
        && letters.next().is_some_and(|c| "\\/".contains(c));
    drive || path.starts_with("\\\\")
}

/// The path from a root of Windows, where letters' case does not count.
fn within_windows(path: &str, root: &str) -> Option<String> {
    if !on_windows(root) {
        return None;
    }
    let root = slashed(root);
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

/// A line of a unified diff; file headers name their path as it is shown.
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

/// A unified diff whose headers name their paths as they are shown.
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
    fn paths_are_shown_with_slashes() {
        let root = Path::new("/w");
        for (told, shown) in [
            ("src\\a.rs", "src/a.rs"),
            ("/w/src\\a.rs", "src/a.rs"),
            ("/etc\\hosts", "/etc/hosts"),
            ("C:\\x\\y", "C:/x/y"),
        ] {
            assert_eq!(display(told, root), shown);
        }
        assert_eq!(diff_header("--- a/src\\a.rs", root), "--- a/src/a.rs");
    }

    #[test]
    fn a_path_of_windows_is_short_inside_a_root_of_windows() {
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
