//! pi as its user sees it, on a terminal.

use serde_json::json;

use crate::sessions::FOLLOWED;
use test_support::pi_env::{ECHO, PiEnv, PiVersion, conversation, user_text, written};
use test_support::pi_screen::PiScreen;
use test_support::pi_tools;
use test_support::pi_tools::TOOLS;
use test_support::scenario::{Steps, document};
use test_support::wait::until_named;

crate::on_every_pi!(
    going_back_in_the_tree_sends_the_history_again,
    a_reload_keeps_the_sidecar_and_a_new_session_the_process,
    a_conversation_on_the_screen_and_its_end,
    escape_aborts_the_turn,
    the_working_message_says_what_is_waited_for,
    offline_is_one_line_that_counts_the_attempts,
    a_new_session_during_a_turn_keeps_the_process,
);

fn the_working_message_says_what_is_waited_for(version: PiVersion) {
    let scenario = r#"
name = "waits"
[[run]]
steps = [
  { thinking = "Hm." }, { expect_client = { conversationAction = { cancelAction = {} } } },
  { checkpoint = "auto" }, { expect_cancel = true },
]
"#;
    let pi_env = PiEnv::playing(version, scenario);
    let pi = PiScreen::with(&pi_env, &["--model", "cursor/composer-2", "one"]);
    // With the seconds, which only a wait that lasts has.
    pi.becomes("the wait and its time", |screen| {
        let line = screen
            .lines()
            .find(|line| line.contains("Cursor is thinking"));
        line.is_some_and(|line| line.contains(" s"))
    });
    pi.keys(&["Escape"]);
    let screen = pi.becomes("the abort", |screen| screen.contains("aborted"));
    assert!(!screen.contains("Cursor is thinking"), "{screen}");
    pi.quit();
}

/// The URL of a server that refuses connections, as long as the socket is kept.
fn refusing_server() -> (tokio::net::TcpSocket, String) {
    // Bound, so that no other process uses the port, and not listened on.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    (socket, url)
}

#[test]
fn ask_counts_the_attempts_on_a_terminal() {
    let (_socket, url) = refusing_server();
    let pi_env = PiEnv::playing(PiVersion::V150, ECHO).with("CURSOR_BACKEND_URL", &url);
    let command = r#""$SIDECAR" ask --model composer-2 one; read -r _"#;
    let command = ["sh", "-c", command].map(str::to_owned);
    let screen = PiScreen::run(&pi_env, command.into(), "20");
    for attempt in 2..=4 {
        let text = screen.shows(&format!("Connecting to Cursor, attempt {attempt} of 4"));
        assert_eq!(text.matches("attempt").count(), 1, "{text}");
    }
    let text = screen.shows("Cursor cannot be reached");
    screen.keep("ask-offline.ansi");
    assert!(!text.contains("Connecting"), "{text}");
}

/// Until the last attempt nothing is written to the conversation, then one error. pi does not retry
/// what we have retried, and nothing is counted that was never sent.
fn offline_is_one_line_that_counts_the_attempts(version: PiVersion) {
    let (_socket, url) = refusing_server();
    let pi_env = PiEnv::playing(version, ECHO).with("CURSOR_BACKEND_URL", &url);
    let pi = PiScreen::with(&pi_env, &["--model", "cursor/composer-2", "one"]);
    for attempt in 2..=4 {
        let line = format!("Connecting to Cursor, attempt {attempt} of 4 (the connection failed)");
        let screen = pi.shows(&line);
        assert_eq!(screen.matches("attempt").count(), 1, "{screen}");
        assert!(!screen.contains("again"), "{screen}");
        pi.keep(&format!("offline-{version:?}-{attempt}.ansi"));
    }
    let screen = pi.shows("Cursor cannot be reached");
    pi.keep(&format!("offline-{version:?}.ansi"));
    assert_eq!(screen.matches("Cursor cannot be reached").count(), 1);
    assert!(
        screen.contains("Check that this computer is online"),
        "{screen}"
    );
    assert!(!screen.contains("Retry"), "{screen}");
    assert!(!screen.contains('↑'), "no tokens were sent: {screen}");
    let entries = written(&pi_env);
    let answers = entries
        .iter()
        .filter(|entry| entry["message"]["role"] == "assistant");
    let input: Vec<_> = answers
        .map(|entry| &entry["message"]["usage"]["input"])
        .collect();
    assert_eq!(input, [&json!(0)]);
    pi.quit();
}

fn a_conversation_on_the_screen_and_its_end(version: PiVersion) {
    let pi_env = PiEnv::playing(version, FOLLOWED);
    let pi = PiScreen::start(&pi_env, "one", "First answer.");
    let screen = pi.text();
    assert!(screen.contains("Hm."), "thinking is shown: {screen}");
    let listed = screen
        .lines()
        .skip_while(|line| !line.contains("[Extensions]"));
    let listed: Vec<&str> = listed.skip(1).take(1).map(str::trim).collect();
    assert_eq!(listed, ["cursor-sidecar"], "{screen}");
    pi.enter("two");
    pi.shows("Follow-up to: two");
    let recording = pi_env.recorded("both turns", |recording| recording.verdicts().len() == 2);
    recording.assert_played(&["completed"; 2]);
    let requests = recording.client("runRequest");
    assert_eq!(user_text(requests[1]), "two");
    assert_eq!(conversation(requests[0]), conversation(requests[1]));
    pi.quit();
    pi_env.no_sidecar_is_left();
}

/// First while a tool of pi runs, then while the model streams text.
fn escape_aborts_the_turn(version: PiVersion) {
    let scenario = r#"
name = "escape"
[[run]]
steps = [ { text = "Heard: $USER_TEXT" }, { checkpoint = "auto" }, { usage = {} }, { end = true } ]
[[run]]
steps = [
  { exec = { mcpArgs = { name = "pi__wait", toolName = "pi__wait", providerIdentifier = "pi", toolCallId = "c", args = {} } }, open = true, name = "w" },
  { expect_client = { conversationAction = { cancelAction = {} } } }, { checkpoint = "auto" }, { expect_cancel = true },
]
[[run]]
steps = [ { expect_state = "last checkpoint" }, { text = "Still here." }, { checkpoint = "auto" }, { usage = {} }, { end = true } ]
[[run]]
steps = [ { text = "This may take a while" }, { expect_cancel = true } ]
"#;
    let pi_env = PiEnv::playing(version, scenario);
    let tools = pi_env.home.path().join("tools.ts");
    std::fs::write(&tools, TOOLS).unwrap();
    let tools = tools.to_str().unwrap();
    let pi = PiScreen::with(
        &pi_env,
        &["--model", "cursor/composer-2", "-e", tools, "one"],
    );
    pi.shows("Heard: one");
    pi.enter("two");
    let waiting = pi_env.home.path().join("waiting");
    until_named("the tool runs", || waiting.exists().then_some(()));
    pi.keys(&["Escape"]);
    pi.shows("aborted");
    pi_env.recorded("the run is cancelled", |recording| {
        recording.verdicts().len() == 2
    });
    pi.enter("three");
    pi.shows("Still here.");
    let recording = pi_env.recorded("three runs", |recording| recording.verdicts().len() == 3);
    recording.assert_played(&["completed", "cancelled by client", "completed"]);
    let requests = recording.client("runRequest");
    for request in &requests[1..] {
        assert_eq!(conversation(request), conversation(requests[0]));
    }
    let resent = user_text(requests[2]);
    assert!(
        resent.contains("given up") && resent.ends_with("three"),
        "{resent}"
    );
    assert!(
        !resent.contains("Heard: one"),
        "what is known is not sent again: {resent}"
    );
    pi.enter("four");
    pi.shows("This may take a while");
    pi.keys(&["Escape"]);
    pi.becomes("a second abort", |screen| {
        screen.matches("aborted").count() > 1
    });
    let recording = pi_env.recorded("four runs", |recording| recording.verdicts().len() == 4);
    assert_eq!(recording.verdicts()[3]["outcome"], "cancelled by client");
    pi.enter("five");
    pi_env.recorded("a fifth run", |recording| {
        recording.client("runRequest").len() == 5
    });
}

fn going_back_in_the_tree_sends_the_history_again(version: PiVersion) {
    let pi_env = PiEnv::playing(version, ECHO);
    let pi = PiScreen::start(&pi_env, "one", "Heard: one");
    pi.enter("two");
    pi.shows("Heard: two");
    pi.shows("↓6"); // the turn is over, not only its text here
    pi.enter("/cursor-mode plan");
    pi.shows("cursor fast · plan");
    pi.enter("/tree");
    pi.shows("› • assistant: Heard: two");
    pi.keys(&["Up"]);
    pi.shows("› • user: two");
    pi.keys(&["Enter"]);
    pi.shows("No summary");
    pi.keys(&["Enter"]);
    pi.shows("Navigated");
    pi.becomes("no plan any more", |screen| !screen.contains("· plan"));
    pi.keys(&["C-u"]);
    pi.enter("other");
    pi.shows("Heard: other");
    let recording = pi_env.recorded("three turns", |recording| recording.verdicts().len() == 3);
    recording.assert_played(&["completed"; 3]);
    let requests = recording.client("runRequest");
    assert_eq!(conversation(requests[0]), conversation(requests[1]));
    assert_ne!(conversation(requests[1]), conversation(requests[2]));
    let message = &requests[2]["runRequest"]["action"]["userMessageAction"]["userMessage"];
    assert_eq!(
        message["mode"], "AGENT_MODE_AGENT",
        "the branch never chose"
    );
    let resent = &requests[2]["runRequest"]["conversationState"]["rootPromptMessagesJson"];
    assert_eq!(resent.as_array().unwrap().len(), 2, "one and its answer");
}

fn a_reload_keeps_the_sidecar_and_a_new_session_the_process(version: PiVersion) {
    let pi_env = PiEnv::playing(version, FOLLOWED);
    let pi = PiScreen::start(&pi_env, "one", "First answer.");
    pi.shows("↓4"); // the turn is over, not only its text here
    pi.enter("/reload");
    pi.shows("Reloaded");
    pi.enter("two");
    pi.shows("Follow-up to: two");
    pi.enter("/new");
    pi.shows("New session");
    pi.enter("three");
    pi.shows("First answer.");
    let recording = pi_env.recorded("three turns", |recording| recording.verdicts().len() == 3);
    recording.assert_played(&["completed"; 3]);
    let requests = recording.client("runRequest");
    assert_eq!(conversation(requests[0]), conversation(requests[1]));
    assert_ne!(conversation(requests[1]), conversation(requests[2]));
    assert_eq!(pi_env.sidecars().len(), 1);
}

/// The turn reports what it waits for until after pi has replaced its session.
fn a_new_session_during_a_turn_keeps_the_process(version: PiVersion) {
    let open = Steps::new()
        .step(json!({"thinking": "Hm."}))
        .step(json!({"expect_client": {"conversationAction": {"cancelAction": {}}}}))
        .step(json!({"checkpoint": "auto"}))
        .step(json!({"expect_cancel": true}))
        .build();
    let pi_env = PiEnv::playing(version, &document("replaced", &[open]));
    let pi = PiScreen::start(&pi_env, "one", "Hm.");
    pi.enter("/new");
    pi.shows("New session");
    pi_env.recorded("the cancelled run", |recording| {
        recording.verdicts().len() == 1
    });
    pi.enter("two");
    pi.shows("Hm.");
    assert_eq!(pi_env.sidecars().len(), 1);
}

fn a_key_given_at_login_is_used(version: PiVersion) {
    let pi_env = PiEnv::playing(version, ECHO).without_key();
    let pi = PiScreen::start(&pi_env, "one", "no Cursor API key");
    pi.enter("/login");
    pi.shows("Sign in with an API key");
    pi.keys(&["Down"]);
    pi.shows("→ Sign in with an API key");
    pi.keys(&["Enter"]);
    pi.shows("Select provider");
    pi.type_in("Cursor");
    pi.shows("→ Cursor");
    pi.keys(&["Enter"]);
    pi.shows("Enter API key");
    pi.type_in("crsr_stored");
    pi.keys(&["Enter"]);
    let stored = pi_env.home.path().join("agent/auth.json");
    until_named("the key is stored", || {
        let text = std::fs::read_to_string(&stored).unwrap_or_default();
        text.contains("crsr_stored").then_some(())
    });
    pi.shows("Saved API key");
    pi.enter("/cursor-refresh-models");
    pi.shows("Cursor models (live)");
    pi.enter("/model");
    pi.shows("Enter to select");
    pi.type_in("sonnet-5@1m");
    pi.shows("→   sonnet-5@1m");
    pi.keys(&["Enter"]);
    pi.shows("Model: sonnet-5@1m");
    pi.enter("two");
    pi.shows("Heard: ");
    let recording = pi_env.simulator.recorded();
    let request = &recording.client("runRequest")[0]["runRequest"];
    assert_eq!(
        request["requestedModel"]["modelId"], "claude-sonnet-5",
        "the alias' own model"
    );
}

/// Output on stderr would be drawn over pi's screen.
#[test]
fn the_bridges_log_is_not_written_over_the_screen() {
    let steps = [1, 2].map(|n| {
        let call = pi_tools::call("echo", &pi_tools::says("\"echo echo\""));
        Steps::new()
            .then(call)
            .text(format!("Answer {n}."))
            .then(pi_tools::END)
            .build()
    });
    let (pi_env, tools) = pi_tools::pi_env(PiVersion::V150, &steps);
    let file = pi_env.home.path().join("bridge.jsonl");
    let pi_env = pi_env.with("PI_CURSOR_PI_TOOL_BRIDGE_DEBUG", "1").with(
        "PI_CURSOR_PI_TOOL_BRIDGE_DEBUG_FILE",
        file.to_str().unwrap(),
    );
    let tools = tools.to_str().unwrap();
    let pi = PiScreen::with(
        &pi_env,
        &["--model", "cursor/composer-2", "-e", tools, "one"],
    );
    pi.shows("Answer 1.");
    pi.enter("two");
    // By now the log lines of the first run have been written.
    let screen = pi.shows("Answer 2.");
    assert!(!screen.contains("pi-cursor-sdk"), "{screen}");
    let resent = std::fs::read_to_string(&file).unwrap();
    assert!(resent.contains("request_resolved"), "{resent}");
    pi.quit();
    // What the terminal got in all, now that pi does not draw any more.
    let line = r#"[pi-cursor-sdk:bridge] {"event":"request_resolved""#;
    assert_eq!(pi.raw().matches(line).count(), 2, "{}", pi.raw());
}

/// A repository, a model and a server that try to write to the clipboard, the title and over the
/// screen.
fn nothing_that_others_say_is_obeyed(version: PiVersion) {
    let hostile = "\u{1b}]52;c;c3J2\u{7}\u{1b}]0;TAKEN\u{7}\u{1b}[41m\u{9b}42m\u{202e}";
    let first = Steps::new()
        .context()
        .step(json!({"thinking": format!("Hm {hostile} thought.")}))
        .text("Said \u{1b}")
        .text(format!("]52;c;c3J2\u{7} {hostile} once."))
        .checkpoint()
        .usage()
        .end()
        .build();
    let error = json!({"code": "invalid_argument", "message": format!("failed {hostile} as told"), "retryable": false});
    let second = Steps::new().step(json!({"end": error})).build();
    let pi_env = PiEnv::playing(version, &document("hostile", &[first, second]));
    let folder = pi_env.workspace.join(".cursor");
    std::fs::create_dir(&folder).unwrap();
    let name = format!("srv{hostile}mark");
    let servers = json!({"mcpServers": {name: {"command": "true"}}});
    std::fs::write(folder.join("mcp.json"), servers.to_string()).unwrap();
    let pi = PiScreen::start(&pi_env, "one", "once.");
    pi.enter("two");
    pi.shows("as told");
    pi.quit();
    let raw = pi.raw();
    // It was displayed in a readable form.
    for shown in ["Said ␛]52;c;c3J2␇", "thought.", "mark", "failed ␛]52"] {
        assert!(raw.contains(shown), "{shown:?} in {raw:?}");
    }
    for obeyed in [
        "\u{1b}]52",
        "\u{1b}]0;TAKEN",
        "\u{1b}[41m",
        "\u{9b}",
        "\u{202e}",
    ] {
        assert!(!raw.contains(obeyed), "{obeyed:?} in {raw:?}");
    }
    // The session file is displayed when the session is resumed.
    let stored = written(&pi_env);
    let stored = serde_json::Value::from(stored).to_string();
    assert!(stored.contains("␛]52"), "{stored}");
    assert!(
        !stored.contains("u001b]52") && !stored.contains('\u{9b}'),
        "{stored}"
    );
}

mod current {
    use test_support::pi_env::PiVersion::{V087, V150};

    #[test]
    fn foreign_text_does_not_control_the_terminal() {
        super::nothing_that_others_say_is_obeyed(V087);
    }

    #[test]
    fn foreign_text_does_not_control_the_terminal_of_the_newest_pi() {
        super::nothing_that_others_say_is_obeyed(V150);
    }

    #[test]
    fn a_key_given_at_login_is_used() {
        super::a_key_given_at_login_is_used(V087);
    }
}
