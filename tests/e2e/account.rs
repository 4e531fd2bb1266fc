//! Which credential is used, how a login is renewed, and what the account has left. The simulator
//! records a fingerprint of every credential it receives.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use test_support::binary;
use test_support::rpc_session::RpcSession;
use test_support::simulator::{Simulator, Transport, fingerprint};
use test_support::wait::until_named;

const EXCHANGE: &str = "/auth/exchange_user_api_key";
const PLAN: &str = "/aiserver.v1.DashboardService/GetPlanInfo";

/// A simulator whose `[server]` has these lines, and which answers every run.
pub(crate) fn simulator(server: &str) -> Simulator {
    playing(
        server,
        r#"{ text = "ok" }, { checkpoint = "auto" }, { usage = { inputTokens = 100, outputTokens = 10, cacheReadTokens = 300, cacheWriteTokens = 0 } }, { checkpoint = "auto" }, { end = true }"#,
    )
}

fn playing(server: &str, steps: &str) -> Simulator {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    write!(
        file,
        "name = \"account\"\n[server]\nlogin_pending = 0\n{server}\n[[run]]\nsteps = [ {steps} ]\n"
    )
    .unwrap();
    Simulator::with(Transport::Http1, file.path())
}

/// A user's home with its state directory.
pub(crate) struct Home {
    folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub(crate) fn command(&self, simulator: &Simulator, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.folder.path())
            .env("PI_CURSOR_STATE_DIR", self.state())
            .env("CURSOR_BACKEND_URL", &simulator.url)
            .env("CURSOR_WEBSITE_URL", &simulator.url);
        command
    }

    pub(crate) fn run(
        &self,
        simulator: &Simulator,
        arguments: &[&str],
        env: &[(&str, &str)],
    ) -> Output {
        let mut command = self.command(simulator, arguments);
        command.envs(env.iter().copied()).output().unwrap()
    }

    /// Signs in.
    pub(crate) fn login(&self, simulator: &Simulator) {
        let output = self.run(simulator, &["login"], &[]);
        assert!(output.status.success(), "{output:?}");
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.state().join("login.json")
    }

    pub(crate) fn stored(&self) -> Json {
        serde_json::from_slice(&std::fs::read(self.file()).unwrap()).unwrap()
    }

    /// Replaces the access token of the stored login by one of the same user that has expired.
    fn expire(&self) {
        expire(&self.file());
    }
}

/// Replaces the access token in a login file by one of the same user that has expired.
pub(crate) fn expire(file: &Path) {
    let mut stored: Json = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    stored["accessToken"] = json!(expired(stored["accessToken"].as_str().unwrap()));
    std::fs::write(file, stored.to_string()).unwrap();
}

/// Returns a token of the same user that has expired.
pub(crate) fn expired(token: &str) -> String {
    let claims = token.split('.').nth(1).unwrap();
    let mut claims: Json =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    claims["exp"] = json!(1_000_000_000);
    format!("h.{}.s", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

fn refreshes(simulator: &Simulator) -> usize {
    let recording = simulator.recorded();
    let requests = recording.requests(EXCHANGE);
    let with = |request: &&&Json| request["headers"]["authorization"] == "Bearer <refresh token>";
    requests.iter().filter(with).count()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns tokens of a login that the host stores.
fn host_login(session: &mut RpcSession) -> Json {
    let begun = session.host.call("login/start", json!({}))["result"].clone();
    let wait = json!({"loginId": begun["loginId"], "returnTokens": true});
    session.host.call("login/wait", wait)["result"]["tokens"].clone()
}

#[test]
fn each_source_is_used_in_its_order() {
    let simulator = simulator("");
    let home = Home::new();
    let mut session = RpcSession::new(&simulator, "s", &[("CURSOR_API_KEY", "")]);
    let token = |session: &mut RpcSession| {
        let tokens = host_login(session);
        let pair = tokens["access"].as_str().unwrap();
        pair.split_once('|').unwrap().0.to_owned()
    };
    let cli_token = token(&mut session);
    let env_token = token(&mut session);
    let folder = home.folder.path().join(".config/cursor");
    std::fs::create_dir_all(&folder).unwrap();
    let cli = json!({"accessToken": cli_token, "refreshToken": "r"}).to_string();
    std::fs::write(folder.join("auth.json"), &cli).unwrap();

    let plan_requests = || simulator.recorded().bearers(PLAN);
    let usage = |env: &[(&str, &str)]| {
        let output = home.run(&simulator, &["usage"], env);
        (output.status.success(), text(&output.stderr))
    };
    let doctor = |env: &[(&str, &str)]| text(&home.run(&simulator, &["doctor"], env).stdout);

    let (done, problem) = usage(&[]);
    assert!(
        !done,
        "the login of the CLI is not read unless it is permitted"
    );
    assert!(problem.contains("no Cursor API key"), "{problem}");
    assert!(plan_requests().is_empty());

    let permitted = [("PI_CURSOR_USE_CLI_LOGIN", "1")];
    assert_eq!(usage(&permitted), (true, String::new()));
    assert_eq!(plan_requests().pop(), Some(fingerprint(&cli_token)));
    let page = doctor(&permitted);
    assert!(
        page.contains("key: from the login of the Cursor CLI"),
        "{page}"
    );

    home.login(&simulator);
    let own = home.stored()["accessToken"].as_str().unwrap().to_owned();
    assert_eq!(usage(&permitted), (true, String::new()));
    assert_eq!(plan_requests().pop(), Some(fingerprint(&own)));

    let with_token = [permitted[0], ("CURSOR_ACCESS_TOKEN", env_token.as_str())];
    assert_eq!(usage(&with_token), (true, String::new()));
    assert_eq!(plan_requests().pop(), Some(fingerprint(&env_token)));

    let with_key = [with_token[0], with_token[1], ("CURSOR_API_KEY", "crsr_env")];
    assert_eq!(usage(&with_key), (true, String::new()));
    let exchanges = || simulator.recorded().bearers(EXCHANGE);
    assert_eq!(exchanges(), [fingerprint("crsr_env")]);
    let page = doctor(&with_key);
    assert!(page.contains("key: from CURSOR_API_KEY"), "{page}");
    for unused in [
        "also there, not used: CURSOR_ACCESS_TOKEN",
        "also there, not used: the login of `cursor-sidecar login`",
        "also there, not used: the login of the Cursor CLI",
    ] {
        assert!(page.contains(unused), "{unused} in {page}");
    }
    for secret in [cli_token.as_str(), &env_token, &own, "crsr_env"] {
        assert!(!page.contains(secret), "{page}");
    }

    let state = home.state();
    let mut env = with_key.to_vec();
    env.push(("PI_CURSOR_STATE_DIR", state.to_str().unwrap()));
    let mut host = RpcSession::new(&simulator, "t", &env);
    let status = host
        .host
        .call("account/status", json!({"apiKey": "crsr_host"}));
    assert_eq!(status["result"]["keySource"], "host", "{status}");
    assert_eq!(exchanges().pop(), Some(fingerprint("crsr_host")));
    assert_eq!(
        std::fs::read_to_string(folder.join("auth.json")).unwrap(),
        cli
    );
}

#[test]
fn ten_processes_renew_a_login_once() {
    let simulator = simulator("exchange = { late_ms = 400 }");
    let home = Home::new();
    home.login(&simulator);
    home.expire();
    let processes: Vec<Child> = (0..10)
        .map(|_| {
            let mut command = home.command(&simulator, &["usage", "--json"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    for process in processes {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(refreshes(&simulator), 1);
    let stored = home.stored();
    assert_eq!(stored["refreshEndpoint"], EXCHANGE);
    assert_eq!(
        stored["email"], "person@example.invalid",
        "the rest is kept"
    );
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&home.file()), mode(&home.state())), (0o600, 0o700));
}

#[test]
fn a_process_killed_while_it_renews_leaves_the_login_intact() {
    let simulator = simulator("exchange = { late_ms = 60000, times = 1 }");
    let home = Home::new();
    home.login(&simulator);
    home.expire();
    let before = std::fs::read(home.file()).unwrap();
    let mut command = home.command(&simulator, &["usage"]);
    let mut process = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until_named("the refresh", || (refreshes(&simulator) == 1).then_some(()));
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(std::fs::read(home.file()).unwrap(), before);
    // The lock ended with the process. The simulator accepts a refresh token once, so the login
    // has ended, which is reported at once.
    let output = home.run(&simulator, &["usage"], &[]);
    let problem = text(&output.stderr);
    assert!(problem.contains("the Cursor login has ended"), "{problem}");
    assert!(problem.contains("sign in again"), "{problem}");
    assert_eq!(std::fs::read(home.file()).unwrap(), before);
    home.login(&simulator);
    let output = home.run(&simulator, &["usage"], &[]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_endpoint_that_renews_is_found_and_remembered() {
    let server = r#"unary = { "/auth/exchange_user_api_key" = { status = 401, body = { message = "Invalid User API key" } }, "/auth/token" = { status = 404, body = "Not found" } }"#;
    let simulator = simulator(server);
    let home = Home::new();
    home.login(&simulator);
    let asked = || {
        let recording = simulator.recorded();
        let paths = recording.paths().into_iter();
        let refresh = [
            "/auth/exchange_user_api_key",
            "/auth/token",
            "/auth/refresh",
        ];
        paths
            .filter(|path| refresh.contains(path))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for expected in [
        vec![
            "/auth/exchange_user_api_key",
            "/auth/token",
            "/auth/refresh",
        ],
        vec!["/auth/refresh"],
    ] {
        let before = asked().len();
        home.expire();
        let output = home.run(&simulator, &["usage"], &[]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(asked()[before..], expected);
        assert_eq!(home.stored()["refreshEndpoint"], "/auth/refresh");
    }
}

/// Cases: what the server does, what the user reads, whether the login has ended.
#[test]
fn a_malformed_endpoint_ends_with_a_clear_error_in_bounded_time() {
    let claims = json!({"sub": "someone else", "exp": 4_000_000_000_u64}).to_string();
    let other = format!("h.{}.s", URL_SAFE_NO_PAD.encode(claims));
    let page = "<!DOCTYPE html><title>Just a moment...</title>Unauthorized: log in";
    let huge = "x".repeat(300_000);
    let cases = [
        (
            "status = 404, body = \"Not found\"".to_owned(),
            "does not renew logins",
            true,
        ),
        (
            "status = 500, body = { message = \"out of order\" }".to_owned(),
            "out of order",
            false,
        ),
        (format!("status = 403, body = '{page}'"), "HTTP 403", false),
        (
            format!("status = 200, body = '{page}'"),
            "a web page was sent in place of Cursor's response",
            false,
        ),
        (
            format!("status = 200, body = '{huge}'"),
            "cannot get a token",
            false,
        ),
        ("cut = true".to_owned(), "cannot get a token", false),
        (
            "status = 401, body = { message = \"revoked\" }".to_owned(),
            "did not renew it: revoked",
            true,
        ),
        (
            format!("status = 200, body = {{ accessToken = '{other}', refreshToken = 'r' }}"),
            "of another account",
            true,
        ),
    ];
    for (reply, wanted, has_ended) in cases {
        let paths = ["exchange_user_api_key", "token", "refresh"];
        let replies = paths.map(|path| format!("\"/auth/{path}\" = {{ {reply} }}"));
        let simulator = simulator(&format!("unary = {{ {} }}", replies.join(", ")));
        let home = Home::new();
        home.login(&simulator);
        home.expire();
        let before = std::fs::read(home.file()).unwrap();
        let output = home.run(&simulator, &["usage"], &[]);
        let problem = text(&output.stderr);
        let shown: String = problem.chars().take(600).collect();
        assert!(!output.status.success(), "{shown}");
        assert!(shown.contains(wanted), "{wanted}: {shown}");
        assert_eq!(shown.contains("sign in again"), has_ended, "{shown}");
        assert!(!shown.contains("moment") && shown.len() < 600, "{shown}");
        assert_eq!(problem.lines().count(), 1, "one message: {problem}");
        assert_eq!(std::fs::read(home.file()).unwrap(), before, "{wanted}");
        let recording = simulator.recorded();
        let asked = recording.paths().into_iter();
        let asked = asked.filter(|path| path.starts_with("/auth/") && *path != "/auth/poll");
        let count = asked.count();
        assert!((1..=3).contains(&count), "{count} requests: {wanted}");
    }
}

#[test]
fn a_slow_endpoint_is_not_waited_for_longer_than_its_limit() {
    let simulator = simulator("exchange = { late_ms = 60000 }");
    let home = Home::new();
    home.login(&simulator);
    home.expire();
    let started = std::time::Instant::now();
    let output = home.run(&simulator, &["usage"], &[]);
    let problem = text(&output.stderr);
    assert!(problem.contains("15 s"), "{problem}");
    assert!(started.elapsed().as_secs() < 40, "{:?}", started.elapsed());
}

#[test]
fn a_login_page_that_misbehaves_is_reported() {
    let page = "<html>Just a moment... log in</html>";
    for (reply, wanted) in [
        (
            "status = 500, body = \"\"".to_owned(),
            "unexpected response to the login (HTTP 500)",
        ),
        (
            format!("status = 403, body = '{page}'"),
            "a web page was sent in place of Cursor's response",
        ),
        (
            format!("status = 200, body = '{page}'"),
            "a web page was sent in place of Cursor's response",
        ),
        (
            "status = 200, body = { accessToken = \"\" }".to_owned(),
            "unexpected response to the login (HTTP 200)",
        ),
        (
            "status = 404, body = { message = \"Route GET:/auth/poll not found\" }".to_owned(),
            "has no browser login",
        ),
        (
            format!("status = 200, body = '{}'", "x".repeat(300_000)),
            "cannot sign in",
        ),
    ] {
        let simulator = simulator(&format!("unary = {{ \"/auth/poll\" = {{ {reply} }} }}"));
        let home = Home::new();
        let output = home.run(&simulator, &["login"], &[]);
        let problem = text(&output.stderr);
        assert!(!output.status.success(), "{problem}");
        assert!(problem.contains(wanted), "{wanted}: {problem}");
        assert!(!home.file().exists(), "nothing is stored");
        let polls = simulator.recorded().requests("/auth/poll").len();
        assert!(polls <= 3, "{polls} polls: {wanted}");
    }
}

#[test]
fn a_login_of_the_host_is_renewed_during_a_run_and_for_the_host() {
    let simulator = simulator("");
    let state = tempfile::tempdir().unwrap();
    let env = [
        ("CURSOR_API_KEY", ""),
        ("PI_CURSOR_STATE_DIR", state.path().to_str().unwrap()),
    ];
    let mut session = RpcSession::new(&simulator, "s", &env);
    let tokens = host_login(&mut session);
    let (pair, refresh) = (tokens["access"].as_str().unwrap(), &tokens["refresh"]);
    let access = pair.split_once('|').unwrap().0;
    assert!(
        tokens["expires"].as_u64().unwrap() > 1_700_000_000_000,
        "{tokens}"
    );
    assert!(
        !state.path().join("login.json").exists(),
        "the host stores it"
    );
    let turn = |session: &mut RpcSession, text: &str, key: &str| {
        session.user(text);
        let mut params = session.params();
        params["apiKey"] = json!(key);
        session.take(params)
    };
    let of_host = |access: &str| format!("{access}|{}", refresh.as_str().unwrap());
    let one = turn(&mut session, "one", &of_host(access));
    assert_eq!((one.stop.as_str(), one.error.as_str()), ("stop", ""));
    assert_eq!(refreshes(&simulator), 0);
    // The host sends tokens that have expired since.
    let old = expired(access);
    let two = turn(&mut session, "two", &of_host(&old));
    assert_eq!((two.stop.as_str(), two.error.as_str()), ("stop", ""));
    assert_eq!(refreshes(&simulator), 1);
    // The host renews what it has stored: the refresh token is not used a second time.
    let renewed = session.host.call(
        "login/refresh",
        json!({"access": of_host(&old), "refresh": refresh}),
    );
    let renewed = &renewed["result"];
    assert_ne!(renewed["access"], pair, "{renewed}");
    assert_ne!(renewed["refresh"], *refresh, "{renewed}");
    assert_eq!(refreshes(&simulator), 1);
    let three = turn(&mut session, "three", renewed["access"].as_str().unwrap());
    assert_eq!((three.stop.as_str(), three.error.as_str()), ("stop", ""));
    assert_eq!(refreshes(&simulator), 1);
    let recording = simulator.recorded();
    let conversations: std::collections::BTreeSet<String> = recording
        .client("runRequest")
        .iter()
        .map(|request| request["runRequest"]["conversationId"].to_string())
        .collect();
    assert_eq!(
        conversations.len(),
        1,
        "renewed tokens are the same account"
    );
}

#[test]
fn another_account_in_mid_session_gets_a_new_conversation() {
    let simulator = simulator("");
    let mut session = RpcSession::new(&simulator, "s", &[("CURSOR_API_KEY", "")]);
    let key = |session: &mut RpcSession| host_login(session)["access"].as_str().unwrap().to_owned();
    // Each login of the simulator is another account.
    let (one, other) = (key(&mut session), key(&mut session));
    for (text, key) in [("one", &one), ("two", &one), ("three", &other)] {
        session.user(text);
        let mut params = session.params();
        params["apiKey"] = json!(key);
        assert_eq!(session.take(params).stop, "stop");
    }
    let recording = simulator.recorded();
    let requests = recording.client("runRequest");
    let id = |n: usize| requests[n]["runRequest"]["conversationId"].to_string();
    assert_eq!(id(0), id(1));
    assert_ne!(
        id(1),
        id(2),
        "conversations of another account are not continued"
    );
}

#[test]
fn a_cancelled_login_ends_its_wait() {
    let simulator =
        simulator("unary = { \"/auth/poll\" = { status = 404, body = \"Not found\" } }");
    let mut session = RpcSession::new(&simulator, "s", &[("CURSOR_API_KEY", "")]);
    let begun = session.host.call("login/start", json!({}))["result"].clone();
    let id = &begun["loginId"];
    let request = |number: &str, method: &str| json!({"jsonrpc": "2.0", "id": number, "method": method, "params": {"loginId": id}});
    session.host.send(&request("wait", "login/wait"));
    until_named("a poll", || {
        let polls = simulator.recorded().requests("/auth/poll").len();
        (polls > 0).then_some(())
    });
    session.host.send(&request("cancel", "login/cancel"));
    let answers = session.host.answers(2);
    assert_eq!(answers["cancel"]["result"]["found"], true, "{answers:?}");
    assert_eq!(answers["wait"]["error"]["message"], "Login cancelled");
    let again = session.host.call("login/cancel", json!({"loginId": id}));
    assert_eq!(again["result"]["found"], false, "{again}");
}

#[test]
fn the_plan_and_the_tokens_of_a_session_are_shown() {
    let usage = r#"{ billingCycleStart = "1793500000000", billingCycleEnd = "4102444800000", planUsage = { totalSpend = 500, limit = 2000, totalPercentUsed = 25.0, autoPercentUsed = 10.0, apiPercentUsed = 40.0 }, spendLimitUsage = { individualLimit = 1000, individualUsed = 300 }, enabled = true }"#;
    let simulator = simulator(&format!(
        "unary = {{ \"/aiserver.v1.DashboardService/GetCurrentPeriodUsage\" = {{ body = {usage} }} }}"
    ));
    let home = Home::new();
    let key = [("CURSOR_API_KEY", "crsr_test")];
    let page = text(&home.run(&simulator, &["usage"], &key).stdout);
    for line in [
        "Account: person@example.invalid",
        "Plan: Simulated Pro",
        "Used: [#####---------------] 25 % ($5.00 of $20.00)",
        "Models chosen by Cursor: [##------------------] 10 %",
        "Models chosen by you: [########------------] 40 %",
        "Beyond the plan: [######--------------] 30 % ($3.00 of $10.00)",
        "The period ends in ",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
    let json: Json =
        serde_json::from_slice(&home.run(&simulator, &["usage", "--json"], &key).stdout).unwrap();
    assert_eq!(json["percentUsed"], 25.0);
    assert_eq!(json["onDemandLimitCents"], 1000);
    let page = text(&home.run(&simulator, &["doctor", "--online"], &key).stdout);
    assert!(page.contains("25 % ($5.00 of $20.00)"), "{page}");

    let mut session = RpcSession::new(&simulator, "s", &[]);
    let command = json!({"command": "cursor-usage", "sessionId": "s", "model": "composer-2"});
    let none = session.host.call("session/command", command.clone());
    let message = none["result"]["message"].as_str().unwrap();
    assert!(message.contains("no usage reported yet"), "{none}");
    session.prompt("one");
    session.prompt("two");
    let shown = session.host.call("session/command", command);
    let message = shown["result"]["message"].as_str().unwrap();
    assert!(message.contains("Plan: Simulated Pro"), "{message}");
    let tokens = "This session: 2 runs, 800 tokens in, 20 out; 75 % of the input from the cache";
    assert!(message.contains(tokens), "{message}");
}

/// The server ends a stream that it had accepted, because the token has expired.
#[test]
fn a_token_that_expires_during_a_run_does_not_end_it() {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    write!(
        file,
        r#"name = "expiry"
[[run]]
steps = [ {{ text = "first half, " }}, {{ checkpoint = "auto" }}, {{ end = {{ code = "unauthenticated", message = "token expired" }} }} ]
[[run]]
steps = [ {{ text = "second half" }}, {{ checkpoint = "auto" }}, {{ usage = {{}} }}, {{ end = true }} ]
"#
    )
    .unwrap();
    let simulator = Simulator::with(Transport::Http1, file.path());
    let mut session = RpcSession::new(&simulator, "s", &[]);
    let outcome = session.prompt("go");
    assert_eq!(
        (outcome.stop.as_str(), outcome.error.as_str()),
        ("stop", "")
    );
    assert_eq!(outcome.text, "first half, second half");
    let recording = simulator.recorded();
    assert_eq!(recording.requests(EXCHANGE).len(), 2, "a new token");
}
