use super::*;
use serde_json::Value as Json;

fn result(text: &str, is_error: bool) -> HostResult {
    HostResult {
        content: vec![Content::Text(text.into())],
        is_error,
        details: Json::Null,
        structured: None,
    }
}

fn given(request: ExecRequest, given: HostResult) -> Vec<ExecReply> {
    let resolver = PathResolver {
        workspace: "/w".into(),
        home: None,
    };
    let took = Duration::from_millis(7);
    replies(request, given, &resolver, SearchTarget::Folder, took).unwrap()
}

fn one(request: ExecRequest, result: HostResult) -> ExecReply {
    let mut all = given(request, result);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn read_of(given: HostResult) -> read_result::Result {
    ranged(None, given)
}

fn ranged(offset: Option<i32>, given: HostResult) -> read_result::Result {
    let request = ExecRequest::ReadArgs(ReadArgs {
        path: "/w/a".into(),
        offset,
        ..ReadArgs::default()
    });
    match one(request, given) {
        ExecReply::ReadResult(read) => read.result.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn reads_keep_text_images_and_the_kind_of_error() {
    use read_result::Result as Read;
    let Read::Success(whole) = read_of(result("a\nb\n", false)) else {
        panic!();
    };
    assert_eq!(
        (whole.total_lines, whole.file_size, whole.truncated),
        (3, 4, false)
    );
    let part = "a\nb\n\n[Showing lines 1-2 of 90. Use offset=3 to continue.]";
    let Read::Success(part) = read_of(result(part, false)) else {
        panic!();
    };
    assert_eq!((part.total_lines, part.truncated), (90, true));
    let nothing =
        "[Line 1 is 60.0KB, exceeds 50.0KB limit. Use bash: sed -n '1p' a | head -c 51200]";
    let Read::Error(nothing) = read_of(result(nothing, false)) else {
        panic!("a note is not what the file says");
    };
    assert!(nothing.error.starts_with("Line 1 is 60.0KB"));
    let picture = HostResult {
        content: vec![
            Content::Text("Read image file [image/png]".into()),
            Content::Image {
                data: "AQID".into(),
                mime_type: "image/png".into(),
            },
        ],
        is_error: false,
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
    let failed = |text: &str| read_of(result(text, true));
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
fn a_partial_read_reports_the_total_number_of_lines() {
    let more = "five\nsix\n\n[94 more lines in file. Use offset=7 to continue.]";
    let shown = "five\nsix\n\n[Showing lines 5-6 of 100. Use offset=7 to continue.]";
    let last = "ninety-nine\nhundred";
    for (offset, text, total) in [
        (Some(5), more, 100),
        (Some(5), shown, 100),
        (Some(99), last, 100),
        (Some(1), more, 96),
        // The host's tool is not sent an offset of zero.
        (Some(0), more, 96),
        (None, more, 96),
        (Some(i32::MAX), more, i32::MAX),
    ] {
        let given = result(text, false);
        let read_result::Result::Success(read) = ranged(offset, given) else {
            panic!();
        };
        assert_eq!(read.total_lines, total, "{offset:?} {text}");
    }
}

#[test]
fn commands_keep_their_exit_codes() {
    let ended = |text: &str, is_error| output_and_ending(HostOutput::of(result(text, is_error)));
    assert_eq!(
        ended("out\n", false),
        ("out\n".into(), CommandEnd::Exited(0))
    );
    assert_eq!(
        ended("(no output)", false),
        (String::new(), CommandEnd::Exited(0))
    );
    assert_eq!(
        ended("one\ntwo\n\nCommand exited with code 3", true),
        ("one\ntwo".into(), CommandEnd::Exited(3))
    );
    assert_eq!(
        ended("(no output)\n\nCommand exited with code 127", true),
        (String::new(), CommandEnd::Exited(127))
    );
    assert_eq!(
        ended("x\n\nCommand timed out after 5 seconds", true),
        (
            "x".into(),
            CommandEnd::Terminated(ShellAbortReason::Timeout)
        )
    );
    assert_eq!(
        ended("Command aborted", true),
        (
            String::new(),
            CommandEnd::Terminated(ShellAbortReason::UserAbort)
        )
    );
    assert_eq!(ended("not on a Sunday", true).1, CommandEnd::Refused);
}

#[test]
fn a_streamed_command_starts_and_exits() {
    let request = ExecRequest::ShellStreamArgs(ShellArgs::default());
    let all = given(request, result("x\n\nCommand exited with code 2", true));
    assert_eq!(all.len(), 3);
    let ExecReply::ShellStream(ShellStream {
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
