//! The file of `cursor-sidecar login`: damaged, of another version, exposed, unfinished, or a login that
//! is never stored.

use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use crate::account::{Home, expired, simulator, text};
use test_support::wait::until_named;

/// Cases: what the login file is, what the user reads. A login replaces the file.
#[test]
fn a_login_file_that_cannot_be_used_is_reported_once() {
    let simulator = simulator("");
    let home = Home::new();
    home.login(&simulator);
    let good = home.stored();
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    let mut newer = good.clone();
    newer["version"] = json!(7);
    let cases = [
        ("{\"version\": 2".to_owned(), 0o600, "is damaged"),
        (newer.to_string(), 0o600, "by a newer version"),
        (good.to_string(), 0o644, "other users can read it"),
    ];
    for (content, access, wanted) in cases {
        std::fs::write(home.file(), content).unwrap();
        std::fs::set_permissions(home.file(), mode(access)).unwrap();
        let problem = text(&home.run(&simulator, &["usage"], &[]).stderr);
        assert!(problem.contains(wanted), "{wanted}: {problem}");
        assert_eq!(problem.lines().count(), 1, "{problem}");
        let page = text(&home.run(&simulator, &["doctor"], &[]).stdout);
        assert_eq!(page.matches(wanted).count(), 1, "{page}");
        // Another credential is used all the same.
        let key = [("CURSOR_API_KEY", "crsr_env")];
        let output = home.run(&simulator, &["usage"], &key);
        assert!(output.status.success(), "{output:?}");
        home.login(&simulator);
        let output = home.run(&simulator, &["usage"], &[]);
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn a_login_that_cannot_be_stored_is_not_begun() {
    let simulator = simulator("");
    let home = Home::new();
    std::fs::write(home.state(), "a file in place of the folder").unwrap();
    let output = home.run(&simulator, &["login"], &[]);
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout), "", "no page is offered");
    let problem = text(&output.stderr);
    assert!(problem.contains("state"), "{problem}");
    assert!(simulator.recorded().requests("/auth/poll").is_empty());
}

#[test]
fn a_login_that_the_user_interrupts_stores_nothing() {
    let pending = "unary = { \"/auth/poll\" = { status = 404, body = \"Not found\" } }";
    let simulator = simulator(pending);
    let home = Home::new();
    let mut command = home.command(&simulator, &["login"]);
    let process = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let process = process.spawn().unwrap();
    until_named("a poll", || {
        let polls = simulator.recorded().requests("/auth/poll").len();
        (polls > 0).then_some(())
    });
    let id = rustix::process::Pid::from_raw(process.id() as i32).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let output = process.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let problem = text(&output.stderr);
    assert!(
        problem.contains("cancelled; nothing is stored"),
        "{problem}"
    );
    assert!(!home.file().exists());
}

/// A login would not help, because the token has precedence over it.
#[test]
fn an_access_token_that_is_not_accepted_is_named() {
    let simulator = simulator("");
    let home = Home::new();
    let old = expired(&format!("h.{}.s", URL_SAFE_NO_PAD.encode("{}")));
    for token in [old.as_str(), "crsr_a_key"] {
        let env = [("CURSOR_ACCESS_TOKEN", token)];
        let problem = text(&home.run(&simulator, &["usage"], &env).stderr);
        assert!(problem.contains("set a new one, or remove it"), "{problem}");
        assert!(!problem.contains("sign in again"), "{problem}");
    }
}

/// `logout` deletes what a process left that was killed while it stored tokens.
#[test]
fn unfinished_files_are_deleted_with_the_login() {
    let simulator = simulator("");
    let home = Home::new();
    home.login(&simulator);
    let unfinished = home.state().join("login.0000.new");
    std::fs::write(&unfinished, "tokens").unwrap();
    let output = home.run(&simulator, &["logout"], &[]);
    assert_eq!(text(&output.stdout), "Signed out.\n");
    assert!(!unfinished.exists() && !home.file().exists());
}

/// A key in the environment has precedence, which a user who signs in or out may not know.
#[test]
fn another_credential_that_is_used_is_named() {
    let simulator = simulator("");
    let home = Home::new();
    let key = [("CURSOR_API_KEY", "crsr_env")];
    let run =
        |command: &str, env: &[(&str, &str)]| text(&home.run(&simulator, &[command], env).stdout);
    let page = run("login", &key);
    assert!(
        page.ends_with("Not used yet: CURSOR_API_KEY has precedence.\n"),
        "{page}"
    );
    assert_eq!(
        run("logout", &key),
        "Signed out.\nStill used: CURSOR_API_KEY.\n"
    );
    let page = run("login", &[]);
    assert!(
        page.ends_with("Signed in: person@example.invalid.\n"),
        "{page}"
    );
    assert_eq!(run("logout", &[]), "Signed out.\n");
}
