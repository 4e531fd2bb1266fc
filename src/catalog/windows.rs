//! How many tokens a context holds: said by the user or the row, learned from checkpoints,
//! bundled, or assumed.
//!
//! Nothing here asks a model: windows are learned on the way, from runs that went well. What
//! the user says stands in a file of its own, which is never written.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use super::collate;
use super::snapshot::bundled;
use crate::diag::private::{self as store, StoreError};

/// For a model nothing at all is known of.
const ASSUMED: u32 = 128_000;
/// The bundled entry for models without one.
const DEFAULT: &str = "default";
/// What the user says.
const SAID: &str = "context-windows.json";
/// What we have learned.
const LEARNED: &str = "learned-windows.json";
const KEY: &str = "contextWindows";

/// The tokens of a context value such as `272k` or `0.5m`.
pub fn parse_context(text: &str) -> Option<u32> {
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
    // A context of nothing is no context.
    (tokens >= 1.0 && tokens <= u32::MAX.into()).then_some(tokens as u32)
}

/// A whole number over zero; anything else in a file or a checkpoint does not count.
pub fn positive(json: &Json) -> Option<u32> {
    let number = json.as_f64()?;
    (number >= 1.0 && number.fract() == 0.0 && number <= u32::MAX.into()).then_some(number as u32)
}

/// What is known about windows besides the rows themselves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Windows {
    said: BTreeMap<String, u32>,
    learned: BTreeMap<String, u32>,
}

impl Windows {
    /// What the user says and what was learned so far; and that the user's file cannot be
    /// used, if that is so.
    pub fn load(state: Option<&Path>) -> (Self, Option<StoreError>) {
        let Some(state) = state else {
            return (Self::default(), None);
        };
        let (said, problem) = match file(&state.join(SAID)) {
            Ok(file) => (entries(&file), None),
            Err(problem) => (BTreeMap::new(), Some(problem)),
        };
        let windows = Self {
            said,
            learned: entries(&taught(state)),
        };
        (windows, problem)
    }

    /// Reads the text of a file of ours; one that cannot be read has taught nothing.
    pub fn parse(text: &str) -> Self {
        Self {
            learned: entries(&serde_json::from_str(text).unwrap_or_default()),
            said: BTreeMap::new(),
        }
    }

    /// What is known of an id: said before learned before bundled.
    fn known(&self, id: &str) -> Option<u32> {
        self.said
            .get(id)
            .or_else(|| self.learned.get(id))
            .or_else(|| bundled().windows.get(id))
            .copied()
    }

    /// The window of a row. A context the row names is believed over what is known of the
    /// base model, which may be another context of it.
    pub(super) fn of_row(
        &self,
        row: &str,
        context: Option<&str>,
        catalogue: Option<u32>,
        base: &str,
    ) -> u32 {
        self.known(row)
            .or_else(|| parse_context(context?))
            .or(catalogue)
            .or_else(|| self.known(base))
            .or_else(|| self.known(DEFAULT))
            .unwrap_or(ASSUMED)
    }

    /// Takes in what a successful run said; whether anything changed. What is bundled anyway
    /// is not kept.
    pub fn learn(&mut self, row: &str, tokens: u32) -> Learned {
        if tokens == 0 {
            return Learned::Nothing;
        }
        let windows = &bundled().windows;
        let usual = windows.get(row).or_else(|| windows.get(DEFAULT));
        let before = if usual == Some(&tokens) {
            match self.learned.remove(row) {
                Some(before) => Some(before),
                None => return Learned::Nothing,
            }
        } else {
            self.learned.insert(row.to_owned(), tokens)
        };
        if before == Some(tokens) {
            Learned::Nothing
        } else {
            Learned::Something
        }
    }

    /// What was learned, in order.
    pub fn learned(&self) -> Vec<(&str, u32)> {
        let mut learned: Vec<_> = self
            .learned
            .iter()
            .map(|(id, window)| (id.as_str(), *window))
            .collect();
        learned.sort_by_cached_key(|(id, _)| collate::key(id));
        learned
    }

    /// The file's text.
    pub fn to_json(&self) -> Json {
        let learned: serde_json::Map<String, Json> = self
            .learned()
            .into_iter()
            .map(|(id, window)| (id.to_owned(), window.into()))
            .collect();
        json!({ KEY: learned })
    }
}

/// Whether a run taught anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learned {
    /// It was known.
    Nothing,
    /// Now it is known.
    Something,
}

/// Keeps the window a successful run reported for a row. For successful runs only: a run that
/// failed may have failed on another model.
pub fn learn(state: &Path, row: &str, tokens: u32) -> Result<Learned, StoreError> {
    let known = || Windows {
        learned: entries(&taught(state)),
        ..Windows::default()
    };
    // Most runs teach nothing; they should not wait for a lock either.
    if known().learn(row, tokens) == Learned::Nothing {
        return Ok(Learned::Nothing);
    }
    let path = state.join(LEARNED);
    let _alone = store::lock(&path)?;
    let mut windows = known();
    let learned = windows.learn(row, tokens);
    if learned == Learned::Something {
        let mut file = taught(state);
        file.insert(KEY.into(), windows.to_json()[KEY].take());
        store::write(&path, format!("{:#}\n", Json::Object(file)).as_bytes())?;
    }
    Ok(learned)
}

/// What we wrote; a file that cannot be read is written anew.
fn taught(state: &Path) -> Map<String, Json> {
    file(&state.join(LEARNED)).unwrap_or_default()
}

fn file(path: &Path) -> Result<Map<String, Json>, StoreError> {
    let damaged = |problem: String| StoreError::Damaged {
        path: path.to_owned(),
        problem,
    };
    let Some(text) = store::read(path)? else {
        return Ok(Map::new());
    };
    let file: Map<String, Json> =
        serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    match file.get(KEY) {
        Some(windows) if !windows.is_object() => Err(damaged(format!("{KEY} is no object"))),
        _ => Ok(file),
    }
}

fn entries(file: &Map<String, Json>) -> BTreeMap<String, u32> {
    let entries = file.get(KEY).and_then(Json::as_object);
    let entries = entries.into_iter().flatten();
    entries
        .filter_map(|(id, window)| Some((id.clone(), positive(window)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_of_nothing_are_no_contexts() {
        for text in [
            "0k", "", "m", "k5", "1.k", ".5m", "1 k", "-1k", "9999999m", "1ḱ",
        ] {
            assert_eq!(parse_context(text), None, "{text}");
        }
        assert_eq!(parse_context(" 1M "), Some(1_000_000));
    }

    #[test]
    fn a_window_that_became_the_usual_one_is_forgotten() {
        let state = tempfile::tempdir().unwrap();
        let known = || Windows::load(Some(state.path())).0.learned.len();
        assert_eq!(
            learn(state.path(), "nova", 300_000).unwrap(),
            Learned::Something
        );
        assert_eq!(
            learn(state.path(), "nova", 300_000).unwrap(),
            Learned::Nothing
        );
        assert_eq!(known(), 1);
        assert_eq!(
            learn(state.path(), "nova", 200_000).unwrap(),
            Learned::Something
        );
        assert_eq!(known(), 0);
        std::fs::write(state.path().join(LEARNED), "{oops").unwrap();
        assert_eq!(
            learn(state.path(), "nova", 400_000).unwrap(),
            Learned::Something
        );
        assert_eq!(known(), 1);
    }

    #[test]
    fn what_a_person_wrote_wins_and_stays() {
        let state = tempfile::tempdir().unwrap();
        let (said, ours) = (state.path().join(SAID), state.path().join(LEARNED));
        let text = r#"{"note": "mine", "contextWindows": {"nova": 150000, "odd": "?"}}"#;
        std::fs::write(&said, text).unwrap();
        std::fs::write(&ours, r#"{"later": 1, "contextWindows": {}}"#).unwrap();
        learn(state.path(), "nova", 300_000).unwrap();
        learn(state.path(), "other", 400_000).unwrap();
        let (windows, problem) = Windows::load(Some(state.path()));
        assert!(problem.is_none());
        let of = |id| windows.of_row(id, None, None, id);
        assert_eq!((of("nova"), of("other")), (150_000, 400_000));
        assert_eq!(std::fs::read_to_string(&said).unwrap(), text);
        let ours: Json = serde_json::from_str(&std::fs::read_to_string(&ours).unwrap()).unwrap();
        let learned = json!({"nova": 300_000, "other": 400_000});
        assert_eq!(ours, json!({"later": 1, "contextWindows": learned}));
        for broken in ["{", "[]", r#"{"contextWindows": 1}"#] {
            std::fs::write(&said, broken).unwrap();
            let (windows, problem) = Windows::load(Some(state.path()));
            assert_eq!(windows.of_row("nova", None, None, "nova"), 300_000);
            let problem = problem.unwrap().to_string();
            assert!(
                problem.contains("context-windows.json is damaged"),
                "{problem}"
            );
        }
    }

    #[test]
    fn two_sidecars_learn_side_by_side() {
        let state = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for n in 1..=8_u32 {
                let state = state.path();
                scope.spawn(move || learn(state, &format!("m{n}"), 1000 + n).unwrap());
            }
        });
        assert_eq!(Windows::load(Some(state.path())).0.learned.len(), 8);
    }
}
