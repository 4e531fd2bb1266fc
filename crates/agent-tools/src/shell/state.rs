//! Shell state that carries over from one command to the next: directory, exports, functions,
//! aliases and options. Where hooks or a denylist judge commands by their text, no code carries
//! over, only the directory and the exported variables as data.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::command_line;

/// The state that a command starts from, and the file it saves its own state in.
#[derive(Debug)]
pub(crate) struct ShellStateFiles {
    before: Option<SavedState>,
    after: StateFile,
    scope: StateScope,
}

/// What carries over from one command to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateScope {
    /// Everything, functions and aliases included.
    Everything,
    /// The directory and exported variables only, because code would be executed later without
    /// having been judged.
    Variables,
}

/// The state that a finished command saved.
#[derive(Debug)]
pub(crate) struct SavedShell {
    /// The shell's directory when the command ended.
    pub(crate) folder: PathBuf,
    /// Its exports and functions.
    state: SavedState,
}

/// The saved state of a shell apart from its directory.
#[derive(Debug, Clone)]
enum SavedState {
    /// A script that the next shell sources.
    Script(Arc<StateFile>),
    /// Exported variables.
    Variables(Arc<Vec<(OsString, OsString)>>),
}

/// A file with a shell's exports and functions. Concurrent commands share it, so it is removed
/// when the last of them has dropped its reference.
#[derive(Debug)]
pub(crate) struct StateFile(PathBuf);

impl Drop for StateFile {
    fn drop(&mut self) {
        // A command that saved no state created no file.
        let _ = fs::remove_file(&self.0);
    }
}

impl ShellStateFiles {
    /// Creates the state of a command that follows `previous` and saves its own state in `folder`.
    /// With [`StateScope::Variables`] a script that an earlier command saved is not sourced.
    pub(crate) fn new(folder: &Path, previous: Option<&SavedShell>, scope: StateScope) -> Self {
        // Other shells save no code, only what is data.
        let scope = match scope {
            StateScope::Everything if command_line::is_posix() => scope,
            StateScope::Everything | StateScope::Variables => StateScope::Variables,
        };
        let name = format!("state-{}", Uuid::new_v4().simple());
        let counts = |state: &&SavedState| {
            scope == StateScope::Everything || matches!(state, SavedState::Variables(_))
        };
        Self {
            before: previous.map(|shell| &shell.state).filter(counts).cloned(),
            after: StateFile(folder.join(name)),
            scope,
        }
    }

    /// Returns what carries over.
    pub(crate) fn scope(&self) -> StateScope {
        self.scope
    }

    /// Returns the script that the command sources first, or an empty path.
    pub(crate) fn before(&self) -> &Path {
        match &self.before {
            Some(SavedState::Script(state)) => state.0.as_path(),
            Some(SavedState::Variables(_)) | None => Path::new(""),
        }
    }

    /// Returns the variables to set in addition to our own environment.
    pub(crate) fn variables(&self) -> &[(OsString, OsString)] {
        match &self.before {
            Some(SavedState::Variables(variables)) => variables,
            Some(SavedState::Script(_)) | None => &[],
        }
    }

    /// Returns the file that the command saves its own state in.
    pub(crate) fn after(&self) -> &Path {
        &self.after.0
    }

    /// Returns the state that the command saved, or `None` if it saved none.
    pub(crate) async fn saved(self) -> Option<SavedShell> {
        let Self { after, scope, .. } = self;
        let text = tokio::fs::read(&after.0).await.ok()?;
        // A path cannot contain a zero byte, so the first one ends the directory; the next shell
        // executes what follows.
        let end = text.iter().position(|byte| *byte == 0)?;
        let folder = text[..end].strip_suffix(b"\n")?;
        if folder.is_empty() {
            return None;
        }
        let rest = &text[end + 1..];
        let state = match scope {
            StateScope::Variables => SavedState::Variables(Arc::new(variables(rest))),
            StateScope::Everything => {
                tokio::fs::write(&after.0, rest).await.ok()?;
                SavedState::Script(Arc::new(after))
            }
        };
        Some(SavedShell {
            folder: os_text(folder).into(),
            state,
        })
    }
}

/// Reads `NAME=value` entries that end with a zero byte. Variables that make a shell execute
/// something when it starts are left out, because they would carry code over.
fn variables(text: &[u8]) -> Vec<(OsString, OsString)> {
    const OWN: [&[u8]; 3] = [b"PWD", b"SHLVL", b"_"];
    const CODE: [&[u8]; 6] = [
        b"BASH_ENV",
        b"ENV",
        b"SHELLOPTS",
        b"BASHOPTS",
        b"PS4",
        b"PROMPT_COMMAND",
    ];
    let entry = |entry: &[u8]| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&entry[..at], &entry[at + 1..]);
        let is_plain = !name.is_empty()
            && name
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let counts = is_plain
            && !OWN.contains(&name)
            && !CODE.contains(&name)
            && !name.starts_with(b"BASH_FUNC_")
            && !name.starts_with(b"__");
        counts.then(|| (os_text(name), os_text(value)))
    };
    text.split(|byte| *byte == 0).filter_map(entry).collect()
}

#[cfg(unix)]
fn os_text(bytes: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStringExt as _;
    OsString::from_vec(bytes.to_owned())
}

/// Shells write their state in UTF-8.
#[cfg(windows)]
fn os_text(bytes: &[u8]) -> OsString {
    String::from_utf8_lossy(bytes).into_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_carry_code_are_left_out() {
        let text = b"A=1\0B=x=y\nz\0BASH_ENV=/f\0ENV=/f\0BASH_FUNC_ls%%=() { x; }\0\
                     PS4=$(x)\0SHELLOPTS=xtrace\0PWD=/\0_=x\0__code=0\0broken\0=x\0";
        let names: Vec<_> = variables(text).into_iter().collect();
        let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        assert_eq!(names, [pair("A", "1"), pair("B", "x=y\nz")]);
    }
}
