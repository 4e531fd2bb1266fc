//! Preferences that are Cursor's alone and outlive a session: which models are fast.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use super::selection::Speed;
use crate::diag::private::{self as store, StoreError};

const FILE: &str = "prefs.json";
const FAST: &str = "fast";

/// The saved speed of models, by base id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prefs {
    speeds: BTreeMap<String, Speed>,
}

impl Prefs {
    /// Reads the file; no file is no preference.
    pub fn load(state: Option<&Path>) -> Result<Self, StoreError> {
        match state {
            Some(state) => Ok(Self::of(&file(state)?)),
            None => Ok(Self::default()),
        }
    }

    fn of(file: &Map<String, Json>) -> Self {
        let fast = file.get(FAST).and_then(Json::as_object);
        let speeds = fast
            .into_iter()
            .flatten()
            .filter_map(|(base, on)| Some((base.clone(), Speed::from_switch(on.as_bool()?))));
        Self {
            speeds: speeds.collect(),
        }
    }

    /// The saved speed of a model.
    pub fn speed(&self, base: &str) -> Option<Speed> {
        self.speeds.get(base).copied()
    }

    /// Every saved speed.
    pub fn speeds(&self) -> &BTreeMap<String, Speed> {
        &self.speeds
    }
}

/// Saves the speed of a model, or forgets it. Everything else in the file stays.
pub fn save_speed(state: &Path, base: &str, speed: Option<Speed>) -> Result<Prefs, StoreError> {
    let path = state.join(FILE);
    let _alone = store::lock(&path)?;
    let mut file = file(state)?;
    let fast = file.entry(FAST).or_insert_with(|| json!({}));
    let Some(fast) = fast.as_object_mut() else {
        return Err(StoreError::Damaged {
            path,
            problem: "fast is no object".into(),
        });
    };
    match speed {
        Some(speed) => fast.insert(base.to_owned(), speed.is_fast().into()),
        None => fast.remove(base),
    };
    let prefs = Prefs::of(&file);
    store::write(&path, format!("{:#}\n", Json::Object(file)).as_bytes())?;
    Ok(prefs)
}

/// The file as it is: a person may have edited it, so a broken one is never overwritten.
fn file(state: &Path) -> Result<Map<String, Json>, StoreError> {
    let path = state.join(FILE);
    let Some(text) = store::read(&path)? else {
        return Ok(Map::new());
    };
    serde_json::from_str(&text).map_err(|error| StoreError::Damaged {
        path,
        problem: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_do_not_know_stays_and_what_is_broken_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join(FILE);
        std::fs::write(&path, r#"{"theme": "dark", "fast": {"b": true}}"#).unwrap();
        let prefs = save_speed(state.path(), "a", Some(Speed::Normal)).unwrap();
        assert_eq!(prefs.speed("a"), Some(Speed::Normal));
        assert_eq!(prefs, Prefs::load(Some(state.path())).unwrap());
        save_speed(state.path(), "b", None).unwrap();
        let json: Json = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(json, json!({"theme": "dark", "fast": {"a": false}}));
        for broken in ["{", "[]", r#"{"fast": 1}"#] {
            std::fs::write(&path, broken).unwrap();
            let error = save_speed(state.path(), "a", None).unwrap_err();
            assert!(error.to_string().contains("is damaged"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), broken);
        }
    }
}
