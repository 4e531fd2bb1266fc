//! The debug logs in a state folder.

use std::path::Path;

use serde_json::Value as Json;

pub fn state(folder: &tempfile::TempDir) -> [(&str, &str); 2] {
    [
        ("PI_CURSOR_STATE_DIR", folder.path().to_str().unwrap()),
        ("PI_CURSOR_PROVIDER_DEBUG", "1"),
    ]
}

/// Returns the events with this name from the debug logs of a state folder.
pub fn logged(folder: &Path, event: &str) -> Vec<Json> {
    let logs = std::fs::read_dir(folder.join("debug")).unwrap();
    let text = logs.map(|log| std::fs::read_to_string(log.unwrap().path()).unwrap());
    let lines: Vec<Json> = text
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|line| serde_json::from_str(&line).ok())
        .collect();
    lines
        .into_iter()
        .filter(|line| line["event"] == event)
        .collect()
}

/// Returns the fields of an event without those that every log line has.
pub fn fields(line: &Json) -> Json {
    let mut fields = line.clone();
    for envelope in ["ts", "us", "level", "target", "event"] {
        let there = fields.as_object_mut().unwrap().shift_remove(envelope);
        assert!(there.is_some(), "{envelope} of {line}");
    }
    fields
}
