//! The selected model and what is sent to Cursor for it.

use super::*;

#[test]
fn an_unknown_id_is_an_error_with_suggestions() {
    let simulator = simulator(MODELS, "");
    let test = TestEnv::new(&simulator.url, &[]);
    let mut host = test.host(WITH_MAX);
    let result = turn(&mut host, json!({"id": "gpt-5.5@300k"}));
    assert_eq!(result["stopReason"], "error");
    insta::assert_snapshot!(result["errorMessage"].as_str().unwrap(), @r#"Cursor has no model "gpt-5.5@300k"; similar models: gpt-5.5@272k, gpt-5.5@1m. If it is new, refresh the model list with /cursor-refresh-models"#);
    assert_eq!(simulator.recorded().runs(), 0);
}

#[test]
fn with_the_bundled_list_an_unknown_id_is_sent_unchanged() {
    let failing = [
        MODELS_PATH,
        "/agent.v1.AgentService/GetUsableModels",
        "/aiserver.v1.AiService/AvailableModels",
    ]
    .map(|path| {
        format!("[server.unary.\"{path}\"]\nstatus = 500\nbody = {{ message = \"no\" }}\n")
    });
    let models = MODELS.replacen('[', "[ { id = \"brand-new@9m\" },", 1);
    let simulator = simulator(&models, &failing.concat());
    let test = TestEnv::new(&simulator.url, &[]);
    let mut host = test.host(WITH_MAX);
    for id in ["brand-new@9m", "gpt-5.5@272k"] {
        let result = turn(&mut host, json!({"id": id, "thinking": "high"}));
        assert_eq!(result["stopReason"], "stop", "{result}");
    }
    let recording = simulator.recorded();
    assert_eq!(
        sent(&recording),
        [
            "brand-new@9m",
            "gpt-5.5 context=272k reasoning=high fast=false"
        ]
    );
    assert_eq!(
        recording.requests(MODELS_PATH).len(),
        1,
        "the list is not fetched for every turn"
    );
}

#[test]
fn the_selected_parameters_are_sent() {
    let simulator = simulator(MODELS, "");
    let test = TestEnv::new(&simulator.url, &[]);
    let choices = [
        json!({"id": "gpt-5.5@272k", "thinking": "medium"}),
        json!({"id": "gpt-5.5@272k", "thinking": "xhigh", "fast": true}),
        json!({"id": "gpt-5.5@1m"}),
        json!({"id": "gpt-5.5", "thinking": "minimal"}),
        json!({"id": "gpt-latest@1m", "thinking": "low"}),
        json!({"id": "gpt-5.5@1m:fast", "thinking": "high"}),
        json!({"id": "claude-opus-4-7@300k", "thinking": "high", "fast": true}),
        json!({"id": "claude-opus-4-7@300k", "thinking": "off"}),
        json!({"id": "haiku", "thinking": "high"}),
        json!({"id": "haiku", "thinking": "low"}),
        json!({"id": "composer-2.5", "thinking": "high"}),
        json!({"id": "composer-2.5", "fast": false}),
        json!({"id": "default", "thinking": "ultra"}),
        json!({"id": "gpt-5.5", "thinking": "high", "parameters": {"context": "272k"}}),
    ];
    let mut host = test.host(WITHOUT_MAX);
    for choice in &choices {
        assert_eq!(turn(&mut host, choice.clone())["stopReason"], "stop");
    }
    let mut host = test.host(WITH_MAX);
    for level in ["xhigh", "max"] {
        turn(&mut host, json!({"id": "gpt-5.5@1m", "thinking": level}));
    }
    insta::assert_snapshot!(sent(&simulator.recorded()).join("\n"), @r"
    gpt-5.5 context=272k reasoning=medium fast=false
    gpt-5.5 context=272k reasoning=max fast=true
    gpt-5.5 context=1m reasoning=none fast=false
    gpt-5.5 context=1m reasoning=medium fast=false
    gpt-5.5 context=1m reasoning=low fast=false
    gpt-5.5 context=1m reasoning=high fast=true
    claude-opus-4-7 thinking=true context=300k effort=high
    claude-opus-4-7 thinking=false context=300k
    haiku thinking=true
    haiku
    composer-2.5 fast=true
    composer-2.5 fast=false
    default
    gpt-5.5 context=272k
    gpt-5.5 context=1m reasoning=extra-high fast=false
    gpt-5.5 context=1m reasoning=max fast=false
    ");
}

#[test]
fn max_mode_is_sent_if_the_catalog_requires_it() {
    let models = r#"[ { id = "m", parameters = [ { id = "context", values = [ { value = "200k" }, { value = "1m" } ] } ],
      variants = [ { params = [ { id = "context", value = "200k" } ] }, { params = [ { id = "context", value = "1m" } ], isMaxMode = true } ] },
      { id = "large", parameters = [ { id = "context", values = [ { value = "1m" } ] } ] } ]"#;
    let simulator = simulator(models, "");
    let test = TestEnv::new(&simulator.url, &[]);
    let mut host = test.host(WITH_MAX);
    for id in ["m@200k", "m@1m", "large@1m"] {
        assert_eq!(turn(&mut host, json!({"id": id}))["stopReason"], "stop");
    }
    let recording = simulator.recorded();
    let asked: Vec<bool> = recording
        .client("runRequest")
        .iter()
        .map(|request| request["runRequest"]["requestedModel"]["maxMode"] == true)
        .collect();
    assert_eq!(asked, [false, true, false]);
}

/// The default variant need not contain the `fast` parameter of the model.
#[test]
fn the_resolved_speed_is_sent() {
    let models = r#"[ { id = "m", parameters = [ { id = "fast", values = [ { value = "False" }, { value = "True" } ] } ], variants = [ { params = [ { id = "cyber", value = "false" } ] } ] } ]"#;
    let simulator = simulator(models, "");
    let test = TestEnv::new(&simulator.url, &[]);
    let mut host = test.host(WITH_MAX);
    turn(&mut host, json!({"id": "m"}));
    turn(&mut host, json!({"id": "m", "fast": true}));
    assert_eq!(
        sent(&simulator.recorded()),
        ["m cyber=false fast=False", "m cyber=false fast=True"]
    );
}

#[test]
fn preferences_are_stored_across_processes() {
    let simulator = simulator(MODELS, "");
    let test = TestEnv::new(&simulator.url, &[]);
    let mut host = test.host(WITH_MAX);
    assert_eq!(
        host.call("prefs/get", json!({}))["result"],
        json!({"fast": {}})
    );
    host.call("prefs/set", json!({"base": "composer-2.5", "fast": false}));
    let answer = host.call("prefs/set", json!({"base": "gpt-5.5", "fast": true}));
    let both = json!({"fast": {"composer-2.5": false, "gpt-5.5": true}});
    assert_eq!(answer["result"], both);

    let mut host = test.host(WITH_MAX);
    assert_eq!(host.call("prefs/get", json!({}))["result"], both);
    turn(&mut host, json!({"id": "composer-2.5"}));
    turn(&mut host, json!({"id": "gpt-latest@1m", "thinking": "low"}));
    turn(
        &mut host,
        json!({"id": "gpt-5.5@1m", "thinking": "low", "fast": false}),
    );
    host.call("prefs/set", json!({"base": "composer-2.5"}));
    turn(&mut host, json!({"id": "composer-2.5", "thinking": "off"}));
    assert_eq!(
        sent(&simulator.recorded()),
        [
            "composer-2.5 fast=false",
            "gpt-5.5 context=1m reasoning=low fast=true",
            "gpt-5.5 context=1m reasoning=low fast=false",
            "composer-2.5 fast=true",
        ]
    );
    std::fs::write(test.state.path().join("prefs.json"), "{").unwrap();
    let refused = host.call("prefs/set", json!({"base": "gpt-5.5", "fast": true}));
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("prefs.json is damaged"), "{message}");
    assert_eq!(
        turn(&mut host, json!({"id": "default"}))["stopReason"],
        "stop"
    );
}

#[test]
fn models_follow_the_refreshed_list() {
    let first = r#"[server.unary."/v1/models"]
times = 1
body = { items = [ { id = "stays", aliases = ["s"] }, { id = "goes" } ] }"#;
    let then = r#"[ { id = "stays", aliases = ["s"], parameters = [ { id = "context", values = [ { value = "1m" } ] } ] },
      { id = "comes", aliases = ["s"] } ]"#;
    let simulator = simulator(then, first);
    let test = TestEnv::new(&simulator.url, &[]);
    let mut host = test.host(WITH_MAX);
    assert_eq!(ids(&list(&mut host, json!({}))), ["goes", "stays", "s"]);
    assert_eq!(turn(&mut host, json!({"id": "goes"}))["stopReason"], "stop");
    let refreshed = list(&mut host, json!({"refresh": true}));
    assert_eq!(
        ids(&refreshed),
        ["comes", "stays@1m"],
        "the alias became ambiguous"
    );
    let vanished = turn(&mut host, json!({"id": "goes"}));
    assert_eq!(vanished["stopReason"], "error");
    let text = vanished["errorMessage"].as_str().unwrap();
    assert!(text.starts_with("Cursor has no model \"goes\""), "{text}");
    // The next process uses the same list from the cache.
    let mut host = test.host(WITH_MAX);
    assert_eq!(ids(&list(&mut host, json!({}))), ["comes", "stays@1m"]);
    turn(&mut host, json!({"id": "stays"}));
    assert_eq!(sent(&simulator.recorded()), ["goes", "stays context=1m"]);
}
