//! The `models` command.

use std::process::{Command, Output};

use super::*;

pub fn sidecar(arguments: &[&str], state: &Path, env: &[(&str, &str)]) -> Output {
    Command::new(binary())
        .args(arguments)
        .env_clear()
        .env("PI_CURSOR_STATE_DIR", state)
        .envs(env.iter().copied())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn models_are_printed_as_a_table_or_json() {
    let simulator = simulator(MODELS, "");
    let state = tempfile::tempdir().unwrap();
    let env = [
        ("CURSOR_BACKEND_URL", simulator.url.as_str()),
        ("CURSOR_API_KEY", KEY),
    ];
    let run = |arguments: &[&str]| {
        let output = sidecar(arguments, state.path(), &env);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert!(output.status.success());
        (text(output.stdout), text(output.stderr))
    };
    let (table, output) = run(&["models"]);
    insta::assert_snapshot!(table, @r"
    MODEL                 CONTEXT  THINKING                       FAST  NAME
    claude-opus-4-7@300k     300k  off low high xhigh max         -     Opus 4.7 @ 300k
    claude-opus-4-7@1m         1m  off low high xhigh max         -     Opus 4.7 @ 1m
    composer-2.5             200k  -                              on    Composer 2.5
    default                  200k  -                              -     Auto
    gpt-5.5@272k             272k  off low medium high xhigh max  off   GPT-5.5 @ 272k
    gpt-5.5@1m                 1m  off low medium high xhigh max  off   GPT-5.5 @ 1m
    gpt-latest@272k          272k  off low medium high xhigh max  off   GPT-5.5 (gpt-latest) @ 272k
    gpt-latest@1m              1m  off low medium high xhigh max  off   GPT-5.5 (gpt-latest) @ 1m
    haiku                    200k  off high                       -     Haiku
    ");
    assert!(
        output.contains("9 entries for 5 models, from Cursor"),
        "{output}"
    );
    let (same, output) = run(&["models"]);
    assert_eq!(same, table);
    assert!(output.contains("from the cache"), "{output}");
    let (json, _) = run(&["models", "--json", "--refresh"]);
    let json: Json = serde_json::from_str(&json).unwrap();
    assert_eq!(json["source"], "live");
    assert_eq!(ids(&json).len(), 9);
    assert_eq!(simulator.recorded().requests(MODELS_PATH).len(), 2);
}

#[test]
fn a_failed_refresh_exits_with_an_error() {
    let simulator = simulator(MODELS, "");
    let state = tempfile::tempdir().unwrap();
    let url = simulator.url.clone();
    let env = [
        ("CURSOR_BACKEND_URL", url.as_str()),
        ("CURSOR_API_KEY", KEY),
    ];
    let run = |arguments: &[&str]| sidecar(arguments, state.path(), &env);
    let table = run(&["models"]).stdout;
    drop(simulator);
    let failed = run(&["models", "--refresh"]);
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(failed.stdout, table, "the stale list is still shown");
    let output = String::from_utf8(failed.stderr).unwrap();
    let last = output.lines().last().unwrap();
    assert!(
        last.starts_with("error: the list was not refreshed: ") && last.contains("cannot connect"),
        "{output}"
    );
    assert_eq!(output.matches("cannot connect").count(), 1, "{output}");
    let failed = run(&["models", "--refresh", "--json"]);
    assert_eq!(failed.status.code(), Some(1));
    let json: Json = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!(json["reason"], "cached-after-error");
}

#[test]
fn a_snapshot_needs_a_list_fetched_from_cursor() {
    let simulator = simulator(MODELS, "");
    let state = tempfile::tempdir().unwrap();
    std::fs::write(
        state.path().join("learned-windows.json"),
        r#"{"contextWindows": {"haiku": 123456}}"#,
    )
    .unwrap();
    let file = state.path().join("snapshot.json");
    let arguments = ["models", "--write-snapshot", file.to_str().unwrap()];
    let without = sidecar(&arguments, state.path(), &[]);
    assert_eq!(without.status.code(), Some(1));
    assert!(!file.exists());
    let env = [
        ("CURSOR_BACKEND_URL", simulator.url.as_str()),
        ("CURSOR_API_KEY", KEY),
    ];
    sidecar(&arguments, state.path(), &env);
    let text = std::fs::read_to_string(&file).unwrap();
    let snapshot: Json = serde_json::from_str(&text).unwrap();
    let windows = &snapshot["contextWindows"];
    assert_eq!(windows.get("haiku"), None, "only on request");
    let arguments = [&arguments[..], &["--context-windows"]].concat();
    let output = sidecar(&arguments, state.path(), &env);
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "composer-2.5\ngpt-5.5\nclaude-opus-4-7\nhaiku\ndefault\n5 models, 1 learned context windows\n"
    );
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(KEY));
    let snapshot: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(snapshot["items"].as_array().unwrap().len(), 5);
    assert_eq!(snapshot["items"][0]["id"], "claude-opus-4-7");
    assert_eq!(snapshot["contextWindows"]["haiku"], 123_456);
}
