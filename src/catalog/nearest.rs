//! Ids that look like one that does not exist.

/// How many are offered.
const OFFERED: usize = 5;
/// Below this two ids have nothing to do with each other.
const ALIKE: f64 = 0.75;

/// An id that is not in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Cursor has no model {id:?}{}", offer(.nearest))]
pub struct UnknownModel {
    /// The id.
    pub id: String,
    /// Ids that look like it, best first.
    pub nearest: Vec<String>,
}

fn offer(nearest: &[String]) -> String {
    if nearest.is_empty() {
        return "; list the models or refresh the list to see which there are".into();
    }
    format!(
        "; the nearest are {}. If it is new, refresh the list of models",
        nearest.join(", ")
    )
}

/// The ids most like `wanted`: other contexts of the same model first, then by likeness,
/// which counts a common beginning more than a common end.
pub(super) fn nearest<'i>(wanted: &str, ids: impl Iterator<Item = &'i str>) -> Vec<String> {
    let stem = |id: &str| id.split('@').next().unwrap_or_default().to_lowercase();
    let wanted = wanted.to_lowercase();
    let mut scored: Vec<(f64, &str)> = ids
        .map(|id| {
            let bonus = if stem(id) == stem(&wanted) { 1.0 } else { 0.0 };
            (
                bonus + strsim::jaro_winkler(&wanted, &id.to_lowercase()),
                id,
            )
        })
        .filter(|(score, _)| *score >= ALIKE)
        .collect();
    scored.sort_by(|(a, x), (b, y)| b.total_cmp(a).then_with(|| x.cmp(y)));
    let best = scored.into_iter().take(OFFERED);
    best.map(|(_, id)| id.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_model_first_then_the_likest() {
        let ids = [
            "gpt-5.5@1m",
            "gpt-5.5@272k",
            "gpt-5.1",
            "claude-opus-4-7@1m",
            "grok-4.3",
        ];
        let near = |wanted: &str| nearest(wanted, ids.into_iter());
        assert_eq!(
            near("GPT-5.5@300k"),
            ["gpt-5.5@272k", "gpt-5.5@1m", "gpt-5.1"]
        );
        assert_eq!(near("claude-opus-4-8@1m"), ["claude-opus-4-7@1m"]);
        assert!(near("zzz").is_empty());
        let unknown = |wanted: &str| UnknownModel {
            id: wanted.into(),
            nearest: near(wanted),
        };
        insta::assert_snapshot!(unknown("grok-4"), @r#"Cursor has no model "grok-4"; the nearest are grok-4.3. If it is new, refresh the list of models"#);
        insta::assert_snapshot!(unknown("zzz"), @r#"Cursor has no model "zzz"; list the models or refresh the list to see which there are"#);
    }
}
