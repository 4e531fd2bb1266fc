//! Paths as they are shown, and which of them may be looked at.

use std::path::{Component, Path, PathBuf};

/// A path for a person: relative to the workspace where it is inside, else as it was told.
pub fn display(path: &str, root: &Path) -> String {
    let trimmed = path.trim();
    if !trimmed.starts_with('/') {
        return trimmed.to_owned();
    }
    match relative(trimmed, root).as_deref() {
        Some("") => ".".to_owned(),
        Some(inside) => inside.to_owned(),
        None => trimmed.to_owned(),
    }
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
    let slashed = trimmed.replace('\\', "/");
    let scheme = slashed
        .split_once(':')
        .is_some_and(|(scheme, _)| is_scheme(scheme));
    if slashed.is_empty() || slashed.starts_with('~') || scheme || trimmed.starts_with("\\\\") {
        return None;
    }
    if slashed.split('/').any(|part| part == "..") {
        return None;
    }
    if trimmed.starts_with('/') {
        return relative(trimmed, root?)
            .filter(|inside| !inside.is_empty())
            .map(|inside| inside.replace('\\', "/"));
    }
    Some(slashed)
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
