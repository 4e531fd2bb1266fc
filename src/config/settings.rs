//! What is known of each setting: its names, default, values, bounds. Drives the parser, warnings,
//! `doctor` and `docs/settings.md`.

use super::parse;
pub use super::table::SETTINGS;

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The name of its environment variable.
    pub name: &'static str,
    /// The default value; empty if the setting has none.
    pub default: &'static str,
    /// The values it accepts, as text for the user.
    pub values: &'static str,
    /// What it does, as text for the user.
    pub meaning: &'static str,
    /// How it is parsed, if it is a number.
    pub number: Option<BoundedNumber>,
    /// Where it can be set.
    pub scope: SettingScope,
}

/// Where a setting can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingScope {
    /// In the environment and in `config.toml`.
    Anywhere,
    /// In the environment only, because other programs or libraries read it there.
    Environment,
    /// In the environment only, because it is a secret and the file need not be private.
    Secret,
}

/// A number with bounds; a value outside them is set to the nearest bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundedNumber {
    least: u64,
    most: u64,
    /// Whether 0 is valid although it is below the lower bound, for example as "no limit".
    allows_zero: bool,
}

/// The longest delay of Node's timers, because hosts run on Node.
pub(super) const MAX_MS: u64 = 2_147_483_647;

impl BoundedNumber {
    /// Parses a text as a host would; `None` if it is not a valid number.
    pub fn read(&self, text: &str) -> Option<u64> {
        if self.allows_zero && text.trim().parse() == Ok(0.0) {
            return Some(0);
        }
        parse::positive(Some(text)).map(|given| self.within(given))
    }

    /// Returns the integer part, limited to the bounds.
    pub fn within(&self, given: f64) -> u64 {
        (given.trunc() as u64).clamp(self.least, self.most)
    }
}

impl Setting {
    pub(super) const fn number(self, least: u64, most: u64) -> Self {
        self.bounded(least, most, false)
    }

    pub(super) const fn number_or_zero(self, least: u64, most: u64) -> Self {
        self.bounded(least, most, true)
    }

    const fn bounded(mut self, least: u64, most: u64, allows_zero: bool) -> Self {
        self.number = Some(BoundedNumber {
            least,
            most,
            allows_zero,
        });
        self
    }

    pub(super) const fn secret(mut self) -> Self {
        self.scope = SettingScope::Secret;
        self
    }

    pub(super) const fn environment_only(mut self) -> Self {
        self.scope = SettingScope::Environment;
        self
    }

    /// Returns the key in `config.toml`: the name without its prefix, in lower case.
    pub fn key(&self) -> String {
        let name = self.name.strip_prefix(PREFIX);
        let name = name.or_else(|| self.name.strip_prefix("CURSOR_"));
        name.unwrap_or(self.name).to_ascii_lowercase()
    }

    /// Returns what separates the values of a list: as in `PATH` for folders.
    pub(super) fn separator(&self) -> &'static str {
        if self.name == "PI_CURSOR_TRUST_PROJECT" {
            ":"
        } else {
            ","
        }
    }

    /// Returns the same delay in the other unit: `…_MS` and `…_SECONDS`.
    pub fn in_other_unit(&self) -> Option<&'static Setting> {
        let (stem, unit) = match self.name.strip_suffix("_MS") {
            Some(stem) => (stem, "_SECONDS"),
            None => (self.name.strip_suffix("_SECONDS")?, "_MS"),
        };
        find(&format!("{stem}{unit}"))
    }
}

pub(super) const fn setting(
    name: &'static str,
    default: &'static str,
    values: &'static str,
    meaning: &'static str,
) -> Setting {
    Setting {
        name,
        default,
        values,
        meaning,
        number: None,
        scope: SettingScope::Anywhere,
    }
}

/// The prefix of our own variables; an unknown name with it is a mistake.
pub const PREFIX: &str = "PI_CURSOR_";

/// Returns the setting of this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// Returns the setting of this key in `config.toml`, preferably one that can be set there.
pub fn find_key(key: &str) -> Option<&'static Setting> {
    let same = |setting: &&Setting| setting.key() == key;
    let in_file = |setting: &&Setting| setting.scope == SettingScope::Anywhere;
    let mut found = SETTINGS.iter().filter(same);
    found.clone().find(in_file).or_else(|| found.next())
}

/// Returns the setting whose key is most similar; `None` if none is similar.
pub fn nearest(key: &str) -> Option<&'static Setting> {
    const MIN_SIMILARITY: f64 = 0.6;
    let key = key.to_ascii_lowercase();
    let scored = SETTINGS.iter().map(|setting| {
        let score = strsim::normalized_damerau_levenshtein(&key, &setting.key());
        (score, setting)
    });
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (best.0 >= MIN_SIMILARITY).then_some(best.1)
}

/// The begin of `docs/settings.md`.
const INTRODUCTION: &str = "\
# Settings

Settings are environment variables. Most can also be set in `cursor-sidecar/config.toml` in the platform's configuration directory (`$XDG_CONFIG_HOME`, or `~/.config`); `PI_CURSOR_CONFIG` names another file. The environment takes precedence over the file, and the file over the default. A blank value counts as not set.

The key in the file is the name of the setting without `PI_CURSOR_` or `CURSOR_`, in lower case. Values are strings, numbers, booleans or, for several values, arrays:

```toml
http = 2
stream_idle_timeout_ms = 60_000
ghost_mode = true
native_tools = [\"local\", \"shell=host\"]
```

A value that cannot be read gives a warning, and the default is used. An unreadable item of a list gives a warning and is ignored, except in `PI_CURSOR_NATIVE_TOOLS` and `PI_CURSOR_NATIVE_TOOLS_DENY`, where it denies everything it could have meant. An unknown `PI_CURSOR_…` name or key gives a warning with the most similar name. A file that is not TOML gives one warning and is ignored. A number out of range is set to the nearest bound. `cursor-sidecar doctor` shows the effective values and where each comes from.

";

/// Returns the text of `docs/settings.md`.
pub fn markdown() -> String {
    let mut page = String::from(INTRODUCTION);
    let only = |scope: SettingScope| {
        let names = SETTINGS.iter().filter(|setting| setting.scope == scope);
        let names: Vec<String> = names.map(|setting| format!("`{}`", setting.name)).collect();
        names.join(", ")
    };
    page.push_str(&format!(
        "Not in the file: {} (secrets), {} (other programs or libraries read them in the environment).\n\n| name | default | values | meaning |\n|---|---|---|---|\n",
        only(SettingScope::Secret),
        only(SettingScope::Environment)
    ));
    for setting in SETTINGS {
        let default = if setting.default.is_empty() {
            String::new()
        } else {
            format!("`{}`", setting.default)
        };
        page.push_str(&format!(
            "| `{}` | {default} | {} | {} |\n",
            setting.name, setting.values, setting.meaning
        ));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_kept_within_its_bounds() {
        let read = |name: &str, text: &str| find(name).unwrap().number.unwrap().read(text);
        for (text, wanted) in [
            ("0", Some(0)),
            (" 0 ", Some(0)),
            ("1", Some(1_000)),
            ("1000", Some(1_000)),
            ("2000.9", Some(2_000)),
            ("1e99", Some(MAX_MS)),
            ("-1", None),
            ("", None),
            ("full", None),
        ] {
            let name = "PI_CURSOR_STREAM_IDLE_TIMEOUT_MS";
            assert_eq!(read(name, text), wanted, "{text:?}");
        }
        let retries = |text| read("PI_CURSOR_STREAM_IDLE_MAX_RETRIES", text);
        let tried = ["0", "3", "10", "11", "2.7", "-1", "many"].map(retries);
        let wanted = [Some(0), Some(3), Some(10), Some(10), Some(2), None, None];
        assert_eq!(tried, wanted);
        let runs = |text| read("PI_CURSOR_MAX_PARKED_RUNS", text);
        assert_eq!(["0", "0.5", "9999"].map(runs), [None, Some(1), Some(4096)]);
    }

    #[test]
    fn a_default_that_is_a_number_is_within_its_bounds() {
        for setting in SETTINGS {
            let Some(number) = setting.number.filter(|_| !setting.default.is_empty()) else {
                continue;
            };
            let read = number.read(setting.default).map(|read| read.to_string());
            assert_eq!(read.as_deref(), Some(setting.default), "{}", setting.name);
        }
    }

    #[test]
    fn keys_are_unique_and_have_no_prefix() {
        let mut keys = std::collections::BTreeSet::new();
        let in_file = |setting: &&Setting| setting.scope == SettingScope::Anywhere;
        for setting in SETTINGS.iter().filter(in_file) {
            assert!(keys.insert(setting.key()), "{}", setting.name);
            assert_eq!(find_key(&setting.key()), Some(setting));
        }
        let name = |key| find_key(key).map(|setting| setting.name);
        assert_eq!(name("http"), Some("PI_CURSOR_HTTP"));
        assert_eq!(name("agent_url"), Some("CURSOR_AGENT_URL"));
        assert_eq!(name("api_key"), Some("CURSOR_API_KEY"));
    }

    #[test]
    fn the_most_similar_name_is_suggested() {
        let name = |key| nearest(key).map(|setting| setting.name);
        assert_eq!(name("HTPP"), Some("PI_CURSOR_HTTP"));
        assert_eq!(name("native_tool"), Some("PI_CURSOR_NATIVE_TOOLS"));
        assert_eq!(name("colour"), None);
    }

    #[test]
    fn the_docs_page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/settings.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, markdown()).unwrap();
        }
        assert!(
            std::fs::read_to_string(path).unwrap_or_default() == markdown(),
            "docs/settings.md is stale: run `make docs`"
        );
    }
}
