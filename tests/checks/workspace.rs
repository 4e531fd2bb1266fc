//! The shape of the source tree: which crate uses which, and how long a file may be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;

/// Each crate and the crates of this workspace that it depends on. `docs/architecture.md` shows the
/// same arrows.
const DEPENDENCIES: &[(&str, &[&str])] = &[
    (
        "cursor-sidecar",
        &[
            "agent",
            "agent-tools",
            "cursor-client",
            "cursor-sim",
            "foundation",
        ],
    ),
    (
        "agent",
        &["agent-tools", "cursor-client", "cursor-proto", "foundation"],
    ),
    ("agent-tools", &["cursor-proto", "foundation"]),
    ("cursor-client", &["cursor-proto", "foundation"]),
    ("cursor-proto", &[]),
    ("cursor-sim", &["cursor-proto"]),
    ("foundation", &[]),
    (
        "test-support",
        &[
            "agent",
            "agent-tools",
            "cursor-client",
            "cursor-sidecar",
            "cursor-sim",
        ],
    ),
    ("xtask", &["cursor-proto"]),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn crates_depend_only_on_the_crates_below_them() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: Json = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<&str> = packages
        .iter()
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    let found: BTreeMap<&str, BTreeSet<&str>> = packages
        .iter()
        .map(|package| {
            let used = package["dependencies"].as_array().unwrap().iter();
            let used = used
                .filter(|dependency| dependency["kind"].is_null())
                .map(|dependency| dependency["name"].as_str().unwrap())
                .filter(|name| names.contains(name));
            (package["name"].as_str().unwrap(), used.collect())
        })
        .collect();
    let expected = DEPENDENCIES
        .iter()
        .map(|(name, used)| (*name, used.iter().copied().collect()))
        .collect();
    pretty_assertions::assert_eq!(found, expected);
}

/// Appends every hand-written Rust file below a folder.
fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let name = path.file_name().unwrap();
            if name != "generated" && name != "node_modules" {
                rust_files(&path, files);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Returns every hand-written Rust file below folders of the repository.
pub fn source_files(folders: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in folders {
        rust_files(&root().join(folder), &mut files);
    }
    assert!(files.len() > 100, "only {} files found", files.len());
    files
}

#[test]
fn no_file_has_more_than_600_lines() {
    let files = source_files(&["src", "crates", "xtask"]);
    let long: Vec<String> = files
        .iter()
        .map(|file| (std::fs::read_to_string(file).unwrap().lines().count(), file))
        .filter(|(lines, _)| *lines > 600)
        .map(|(lines, file)| format!("{}: {lines} lines", file.display()))
        .collect();
    assert!(long.is_empty(), "split by concept: {}", long.join(", "));
}
