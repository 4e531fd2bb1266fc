use super::*;
use serde_json::json;

fn read_with(format: ResultFormat, text: &str, is_error: bool) -> (String, bool) {
    let reader = ResultReader {
        format,
        success: None,
        recipe: None,
        slice: None,
    };
    let given = json!({"content": [{"type": "text", "text": text}], "isError": is_error});
    let result = reader.read(HostResult::read(&given));
    let Content::Text(text) = &result.content[0] else {
        panic!("{result:?}");
    };
    (text.clone(), result.is_error)
}

#[test]
fn numbers_and_notes_are_no_part_of_a_file() {
    let read = |format, text| read_with(format, text, false).0;
    let old = "<file>\n00001| a\n00002| \n00003| 4: b\n\n(End of file - total 3 lines)\n</file>";
    assert_eq!(read(ResultFormat::OpencodeRead, old), "a\n\n4: b\n");
    let empty = "<path>/w/e</path>\n<type>file</type>\n<content>\n\n(End of file - total 0 lines)\n</content>";
    assert_eq!(read(ResultFormat::OpencodeRead, empty), "");
    let capped = "<path>/w/e</path>\n<type>file</type>\n<content>\n1: a\n\n(Output capped at 50 KB. Showing lines 1-1. Use offset=2 to continue.)\n</content>";
    assert!(read(ResultFormat::OpencodeRead, capped).contains("[Showing lines 1-1 of 1."));
    assert_eq!(
        read(ResultFormat::ClaudeRead, "     1→a\n     2→  b"),
        "a\n  b"
    );
    // A line of the file that looks like a numbered one is kept.
    assert_eq!(read(ResultFormat::ClaudeRead, "1\t7\tx\n2\t"), "7\tx\n");
    assert_eq!(read(ResultFormat::AnyRead, "1: a\n2: b"), "a\nb\n");
    assert_eq!(read(ResultFormat::AnyRead, "1: a\nplain"), "1: a\nplain");
}

#[test]
fn a_part_that_a_tool_cannot_be_asked_for_is_cut_out() {
    let cut = |offset, limit| file_text::cut("a\nb\nc\nd\n", Slice { offset, limit });
    assert_eq!(cut(-2, None), "c\nd\n");
    assert_eq!(cut(3, Some(9)), "c\nd\n");
    assert_eq!(
        cut(2, Some(1)),
        "b\n\n[Showing lines 2-2 of 4. Use offset=3 to continue.]"
    );
    assert_eq!(cut(9, None), "");
}

#[test]
fn commands_of_unknown_shells_report_their_exit_code() {
    let read = |text| read_with(ResultFormat::AnyShell, text, false);
    let failed = ("out\n\nCommand exited with code 3".to_owned(), true);
    assert_eq!(read("Exit code: 3\nout"), failed);
    assert_eq!(read("out\n[exit code 3]"), failed);
    assert_eq!(read("out\nProcess exited with code 3"), failed);
    assert_eq!(read("out\n"), ("out\n".to_owned(), false));
    assert!(read("The user rejected permission to use this specific tool call.").1);
}

#[test]
fn older_results_of_codex_are_json() {
    let text = r#"{"output":"out\n","metadata":{"exit_code":2,"duration_seconds":0.1}}"#;
    assert_eq!(
        read_with(ResultFormat::CodexShell, text, false),
        ("out\n\nCommand exited with code 2".to_owned(), true)
    );
    let running = HostResult::read(&json!({"content": [{"type": "text",
        "text": "Chunk ID: 1\nWall time: 1 seconds\nProcess running with session ID 47\nOutput:\nfirst\n"}]}));
    assert_eq!(running_session(&running).unwrap(), "47");
    let ended = HostResult::read(&json!({"content": [{"type": "text",
        "text": "Chunk ID: 2\nWall time: 1 seconds\nProcess exited with code 0\nOutput:\nlast\n"}]}));
    assert_eq!(running_session(&ended), None);
    let whole = with_output_before(&output_so_far(&running), ended);
    let Content::Text(text) = &whole.content[0] else {
        panic!("{whole:?}");
    };
    assert_eq!(
        read_with(ResultFormat::CodexExec, text, false),
        ("first\nlast\n".to_owned(), false)
    );
}

#[test]
fn listings_lose_their_decoration() {
    let read = |format, text| read_with(format, text, false).0;
    let tree = "/w/\n  src/\n    a.rs\n  b.txt\n";
    assert_eq!(read(ResultFormat::OpencodeList, tree), "src/\nb.txt");
    let tree = "- /w/\n  - src/\n    - a.rs\n  - b.txt\nNOTE: do any of the files look odd?";
    assert_eq!(read(ResultFormat::ClaudeList, tree), "src/\nb.txt");
    let zed = "# Folders:\nw/src\n\n# Files:\nw/b.txt\n";
    assert_eq!(read(ResultFormat::ZedList, zed), "src/\nb.txt");
    let found = "Found 2 total matches:\n\nw/src/a.rs\nw/b.rs";
    assert_eq!(read(ResultFormat::ZedNames, found), "src/a.rs\nb.rs");
    let cut = "/w/a.rs\n\n(Results are truncated. Consider a more specific path.)";
    assert_eq!(
        read(ResultFormat::FileNames, cut),
        "/w/a.rs\n\n[limit reached]"
    );
}
