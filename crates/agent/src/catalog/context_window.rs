//! Context window sizes: configured by the user, part of the model id, learned from checkpoints,
//! bundled, or assumed.
//!
//! Windows are learned from successful runs; no extra requests are made. The user's values are in a
//! file of their own, which we never write.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use super::bundled::bundled;
use super::sort_key::sort_key;
use foundation::private_files::{self as store, PrivateFileError};

/// Used if nothing is known about a model.
const FALLBACK_WINDOW: u32 = 128_000;
/// The bundled entry for models without their own.
const DEFAULT: &str = "default";
/// Windows configured by the user.
const USER_FILE: &str = "context-windows.json";
/// Windows learned from runs.
const LEARNED_FILE: &str = "learned-windows.json";
const KEY: &str = "contextWindows";

/// Parses a context size such as `272k` or `0.5m` to tokens.
pub fn parse_context_size(text: &str) -> Option<u32> {
    let text = text.trim();
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "k" | "K" => 1e3,
        "m" | "M" => 1e6,
        _ => return None,
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(whole) || !all_digits(part) {
        return None;
    }
    let tokens = (digits.parse::<f64>().ok()? * unit).round();
    // A size of zero is invalid.
    (tokens >= 1.0 && tokens <= u32::MAX.into()).then_some(tokens as u32)
}

/// Returns a positive whole number; anything else in a file or a checkpoint is ignored.
pub fn positive_u32(json: &Json) -> Option<u32> {
    let number = json.as_f64()?;
    (number >= 1.0 && number.fract() == 0.0 && number <= u32::MAX.into()).then_some(number as u32)
}

/// Configured and learned context windows, by model id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContextWindows {
    configured: BTreeMap<String, u32>,
    learned: BTreeMap<String, u32>,
}

impl ContextWindows {
    /// Loads the configured and learned windows. Also returns an error if the user's file is
    /// invalid; the learned windows are used then.
    pub fn load(state: Option<&Path>) -> (Self, Option<PrivateFileError>) {
        let Some(state) = state else {
            return (Self::default(), None);
        };
        let (configured, problem) = match file(&state.join(USER_FILE)) {
            Ok(file) => (entries(&file), None),
            Err(problem) => (BTreeMap::new(), Some(problem)),
        };
        let windows = Self {
            configured,
            learned: entries(&learned_file(state)),
        };
        (windows, problem)
    }

    /// Parses a file of learned windows; an invalid one is treated as empty.
    pub fn parse(text: &str) -> Self {
        Self {
            learned: entries(&serde_json::from_str(text).unwrap_or_default()),
            configured: BTreeMap::new(),
        }
    }

    /// Returns the window of an id: configured, else learned, else bundled.
    fn known(&self, id: &str) -> Option<u32> {
        self.configured
            .get(id)
            .or_else(|| self.learned.get(id))
            .or_else(|| bundled().windows.get(id))
            .copied()
    }

    /// Returns the window of a host model. A context size in its id takes precedence over what is
    /// known about the base model, which may refer to another size. `reported` is the size that
    /// the catalog reports.
    pub(super) fn resolve(
        &self,
        id: &str,
        context: Option<&str>,
        reported: Option<u32>,
        base: &str,
    ) -> u32 {
        self.known(id)
            .or_else(|| parse_context_size(context?))
            .or(reported)
            .or_else(|| self.known(base))
            .or_else(|| self.known(DEFAULT))
            .unwrap_or(FALLBACK_WINDOW)
    }

    /// Records the window that a successful run reported. Returns whether anything changed.
    /// Bundled values are not stored.
    pub fn learn(&mut self, id: &str, tokens: u32) -> bool {
        if tokens == 0 {
            return false;
        }
        let windows = &bundled().windows;
        let bundled_window = windows.get(id).or_else(|| windows.get(DEFAULT));
        let before = if bundled_window == Some(&tokens) {
            match self.learned.remove(id) {
                Some(before) => Some(before),
                None => return false,
            }
        } else {
            self.learned.insert(id.to_owned(), tokens)
        };
        before != Some(tokens)
    }

    /// Returns the learned windows, sorted by id.
    pub fn learned(&self) -> Vec<(&str, u32)> {
        let mut learned: Vec<_> = self
            .learned
            .iter()
            .map(|(id, window)| (id.as_str(), *window))
            .collect();
        learned.sort_by_cached_key(|(id, _)| sort_key(id));
        learned
    }

    /// Returns the content of the file of learned windows.
    pub fn to_json(&self) -> Json {
        let learned: serde_json::Map<String, Json> = self
            .learned()
            .into_iter()
            .map(|(id, window)| (id.to_owned(), window.into()))
            .collect();
        json!({ KEY: learned })
    }
}

/// Stores the window that a successful run reported for a model. Returns whether anything changed.
/// Failed runs must not be recorded, because they may have used another model.
pub fn learn(state: &Path, id: &str, tokens: u32) -> Result<bool, PrivateFileError> {
    let known = || ContextWindows {
        learned: entries(&learned_file(state)),
        ..ContextWindows::default()
    };
    // Most runs report nothing new, so check before taking the lock.
    if !known().learn(id, tokens) {
        return Ok(false);
    }
    let path = state.join(LEARNED_FILE);
    let _lock = store::lock(&path)?;
    let mut windows = known();
    let changed = windows.learn(id, tokens);
    if changed {
        let mut file = learned_file(state);
        file.insert(KEY.into(), windows.to_json()[KEY].take());
        store::write(&path, format!("{:#}\n", Json::Object(file)).as_bytes())?;
    }
    Ok(changed)
}

/// Reads the file of learned windows; an invalid one is replaced on the next write.
fn learned_file(state: &Path) -> Map<String, Json> {
    file(&state.join(LEARNED_FILE)).unwrap_or_default()
}

fn file(path: &Path) -> Result<Map<String, Json>, PrivateFileError> {
    let damaged = |problem: String| PrivateFileError::Damaged {
        path: path.to_owned(),
        problem,
    };
    let Some(text) = store::read(path)? else {
        return Ok(Map::new());
    };
    let file: Map<String, Json> =
        serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    match file.get(KEY) {
        Some(windows) if !windows.is_object() => Err(damaged(format!("{KEY} is not an object"))),
        _ => Ok(file),
    }
}

fn entries(file: &Map<String, Json>) -> BTreeMap<String, u32> {
    let entries = file.get(KEY).and_then(Json::as_object);
    let entries = entries.into_iter().flatten();
    entries
        .filter_map(|(id, window)| Some((id.clone(), positive_u32(window)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_context_sizes_are_rejected() {
        for text in [
            "0k", "", "m", "k5", "1.k", ".5m", "1 k", "-1k", "9999999m", "1ḱ",
        ] {
            assert_eq!(parse_context_size(text), None, "{text}");
        }
        assert_eq!(parse_context_size(" 1M "), Some(1_000_000));
    }

    #[test]
    fn a_window_that_equals_the_bundled_one_is_removed() {
        let state = tempfile::tempdir().unwrap();
        let known = || ContextWindows::load(Some(state.path())).0.learned.len();
        assert!(learn(state.path(), "nova", 300_000).unwrap());
        assert!(!learn(state.path(), "nova", 300_000).unwrap());
        assert_eq!(known(), 1);
        assert!(learn(state.path(), "nova", 200_000).unwrap());
        assert_eq!(known(), 0);
        std::fs::write(state.path().join(LEARNED_FILE), "{oops").unwrap();
        assert!(learn(state.path(), "nova", 400_000).unwrap());
        assert_eq!(known(), 1);
    }

    #[test]
    fn user_values_take_precedence_and_are_preserved() {
        let state = tempfile::tempdir().unwrap();
        let (configured, ours) = (
            state.path().join(USER_FILE),
            state.path().join(LEARNED_FILE),
        );
        let text = r#"{"note": "mine", "contextWindows": {"nova": 150000, "odd": "?"}}"#;
        std::fs::write(&configured, text).unwrap();
        std::fs::write(&ours, r#"{"later": 1, "contextWindows": {}}"#).unwrap();
        learn(state.path(), "nova", 300_000).unwrap();
        learn(state.path(), "other", 400_000).unwrap();
        let (windows, problem) = ContextWindows::load(Some(state.path()));
        assert!(problem.is_none());
        let of = |id| windows.resolve(id, None, None, id);
        assert_eq!((of("nova"), of("other")), (150_000, 400_000));
        assert_eq!(std::fs::read_to_string(&configured).unwrap(), text);
        let ours: Json = serde_json::from_str(&std::fs::read_to_string(&ours).unwrap()).unwrap();
        let learned = json!({"nova": 300_000, "other": 400_000});
        assert_eq!(ours, json!({"later": 1, "contextWindows": learned}));
        for broken in ["{", "[]", r#"{"contextWindows": 1}"#] {
            std::fs::write(&configured, broken).unwrap();
            let (windows, problem) = ContextWindows::load(Some(state.path()));
            assert_eq!(windows.resolve("nova", None, None, "nova"), 300_000);
            let problem = problem.unwrap().to_string();
            assert!(
                problem.contains("context-windows.json is damaged"),
                "{problem}"
            );
        }
    }

    #[test]
    fn concurrent_processes_do_not_lose_updates() {
        let state = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for n in 1..=8_u32 {
                let state = state.path();
                scope.spawn(move || learn(state, &format!("m{n}"), 1000 + n).unwrap());
            }
        });
        assert_eq!(ContextWindows::load(Some(state.path())).0.learned.len(), 8);
    }
}
