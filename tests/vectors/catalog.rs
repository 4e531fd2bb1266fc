//! The rules of `catalog` and of the settings' texts.

use cursor_sidecar::catalog::{
    Choice, Item, Learned, Level, LevelMap, Profile, Row, Rows, Selection, Speed, Windows,
    level_map, parse_context, positive, select, time_to_live,
};
use cursor_sidecar::diag::parse::{self, NativeDisplay, Surface, TaskPresentation};
use serde_json::{Value as Json, json};

use super::{present, same};

/// Both profiles a case is for, with what it wants of each.
fn profiles(case: &Json) -> Vec<(Profile, Json)> {
    let listed = |name: &str| case["profiles"].as_array().unwrap().contains(&json!(name));
    let mut wanted = Vec::new();
    if listed("latest") {
        wanted.push((Profile::UpToMax, case["expected"].clone()));
    }
    if let Some(seed) = case.get("expectedSeed") {
        wanted.push((Profile::UpToXhigh, seed.clone()));
    } else if listed("seed") {
        wanted.push((Profile::UpToXhigh, case["expected"].clone()));
    }
    wanted
}

fn items(catalog: &Json) -> Vec<Item> {
    Item::read_list(&json!({ "items": catalog })).unwrap()
}

fn levels_json(levels: &LevelMap) -> Json {
    levels
        .iter()
        .map(|(level, value)| (level.name().to_owned(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn params_json(choices: &[Choice]) -> Json {
    serde_json::to_value(choices).unwrap()
}

pub(crate) fn thinking(case: &Json) -> Result<(), String> {
    let item = Item::read(&json!({"id": "m", "parameters": case["input"]["parameters"]})).unwrap();
    for (profile, wanted) in profiles(case) {
        let map = level_map(&item, profile);
        let got = json!({
            "reasoning": map.is_some(),
            "thinkingLevelMap": map.as_ref().map(levels_json),
        });
        same("map", &got, &wanted)?;
    }
    Ok(())
}

/// Rows that stand for a speed are not wanted.
fn is_row(id: &str) -> bool {
    !id.ends_with(":fast") && !id.ends_with(":slow")
}

fn without_speeds(rows: &Json, id: &str) -> Vec<Json> {
    let rows = rows.as_array().unwrap().iter();
    rows.filter(|row| is_row(row[id].as_str().unwrap()))
        .cloned()
        .collect()
}

pub(crate) fn aliases(case: &Json) -> Result<(), String> {
    let rows = Rows::build(
        &items(&case["input"]["catalog"]),
        Profile::UpToMax,
        &Windows::default(),
    );
    let got: Vec<Json> = rows
        .iter()
        .map(|row| {
            json!({"piModelId": row.id, "name": row.name,
                   "baseModelId": row.base(), "selectionModelId": row.selection})
        })
        .collect();
    let wanted = without_speeds(&case["expected"]["rows"], "piModelId");
    same("rows", &got, &wanted)
}

fn row_json(row: &Row) -> Json {
    present(json!({
        "id": row.id, "name": row.name, "reasoning": row.levels.is_some(),
        "thinkingLevelMap": row.levels.as_ref().map(levels_json),
        "input": ["text", "image"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": row.window, "maxTokens": cursor_sidecar::catalog::MAX_OUTPUT,
    }))
}

fn metadata_json(row: &Row) -> Json {
    let has = |id: &str| row.item.parameter(id).is_some();
    present(json!({
        "piModelId": row.id, "baseModelId": row.base(), "selectionModelId": row.selection,
        "displayName": row.item.name(), "defaultParams": params_json(&row.defaults),
        "context": row.context, "contextWindow": row.window,
        "supportsFast": row.speed().is_some(),
        // Of the defaults alone: a variant may be fast without there being a choice.
        "defaultFast": row.defaults.iter().any(|choice| {
            choice.id == "fast" && choice.value.eq_ignore_ascii_case("true")
        }),
        "supportsReasoning": row.levels.is_some(),
        "thinkingLevelMap": row.levels.as_ref().map(levels_json),
        "parameterIds": {"context": has("context"), "reasoning": has("reasoning"),
            "effort": has("effort"), "thinking": has("thinking"), "fast": has("fast")},
    }))
}

pub(crate) fn registration(case: &Json) -> Result<(), String> {
    let input = &case["input"];
    let windows = match (
        &input["userContextWindowsRaw"],
        &input["userContextWindows"],
    ) {
        (Json::String(raw), _) => raw.clone(),
        (_, Json::Null) => String::new(),
        (_, windows) => json!({ "contextWindows": windows }).to_string(),
    };
    for (profile, wanted) in profiles(case) {
        let rows = Rows::build(
            &items(&input["catalog"]),
            profile,
            &Windows::parse(&windows),
        );
        if let Some(windows) = wanted["contextWindows"].as_object() {
            let got = rows.iter().map(|row| (row.id.clone(), json!(row.window)));
            let wanted = windows.iter().filter(|(id, _)| is_row(id));
            let wanted = wanted.map(|(id, window)| (id.clone(), window.clone()));
            let (got, wanted): (Vec<_>, Vec<_>) = (got.collect(), wanted.collect());
            same("windows", &got, &wanted)?;
            continue;
        }
        let got: Vec<Json> = rows.iter().map(row_json).collect();
        same("rows", &got, &without_speeds(&wanted["rows"], "id"))?;
        let got: Vec<Json> = rows.iter().map(metadata_json).collect();
        let wanted = without_speeds(&wanted["metadata"], "piModelId");
        same("metadata", &got, &wanted)?;
    }
    Ok(())
}

/// The catalogue stands in a case of its own, which the others name.
pub(crate) fn selection(case: &Json, all: &[Json]) -> Result<(), String> {
    let input = &case["input"];
    let Some(reference) = input["catalogRef"].as_str() else {
        return Ok(());
    };
    let is_it = |case: &&Json| case["id"] == reference;
    // A part of the cases may come without it.
    let whole = super::cases(&super::public().join("model-selection.json")).unwrap_or_default();
    let catalog = all.iter().find(is_it).or(whole.iter().find(is_it));
    let items = items(&catalog.ok_or("no such catalogue")?["input"][reference]);
    let id = input["piModelId"].as_str().unwrap();
    let level = Level::parse(input["thinkingLevel"].as_str().unwrap());
    let asked = input["fast"].as_bool().map(Speed::from_switch);
    for (profile, wanted) in profiles(case) {
        let rows = Rows::build(&items, profile, &Windows::default());
        let selected = match rows.find(id) {
            // The bare id of a model with contexts is no row, so hosts do not send it.
            Ok(found) if id.starts_with(&found.row.id) => {
                select(found.row, level, asked.or(found.speed))
            }
            _ => Selection::plain(id),
        };
        let params = Some(&selected.parameters).filter(|parameters| !parameters.is_empty());
        let got = present(json!({
            "id": selected.id, "params": params.map(|parameters| params_json(parameters)),
        }));
        same("selection", &got, &wanted)?;
    }
    Ok(())
}

pub(crate) fn context_window(case: &Json) -> Result<(), String> {
    let input = &case["input"];
    match input["op"].as_str().unwrap() {
        "parse" => {
            let got = parse_context(input["value"].as_str().unwrap_or_default());
            same("window", &json!(got), &case["expected"])
        }
        "checkpoint" => {
            let got = positive(&input["checkpoint"]["tokenDetails"]["maxTokens"]);
            same("window", &json!(got), &case["expected"])
        }
        "save" => {
            let before = json!({ "contextWindows": input["before"] }).to_string();
            let mut windows = Windows::parse(&before);
            let tokens = positive(&input["contextWindow"]).unwrap_or(0);
            let learned = windows.learn(input["modelId"].as_str().unwrap(), tokens);
            // A file nothing is learned for stays as it is, whatever stands in it.
            let file = match (learned, &input["before"]) {
                (Learned::Something, _) => windows.to_json(),
                (Learned::Nothing, Json::Null) => Json::Null,
                (Learned::Nothing, before) => json!({ "contextWindows": before }),
            };
            same("file", &file, &case["expected"]["file"])?;
            let keys: Vec<&String> = file["contextWindows"]
                .as_object()
                .into_iter()
                .flat_map(|windows| windows.keys())
                .collect();
            match &case["expected"]["keyOrder"] {
                Json::Null => Ok(()),
                wanted => same("order", &json!(keys), wanted),
            }
        }
        // Not a case: the table itself, which the bundled one holds.
        "table" => Ok(()),
        other => Err(format!("unknown operation {other}")),
    }
}

pub(crate) fn settings(case: &Json) -> Result<(), String> {
    let input = &case["input"];
    let value = input["value"].as_str();
    let env = |name: &str| input["env"][name].as_str().map(str::to_owned);
    let millis = |time: std::time::Duration| json!(time.as_millis() as u64);
    let got = match input["op"].as_str().unwrap() {
        "bool" => {
            let switch = parse::switch(value);
            json!({"optional": switch, "defaultTrue": switch.unwrap_or(true),
                   "defaultFalse": switch.unwrap_or(false)})
        }
        "toolTimeoutMs" => millis(parse::tool_timeout(&env)),
        "connectTimeoutMs" => millis(parse::connect_timeout(&env)),
        "bridgeCallTimeoutMs" => millis(parse::bridge_call_timeout(&env)),
        "settingSources" => json!(parse::setting_sources(value)),
        "modelCacheTtlMs" => millis(time_to_live(value)),
        "taskPresentation" => {
            let mode = TaskPresentation::parse(value).name();
            return same("mode", &json!(mode), &case["expected"]["mode"]);
        }
        "nativeDisplay" => {
            let known = match input["mode"].as_str() {
                None => None,
                Some("print") => Some(Surface::Print),
                Some("tui" | "json" | "rpc") => Some(Surface::Cards),
                Some(other) => return Err(format!("unknown mode {other}")),
            };
            let terminal = match input["stdoutIsTty"].as_bool() {
                Some(true) => Surface::Cards,
                _ => Surface::Print,
            };
            let got = NativeDisplay::resolve(
                known.unwrap_or(terminal),
                known,
                input["PI_CURSOR_NATIVE_TOOL_DISPLAY"].as_str(),
                input["PI_CURSOR_REGISTER_NATIVE_TOOLS"].as_str(),
            );
            json!({"displayRequested": got.display, "registrationRequested": got.registration})
        }
        other => return Err(format!("unknown operation {other}")),
    };
    same("value", &got, &case["expected"])
}
