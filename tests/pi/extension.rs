//! How the extension handles messages of a sidecar, with a scripted one.

use serde_json::{Value as Json, json};

use test_support::pi_env::{ECHO, PiEnv, PiVersion};
use test_support::pi_rpc::{PiRpc, text};
use test_support::wait::until_named;

crate::on_every_pi!(
    pi_runs_the_tools_and_the_results_come_back,
    aborting_while_a_tool_runs_cancels_the_turn,
    the_host_is_introduced_and_the_request_holds_what_it_should,
);

fn pi_env(version: PiVersion) -> PiEnv {
    PiEnv::playing(version, ECHO).with_sidecar("tests/pi/scripted-sidecar.mjs")
}

fn plain(pi_env: &PiEnv) -> PiRpc {
    PiRpc::with(pi_env, &["--model", "cursor/plain"])
}

/// Returns the parameters of every request of a method so far.
fn requests(pi_env: &PiEnv, method: &str) -> Vec<Json> {
    let text = std::fs::read_to_string(pi_env.home.path().join("requests.jsonl"));
    let text = text.unwrap_or_default();
    let requests = text.lines().map(serde_json::from_str::<Json>);
    requests
        .map_while(Result::ok)
        .filter(|request| request["method"] == method)
        .map(|request| request["params"].clone())
        .collect()
}

fn pi_runs_the_tools_and_the_results_come_back(version: PiVersion) {
    let pi_env = pi_env(version);
    let mut pi = plain(&pi_env);
    pi.send(&json!({"type": "prompt", "message": "tool please"}));
    let calls = pi.answer();
    assert_eq!(calls["stopReason"], "toolUse", "{calls}");
    assert_eq!(calls["content"][0]["text"], "Looking. ");
    assert_eq!(calls["content"][2]["id"], "call-2");
    let answer = pi.answer();
    assert_eq!(text(&answer), "Got first and second.");
    assert_eq!(answer["usage"]["totalTokens"], 1015);
    assert_eq!(answer["usage"]["cost"]["total"], 0.002);
    let turns = requests(&pi_env, "turn/start");
    assert_eq!(turns.len(), 2);
    assert_eq!(turns[0]["sessionId"], turns[1]["sessionId"]);
    assert_ne!(turns[0]["turnId"], turns[1]["turnId"]);
    let results = turns[1]["messages"].as_array().unwrap();
    let ids: Vec<_> = results
        .iter()
        .filter(|message| message["role"] == "toolResult")
        .map(|message| message["toolCallId"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["call-1", "call-2"]);
    assert!(requests(&pi_env, "turn/cancel").is_empty());
}

fn aborting_while_a_tool_runs_cancels_the_turn(version: PiVersion) {
    let pi_env = pi_env(version);
    let mut pi = plain(&pi_env);
    pi.send(&json!({"type": "prompt", "message": "slow please"}));
    pi.event("the tool", |event| event["type"] == "tool_execution_start");
    pi.send(&json!({"type": "abort"}));
    let cancelled = until_named("the sidecar hears of it", || {
        requests(&pi_env, "turn/cancel").pop()
    });
    assert_eq!(
        cancelled["turnId"],
        requests(&pi_env, "turn/start")[0]["turnId"]
    );
    pi.settle();
}

fn the_host_is_introduced_and_the_request_holds_what_it_should(version: PiVersion) {
    let pi_env = pi_env(version);
    let more = ["--model", "cursor/thinker:xhigh", "--cursor-size", "large"];
    let mut pi = PiRpc::with(&pi_env, &more);
    pi.send(&json!({"type": "prompt", "message": "/cursor-nod twice"}));
    until_named("the command is passed on", || {
        let commands = requests(&pi_env, "session/command");
        commands
            .into_iter()
            .find(|message| message["command"] == "cursor-nod" && message["arguments"] == "twice")
    });
    assert_eq!(text(&pi.prompt("warn me")), "Said so.");
    let host = &requests(&pi_env, "initialize")[0]["host"];
    assert_eq!(host["name"], "pi");
    assert_eq!(host["program"], pi_env.program());
    assert_eq!(host["cwd"], pi_env.workspace.to_str().unwrap());
    let turn = &requests(&pi_env, "turn/start")[0];
    assert_eq!(turn["kind"], "main");
    assert_eq!(turn["workspace"], pi_env.workspace.to_str().unwrap());
    let cost = json!({"input": 2, "output": 0, "cacheRead": 0, "cacheWrite": 0});
    let model = json!({
        "id": "thinker",
        "thinking": "xhigh",
        "parameters": {},
        "contextWindow": 200_000,
        "maxTokens": 64_000,
        "cost": cost,
    });
    assert_eq!(turn["model"], model);
    let kept = json!({"flags": {"cursor-size": "large"}, "entry": {"nodded": "twice"}});
    assert_eq!(turn["kept"], kept);
    // A newer pi reads the variable that the extension names.
    let key = if version >= PiVersion::V087 {
        "crsr_test"
    } else {
        "cursor-key-not-given-to-pi"
    };
    assert_eq!(turn["apiKey"], key);
    let in_messages = turn["messages"][0]["role"] == "system";
    assert_eq!(in_messages, version >= PiVersion::V087);
    assert_eq!(turn.get("tools").is_none(), in_messages);
    assert_eq!(turn.get("systemPrompt").is_none(), in_messages);
    assert_eq!(pi_env.sidecars().len(), 1);
}

#[test]
fn large_answers_and_warnings_arrive_whole() {
    let pi_env = pi_env(PiVersion::V087);
    let mut pi = plain(&pi_env);
    pi.send(&json!({"type": "prompt", "message": "large please"}));
    let answer = pi.answer();
    assert_eq!(text(&answer).chars().count(), 4 << 20);
    pi.settle();
    pi.send(&json!({"type": "prompt", "message": "warn please"}));
    let shown = pi.event("the warning", |event| event["method"] == "notify");
    assert_eq!(shown["message"], "the moon is full");
}

/// An error response without an id belongs to some request, so the pending turn fails instead of
/// waiting forever.
#[test]
fn a_sidecar_of_another_protocol_is_abandoned() {
    let pi_env = pi_env(PiVersion::V087);
    let mut pi = plain(&pi_env);
    pi.send(&json!({"type": "prompt", "message": "garble please"}));
    let error = pi.answer()["errorMessage"].clone();
    let lost = "connection lost: cursor-sidecar could not read a request: not JSON";
    assert_eq!(error, lost);
}
