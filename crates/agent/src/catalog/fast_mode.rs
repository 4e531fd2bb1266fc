//! Resolves the speed of a model from the flag, the id, the session, the saved preference and the
//! default, in this order.

use std::collections::BTreeMap;

use super::host_models::ModelLookup;
use super::prefs::Prefs;
use super::selection::Speed;

/// The speeds requested by the user, besides the saved preferences.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpeedPreferences {
    /// For this run, for any model.
    pub run: Option<Speed>,
    /// For this session, by base model id.
    pub session: BTreeMap<String, Speed>,
}

/// Where a resolved speed comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeedSource {
    /// A flag or the host, for this run.
    Run,
    /// The suffix of the requested id.
    Id,
    /// The session.
    Session,
    /// The saved preference.
    Saved,
    /// Cursor's own default.
    Cursor,
}

/// The speed to use and its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResolvedSpeed {
    /// The speed to use.
    pub speed: Speed,
    /// Where it comes from.
    pub source: SpeedSource,
}

/// Returns the speed to use for a model; `None` if it has no fast mode.
pub fn resolve_speed(
    found: &ModelLookup<'_>,
    preferences: &SpeedPreferences,
    prefs: &Prefs,
) -> Option<ResolvedSpeed> {
    let default = found.model.speed()?;
    let base = found.model.base_id();
    let candidates = [
        (preferences.run, SpeedSource::Run),
        (found.speed, SpeedSource::Id),
        (preferences.session.get(base).copied(), SpeedSource::Session),
        (prefs.speed(base), SpeedSource::Saved),
        (Some(default), SpeedSource::Cursor),
    ];
    candidates
        .into_iter()
        .find_map(|(speed, source)| speed.map(|speed| ResolvedSpeed { speed, source }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog::{CatalogModel, ContextWindows, HostModels, LevelRange, save_speed};

    #[test]
    fn speed_sources_have_a_fixed_precedence() {
        let models = [
            json!({"id": "f", "parameters": [{"id": "fast", "values": ["false", "true"]}],
                   "variants": [{"params": [{"id": "fast", "value": "true"}]}]}),
            json!({"id": "plain"}),
        ];
        let models: Vec<CatalogModel> = models.iter().filter_map(CatalogModel::from_json).collect();
        let models = HostModels::build(&models, LevelRange::UpToMax, &ContextWindows::default());
        let state = tempfile::tempdir().unwrap();
        let saved = save_speed(state.path(), "f", Some(Speed::Normal)).unwrap();
        let preferences = |run, session: Option<Speed>| SpeedPreferences {
            run,
            session: session
                .map(|speed| ("f".into(), speed))
                .into_iter()
                .collect(),
        };
        let resolved = |id: &str, preferences: SpeedPreferences, prefs: &Prefs| {
            let resolved = resolve_speed(&models.find(id).unwrap(), &preferences, prefs)?;
            Some((resolved.speed, resolved.source))
        };
        let (fast, normal) = (Some(Speed::Fast), Some(Speed::Normal));
        let of = |id, run, session| resolved(id, preferences(run, session), &saved);
        assert_eq!(
            of("f:slow", fast, normal),
            Some((Speed::Fast, SpeedSource::Run))
        );
        assert_eq!(
            of("f:fast", None, normal),
            Some((Speed::Fast, SpeedSource::Id))
        );
        assert_eq!(
            of("f", None, fast),
            Some((Speed::Fast, SpeedSource::Session))
        );
        assert_eq!(
            of("f", None, None),
            Some((Speed::Normal, SpeedSource::Saved))
        );
        let default = resolved("f", SpeedPreferences::default(), &Prefs::default());
        assert_eq!(default, Some((Speed::Fast, SpeedSource::Cursor)));
        assert_eq!(of("plain", fast, None), None, "it cannot be fast");
    }
}
