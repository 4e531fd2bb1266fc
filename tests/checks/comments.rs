//! Comments are prose: a type is named in backticks or as a link. A bare type name in a sentence is
//! what a careless rename leaves behind.

use std::collections::BTreeSet;

use regex::Regex;

use crate::workspace::source_files;

/// Names of products that are also names of types.
const WORDS: [&str; 1] = ["TypeScript"];

#[test]
fn comments_name_types_in_backticks_only() {
    let files = source_files(&["src", "crates", "tests", "xtask"]);
    let texts: Vec<_> = files
        .iter()
        .map(|file| (file, std::fs::read_to_string(file).unwrap()))
        .collect();
    let declared = Regex::new(r"\b(?:struct|enum|trait|type) ([A-Z]\w*[a-z]\w*[A-Z]\w*)").unwrap();
    let types: BTreeSet<&str> = texts
        .iter()
        .flat_map(|(_, text)| declared.captures_iter(text))
        .map(|found| found.get(1).unwrap().as_str())
        .filter(|name| !WORDS.contains(name))
        .collect();
    assert!(types.len() > 500, "only {} types found", types.len());
    let comment = Regex::new(r"^\s*//[/!]?(.*)$").unwrap();
    let quoted = Regex::new(r#"`[^`]*`|\[[^\]]*\]|"[^"]*""#).unwrap();
    let word = Regex::new(r"[\w:.]+").unwrap();
    let mut bare = Vec::new();
    for (file, text) in &texts {
        for (number, line) in text.lines().enumerate() {
            let Some(comment) = comment.captures(line) else {
                continue;
            };
            let prose = quoted.replace_all(&comment[1], "");
            let names = word.find_iter(&prose).map(|found| found.as_str());
            for name in names.filter(|name| types.contains(name.trim_end_matches('.'))) {
                bare.push(format!("{}:{}: {name}", file.display(), number + 1));
            }
        }
    }
    assert!(bare.is_empty(), "{}", bare.join("\n"));
}
