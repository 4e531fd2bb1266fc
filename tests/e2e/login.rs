//! Browser login through JSON-RPC and the command line: no key before, a working key after.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value as Json, json};

use test_support::binary;
use test_support::rpc_session::RpcSession;
use test_support::simulator::{Simulator, Transport};

fn keyless(state: &Path) -> [(&'static str, &str); 2] {
    [
        ("CURSOR_API_KEY", ""),
        ("PI_CURSOR_STATE_DIR", state.to_str().unwrap()),
    ]
}

/// A server with the same answer for every run.
fn scenario() -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let steps = r#"{ text = "ok" }, { usage = {} }, { end = true }"#;
    write!(file, "name = \"login\"\n[[run]]\nsteps = [ {steps} ]\n").unwrap();
    file
}

#[test]
fn a_login_gives_a_key_that_turns_use() {
    let simulator = Simulator::with(Transport::Http1, scenario().path());
    let state = tempfile::tempdir().unwrap();
    let mut session = RpcSession::new(&simulator, "s", &keyless(state.path()));

    let before = session.host.call("account/status", json!({}));
    let problem = before["result"]["problem"].as_str().unwrap();
    assert!(problem.starts_with("no Cursor API key"), "{before}");
    assert_eq!(before["result"].get("keySource"), None);
    assert_eq!(session.prompt("hello").stop, "error");

    let begun = session.host.call("login/start", json!({}))["result"].clone();
    let page = begun["url"].as_str().unwrap();
    assert!(
        page.starts_with("https://cursor.com/loginDeepControl?challenge="),
        "{page}"
    );
    let id = begun["loginId"].as_str().unwrap();
    assert!(page.contains(&format!("&uuid={id}&mode=login")), "{page}");
    let unknown = session.host.call("login/wait", json!({"loginId": "x"}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let done = session.host.call("login/wait", json!({"loginId": id}));
    assert_eq!(done["result"]["email"], "person@example.invalid", "{done}");

    let file = state.path().join("login.json");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let kept: Json = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(kept["backendUrl"], simulator.url);
    for name in ["accessToken", "refreshToken"] {
        let token = kept[name].as_str().unwrap();
        assert!(!done.to_string().contains(token), "the tokens stay with us");
    }

    let after = session.host.call("account/status", json!({}))["result"].clone();
    assert_eq!(after["keySource"], "login");
    assert_eq!(after["email"], "person@example.invalid");
    assert_eq!(after["plan"]["percentUsed"], 12.5);
    assert_eq!(after.get("problem"), None);
    let given = session
        .host
        .call("account/status", json!({"apiKey": "invalid"}));
    assert_eq!(given["result"]["keySource"], "host", "{given}");
    let outcome = session.prompt("hello again");
    assert_eq!(
        (outcome.stop.as_str(), outcome.error.as_str()),
        ("stop", "")
    );

    let recording = simulator.recorded();
    let exchanges = recording.requests("/auth/exchange_user_api_key");
    assert_eq!(
        exchanges.len(),
        1,
        "the host's key; tokens are used as they are"
    );
    assert_eq!(recording.requests("/auth/poll").len(), 2);
}

#[test]
fn the_command_signs_in_and_out() {
    let simulator = Simulator::start(Transport::Http1);
    let state = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new(binary())
            .args(arguments)
            .env_clear()
            .env("CURSOR_BACKEND_URL", &simulator.url)
            .env("CURSOR_WEBSITE_URL", &simulator.url)
            .envs(keyless(state.path()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run(&["logout"]), "No account was signed in.\n");
    let printed = run(&["login"]);
    assert!(
        printed.contains(&format!("{}/loginDeepControl?", simulator.url)),
        "{printed}"
    );
    assert!(
        printed.contains("Signed in: person@example.invalid."),
        "{printed}"
    );
    let listed: Json = serde_json::from_str(&run(&["models", "--json"])).unwrap();
    assert_eq!(listed["source"], "live");
    assert!(run(&["logout"]).starts_with("Signed out."));
    let listed: Json = serde_json::from_str(&run(&["models", "--json"])).unwrap();
    assert_eq!(listed["reason"], "missing-api-key");
}
