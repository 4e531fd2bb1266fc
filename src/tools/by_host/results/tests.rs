use super::*;
use serde_json::Value as Json;

fn result(text: &str, verdict: Verdict) -> HostResult {
    HostResult {
        content: vec![Content::Text(text.into())],
        verdict,
        details: Json::Null,
        structured: None,
    }
}

fn one(request: Request, given: HostResult) -> Reply {
    let mut all = replies(request, given, "/w", Duration::from_millis(7)).unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn read_of(given: HostResult) -> read_result::Result {
    let request = Request::ReadArgs(ReadArgs {
        path: "/w/a".into(),
        ..ReadArgs::default()
    });
    match one(request, given) {
        Reply::ReadResult(read) => read.result.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn reads_keep_text_pictures_and_the_kind_of_error() {
    use read_result::Result as Read;
    let Read::Success(whole) = read_of(result("a\nb\n", Verdict::Done)) else {
        panic!();
    };
    assert_eq!(
        (whole.total_lines, whole.file_size, whole.truncated),
        (3, 4, false)
    );
    let part = "a\nb\n\n[Showing lines 1-2 of 90. Use offset=3 to continue.]";
    let Read::Success(part) = read_of(result(part, Verdict::Done)) else {
        panic!();
    };
    assert_eq!((part.total_lines, part.truncated), (90, true));
    let picture = HostResult {
        content: vec![
            Content::Text("Read image file [image/png]".into()),
            Content::Image {
                data: vec![1, 2, 3].into(),
                mime_type: "image/png".into(),
            },
        ],
        verdict: Verdict::Done,
        details: Json::Null,
        structured: None,
    };
    let Read::Success(picture) = read_of(picture) else {
        panic!();
    };
    assert_eq!(
        picture.output,
        Some(read_success::Output::Data(vec![1, 2, 3].into()))
    );
    let failed = |text: &str| read_of(result(text, Verdict::Failed));
    assert!(matches!(
        failed("ENOENT: no such file or directory"),
        Read::FileNotFound(_)
    ));
    assert!(matches!(
        failed("EACCES: permission denied"),
        Read::PermissionDenied(_)
    ));
    assert!(matches!(
        failed("EISDIR: illegal operation"),
        Read::InvalidFile(_)
    ));
    assert!(matches!(failed("not on a Sunday"), Read::Error(_)));
}

#[test]
fn commands_keep_their_exit_codes() {
    let ended = |text: &str, verdict| ended(Given::of(result(text, verdict)));
    assert_eq!(
        ended("out\n", Verdict::Done),
        ("out\n".into(), Ending::Exited(0))
    );
    assert_eq!(
        ended("(no output)", Verdict::Done),
        (String::new(), Ending::Exited(0))
    );
    assert_eq!(
        ended("one\ntwo\n\nCommand exited with code 3", Verdict::Failed),
        ("one\ntwo".into(), Ending::Exited(3))
    );
    assert_eq!(
        ended(
            "(no output)\n\nCommand exited with code 127",
            Verdict::Failed
        ),
        (String::new(), Ending::Exited(127))
    );
    assert_eq!(
        ended("x\n\nCommand timed out after 5 seconds", Verdict::Failed),
        ("x".into(), Ending::Ended(ShellAbortReason::Timeout))
    );
    assert_eq!(
        ended("Command aborted", Verdict::Failed),
        (String::new(), Ending::Ended(ShellAbortReason::UserAbort))
    );
    assert_eq!(ended("not on a Sunday", Verdict::Failed).1, Ending::Refused);
}

#[test]
fn a_streamed_command_starts_and_exits() {
    let request = Request::ShellStreamArgs(ShellArgs::default());
    let given = result("x\n\nCommand exited with code 2", Verdict::Failed);
    let all = replies(request, given, "/w", Duration::ZERO).unwrap();
    assert_eq!(all.len(), 3);
    let Reply::ShellStream(ShellStream {
        event: Some(shell_stream::Event::Exit(exit)),
    }) = &all[2]
    else {
        panic!("{all:?}");
    };
    assert_eq!(
        (exit.code, exit.cwd.as_str(), exit.aborted),
        (2, "/w", false)
    );
}

#[test]
fn a_search_is_told_by_file() {
    let text = "src/a.rs-1- before\nsrc/a.rs:2: hit: one\n--\nb-c.txt:10: two\n\n[2 matches limit reached]";
    let search = |mode: &str| {
        let args = GrepArgs {
            pattern: "x".into(),
            output_mode: Some(mode.into()),
            ..GrepArgs::default()
        };
        let mut success = grep(args, text, "/w");
        let entry = success.workspace_results.remove(0);
        assert_eq!(entry.key, "/w");
        entry.value.unwrap().result.unwrap()
    };
    let grep_union_result::Result::Content(content) = search("content") else {
        panic!();
    };
    assert_eq!((content.total_lines, content.total_matched_lines), (3, 2));
    assert_eq!(content.matches[0].file, "src/a.rs");
    assert!(content.matches[0].matches[0].is_context_line);
    assert_eq!(content.matches[0].matches[1].content, "hit: one");
    assert_eq!(content.matches[1].matches[0].line_number, 10);
    let grep_union_result::Result::Count(counts) = search("count") else {
        panic!();
    };
    assert_eq!((counts.total_files, counts.total_matches), (2, 2));
    let grep_union_result::Result::Files(files) = search("files_with_matches") else {
        panic!();
    };
    assert_eq!(files.files, ["src/a.rs", "b-c.txt"]);
    let none = grep(
        GrepArgs {
            pattern: "x".into(),
            ..GrepArgs::default()
        },
        "No matches found",
        "/w",
    );
    assert!(format!("{none:?}").contains("total_lines: 0"));
}

#[test]
fn a_folder_is_told_by_names() {
    let request = Request::LsArgs(LsArgs {
        path: "/w/".into(),
        ..LsArgs::default()
    });
    let Reply::LsResult(ls) = one(request, result("a.txt\nsub/\n", Verdict::Done)) else {
        panic!();
    };
    let Some(ls_result::Result::Success(success)) = ls.result else {
        panic!();
    };
    let root = success.directory_tree_root.unwrap();
    assert_eq!(root.children_files[0].name, "a.txt");
    assert_eq!(root.children_dirs[0].abs_path, "/w/sub");
}
