//! Where a list comes from when Cursor cannot be asked, or not at once.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cursor_sidecar::catalog::BUDGET;

use super::terminal::sidecar;
use super::*;

const USABLE: &str = "/agent.v1.AgentService/GetUsableModels";
/// Nothing here takes this long; a loaded machine gets it all the same.
const PATIENCE: Duration = Duration::from_secs(30);

/// The only cached list of a state folder.
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

/// Makes the cached list two days older.
fn age(state: &Path) {
    let file = cached(state);
    let mut list: Json = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let fetched = list["fetchedAt"].as_u64().unwrap();
    list["fetchedAt"] = (fetched - 2 * 24 * 3_600_000).into();
    std::fs::write(&file, list.to_string()).unwrap();
}

/// Asks how things are until the answer has this member.
fn until(host: &mut Host, member: &str) -> Json {
    let started = Instant::now();
    loop {
        let answer = host.call("session/command", json!({"model": "a"}))["result"].clone();
        if answer.get(member).is_some() {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "no {member}: {answer}");
    }
}

/// Cursor lists `a`, and from its second answer on `a` and `b`.
fn growing() -> Simulator {
    let first = r#"[server.unary."/v1/models"]
times = 1
body = { items = [ { id = "a" } ] }"#;
    simulator(r#"[ { id = "a" }, { id = "b" } ]"#, first)
}

/// A setting with the first list of [`growing`], two days old.
fn aged(simulator: &Simulator) -> Setting {
    let setting = Setting::new(&simulator.url, &[]);
    // Asked for, so that a loaded machine gets its time.
    let first = list(&mut setting.host(WITH_MAX), json!({"refresh": true}));
    assert_eq!(ids(&first), ["a"]);
    age(setting.state.path());
    setting
}

#[test]
fn without_a_key_the_list_of_the_last_account_is_shown() {
    let simulator = simulator(SHAPES, "");
    let setting = Setting::new(&simulator.url, &[]);
    let live = list(&mut setting.host(WITH_MAX), json!({"refresh": true}));
    let keyless = |url: &str| {
        let mut host = setting.host_at(url, WITH_MAX, &[("CURSOR_API_KEY", "")]);
        list(&mut host, json!({}))
    };
    let shown = keyless(&simulator.url);
    assert_eq!(shown["source"], "cache");
    assert_eq!(shown["reason"], "missing-api-key");
    assert_eq!(shown["models"], live["models"]);
    let warning = shown["warnings"][0].as_str().unwrap();
    assert!(
        warning.ends_with("showing that of the account used last"),
        "{warning}"
    );
    let other = keyless("http://127.0.0.1:9");
    assert_eq!(other["source"], "bundled", "another server's list is not");
    assert_eq!(simulator.recorded().requests(CATALOGUE).len(), 1);

    // The last account that was used, not the last that was tried.
    for key in ["crsr_invalid", KEY] {
        list(&mut setting.host(WITH_MAX), json!({"apiKey": key}));
        assert_eq!(keyless(&simulator.url)["models"], live["models"]);
    }
}

#[test]
fn rows_and_turns_follow_a_list_that_was_renewed_behind() {
    let simulator = growing();
    let setting = aged(&simulator);
    let mut host = setting.host(WITH_MAX);
    let old = list(&mut host, json!({}));
    assert_eq!((ids(&old), &old["source"]), (vec!["a"], &json!("cache")));
    let news = until(&mut host, "models");
    assert_eq!(ids(&news), ["a", "b"]);
    assert!(news.get("message").is_none(), "{news}");
    assert_eq!(turn(&mut host, json!({"id": "b"}))["stopReason"], "stop");
    assert_eq!(simulator.recorded().requests(CATALOGUE).len(), 2);
}

#[test]
fn who_prints_waits_for_an_old_list_to_be_renewed() {
    let simulator = growing();
    let setting = aged(&simulator);
    let mut host = Host::start(&[
        ("CURSOR_BACKEND_URL", &simulator.url),
        ("CURSOR_API_KEY", KEY),
        (
            "PI_CURSOR_STATE_DIR",
            setting.state.path().to_str().unwrap(),
        ),
    ]);
    let printing = json!({"protocolVersion": 1, "host": {"name": "test", "mode": "print"}});
    host.call("initialize", printing);
    let renewed = list(&mut host, json!({}));
    assert_eq!(renewed["source"], "live");
    assert_eq!(ids(&renewed), ["a", "b"]);
}

#[test]
fn a_terminal_waits_for_an_old_list_to_be_renewed() {
    let simulator = growing();
    let setting = aged(&simulator);
    let models = |url: &str| {
        let env = [("CURSOR_BACKEND_URL", url), ("CURSOR_API_KEY", KEY)];
        let output = sidecar(&["models"], setting.state.path(), &env);
        assert!(output.status.success());
        let rows = String::from_utf8(output.stdout).unwrap();
        let rows = rows.lines().skip(1);
        let rows: Vec<String> = rows
            .map(|row| row.split(' ').next().unwrap().into())
            .collect();
        (rows, String::from_utf8(output.stderr).unwrap())
    };
    let (rows, told) = models(&simulator.url);
    assert_eq!(rows, ["a", "b"]);
    assert!(told.contains("from Cursor"), "{told}");
    age(setting.state.path());
    let url = simulator.url.clone();
    drop(simulator);
    let (rows, told) = models(&url);
    assert_eq!(rows, ["a", "b"], "the old one");
    assert!(told.contains("showing an older one"), "{told}");
    // Somebody else took the port, who says nothing.
    let port = url.trim_start_matches("http://");
    let silent = crate::once::until(|| TcpListener::bind(port).ok());
    let started = Instant::now();
    let (rows, told) = models(&url);
    assert_eq!(rows, ["a", "b"]);
    assert!(told.contains("no answer within 2 s"), "{told}");
    assert!(started.elapsed() >= BUDGET);
    drop(silent);
}

#[test]
fn a_renewal_that_failed_is_told_once() {
    let simulator = growing();
    let setting = aged(&simulator);
    drop(simulator);
    let mut host = setting.host(WITH_MAX);
    let old = list(&mut host, json!({}));
    assert_eq!(
        (&old["source"], &old["reason"]),
        (&json!("cache"), &Json::Null)
    );
    let told = until(&mut host, "message");
    let message = told["message"].as_str().unwrap();
    assert!(message.ends_with("showing an older one"), "{message}");
    assert_eq!(told["level"], "warning");
    let quiet = host.call("session/command", json!({"model": "a"}));
    assert_eq!(quiet["result"], json!({}), "once is enough");
    let again = list(&mut host, json!({}));
    assert_eq!(again["reason"], "cached-after-error");
    assert_eq!(again["warnings"], json!([message]));
    assert_eq!(ids(&again), ["a"]);
}

#[test]
fn without_the_cache_a_failed_refresh_keeps_the_list() {
    let simulator = simulator(SHAPES, "");
    let setting = Setting::new(
        &simulator.url,
        &[("PI_CURSOR_SDK_DISABLE_MODEL_CACHE", "1")],
    );
    let mut host = setting.host(WITH_MAX);
    let live = list(&mut host, json!({}));
    drop(simulator);
    let refresh = json!({"command": "cursor-refresh-models", "model": "gpt-5.5@1m"});
    let told = host.call("session/command", refresh)["result"].clone();
    let message = told["message"].as_str().unwrap();
    assert!(
        message.starts_with("9 Cursor models (cache: cached-after-error)\n"),
        "{message}"
    );
    assert!(told.get("models").is_none(), "the host has them: {told}");
    let kept = list(&mut host, json!({"refresh": true}));
    assert_eq!(kept["reason"], "cached-after-error");
    assert_eq!(kept["warnings"].as_array().unwrap().len(), 1);
    assert_eq!(kept["models"], live["models"]);
    let other = list(&mut host, json!({"refresh": true, "apiKey": "crsr_other"}));
    assert_eq!(other["source"], "bundled", "another account's is not shown");
}

#[test]
fn an_accounts_token_opens_what_the_key_does_not() {
    for (status, body) in [
        (404, r#""Not found""#),
        (500, "{ message = \"no\" }"),
        (200, r#""<html>""#),
    ] {
        let failing = format!("[server.unary.\"/v1/models\"]\nstatus = {status}\nbody = {body}");
        let simulator = simulator(SHAPES, &failing);
        let setting = Setting::new(&simulator.url, &[]);
        let mut host = setting.host(WITH_MAX);
        let found = list(&mut host, json!({}));
        assert_eq!(found["source"], "live", "{status}: {}", found["warnings"]);
        assert_eq!(found["warnings"], json!([]));
        assert_eq!(ids(&found).len(), 9);
        assert_eq!(simulator.recorded().requests(USABLE).len(), 1);
        let chosen = json!({"id": "gpt-5.5@1m", "thinking": "low"});
        assert_eq!(turn(&mut host, chosen)["stopReason"], "stop");
        let again = list(&mut setting.host(WITH_MAX), json!({}));
        assert_eq!(again["source"], "cache", "it is kept like any other");
    }
    // Who is refused with the key need not try its token.
    let simulator = simulator(SHAPES, "");
    let setting = Setting::new(&simulator.url, &[("CURSOR_API_KEY", "crsr_invalid")]);
    let refused = list(&mut setting.host(WITH_MAX), json!({}));
    assert_eq!(refused["source"], "bundled");
    assert_eq!(simulator.recorded().requests(USABLE).len(), 0);
}

/// Somebody takes every call and answers none.
#[test]
fn two_keys_cost_a_start_no_more_than_one() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let setting = Setting::new(&url, &[]);
    let mut host = setting.host(WITH_MAX);
    let [first, later @ ..] = [None, Some("crsr_stored"), Some("crsr_given")].map(|key| {
        let started = Instant::now();
        let bundled = list(&mut host, json!({"apiKey": key}));
        assert_eq!(bundled["reason"], "discovery-failed");
        started.elapsed()
    });
    assert!(first >= BUDGET, "{first:?}");
    for took in later {
        assert!(took < BUDGET, "waited once more: {took:?}");
    }
}
