//! The same scenario played by the official client and by ours: the same kinds of messages in the
//! same order, with the same fields set. Every intended difference is listed here and explained in
//! `docs/protocol.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use agent_tools::policy::ToolPolicy;
use serde_json::{Value as Json, json};

use test_support::official_client::OfficialClient;
use test_support::rpc_session::RpcSession;
use test_support::run_client::{OnText, RunClient};
use test_support::simulator::{Recording, Simulator, Transport};
use test_support::{binary, recordings, root};

/// An intended difference: messages of a kind, the fields below a path, and where
/// `docs/protocol.md` explains it.
struct IntendedDifference {
    kind: &'static str,
    below: &'static str,
    heading: &'static str,
}

const fn differs(
    kind: &'static str,
    below: &'static str,
    heading: &'static str,
) -> IntendedDifference {
    IntendedDifference {
        kind,
        below,
        heading,
    }
}

const CONTEXT: &str = "The request context says what is true of us";
const REASONS: &str = "Refusals give our own reasons";

const DIFFERENCES: &[IntendedDifference] = &[
    differs("execClientMessage.requestContextResult", "", CONTEXT),
    differs(
        "execClientControlMessage.throw",
        "/execClientControlMessage/throw/stackTrace",
        REASONS,
    ),
    differs("interactionResponse.replaceEnvResult", "", REASONS),
];

/// One message: its kind and the paths of its fields.
type Shape = (String, BTreeSet<String>);

/// Returns the messages of the client, by run. Some fields are named after the workspace.
fn shapes(recording: &Recording, workspace: &Path) -> Vec<Vec<Shape>> {
    for verdict in recording.verdicts() {
        assert_eq!(verdict["failures"], json!([]), "{verdict}");
    }
    let mut runs: BTreeMap<u64, Vec<Shape>> = BTreeMap::new();
    for frame in recording.0["frames"].as_array().unwrap() {
        let kind = frame["kind"].as_str().unwrap();
        // Heartbeats depend on time, not on the conversation.
        if frame["from"] != "client" || kind.to_lowercase().contains("heartbeat") {
            continue;
        }
        let mut fields = BTreeSet::new();
        collect(&frame["json"], String::new(), &mut fields);
        let workspace = workspace.to_str().unwrap();
        let fields = fields.into_iter();
        let fields = fields
            .map(|field| field.replace(workspace, "$WS"))
            .collect();
        let run = runs.entry(frame["run"].as_u64().unwrap()).or_default();
        // A command that runs streams several events, a rejected one only one.
        let streams_on = kind == "execClientMessage.shellStream";
        if !(streams_on && run.last().is_some_and(|(last, _)| last == kind)) {
            run.push((kind.to_owned(), fields));
        }
    }
    runs.into_values().collect()
}

/// Returns the fields of a message without those that differ on purpose.
fn comparable((kind, fields): &Shape) -> BTreeSet<&str> {
    let is_intended = |field: &str| {
        DIFFERENCES
            .iter()
            .any(|difference| difference.kind == kind && field.starts_with(difference.below))
    };
    let fields = fields.iter().map(String::as_str);
    fields.filter(|field| !is_intended(field)).collect()
}

fn collect(json: &Json, path: String, fields: &mut BTreeSet<String>) {
    match json {
        Json::Object(object) => {
            fields.insert(path.clone());
            for (key, value) in object {
                collect(value, format!("{path}/{key}"), fields);
            }
        }
        Json::Array(items) => {
            fields.insert(path.clone());
            for item in items {
                collect(item, format!("{path}/*"), fields);
            }
        }
        _ => {
            fields.insert(path);
        }
    }
}

struct PlayedScenario {
    scenario: &'static str,
    texts: &'static [&'static str],
    steer: Option<(&'static str, &'static str)>,
}

const fn play(scenario: &'static str, texts: &'static [&'static str]) -> PlayedScenario {
    PlayedScenario {
        scenario,
        texts,
        steer: None,
    }
}

const PLAYS: &[PlayedScenario] = &[
    play("hello", &["@hello there"]),
    play("thinking", &["@thinking go"]),
    play("kv", &["@kv go"]),
    play("queries", &["@queries go"]),
    play("gzip", &["@gzip go"]),
    play("usage", &["@usage go"]),
    play("unknown", &["@unknown go"]),
    play("followup", &["@followup one", "@followup two"]),
    play("checkpoint-drop", &["@checkpoint-drop go"]),
    play("every-exec", &["@every-exec go"]),
    play("error-unauthenticated", &["@error-unauthenticated go"]),
    PlayedScenario {
        scenario: "steer",
        texts: &["@steer go"],
        steer: Some(("working", "steer me left")),
    },
];

async fn ours(play: &PlayedScenario, workspace: &Path) -> Recording {
    let simulator = Simulator::start(Transport::H2c);
    let mut ours = RunClient::new(&simulator, Transport::H2c);
    ours.workspace = workspace.to_owned();
    ours.native = ToolPolicy::default();
    for text in play.texts {
        let when = match play.steer {
            Some((needle, message)) => OnText::Steer(needle, message),
            None => OnText::Never,
        };
        ours.prompt_and(text, when).await;
    }
    simulator.recording().await
}

async fn theirs(play: &PlayedScenario, sdk: &OfficialClient) -> Recording {
    let simulator = Simulator::start(Transport::H2c);
    let sends: Vec<Json> = play
        .texts
        .iter()
        .map(|text| match play.steer {
            Some((needle, message)) => {
                json!({"text": text, "steerOn": {"text": needle, "message": message}})
            }
            None => json!({"text": text}),
        })
        .collect();
    sdk.drive(&simulator, json!({"agent": {}, "sends": sends}));
    simulator.recording().await
}

/// The scenarios that the official client plays each time; for the others its recorded messages
/// count.
const LIVE: [&str; 2] = ["hello", "followup"];

#[tokio::test]
async fn the_same_messages_as_the_official_client() {
    let mut live: BTreeMap<&str, Vec<Vec<Shape>>> = BTreeMap::new();
    for play in PLAYS {
        if recordings::is_recording() || LIVE.contains(&play.scenario) {
            let sdk = OfficialClient::new();
            live.insert(
                play.scenario,
                shapes(&theirs(play, &sdk).await, &sdk.workspace),
            );
        }
    }
    if recordings::is_recording() {
        recordings::save("messages", &json!(live));
    }
    let (_, mut recorded) = recordings::load("messages");
    let mut wrong = Vec::new();
    for play in PLAYS {
        let theirs = live.remove(play.scenario).unwrap_or_else(|| {
            serde_json::from_value(recorded[play.scenario].take()).expect("run `make record`")
        });
        let sdk = OfficialClient::new();
        let ours = shapes(&ours(play, &sdk.workspace).await, &sdk.workspace);
        assert!(
            !theirs.is_empty(),
            "{}: the official client sent nothing",
            play.scenario
        );
        let kinds = |runs: &[Vec<Shape>]| -> Vec<Vec<String>> {
            runs.iter()
                .map(|run| run.iter().map(|(kind, _)| kind.clone()).collect())
                .collect()
        };
        if kinds(&theirs) != kinds(&ours) {
            wrong.push(format!(
                "{}: kinds\n  theirs {:?}\n  ours   {:?}",
                play.scenario,
                kinds(&theirs),
                kinds(&ours)
            ));
            continue;
        }
        for (theirs, ours) in theirs.iter().flatten().zip(ours.iter().flatten()) {
            let (their_fields, our_fields) = (comparable(theirs), comparable(ours));
            let missing: Vec<_> = their_fields.difference(&our_fields).collect();
            let extra: Vec<_> = our_fields.difference(&their_fields).collect();
            if !missing.is_empty() || !extra.is_empty() {
                wrong.push(format!(
                    "{} {}: missing {missing:?}, extra {extra:?}",
                    play.scenario, theirs.0
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// An alias is replaced by the model's id before it is sent, for `turn/start` and `ask`, as by the
/// official client.
#[test]
fn an_alias_is_sent_as_the_models_id() {
    let asked = |simulator: &Simulator| {
        let recording = simulator.recorded();
        let requests = recording.client("runRequest");
        assert_eq!(requests.len(), 1);
        requests[0]["runRequest"]["requestedModel"]["modelId"].clone()
    };
    let simulator = Simulator::start(Transport::H2c);
    let agent = json!({"model": {"id": "composer-latest"}});
    let spec = json!({"agent": agent, "sends": [{"text": "@hello there"}]});
    OfficialClient::new().drive(&simulator, spec);
    let theirs = asked(&simulator);
    assert_eq!(theirs, "composer-2.5");

    let simulator = Simulator::start(Transport::H2c);
    let mut session = RpcSession::new(&simulator, "s", &[]);
    session.user("@hello there");
    let mut params = session.params();
    params["model"] = json!({"id": "composer-latest"});
    let start = json!({"jsonrpc": "2.0", "id": "t", "method": "turn/start", "params": params});
    session.host.send(&start);
    assert_eq!(session.finish("t").text, "Hello, world!");
    assert_eq!(asked(&simulator), theirs);

    let simulator = Simulator::start(Transport::H2c);
    let home = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(binary())
        .args(["ask", "--model", "composer-latest", "@hello there"])
        .env_clear()
        .env("HOME", home.path())
        .env("CURSOR_API_KEY", "crsr_test")
        .env("CURSOR_BACKEND_URL", &simulator.url)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(asked(&simulator), theirs);
}

#[test]
fn every_intended_difference_is_explained() {
    let page = std::fs::read_to_string(root().join("docs/protocol.md")).unwrap();
    for difference in DIFFERENCES {
        assert!(
            page.contains(difference.heading),
            "docs/protocol.md does not explain {:?} ({})",
            difference.heading,
            difference.kind
        );
    }
}

/// Compares the headers of the stream itself, over both transports.
#[tokio::test]
async fn the_same_headers_as_the_official_client() {
    for (transport, path) in [
        (Transport::H2c, "/agent.v1.AgentService/Run"),
        (Transport::Http1, "/agent.v1.AgentService/RunSSE"),
        (Transport::Http1, "/aiserver.v1.BidiService/BidiAppend"),
        (Transport::Http1, "/auth/exchange_user_api_key"),
    ] {
        let headers = |recording: &Recording| -> BTreeMap<String, Json> {
            let request = recording.requests(path)[0].clone();
            let headers = request["headers"].as_object().unwrap().clone();
            // Lengths, hosts and connections belong to the transport, what a browser would say to
            // the `fetch` of the official client.
            headers
                .into_iter()
                .filter(|(name, _)| {
                    !matches!(
                        name.as_str(),
                        "host"
                            | "connection"
                            | "transfer-encoding"
                            | "content-length"
                            | "accept-language"
                            | "sec-fetch-mode"
                    )
                })
                .collect()
        };
        let simulator = Simulator::start(transport);
        let sdk = OfficialClient::new();
        sdk.drive(
            &simulator,
            json!({"agent": {}, "sends": [{"text": "@hello a"}]}),
        );
        let theirs = headers(&simulator.recording().await);
        let simulator = Simulator::start(transport);
        RunClient::new(&simulator, transport)
            .prompt("@hello a")
            .await;
        let ours = headers(&simulator.recording().await);
        let names = |headers: &BTreeMap<String, Json>| headers.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&ours), names(&theirs), "{path}");
        for (name, value) in &theirs {
            let differs = matches!(
                name.as_str(),
                // Ids and keys are random; we offer fewer compression formats.
                "x-request-id"
                    | "x-original-request-id"
                    | "x-blob-encryption-key"
                    | "connect-accept-encoding"
                    | "accept-encoding"
                    | "connect-timeout-ms"
            );
            assert!(
                differs || &ours[name] == value,
                "{path}: {name} {value} {}",
                ours[name]
            );
        }
    }
}
