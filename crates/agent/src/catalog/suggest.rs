//! Suggestions for an unknown model id.

/// How many ids are suggested.
const MAX_SUGGESTIONS: usize = 5;
/// Ids below this similarity are not suggested.
const MIN_SIMILARITY: f64 = 0.75;

/// An id that is not in the catalog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Cursor has no model {id:?}{}", hint(.suggestions))]
pub struct UnknownModel {
    /// The id.
    pub id: String,
    /// Similar ids, best first.
    pub suggestions: Vec<String>,
}

fn hint(suggestions: &[String]) -> String {
    if suggestions.is_empty() {
        return "; list or refresh the models to see what is available".into();
    }
    format!(
        "; similar models: {}. If it is new, refresh the model list",
        suggestions.join(", ")
    )
}

/// Returns the ids most similar to `wanted`: other context sizes of the same model first, then by
/// Jaro-Winkler similarity, which weights a common prefix.
pub(super) fn similar_ids<'i>(wanted: &str, ids: impl Iterator<Item = &'i str>) -> Vec<String> {
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
        .filter(|(score, _)| *score >= MIN_SIMILARITY)
        .collect();
    scored.sort_by(|(a, x), (b, y)| b.total_cmp(a).then_with(|| x.cmp(y)));
    let best = scored.into_iter().take(MAX_SUGGESTIONS);
    best.map(|(_, id)| id.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_contexts_of_the_same_model_come_first() {
        let ids = [
            "gpt-5.5@1m",
            "gpt-5.5@272k",
            "gpt-5.1",
            "claude-opus-4-7@1m",
            "grok-4.3",
        ];
        let near = |wanted: &str| similar_ids(wanted, ids.into_iter());
        assert_eq!(
            near("GPT-5.5@300k"),
            ["gpt-5.5@272k", "gpt-5.5@1m", "gpt-5.1"]
        );
        assert_eq!(near("claude-opus-4-8@1m"), ["claude-opus-4-7@1m"]);
        assert!(near("zzz").is_empty());
        let unknown = |wanted: &str| UnknownModel {
            id: wanted.into(),
            suggestions: near(wanted),
        };
        insta::assert_snapshot!(unknown("grok-4"), @r#"Cursor has no model "grok-4"; similar models: grok-4.3. If it is new, refresh the model list"#);
        insta::assert_snapshot!(unknown("zzz"), @r#"Cursor has no model "zzz"; list or refresh the models to see what is available"#);
    }
}
