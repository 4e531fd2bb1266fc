//! The gateway's status page: in Chromium, and the access to it.

use std::process::{Command, Stdio};

use test_support::gateway::GatewayProcess;
use test_support::official_client::OfficialClient;
use test_support::root;
use test_support::scenario::{END, Steps, calls, playing, text};
use test_support::simulator::{Simulator, Transport};

/// Returns Chromium; `make test` installs it.
fn chromium() -> String {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var("PATH").unwrap();
    let found = names.iter().find_map(|name| {
        let files = std::env::split_paths(&path).map(|folder| folder.join(name));
        files.into_iter().find(|file| file.exists())
    });
    let found =
        found.expect("Chromium is not installed: run `make test`, or `.ci/install chromium`");
    found.display().to_string()
}

#[test]
fn the_page_displays_what_a_turn_waits_for_and_changes_by_itself() {
    let steps = Steps::new()
        .context()
        .then(calls("look", r#"{ file = "a.txt" }"#, "", &text("seen")))
        .text("Done.")
        .then(END)
        .build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let place = OfficialClient::new();
    let folder = root().join("tests/browser");
    assert!(
        folder.join("node_modules").exists(),
        "run `make test`, or `npm ci` in tests/browser"
    );
    let output = Command::new(place.command("status-page.mjs").get_program())
        .arg(folder.join("status-page.mjs"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", place.home.path())
        .env("GATEWAY_URL", &gateway.url)
        .env("GATEWAY_TOKEN", &gateway.token)
        .env("CHROMIUM", chromium())
        .envs(std::env::var_os("PICTURES").map(|folder| ("PICTURES", folder)))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success());
    simulator.recorded().assert_played(&["completed"]);
    let printed = std::fs::read_to_string(gateway.folder().join("stderr")).unwrap();
    assert!(!printed.contains(&gateway.token), "{printed}");
}

/// A client with the token gets the page and its events too; a browser's cookie opens neither the
/// APIs nor a second cookie.
#[tokio::test]
async fn a_cookie_opens_the_page_and_nothing_else() {
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let at = |path: &str| gateway.url.replace("/v1", path);
    let signed_in = http.post(at("/status/sign-in")).bearer_auth(&gateway.token);
    let signed_in = signed_in.send().await.unwrap();
    assert_eq!(signed_in.status(), 204);
    let cookie = signed_in.headers()["set-cookie"].to_str().unwrap();
    assert!(!cookie.contains(&gateway.token), "{cookie}");
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let page = http.get(at("/")).header("cookie", &cookie);
    let page = page.send().await.unwrap();
    assert_eq!(page.status(), 200);
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'nonce-"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(page.headers()[name], value);
    }
    let other = http.get(at("/")).header("cookie", &cookie);
    let other = other.header("sec-fetch-site", "same-site").send().await;
    assert_eq!(other.unwrap().status(), 401, "a page of another port");
    for path in ["/v1/models", "/metrics", "/health"] {
        let refused = http.get(at(path)).header("cookie", &cookie).send().await;
        assert_eq!(refused.unwrap().status(), 401, "{path}");
    }
    for path in ["/v1/chat/completions", "/status/sign-in"] {
        let refused = http.post(at(path)).header("cookie", &cookie).send().await;
        assert_eq!(refused.unwrap().status(), 401, "{path}");
    }
    let signed_out = http.post(at("/status/sign-out")).header("cookie", &cookie);
    assert_eq!(signed_out.send().await.unwrap().status(), 204);
    let page = http.get(at("/")).header("cookie", &cookie).send().await;
    assert_eq!(page.unwrap().status(), 401);
    assert_eq!(simulator.recording().await.runs(), 0);
}
