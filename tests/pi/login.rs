//! pi's `/login` with a Cursor account: pi displays the page and stores the tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value as Json, json};

use test_support::pi_env::{ECHO, PiEnv, PiVersion};
use test_support::pi_screen::PiScreen;
use test_support::simulator::fingerprint;
use test_support::wait::until_named;

crate::on_every_pi!(
    an_account_signs_in_and_out,
    an_expired_login_is_renewed_and_stored_by_pi,
    a_login_can_be_cancelled,
    a_wrong_key_is_reported,
    a_login_that_has_ended_is_reported_once,
);

const PAGE: &str = "/loginDeepControl?challenge=";
const RUN: &str = "/agent.v1.AgentService/RunSSE";

fn pi_env(version: PiVersion, server: &str) -> PiEnv {
    let server = format!("[server]\n{server}\n[[run]]");
    let pi_env = PiEnv::playing(version, &ECHO.replacen("[[run]]", &server, 1)).without_key();
    let url = pi_env.simulator.url.clone();
    pi_env.with("CURSOR_WEBSITE_URL", &url)
}

/// Opens the dialog of `/login` for an account.
fn open_dialog(pi: &PiScreen<'_>) {
    choose_cursor(pi, &["Enter"]);
    let screen = pi.becomes("the page or a question for a key", |screen| {
        screen.contains(PAGE) || screen.contains("leave it empty")
    });
    if !screen.contains(PAGE) {
        pi.keys(&["Enter"]);
    }
    pi.shows(PAGE);
}

/// Chooses Cursor in `/login`; `kind` are the keys that choose the kind of login.
fn choose_cursor(pi: &PiScreen<'_>, kind: &[&str]) {
    pi.enter("/login");
    pi.becomes("the choice of a login", |screen| {
        screen.contains("→ Use a subscription") || screen.contains("→ Sign in with an account")
    });
    pi.keys(kind);
    pi.shows("Select provider");
    pi.type_in("Cursor");
    pi.shows("→ Cursor");
    pi.keys(&["Enter"]);
}

/// Without a key pi must still list the models, so a placeholder stands for it. pi displays where it
/// comes from.
#[test]
fn where_the_key_comes_from_is_displayed() {
    for version in [PiVersion::V087, PiVersion::V150] {
        for (pi_env, source) in [
            (PiEnv::playing(version, ECHO), "CURSOR_API_KEY"),
            (PiEnv::playing(version, ECHO).without_key(), "NO_CURSOR_KEY"),
        ] {
            let pi = PiScreen::with(&pi_env, &["--model", "cursor/composer-2"]);
            pi.shows("[Extensions]");
            pi.enter("/login");
            pi.shows("→ Sign in with an account");
            pi.keys(&["Down", "Enter"]);
            pi.shows("Select provider");
            pi.type_in("Cursor");
            let screen = pi.shows("→ Cursor ✓");
            let line = screen.lines().find(|line| line.contains("→ Cursor ✓"));
            assert_eq!(line.unwrap().trim(), format!("→ Cursor ✓ env: {source}"));
            pi.keep(&format!("login-{version:?}-{source}.ansi"));
        }
    }
}

fn stored(pi_env: &PiEnv) -> Json {
    let file = pi_env.home.path().join("agent/auth.json");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let stored: Json = serde_json::from_str(&text).unwrap_or_default();
    stored["cursor"].clone()
}

/// Returns the access token of what pi stores.
fn access(stored: &Json) -> &str {
    stored["access"]
        .as_str()
        .unwrap()
        .split('|')
        .next()
        .unwrap()
}

/// Signs in on a screen of its own and returns what pi has stored.
fn sign_in(pi_env: &PiEnv) -> Json {
    let pi = PiScreen::start(pi_env, "one", "no Cursor API key");
    open_dialog(&pi);
    pi.shows("Logged in to Cursor");
    let login = until_named("the login is stored", || {
        Some(stored(pi_env)).filter(|login| login["type"] == "oauth")
    });
    pi.quit();
    login
}

/// Stores a login whose tokens have expired; `refresh` replaces its refresh token.
fn store_expired(pi_env: &PiEnv, login: &Json, refresh: &str) {
    let claims = access(login).split('.').nth(1).unwrap();
    let mut claims: Json =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    claims["exp"] = json!(1_000_000_000);
    let token = format!("h.{}.s", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let expired = json!({"cursor": {"type": "oauth", "access": format!("{token}|{refresh}"),
                         "refresh": refresh, "expires": 1}});
    let file = pi_env.home.path().join("agent/auth.json");
    std::fs::write(file, expired.to_string()).unwrap();
}

fn an_account_signs_in_and_out(version: PiVersion) {
    let pi_env = pi_env(version, "login_pending = 1");
    let pi = PiScreen::start(&pi_env, "one", "no Cursor API key");
    open_dialog(&pi);
    pi.shows("Logged in to Cursor");
    let login = until_named("the login is stored", || {
        Some(stored(&pi_env)).filter(|login| login["type"] == "oauth")
    });
    pi.enter("two");
    pi.shows("Heard: ");
    let recording = pi_env.recorded("the run", |recording| recording.verdicts().len() == 1);
    assert_eq!(recording.bearers(RUN), [fingerprint(access(&login))]);
    let exchanges = recording.requests("/auth/exchange_user_api_key");
    assert!(exchanges.is_empty(), "the tokens are used as they are");
    assert!(!pi.text().contains(access(&login)));
    pi.enter("/logout");
    pi.shows("→ Cursor");
    pi.keys(&["Enter"]);
    pi.shows("Logged out of Cursor");
    assert_eq!(stored(&pi_env), Json::Null);
    pi.quit();
    let signed_out = pi_env.print("three");
    assert!(
        signed_out.stderr.contains("no Cursor API key"),
        "{signed_out:?}"
    );
    assert_eq!(pi_env.simulator.recorded().runs(), 1);
}

fn an_expired_login_is_renewed_and_stored_by_pi(version: PiVersion) {
    let pi_env = pi_env(version, "login_pending = 2");
    let login = sign_in(&pi_env);
    store_expired(&pi_env, &login, login["refresh"].as_str().unwrap());
    assert_eq!(pi_env.print("hi").stdout, "Heard: hi\n");
    let renewed = stored(&pi_env);
    assert_ne!(
        renewed["refresh"], login["refresh"],
        "pi stores the new tokens"
    );
    let recording = pi_env.simulator.recorded();
    assert_eq!(recording.requests("/auth/exchange_user_api_key").len(), 1);
    assert_eq!(recording.bearers(RUN), [fingerprint(access(&renewed))]);
    assert_eq!(pi_env.print("again").stdout, "Heard: again\n");
    let recording = pi_env.simulator.recorded();
    assert_eq!(recording.requests("/auth/exchange_user_api_key").len(), 1);
}

fn a_login_can_be_cancelled(version: PiVersion) {
    let pending = "unary = { \"/auth/poll\" = { status = 404, body = \"Not found\" } }";
    let pi_env = pi_env(version, pending);
    let pi = PiScreen::start(&pi_env, "one", "no Cursor API key");
    open_dialog(&pi);
    pi_env.recorded("a poll", |recording| {
        !recording.requests("/auth/poll").is_empty()
    });
    pi.keys(&["Escape"]);
    pi.becomes("the end of the dialog", |screen| {
        !screen.contains("/loginDeepControl?challenge=")
    });
    let screen = pi.text();
    // Newer versions display the abort of their own signal.
    let text = screen.replace("Failed to login to Cursor: This operation was aborted", "");
    assert!(!text.contains("Failed to login"), "{screen}");
    assert_eq!(stored(&pi_env), Json::Null);
    // pi ends, because the login does not wait any longer.
    pi.quit();
    pi_env.no_sidecar_is_left();
}

/// A newer pi has a dialog for keys and stores what it is given; the extension reports a wrong one. An
/// older pi asks for an account only; there the extension asks for a key first.
fn a_wrong_key_is_reported(version: PiVersion) {
    let pi_env = pi_env(version, "login_pending = 0");
    let pi = PiScreen::start(&pi_env, "one", "no Cursor API key");
    let has_dialog = matches!(version, PiVersion::V087 | PiVersion::V150);
    let give = |key: &str| {
        let kinds: &[&str] = if has_dialog {
            &["Down", "Enter"]
        } else {
            &["Enter"]
        };
        choose_cursor(&pi, kinds);
        let question = if has_dialog {
            "Enter API key"
        } else {
            "leave it empty"
        };
        pi.shows(question);
        pi.type_in(key);
        pi.keys(&["Enter"]);
        pi.becomes("the end of the dialog", |screen| !screen.contains(question));
    };
    give("crsr_invalid");
    pi.shows("Cursor did not accept the API key");
    give("crsr_right");
    until_named("the key is stored", || {
        stored(&pi_env)
            .to_string()
            .contains("crsr_right")
            .then_some(())
    });
    pi.enter("two");
    pi.shows("Heard: ");
    let recording = pi_env.recorded("the run", |recording| recording.verdicts().len() == 1);
    let keys = recording.bearers("/auth/exchange_user_api_key");
    assert_eq!(keys.last(), Some(&fingerprint("crsr_right")), "{keys:?}");
    pi.quit();
}

fn a_login_that_has_ended_is_reported_once(version: PiVersion) {
    let pi_env = pi_env(version, "login_pending = 2");
    let login = sign_in(&pi_env);
    store_expired(&pi_env, &login, "refresh-unknown");
    let output = pi_env.print("hi");
    assert_eq!(output.stdout, "");
    assert_ne!(output.code, Some(0));
    let text = output.stderr.to_lowercase();
    assert!(text.contains("login"), "{output:?}");
    let recording = pi_env.simulator.recorded();
    assert_eq!(recording.runs(), 0);
    let tries = recording.requests("/auth/exchange_user_api_key").len();
    assert!((1..=2).contains(&tries), "{tries} tries: {output:?}");
}
