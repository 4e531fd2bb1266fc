//! Whether a model is fast: who decides, in which order.

use std::collections::BTreeMap;

use super::prefs::Prefs;
use super::rows::Found;
use super::selection::Speed;

/// What a person said about speed, besides what is saved for good.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wishes {
    /// For this run, whatever the model.
    pub run: Option<Speed>,
    /// For this session, by base id.
    pub session: BTreeMap<String, Speed>,
}

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The run: a flag, or the host itself.
    Run,
    /// The id that was asked for.
    Id,
    /// The session.
    Session,
    /// What was saved.
    Saved,
    /// Cursor's own default.
    Cursor,
}

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decided {
    /// Fast or not.
    pub speed: Speed,
    /// Who decided it.
    pub whose: Whose,
}

/// The speed of a model; `None` if it has no choice.
pub fn decide(found: &Found<'_>, wishes: &Wishes, prefs: &Prefs) -> Option<Decided> {
    let default = found.row.speed()?;
    let base = found.row.base();
    let voices = [
        (wishes.run, Whose::Run),
        (found.speed, Whose::Id),
        (wishes.session.get(base).copied(), Whose::Session),
        (prefs.speed(base), Whose::Saved),
        (Some(default), Whose::Cursor),
    ];
    voices
        .into_iter()
        .find_map(|(speed, whose)| speed.map(|speed| Decided { speed, whose }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog::{Item, Profile, Rows, Windows, save_speed};

    #[test]
    fn the_order_of_who_decides() {
        let items = [
            json!({"id": "f", "parameters": [{"id": "fast", "values": ["false", "true"]}],
                   "variants": [{"params": [{"id": "fast", "value": "true"}]}]}),
            json!({"id": "plain"}),
        ];
        let items: Vec<Item> = items.iter().filter_map(Item::read).collect();
        let rows = Rows::build(&items, Profile::UpToMax, &Windows::default());
        let state = tempfile::tempdir().unwrap();
        let saved = save_speed(state.path(), "f", Some(Speed::Normal)).unwrap();
        let wishes = |run, session: Option<Speed>| Wishes {
            run,
            session: session
                .map(|speed| ("f".into(), speed))
                .into_iter()
                .collect(),
        };
        let decided = |id: &str, wishes: Wishes, prefs: &Prefs| {
            let decided = decide(&rows.find(id).unwrap(), &wishes, prefs)?;
            Some((decided.speed, decided.whose))
        };
        let (fast, normal) = (Some(Speed::Fast), Some(Speed::Normal));
        let of = |id, run, session| decided(id, wishes(run, session), &saved);
        assert_eq!(of("f:slow", fast, normal), Some((Speed::Fast, Whose::Run)));
        assert_eq!(of("f:fast", None, normal), Some((Speed::Fast, Whose::Id)));
        assert_eq!(of("f", None, fast), Some((Speed::Fast, Whose::Session)));
        assert_eq!(of("f", None, None), Some((Speed::Normal, Whose::Saved)));
        let default = decided("f", Wishes::default(), &Prefs::default());
        assert_eq!(default, Some((Speed::Fast, Whose::Cursor)));
        assert_eq!(of("plain", fast, None), None, "it cannot be fast");
    }
}
