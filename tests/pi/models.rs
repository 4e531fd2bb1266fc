//! Cursor's models with pi's own controls: models, levels, speed, mode and status, each checked in
//! pi and in what the simulator received.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use test_support::pi_env::{PiEnv, PiVersion, written};
use test_support::pi_rpc::{PiRpc, text};
use test_support::pi_screen::PiScreen;
use test_support::scenario::Steps;
use test_support::simulator::Recording;
use test_support::wait::until_named;

crate::on_every_pi!(
    choices_of_a_session_follow_its_branch,
    cursors_highest_level_can_be_reached
);

/// Every kind of model: plain, fast alone, context with reasoning, reasoning alone, thinking with
/// effort (in Max Mode with its larger context), thinking alone, context alone, with a unique alias
/// and with a shared one.
const SHAPES: &str = r#"[
  { id = "default", displayName = "Auto" },
  { id = "composer-2.5", displayName = "Composer 2.5", parameters = [ { id = "fast", values = [ { value = "false" }, { value = "true" } ] } ],
    variants = [ { params = [ { id = "fast", value = "true" } ], displayName = "v", isDefault = true } ] },
  { id = "gpt-5.5", displayName = "GPT-5.5", aliases = ["gpt-latest", "latest"], parameters = [
      { id = "context", values = [ { value = "272k" }, { value = "1m" } ] },
      { id = "reasoning", values = [ { value = "none" }, { value = "low" }, { value = "medium" }, { value = "high" }, { value = "extra-high" } ] },
      { id = "fast", values = [ { value = "false" }, { value = "true" } ] } ],
    variants = [ { params = [ { id = "context", value = "1m" }, { id = "reasoning", value = "medium" }, { id = "fast", value = "false" } ], displayName = "v", isDefault = true } ] },
  { id = "gpt-5.3-codex", displayName = "Codex 5.3", parameters = [
      { id = "reasoning", values = [ { value = "low" }, { value = "medium" }, { value = "high" }, { value = "extra-high" } ] },
      { id = "fast", values = [ { value = "false" }, { value = "true" } ] } ],
    variants = [ { params = [ { id = "reasoning", value = "high" }, { id = "fast", value = "true" } ], displayName = "v", isDefault = true } ] },
  { id = "claude-opus-4-7", displayName = "Opus 4.7", aliases = ["opus-latest", "latest"], parameters = [
      { id = "thinking", values = [ { value = "false" }, { value = "true" } ] },
      { id = "context", values = [ { value = "300k" }, { value = "1m" } ] },
      { id = "effort", values = [ { value = "low" }, { value = "medium" }, { value = "high" }, { value = "xhigh" }, { value = "max" } ] } ],
    variants = [ { params = [ { id = "thinking", value = "true" }, { id = "context", value = "1m" }, { id = "effort", value = "xhigh" } ], displayName = "v", isDefault = true, isMaxMode = true } ] },
  { id = "claude-haiku", displayName = "Haiku", parameters = [ { id = "thinking", values = [ { value = "false" }, { value = "true" } ] } ] },
  { id = "grok-4.3", displayName = "Grok 4.3", parameters = [ { id = "context", values = [ { value = "200k" }, { value = "1m" } ] } ] },
]"#;

/// A backend with these models, whose answers do not report a context window.
fn pi_env(version: PiVersion, models: &str, server: &str) -> PiEnv {
    let usage = json!({"inputTokens": 100, "outputTokens": 10, "cacheReadTokens": 0, "cacheWriteTokens": 0});
    let steps = Steps::new()
        .text("Heard: $USER_TEXT")
        .step(json!({"token_details": {"usedTokens": 1000, "maxTokens": 0}}))
        .checkpoint()
        .step(json!({"usage": usage}))
        .end()
        .build();
    let scenario = format!(
        "name = \"models\"\n[server]\nmodels = {models}\n{server}\n[[run]]\nsteps = [ {steps} ]\n"
    );
    PiEnv::playing(version, &scenario)
}

/// Returns the requested models, as `mode id name=value … MAX`.
fn sent(recording: &Recording) -> Vec<String> {
    let requests = recording.client("runRequest");
    let models = requests.iter().map(|request| {
        let request = &request["runRequest"];
        let message = &request["action"]["userMessageAction"]["userMessage"];
        let mode = message["mode"].as_str().unwrap_or("AGENT_MODE_?");
        let model = &request["requestedModel"];
        let mut text = format!(
            "{} {}",
            mode.trim_start_matches("AGENT_MODE_").to_lowercase(),
            model["modelId"].as_str().unwrap()
        );
        for parameter in model["parameters"].as_array().into_iter().flatten() {
            let part = |name: &str| parameter[name].as_str().unwrap();
            text.push_str(&format!(" {}={}", part("id"), part("value")));
        }
        if model["maxMode"] == true {
            text.push_str(" MAX");
        }
        text
    });
    models.collect()
}

/// Returns the number of requests of any kind.
fn calls(recording: &Recording) -> usize {
    recording.0["requests"].as_array().unwrap().len()
}

fn asked_for_models(recording: &Recording) -> usize {
    recording.requests("/v1/models").len()
}

#[test]
fn the_table_and_every_way_to_print() {
    let pi_env = pi_env(PiVersion::V087, SHAPES, "");
    let listed = pi_env.pi(&["--list-models", "cursor"]);
    let table: Vec<&str> = listed.stdout.lines().map(str::trim_end).collect();
    insta::assert_snapshot!(table.join("\n"), @r"
    provider  model                 context  max-out  thinking  images
    cursor    claude-haiku          200K     16.4K    yes       yes
    cursor    claude-opus-4-7@1m    1M       16.4K    yes       yes
    cursor    claude-opus-4-7@300k  300K     16.4K    yes       yes
    cursor    composer-2.5          200K     16.4K    no        yes
    cursor    default               200K     16.4K    no        yes
    cursor    gpt-5.3-codex         272K     16.4K    yes       yes
    cursor    gpt-5.5@1m            1M       16.4K    yes       yes
    cursor    gpt-5.5@272k          272K     16.4K    yes       yes
    cursor    gpt-latest@1m         1M       16.4K    yes       yes
    cursor    gpt-latest@272k       272K     16.4K    yes       yes
    cursor    grok-4.3@1m           1M       16.4K    no        yes
    cursor    grok-4.3@200k         200K     16.4K    no        yes
    cursor    opus-latest@1m        1M       16.4K    yes       yes
    cursor    opus-latest@300k      300K     16.4K    yes       yes
    ");
    let again = pi_env.pi(&["--list-models", "cursor"]);
    assert_eq!(again.stdout, listed.stdout);
    let asked = calls(&pi_env.simulator.recorded());
    assert_eq!(asked, 1, "a warm cache asks nothing");

    let gpt = "cursor/gpt-5.5@1m";
    let prints: [&[&str]; 8] = [
        &["--model", "cursor/gpt-5.5@1m:medium"],
        &["--model", "cursor/gpt-5.5@272k", "--thinking", "xhigh"],
        &["--model", "cursor/gpt-5.5@272k:xhigh", "--thinking", "low"],
        &["--model", gpt, "--cursor-fast"],
        &["--model", "cursor/composer-2.5", "--cursor-no-fast"],
        &["--model", "cursor/claude-opus-4-7@300k:off"],
        &["--model", "cursor/opus-latest@1m:max", "--cursor-fast"],
        &[
            "--model",
            gpt,
            "--thinking",
            "medium",
            "--cursor-mode",
            "plan",
        ],
    ];
    for arguments in prints {
        let ran = pi_env.pi(&[arguments, &["-p", "Say ok only"]].concat());
        assert_eq!(ran.stdout, "Heard: Say ok only\n", "{ran:?}");
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    }
    let recording = pi_env.simulator.recorded();
    insta::assert_snapshot!(sent(&recording).join("\n"), @r"
    agent gpt-5.5 context=1m reasoning=medium fast=false
    agent gpt-5.5 context=272k reasoning=extra-high fast=false
    agent gpt-5.5 context=272k reasoning=low fast=false
    agent gpt-5.5 context=1m reasoning=medium fast=true
    agent composer-2.5 fast=false
    agent claude-opus-4-7 thinking=false context=300k
    agent claude-opus-4-7 thinking=true context=1m effort=max MAX
    plan gpt-5.5 context=1m reasoning=medium fast=false
    ");
    assert_eq!(asked_for_models(&recording), 1, "the cache was warm");

    let odd = pi_env.pi(&["--model", gpt, "--cursor-mode", "dream", "-p", "hi"]);
    assert_eq!(odd.code, Some(1));
    let problem = "--cursor-mode takes agent or plan, not \"dream\"";
    assert_eq!(odd.stderr.trim(), problem, "{odd:?}");
}

/// A provider that is not related to Cursor.
const OTHER: &str = r#"
export default (pi) => pi.registerProvider("other", {
  baseUrl: "x:y", api: "other", apiKey: "k",
  models: [{ id: "plain", name: "Plain", reasoning: false, input: ["text"], cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 }, contextWindow: 9000, maxTokens: 100 }],
  streamSimple: () => { throw new Error("never"); },
});
"#;

fn prefs(pi_env: &PiEnv) -> PathBuf {
    let state = pi_env.home.path().join(".local/state/cursor-sidecar");
    state.join("prefs.json")
}

/// Returns the saved default speed per model.
fn saved(pi_env: &PiEnv) -> Json {
    let text = std::fs::read_to_string(prefs(pi_env)).unwrap_or_default();
    let prefs: Json = serde_json::from_str(&text).unwrap_or_default();
    prefs["fast"].clone()
}

fn save(pi_env: &PiEnv, fast: &Json) {
    std::fs::write(prefs(pi_env), json!({"fast": fast}).to_string()).unwrap();
}

/// Returns the last lines of the screen, which are pi's footer.
fn footer(screen: &str) -> Vec<&str> {
    let lines = screen.lines().map(str::trim_end);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let above = lines.iter().rposition(|line| line.starts_with("───"));
    above.map_or_else(Vec::new, |above| lines[above + 1..].to_vec())
}

/// Waits for a footer that contains these texts.
#[track_caller]
fn footer_shows(pi: &PiScreen<'_>, wanted: &[&str]) -> String {
    let fits = |screen: &str| {
        let footer = footer(screen);
        let lines = footer.iter().rev().take(wanted.len()).rev();
        footer.len() == wanted.len() + 1
            && lines.zip(wanted).all(|(line, part)| line.ends_with(part))
    };
    pi.becomes(&format!("footer {wanted:?}"), fits)
}

#[test]
fn the_users_controls_on_the_screen_and_after_a_resume() {
    let pi_env = pi_env(PiVersion::V087, SHAPES, "");
    let other = pi_env.home.path().join("other.ts");
    std::fs::write(&other, OTHER).unwrap();
    let other = ["-e", other.to_str().unwrap()];
    let pi = PiScreen::with(
        &pi_env,
        &[&other[..], &["--model", "cursor/gpt-5.5@272k:low", "one"]].concat(),
    );
    pi.shows("Heard: one");
    let screen = footer_shows(&pi, &["(cursor) gpt-5.5@272k • low"]);
    assert!(screen.contains("/272k"), "{screen}");
    assert!(!screen.contains("cursor fast"), "{screen}");

    pi.enter("/cursor-fast");
    pi.shows("Fast mode on for gpt-5.5");
    footer_shows(&pi, &["(cursor) gpt-5.5@272k • low", "cursor fast"]);
    pi.keys(&["BTab"]);
    footer_shows(&pi, &["(cursor) gpt-5.5@272k • medium", "cursor fast"]);
    pi.enter("two");
    pi.shows("Heard: two");

    pi.enter("/model");
    pi.shows("Enter to select");
    pi.type_in("grok-4.3@1m");
    pi.shows("→   grok-4.3@1m");
    pi.keys(&["Enter"]);
    footer_shows(&pi, &["(cursor) grok-4.3@1m"]);
    pi.enter("/cursor-fast");
    pi.shows("Fast mode not supported by grok-4.3");
    footer_shows(&pi, &["(cursor) grok-4.3@1m"]);

    pi.keys(&["C-l"]);
    pi.shows("Enter to select");
    pi.type_in("other/plain");
    pi.shows("→   plain");
    pi.keys(&["Enter"]);
    footer_shows(&pi, &["(other) plain"]);
    pi.enter("/cursor-tools");
    let tools = pi.shows("Not offered, since Cursor has its own: read, bash, edit, write");
    assert!(
        tools.contains("executed by cursor-sidecar: read, fetch"),
        "{tools}"
    );

    pi.keys(&["C-l"]);
    pi.shows("Enter to select");
    pi.type_in("composer-2.5");
    pi.shows("→   composer-2.5");
    pi.keys(&["Enter"]);
    footer_shows(&pi, &["(cursor) composer-2.5", "cursor fast"]);
    pi.enter("/cursor-fast off");
    footer_shows(&pi, &["(cursor) composer-2.5"]);
    pi.enter("/cursor-mode plan");
    pi.shows("Cursor works in plan mode");
    footer_shows(&pi, &["(cursor) composer-2.5", "cursor plan"]);
    pi.keys(&["BTab"]);
    pi.enter("three");
    pi.shows("Heard: three");
    footer_shows(&pi, &["(cursor) composer-2.5", "cursor plan"]);
    pi.quit();
    pi_env.no_sidecar_is_left();
    drop(pi);

    // The choice of the session wins over the saved default.
    let both = json!({"gpt-5.5": true, "composer-2.5": false});
    assert_eq!(saved(&pi_env), both);
    save(&pi_env, &json!({"gpt-5.5": false, "composer-2.5": true}));
    let before = calls(&pi_env.simulator.recorded());
    let pi = PiScreen::with(&pi_env, &[&other[..], &["--continue"]].concat());
    footer_shows(&pi, &["(cursor) composer-2.5", "cursor plan"]);
    pi.enter("/cursor-tools");
    pi.shows("executed by cursor-sidecar");
    let after = calls(&pi_env.simulator.recorded());
    assert_eq!(after, before, "a start with a warm cache asks nothing");
    pi.enter("four");
    pi.shows("Heard: four");
    pi.keys(&["C-l"]);
    pi.shows("Enter to select");
    pi.type_in("gpt-5.5@1m");
    pi.shows("→   gpt-5.5@1m");
    pi.keys(&["Enter"]);
    let off = "(cursor) gpt-5.5@1m • thinking off"; // as pi left the model before
    footer_shows(&pi, &[off, "cursor fast · plan"]);
    pi.keys(&["BTab"]);
    pi.enter("/cursor-mode agent");
    footer_shows(&pi, &["(cursor) gpt-5.5@1m • low", "cursor fast"]);
    pi.enter("five");
    pi.shows("Heard: five");
    let recording = pi_env.recorded("five turns", |recording| recording.verdicts().len() == 5);
    insta::assert_snapshot!(sent(&recording).join("\n"), @r"
    agent gpt-5.5 context=272k reasoning=low fast=false
    agent gpt-5.5 context=272k reasoning=medium fast=true
    plan composer-2.5 fast=false
    plan composer-2.5 fast=false
    agent gpt-5.5 context=1m reasoning=low fast=true
    ");
    assert_eq!(asked_for_models(&recording), 1, "the cache was warm");
}

/// Flags apply to the run, `/cursor-fast` to the session and as the default, and a fork inherits
/// the choice of its session.
fn choices_of_a_session_follow_its_branch(version: PiVersion) {
    let pi_env = pi_env(version, SHAPES, "");
    let more = [
        "--model",
        "cursor/gpt-5.5@272k:xhigh",
        "--cursor-mode",
        "plan",
    ];
    let mut pi = PiRpc::with(&pi_env, &more);
    assert_eq!(text(&pi.prompt("one")), "Heard: one");
    pi.send(&json!({"type": "prompt", "message": "/cursor-fast"}));
    let fast = json!({"gpt-5.5": true});
    until_named("the session keeps the speed", || {
        let ours = |entry: &Json| entry["customType"] == "cursor-sidecar";
        written(&pi_env).into_iter().find(ours)
    });
    assert_eq!(saved(&pi_env), fast);
    pi.prompt("two");
    save(&pi_env, &json!({"gpt-5.5": false}));
    let messages = pi.ask(json!({"type": "get_fork_messages"}));
    let entry = |n: usize| messages["messages"][n]["entryId"].clone();
    pi.ask(json!({"type": "fork", "entryId": entry(1)}));
    pi.prompt("other two");
    pi.ask(json!({"type": "fork", "entryId": entry(0)}));
    pi.prompt("other one");
    let opus =
        json!({"type": "set_model", "provider": "cursor", "modelId": "claude-opus-4-7@300k"});
    pi.ask(opus);
    pi.ask(json!({"type": "set_thinking_level", "level": "xhigh"}));
    pi.prompt("with opus");
    pi.quit();
    let recording = pi_env.simulator.recorded();
    assert_eq!(
        sent(&recording),
        [
            "plan gpt-5.5 context=272k reasoning=extra-high fast=false",
            "plan gpt-5.5 context=272k reasoning=extra-high fast=true",
            "plan gpt-5.5 context=272k reasoning=extra-high fast=true",
            "plan gpt-5.5 context=272k reasoning=extra-high fast=false",
            "plan claude-opus-4-7 thinking=true context=300k effort=xhigh",
        ]
    );
    assert_eq!(asked_for_models(&recording), 1);
}

#[test]
fn a_removed_model_is_reported() {
    let first = r#"[server.unary."/v1/models"]
times = 1
body = { items = [ { id = "stays", aliases = ["s"] }, { id = "goes" } ] }"#;
    let then = r#"[ { id = "stays", aliases = ["s"], parameters = [ { id = "context", values = [ { value = "1m" } ] } ] }, { id = "comes", aliases = ["s"] } ]"#;
    let pi_env = pi_env(PiVersion::V087, then, first);
    let mut pi = PiRpc::with(&pi_env, &["--model", "cursor/goes"]);
    assert_eq!(text(&pi.prompt("one")), "Heard: one");
    let rows = |pi: &mut PiRpc| -> Vec<String> {
        let available = pi.ask(json!({"type": "get_available_models"}));
        let models = available["models"].as_array().unwrap().iter();
        let ours = models.filter(|model| model["provider"] == "cursor");
        ours.map(|model| model["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(rows(&mut pi), ["goes", "stays", "s"]);
    pi.send(&json!({"type": "prompt", "message": "/cursor-refresh-models"}));
    let shown = pi.event("the news", |event| event["method"] == "notify");
    insta::assert_snapshot!(shown["message"].as_str().unwrap(), @r#"
    2 Cursor models (live)
    Cursor no longer has "goes"; choose another with /model
    "#);
    assert_eq!(
        rows(&mut pi),
        ["comes", "stays@1m"],
        "the alias became ambiguous"
    );
    let refused = pi.prompt("two");
    let problem = refused["errorMessage"].as_str().unwrap();
    assert!(
        problem.starts_with("Cursor has no model \"goes\""),
        "{problem}"
    );
}

/// An unsupported flag is reported once, and `/cursor-fast` reports that the flag takes precedence.
#[test]
fn a_flag_without_effect_is_reported_once() {
    let pi_env = pi_env(PiVersion::V087, SHAPES, "");
    let more = ["--model", "cursor/grok-4.3@1m", "--cursor-fast"];
    let mut pi = PiRpc::with(&pi_env, &more);
    let shown = pi.event("the notice", |event| event["method"] == "notify");
    assert_eq!(shown["message"], "Fast mode not supported by grok-4.3");
    pi.prompt("one");
    pi.ask(json!({"type": "set_model", "provider": "cursor", "modelId": "gpt-5.5@1m"}));
    let status = pi.event("a status", |event| {
        event["method"] == "setStatus" && event["statusText"].is_string()
    });
    assert_eq!(status["statusText"], "cursor fast");
    pi.send(&json!({"type": "prompt", "message": "/cursor-fast"}));
    let shown = pi.event("the next notice", |event| event["method"] == "notify");
    assert_eq!(shown["message"], "--cursor-fast decides for this run");
    assert_eq!(saved(&pi_env), Json::Null);
}

/// In a pi without the level `max`, its highest level selects Cursor's `max`.
fn cursors_highest_level_can_be_reached(version: PiVersion) {
    let models = r#"[ { id = "m", parameters = [ { id = "reasoning", values = [ { value = "low" }, { value = "extra-high" }, { value = "max" } ] } ] } ]"#;
    let pi_env = pi_env(version, models, "");
    let knows_max = version >= PiVersion::V087;
    let levels: &[&str] = if knows_max {
        &["xhigh", "max"]
    } else {
        &["xhigh"]
    };
    for level in levels {
        let ran = pi_env.pi(&["--model", "cursor/m", "--thinking", level, "-p", "hi"]);
        assert_eq!(ran.stdout, "Heard: hi\n", "{ran:?}");
    }
    let wanted: &[&str] = if knows_max {
        &["agent m reasoning=extra-high", "agent m reasoning=max"]
    } else {
        &["agent m reasoning=max"]
    };
    assert_eq!(sent(&pi_env.simulator.recorded()), wanted);
}
