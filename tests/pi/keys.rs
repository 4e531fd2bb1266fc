//! Which key is used: `--api-key`, then the stored one, then `CURSOR_API_KEY`.

use serde_json::json;

use test_support::pi_env::{ECHO, PiEnv, PiVersion};
use test_support::simulator::fingerprint;

crate::on_every_pi!(
    the_nearest_key_wins,
    a_stored_key_brings_its_models_to_the_next_start,
    a_given_key_lists_its_models_at_once,
);

/// The simulator rejects this key.
const REFUSED: &str = "crsr_invalid";

fn store(pi_env: &PiEnv, key: &str) {
    let stored = json!({"cursor": {"type": "api_key", "key": key}});
    std::fs::write(
        pi_env.home.path().join("agent/auth.json"),
        stored.to_string(),
    )
    .unwrap();
}

fn the_nearest_key_wins(version: PiVersion) {
    let pi_env = PiEnv::playing(version, ECHO);
    let store = |key: &str| store(&pi_env, key);
    let model = ["--model", "cursor/composer-2"];
    let run = |env: &str, more: &[&str]| {
        let arguments = [&model[..], more, &["-p", "hi"]].concat();
        let mut command = pi_env.command(&arguments);
        let output = command.env("CURSOR_API_KEY", env).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    store("crsr_stored");
    assert_eq!(run(REFUSED, &[]), "Heard: hi\n");
    store(REFUSED);
    assert_eq!(run("crsr_environment", &[]), "");
    assert_eq!(run(REFUSED, &["--api-key", "crsr_given"]), "Heard: hi\n");
}

/// Models that, except for one, are not bundled.
const MODELS: &str = r#"
[server]
models = [
  { id = "composer-2.5", parameters = [ { id = "fast", values = [ { value = "false" }, { value = "true" } ] } ] },
  { id = "brand-new" },
  { id = "ctx", parameters = [ { id = "context", values = [ { value = "1m" } ] } ] },
]
"#;

/// Returns the ids of the models that pi lists.
fn listed(pi_env: &PiEnv, more: &[&str]) -> Vec<String> {
    // pi 0.74 prints the list on stderr.
    let listed = pi_env.pi(&[more, &["--list-models", "cursor"]].concat());
    let text = format!("{}{}", listed.stdout, listed.stderr);
    let ours = text.lines().filter(|line| line.starts_with("cursor "));
    ours.map(|line| line.split_whitespace().nth(1).unwrap().to_owned())
        .collect()
}

fn a_given_key_lists_its_models_at_once(version: PiVersion) {
    let scenario = ECHO.replacen("[[run]]", &format!("{MODELS}[[run]]"), 1);
    let pi_env = PiEnv::playing(version, &scenario).without_key();
    let rows = listed(
        &pi_env,
        &["--provider", "cursor", "--api-key", "crsr_given"],
    );
    assert_eq!(rows, ["brand-new", "composer-2.5", "ctx@1m"]);
    let recording = pi_env.simulator.recorded();
    assert_eq!(recording.bearers("/v1/models"), [fingerprint("crsr_given")]);
}

/// pi 0.87 prints its list before an extension gets the stored key.
#[test]
fn a_stored_key_lists_its_models_at_the_first_start() {
    for version in [PiVersion::V074, PiVersion::V079, PiVersion::V150] {
        stored_key_is_listed(version);
    }
}

fn stored_key_is_listed(version: PiVersion) {
    let scenario = ECHO.replacen("[[run]]", &format!("{MODELS}[[run]]"), 1);
    let pi_env = PiEnv::playing(version, &scenario).without_key();
    store(&pi_env, "crsr_stored");
    assert_eq!(
        listed(&pi_env, &[]),
        ["brand-new", "composer-2.5", "ctx@1m"]
    );
    let recording = pi_env.simulator.recorded();
    assert_eq!(
        recording.bearers("/v1/models"),
        [fingerprint("crsr_stored")]
    );
}

/// pi passes a stored key only to turns and, in newer versions, after our models are registered.
fn a_stored_key_brings_its_models_to_the_next_start(version: PiVersion) {
    let scenario = ECHO.replacen("[[run]]", &format!("{MODELS}[[run]]"), 1);
    let pi_env = PiEnv::playing(version, &scenario).without_key();
    store(&pi_env, "crsr_stored");
    let rows = || listed(&pi_env, &[]);
    let print = |model: &str| pi_env.pi(&["--model", model, "-p", "hi"]);
    assert_eq!(print("cursor/composer-2.5").stdout, "Heard: hi\n");
    assert_eq!(rows(), ["brand-new", "composer-2.5", "ctx@1m"]);
    assert_eq!(print("cursor/ctx@1m").stdout, "Heard: hi\n");
    let recording = pi_env.simulator.recorded();
    assert_eq!(recording.requests("/v1/models").len(), 1);
    let requests = recording.client("runRequest");
    let model = &requests[1]["runRequest"]["requestedModel"];
    assert_eq!(model["modelId"], "ctx", "{model}");
    assert_eq!(model["parameters"][0]["value"], "1m", "{model}");
}
