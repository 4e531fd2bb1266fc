//! Behaviour as data: every vector file in `VECTORS_DIR` (default `tests/vectors/public`) is run by
//! the rule of its name. An unknown name fails, and so does a missing folder.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "vectors/bridge.rs"]
mod bridge;
#[path = "vectors/catalog.rs"]
mod catalog;
#[path = "vectors/recovery.rs"]
mod recovery;
#[path = "vectors/tool_cards.rs"]
mod tool_cards;

use std::path::{Path, PathBuf};

use agent::conversation::fingerprint::Fingerprint;
use agent::turn::{context_overflow, final_text};
use bytes::Bytes;
use cursor_client::checksum;
use cursor_proto::agent::v1::{AgentClientMessage, AgentServerMessage};
use cursor_proto::drift::Drift;
use cursor_proto::{available_models, envelope, field_order, protobuf_value};
use cursor_sidecar::rpc::RawMessage;
use cursor_sidecar::rpc::host_messages::TranscriptReader;
use foundation::scrub::Scrubber;
use prost::Message as _;
use serde_json::{Value as Json, json};

/// Runs one case; `Err` says what differed.
type Rule = fn(&Json) -> Result<(), String>;

const RULES: &[(&str, Rule)] = &[
    ("alias-ambiguity", catalog::aliases),
    ("bridge-snapshot", bridge::snapshot_case),
    ("mcp-content", bridge::content_case),
    ("mcp-tool-names", bridge::names_case),
    ("completion-dedupe", tool_cards::dedupe_case),
    ("context-overflow", context_overflow_case),
    ("context-window", catalog::context_window),
    ("env-parsing", catalog::settings),
    ("final-text", final_text_case),
    ("fingerprint-decisions", fingerprint_case),
    ("model-registration", catalog::registration),
    ("openai-available-models", available_models_case),
    ("openai-checksum", checksum_case),
    ("openai-frames", frames_case),
    ("openai-mcp-values", mcp_values_case),
    ("path-normalisation", tool_cards::paths_case),
    ("read-local-preview", tool_cards::preview_case),
    ("recovery-plan", recovery::plan_case),
    ("recovery-wrap", recovery::wrap_case),
    ("replay-mapping", tool_cards::mapping_case),
    ("shell-delta", tool_cards::shell_case),
    ("thinking-level-map", catalog::thinking),
    ("scrubber", scrubber_case),
    ("tool-names", tool_cards::names_case),
    ("wire-messages", wire_message_case),
];

/// Runs one case that refers to others of its file.
type FileRule = fn(&Json, &[Json]) -> Result<(), String>;

const FILE_RULES: &[(&str, FileRule)] = &[("model-selection", catalog::selection)];

#[test]
fn vectors() {
    let folder = std::env::var_os("VECTORS_DIR").map_or_else(public, PathBuf::from);
    let entries = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("no vectors in {}: {error}", folder.display()));
    let mut failures = Vec::new();
    let mut ran = 0;
    for entry in entries {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let rule = RULES.iter().find(|(known, _)| *known == name);
        let file_rule = FILE_RULES.iter().find(|(known, _)| *known == name);
        if rule.is_none() && file_rule.is_none() {
            panic!("unknown vector file {name}.json");
        }
        let Some(cases) = cases(&path) else {
            failures.push(format!("{name}: no JSON with a list of cases"));
            continue;
        };
        if cases.is_empty() {
            failures.push(format!("{name}: no case"));
        }
        for (index, case) in cases.iter().enumerate() {
            // Results that look wrong are never required.
            if case["quirk"].as_bool().unwrap_or(case["quirk"].is_string()) {
                continue;
            }
            ran += 1;
            // A case that panics must not keep others from running.
            let judged = std::panic::catch_unwind(|| match (rule, file_rule) {
                (Some((_, rule)), _) => rule(case),
                (None, Some((_, rule))) => rule(case, &cases),
                (None, None) => Ok(()),
            });
            if let Err(difference) = judged.unwrap_or_else(|_| Err("panicked".into())) {
                let id = case["id"].as_str().or(case["name"].as_str()).unwrap_or("");
                failures.push(format!("{name}[{index}] {id}: {difference}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(ran > 0, "no vector ran");
}

/// The public vectors, which are part of the repository.
fn public() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/public")
}

fn cases(path: &Path) -> Option<Vec<Json>> {
    let file: Json = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    file["cases"].as_array().cloned()
}

fn hex(text: &str) -> Bytes {
    let digits: Vec<u8> = text.bytes().collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, wanted: &T) -> Result<(), String> {
    if got == wanted {
        Ok(())
    } else {
        Err(format!("{what}: got {got:?}, wanted {wanted:?}"))
    }
}

fn frames_case(case: &Json) -> Result<(), String> {
    if let Some(body) = case["unary_hex"].as_str() {
        let wanted = case["out"].as_str().map(hex);
        return same("unary body", &envelope::unwrap_unary(&hex(body)), &wanted);
    }
    if let Some(chunks) = case["parser_chunks"].as_array() {
        return parsed_case(chunks, &case["got"]);
    }
    let payload = hex(case["payload_hex"].as_str().unwrap());
    for (key, kind) in [
        ("connect", envelope::Kind::Message),
        ("connect_end", envelope::Kind::EndStream),
    ] {
        let wire = hex(case[key].as_str().unwrap());
        same(key, &envelope::encode(kind, &payload), &wire)?;
        let mut decoder = envelope::Decoder::default();
        decoder.push(&wire);
        let back = decoder.next_envelope().unwrap().unwrap();
        same(key, &back.kind(), &kind)?;
        same(
            key,
            &back.into_payload(envelope::Encoding::Identity).unwrap(),
            &payload,
        )?;
    }
    Ok(())
}

/// Envelopes are parsed completely, however their bytes were split into chunks.
fn parsed_case(chunks: &[Json], wanted: &Json) -> Result<(), String> {
    let mut decoder = envelope::Decoder::default();
    let mut got = Vec::new();
    for chunk in chunks {
        decoder.push(&hex(chunk.as_str().unwrap()));
        while let Some(envelope) = decoder.next_envelope().map_err(|e| e.to_string())? {
            let kind = match envelope.kind() {
                envelope::Kind::Message => "msg",
                envelope::Kind::EndStream => "end",
            };
            let payload = envelope.into_payload(envelope::Encoding::Identity);
            let payload = payload.map_err(|error| error.to_string())?;
            let digits: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
            got.push(format!("{kind}:{digits}"));
        }
    }
    same("envelopes", &Json::from(got), wanted)
}

fn mcp_values_case(case: &Json) -> Result<(), String> {
    if let Some(raw) = case["raw_hex"].as_str() {
        return same(
            "text",
            &protobuf_value::decode_or_text(&hex(raw)),
            &case["decoded"]["ok"],
        );
    }
    let wire = hex(case["hex"].as_str().unwrap());
    same("bytes", &protobuf_value::encode(&case["value"]), &wire)?;
    same(
        "round trip",
        &protobuf_value::decode_or_text(&wire),
        &case["roundtrip"],
    )
}

fn checksum_case(case: &Json) -> Result<(), String> {
    let got = checksum::checksum(
        case["token"].as_str().unwrap(),
        case["now_ms"].as_u64().unwrap(),
    );
    same("checksum", &Json::from(got), &case["checksum"])
}

fn available_models_case(case: &Json) -> Result<(), String> {
    let decoded = available_models::decode(hex(case["hex"].as_str().unwrap()));
    match (decoded, case["decoded"]["throws"].as_str()) {
        // Only the messages about wire types are compared; other errors have our own text.
        (Err(error), Some(wanted)) if wanted.contains("wire type") => {
            same("error", &error.to_string().as_str(), &wanted)
        }
        (Err(_), Some(_)) => Ok(()),
        (Err(error), None) => Err(format!("failed: {error}")),
        (Ok(_), Some(wanted)) => Err(format!("decoded, wanted the error {wanted:?}")),
        (Ok(models), None) => {
            let models: Vec<Json> = models.iter().map(model_json).collect();
            same("models", &Json::from(models), &case["decoded"]["ok"])
        }
    }
}

/// The fields the vectors compare; absent ones are left out.
fn model_json(model: &available_models::AvailableModel) -> Json {
    let variants: Vec<Json> = model
        .variants
        .iter()
        .map(|variant| {
            let parameters: Vec<Json> = variant
                .parameters
                .iter()
                .map(|(id, value)| json!({"id": id, "value": value}))
                .collect();
            present(json!({
                "parameters": parameters,
                "isMaxMode": variant.is_max_mode,
                "displayName": variant.display_name,
                "isDefaultMaxConfig": variant.is_default_max_config,
                "isDefaultNonMaxConfig": variant.is_default_non_max_config,
                "displayNameOutsidePicker": variant.display_name_outside_picker,
                "variantStringRepresentation": variant.variant_string_representation,
            }))
        })
        .collect();
    present(json!({
        "name": model.name,
        "variants": variants,
        "supportsImages": model.supports_images,
        "supportsMaxMode": model.supports_max_mode,
        "contextTokenLimit": model.context_token_limit,
        "contextTokenLimitForMaxMode": model.context_token_limit_for_max_mode,
        "clientDisplayName": model.client_display_name,
        "serverModelName": model.server_model_name,
        "supportsNonMaxMode": model.supports_non_max_mode,
    }))
}

fn present(json: Json) -> Json {
    let Json::Object(object) = json else {
        unreachable!()
    };
    Json::Object(
        object
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .collect(),
    )
}

/// `execClientMessage-readResult-success` and the like: the id starts with the kind.
fn wire_message_case(case: &Json) -> Result<(), String> {
    let wire = hex(case["hex"].as_str().unwrap());
    let kind = case["id"].as_str().unwrap().split('-').next().unwrap();
    let unknown = Drift::default();
    let (got, encoded) = match case["direction"].as_str().unwrap() {
        "client" => {
            let message = AgentClientMessage::decode(wire.clone()).map_err(|e| e.to_string())?;
            unknown.inspect("agent.v1.AgentClientMessage", &wire);
            (
                variant_name(&message.message),
                field_order::client(&message),
            )
        }
        _ => {
            let message = AgentServerMessage::decode(wire.clone()).map_err(|e| e.to_string())?;
            unknown.inspect("agent.v1.AgentServerMessage", &wire);
            (
                variant_name(&message.message),
                field_order::server(&message),
            )
        }
    };
    same("kind", &got.to_lowercase(), &kind.to_lowercase())?;
    // Only a completely declared message can be encoded again.
    if unknown.counts().is_empty() {
        same("bytes", &encoded, &wire)
    } else {
        Ok(())
    }
}

/// The name of the oneof's variant, as `Debug` prints it.
fn variant_name<T: std::fmt::Debug>(message: &Option<T>) -> String {
    let text = format!("{message:?}");
    let text = text.strip_prefix("Some(").unwrap_or(&text);
    text.split(['(', ' ', '{'])
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn context_overflow_case(case: &Json) -> Result<(), String> {
    let reworded = case["input"]["errorMessage"]
        .as_str()
        .and_then(context_overflow::reword);
    same("text", &json!(reworded), &case["expected"])
}

fn final_text_case(case: &Json) -> Result<(), String> {
    let input = &case["input"];
    let text = |key: &str| input[key].as_str();
    let got = match text("op").unwrap() {
        "select" => {
            let boundary = match input["allowPartialPrefix"] {
                Json::Bool(true) => final_text::Boundary::Any,
                _ => final_text::Boundary::Word,
            };
            let deltas = input["textDeltas"].as_array().into_iter().flatten();
            let streamed: String = deltas.filter_map(Json::as_str).collect();
            let candidates = final_text::Candidates {
                result: text("resultText"),
                plan: text("planText"),
                streamed: &streamed,
                emitted: text("emittedText").unwrap_or_default(),
            };
            final_text::select(candidates, boundary).to_owned()
        }
        "trim" => {
            let turn = text("currentTurnEmitted").unwrap_or_default();
            let run = text("runEmitted").unwrap_or(turn);
            final_text::trim(text("text").unwrap_or_default(), turn, run).to_owned()
        }
        "finalAssistantText" => {
            let blocks = input["content"].as_array().cloned().unwrap_or_default();
            let blocks = blocks.iter().filter(|block| block["type"] == "text");
            let blocks: Vec<&str> = blocks.filter_map(|block| block["text"].as_str()).collect();
            final_text::last(blocks.into_iter()).to_owned()
        }
        other => return Err(format!("unknown operation {other}")),
    };
    same(
        "text",
        &got.as_str(),
        &case["expected"].as_str().unwrap_or_default(),
    )
}

fn fingerprint_case(case: &Json) -> Result<(), String> {
    let input = &case["input"];
    let reader = TranscriptReader::default();
    let of = |context: &Json| {
        let messages = context["messages"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let system = context["systemPrompt"].as_str().map(str::to_owned);
        let messages = messages.iter().map(RawMessage::from).collect();
        let read = reader.read(system, None, messages).expect("valid messages");
        (Fingerprint::of(&read.system, &read.messages), read.messages)
    };
    let stored = match (&input["storedFingerprint"], &input["before"]) {
        (Json::String(text), _) => Fingerprint::parse(text),
        (_, Json::Null) => None,
        (_, before) => Some(of(before).0),
    };
    let (now, messages) = of(&input["after"]);
    let bootstrap = now.continuity(stored.as_ref(), &messages).is_err();
    same(
        "bootstrap",
        &json!(bootstrap),
        &case["expected"]["bootstrap"],
    )
}

fn scrubber_case(case: &Json) -> Result<(), String> {
    let input = &case["input"];
    let scrubber = Scrubber::new(input["apiKey"].as_str().map(Into::into));
    let original = input.get("text").or(input.get("display"));
    let scrubbed = scrub_json(&scrubber, original.expect("a text or a display"));
    same("text", &scrubbed, &case["expected"])
}

/// Scrubs every string of a JSON value.
fn scrub_json(scrubber: &Scrubber, json: &Json) -> Json {
    match json {
        Json::String(text) => Json::from(scrubber.scrub(text).into_owned()),
        Json::Array(items) => items
            .iter()
            .map(|item| scrub_json(scrubber, item))
            .collect(),
        Json::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), scrub_json(scrubber, value)))
            .collect(),
        other => other.clone(),
    }
}
