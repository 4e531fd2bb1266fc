//! An HTML page in place of a response, as sent by a proxy, a captive portal or a bot challenge. It
//! says nothing about the user's key.

use cursor_client::failure::Failure;
use serde_json::json;

use agent::run::Outcome;

use test_support::rpc_session::RpcSession;
use test_support::run_client::RunClient;
use test_support::scenario::{inline, value};
use test_support::simulator::{Simulator, Transport};

const PAGE: &str = "<!DOCTYPE html><html><title>Just a moment...</title>Please log in or verify that you are human. Unauthorized API key token.</html>";

/// A backend that answers with a page where `place` says.
fn answering_with_page(place: &str, status: u16) -> Simulator {
    let answer = inline(&json!({"status": value(status), "body": PAGE.to_string()}));
    let place = place.replace("PAGE", &answer);
    let steps = r#"{ text = "ok" }, { usage = {} }, { end = true }"#;
    let text = format!("name = \"page\"\n[server]\n{place}\n[[run]]\nsteps = [ {steps} ]\n");
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Simulator::with(Transport::Http1, file.path())
}

/// Asserts that the text does not suggest to change the key, because the key is fine.
#[track_caller]
fn assert_blames_no_key(text: &str) {
    let text = text.to_lowercase();
    for word in [
        "did not accept",
        "create a new key",
        "log in",
        "/login",
        "unauthenticated",
        "html",
    ] {
        assert!(!text.contains(word), "{word:?} in {text:?}");
    }
    assert!(!text.is_empty());
}

const STATUSES: [u16; 3] = [403, 200, 503];

#[tokio::test]
async fn a_page_in_place_of_a_token_is_not_a_refused_key() {
    for status in STATUSES {
        let simulator = answering_with_page("exchange = PAGE", status);
        let mut ours = RunClient::new(&simulator, Transport::Http1);
        ours.policy.transport = 1;
        ours.policy.server = 1;
        let outcome = ours.prompt("go").await.ended.outcome;
        let Outcome::Failed(failure) = outcome else {
            panic!("{status}: {outcome:?}");
        };
        assert!(
            !matches!(failure, Failure::Login(_) | Failure::Key(_)),
            "{status}: {failure:?}"
        );
        assert_blames_no_key(&failure.to_string());
    }
}

#[tokio::test]
async fn a_page_in_place_of_a_run_is_not_a_refused_key() {
    let run = "unary = { \"/agent.v1.AgentService/RunSSE\" = PAGE, \"/agent.v1.AgentService/Run\" = PAGE }";
    for status in STATUSES {
        let simulator = answering_with_page(run, status);
        let mut ours = RunClient::new(&simulator, Transport::Http1);
        ours.policy.transport = 1;
        ours.policy.server = 1;
        let outcome = ours.prompt("go").await.ended.outcome;
        let Outcome::Failed(failure) = outcome else {
            panic!("{status}: {outcome:?}");
        };
        assert!(
            !matches!(failure, Failure::Login(_) | Failure::Key(_)),
            "{status}: {failure:?}"
        );
        assert_blames_no_key(&failure.to_string());
        let exchanges = simulator.recording().await;
        let exchanges = exchanges.requests("/auth/exchange_user_api_key").len();
        assert_eq!(exchanges, 1, "{status}: the token is not replaced");
    }
}

#[test]
fn a_page_in_place_of_the_models_is_not_a_refused_key() {
    let list = "unary = { \"/v1/models\" = PAGE, \"/aiserver.v1.AiService/AvailableModels\" = PAGE, \"/agent.v1.AgentService/GetUsableModels\" = PAGE }";
    for status in STATUSES {
        let simulator = answering_with_page(list, status);
        let mut session = RpcSession::new(&simulator, "s", &[]);
        let listed = session.host.call("models/list", json!({"refresh": true}));
        let result = &listed["result"];
        assert_ne!(result["source"], "live", "{listed}");
        assert_ne!(result["reason"], "no-key", "{listed}");
        assert_blames_no_key(&result["warnings"].to_string());
        assert!(!result["models"].as_array().unwrap().is_empty(), "{listed}");
    }
}

/// Models, usage and runs come from Cursor's interfaces. The website is only for the user's browser.
#[test]
fn no_page_of_the_website_is_requested() {
    let website = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    website.set_nonblocking(true).unwrap();
    let url = format!("http://{}", website.local_addr().unwrap());
    let simulator = Simulator::responder(Transport::Http1);
    let mut session = RpcSession::new(&simulator, "s", &[("CURSOR_WEBSITE_URL", &url)]);
    let listed = session.host.call("models/list", json!({"refresh": true}));
    assert_eq!(listed["result"]["source"], "live", "{listed}");
    let turn_outcome = session.prompt("go");
    assert_eq!(turn_outcome.stop, "stop", "{turn_outcome:?}");
    let visit = website.accept().map(|(_, address)| address);
    let no_visitor = std::io::ErrorKind::WouldBlock;
    assert_eq!(visit.map_err(|error| error.kind()), Err(no_visitor));
    let recording = simulator.recorded();
    let paths = recording.paths();
    assert!(paths.contains(&"/v1/models"), "{paths:?}");
    let interfaces = ["/v1/", "/auth/", "/agent.v1.", "/aiserver.v1."];
    for path in paths {
        let is_interface = interfaces.iter().any(|start| path.starts_with(start));
        assert!(is_interface, "{path}");
    }
}
