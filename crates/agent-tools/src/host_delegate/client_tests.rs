//! Every known client with its real tool list: which call each native request becomes, and how its
//! recorded results are read. `testdata/clients` says for each list where it comes from.

use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::HostToolSet;
use super::tool_shapes::Operation;
use super::translate_request::{CallContext, call};
use crate::ExecRequest;
use crate::bridge::HostResult;
use cursor_proto::agent::v1::*;

#[derive(Deserialize)]
struct RecordedClient {
    client: String,
    source: String,
    tools: Vec<RecordedTool>,
    results: Vec<RecordedResult>,
}

#[derive(Deserialize)]
struct RecordedTool {
    name: String,
    parameters: Json,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedResult {
    operation: Operation,
    arguments: Json,
    text: String,
    is_error: bool,
}

impl RecordedClient {
    fn set(&self) -> HostToolSet {
        let tools = self.tools.iter();
        HostToolSet::new(tools.map(|tool| (tool.name.as_str(), &tool.parameters)))
    }
}

fn requests() -> Vec<(&'static str, ExecRequest, Option<&'static str>)> {
    let read = |offset, limit| {
        ExecRequest::ReadArgs(ReadArgs {
            path: "src/a.rs".into(),
            offset,
            limit,
            ..ReadArgs::default()
        })
    };
    let shell = |folder: &str| {
        ExecRequest::ShellArgs(ShellArgs {
            command: "make test".into(),
            working_directory: folder.into(),
            timeout: 30_000,
            ..ShellArgs::default()
        })
    };
    let grep = |pattern: &str, glob: &str, insensitive| {
        ExecRequest::GrepArgs(GrepArgs {
            pattern: pattern.into(),
            glob: Some(glob.into()).filter(|glob: &String| !glob.is_empty()),
            case_insensitive: Some(insensitive),
            path: Some("/w/src".into()),
            ..GrepArgs::default()
        })
    };
    let write = || {
        ExecRequest::WriteArgs(WriteArgs {
            path: "/w/a.txt".into(),
            file_text: "ONE\ntwo\nthree\nFOUR\n".into(),
            ..WriteArgs::default()
        })
    };
    vec![
        ("shell", shell("/w"), None),
        ("shell in a folder", shell("/w/sub"), None),
        ("read", read(None, None), None),
        ("read lines", read(Some(5), Some(10)), None),
        ("read the end", read(Some(-5), None), None),
        (
            "list",
            ExecRequest::LsArgs(LsArgs {
                path: "/w/src".into(),
                ..LsArgs::default()
            }),
            None,
        ),
        ("find", grep("", "**/*.rs", false), None),
        ("search", grep("fn main", "", false), None),
        ("search with more", grep("fn main", "*.rs", true), None),
        ("write", write(), None),
        ("change", write(), Some("one\ntwo\nthree\nfour\n")),
        (
            "delete",
            ExecRequest::DeleteArgs(DeleteArgs {
                path: "a.txt".into(),
                ..DeleteArgs::default()
            }),
            None,
        ),
        (
            "fetch",
            ExecRequest::FetchArgs(FetchArgs {
                url: "https://example.com".into(),
                ..FetchArgs::default()
            }),
            None,
        ),
    ]
}

/// Returns the calls that a client's tools get for every native request.
fn calls(set: &HostToolSet) -> String {
    let mut text = String::new();
    for (name, request, before) in requests() {
        let around = CallContext {
            tools: set,
            workspace: Path::new("/w"),
            absolute: &|path| Path::new("/w").join(path),
            before,
        };
        let made = call(&request, &around);
        let made = made.map_or("refused".to_owned(), |made| {
            let cut = if made.reader.slice.is_some() {
                " (lines are cut out here)"
            } else {
                ""
            };
            format!("{} {}{cut}", made.tool, made.arguments)
        });
        let _ = writeln!(text, "{name}: {made}");
    }
    text
}

/// Returns the recorded results as pi's tools would write them.
fn results(client: &RecordedClient) -> String {
    let set = client.set();
    let mut text = String::new();
    for recorded in &client.results {
        let shape = set.shape(recorded.operation).unwrap();
        let reader = super::result_formats::ResultReader {
            format: shape.result,
            success: shape.success.clone(),
            recipe: None,
            slice: None,
        };
        let result = HostResult::read(&json!({
            "content": [{"type": "text", "text": recorded.text}],
            "isError": recorded.is_error,
        }));
        let read = reader.read(result);
        let _ = writeln!(
            text,
            "{:?} {}\n  {} {:?}",
            recorded.operation,
            recorded.arguments,
            if read.is_error { "Failed" } else { "Done" },
            read.content[0]
        );
    }
    text
}

fn check(fixture: &str) -> String {
    let client: RecordedClient = serde_json::from_str(fixture).unwrap();
    format!(
        "{}: {}\n\n{}\n{}",
        client.client,
        client.source,
        calls(&client.set()),
        results(&client)
    )
}

macro_rules! clients {
    ($($test:ident: $file:literal),* $(,)?) => {$(
        #[test]
        fn $test() {
            insta::assert_snapshot!(check(include_str!(concat!("testdata/clients/", $file, ".json"))));
        }
    )*
    const CLIENTS: &[&str] = &[$($file),*];
    };
}

clients! {
    pi: "pi",
    opencode: "opencode",
    opencode_older: "opencode-older",
    claude_code: "claude-code",
    claude_code_older: "claude-code-older",
    codex: "codex",
    codex_older: "codex-older",
    qwen_code: "qwen-code",
    cline: "cline",
    cline_older: "cline-older",
    continue_cli: "continue",
    zed: "zed",
}

#[test]
fn every_recorded_list_has_a_test() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/host_delegate/testdata/clients"
    );
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(CLIENTS.contains(&name), "{name}");
    }
}
