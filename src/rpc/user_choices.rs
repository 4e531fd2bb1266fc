//! What a user chose with the host's flags and within a session.

use serde_json::{Value as Json, json};

use super::protocol::{FlagKind, FlagSpec, SavedChoices, TurnMode};
use crate::config::parse;
use agent::catalog::{Speed, SpeedPreferences};

pub(super) const FAST: &str = "cursor-fast";
pub(super) const NO_FAST: &str = "cursor-no-fast";
pub(super) const MODE: &str = "cursor-mode";

/// Returns the flags a host should register.
pub(super) fn flags() -> Vec<FlagSpec> {
    let offer = |name: &str, kind, description: &str| FlagSpec {
        name: name.into(),
        description: description.into(),
        kind,
    };
    vec![
        offer(
            FAST,
            FlagKind::Boolean,
            "Use fast mode for Cursor models that have it",
        ),
        offer(
            NO_FAST,
            FlagKind::Boolean,
            "Use normal speed for Cursor models",
        ),
        offer(
            MODE,
            FlagKind::String,
            "Mode of Cursor's agent: agent or plan",
        ),
    ]
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--{MODE} takes agent or plan, not {0:?}")]
pub(super) struct UnknownMode(String);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct UserChoices {
    /// The chosen speed.
    pub(super) wishes: SpeedPreferences,
    flag_mode: Option<String>,
    session_mode: Option<TurnMode>,
}

impl TurnMode {
    /// Returns the mode of that name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "agent" => Some(Self::Agent),
            "plan" => Some(Self::Plan),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Plan => "plan",
        }
    }
}

/// Returns the speeds in an entry of the older extension, by model: it has them by model, below
/// `fast` or not, or one for the model that it names.
fn older_speeds(entry: &Json) -> Json {
    if let Some(fast) = entry["fast"].as_bool() {
        let names = ["baseModelId", "base", "modelId", "model"];
        let base = names.into_iter().find_map(|name| entry[name].as_str());
        let base = base.map(|id| id.trim_start_matches("cursor/"));
        let base = base.and_then(|id| id.split('@').next());
        return base.map_or(Json::Null, |base| json!({base: fast}));
    }
    match &entry["fast"] {
        Json::Object(_) => entry["fast"].clone(),
        _ => entry.clone(),
    }
}

impl UserChoices {
    /// Reads the state a host keeps for us. An entry may come from another version: invalid parts
    /// are ignored.
    pub(super) fn read(kept: &SavedChoices) -> Self {
        let on = |name: &str| match kept.flags.get(name) {
            Some(Json::Bool(on)) => *on,
            Some(Json::String(text)) => parse::switch(Some(text)).unwrap_or_default(),
            _ => false,
        };
        let run = match (on(NO_FAST), on(FAST)) {
            (true, _) => Some(Speed::Normal),
            (false, true) => Some(Speed::Fast),
            (false, false) => None,
        };
        let fast = match &kept.entry["older"] {
            Json::Null => kept.entry["fast"].clone(),
            older => older_speeds(older),
        };
        let fast = fast.as_object().into_iter().flatten();
        let session = fast.filter_map(|(base, on)| {
            let speed = Speed::from_switch(on.as_bool()?);
            Some((base.clone(), speed))
        });
        Self {
            wishes: SpeedPreferences {
                run,
                session: session.collect(),
            },
            flag_mode: kept.flags.get(MODE).and_then(Json::as_str).map(Into::into),
            session_mode: kept.entry["mode"].as_str().and_then(TurnMode::parse),
        }
    }

    /// Returns the mode of the flag, else of the session, else agent.
    pub(super) fn mode(&self) -> Result<TurnMode, UnknownMode> {
        match &self.flag_mode {
            Some(flag) => TurnMode::parse(flag).ok_or_else(|| UnknownMode(flag.clone())),
            None => Ok(self.session_mode.unwrap_or(TurnMode::Agent)),
        }
    }

    /// Returns whether a flag decides the mode.
    pub(super) fn mode_is_forced(&self) -> bool {
        self.flag_mode.is_some()
    }

    /// Sets the mode of the session.
    pub(super) fn choose_mode(&mut self, mode: TurnMode) {
        self.session_mode = Some(mode);
    }

    /// Returns the session's part, for the host to keep.
    pub(super) fn entry(&self) -> Json {
        let speeds = self.wishes.session.iter();
        let fast: serde_json::Map<String, Json> = speeds
            .map(|(base, speed)| (base.clone(), speed.is_fast().into()))
            .collect();
        let mut entry = json!({"fast": fast});
        if let Some(mode) = self.session_mode {
            entry["mode"] = mode.name().into();
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flags: Json, entry: Json) -> UserChoices {
        UserChoices::read(&serde_json::from_value(json!({"flags": flags, "entry": entry})).unwrap())
    }

    #[test]
    fn the_speed_of_an_older_extension_is_read() {
        let session = |older: Json| read(json!({}), json!({"older": older})).wishes.session;
        let fast = |base: &str| [(base.to_owned(), Speed::Fast)].into();
        assert_eq!(session(json!({"fast": {"gpt-5.5": true}})), fast("gpt-5.5"));
        assert_eq!(session(json!({"gpt-5.5": true})), fast("gpt-5.5"));
        let of_model = json!({"fast": true, "modelId": "cursor/gpt-5.5@1m"});
        assert_eq!(session(of_model), fast("gpt-5.5"));
        for unknown in [json!({"fast": true}), json!(7), json!({"enabled": "yes"})] {
            assert_eq!(session(unknown), Default::default());
        }
    }

    #[test]
    fn flags_win_and_an_invalid_entry_is_ignored() {
        let of = |flags: Json| read(flags, json!({"mode": "plan"}));
        assert_eq!(of(json!({})).mode(), Ok(TurnMode::Plan));
        assert_eq!(
            of(json!({"cursor-mode": "Agent"})).mode(),
            Ok(TurnMode::Agent)
        );
        let unknown = of(json!({"cursor-mode": "ask"})).mode().unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "--cursor-mode takes agent or plan, not \"ask\""
        );
        let run = |flags: Json| of(flags).wishes.run;
        assert_eq!(run(json!({"cursor-fast": true})), Some(Speed::Fast));
        assert_eq!(run(json!({"cursor-fast": "1"})), Some(Speed::Fast));
        let both = json!({"cursor-fast": true, "cursor-no-fast": true});
        assert_eq!(run(both), Some(Speed::Normal), "the cheaper one");
        assert_eq!(run(json!({"cursor-fast": false})), None);
        for odd in [
            json!(7),
            json!({"fast": 1, "mode": "dream"}),
            json!({"fast": {"a": "x"}}),
        ] {
            assert_eq!(read(json!({}), odd), UserChoices::default());
        }
    }

    #[test]
    fn a_kept_entry_can_be_read_back() {
        let entry = json!({"fast": {"a": true, "b": false}, "mode": "plan"});
        assert_eq!(
            read(json!({"cursor-fast": true}), entry.clone()).entry(),
            entry
        );
        assert_eq!(UserChoices::default().entry(), json!({"fast": {}}));
    }
}
