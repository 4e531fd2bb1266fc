//! Scenario files: those in this repository, and every kind of error.

use std::path::Path;

use cursor_sim::{Options, ScenarioSource, Sim};

async fn load_error(name: &str, text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    let error = Sim::start(Options {
        scenarios: vec![ScenarioSource::Path(path)],
        ..Options::default()
    })
    .await
    .expect_err(text)
    .to_string();
    error.replace(&format!("{}/", folder.path().display()), "")
}

#[tokio::test]
async fn the_scenarios_of_the_repository_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    Sim::start(Options {
        scenarios: vec![ScenarioSource::Path(folder)],
        ..Options::default()
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_example_in_the_documentation_is_valid() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/scenarios.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let label = "docs/scenarios.md".to_owned();
    let text = example.to_owned();
    Sim::start(Options {
        scenarios: vec![ScenarioSource::Toml { label, text }],
        ..Options::default()
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn toml_errors_have_their_line() {
    let run = |step: &str| {
        format!("name = \"x\"\n[[run]]\nsteps = [\n  {{ text = \"a\" }},\n  {step},\n]\n")
    };
    let cases = [
        (
            run("{ exec = { readArgs = { path = \"a\", pth = \"b\" } } }"),
            "x.toml:5: unknown field \"pth\" in agent.v1.ReadArgs; it has path, toolCallId, offset, limit, encodingHint",
        ),
        (
            run("{ exec = { readArgs = { offset = \"two\" } } }"),
            "x.toml:5: field \"offset\" of agent.v1.ReadArgs takes a whole number, not a string",
        ),
        (
            run("{ exec = { readArgs = {}, lsArgs = {} } }"),
            "x.toml:5: exec takes a table with one case, such as exec = { … = {} }",
        ),
        (
            run(
                "{ exec = { readArgs = {} }, expect = { readResult = { success = { content = { \"$like\" = \"x\" } } } } }",
            ),
            "x.toml:5: {\"$like\":\"x\"} is not an operator; expected one of $contains, $any, $absent, $equals",
        ),
        (
            run("{ exec = { readArgs = {} }, expct = {} }"),
            "x.toml:5: unknown key \"expct\" in exec; expected one of exec, expect, replies, name, open, id, throws, may_throw, abort_after_ms, capture, answered_if, timeout_ms",
        ),
        (
            run("{ exec = { readArgs = {} }, capture = { A = \"b\" } }"),
            "x.toml:5: \"b\" is not a JSON pointer: it must start with /",
        ),
        (
            run("{ text = \"a\", thinking = \"b\" }"),
            "x.toml:5: a step has one action, this one has \"text\" and \"thinking\"",
        ),
        (
            run("{ text = 1 }"),
            "x.toml:5: \"text\" takes a string, not a number",
        ),
        (
            run("{ await = [\"a\"] }"),
            "x.toml:5: no open exec is named \"a\" before this step",
        ),
        (
            run("{ kv_get = { name = \"a\" } }"),
            "x.toml:5: no kv_set in this file is named \"a\"",
        ),
        (
            run("{ kv_set = {} }"),
            "x.toml:5: kv_set needs one of text, hex, json",
        ),
        (
            run("{ send_hex = \"0g\" }"),
            "x.toml:5: \"send_hex\" takes pairs of hex digits",
        ),
        (
            run("{ status = 401 }"),
            "x.toml:5: status must be the first step of its run",
        ),
        (
            run("{ end = true }, { text = \"b\" }"),
            "x.toml:5: this step is never reached: the one before it ends the run",
        ),
        (
            run("{ end = { code = \"nope\" } }"),
            "x.toml:5: unknown code \"nope\"; expected one of canceled, unknown, invalid_argument, deadline_exceeded, not_found, already_exists, permission_denied, resource_exhausted, failed_precondition, aborted, out_of_range, unimplemented, internal, unavailable, data_loss, unauthenticated",
        ),
        (
            run("{ checkpoint = \"automatic\" }"),
            "x.toml:5: \"checkpoint\" takes \"auto\", \"late\" or a table, not a string",
        ),
        (
            run("{ checkpoint = { mode = \"AGENT_MODE_NONE\" } }"),
            "x.toml:5: \"AGENT_MODE_NONE\" is not a value of agent.v1.AgentMode; it has AGENT_MODE_UNSPECIFIED, AGENT_MODE_AGENT, AGENT_MODE_ASK, AGENT_MODE_PLAN, AGENT_MODE_DEBUG, AGENT_MODE_TRIAGE, AGENT_MODE_PROJECT, AGENT_MODE_MULTITASK, AGENT_MODE_CUSTOM",
        ),
        (
            run("{ reset = \"nope\" }"),
            "x.toml:5: \"reset\" takes a number or one of no_error, protocol_error, internal_error, flow_control_error, settings_timeout, stream_closed, frame_size_error, refused_stream, cancel, compression_error, connect_error, enhance_your_calm, inadequate_security, http_1_1_required",
        ),
        (
            "name = \"x\"\n".to_owned(),
            "x.toml:1: a scenario needs \"run\"",
        ),
        (
            "name = \"two words\"\nrun = []\n".to_owned(),
            "x.toml:1: a name is one word",
        ),
        (
            "name = \"x\"\nrun = []\n".to_owned(),
            "x.toml:1: a scenario needs a [[run]]",
        ),
        (
            "name = \"x\"\n[server]\nhttp2 = 9\n[[run]]\nsteps = []\n".to_owned(),
            "x.toml:3: \"http2\" takes a number from 0 to 4, not a number",
        ),
        (
            "name = \"x\"\n[server]\nhttp3 = 1\n[[run]]\nsteps = []\n".to_owned(),
            "x.toml:3: unknown key \"http3\" in server; expected one of http2, models, invalid_keys, unary, max_streams, agent_url, privacy_mode, exchange, token_ttl_ms, login_pending",
        ),
        (
            "name = \"x\"\n[server.unary.v1]\nstatus = 1\n[[run]]\nsteps = []\n".to_owned(),
            "x.toml:2: \"v1\" is not a path: it must start with /",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(load_error("x.toml", &text).await, expected);
    }
    let unknown = load_error("x.toml", &run("{ txet = \"a\" }")).await;
    assert!(
        unknown.starts_with(
            "x.toml:5: unknown step \"txet\"; expected one of text, thinking, thinking_done, "
        ),
        "{unknown}"
    );
    let syntax = load_error("x.toml", "name = \"x\"\nrun = [\n  {\n").await;
    assert!(syntax.starts_with("x.toml:"), "{syntax}");
}

#[tokio::test]
async fn json_errors_have_their_line() {
    let run = |step: &str| {
        format!(
            "{{\n  \"name\": \"x\",\n  \"run\": [{{\n    \"steps\": [\n      {{ \"text\": \"a\" }},\n      {step}\n    ]\n  }}]\n}}\n"
        )
    };
    let cases = [
        (
            run("{\n \"exec\": {\n \"readArgs\": { \"pth\": \"b\" } } }"),
            "x.json:8: unknown field \"pth\" in agent.v1.ReadArgs; it has path, toolCallId, offset, limit, encodingHint",
        ),
        (
            run("{ \"text\": null }"),
            "x.json:6: \"text\" takes a string, not null",
        ),
        (
            run("{ \"text\": \"a\", }"),
            "x.json:6: key must be a string",
        ),
        (
            "[]".to_owned(),
            "x.json:1: a scenario takes a table, not an array",
        ),
        (
            format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)),
            "x.json:1: values nest too deep",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(load_error("x.json", &text).await, expected);
    }
}

#[tokio::test]
async fn unreadable_files_are_reported() {
    assert_eq!(
        load_error("x.yaml", "").await,
        "cannot read scenario x.yaml: the name must end in .toml or .json"
    );
    let missing = Sim::start(Options {
        scenarios: vec![ScenarioSource::Path("no/such/file.toml".into())],
        ..Options::default()
    })
    .await
    .unwrap_err();
    assert!(
        missing
            .to_string()
            .starts_with("cannot read scenario no/such/file.toml: ")
    );
}
