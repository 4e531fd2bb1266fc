//! Invalid settings: the value in effect is reported, and each mistake once.

use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};

use test_support::binary;
use test_support::rpc_session::RpcSession;
use test_support::simulator::{Simulator, Transport};

/// Numeric settings and sources, each with a value that is invalid, out of range or ignored.
const WRONG: [(&str, &str); 11] = [
    ("PI_CURSOR_STREAM_IDLE_TIMEOUT_MS", "-5"),
    ("PI_CURSOR_RESUME_IDLE_TIMEOUT_MS", "7"),
    ("PI_CURSOR_STREAM_IDLE_MAX_RETRIES", "99"),
    ("PI_CURSOR_ACTIVE_BRIDGE_TTL_MS", "x"),
    ("PI_CURSOR_MAX_PARKED_RUNS", "0"),
    ("PI_CURSOR_MCP_TOOL_TIMEOUT_MS", "long"),
    ("PI_CURSOR_MCP_TOOL_TIMEOUT_SECONDS", "5"),
    ("PI_CURSOR_MCP_CONNECT_TIMEOUT_MS", "99999"),
    ("PI_CURSOR_PI_BRIDGE_CALL_TIMEOUT_MS", "7200000"),
    ("PI_CURSOR_SDK_MODEL_CACHE_TTL_MS", "soon"),
    ("PI_CURSOR_SETTING_SOURCES", "user,nobody"),
];

/// The warnings for those that are mistakes.
const MISTAKES: [&str; 6] = [
    "PI_CURSOR_SETTING_SOURCES: \"nobody\" is not one of",
    "PI_CURSOR_MCP_TOOL_TIMEOUT_MS: \"long\" is not one of",
    "PI_CURSOR_ACTIVE_BRIDGE_TTL_MS: \"x\" is not one of",
    "PI_CURSOR_MAX_PARKED_RUNS: \"0\" is not one of",
    "PI_CURSOR_STREAM_IDLE_TIMEOUT_MS: \"-5\" is not one of",
    "PI_CURSOR_SDK_MODEL_CACHE_TTL_MS: \"soon\" is not one of",
];

#[test]
fn the_doctor_prints_the_values_in_effect() {
    let output = Command::new(binary())
        .args(["doctor", "--offline"])
        .env_clear()
        .env("PI_CURSOR_STATE_DIR", "/nowhere/state")
        .env("CURSOR_API_KEY", "crsr_test")
        .envs(WRONG)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    let printed: Vec<&str> = page
        .lines()
        .filter(|line| WRONG.iter().any(|(name, _)| line.contains(name)))
        .collect();
    insta::assert_snapshot!(printed.join("\n"), @r#"
    ! PI_CURSOR_SETTING_SOURCES: "nobody" is not one of all, none, or some of project, user, team, mdm, plugins with commas; it is left out
    ! PI_CURSOR_MCP_TOOL_TIMEOUT_MS: "long" is not one of milliseconds, at least 60000; using 3600000
    ! PI_CURSOR_ACTIVE_BRIDGE_TTL_MS: "x" is not one of milliseconds, at least 1000; 0: no limit; using 3600000
    ! PI_CURSOR_MAX_PARKED_RUNS: "0" is not one of 1 to 4096; using 512
    ! PI_CURSOR_STREAM_IDLE_TIMEOUT_MS: "-5" is not one of milliseconds, at least 1000; 0: no limit; using 120000
    ! PI_CURSOR_SDK_MODEL_CACHE_TTL_MS: "soon" is not one of 0, 1, 2 … milliseconds; using 86400000
      PI_CURSOR_SDK_MODEL_CACHE_TTL_MS = 86400000 (default; "soon" is not understood)
      PI_CURSOR_MCP_TOOL_TIMEOUT_MS = 60000 (environment; "long" is not understood)
      PI_CURSOR_MCP_TOOL_TIMEOUT_SECONDS = 60 (environment; "5" was given; seconds, at least 60)
      PI_CURSOR_SETTING_SOURCES = user,nobody (environment; without "nobody")
      PI_CURSOR_MCP_CONNECT_TIMEOUT_MS = 60000 (environment; "99999" was given; milliseconds, 1000 to 60000)
      PI_CURSOR_PI_BRIDGE_CALL_TIMEOUT_MS = 60000 (environment; "7200000" was given; milliseconds, no more than any tool may take)
      PI_CURSOR_ACTIVE_BRIDGE_TTL_MS = 3600000 (default; "x" is not understood)
      PI_CURSOR_MAX_PARKED_RUNS = 512 (default; "0" is not understood)
      PI_CURSOR_STREAM_IDLE_TIMEOUT_MS = 120000 (default; "-5" is not understood)
      PI_CURSOR_STREAM_IDLE_MAX_RETRIES = 10 (environment; "99" was given; 0 to 10)
      PI_CURSOR_RESUME_IDLE_TIMEOUT_MS = 1000 (environment; "7" was given; milliseconds, at least 1000; 0: no limit)
    "#);
}

#[test]
fn a_mistake_is_reported_once() {
    let simulator = Simulator::start(Transport::H2c);
    let mut session = RpcSession::new(&simulator, "s", &WRONG);
    let mut notices = Vec::new();
    for words in ["@hello there", "@hello again"] {
        notices.extend(session.prompt(words).notices);
    }
    let report = session.host.call("diagnostics/report", json!({}));
    let warnings = report["result"]["warnings"].as_array().unwrap();
    let warnings: Vec<String> = warnings
        .iter()
        .map(|warning| warning.as_str().unwrap().to_owned())
        .collect();
    let stderr = session.host.stderr();
    let stderr: Vec<&str> = stderr
        .lines()
        .filter(|line| line.contains("WARN"))
        .collect();
    assert_eq!(
        (warnings.len(), notices.len(), stderr.len()),
        (MISTAKES.len(), MISTAKES.len(), MISTAKES.len()),
        "{warnings:#?} {notices:#?} {stderr:#?}"
    );
    for mistake in MISTAKES {
        for printed in [&warnings, &notices] {
            let printed = printed
                .iter()
                .filter(|printed| printed.starts_with(mistake));
            assert_eq!(printed.count(), 1, "{mistake}");
        }
        let printed = stderr.iter().filter(|line| line.contains(mistake));
        assert_eq!(printed.count(), 1, "{mistake}");
    }
    let in_force = |name: &str| -> Json {
        let settings = report["result"]["settings"].as_array().unwrap();
        let found = settings.iter().find(|setting| setting["name"] == name);
        found.unwrap()["value"].clone()
    };
    assert_eq!(in_force("PI_CURSOR_STREAM_IDLE_TIMEOUT_MS"), "120000");
    assert_eq!(in_force("PI_CURSOR_RESUME_IDLE_TIMEOUT_MS"), "1000");
}

/// The environment takes precedence over `config.toml`, and mistakes in the file name their line.
#[test]
fn the_configuration_file_is_used_and_its_mistakes_are_reported() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".config/cursor-sidecar");
    std::fs::create_dir_all(&folder).unwrap();
    let text = "max_parked_runs = 7\nhttp = 1\nhtpp = 2\napi_key = 'crsr_of_the_file'\n";
    std::fs::write(folder.join("config.toml"), text).unwrap();
    let doctor = |arguments: &[&str], name: &str, value: &str| {
        let output = Command::new(binary())
            .args(["doctor", "--offline"])
            .args(arguments)
            .env_clear()
            .env("HOME", home.path())
            .env(name, value)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let page = String::from_utf8(output.stdout).unwrap();
        page.replace(home.path().to_str().unwrap(), "~")
    };
    let page = doctor(&[], "PI_CURSOR_HTTP", "2");
    assert!(!page.contains("crsr_of_the_file"), "{page}");
    let lines = page.lines().filter(|line| {
        let interesting = ["config", "PARKED", "PI_CURSOR_HTTP "];
        interesting.iter().any(|part| line.contains(part))
    });
    let lines: Vec<&str> = lines.collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    ok configuration file: ~/.config/cursor-sidecar/config.toml
    ! ~/.config/cursor-sidecar/config.toml:3: "htpp" is not a setting of cursor-sidecar; `cursor-sidecar doctor --all` lists them; did you mean "http"?
    ! ~/.config/cursor-sidecar/config.toml:4: "api_key" is a secret and is not read from this file; set CURSOR_API_KEY in the environment, and remove it here
      PI_CURSOR_HTTP = 2 (environment)
      PI_CURSOR_MAX_PARKED_RUNS = 7 (config.toml)
    "#);
    let other = home.path().join("other.toml");
    std::fs::write(&other, "http = \n").unwrap();
    let page = doctor(&["--json"], "PI_CURSOR_CONFIG", other.to_str().unwrap());
    let page: Json = serde_json::from_str(&page).unwrap();
    let findings = page["findings"].as_array().unwrap();
    let findings = findings
        .iter()
        .map(|finding| finding["text"].as_str().unwrap());
    let syntax = findings.filter(|text| text.starts_with("~/other.toml:1: the file is not TOML"));
    assert_eq!(syntax.count(), 1, "{page}");
    let settings = page["settings"].as_array().unwrap();
    let http = settings
        .iter()
        .find(|setting| setting["name"] == "PI_CURSOR_HTTP");
    assert_eq!(http.unwrap()["source"], "default");
}
