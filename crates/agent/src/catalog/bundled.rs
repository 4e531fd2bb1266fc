//! The bundled model list, used before the first fetch and when fetching fails.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value as Json, json};

use super::context_window::{ContextWindows, positive_u32};
use super::model::CatalogModel;
use super::sort_key::sort_key;

/// The bundled models and context windows.
#[derive(Debug)]
pub(super) struct BundledModels {
    pub(super) models: Vec<CatalogModel>,
    pub(super) windows: BTreeMap<String, u32>,
}

static BUNDLED: LazyLock<BundledModels> = LazyLock::new(|| {
    // A test checks that the file can be parsed.
    let json: Json = serde_json::from_str(include_str!("snapshot.json")).unwrap_or_default();
    let windows = json["contextWindows"].as_object().into_iter().flatten();
    BundledModels {
        models: CatalogModel::list_from_json(&json).unwrap_or_default(),
        windows: windows
            .filter_map(|(id, window)| Some((id.clone(), positive_u32(window)?)))
            .collect(),
    }
});

pub(super) fn bundled() -> &'static BundledModels {
    &BUNDLED
}

/// Renders a new file to bundle: these models, and the bundled context windows updated with the
/// learned ones.
pub fn render(models: &[CatalogModel], learned: &ContextWindows) -> String {
    let mut models = models.to_vec();
    models.sort_by_cached_key(|item| sort_key(&item.id));
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
        "items": models,
        "contextWindows": windows,
    });
    format!("{snapshot:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{HostModels, LevelRange};

    #[test]
    fn the_bundled_list_is_valid_and_can_be_rendered() {
        let json: Json = serde_json::from_str(include_str!("snapshot.json")).unwrap();
        assert!(json["note"].is_string(), "it must name its origin");
        assert_eq!(
            json["items"].as_array().unwrap().len(),
            bundled().models.len()
        );
        assert_eq!(
            json["contextWindows"].as_object().unwrap().len(),
            bundled().windows.len()
        );
        let written: Json =
            serde_json::from_str(&render(&bundled().models, &ContextWindows::default())).unwrap();
        assert_eq!(
            CatalogModel::list_from_json(&written).unwrap().len(),
            bundled().models.len()
        );
        let windows = written["contextWindows"].as_object().unwrap();
        assert_eq!(windows.len(), bundled().windows.len());
    }

    /// The examples of the model specification.
    #[test]
    fn the_bundled_list_contains_the_documented_models() {
        let models = HostModels::build(
            &bundled().models,
            LevelRange::UpToXhigh,
            &ContextWindows::default(),
        );
        for id in [
            "gpt-5.5@272k",
            "gpt-5.5@1m",
            "claude-opus-4-7@300k",
            "claude-opus-4-8@1m",
            "gpt-5.6-sol@1m",
            "composer-2.5",
            "default",
        ] {
            assert_eq!(models.find(id).map(|found| found.model.id.as_str()), Ok(id));
        }
    }
}
