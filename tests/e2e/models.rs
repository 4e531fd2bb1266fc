//! The model catalog through the real binary: where the models come from, and what is sent to
//! Cursor.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use agent::catalog::{
    CachePolicy, CatalogClient, CatalogCredential, FetchMode, ListSource, ModelCatalog,
};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use test_support::binary;
use test_support::run_client::RunClient;
use test_support::sidecar::SidecarProcess;
use test_support::simulator::{Recording, Simulator, Transport};

mod cli;
mod context_windows;
mod selection;
mod sources;

const MODELS_PATH: &str = "/v1/models";
const KEY: &str = "crsr_0123456789";
const WITH_MAX: &[&str] = &["off", "minimal", "low", "medium", "high", "xhigh", "max"];
const WITHOUT_MAX: &[&str] = &["off", "minimal", "low", "medium", "high", "xhigh"];

/// One model for each combination of parameters that Cursor has.
const MODELS: &str = r#"[
  { id = "composer-2.5", displayName = "Composer 2.5", parameters = [ { id = "fast", values = [ { value = "false" }, { value = "true" } ] } ],
    variants = [ { params = [ { id = "fast", value = "true" } ], displayName = "v", isDefault = true } ] },
  { id = "gpt-5.5", displayName = "GPT-5.5", aliases = ["gpt-latest", "latest"], parameters = [
      { id = "context", values = [ { value = "272k" }, { value = "1m" } ] },
      { id = "reasoning", values = [ { value = "none" }, { value = "low" }, { value = "medium" }, { value = "high" }, { value = "extra-high" }, { value = "max" } ] },
      { id = "fast", values = [ { value = "false" }, { value = "true" } ] } ],
    variants = [ { params = [ { id = "context", value = "1m" }, { id = "reasoning", value = "medium" }, { id = "fast", value = "false" } ], displayName = "v", isDefault = true } ] },
  { id = "claude-opus-4-7", displayName = "Opus 4.7", aliases = ["latest"], parameters = [
      { id = "thinking", values = [ { value = "false" }, { value = "true" } ] },
      { id = "context", values = [ { value = "300k" }, { value = "1m" } ] },
      { id = "effort", values = [ { value = "low" }, { value = "high" }, { value = "xhigh" }, { value = "max" } ] } ],
    variants = [ { params = [ { id = "thinking", value = "true" }, { id = "context", value = "1m" }, { id = "effort", value = "xhigh" } ], displayName = "v", isDefault = true } ] },
  { id = "haiku", displayName = "Haiku", parameters = [ { id = "thinking", values = [ { value = "false" }, { value = "true" } ] } ] },
  { id = "default", displayName = "Auto" },
]"#;

/// A backend with these models; `more` are further settings of the server.
fn simulator(models: &str, more: &str) -> Simulator {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let steps = r#"{ text = "ok" }, { usage = {} }, { end = true }"#;
    write!(
        file,
        "name = \"models\"\n[server]\nmodels = {models}\n{more}\n[[run]]\nsteps = [ {steps} ]\n"
    )
    .unwrap();
    Simulator::with(Transport::Http1, file.path())
}

/// A backend, a state directory, and environment variables.
struct TestEnv {
    url: String,
    state: TempDir,
    more: Vec<(&'static str, &'static str)>,
}

impl TestEnv {
    fn new(url: &str, more: &[(&'static str, &'static str)]) -> Self {
        Self {
            url: url.into(),
            state: tempfile::tempdir().unwrap(),
            more: more.into(),
        }
    }

    fn host(&self, levels: &[&str]) -> SidecarProcess {
        self.host_at(&self.url, levels, &[])
    }

    fn host_at(&self, url: &str, levels: &[&str], more: &[(&str, &str)]) -> SidecarProcess {
        let mut env = vec![
            ("CURSOR_BACKEND_URL", url),
            ("CURSOR_API_KEY", KEY),
            ("PI_CURSOR_STATE_DIR", self.state.path().to_str().unwrap()),
        ];
        env.extend(&self.more);
        env.extend(more);
        let mut host = SidecarProcess::start(&env);
        let answer = host.call(
            "initialize",
            json!({"protocolVersion": 1, "host": {"name": "test", "thinkingLevels": levels}}),
        );
        assert!(answer.get("result").is_some(), "{answer}");
        host
    }
}

fn list(host: &mut SidecarProcess, params: Json) -> Json {
    let answer = host.call("models/list", params);
    assert!(answer.get("result").is_some(), "{answer}");
    answer["result"].clone()
}

fn ids(result: &Json) -> Vec<&str> {
    let models = result["models"].as_array().unwrap();
    models
        .iter()
        .map(|row| row["id"].as_str().unwrap())
        .collect()
}

/// Runs a turn with this model and returns its result.
fn turn(host: &mut SidecarProcess, model: Json) -> Json {
    let params = json!({"turnId": "t", "sessionId": "s", "workspace": "/workspace",
        "kind": "main", "messages": [{"role": "user", "content": model.to_string(), "timestamp": 1}],
        "model": model});
    host.send(&json!({"jsonrpc": "2.0", "id": 7, "method": "turn/start", "params": params}));
    loop {
        let message = host.receive();
        if message["id"] == 7 {
            assert!(message.get("error").is_none(), "{message}");
            return message["result"].clone();
        }
    }
}

/// Returns the models that runs requested, as `id name=value …`.
fn sent(recording: &Recording) -> Vec<String> {
    let requests = recording.client("runRequest");
    let models = requests.iter().map(|request| {
        let model = &request["runRequest"]["requestedModel"];
        let parameters = model["parameters"].as_array().into_iter().flatten();
        let mut text = model["modelId"].as_str().unwrap().to_owned();
        for parameter in parameters {
            let part = |name: &str| parameter[name].as_str().unwrap();
            text.push_str(&format!(" {}={}", part("id"), part("value")));
        }
        text
    });
    models.collect()
}

/// Returns the number of calls of any kind.
fn calls(simulator: &Simulator) -> usize {
    simulator.recorded().0["requests"].as_array().unwrap().len()
}

#[test]
fn a_fresh_cache_makes_no_call() {
    let simulator = simulator(MODELS, "");
    let test = TestEnv::new(&simulator.url, &[]);
    let mut first = test.host(WITH_MAX);
    let live = list(&mut first, json!({}));
    assert_eq!(live["source"], "live");
    assert_eq!(live["warnings"], json!([]));
    assert_eq!(simulator.recorded().requests(MODELS_PATH).len(), 1);

    let before = calls(&simulator);
    let mut second = test.host(WITH_MAX);
    let cached = list(&mut second, json!({}));
    assert_eq!(cached["source"], "cache");
    assert_eq!(cached.get("reason"), None);
    assert_eq!(cached["models"], live["models"]);
    assert_eq!(calls(&simulator), before, "no call was made");

    let fresh = list(&mut second, json!({"refresh": true}));
    assert_eq!(fresh["source"], "live");
    assert_eq!(simulator.recorded().requests(MODELS_PATH).len(), 2);

    for entry in std::fs::read_dir(test.state.path()).unwrap() {
        let path = entry.unwrap().path();
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(KEY), "{}", path.display());
    }
}

#[test]
fn models_are_listed_with_all_parameters() {
    let simulator = simulator(MODELS, "");
    let test = TestEnv::new(&simulator.url, &[]);
    let rows = list(&mut test.host(WITHOUT_MAX), json!({}));
    let brief: Vec<String> = rows["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let levels: Vec<String> = row["thinkingLevelMap"]
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(|(level, value)| Some(format!("{level}={}", value.as_str()?)))
                .collect();
            format!(
                "{} | {} | {} | {} | fast {} {}",
                row["id"].as_str().unwrap(),
                row["name"].as_str().unwrap(),
                row["contextWindow"],
                levels.join(" "),
                row["supportsFast"],
                row["defaultFast"]
            )
        })
        .collect();
    insta::assert_snapshot!(brief.join("\n"), @r"
    claude-opus-4-7@300k | Opus 4.7 @ 300k | 300000 | off=false low=low high=high xhigh=xhigh | fast false null
    claude-opus-4-7@1m | Opus 4.7 @ 1m | 1000000 | off=false low=low high=high xhigh=xhigh | fast false null
    composer-2.5 | Composer 2.5 | 200000 |  | fast true true
    default | Auto | 200000 |  | fast false null
    gpt-5.5@272k | GPT-5.5 @ 272k | 272000 | off=none low=low medium=medium high=high xhigh=max | fast true false
    gpt-5.5@1m | GPT-5.5 @ 1m | 1000000 | off=none low=low medium=medium high=high xhigh=max | fast true false
    gpt-latest@272k | GPT-5.5 (gpt-latest) @ 272k | 272000 | off=none low=low medium=medium high=high xhigh=max | fast true false
    gpt-latest@1m | GPT-5.5 (gpt-latest) @ 1m | 1000000 | off=none low=low medium=medium high=high xhigh=max | fast true false
    haiku | Haiku | 200000 | off=false high=true | fast false null
    ");
    // A level that the host does not support must be absent; one that it supports may be null.
    let map = |rows: &Json| rows["models"][8]["thinkingLevelMap"].clone();
    assert_eq!(map(&rows).get("max"), None);
    let rows = list(&mut test.host(WITH_MAX), json!({}));
    assert_eq!(map(&rows).get("max"), Some(&Json::Null));
    assert_eq!(rows["models"][4]["thinkingLevelMap"]["xhigh"], "extra-high");
    assert_eq!(rows["models"][4]["thinkingLevelMap"]["max"], "max");
}

#[test]
fn a_stale_list_is_shown_at_once_and_refreshed_in_the_background() {
    let simulator = simulator(MODELS, "");
    let test = TestEnv::new(&simulator.url, &[("PI_CURSOR_SDK_MODEL_CACHE_TTL_MS", "1")]);
    let mut host = test.host(WITH_MAX);
    assert_eq!(list(&mut host, json!({}))["source"], "live");
    // The list is fresh until a millisecond has passed.
    while simulator.recorded().requests("/v1/models").len() < 2 {
        let shown = list(&mut host, json!({}));
        assert_eq!(
            (&shown["source"], &shown["reason"]),
            (&json!("cache"), &Json::Null)
        );
    }
}

#[test]
fn a_stale_list_is_used_if_the_fetch_fails() {
    let simulator = simulator(MODELS, "");
    let test = TestEnv::new(&simulator.url, &[("PI_CURSOR_SDK_MODEL_CACHE_TTL_MS", "0")]);
    let mut host = test.host(WITH_MAX);
    assert_eq!(list(&mut host, json!({}))["source"], "live");
    assert_eq!(
        list(&mut host, json!({}))["source"],
        "live",
        "0 is never fresh"
    );
    drop(simulator);
    for params in [json!({}), json!({"refresh": true})] {
        let old = list(&mut host, params);
        assert_eq!(old["source"], "cache");
        assert_eq!(old["reason"], "cached-after-error");
        assert_eq!(old["warnings"].as_array().unwrap().len(), 1);
        assert!(ids(&old).contains(&"gpt-5.5@1m"));
    }
    let other_key = list(&mut host, json!({"apiKey": "crsr_other"}));
    assert_eq!(
        other_key["source"], "bundled",
        "another account's list is not shown"
    );
    assert_eq!(other_key["reason"], "discovery-failed");
}

#[test]
fn a_damaged_cache_file_is_reported_and_replaced() {
    let simulator = simulator(MODELS, "");
    let test = TestEnv::new(&simulator.url, &[]);
    let mut host = test.host(WITH_MAX);
    list(&mut host, json!({"refresh": true}));
    std::fs::write(sources::cached(test.state.path()), "{oops").unwrap();
    let again = list(&mut host, json!({}));
    assert_eq!(again["source"], "live");
    let warning = again["warnings"][0].as_str().unwrap();
    assert!(
        warning.starts_with("ignoring the cached model list ") && warning.ends_with(": not JSON"),
        "{warning}"
    );
    assert_eq!(list(&mut host, json!({}))["source"], "cache");
}

#[test]
fn with_the_cache_disabled_nothing_is_stored() {
    let simulator = simulator(MODELS, "");
    let test = TestEnv::new(
        &simulator.url,
        &[("PI_CURSOR_SDK_DISABLE_MODEL_CACHE", "1")],
    );
    let mut host = test.host(WITH_MAX);
    assert_eq!(list(&mut host, json!({}))["source"], "live");
    assert_eq!(list(&mut host, json!({}))["source"], "live");
    assert_eq!(std::fs::read_dir(test.state.path()).unwrap().count(), 0);
    // Turns use the list in memory and do not fetch it again.
    turn(&mut host, json!({"id": "default"}));
    turn(&mut host, json!({"id": "composer-2.5"}));
    assert_eq!(simulator.recorded().requests(MODELS_PATH).len(), 2);
}

#[test]
fn a_key_that_is_sent_later_loads_the_list() {
    let simulator = simulator(MODELS, "");
    let mut host = SidecarProcess::start(&[("CURSOR_BACKEND_URL", &simulator.url)]);
    host.call(
        "initialize",
        json!({"protocolVersion": 1, "host": {"name": "test"}}),
    );
    let bundled = list(&mut host, json!({}));
    assert_eq!(bundled["source"], "bundled");
    assert_eq!(bundled["reason"], "missing-api-key");
    assert!(ids(&bundled).contains(&"gpt-5.5@272k"));
    assert_eq!(calls(&simulator), 0);
    let live = list(&mut host, json!({"apiKey": KEY, "refresh": true}));
    assert_eq!(live["source"], "live");
    assert_eq!(ids(&live).len(), 9);
    let refused = list(&mut host, json!({"apiKey": "crsr_invalid"}));
    assert_eq!(refused["reason"], "discovery-failed");
    let warning = refused["warnings"][0].as_str().unwrap();
    assert!(
        warning.contains("Cursor did not accept the API key"),
        "{warning}"
    );
    assert!(!refused.to_string().contains("crsr_invalid"));
}

#[test]
fn an_empty_list_is_replaced_by_the_bundled_one() {
    let simulator = simulator("[]", "");
    let test = TestEnv::new(&simulator.url, &[]);
    let bundled = list(&mut test.host(WITH_MAX), json!({}));
    assert_eq!(bundled["source"], "bundled");
    assert_eq!(bundled["reason"], "empty-model-list");
    assert_eq!(std::fs::read_dir(test.state.path()).unwrap().count(), 0);
}

fn client_for(
    simulator: &Simulator,
    credential: impl FnOnce(&RunClient) -> CatalogCredential,
) -> CatalogClient {
    let ours = RunClient::new(simulator, Transport::Http1);
    CatalogClient {
        http: ours.backend.http.clone(),
        endpoints: ours.backend.endpoints.clone(),
        identity: ours.backend.identity.clone(),
        credential: credential(&ours),
    }
}

fn with_key(ours: &RunClient) -> CatalogCredential {
    CatalogCredential::Key {
        key: cursor_client::account::ApiKey::parse(KEY).unwrap(),
        account: ours.backend.account.clone(),
    }
}

#[tokio::test]
async fn a_login_sees_the_same_models_as_a_key() {
    let simulator = simulator(MODELS, "");
    let catalog = ModelCatalog::new(CachePolicy::Off);
    let by_key = catalog
        .list(&client_for(&simulator, with_key), FetchMode::Live)
        .await;
    let login = client_for(&simulator, |ours| CatalogCredential::Login {
        account: ours.backend.account.clone(),
        name: "me".into(),
    });
    let by_login = catalog.list(&login, FetchMode::Live).await;
    assert_eq!(by_login.source, ListSource::Live, "{:?}", by_login.warnings);
    let mut models = by_login.models.to_vec();
    assert_eq!(models.len(), by_key.models.len());
    for (model, wanted) in models.iter_mut().zip(by_key.models.iter()) {
        // These RPCs return additional fields.
        assert_eq!(model.context_window.take(), Some(200_000));
        assert_eq!(model.supports_images.take(), Some(true));
        for variant in &mut model.variants {
            let large = variant.params.iter().any(|choice| choice.value == "1m");
            assert_eq!(std::mem::take(&mut variant.is_max_mode), large);
        }
        assert_eq!(model, wanted);
    }
}

#[tokio::test]
async fn concurrent_callers_share_one_call() {
    let simulator = simulator(MODELS, "");
    let catalog = ModelCatalog::new(CachePolicy::Off);
    let client = client_for(&simulator, with_key);
    let ask = || catalog.list(&client, FetchMode::CacheFirst);
    let (a, b, c) = tokio::join!(ask(), ask(), ask());
    for list in [a, b, c] {
        assert_eq!(list.source, ListSource::Live);
    }
    assert_eq!(simulator.recording().await.requests(MODELS_PATH).len(), 1);
}
