//! The bundled list: what is shown before Cursor has been asked, or when it cannot be.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value as Json, json};

use super::collate;
use super::item::Item;
use super::windows::{Windows, positive};

/// What is bundled.
#[derive(Debug)]
pub(super) struct Bundled {
    pub(super) items: Vec<Item>,
    pub(super) windows: BTreeMap<String, u32>,
}

static BUNDLED: LazyLock<Bundled> = LazyLock::new(|| {
    // A test reads the file; an unreadable one would only mean an empty list.
    let json: Json = serde_json::from_str(include_str!("snapshot.json")).unwrap_or_default();
    let windows = json["contextWindows"].as_object().into_iter().flatten();
    Bundled {
        items: Item::read_list(&json).unwrap_or_default(),
        windows: windows
            .filter_map(|(id, window)| Some((id.clone(), positive(window)?)))
            .collect(),
    }
});

pub(super) fn bundled() -> &'static Bundled {
    &BUNDLED
}

/// A new list to bundle: these models, and the bundled windows with what was learned since.
pub fn render(items: &[Item], learned: &Windows) -> String {
    let mut items = items.to_vec();
    items.sort_by_cached_key(|item| collate::key(&item.id));
    let mut windows = bundled().windows.clone();
    windows.extend(
        learned
            .learned()
            .into_iter()
            .map(|(id, window)| (id.to_owned(), window)),
    );
    let snapshot = json!({
        "note": format!(
            "Models to show before Cursor has been asked. Written by `cursor-sidecar models --write-snapshot` {}.",
            env!("CARGO_PKG_VERSION")
        ),
        "items": items,
        "contextWindows": windows,
    });
    format!("{snapshot:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Profile, Rows};

    #[test]
    fn the_bundled_list_is_whole_and_survives_being_written() {
        let json: Json = serde_json::from_str(include_str!("snapshot.json")).unwrap();
        assert!(json["note"].is_string(), "it must say where it comes from");
        assert_eq!(
            json["items"].as_array().unwrap().len(),
            bundled().items.len()
        );
        assert_eq!(
            json["contextWindows"].as_object().unwrap().len(),
            bundled().windows.len()
        );
        let written: Json =
            serde_json::from_str(&render(&bundled().items, &Windows::default())).unwrap();
        assert_eq!(
            Item::read_list(&written).unwrap().len(),
            bundled().items.len()
        );
        let windows = written["contextWindows"].as_object().unwrap();
        assert_eq!(windows.len(), bundled().windows.len());
    }

    /// The rows the model specification gives as examples.
    #[test]
    fn the_bundled_rows() {
        let rows = Rows::build(&bundled().items, Profile::UpToXhigh, &Windows::default());
        for id in [
            "gpt-5.5@272k",
            "gpt-5.5@1m",
            "claude-opus-4-7@300k",
            "grok-4.3@1m",
            "composer-2.5",
            "default",
        ] {
            assert_eq!(rows.find(id).map(|found| found.row.id.as_str()), Ok(id));
        }
    }
}
