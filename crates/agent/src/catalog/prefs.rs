//! Preferences that are stored across sessions: which models use fast mode.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use super::selection::Speed;
use foundation::private_files::{self as store, PrivateFileError};

const FILE: &str = "prefs.json";
const FAST: &str = "fast";

/// The saved speeds, by base model id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prefs {
    speeds: BTreeMap<String, Speed>,
}

impl Prefs {
    /// Loads the preferences; without a file they are empty.
    pub fn load(state_dir: Option<&Path>) -> Result<Self, PrivateFileError> {
        match state_dir {
            Some(state_dir) => Ok(Self::from_json(&file(state_dir)?)),
            None => Ok(Self::default()),
        }
    }

    fn from_json(file: &Map<String, Json>) -> Self {
        let fast = file.get(FAST).and_then(Json::as_object);
        let speeds = fast
            .into_iter()
            .flatten()
            .filter_map(|(base, on)| Some((base.clone(), Speed::from_switch(on.as_bool()?))));
        Self {
            speeds: speeds.collect(),
        }
    }

    /// Returns the saved speed of a model.
    pub fn speed(&self, base: &str) -> Option<Speed> {
        self.speeds.get(base).copied()
    }

    /// Returns all saved speeds.
    pub fn speeds(&self) -> &BTreeMap<String, Speed> {
        &self.speeds
    }
}

/// Saves the speed of a model, or removes it if `None`. Everything else in the file is preserved.
pub fn save_speed(
    state_dir: &Path,
    base: &str,
    speed: Option<Speed>,
) -> Result<Prefs, PrivateFileError> {
    let path = state_dir.join(FILE);
    let _lock = store::lock(&path)?;
    let mut file = file(state_dir)?;
    let fast = file.entry(FAST).or_insert_with(|| json!({}));
    let Some(fast) = fast.as_object_mut() else {
        return Err(PrivateFileError::Damaged {
            path,
            problem: "fast is not an object".into(),
        });
    };
    match speed {
        Some(speed) => fast.insert(base.to_owned(), speed.is_fast().into()),
        None => fast.remove(base),
    };
    let prefs = Prefs::from_json(&file);
    store::write(&path, format!("{:#}\n", Json::Object(file)).as_bytes())?;
    Ok(prefs)
}

/// Reads the file. The user may have edited it, so a damaged one is an error and never
/// overwritten.
fn file(state_dir: &Path) -> Result<Map<String, Json>, PrivateFileError> {
    let path = state_dir.join(FILE);
    let Some(text) = store::read(&path)? else {
        return Ok(Map::new());
    };
    serde_json::from_str(&text).map_err(|error| PrivateFileError::Damaged {
        path,
        problem: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_preserved_and_damaged_files_are_rejected() {
        let state_dir = tempfile::tempdir().unwrap();
        let path = state_dir.path().join(FILE);
        std::fs::write(&path, r#"{"theme": "dark", "fast": {"b": true}}"#).unwrap();
        let prefs = save_speed(state_dir.path(), "a", Some(Speed::Normal)).unwrap();
        assert_eq!(prefs.speed("a"), Some(Speed::Normal));
        assert_eq!(prefs, Prefs::load(Some(state_dir.path())).unwrap());
        save_speed(state_dir.path(), "b", None).unwrap();
        let json: Json = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(json, json!({"theme": "dark", "fast": {"a": false}}));
        for broken in ["{", "[]", r#"{"fast": 1}"#] {
            std::fs::write(&path, broken).unwrap();
            let error = save_speed(state_dir.path(), "a", None).unwrap_err();
            assert!(error.to_string().contains("is damaged"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), broken);
        }
    }
}
