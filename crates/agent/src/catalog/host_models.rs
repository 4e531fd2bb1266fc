//! Cursor's models as a host registers them, and lookup by the host's model id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::context_window::ContextWindows;
use super::model::{CatalogModel, ParameterChoice};
use super::selection::{Speed, set_parameter};
use super::sort_key::sort_key;
use super::suggest::{UnknownModel, similar_ids};
use super::thinking::{LevelMap, LevelRange, level_map};

/// Maximum output tokens. A conservative value, because Cursor does not report it.
pub const MAX_OUTPUT: u32 = 16_384;

/// A model as the host sees it: a Cursor model, or one context size of it.
#[derive(Debug, Clone, PartialEq)]
pub struct HostModel {
    /// The host's id: `base`, `base@context`, or the same with an alias; followed by
    /// `@parameter=value` if it selects a value of a parameter of another kind.
    pub id: String,
    /// The display name.
    pub name: String,
    /// Cursor's id: the id of the base model or one of its aliases.
    pub cursor_id: String,
    /// The base model.
    pub base: Arc<CatalogModel>,
    /// The context size, if the base model has several.
    pub context: Option<String>,
    /// The value this entry selects of a parameter that is neither context, thinking nor speed.
    pub choice: Option<ParameterChoice>,
    /// The parameters sent by default.
    pub defaults: Vec<ParameterChoice>,
    /// Context window in tokens.
    pub context_window: u32,
    /// The parameter value of each thinking level; `None` if thinking cannot be controlled.
    pub levels: Option<LevelMap>,
}

impl HostModel {
    /// The id of the base model, which preferences are stored by.
    pub fn base_id(&self) -> &str {
        &self.base.id
    }

    /// Whether it accepts images; Cursor does not say so for every model.
    pub fn accepts_images(&self) -> bool {
        self.base.supports_images != Some(false)
    }

    /// Returns the default speed; `None` if the model has no fast mode with this context size.
    pub fn speed(&self) -> Option<Speed> {
        self.base.parameter("fast")?;
        if !self.can_be_fast() {
            return None;
        }
        let default = self.defaults.iter().find(|choice| choice.id == "fast");
        Some(match default {
            Some(choice) if choice.value.eq_ignore_ascii_case("true") => Speed::Fast,
            _ => Speed::Normal,
        })
    }

    pub(super) fn can_be_fast(&self) -> bool {
        let selected = self.context.as_deref().map(|size| ("context", size));
        let choice = self.choice.as_ref();
        let choice = choice.map(|choice| (choice.id.as_str(), choice.value.as_str()));
        let mut selected = selected.into_iter().chain(choice);
        selected.all(|one| self.base.allows_together(one, ("fast", "true")))
    }
}

/// The host models of a catalog, in display order. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostModels(Arc<Vec<HostModel>>);

/// The result of a lookup by id.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelLookup<'r> {
    /// The model.
    pub model: &'r HostModel,
    /// The speed, if the id has a speed suffix.
    pub speed: Option<Speed>,
}

impl std::ops::Deref for HostModels {
    type Target = [HostModel];

    fn deref(&self) -> &[HostModel] {
        &self.0
    }
}

impl HostModels {
    /// Builds the models of a catalog for a host with these thinking levels.
    pub fn build(catalog: &[CatalogModel], profile: LevelRange, windows: &ContextWindows) -> Self {
        let mut sorted: Vec<Arc<CatalogModel>> = catalog.iter().cloned().map(Arc::new).collect();
        sorted.sort_by_cached_key(|base| sort_key(&base.id));
        let owners = owners(catalog);
        let mut models: Vec<HostModel> = Vec::new();
        let mut seen_ids = BTreeSet::new();
        for base in sorted {
            let levels = level_map(&base, profile);
            let aliases = unambiguous_aliases(&base, &owners);
            for cursor_id in std::iter::once(base.id.as_str()).chain(aliases) {
                for context in contexts(&base) {
                    let model = host_model(&base, cursor_id, context, levels.clone(), windows);
                    let others = if cursor_id == base.id {
                        with_other_parameters(&model)
                    } else {
                        Vec::new()
                    };
                    for model in std::iter::once(model).chain(others) {
                        if seen_ids.insert(model.id.clone()) {
                            models.push(model);
                        }
                    }
                }
            }
        }
        Self(Arc::new(models))
    }

    /// Returns the model with an id. Also accepts the bare id of a model with several context
    /// sizes, which selects the default one, and the suffixes `:fast` and `:slow`, which other
    /// clients use.
    pub fn find(&self, id: &str) -> Result<ModelLookup<'_>, UnknownModel> {
        if let Some(model) = self.exact(id).or_else(|| self.bare(id)) {
            return Ok(ModelLookup { model, speed: None });
        }
        for (suffix, speed) in [(":fast", Speed::Fast), (":slow", Speed::Normal)] {
            let Some(stem) = id.strip_suffix(suffix) else {
                continue;
            };
            let has_speed = |model: &&HostModel| model.speed().is_some();
            let model = self.exact(stem).or_else(|| self.bare(stem));
            let model = model.filter(has_speed).or_else(|| {
                // The default context size may have no fast mode where another one has it.
                let mut sizes = self.0.iter().filter(|model| model.cursor_id == stem);
                sizes.find(has_speed)
            });
            if let Some(model) = model {
                return Ok(ModelLookup {
                    model,
                    speed: Some(speed),
                });
            }
        }
        Err(UnknownModel {
            id: id.to_owned(),
            suggestions: similar_ids(id, self.0.iter().map(|model| model.id.as_str())),
        })
    }

    fn exact(&self, id: &str) -> Option<&HostModel> {
        self.0.iter().find(|model| model.id == id)
    }

    fn bare(&self, id: &str) -> Option<&HostModel> {
        let mut contexts = self
            .0
            .iter()
            .filter(|model| model.cursor_id == id && model.choice.is_none())
            .peekable();
        let first = *contexts.peek()?;
        let default_context = first.base.defaults().iter().find(|c| c.id == "context");
        let default_context = default_context.map(|choice| choice.value.as_str());
        Some(
            contexts
                .find(|model| model.context.as_deref() == default_context)
                .unwrap_or(first),
        )
    }
}

/// Returns the base model id for an id or an alias. An unknown or ambiguous name is returned
/// unchanged.
pub fn base_id<'i>(catalog: &'i [CatalogModel], name: &'i str) -> &'i str {
    let owners = owners(catalog);
    let matches = |base: &&CatalogModel| {
        base.id == name || unambiguous_aliases(base, &owners).contains(&name)
    };
    catalog.iter().find(matches).map_or(name, |base| &base.id)
}

/// Returns which models each id or alias may refer to.
fn owners(catalog: &[CatalogModel]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut owners: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for base in catalog {
        let aliases = base.aliases.iter().map(|alias| alias.trim());
        for name in aliases.chain([base.id.as_str()]) {
            owners.entry(name).or_default().insert(&base.id);
        }
    }
    owners
}

/// Returns the aliases that refer to this model only. Cursor may resolve an alias that two models
/// share, or that is the id of another model, to a different model than we display.
fn unambiguous_aliases<'i>(
    base: &'i CatalogModel,
    owners: &BTreeMap<&str, BTreeSet<&str>>,
) -> Vec<&'i str> {
    let mut aliases: Vec<&str> = Vec::new();
    for alias in base.aliases.iter().map(|alias| alias.trim()) {
        let models = owners.get(alias);
        let usable = !alias.is_empty()
            && models.is_some_and(|owners| owners.len() == 1 && !owners.contains(alias))
            // As suffixes these two select a speed.
            && !alias.ends_with(":fast")
            && !alias.ends_with(":slow");
        if usable && !aliases.contains(&alias) {
            aliases.push(alias);
        }
    }
    aliases
}

/// Returns the context sizes of a model; a single `None` if it has no such parameter.
fn contexts(base: &CatalogModel) -> Vec<Option<&str>> {
    match base.parameter("context") {
        Some(parameter) if !parameter.values.is_empty() => parameter
            .values
            .iter()
            // An empty value stands for the default size.
            .map(|value| Some(value.value.as_str()).filter(|context| !context.is_empty()))
            .collect(),
        _ => vec![None],
    }
}

fn host_model(
    base: &Arc<CatalogModel>,
    cursor_id: &str,
    context: Option<&str>,
    levels: Option<LevelMap>,
    windows: &ContextWindows,
) -> HostModel {
    let mut id = cursor_id.to_owned();
    let mut name = base.name().to_owned();
    let mut defaults = base.defaults_with(context).to_vec();
    if cursor_id != base.id {
        name.push_str(&format!(" ({cursor_id})"));
    }
    if let Some(context) = context {
        id.push_str(&format!("@{context}"));
        name.push_str(&format!(" @ {context}"));
        set_parameter(&mut defaults, "context", context);
    }
    let reported = if base.is_max_mode(context) {
        base.max_context_window.or(base.context_window)
    } else {
        base.context_window
    };
    let mut model = HostModel {
        context_window: windows.resolve(&id, context, reported, &base.id),
        id,
        name,
        cursor_id: cursor_id.to_owned(),
        base: Arc::clone(base),
        context: context.map(str::to_owned),
        choice: None,
        defaults,
        levels,
    };
    if let Some(fast) = base.parameter("fast").filter(|_| !model.can_be_fast()) {
        let normal = fast.spelling("false").unwrap_or("false");
        set_parameter(&mut model.defaults, "fast", normal);
    }
    model
}

/// Returns an entry for each other value of the parameters whose kind is not known here.
fn with_other_parameters(model: &HostModel) -> Vec<HostModel> {
    let default = |id: &str| {
        let mut defaults = model.defaults.iter();
        defaults.find(|choice| choice.id == id)
    };
    let mut entries = Vec::new();
    for parameter in model.base.other_parameters() {
        for value in &parameter.values {
            let (id, value) = (&parameter.id, &value.value);
            if default(id).is_some_and(|choice| choice.value == *value) {
                continue;
            }
            let mut entry = model.clone();
            entry.id.push_str(&format!("@{id}={value}"));
            entry.name.push_str(&format!(" @ {id} {value}"));
            set_parameter(&mut entry.defaults, id, value);
            entry.choice = Some(ParameterChoice {
                id: id.clone(),
                value: value.clone(),
            });
            entries.push(entry);
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn models(catalog: serde_json::Value) -> HostModels {
        let catalog = CatalogModel::list_from_json(&json!({"items": catalog})).unwrap();
        HostModels::build(&catalog, LevelRange::UpToMax, &ContextWindows::default())
    }

    fn contexts_and_fast() -> HostModels {
        models(json!([
            {"id": "big", "aliases": ["huge"], "parameters": [
                {"id": "context", "values": ["1m", "200k"]}, {"id": "fast", "values": ["false", "true"]}],
             "variants": [{"params": [{"id": "context", "value": "200k"}]}]},
            {"id": "plain", "contextWindow": 90_000},
        ]))
    }

    #[test]
    fn bare_ids_and_speed_suffixes_are_found() {
        let models = contexts_and_fast();
        let found = |id: &str| {
            models
                .find(id)
                .map(|found| (found.model.id.as_str(), found.speed))
        };
        assert_eq!(found("big"), Ok(("big@200k", None)), "the default context");
        assert_eq!(found("huge"), Ok(("huge@200k", None)));
        assert_eq!(found("big@1m:fast"), Ok(("big@1m", Some(Speed::Fast))));
        assert_eq!(found("big:slow"), Ok(("big@200k", Some(Speed::Normal))));
        assert!(found("plain:fast").is_err(), "it cannot be fast");
        assert!(found("big@9m").is_err());
    }

    #[test]
    fn the_context_window_of_the_catalog_is_used() {
        let models = contexts_and_fast();
        let windows: Vec<_> = models
            .iter()
            .map(|model| (model.id.as_str(), model.context_window))
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
    fn max_mode_has_its_own_window_and_defaults() {
        let variant = |context: &str, thinking: &str, max: bool| {
            json!({"params": [{"id": "context", "value": context}, {"id": "thinking", "value": thinking}],
                   "isMaxMode": max, "isDefault": !max, "isDefaultMax": max})
        };
        let models = models(json!([
            {"id": "m", "parameters": [{"id": "context", "values": ["usual", "large"]}],
             "variants": [variant("usual", "false", false), variant("large", "true", true)],
             "contextWindow": 90_000, "maxContextWindow": 900_000},
        ]));
        let got: Vec<_> = models
            .iter()
            .map(|model| {
                (
                    model.id.as_str(),
                    model.context_window,
                    model.defaults[1].value.as_str(),
                )
            })
            .collect();
        let wanted = [("m@usual", 90_000, "false"), ("m@large", 900_000, "true")];
        assert_eq!(got, wanted);
    }

    #[test]
    fn combinations_that_no_variant_has_are_not_selected() {
        let variant = |context: &str, fast: &str| json!({"params": [{"id": "context", "value": context}, {"id": "fast", "value": fast}]});
        let models = models(json!([
            {"id": "m", "parameters": [{"id": "context", "values": ["1m", "200k"]},
                {"id": "fast", "values": ["false", "true"]}],
             "variants": [variant("1m", "false"), variant("200k", "false"), variant("200k", "true")]},
        ]));
        let found = |id: &str| models.find(id).map(|found| found.model.id.as_str());
        assert_eq!(found("m"), Ok("m@1m"));
        assert_eq!(found("m:fast"), Ok("m@200k"));
        assert!(found("m@1m:fast").is_err());
        let large = models.find("m@1m").unwrap().model;
        assert_eq!(large.speed(), None);
        let sent = crate::catalog::select(large, None, Some(Speed::Fast));
        assert_eq!(sent.parameters[1].value, "false");
    }

    #[test]
    fn values_of_an_unknown_parameter_can_be_selected() {
        let models = models(json!([
            {"id": "smart", "displayName": "Smart", "aliases": ["s"], "parameters": [
                {"id": "optimize_for", "values": ["intelligence", "balanced", "cost"]},
                {"id": "cyber", "values": ["false"]}],
             "variants": [{"params": [{"id": "optimize_for", "value": "balanced"}], "isDefault": true}]},
        ]));
        let rows: Vec<_> = models
            .iter()
            .map(|model| (model.id.as_str(), model.defaults[0].value.as_str()))
            .collect();
        assert_eq!(
            rows,
            [
                ("smart", "balanced"),
                ("smart@optimize_for=intelligence", "intelligence"),
                ("smart@optimize_for=cost", "cost"),
                ("s", "balanced"),
            ]
        );
        assert_eq!(models[2].name, "Smart @ optimize_for cost");
    }

    #[test]
    fn an_unambiguous_alias_resolves_to_its_model() {
        let catalog = json!({"items": [
            {"id": "a", "aliases": ["x", "both", "b"]}, {"id": "b", "aliases": ["both"]},
        ]});
        let catalog = CatalogModel::list_from_json(&catalog).unwrap();
        let of = |name| base_id(&catalog, name);
        assert_eq!(
            ["a", "x", "b", "both", "new"].map(of),
            ["a", "a", "b", "both", "new"]
        );
    }

    #[test]
    fn duplicate_models_are_listed_once() {
        let models = models(json!([
            {"id": "a", "displayName": "First", "aliases": ["x"]},
            {"id": "a", "displayName": "Second", "aliases": ["x", "y"]},
        ]));
        let names: Vec<_> = models.iter().map(|model| model.name.as_str()).collect();
        assert_eq!(names, ["First", "First (x)", "Second (y)"]);
    }
}
