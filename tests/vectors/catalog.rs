//! Test vectors of `catalog` and of the parsing of settings.

use agent::catalog::{
    CatalogModel, ContextWindows, HostModel, HostModels, LevelMap, LevelRange, ModelSelection,
    ParameterChoice, Speed, ThinkingLevel, level_map, parse_context_size, positive_u32, select,
};
use cursor_sidecar::config::parse::{self, DisplaySurface, NativeDisplay, TaskPresentation};
use cursor_sidecar::config::{Environment, Values};
use serde_json::{Value as Json, json};

use super::{present, same};

/// Returns the level ranges that a case applies to, with the expected result for each.
fn ranges(case: &Json) -> Vec<(LevelRange, Json)> {
    let listed = |name: &str| case["profiles"].as_array().unwrap().contains(&json!(name));
    let mut wanted = Vec::new();
    if listed("latest") {
        wanted.push((LevelRange::UpToMax, case["expected"].clone()));
    }
    if let Some(seed) = case.get("expectedSeed") {
        wanted.push((LevelRange::UpToXhigh, seed.clone()));
    } else if listed("seed") {
        wanted.push((LevelRange::UpToXhigh, case["expected"].clone()));
    }
    wanted
}

fn items(catalog: &Json) -> Vec<CatalogModel> {
    CatalogModel::list_from_json(&json!({ "items": catalog })).unwrap()
}

fn levels_json(levels: &LevelMap) -> Json {
    levels
        .iter()
        .map(|(level, value)| (level.name().to_owned(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn params_json(choices: &[ParameterChoice]) -> Json {
    serde_json::to_value(choices).unwrap()
}

pub(crate) fn thinking(case: &Json) -> Result<(), String> {
    let model =
        CatalogModel::from_json(&json!({"id": "m", "parameters": case["input"]["parameters"]}))
            .unwrap();
    for (range, wanted) in ranges(case) {
        let map = level_map(&model, range);
        let got = json!({
            "reasoning": map.is_some(),
            "thinkingLevelMap": map.as_ref().map(levels_json),
        });
        same("map", &got, &wanted)?;
    }
    Ok(())
}

/// Entries with a speed suffix are not registered by us.
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
    let rows = HostModels::build(
        &items(&case["input"]["catalog"]),
        LevelRange::UpToMax,
        &ContextWindows::default(),
    );
    let got: Vec<Json> = rows
        .iter()
        .map(|row| {
            json!({"piModelId": row.id, "name": row.name,
                   "baseModelId": row.base_id(), "selectionModelId": row.cursor_id})
        })
        .collect();
    let wanted = without_speeds(&case["expected"]["rows"], "piModelId");
    same("rows", &got, &wanted)
}

fn row_json(row: &HostModel) -> Json {
    present(json!({
        "id": row.id, "name": row.name, "reasoning": row.levels.is_some(),
        "thinkingLevelMap": row.levels.as_ref().map(levels_json),
        "input": ["text", "image"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": row.context_window, "maxTokens": agent::catalog::MAX_OUTPUT,
    }))
}

fn metadata_json(row: &HostModel) -> Json {
    let has = |id: &str| row.base.parameter(id).is_some();
    present(json!({
        "piModelId": row.id, "baseModelId": row.base_id(), "selectionModelId": row.cursor_id,
        "displayName": row.base.name(), "defaultParams": params_json(&row.defaults),
        "context": row.context, "contextWindow": row.context_window,
        "supportsFast": row.speed().is_some(),
        // From the defaults only: a variant may be fast even if the model has no `fast` parameter.
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
    for (range, wanted) in ranges(case) {
        let rows = HostModels::build(
            &items(&input["catalog"]),
            range,
            &ContextWindows::parse(&windows),
        );
        if let Some(windows) = wanted["contextWindows"].as_object() {
            let got = rows
                .iter()
                .map(|row| (row.id.clone(), json!(row.context_window)));
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

/// The catalog is a case of its own, which the other cases refer to.
pub(crate) fn selection(case: &Json, all: &[Json]) -> Result<(), String> {
    let input = &case["input"];
    let Some(reference) = input["catalogRef"].as_str() else {
        return Ok(());
    };
    let is_it = |case: &&Json| case["id"] == reference;
    // A subset of the cases may not contain it.
    let whole = super::cases(&super::public().join("model-selection.json")).unwrap_or_default();
    let catalog = all.iter().find(is_it).or(whole.iter().find(is_it));
    let items = items(&catalog.ok_or("no such catalog")?["input"][reference]);
    let id = input["piModelId"].as_str().unwrap();
    let level = ThinkingLevel::parse(input["thinkingLevel"].as_str().unwrap());
    let asked = input["fast"].as_bool().map(Speed::from_switch);
    for (range, wanted) in ranges(case) {
        let rows = HostModels::build(&items, range, &ContextWindows::default());
        let selected = match rows.find(id) {
            // The bare id of a model with context sizes is not registered, so hosts do not send it.
            Ok(found) if id.starts_with(&found.model.id) => {
                select(found.model, level, asked.or(found.speed))
            }
            _ => ModelSelection::without_parameters(id),
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
            let got = parse_context_size(input["value"].as_str().unwrap_or_default());
            same("window", &json!(got), &case["expected"])
        }
        "checkpoint" => {
            let got = positive_u32(&input["checkpoint"]["tokenDetails"]["maxTokens"]);
            same("window", &json!(got), &case["expected"])
        }
        "save" => {
            let before = json!({ "contextWindows": input["before"] }).to_string();
            let mut windows = ContextWindows::parse(&before);
            let tokens = positive_u32(&input["contextWindow"]).unwrap_or(0);
            let changed = windows.learn(input["modelId"].as_str().unwrap(), tokens);
            // If nothing is learned, the file is not written.
            let file = match &input["before"] {
                _ if changed => windows.to_json(),
                Json::Null => Json::Null,
                before => json!({ "contextWindows": before }),
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
        // Not a case: the table itself, which is part of the bundled list.
        "table" => Ok(()),
        other => Err(format!("unknown operation {other}")),
    }
}

pub(crate) fn settings(case: &Json) -> Result<(), String> {
    let input = &case["input"];
    let value = input["value"].as_str();
    let variables = input["env"].as_object().into_iter().flatten();
    let variables = variables
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect::<Environment>();
    let values = Values::from(&variables);
    let millis = |time: std::time::Duration| json!(time.as_millis() as u64);
    let got = match input["op"].as_str().unwrap() {
        "bool" => {
            let switch = parse::switch(value);
            json!({"optional": switch, "defaultTrue": switch.unwrap_or(true),
                   "defaultFalse": switch.unwrap_or(false)})
        }
        "toolTimeoutMs" => millis(parse::tool_timeout(&values)),
        "connectTimeoutMs" => millis(parse::connect_timeout(&values)),
        "bridgeCallTimeoutMs" => millis(parse::bridge_call_timeout(&values)),
        "settingSources" => json!(parse::setting_sources(value)),
        "modelCacheTtlMs" => millis(parse::model_cache_ttl(value)),
        "taskPresentation" => {
            let mode = TaskPresentation::parse(value).name();
            return same("mode", &json!(mode), &case["expected"]["mode"]);
        }
        "nativeDisplay" => {
            let known = match input["mode"].as_str() {
                None => None,
                Some("print") => Some(DisplaySurface::Print),
                Some("tui" | "json" | "rpc") => Some(DisplaySurface::Cards),
                Some(other) => return Err(format!("unknown mode {other}")),
            };
            let terminal = match input["stdoutIsTty"].as_bool() {
                Some(true) => DisplaySurface::Cards,
                _ => DisplaySurface::Print,
            };
            let got = NativeDisplay::resolve(
                known.unwrap_or(terminal),
                known,
                parse::switch(input["PI_CURSOR_NATIVE_TOOL_DISPLAY"].as_str()),
                parse::switch(input["PI_CURSOR_REGISTER_NATIVE_TOOLS"].as_str()),
            );
            json!({"displayRequested": got.display, "registrationRequested": got.registration})
        }
        other => return Err(format!("unknown operation {other}")),
    };
    same("value", &got, &case["expected"])
}
