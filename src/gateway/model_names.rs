//! Which of Cursor's models a client means. Clients ask for models of other providers by habit, or
//! because they use a cheap one beside the one that the user selected.

use agent::catalog::{HostModel, HostModels};

/// Names of clients, and the models of Cursor they stand for. A name may end with `*`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelNames(Vec<(String, String)>);

impl ModelNames {
    /// Parses `name=model,name*=model`; `None` if an entry is not of that form.
    pub fn parse(text: &str) -> Option<Self> {
        let entries = text
            .split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty());
        let entries = entries.map(|entry| {
            let (name, model) = entry.split_once('=')?;
            let (name, model) = (name.trim(), model.trim());
            let is_valid = !name.is_empty() && !model.is_empty();
            is_valid.then(|| (name.to_owned(), model.to_owned()))
        });
        entries.collect::<Option<Vec<_>>>().map(Self)
    }

    /// Returns the id of the model that a name stands for: one of Cursor's, the user's choice, or
    /// the newest of the same family. An unknown name is returned unchanged.
    pub(super) fn resolve(&self, name: &str, models: &HostModels) -> String {
        if models.find(name).is_ok() {
            return name.to_owned();
        }
        let chosen = self.0.iter().find(|(pattern, _)| matches(pattern, name));
        if let Some((_, model)) = chosen {
            return model.clone();
        }
        let plain = without_date(name);
        if models.find(plain).is_ok() {
            return plain.to_owned();
        }
        let family = FAMILIES.iter().find(|family| family.contains(plain));
        let newest = family.and_then(|family| family.newest(models));
        newest.unwrap_or(name).to_owned()
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

/// Removes what clients and providers append: a date, `-latest`, a context size in brackets.
fn without_date(name: &str) -> &str {
    let name = name.split('[').next().unwrap_or(name);
    // Routers put the provider in front.
    let name = name.rsplit('/').next().unwrap_or(name);
    let name = name.strip_suffix("-latest").unwrap_or(name);
    match name.rsplit_once(['-', '@']) {
        Some((stem, date)) if date.len() == 8 && date.bytes().all(|b| b.is_ascii_digit()) => stem,
        _ => name,
    }
}

/// Models of one kind, by a provider.
struct Family {
    /// How names of the family begin; one of them.
    starts: &'static [&'static str],
    /// A word in the name, which also a model of Cursor must have; may be empty.
    word: &'static str,
    /// How ids of Cursor's models begin.
    cursor: &'static str,
    /// Words that a model of Cursor must not have.
    without: &'static [&'static str],
}

const OPENAI: &[&str] = &["gpt-", "chatgpt-", "o1", "o3", "o4", "codex"];
const SMALL: &[&str] = &["codex", "mini", "nano"];

/// The families; the first that contains a name counts.
const FAMILIES: &[Family] = &[
    family(&["claude-"], "haiku", "claude-", &[]),
    family(&["claude-"], "sonnet", "claude-", &[]),
    family(&["claude-"], "opus", "claude-", &[]),
    family(OPENAI, "nano", "gpt-", &["codex"]),
    family(OPENAI, "mini", "gpt-", &["codex"]),
    family(OPENAI, "codex", "gpt-", &["mini"]),
    family(OPENAI, "", "gpt-", SMALL),
    family(&["gemini-"], "flash", "gemini-", &[]),
    family(&["gemini-"], "pro", "gemini-", &[]),
    family(&["grok-"], "", "grok-", &[]),
    family(&["kimi-"], "", "kimi-", &[]),
    family(&["glm-"], "", "glm-", &[]),
];

const fn family(
    starts: &'static [&'static str],
    word: &'static str,
    cursor: &'static str,
    without: &'static [&'static str],
) -> Family {
    Family {
        starts,
        word,
        cursor,
        without,
    }
}

impl Family {
    fn contains(&self, name: &str) -> bool {
        self.starts.iter().any(|start| name.starts_with(start)) && name.contains(self.word)
    }

    /// Returns the id of the family's newest model, by the numbers in the ids.
    fn newest<'m>(&self, models: &'m HostModels) -> Option<&'m str> {
        let is_member = |model: &&HostModel| {
            let id = model.cursor_id.as_str();
            id.starts_with(self.cursor)
                && id.contains(self.word)
                && !self.without.iter().any(|word| id.contains(word))
        };
        let members = models.iter().filter(is_member);
        let newest = members.max_by_key(|model| version(&model.cursor_id))?;
        Some(newest.cursor_id.as_str())
    }
}

fn version(id: &str) -> Vec<u32> {
    let numbers = id.split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::catalog::{ContextWindows, FallbackReason, LevelRange, ModelList};

    fn models() -> HostModels {
        let list = ModelList::bundled(FallbackReason::DiscoveryFailed, "test");
        HostModels::build(
            &list.models,
            LevelRange::UpToXhigh,
            &ContextWindows::default(),
        )
    }

    #[test]
    fn names_of_other_providers_stand_for_the_newest_of_a_family() {
        let models = models();
        let resolve = |name: &str| ModelNames::default().resolve(name, &models);
        let family = |name: &str, word: &str| {
            let id = resolve(name);
            assert!(models.find(&id).is_ok(), "{name} is {id}");
            assert!(id.contains(word), "{name} is {id}");
        };
        assert_eq!(resolve("composer-2"), "composer-2");
        assert_eq!(resolve("claude-opus-4-5-20251101"), "claude-opus-4-5");
        assert_eq!(resolve("anthropic/claude-opus-4-5"), "claude-opus-4-5");
        family("claude-3-5-haiku-latest", "haiku");
        family("claude-opus-9[1m]", "opus");
        family("gpt-4o-mini", "mini");
        family("gpt-4o", "gpt-");
        family("o3", "gpt-");
        family("gemini-1.5-flash", "flash");
        assert_eq!(
            resolve("composer-99"),
            "composer-99",
            "not another provider's"
        );
        assert_eq!(resolve("llama-4"), "llama-4");
        assert!(version("claude-sonnet-5") > version("claude-sonnet-4-6"));
    }

    #[test]
    fn the_users_table_is_used_first() {
        let names = ModelNames::parse(" gpt-4o=composer-2 , claude-*=gpt-5.1,").unwrap();
        let models = models();
        assert_eq!(names.resolve("gpt-4o", &models), "composer-2");
        assert_eq!(names.resolve("claude-3-5-haiku-latest", &models), "gpt-5.1");
        let all = ModelNames::parse("*=composer-2").unwrap();
        assert_eq!(all.resolve("llama-4", &models), "composer-2");
        for wrong in ["gpt-4o", "=x", "x="] {
            assert_eq!(ModelNames::parse(wrong), None, "{wrong}");
        }
    }
}
