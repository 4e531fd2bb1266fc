//! Cursor's models as rows a host can register, and the way back from a row's id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::collate;
use super::item::{Choice, Item};
use super::nearest::{UnknownModel, nearest};
use super::selection::Speed;
use super::thinking::{LevelMap, Profile, level_map};
use super::windows::Windows;

/// Tokens a row may write: Cursor does not say, so this is cautious.
pub const MAX_OUTPUT: u32 = 16_384;

/// One row: a model, or one context size of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What the host calls it: `base`, `base@context`, or the same with an alias.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// What Cursor calls it: the model's id or one of its aliases.
    pub selection: String,
    /// The model.
    pub item: Arc<Item>,
    /// The context size it stands for.
    pub context: Option<String>,
    /// What is sent when nothing is chosen.
    pub defaults: Vec<Choice>,
    /// Tokens its context holds.
    pub window: u32,
    /// What the host's thinking levels are to it; `None` if they are nothing.
    pub levels: Option<LevelMap>,
}

impl Row {
    /// The model's own id, which preferences are kept by.
    pub fn base(&self) -> &str {
        &self.item.id
    }

    /// Whether it can be fast, and what it is unasked.
    pub fn speed(&self) -> Option<Speed> {
        self.item.parameter("fast")?;
        let default = self.defaults.iter().find(|choice| choice.id == "fast");
        Some(match default {
            Some(choice) if choice.value.eq_ignore_ascii_case("true") => Speed::Fast,
            _ => Speed::Normal,
        })
    }
}

/// Every row of a catalogue, in the order a host should show them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rows(Vec<Row>);

/// A row and the speed the asked id names with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found<'r> {
    /// The row.
    pub row: &'r Row,
    /// The speed, if the id ends in one.
    pub speed: Option<Speed>,
}

impl std::ops::Deref for Rows {
    type Target = [Row];

    fn deref(&self) -> &[Row] {
        &self.0
    }
}

impl Rows {
    /// The rows of a catalogue for a host with these thinking levels.
    pub fn build(items: &[Item], profile: Profile, windows: &Windows) -> Self {
        let mut sorted: Vec<Arc<Item>> = items.iter().cloned().map(Arc::new).collect();
        sorted.sort_by_cached_key(|item| collate::key(&item.id));
        let owners = owners(items);
        let mut rows: Vec<Row> = Vec::new();
        let mut taken = BTreeSet::new();
        for item in sorted {
            let levels = level_map(&item, profile);
            let own = unambiguous(&item, &owners);
            for selection in std::iter::once(item.id.as_str()).chain(own) {
                for context in contexts(&item) {
                    let row = row(&item, selection, context, levels.clone(), windows);
                    if taken.insert(row.id.clone()) {
                        rows.push(row);
                    }
                }
            }
        }
        Self(rows)
    }

    /// The row of an id. Besides rows' own ids: the bare id of a model with several contexts
    /// (its default one), and `:fast` or `:slow` behind an id, as other clients write them.
    pub fn find(&self, id: &str) -> Result<Found<'_>, UnknownModel> {
        if let Some(row) = self.exact(id).or_else(|| self.bare(id)) {
            return Ok(Found { row, speed: None });
        }
        for (suffix, speed) in [(":fast", Speed::Fast), (":slow", Speed::Normal)] {
            let stem = id.strip_suffix(suffix);
            let row = stem.and_then(|stem| self.exact(stem).or_else(|| self.bare(stem)));
            if let Some(row) = row.filter(|row| row.speed().is_some()) {
                return Ok(Found {
                    row,
                    speed: Some(speed),
                });
            }
        }
        Err(UnknownModel {
            id: id.to_owned(),
            nearest: nearest(id, self.0.iter().map(|row| row.id.as_str())),
        })
    }

    fn exact(&self, id: &str) -> Option<&Row> {
        self.0.iter().find(|row| row.id == id)
    }

    fn bare(&self, id: &str) -> Option<&Row> {
        let mut contexts = self.0.iter().filter(|row| row.selection == id).peekable();
        let first = *contexts.peek()?;
        let usual = first.item.defaults().iter().find(|c| c.id == "context");
        let usual = usual.map(|choice| choice.value.as_str());
        Some(
            contexts
                .find(|row| row.context.as_deref() == usual)
                .unwrap_or(first),
        )
    }
}

/// The model an id or an alias means: its own id. What nobody knows, or may mean two models,
/// stays as it is.
pub fn base<'i>(items: &'i [Item], name: &'i str) -> &'i str {
    let owners = owners(items);
    let means = |item: &&Item| item.id == name || unambiguous(item, &owners).contains(&name);
    items.iter().find(means).map_or(name, |item| &item.id)
}

/// Which models each id or alias may mean.
fn owners(items: &[Item]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut owners: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for item in items {
        let aliases = item.aliases.iter().map(|alias| alias.trim());
        for name in aliases.chain([item.id.as_str()]) {
            owners.entry(name).or_default().insert(&item.id);
        }
    }
    owners
}

/// A model's aliases that mean it and nothing else. An alias that two models share, or that is
/// a model's own id, may be resolved by Cursor to another model than the row shows.
fn unambiguous<'i>(item: &'i Item, owners: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<&'i str> {
    let mut own: Vec<&str> = Vec::new();
    for alias in item.aliases.iter().map(|alias| alias.trim()) {
        let means = owners.get(alias);
        let usable = !alias.is_empty()
            && means.is_some_and(|owners| owners.len() == 1 && !owners.contains(alias))
            // Behind an id these two mean a speed.
            && !alias.ends_with(":fast")
            && !alias.ends_with(":slow");
        if usable && !own.contains(&alias) {
            own.push(alias);
        }
    }
    own
}

/// The context sizes of a model; one row without any if it has no choice.
fn contexts(item: &Item) -> Vec<Option<&str>> {
    match item.parameter("context") {
        Some(parameter) if !parameter.values.is_empty() => parameter
            .values
            .iter()
            // A context without a name is the usual one.
            .map(|value| Some(value.value.as_str()).filter(|context| !context.is_empty()))
            .collect(),
        _ => vec![None],
    }
}

fn row(
    item: &Arc<Item>,
    selection: &str,
    context: Option<&str>,
    levels: Option<LevelMap>,
    windows: &Windows,
) -> Row {
    let mut id = selection.to_owned();
    let mut name = item.name().to_owned();
    let mut defaults = item.defaults_with(context).to_vec();
    if selection != item.id {
        name.push_str(&format!(" ({selection})"));
    }
    if let Some(context) = context {
        id.push_str(&format!("@{context}"));
        name.push_str(&format!(" @ {context}"));
        super::selection::set(&mut defaults, "context", context);
    }
    let own = match item.is_max_mode(context) {
        true => item.max_context_window.or(item.context_window),
        false => item.context_window,
    };
    Row {
        window: windows.of_row(&id, context, own, &item.id),
        id,
        name,
        selection: selection.to_owned(),
        item: Arc::clone(item),
        context: context.map(str::to_owned),
        defaults,
        levels,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows(items: serde_json::Value) -> Rows {
        let items = Item::read_list(&json!({"items": items})).unwrap();
        Rows::build(&items, Profile::UpToMax, &Windows::default())
    }

    fn contexts_and_fast() -> Rows {
        rows(json!([
            {"id": "big", "aliases": ["huge"], "parameters": [
                {"id": "context", "values": ["1m", "200k"]}, {"id": "fast", "values": ["false", "true"]}],
             "variants": [{"params": [{"id": "context", "value": "200k"}]}]},
            {"id": "plain", "contextWindow": 90_000},
        ]))
    }

    #[test]
    fn ids_besides_the_rows_own() {
        let rows = contexts_and_fast();
        let found = |id: &str| {
            rows.find(id)
                .map(|found| (found.row.id.as_str(), found.speed))
        };
        assert_eq!(found("big"), Ok(("big@200k", None)), "the default context");
        assert_eq!(found("huge"), Ok(("huge@200k", None)));
        assert_eq!(found("big@1m:fast"), Ok(("big@1m", Some(Speed::Fast))));
        assert_eq!(found("big:slow"), Ok(("big@200k", Some(Speed::Normal))));
        assert!(found("plain:fast").is_err(), "it cannot be fast");
        assert!(found("big@9m").is_err());
    }

    #[test]
    fn what_the_catalogue_says_of_a_window_is_believed() {
        let rows = contexts_and_fast();
        let windows: Vec<_> = rows
            .iter()
            .map(|row| (row.id.as_str(), row.window))
            .collect();
        assert_eq!(
            windows,
            [
                ("big@1m", 1_000_000),
                ("big@200k", 200_000),
                ("huge@1m", 1_000_000),
                ("huge@200k", 200_000),
                ("plain", 90_000),
            ]
        );
    }

    #[test]
    fn max_mode_has_a_window_and_defaults_of_its_own() {
        let variant = |context: &str, thinking: &str, max: bool| {
            json!({"params": [{"id": "context", "value": context}, {"id": "thinking", "value": thinking}],
                   "isMaxMode": max, "isDefault": !max, "isDefaultMax": max})
        };
        let rows = rows(json!([
            {"id": "m", "parameters": [{"id": "context", "values": ["usual", "large"]}],
             "variants": [variant("usual", "false", false), variant("large", "true", true)],
             "contextWindow": 90_000, "maxContextWindow": 900_000},
        ]));
        let told: Vec<_> = rows
            .iter()
            .map(|row| (row.id.as_str(), row.window, row.defaults[1].value.as_str()))
            .collect();
        let wanted = [("m@usual", 90_000, "false"), ("m@large", 900_000, "true")];
        assert_eq!(told, wanted);
    }

    #[test]
    fn an_alias_is_its_model_if_it_means_one() {
        let items = json!({"items": [
            {"id": "a", "aliases": ["x", "both", "b"]}, {"id": "b", "aliases": ["both"]},
        ]});
        let items = Item::read_list(&items).unwrap();
        let of = |name| base(&items, name);
        assert_eq!(
            ["a", "x", "b", "both", "new"].map(of),
            ["a", "a", "b", "both", "new"]
        );
    }

    #[test]
    fn a_model_told_twice_is_one_row() {
        let rows = rows(json!([
            {"id": "a", "displayName": "First", "aliases": ["x"]},
            {"id": "a", "displayName": "Second", "aliases": ["x", "y"]},
        ]));
        let names: Vec<_> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["First", "First (x)", "Second (y)"]);
    }
}
