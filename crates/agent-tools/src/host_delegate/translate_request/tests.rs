use super::*;
use serde_json::Map;

fn tools() -> HostToolSet {
    let schema = |names: &[&str]| {
        let members = names.iter().map(|name| ((*name).to_owned(), json!({})));
        json!({"type": "object", "properties": members.collect::<Map<_, _>>()})
    };
    let known = [
        ("read", schema(&["path", "offset", "limit"])),
        ("bash", schema(&["command", "timeout"])),
        (
            "grep",
            schema(&["pattern", "path", "glob", "ignoreCase", "context", "limit"]),
        ),
        ("find", schema(&["pattern", "path"])),
        ("write", schema(&["path", "content"])),
        ("edit", schema(&["path", "edits"])),
    ];
    HostToolSet::new(known.iter().map(|(name, schema)| (*name, schema)))
}

fn planned(request: &ExecRequest, seen: Option<&str>) -> Option<(String, Json)> {
    let around = CallContext {
        tools: &tools(),
        workspace: Path::new("/w"),
        absolute: &|path| Path::new("/w").join(path),
        before: seen,
    };
    call(request, &around).map(|call| (call.tool, call.arguments))
}

#[test]
fn commands_run_in_their_working_directory() {
    let shell = |folder: &str, timeout| {
        ExecRequest::ShellStreamArgs(ShellArgs {
            command: "ls".into(),
            working_directory: folder.into(),
            timeout,
            ..ShellArgs::default()
        })
    };
    let command = |folder, timeout| planned(&shell(folder, timeout), None).unwrap().1;
    assert_eq!(command("/w/", 1500), json!({"command": "ls", "timeout": 2}));
    assert_eq!(command("", 0), json!({"command": "ls"}));
    let serving = |hard_timeout| {
        let shell = ExecRequest::ShellStreamArgs(ShellArgs {
            command: "serve".into(),
            timeout: 1500,
            timeout_behavior: TimeoutBehavior::Background as i32,
            hard_timeout,
            ..ShellArgs::default()
        });
        planned(&shell, None).unwrap().1
    };
    assert_eq!(serving(None), json!({"command": "serve"}));
    assert_eq!(
        serving(Some(60_000)),
        json!({"command": "serve", "timeout": 60})
    );
    assert_eq!(
        command("/w/it's", 0)["command"],
        "cd '/w/it'\\''s' && { ls\n}"
    );
}

#[test]
fn a_search_becomes_a_grep_or_a_find() {
    let grep = |args: GrepArgs| planned(&ExecRequest::GrepArgs(args), None);
    let plain = GrepArgs {
        pattern: "x".into(),
        case_insensitive: Some(true),
        context: Some(2),
        head_limit: Some(5),
        ..GrepArgs::default()
    };
    assert_eq!(
        grep(plain.clone()).unwrap(),
        (
            "grep".to_owned(),
            json!({"pattern": "x", "ignoreCase": true, "context": 2, "limit": 5})
        )
    );
    let files = GrepArgs {
        output_mode: Some("files_with_matches".into()),
        ..plain.clone()
    };
    assert_eq!(
        grep(files).unwrap().1,
        json!({"pattern": "x", "ignoreCase": true})
    );
    let find = GrepArgs {
        pattern: String::new(),
        glob: Some("*.rs".into()),
        ..GrepArgs::default()
    };
    assert_eq!(
        grep(find).unwrap(),
        ("find".to_owned(), json!({"pattern": "*.rs"}))
    );
    assert_eq!(
        grep(GrepArgs {
            multiline: Some(true),
            ..plain
        }),
        None
    );
}

#[test]
fn a_write_to_a_file_that_was_read_becomes_an_edit() {
    let write = |text: &str| {
        ExecRequest::WriteArgs(WriteArgs {
            path: "/w/a".into(),
            file_text: text.into(),
            ..WriteArgs::default()
        })
    };
    assert_eq!(
        planned(&write("one\nTWO\n"), None).unwrap(),
        (
            "write".to_owned(),
            json!({"path": "/w/a", "content": "one\nTWO\n"})
        )
    );
    let (tool, arguments) =
        planned(&write("one\nTWO\nthree\n"), Some("one\ntwo\nthree\n")).unwrap();
    assert_eq!(
        (tool.as_str(), &arguments["edits"]),
        ("edit", &json!([{"oldText": "two\n", "newText": "TWO\n"}]))
    );
    let bytes = ExecRequest::WriteArgs(WriteArgs {
        file_bytes: vec![0xff, 0].into(),
        ..WriteArgs::default()
    });
    assert_eq!(planned(&bytes, None), None);
}

#[test]
fn a_delete_becomes_an_rm_of_one_file() {
    let delete = |path: &str| {
        let path = path.to_owned();
        let request = ExecRequest::DeleteArgs(DeleteArgs {
            path,
            ..DeleteArgs::default()
        });
        planned(&request, None).unwrap()
    };
    assert_eq!(
        delete("-rf it's"),
        (
            "bash".to_owned(),
            json!({"command": r"rm -- '/w/-rf it'\''s'"})
        )
    );
}

#[test]
fn tools_without_the_needed_arguments_are_not_called() {
    let ls = ExecRequest::LsArgs(LsArgs {
        path: "/w".into(),
        ..LsArgs::default()
    });
    assert_eq!(planned(&ls, None), None);
    let from_the_end = ExecRequest::ReadArgs(ReadArgs {
        path: "a".into(),
        offset: Some(-5),
        ..ReadArgs::default()
    });
    // The tool cannot count from the end, so the lines are cut out of the whole file.
    assert_eq!(
        planned(&from_the_end, None).unwrap(),
        ("read".to_owned(), json!({"path": "a"}))
    );
    let literal = ExecRequest::PiGrepArgs(PiGrepExecArgs {
        pattern: "x".into(),
        literal: Some(true),
        ..PiGrepExecArgs::default()
    });
    assert_eq!(
        planned(&literal, None),
        None,
        "its grep takes no such argument"
    );
}
