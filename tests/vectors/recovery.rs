//! Test vectors of recovery: plans and their messages.

use agent::conversation::recovery::{
    CLOCK_SKEW, ConversationOwner, LossKind, RecoveryPlan, RecoveryRequest, StoredCheckpoint,
    StoredConversation, StoredPause, TurnPosition, UnixMillis, plan_recovery,
};
use agent::conversation::result_envelope::{RecoveredResult, keep_last_results, wrap_results_as};
use agent::prompts::imitates_recovered_result;
use agent::run::Idle;
use agent::turn::{ContinuationLost, LOST};
use serde_json::{Map, Value as Json, json};
use sha2::{Digest as _, Sha256};

use super::{hex, same};

/// The current time in the vectors.
const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
/// The column whose results are expected.
const PEER: &str = "pi-cursor@1.4.27";

/// Returns `None` for `{"$undefined": true}`.
fn present(value: &Json) -> Option<&Json> {
    Some(value).filter(|value| !value.is_null() && value.get("$undefined").is_none())
}

fn texts<'a>(items: &'a Json, key: &str) -> Vec<&'a str> {
    let items = items.as_array().map_or(&[][..], Vec::as_slice);
    items.iter().filter_map(|item| item[key].as_str()).collect()
}

/// The peer's fingerprint of complete turns.
fn fingerprint(turns: &Json) -> String {
    let turns: Vec<Json> = turns.as_array().unwrap().iter().map(turn).collect();
    let digest = Sha256::digest(Json::from(turns).to_string());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn turn(turn: &Json) -> Json {
    let steps: Vec<Json> = turn["steps"].as_array().unwrap().iter().map(step).collect();
    json!({"userText": turn["userText"], "userImages": images(&turn["userImages"]), "steps": steps})
}

fn step(step: &Json) -> Json {
    if step["kind"] == "assistantText" {
        return json!({"kind": step["kind"], "text": step["text"]});
    }
    let mut call = json!({"kind": step["kind"], "toolCallId": step["toolCallId"],
        "toolName": step["toolName"], "arguments": sorted(&step["arguments"])});
    if let Some(result) = present(&step["result"]) {
        call["result"] = json!({"content": result["content"], "isError": result["isError"],
            "images": images(&result["images"])});
    }
    call
}

fn images(images: &Json) -> Vec<Json> {
    let images = images.as_array().map_or(&[][..], Vec::as_slice);
    let digest = |image: &Json| {
        let data = hex(image["data"]["$hex"].as_str().unwrap_or_default());
        let digest = Sha256::digest(&data);
        let short: String = digest.iter().take(8).map(|b| format!("{b:02x}")).collect();
        json!({"mimeType": image["mimeType"], "byteLength": data.len(), "sha256": short})
    };
    images.iter().map(digest).collect()
}

fn sorted(value: &Json) -> Json {
    match value {
        Json::Array(items) => items.iter().map(sorted).collect(),
        Json::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort();
            let members = names
                .into_iter()
                .filter(|name| members[*name].get("$undefined").is_none())
                .map(|name| (name.clone(), sorted(&members[name])));
            Json::Object(members.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

fn row(stored: &Json) -> StoredConversation<'_> {
    let count = |key: &str| stored[key].as_u64().map(|n| n as usize);
    let at = count("checkpointTurnCount").zip(stored["checkpointHistoryFingerprint"].as_str());
    let checkpoint = stored["checkpoint"]["$hex"].as_str();
    StoredConversation {
        owner: match stored["sessionScoped"].as_bool() {
            Some(true) => ConversationOwner::Session(stored["sessionId"].as_str()),
            _ => ConversationOwner::Anyone,
        },
        checkpoint: checkpoint.map(|state| StoredCheckpoint {
            state: hex(state),
            at: at.map(|(turns, history)| TurnPosition { turns, history }),
        }),
        pause: present(&stored["midPausePendingToolCalls"]).map(|pending| StoredPause {
            pending: texts(pending, "toolCallId"),
            turns: count("midPauseTurnCount"),
            history: stored["midPauseHistoryFingerprint"].as_str(),
            recorded_at: stored["midPauseRecordedAtMs"].as_i64().map(UnixMillis),
        }),
    }
}

/// Returns what a statement requires if it requires more than the peer does; `None` if the peer's
/// column applies.
fn statement(
    stored: &Json,
    request: &RecoveryRequest<'_>,
    theirs: &Json,
    id: &str,
) -> Option<Result<(), &'static str>> {
    let decision = &theirs["decision"]["ok"];
    let recovers = decision["kind"] == "recover";
    let age = stored["midPauseRecordedAtMs"].as_i64().map(|at| NOW.0 - at);
    // 8: a clock that moved back by more than the allowed skew.
    if age.is_some_and(|age| age < -(CLOCK_SKEW.as_millis() as i64)) {
        return Some(Err("midpause_metadata_stale"));
    }
    // 13: the peer's own discard removed the snapshot, too (its issue 28). A snapshot that is valid
    // by itself recovers the turn.
    if decision["reason"] == "stale_checkpoint" && theirs["stored_after"]["midPauseCleared"] == true
    {
        let alone = StoredConversation {
            checkpoint: None,
            ..row(stored)
        };
        let alone = plan_recovery(Some(&alone), request, NOW).plan;
        return matches!(alone, RecoveryPlan::RebuildHistory(_)).then_some(Ok(()));
    }
    match id {
        // 15: without a pending call nothing is recovered.
        "C04" if recovers => Some(Err("no_midpause_snapshot")),
        // 14: session, age, size.
        "C11" if recovers => Some(Err("session_mismatch")),
        "C12" if recovers => Some(Err("midpause_metadata_stale")),
        "C15" if recovers => Some(Ok(())),
        _ => None,
    }
}

pub(crate) fn plan_case(case: &Json) -> Result<(), String> {
    let input = &case["input"];
    let stored = present(&input["stored"]);
    let row = stored.map(row);
    let history = fingerprint(&input["completedTurns"]);
    let calls = present(&input["inFlightTurn"]).map(|turn| {
        let steps = turn["steps"].as_array().unwrap();
        let calls = steps.iter().filter(|step| step["kind"] == "toolCall");
        calls
            .map(|step| step["toolCallId"].as_str().unwrap())
            .collect()
    });
    let request = RecoveryRequest {
        session: input["sessionId"].as_str(),
        at: TurnPosition {
            turns: input["completedTurns"].as_array().unwrap().len(),
            history: &history,
        },
        in_flight: calls,
        received: texts(&input["toolResults"], "toolCallId"),
        loss: match input["rebuildReason"].as_str() {
            Some("synthesized_after_idle") => LossKind::Silent,
            _ => LossKind::Gone,
        },
    };
    let decision = plan_recovery(row.as_ref(), &request, NOW);
    let theirs = &case[PEER];
    let wanted = &theirs["decision"]["ok"];
    let id = case["name"].as_str().unwrap_or_default();
    let id = id.split(' ').next().unwrap_or_default();
    let got = match &decision.plan {
        RecoveryPlan::RecoverCheckpoint => json!({"kind": "recover"}),
        RecoveryPlan::RebuildHistory(reason) => {
            json!({"kind": "rebuild_full_history", "rebuildReason": reason.name()})
        }
        RecoveryPlan::Skip(skip) => json!({"kind": "skip", "reason": skip.name()}),
    };
    if let Some(asked) = statement(stored.unwrap_or(&Json::Null), &request, theirs, id) {
        let wanted = match asked {
            Ok(()) => json!({"kind": "rebuild_full_history", "rebuildReason": "stale_checkpoint"}),
            Err(reason) => json!({"kind": "skip", "reason": reason}),
        };
        return same("decision", &got, &wanted);
    }
    for key in ["kind", "reason", "rebuildReason"] {
        same(key, &got[key], &wanted[key])?;
    }
    same(
        "hadStoredCheckpoint",
        &json!(decision.had_checkpoint),
        &wanted["hadStoredCheckpoint"],
    )?;
    if let RecoveryPlan::Skip(
        agent::conversation::recovery::RecoverySkip::PendingToolCallMismatch { expected, received },
    ) = &decision.plan
    {
        same("expected", &json!(expected), &wanted["expected"])?;
        same("received", &json!(received), &wanted["received"])?;
    }
    if let Some(text) = wanted["wrappedText"].as_str() {
        let id = text
            .split("recovery:")
            .nth(1)
            .map_or("", |rest| &rest[..36]);
        same("text", &wrapped(&input["toolResults"], id).as_str(), &text)?;
    }
    let after = &theirs["stored_after"];
    if !after.is_null() {
        let had_pause = row.is_some_and(|row| row.pause.is_some());
        let cleared = json!({"midPauseCleared": decision.clears_pause && had_pause,
            "checkpointCleared": decision.clears_checkpoint});
        for key in ["midPauseCleared", "checkpointCleared"] {
            same(key, &cleared[key], &after[key])?;
        }
    }
    Ok(())
}

fn recovered(results: &Json) -> Vec<RecoveredResult> {
    let one = |result: &Json| RecoveredResult {
        tool: None,
        call: result["toolCallId"].as_str().unwrap().into(),
        content: result["content"].as_str().unwrap().into(),
        // The column has no errors; our results do (statement 29).
        is_error: false,
    };
    results.as_array().unwrap().iter().map(one).collect()
}

fn wrapped(results: &Json, id: &str) -> String {
    wrap_results_as(&keep_last_results(recovered(results)), id)
}

/// Statement 32: a marker is detected regardless of letter case.
fn marked(text: &str, wanted: &Json) -> Result<(), String> {
    let folded = text.to_lowercase();
    let hidden = folded.contains("[recovered tool output after upstream bridge loss")
        || folded.contains("[end recovered tool output");
    let wanted = wanted == true || hidden;
    same("detected", &imitates_recovered_result(text), &wanted)
}

pub(crate) fn wrap_case(case: &Json) -> Result<(), String> {
    match case["kind"].as_str().unwrap() {
        "wrap" => {
            let results = &case["toolResults"];
            let all: Vec<&str> = texts(results, "content");
            marked(&all.join("\n"), &case["sentinelInjectionDetected"])?;
            let text = wrapped(results, "fixed-id");
            same("text", &text.as_str(), &case["pi-cursor"].as_str().unwrap())
        }
        "sentinel" => marked(case["content"].as_str().unwrap(), &case["detected"]),
        "message" => same("text", &LOST, &case["text"].as_str().unwrap()),
        kind if kind.starts_with("lost") => lost_case(case),
        "idle_message" => idle_case(case),
        "park_message" => park_case(case["text"].as_str().unwrap()),
        "diagnostic" => lost_case(case),
        // Another project's message for the same end.
        kind if kind.ends_with("_timeout") => Ok(()),
        other => Err(format!("unknown kind {other}")),
    }
}

/// The message is ours; it must contain the wait, the attempts of those allowed, and the settings.
fn idle_case(case: &Json) -> Result<(), String> {
    let number = |key: &str| case[key].as_u64().unwrap();
    let (attempts, retries) = (number("attempt"), number("maxRetries"));
    let mut idle = Idle {
        after: std::time::Duration::from_millis(number("timeoutMs")),
        attempts: attempts as u32,
        retries: retries as u32,
        has_text: false,
        is_silent: false,
        unknown_exec: None,
    };
    let mut facts = vec![
        format!("idle timeout after {}ms", number("timeoutMs")),
        "PI_CURSOR_STREAM_IDLE_TIMEOUT_MS".into(),
        "PI_CURSOR_RESUME_IDLE_TIMEOUT_MS".into(),
    ];
    if retries > 0 && attempts <= retries + 1 {
        facts.push(format!("in {attempts} of {} attempts", retries + 1));
    }
    if case["pi-cursor"].as_str().is_none() {
        return Err("no text".into());
    }
    contains_all(&idle.to_string(), &facts)?;
    idle.has_text = true;
    facts.push("Part of the answer is displayed".into());
    contains_all(&idle.to_string(), &facts)
}

fn contains_all(ours: &str, facts: &[String]) -> Result<(), String> {
    match facts.iter().find(|fact| !ours.contains(fact.as_str())) {
        None => Ok(()),
        Some(missing) => Err(format!("{missing:?} is missing in {ours:?}")),
    }
}

/// The message is ours; it must contain the exec kind, the wait and the way to the report.
fn park_case(text: &str) -> Result<(), String> {
    let exec = text.split('"').nth(1).ok_or("no exec kind")?;
    let wait = text.split_whitespace().find_map(|word| {
        let digits = word.trim_end_matches('.').strip_suffix("ms")?;
        digits.parse::<u64>().ok()
    });
    let wait = wait.ok_or("no wait")?;
    let ours = Idle {
        after: std::time::Duration::from_millis(wait),
        attempts: 1,
        retries: 3,
        has_text: false,
        is_silent: false,
        unknown_exec: Some(exec.into()),
    };
    let wait = format!("{wait}ms");
    let facts = [exec, &wait, "doctor", "error"].map(str::to_owned);
    contains_all(&ours.to_string(), &facts)
}

fn lost_case(case: &Json) -> Result<(), String> {
    let input = &case["input"];
    let skip: Option<&'static str> = input["skipReason"]
        .as_str()
        .map(|skip| &*Box::leak(skip.to_owned().into_boxed_str()));
    let lost = ContinuationLost {
        had_checkpoint: input["hadStoredCheckpoint"].as_bool().unwrap_or_default(),
        bridge_key: input["bridgeKey"].as_str().unwrap_or_default().into(),
        skip,
    };
    if let Some(text) = case["text"].as_str().or(case["diagnostic"].as_str()) {
        return same("diagnostic", &lost.diagnostic().as_str(), &text);
    }
    same("body", &lost.body(), &case["body"])?;
    let told = lost.to_string();
    if told.contains(LOST) && told.ends_with(&lost.diagnostic()) {
        Ok(())
    } else {
        Err(format!("the text says too little: {told}"))
    }
}
