//! Dependencies between modules point down only.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]

use std::path::{Path, PathBuf};

/// Each module and the modules it may use.
const ARROWS: &[(&str, &[&str])] = &[
    (
        "doors",
        &[
            "turn",
            "run",
            "conversation",
            "tools",
            "catalog",
            "account",
            "diag",
        ],
    ),
    (
        "turn",
        &[
            "run",
            "conversation",
            "tools",
            "tool_cards",
            "catalog",
            "account",
            "prompts",
            "wire",
            "diag",
        ],
    ),
    ("catalog", &["account", "wire", "diag"]),
    ("conversation", &["prompts", "wire", "diag"]),
    ("run", &["tools", "account", "prompts", "wire", "diag"]),
    ("tools", &["wire", "diag"]),
    ("account", &["wire", "diag"]),
    ("tool_cards", &["wire", "diag"]),
    ("sim", &["wire"]),
    ("wire", &["diag"]),
    ("prompts", &[]),
    ("diag", &[]),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns every module that a file names after `crate::`, also inside braces.
fn named(text: &str) -> Vec<&str> {
    text.match_indices("crate::")
        .flat_map(|(at, prefix)| {
            let rest = &text[at + prefix.len()..];
            let list = match rest.strip_prefix('{') {
                Some(list) => &list[..list.find("};").unwrap_or(0)],
                None => rest.split([':', ';', ' ', ',', '(']).next().unwrap_or(""),
            };
            list.split(',')
                .map(|item| item.split(':').next().unwrap_or("").trim())
        })
        .collect()
}

#[test]
fn arrows_point_down() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut wrong = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for file in &files {
        let path = file.strip_prefix(&src).unwrap();
        let room = path.iter().next().unwrap().to_str().unwrap();
        if room == "main.rs" || room == "lib.rs" {
            continue;
        }
        let room = room.trim_end_matches(".rs");
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == room) else {
            panic!("{room} is not on the map: add it to ARROWS and to lib.rs");
        };
        seen.insert(room.to_owned());
        let text = std::fs::read_to_string(file).unwrap();
        for other in named(&text) {
            let is_room = ARROWS.iter().any(|(name, _)| *name == other);
            if is_room && other != room && !allowed.contains(&other) {
                wrong.push(format!("{}: {room} may not use {other}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(seen.len(), ARROWS.len(), "rooms without a file: {seen:?}");
}

#[test]
fn files_stay_readable() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let long: Vec<String> = files
        .iter()
        .filter(|file| !file.to_str().unwrap().ends_with(".v1.rs"))
        .map(|file| (std::fs::read_to_string(file).unwrap().lines().count(), file))
        .filter(|(lines, _)| *lines > 600)
        .map(|(lines, file)| format!("{}: {lines} lines", file.display()))
        .collect();
    assert!(long.is_empty(), "split by idea: {}", long.join(", "));
}
