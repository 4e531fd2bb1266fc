//! `doctor --bundle`: one file for a bug report, which its author can read before sending it.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};

use crate::config::Config;
use crate::last_error;
use crate::telemetry::log_file;
use foundation::private_files::owner_only;
use foundation::secrets;

/// The most lines of the newest log.
const MAX_LINES: usize = 2_000;
/// The most bytes of a log that are read, from its end.
const MAX_LOG: u64 = 4 * 1024 * 1024;
/// Fields of log lines whose text servers, repositories or users choose. Their length remains.
const FOREIGN_TEXT: [&str; 6] = ["error", "failure", "problem", "reason", "cause", "warning"];

/// Writes the bundle and returns its path: `file`, or a new file in the current folder.
pub(super) fn write(
    file: Option<&Path>,
    config: &Config,
    report: Json,
) -> Result<PathBuf, (PathBuf, std::io::Error)> {
    let default = || PathBuf::from(format!("cursor-sidecar-report-{}.json", std::process::id()));
    let path = file.map_or_else(default, Path::to_owned);
    let path = std::path::absolute(&path).unwrap_or(path);
    let bundle = anonymous(&bundle(config, report), config.home.as_deref());
    let mut options = OpenOptions::new();
    // A file that exists may be another report.
    let opened = owner_only(options.write(true).create_new(true)).open(&path);
    let written = opened.and_then(|mut file| file.write_all(format!("{bundle:#}\n").as_bytes()));
    match written {
        Ok(()) => Ok(path),
        Err(error) => Err((path, error)),
    }
}

fn bundle(config: &Config, report: Json) -> Json {
    let state_dir = config.state_dir.as_deref();
    let logs = state_dir.map(log_file::log_dir);
    let logs = logs.as_deref().map(log_file::list_logs).unwrap_or_default();
    let newest = logs.first();
    let error = state_dir.and_then(last_error::read);
    json!({
        "system": {"os": std::env::consts::OS, "architecture": std::env::consts::ARCH},
        "doctor": report,
        "lastError": error.map(|error| error.circumstances()),
        "log": newest.map(|log| lines(log)).unwrap_or_default(),
    })
}

/// Returns the last lines of a log, as objects. A line that is none is left out.
fn lines(log: &Path) -> Vec<Json> {
    let text = read_end(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.len().saturating_sub(MAX_LINES);
    let objects = lines[start..]
        .iter()
        .filter_map(|line| serde_json::from_str::<Map<String, Json>>(line).ok());
    objects
        .map(|line| without_foreign_text(line).into())
        .collect()
}

fn read_end(log: &Path) -> std::io::Result<String> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = std::fs::File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_LOG)))?;
    let mut bytes = Vec::new();
    file.take(MAX_LOG).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn without_foreign_text(mut line: Map<String, Json>) -> Map<String, Json> {
    for name in FOREIGN_TEXT {
        if let Some(Json::String(text)) = line.get_mut(name) {
            *text = format!("({} characters)", text.chars().count());
        }
    }
    line
}

/// Removes secrets, addresses of e-mail and the name of the home folder from every text.
fn anonymous(json: &Json, home: Option<&Path>) -> Json {
    match json {
        Json::String(text) => anonymous_text(text, home).into(),
        Json::Array(items) => items.iter().map(|item| anonymous(item, home)).collect(),
        Json::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), anonymous(value, home)))
            .collect(),
        other => other.clone(),
    }
}

fn anonymous_text(text: &str, home: Option<&Path>) -> String {
    let text = secrets().scrub(text);
    let home = home.map(|home| home.to_string_lossy().into_owned());
    let text = match home.filter(|home| home.len() > 1) {
        Some(home) => text.replace(&home, "~"),
        None => text.into_owned(),
    };
    let is_address = |word: &str| {
        let (name, host) = word.split_once('@').unwrap_or_default();
        !name.is_empty() && host.contains('.') && !word.contains('/')
    };
    text.split_inclusive(char::is_whitespace)
        .map(|word| {
            let bare = word.trim_end();
            if is_address(bare) {
                format!("(address){}", &word[bare.len()..])
            } else {
                word.to_owned()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_neither_the_user_nor_secrets() {
        let home = Path::new("/home/jane");
        let text =
            "as jane@example.org, in /home/jane/x with crsr_0123456789abcdef0123456789abcdef";
        let shown = anonymous_text(text, Some(home));
        assert!(shown.starts_with("as (address) in ~/x with "), "{shown}");
        assert!(!shown.contains("0123456789abcdef"), "{shown}");
        assert_eq!(
            anonymous_text("gpt-5.5@1m and a @ b", None),
            "gpt-5.5@1m and a @ b"
        );
    }

    #[test]
    fn log_lines_have_no_foreign_text() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("a.jsonl");
        let text = "{\"event\":\"run.ended\",\"error\":\"the server quotes the prompt\",\"ms\":3}\nnot json\n";
        std::fs::write(&log, text).unwrap();
        assert_eq!(
            lines(&log),
            [json!({"event": "run.ended", "error": "(28 characters)", "ms": 3})]
        );
    }
}
