//! The source of the list when Cursor does not respond, or not in time.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agent::catalog::WAIT_BUDGET;

use super::cli::sidecar;
use super::*;

const USABLE: &str = "/agent.v1.AgentService/GetUsableModels";
/// Generous time limit, for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the only cached list of a state directory.
pub fn cached(state: &Path) -> PathBuf {
    let entries = std::fs::read_dir(state).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut lists = paths.filter(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("models-") && name.ends_with(".json")
    });
    let list = lists.next().unwrap();
    assert_eq!(lists.next(), None);
    list
}

/// Makes the cached list older.
fn age(state: &Path, hours: u64) {
    let file = cached(state);
    let mut list: Json = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let fetched = list["fetchedAt"].as_u64().unwrap();
    list["fetchedAt"] = (fetched - hours * 3_600_000).into();
    std::fs::write(&file, list.to_string()).unwrap();
}

/// Calls `session/command` until its result has this member.
fn until(host: &mut SidecarProcess, member: &str) -> Json {
    let started = Instant::now();
    loop {
        let answer = host.call("session/command", json!({"model": "a"}))["result"].clone();
        if answer.get(member).is_some() {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "no {member}: {answer}");
    }
}

/// Lists `a` in the first response, and `a` and `b` from the second on.
fn growing() -> Simulator {
    let first = r#"[server.unary."/v1/models"]
times = 1
body = { items = [ { id = "a" } ] }"#;
    simulator(r#"[ { id = "a" }, { id = "b" } ]"#, first)
}

/// A test environment with the first list of [`growing`], two days old.
fn aged(simulator: &Simulator) -> TestEnv {
    aged_by(simulator, 48)
}

fn aged_by(simulator: &Simulator, hours: u64) -> TestEnv {
    let test = TestEnv::new(&simulator.url, &[]);
    // An explicit refresh has no wait budget, so this works on a loaded machine.
    let first = list(&mut test.host(WITH_MAX), json!({"refresh": true}));
    assert_eq!(ids(&first), ["a"]);
    age(test.state.path(), hours);
    test
}

#[test]
fn without_a_key_the_list_of_the_last_account_is_shown() {
    let simulator = simulator(MODELS, "");
    let test = TestEnv::new(&simulator.url, &[]);
    let live = list(&mut test.host(WITH_MAX), json!({"refresh": true}));
    let keyless = |url: &str| {
        let mut host = test.host_at(url, WITH_MAX, &[("CURSOR_API_KEY", "")]);
        list(&mut host, json!({}))
    };
    let shown = keyless(&simulator.url);
    assert_eq!(shown["source"], "cache");
    assert_eq!(shown["reason"], "missing-api-key");
    assert_eq!(shown["models"], live["models"]);
    let warning = shown["warnings"][0].as_str().unwrap();
    assert!(
        warning.ends_with("showing the list of the account used last"),
        "{warning}"
    );
    let other = keyless("http://127.0.0.1:9");
    assert_eq!(
        other["source"], "bundled",
        "the list of another server is not shown"
    );
    assert_eq!(simulator.recorded().requests(MODELS_PATH).len(), 1);

    // The account that was last used successfully, not the one that was last tried.
    for key in ["crsr_invalid", KEY] {
        list(&mut test.host(WITH_MAX), json!({"apiKey": key}));
        assert_eq!(keyless(&simulator.url)["models"], live["models"]);
    }
}

#[test]
fn models_and_turns_use_a_list_refreshed_in_the_background() {
    let simulator = growing();
    let test = aged(&simulator);
    let mut host = test.host(WITH_MAX);
    let old = list(&mut host, json!({}));
    assert_eq!((ids(&old), &old["source"]), (vec!["a"], &json!("cache")));
    let news = until(&mut host, "models");
    assert_eq!(ids(&news), ["a", "b"]);
    assert!(news.get("message").is_none(), "{news}");
    assert_eq!(turn(&mut host, json!({"id": "b"}))["stopReason"], "stop");
    assert_eq!(simulator.recorded().requests(MODELS_PATH).len(), 2);
}

/// A start uses a list of the same day at once and brings what is new since.
#[test]
fn a_fresh_list_is_refreshed_in_the_background_too() {
    let simulator = growing();
    let test = aged_by(&simulator, 1);
    let mut host = test.host(WITH_MAX);
    let old = list(&mut host, json!({}));
    assert_eq!((ids(&old), &old["source"]), (vec!["a"], &json!("cache")));
    assert_eq!(ids(&until(&mut host, "models")), ["a", "b"]);
    // A list that was just fetched is not fetched again.
    assert_eq!(ids(&list(&mut host, json!({}))), ["a", "b"]);
    assert_eq!(simulator.recorded().requests(MODELS_PATH).len(), 2);
}

#[test]
fn a_host_in_print_mode_waits_for_a_stale_list_to_be_refreshed() {
    let simulator = growing();
    let test = aged(&simulator);
    let mut host = SidecarProcess::start(&[
        ("CURSOR_BACKEND_URL", &simulator.url),
        ("CURSOR_API_KEY", KEY),
        ("PI_CURSOR_STATE_DIR", test.state.path().to_str().unwrap()),
    ]);
    let printing = json!({"protocolVersion": 1, "host": {"name": "test", "mode": "print"}});
    host.call("initialize", printing);
    let renewed = list(&mut host, json!({}));
    assert_eq!(renewed["source"], "live");
    assert_eq!(ids(&renewed), ["a", "b"]);
}

#[test]
fn the_command_line_waits_for_a_stale_list_to_be_refreshed() {
    let simulator = growing();
    let test = aged(&simulator);
    let models = |url: &str| {
        let env = [("CURSOR_BACKEND_URL", url), ("CURSOR_API_KEY", KEY)];
        let output = sidecar(&["models"], test.state.path(), &env);
        assert!(output.status.success());
        let rows = String::from_utf8(output.stdout).unwrap();
        let rows = rows.lines().skip(1);
        let rows: Vec<String> = rows
            .map(|row| row.split(' ').next().unwrap().into())
            .collect();
        (rows, String::from_utf8(output.stderr).unwrap())
    };
    let (rows, output) = models(&simulator.url);
    assert_eq!(rows, ["a", "b"]);
    assert!(output.contains("from Cursor"), "{output}");
    age(test.state.path(), 48);
    let url = simulator.url.clone();
    drop(simulator);
    let (rows, output) = models(&url);
    assert_eq!(rows, ["a", "b"], "the stale list");
    assert!(output.contains("showing an older list"), "{output}");
    // Another server takes the port and never responds.
    let port = url.trim_start_matches("http://");
    let silent = test_support::wait::until(|| TcpListener::bind(port).ok());
    let started = Instant::now();
    let (rows, output) = models(&url);
    assert_eq!(rows, ["a", "b"]);
    assert!(output.contains("no answer within 2 s"), "{output}");
    assert!(started.elapsed() >= WAIT_BUDGET);
    drop(silent);
}

#[test]
fn a_failed_refresh_is_reported_once() {
    let simulator = growing();
    let test = aged(&simulator);
    drop(simulator);
    let mut host = test.host(WITH_MAX);
    let old = list(&mut host, json!({}));
    assert_eq!(
        (&old["source"], &old["reason"]),
        (&json!("cache"), &Json::Null)
    );
    let output = until(&mut host, "message");
    let message = output["message"].as_str().unwrap();
    assert!(message.ends_with("showing an older list"), "{message}");
    assert_eq!(output["level"], "warning");
    let quiet = host.call("session/command", json!({"model": "a"}));
    assert_eq!(quiet["result"], json!({}), "the warning is not repeated");
    let again = list(&mut host, json!({}));
    assert_eq!(again["reason"], "cached-after-error");
    assert_eq!(again["warnings"], json!([message]));
    assert_eq!(ids(&again), ["a"]);
}

#[test]
fn with_the_cache_disabled_a_failed_refresh_keeps_the_list() {
    let simulator = simulator(MODELS, "");
    let test = TestEnv::new(
        &simulator.url,
        &[("PI_CURSOR_SDK_DISABLE_MODEL_CACHE", "1")],
    );
    let mut host = test.host(WITH_MAX);
    let live = list(&mut host, json!({}));
    drop(simulator);
    let refresh = json!({"command": "cursor-refresh-models", "model": "gpt-5.5@1m"});
    let output = host.call("session/command", refresh)["result"].clone();
    let message = output["message"].as_str().unwrap();
    assert!(
        message.starts_with("9 Cursor models (cache: cached-after-error)\n"),
        "{message}"
    );
    assert!(
        output.get("models").is_none(),
        "the host has them: {output}"
    );
    let kept = list(&mut host, json!({"refresh": true}));
    assert_eq!(kept["reason"], "cached-after-error");
    assert_eq!(kept["warnings"].as_array().unwrap().len(), 1);
    assert_eq!(kept["models"], live["models"]);
    let other = list(&mut host, json!({"refresh": true, "apiKey": "crsr_other"}));
    assert_eq!(
        other["source"], "bundled",
        "the list of another account is not shown"
    );
}

#[test]
fn the_token_is_used_if_the_fetch_with_the_key_fails() {
    for (status, body) in [
        (404, r#""Not found""#),
        (500, "{ message = \"no\" }"),
        (200, r#""<html>""#),
    ] {
        let failing = format!("[server.unary.\"/v1/models\"]\nstatus = {status}\nbody = {body}");
        let simulator = simulator(MODELS, &failing);
        let test = TestEnv::new(&simulator.url, &[]);
        let mut host = test.host(WITH_MAX);
        let found = list(&mut host, json!({}));
        assert_eq!(found["source"], "live", "{status}: {}", found["warnings"]);
        assert_eq!(found["warnings"], json!([]));
        assert_eq!(ids(&found).len(), 9);
        assert_eq!(simulator.recorded().requests(USABLE).len(), 1);
        let selection = json!({"id": "gpt-5.5@1m", "thinking": "low"});
        assert_eq!(turn(&mut host, selection)["stopReason"], "stop");
        let again = list(&mut test.host(WITH_MAX), json!({}));
        assert_eq!(again["source"], "cache", "the list is cached");
    }
    // The server where runs go is asked first. One that does not have the call is no obstacle.
    for status in [404, 500] {
        let failing =
            |path: &str| format!("[server.unary.\"{path}\"]\nstatus = {status}\nbody = \"no\"");
        let backend = simulator(MODELS, &failing(MODELS_PATH));
        let agent = simulator(MODELS, &failing(USABLE));
        let test = TestEnv::new(&backend.url, &[]);
        let agent_url = [("PI_CURSOR_AGENT_URL", agent.url.as_str())];
        let mut host = test.host_at(&backend.url, WITH_MAX, &agent_url);
        let found = list(&mut host, json!({}));
        assert_eq!(ids(&found).len(), 9, "{}", found["warnings"]);
        for server in [&agent, &backend] {
            assert_eq!(server.recorded().requests(USABLE).len(), 1, "{status}");
        }
    }
    // If the key is rejected, its token is not tried.
    let simulator = simulator(MODELS, "");
    let test = TestEnv::new(&simulator.url, &[("CURSOR_API_KEY", "crsr_invalid")]);
    let refused = list(&mut test.host(WITH_MAX), json!({}));
    assert_eq!(refused["source"], "bundled");
    assert_eq!(simulator.recorded().requests(USABLE).len(), 0);
}

/// The server accepts connections and never responds.
#[test]
fn all_keys_share_one_wait_budget() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let test = TestEnv::new(&url, &[]);
    let mut host = test.host(WITH_MAX);
    let [first, later @ ..] = [None, Some("crsr_stored"), Some("crsr_given")].map(|key| {
        let started = Instant::now();
        let bundled = list(&mut host, json!({"apiKey": key}));
        assert_eq!(bundled["reason"], "discovery-failed");
        started.elapsed()
    });
    assert!(first >= WAIT_BUDGET, "{first:?}");
    for took in later {
        assert!(took < WAIT_BUDGET, "waited once more: {took:?}");
    }
}
