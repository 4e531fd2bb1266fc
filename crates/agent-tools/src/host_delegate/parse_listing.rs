//! Parses the output of the host's `ls`, `find` and `grep`. Pure.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::paths::PathResolver;
use cursor_proto::agent::v1::*;

/// The lines a tool listed.
struct ListedLines<'a> {
    lines: Vec<&'a str>,
    /// Whether the tool stopped at a limit.
    is_cut: bool,
}

/// Returns the lines of a text without the note that the tool puts after a blank line. Names may
/// start with a bracket, so only a bracket in that position is a note.
fn listed<'a>(text: &'a str, nothing: &[&str]) -> ListedLines<'a> {
    static NOTE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"\n\n\[([^\n]*)\]\s*$").ok());
    let note = NOTE.as_ref().and_then(|note| note.captures(text));
    let at = note.as_ref().and_then(|note| note.get(0));
    let body = &text[..at.map_or(text.len(), |note| note.start())];
    let lines = if nothing.contains(&body.trim()) {
        Vec::new()
    } else {
        body.lines().filter(|line| !line.is_empty()).collect()
    };
    let cut = note.and_then(|note| note.get(1));
    let is_cut = cut.is_some_and(|note| note.as_str().contains("limit reached"));
    ListedLines { lines, is_cut }
}

/// Converts a listing of names into a directory tree of one level.
pub(super) fn folder(args: &LsArgs, text: &str) -> LsSuccess {
    let root = args.path.trim_end_matches('/');
    let listed = listed(text, &["(empty directory)"]);
    // `num_files` stays empty because the host does not report how many files are hidden.
    let mut node = LsDirectoryTreeNode {
        abs_path: args.path.clone(),
        children_were_processed: !listed.is_cut,
        ..LsDirectoryTreeNode::default()
    };
    for name in listed.lines {
        match name.strip_suffix('/') {
            Some(folder) => node.children_dirs.push(LsDirectoryTreeNode {
                abs_path: format!("{root}/{folder}"),
                ..LsDirectoryTreeNode::default()
            }),
            None => node.children_files.push(ls_directory_tree_node::File {
                name: name.to_owned(),
                ..Default::default()
            }),
        }
    }
    LsSuccess {
        directory_tree_root: Some(node),
    }
}

/// What a search was executed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchTarget {
    /// The host reports paths relative to this folder.
    Folder,
    /// The host reports only the file's name.
    File,
}

struct MatchLine<'a> {
    file: &'a str,
    number: i32,
    text: &'a str,
    context_line: bool,
}

/// Parses a matching line: `file:3: text`.
fn matching_line(line: &str) -> Option<MatchLine<'_>> {
    static LINE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^(.+?):(\d+):(?: (.*)|(.*))$").ok());
    let parts = LINE.as_ref()?.captures(line)?;
    Some(MatchLine {
        file: parts.get(1)?.as_str(),
        number: parts.get(2)?.as_str().parse().ok()?,
        text: parts.get(3).or(parts.get(4))?.as_str(),
        context_line: false,
    })
}

/// Parses a context line: `file-3- text`. Only files with matches are tried, so that a name with
/// numbers in it is parsed correctly.
fn context_line<'a>(line: &'a str, files: &BTreeSet<&str>) -> Option<MatchLine<'a>> {
    let found = |file: &str| {
        let rest = line.strip_prefix(file)?.strip_prefix('-')?;
        let (number, text) = rest.split_once('-')?;
        Some(MatchLine {
            file: &line[..file.len()],
            number: number.parse().ok()?,
            text: match text {
                "" => text,
                text => text.strip_prefix(' ')?,
            },
            context_line: true,
        })
    };
    files.iter().find_map(|file| found(file))
}

/// Parses a context line whose match was cut off.
fn unmatched_context_line(line: &str) -> Option<MatchLine<'_>> {
    static LINE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^(.+?)-(\d+)-(?: (.*))?$").ok());
    let parts = LINE.as_ref()?.captures(line)?;
    Some(MatchLine {
        file: parts.get(1)?.as_str(),
        number: parts.get(2)?.as_str().parse().ok()?,
        text: parts.get(3).map_or("", |text| text.as_str()),
        context_line: true,
    })
}

/// Parses the lines of a search; a line in neither format is returned as a file name.
fn read<'a>(lines: &[&'a str]) -> Vec<Result<MatchLine<'a>, &'a str>> {
    let matches = lines.iter().filter_map(|line| matching_line(line));
    let files: BTreeSet<&str> = matches.map(|found| found.file).collect();
    let read = |line: &&'a str| {
        let found = context_line(line, &files).or_else(|| matching_line(line));
        found.or_else(|| unmatched_context_line(line)).ok_or(*line)
    };
    let separator = |line: &&&str| **line == "--";
    let lines = lines.iter().filter(|line| !separator(line));
    lines.map(read).collect()
}

/// Groups the lines of a search by file, with paths relative to the workspace.
pub(super) fn search(
    args: GrepArgs,
    text: &str,
    resolver: &PathResolver,
    target: SearchTarget,
) -> GrepSuccess {
    use grep_union_result::Result as Union;
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let mode = args.output_mode.clone().unwrap_or_else(|| "content".into());
    let nothing = [
        "No matches found",
        "No files found",
        "No files found matching pattern",
    ];
    let listed = listed(text, &nothing);
    let root = resolver.of(args.path.as_deref().unwrap_or_default());
    let name = |file: &str| match target {
        SearchTarget::Folder => resolver.display(&root.join(file)),
        SearchTarget::File => resolver.display(&root),
    };
    let found = if args.pattern.is_empty() {
        // `find` returns only names, including those of folders.
        let files = listed.lines.iter().filter(|line| !line.ends_with('/'));
        files.map(|line| Err(*line)).collect()
    } else {
        read(&listed.lines)
    };
    let mut files: Vec<GrepFileMatch> = Vec::new();
    for found in found {
        let (file, matched) = match found {
            Err(name) => (name, None),
            Ok(found) => {
                let matched = GrepContentMatch {
                    line_number: found.number,
                    content: found.text.to_owned(),
                    is_context_line: found.context_line,
                    ..GrepContentMatch::default()
                };
                (found.file, Some(matched))
            }
        };
        let file = name(file);
        let known = files.iter().position(|known| known.file == file);
        let at = known.unwrap_or_else(|| {
            files.push(GrepFileMatch {
                file,
                ..GrepFileMatch::default()
            });
            files.len() - 1
        });
        files[at].matches.extend(matched);
    }
    let hits = |file: &GrepFileMatch| {
        let hits = file.matches.iter().filter(|line| !line.is_context_line);
        hits.count()
    };
    let all: usize = files.iter().map(hits).sum();
    let client_truncated = listed.is_cut;
    let result = match mode.as_str() {
        "files_with_matches" => Union::Files(GrepFilesResult {
            total_files: count(files.len()),
            files: files.into_iter().map(|file| file.file).collect(),
            client_truncated,
            ..GrepFilesResult::default()
        }),
        "count" => Union::Count(GrepCountResult {
            total_files: count(files.len()),
            total_matches: count(all),
            counts: files
                .iter()
                .map(|file| GrepFileCount {
                    file: file.file.clone(),
                    count: count(hits(file)),
                })
                .collect(),
            client_truncated,
            ..GrepCountResult::default()
        }),
        _ => Union::Content(GrepContentResult {
            total_lines: count(files.iter().map(|file| file.matches.len()).sum()),
            total_matched_lines: count(all),
            matches: files,
            client_truncated,
            ..GrepContentResult::default()
        }),
    };
    GrepSuccess {
        pattern: args.pattern,
        path: args.path.unwrap_or_default(),
        output_mode: mode,
        workspace_results: vec![grep_success::WorkspaceResultsEntry {
            key: resolver.workspace.to_string_lossy().into_owned(),
            value: Some(GrepUnionResult {
                result: Some(result),
            }),
        }],
        active_editor_result: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grep_union_result::Result as Union;

    fn resolver() -> PathResolver {
        PathResolver {
            workspace: "/w".into(),
            home: None,
        }
    }

    fn searched(args: GrepArgs, text: &str, target: SearchTarget) -> Union {
        let mut success = search(args, text, &resolver(), target);
        let entry = success.workspace_results.remove(0);
        assert_eq!(entry.key, "/w");
        entry.value.unwrap().result.unwrap()
    }

    fn args(mode: &str, path: Option<&str>) -> GrepArgs {
        GrepArgs {
            pattern: "x".into(),
            path: path.map(str::to_owned),
            output_mode: Some(mode.into()),
            ..GrepArgs::default()
        }
    }

    /// File, number, text, and whether it is a context line.
    fn lines(
        text: &str,
        path: Option<&str>,
        target: SearchTarget,
    ) -> Vec<(String, i32, String, bool)> {
        let Union::Content(content) = searched(args("content", path), text, target) else {
            panic!();
        };
        let file = |file: &GrepFileMatch| {
            let lines = file.matches.iter();
            let line = |line: &GrepContentMatch| {
                let (text, context_line) = (line.content.clone(), line.is_context_line);
                (file.file.clone(), line.line_number, text, context_line)
            };
            lines.map(line).collect::<Vec<_>>()
        };
        content.matches.iter().flat_map(file).collect()
    }

    #[test]
    fn matches_are_grouped_by_file() {
        let text = "src/a.rs-1- before\nsrc/a.rs:2: hit: one\n--\nb-c.txt:10: two\n\n[2 matches limit reached]";
        let search = |mode: &str| searched(args(mode, None), text, SearchTarget::Folder);
        let Union::Content(content) = search("content") else {
            panic!();
        };
        assert_eq!((content.total_lines, content.total_matched_lines), (3, 2));
        assert!(content.client_truncated);
        assert_eq!(content.matches[0].file, "src/a.rs");
        assert!(content.matches[0].matches[0].is_context_line);
        assert_eq!(content.matches[0].matches[1].content, "hit: one");
        assert_eq!(content.matches[1].matches[0].line_number, 10);
        let Union::Count(counts) = search("count") else {
            panic!();
        };
        assert_eq!((counts.total_files, counts.total_matches), (2, 2));
        let Union::Files(files) = search("files_with_matches") else {
            panic!();
        };
        assert_eq!(files.files, ["src/a.rs", "b-c.txt"]);
        let none = lines("No matches found", None, SearchTarget::Folder);
        assert_eq!(none, []);
    }

    #[test]
    fn names_with_numbers_and_brackets_are_not_split() {
        let text = [
            "[id].tsx:1: [x]",
            "2024-01-05-notes.md-2- see b.rs:7: y",
            "2024-01-05-notes.md:3: x",
            "2024-01-05-notes.md-4- ",
            "a-1:5: x",
            "a-1-6- z",
            "a:1: x",
        ];
        let text = &text.join("\n");
        let line = |file: &str, number, text: &str, context_line| {
            (file.to_owned(), number, text.to_owned(), context_line)
        };
        let dated = "2024-01-05-notes.md";
        assert_eq!(
            lines(text, None, SearchTarget::Folder),
            [
                line("[id].tsx", 1, "[x]", false),
                line(dated, 2, "see b.rs:7: y", true),
                line(dated, 3, "x", false),
                line(dated, 4, "", true),
                line("a-1", 5, "x", false),
                line("a-1", 6, "z", true),
                line("a", 1, "x", false),
            ]
        );
        // The match of this context line was cut off.
        let unmatched_context_line = lines("b.rs-3- text", None, SearchTarget::Folder);
        assert_eq!(unmatched_context_line, [line("b.rs", 3, "text", true)]);
    }

    #[test]
    fn files_are_named_relative_to_the_workspace() {
        let name = |path, target| lines("a.rs:1: x", Some(path), target).remove(0).0;
        assert_eq!(name("src", SearchTarget::Folder), "src/a.rs");
        assert_eq!(name("/w/src/", SearchTarget::Folder), "src/a.rs");
        assert_eq!(name("/w", SearchTarget::Folder), "a.rs");
        assert_eq!(name("/else", SearchTarget::Folder), "/else/a.rs");
        assert_eq!(name("/w/src/a.rs", SearchTarget::File), "src/a.rs");
    }

    #[test]
    fn a_find_returns_files_only() {
        let find = GrepArgs {
            pattern: String::new(),
            glob: Some("*".into()),
            ..args("files_with_matches", Some("src"))
        };
        let found = |text| match searched(find.clone(), text, SearchTarget::Folder) {
            Union::Files(files) => (files.files, files.client_truncated),
            other => panic!("{other:?}"),
        };
        let text =
            "[id].tsx\nsub/\nlog:3: x.txt\n\n[1000 results limit reached. Use limit=2000 for more]";
        let names = ["src/[id].tsx", "src/log:3: x.txt"].map(str::to_owned);
        assert_eq!(found(text), (names.into(), true));
        assert_eq!(found("No files found matching pattern").0, [""; 0]);
        assert_eq!(found("No files found.md").0, ["src/No files found.md"]);
    }

    #[test]
    fn a_folder_lists_its_names() {
        let ls = |text| {
            let args = LsArgs {
                path: "/w/".into(),
                ..LsArgs::default()
            };
            folder(&args, text).directory_tree_root.unwrap()
        };
        let root = ls(
            "[id].tsx\na.txt\n[slug]/\nsub/\n\n[500 entries limit reached. Use limit=1000 for more]",
        );
        let names = |node: &LsDirectoryTreeNode| {
            let files = node.children_files.iter();
            files.map(|file| file.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&root), ["[id].tsx", "a.txt"]);
        let folders = root.children_dirs.iter().map(|folder| &folder.abs_path);
        assert_eq!(folders.collect::<Vec<_>>(), ["/w/[slug]", "/w/sub"]);
        assert!(!root.children_were_processed, "there is more");
        assert_eq!(root.num_files, 0, "the number of hidden files is unknown");
        let empty = ls("(empty directory)");
        assert_eq!(
            (names(&empty), empty.children_were_processed),
            (vec![], true)
        );
    }
}
