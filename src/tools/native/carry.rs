//! What a shell leaves for the next one: its folder, exports, functions, aliases and options.
//! Where somebody judges commands by their text, code does not carry over: only the folder and
//! the exported variables do, as data.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

/// How a command is kept in step with those before it.
#[derive(Debug)]
pub(super) struct Carry {
    before: Option<Kept>,
    after: State,
    scope: Scope,
}

/// What carries over from one command to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Everything, functions and aliases included.
    Everything,
    /// The folder and exported variables: nothing that is executed later without being judged.
    Variables,
}

/// What a command left.
#[derive(Debug)]
pub(super) struct Left {
    /// Where its shell was at the end.
    pub(super) folder: PathBuf,
    /// Its exports and functions.
    kept: Kept,
}

/// What is kept of a shell, besides its folder.
#[derive(Debug, Clone)]
enum Kept {
    /// Commands that the next shell reads.
    Script(Arc<State>),
    /// Exported variables.
    Variables(Arc<Vec<(OsString, OsString)>>),
}

/// A shell's exports and functions in a file. Commands at once all read the same one, so it
/// goes with the last who may still have to.
#[derive(Debug)]
pub(super) struct State(PathBuf);

impl Drop for State {
    fn drop(&mut self) {
        // A command that left nothing made no file.
        let _ = fs::remove_file(&self.0);
    }
}

impl Carry {
    /// For a command that follows the one that `left` describes; its own state goes into
    /// `folder`. A script that an earlier command left is not read where only variables count.
    pub(super) fn new(folder: &Path, left: Option<&Left>, scope: Scope) -> Self {
        let name = format!("state-{}", Uuid::new_v4().simple());
        let counts =
            |kept: &&Kept| scope == Scope::Everything || matches!(kept, Kept::Variables(_));
        Self {
            before: left.map(|left| &left.kept).filter(counts).cloned(),
            after: State(folder.join(name)),
            scope,
        }
    }

    /// What carries over.
    pub(super) fn scope(&self) -> Scope {
        self.scope
    }

    /// The file a command reads first; empty if there is none.
    pub(super) fn before(&self) -> &Path {
        match &self.before {
            Some(Kept::Script(state)) => state.0.as_path(),
            Some(Kept::Variables(_)) | None => Path::new(""),
        }
    }

    /// Variables the command has besides ours.
    pub(super) fn variables(&self) -> &[(OsString, OsString)] {
        match &self.before {
            Some(Kept::Variables(variables)) => variables,
            Some(Kept::Script(_)) | None => &[],
        }
    }

    /// The file it leaves its own state in.
    pub(super) fn after(&self) -> &Path {
        &self.after.0
    }

    /// What the command left, if it left something.
    pub(super) async fn left(self) -> Option<Left> {
        let Self { after, scope, .. } = self;
        let text = tokio::fs::read(&after.0).await.ok()?;
        // A name may have any byte but this: what is behind it is run by the next shell.
        let end = text.iter().position(|byte| *byte == 0)?;
        let folder = text[..end].strip_suffix(b"\n")?;
        if folder.is_empty() {
            return None;
        }
        let rest = &text[end + 1..];
        let kept = match scope {
            Scope::Variables => Kept::Variables(Arc::new(variables(rest))),
            Scope::Everything => {
                tokio::fs::write(&after.0, rest).await.ok()?;
                Kept::Script(Arc::new(after))
            }
        };
        Some(Left {
            folder: OsStr::from_bytes(folder).into(),
            kept,
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
        let owned = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
        counts.then(|| (owned(name), owned(value)))
    };
    text.split(|byte| *byte == 0).filter_map(entry).collect()
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
