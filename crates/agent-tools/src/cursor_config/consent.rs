//! Records which project settings the user has accepted, by content.
//!
//! A project's MCP servers and hooks are commands that others can change, for example with the
//! next `git pull`. Digests of the accepted files are recorded in the state folder, one record
//! for each workspace; a file with different content is not accepted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use foundation::private_files::{self, PrivateFileError};

/// A project's file of MCP servers, relative to the workspace.
pub(super) const SERVERS: &str = ".cursor/mcp.json";
/// A project's file of hooks, relative to the workspace.
pub(super) const HOOKS: &str = ".cursor/hooks.json";

/// The most bytes of such a file that are read.
const MAX_BYTES: u64 = 512 * 1024;
const VERSION: u32 = 1;

/// Why nothing was accepted.
#[derive(Debug, thiserror::Error)]
pub enum ConsentError {
    /// There is no state folder for the records.
    #[error("there is no state folder; set PI_CURSOR_STATE_DIR")]
    NoStateFolder,
    /// The workspace does not exist or cannot be accessed.
    #[error("{}: {cause}", path.display())]
    Workspace {
        /// The folder.
        path: PathBuf,
        /// The system error.
        cause: std::io::Error,
    },
    /// A project's file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system error.
        cause: std::io::Error,
    },
    /// The record cannot be written.
    #[error(transparent)]
    Store(#[from] PrivateFileError),
}

/// The stored record of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConsentRecord {
    version: u32,
    workspace: PathBuf,
    /// Whether the user accepted this project explicitly, and not only a folder that contains it.
    is_explicit: bool,
    /// Digests of the files; `None` for a file that did not exist.
    files: BTreeMap<String, Option<String>>,
}

/// The consent of the user for one workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Consent {
    file: PathBuf,
    workspace: PathBuf,
    record: Option<ConsentRecord>,
}

/// The contents of the files that name commands.
pub(super) type ConsentFiles<'a> = [(&'static str, Option<&'a str>); 2];

impl Consent {
    /// Reads the record of a workspace. A record that cannot be read accepts nothing.
    pub(super) fn read(state: &Path, workspace: &Path) -> Self {
        let workspace = workspace
            .canonicalize()
            .unwrap_or_else(|_| workspace.to_owned());
        let name = digest(workspace.as_os_str().as_encoded_bytes());
        let file = state.join("trust").join(format!("{name}.json"));
        let record = match private_files::read(&file) {
            Ok(None) => None,
            Ok(Some(text)) => Some(serde_json::from_str(&text).unwrap_or_else(|error| {
                tracing::warn!(%error, "a record of accepted settings cannot be understood");
                ConsentRecord::of(&workspace, false, &[(SERVERS, None), (HOOKS, None)])
            })),
            Err(error) => {
                tracing::warn!(%error, "a record of accepted settings cannot be read");
                Some(ConsentRecord::of(
                    &workspace,
                    false,
                    &[(SERVERS, None), (HOOKS, None)],
                ))
            }
        };
        // A record that another version wrote accepts nothing, because its meaning is unknown.
        let record = record.map(|record| {
            if record.version == VERSION {
                record
            } else {
                ConsentRecord::of(&workspace, false, &[(SERVERS, None), (HOOKS, None)])
            }
        });
        Self {
            file,
            workspace,
            record,
        }
    }

    /// The path of the record.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Whether the user accepted this project explicitly.
    pub(super) fn is_explicit(&self) -> bool {
        self.record
            .as_ref()
            .is_some_and(|record| record.is_explicit)
    }

    /// Whether this content of a file is accepted.
    pub(super) fn covers(&self, name: &str, text: &str) -> bool {
        let digest = digest(text.as_bytes());
        let files = self.record.as_ref().map(|record| &record.files);
        let accepted = files.and_then(|files| files.get(name)?.as_ref());
        accepted.is_some_and(|accepted| *accepted == digest)
    }

    /// Records the current contents if there is no record yet, because the user trusts the folder
    /// with its present contents.
    pub(super) fn record_first(
        &mut self,
        contents: &ConsentFiles<'_>,
    ) -> Result<(), PrivateFileError> {
        if self.record.is_none() {
            self.save(ConsentRecord::of(&self.workspace, false, contents))?;
        }
        Ok(())
    }

    fn save(&mut self, record: ConsentRecord) -> Result<(), PrivateFileError> {
        let text = serde_json::to_vec_pretty(&record).unwrap_or_default();
        private_files::write(&self.file, &text)?;
        self.record = Some(record);
        Ok(())
    }
}

impl ConsentRecord {
    fn of(workspace: &Path, is_explicit: bool, contents: &ConsentFiles<'_>) -> Self {
        let file = |(name, text): &(&'static str, Option<&str>)| {
            let digest = text.map(|text| digest(text.as_bytes()));
            ((*name).to_owned(), digest)
        };
        Self {
            version: VERSION,
            workspace: workspace.to_owned(),
            is_explicit,
            files: contents.iter().map(file).collect(),
        }
    }
}

/// Accepts the current content of a project's files; returns the names of those that exist.
pub fn accept(state: Option<&Path>, workspace: &Path) -> Result<Vec<&'static str>, ConsentError> {
    let state = state.ok_or(ConsentError::NoStateFolder)?;
    if let Err(cause) = workspace.canonicalize() {
        let path = workspace.to_owned();
        return Err(ConsentError::Workspace { path, cause });
    }
    let servers = text(&workspace.join(SERVERS))?;
    let hooks = text(&workspace.join(HOOKS))?;
    let contents = [(SERVERS, servers.as_deref()), (HOOKS, hooks.as_deref())];
    let mut consent = Consent::read(state, workspace);
    consent.save(ConsentRecord::of(&consent.workspace, true, &contents))?;
    let names = contents.iter().filter(|(_, text)| text.is_some());
    Ok(names.map(|(name, _)| *name).collect())
}

/// Returns the message for the user after files were accepted.
pub fn accepted(workspace: &Path, names: &[&str]) -> String {
    let workspace = workspace.display();
    if names.is_empty() {
        return format!(
            "{workspace} has neither {SERVERS} nor {HOOKS}; one that is added later is not \
             started before it is accepted too"
        );
    }
    let names = names.join(" and ");
    format!("Accepted {names} of {workspace} as they are now, from the next turn on")
}

/// Revokes the consent: no command of the project is started, whatever its content, until it
/// is accepted again.
pub fn revoke(state: Option<&Path>, workspace: &Path) -> Result<(), ConsentError> {
    let state = state.ok_or(ConsentError::NoStateFolder)?;
    let mut consent = Consent::read(state, workspace);
    let nothing = [(SERVERS, None), (HOOKS, None)];
    consent.save(ConsentRecord::of(&consent.workspace, false, &nothing))?;
    Ok(())
}

/// Returns the text of a file, decoded as for settings; `None` if it is not a regular file.
fn text(path: &Path) -> Result<Option<String>, ConsentError> {
    use std::io::Read as _;
    let failed = |cause| {
        let path = path.to_owned();
        ConsentError::File { path, cause }
    };
    // Only a regular file, because opening a pipe or device can block or have effects.
    match path.metadata() {
        Ok(about) if about.is_file() => {}
        _ => return Ok(None),
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    let read = file.take(MAX_BYTES).read_to_end(&mut bytes);
    read.map_err(failed)?;
    Ok(Some(super::file_stamps::as_text(&bytes)))
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn content_is_accepted_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (state, workspace) = (folder.path().join("state"), folder.path().join("w"));
        fs::create_dir_all(workspace.join(".cursor")).unwrap();
        let contents = [(SERVERS, Some("one")), (HOOKS, None)];
        let read = || Consent::read(&state, &workspace);
        let mut first = read();
        assert!(!first.covers(SERVERS, "one"));
        first.record_first(&contents).unwrap();
        assert!(first.covers(SERVERS, "one") && !first.is_explicit());
        // Only the first content is accepted automatically.
        let mut second = read();
        second
            .record_first(&[(SERVERS, Some("two")), (HOOKS, Some("two"))])
            .unwrap();
        assert!(!second.covers(SERVERS, "two") && !second.covers(HOOKS, "two"));
        assert!(read().covers(SERVERS, "one"));

        fs::write(workspace.join(SERVERS), "two\r\n").unwrap();
        assert_eq!(accept(Some(&state), &workspace).unwrap(), [SERVERS]);
        assert!(read().covers(SERVERS, "two\n") && read().is_explicit());
        assert!(!read().covers(SERVERS, "one"));
        revoke(Some(&state), &workspace).unwrap();
        assert!(!read().covers(SERVERS, "two\n") && !read().is_explicit());
        assert!(matches!(
            accept(None, &workspace),
            Err(ConsentError::NoStateFolder)
        ));
    }

    #[test]
    fn a_damaged_or_newer_record_accepts_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut consent = Consent::read(folder.path(), folder.path());
        consent
            .record_first(&[(SERVERS, Some("one")), (HOOKS, None)])
            .unwrap();
        let written = fs::read_to_string(consent.file()).unwrap();
        let version = format!("\"version\": {VERSION}");
        assert!(written.contains(&version), "{written}");
        let newer = written.replace(&version, "\"version\": 999");
        for text in ["{", &newer] {
            fs::write(consent.file(), text).unwrap();
            let mut damaged = Consent::read(folder.path(), folder.path());
            damaged
                .record_first(&[(SERVERS, Some("one")), (HOOKS, None)])
                .unwrap();
            assert!(!damaged.covers(SERVERS, "one"), "{text}");
        }
    }
}
