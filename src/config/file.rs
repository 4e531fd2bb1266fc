//! `config.toml`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::settings::{self, SettingScope};
use super::warning::{FileLocation, SettingProblem, Warning};

/// A larger file is not a configuration file.
const MAX_BYTES: u64 = 1024 * 1024;

/// The value of a setting in the file, as the environment would spell it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileValue {
    pub(super) text: String,
    pub(super) location: FileLocation,
}

/// The values of a file by the names of their settings.
pub(super) type FileValues = BTreeMap<&'static str, FileValue>;

/// Returns the text of the file; `None` if it does not exist.
pub(super) fn read(path: &Path) -> io::Result<Option<String>> {
    let about = match std::fs::metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // A pipe or device could block the start.
    if !about.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if about.len() > MAX_BYTES {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    std::fs::read_to_string(path).map(Some)
}

/// Parses the text of the file. A mistake in one setting does not affect the others.
pub(super) fn parse(path: &Path, text: &str, warnings: &mut Vec<Warning>) -> FileValues {
    let location = |offset: usize| FileLocation {
        file: path.to_owned(),
        line: 1 + text
            .bytes()
            .take(offset)
            .filter(|byte| *byte == b'\n')
            .count(),
    };
    let mut values = FileValues::new();
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            warnings.push(Warning {
                location: Some(location(error.span().map_or(0, |span| span.start))),
                problem: SettingProblem::Syntax(error.message().to_owned()),
            });
            return values;
        }
    };
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let location = location(key.span().start);
        match setting_value(key.get_ref(), value) {
            Ok((name, text)) => drop(values.insert(name, FileValue { text, location })),
            Err(problem) => warnings.push(Warning {
                location: Some(location),
                problem,
            }),
        }
    }
    values
}

/// Returns the name of the setting with this key, and its value as text.
fn setting_value(
    key: &str,
    value: &Spanned<DeValue<'_>>,
) -> Result<(&'static str, String), SettingProblem> {
    let setting = settings::find_key(key).ok_or_else(|| SettingProblem::UnknownKey {
        key: key.to_owned(),
        nearest: settings::nearest(key).map(|setting| format!("{:?}", setting.key())),
    })?;
    let key = key.to_owned();
    let name = setting.name;
    match setting.scope {
        SettingScope::Anywhere => {}
        SettingScope::Environment => return Err(SettingProblem::EnvironmentOnly { key, name }),
        SettingScope::Secret => return Err(SettingProblem::SecretInFile { key, name }),
    }
    let value = value.get_ref();
    let kind = value.type_str();
    let text = match value {
        DeValue::Array(items) => {
            let items: Option<Vec<String>> =
                items.iter().map(|item| scalar(item.get_ref())).collect();
            items.map(|items| items.join(setting.separator()))
        }
        value => scalar(value),
    };
    match text {
        Some(text) => Ok((name, text)),
        None => Err(SettingProblem::Type { key, kind }),
    }
}

/// Returns a string, number or boolean as the environment would spell it.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Vec<(&'static str, String)>, Vec<String>) {
        let mut warnings = Vec::new();
        let values = parse(Path::new("/c.toml"), text, &mut warnings);
        let values = values.into_iter().map(|(name, value)| (name, value.text));
        let warnings = warnings.iter().map(ToString::to_string);
        (values.collect(), warnings.collect())
    }

    #[test]
    fn values_of_all_types_are_read() {
        let (values, warnings) = parsed(
            "http = 2\nghost_mode = false\nstream_idle_timeout_ms = 60_000\n\
             client_type = \"x\"\nnative_tools = [\"local\", 'shell=host']\n\
             trust_project = ['/a', '/b']\n",
        );
        assert!(warnings.is_empty(), "{warnings:?}");
        let values: Vec<String> = values
            .iter()
            .map(|(name, text)| format!("{name}={text}"))
            .collect();
        insta::assert_snapshot!(values.join("\n"), @"
        PI_CURSOR_CLIENT_TYPE=x
        PI_CURSOR_GHOST_MODE=false
        PI_CURSOR_HTTP=2
        PI_CURSOR_NATIVE_TOOLS=local,shell=host
        PI_CURSOR_STREAM_IDLE_TIMEOUT_MS=60000
        PI_CURSOR_TRUST_PROJECT=/a:/b
        ");
    }

    #[test]
    fn mistakes_are_reported_with_file_and_line() {
        let (values, warnings) = parsed(
            "# mine\nhtpp = 2\n\napi_key = 'crsr_secret'\nhttps_proxy = 'http://h'\n\
             http = 2\nclient_type = 1979-05-27\n[bridge]\nx = 1\n",
        );
        assert_eq!(values, [("PI_CURSOR_HTTP", "2".to_owned())]);
        insta::assert_snapshot!(warnings.join("\n"), @r#"
        /c.toml:2: "htpp" is not a setting of cursor-sidecar; `cursor-sidecar doctor --all` lists them; did you mean "http"?
        /c.toml:4: "api_key" is a secret and is not read from this file; set CURSOR_API_KEY in the environment, and remove it here
        /c.toml:5: "https_proxy" is not read from this file; set HTTPS_PROXY in the environment
        /c.toml:7: "client_type" must be a string, number, boolean or array of them, not datetime; it is ignored
        /c.toml:8: "bridge" is not a setting of cursor-sidecar; `cursor-sidecar doctor --all` lists them
        "#);
    }

    #[test]
    fn a_file_that_is_not_toml_is_one_warning() {
        let (values, warnings) = parsed("http = 2\nclient_type = \nx = 1\n");
        assert_eq!((values.len(), warnings.len()), (0, 1), "{warnings:?}");
        assert!(
            warnings[0].starts_with("/c.toml:2: the file is not TOML and is ignored: "),
            "{warnings:?}"
        );
    }
}
