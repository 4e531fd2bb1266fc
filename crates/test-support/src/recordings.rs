//! Recordings of what the official client answered, so that tests need not run it each time.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use crate::root;

/// Returns whether tests run the official client and replace its recordings: `make record`.
pub fn is_recording() -> bool {
    std::env::var_os("RECORD_OFFICIAL_CLIENT").is_some()
}

/// Returns the version of the official client that `tests/official` installs.
pub fn client_version() -> String {
    let lock = root().join("tests/official/package-lock.json");
    let lock: Json = serde_json::from_str(&std::fs::read_to_string(lock).unwrap()).unwrap();
    let client = &lock["packages"]["node_modules/@cursor/sdk"];
    client["version"].as_str().unwrap().to_owned()
}

/// Returns the file of a recording.
pub fn file(name: &str) -> PathBuf {
    let folder = root().join("tests/native/recordings");
    folder.join(format!("{name}.json"))
}

/// Returns the version of the client that was recorded, and the recording.
pub fn load(name: &str) -> (String, Json) {
    let file = file(name);
    let text = std::fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}; run `make record`", file.display()));
    let mut recording: Json = serde_json::from_str(&text).unwrap();
    let version = recording["client"].as_str().unwrap().to_owned();
    (version, recording["recorded"].take())
}

/// Replaces a recording.
pub fn save(name: &str, recorded: &Json) {
    let recording = json!({"client": client_version(), "recorded": recorded});
    let text = serde_json::to_string_pretty(&recording).unwrap();
    std::fs::write(file(name), text + "\n").unwrap();
}
