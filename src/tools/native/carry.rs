//! What a shell leaves for the next one: its folder, exports, functions, aliases and options.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

/// How a command is kept in step with those before it.
#[derive(Debug)]
pub(super) struct Carry {
    before: Option<Arc<State>>,
    after: State,
}

/// What a command left.
#[derive(Debug)]
pub(super) struct Left {
    /// Where its shell was at the end.
    pub(super) folder: PathBuf,
    /// Its exports and functions.
    pub(super) state: Arc<State>,
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
    /// For a command that comes after what `left` tells; its own state goes into `folder`.
    pub(super) fn new(folder: &Path, left: Option<&Left>) -> Self {
        let name = format!("state-{}", Uuid::new_v4().simple());
        Self {
            before: left.map(|left| Arc::clone(&left.state)),
            after: State(folder.join(name)),
        }
    }

    /// The file a command reads first; empty if there is none.
    pub(super) fn before(&self) -> &Path {
        self.before
            .as_ref()
            .map_or(Path::new(""), |state| state.0.as_path())
    }

    /// The file it leaves its own state in.
    pub(super) fn after(&self) -> &Path {
        &self.after.0
    }

    /// What the command left, if it left something.
    pub(super) async fn left(self) -> Option<Left> {
        let Self { after, .. } = self;
        let text = tokio::fs::read(&after.0).await.ok()?;
        // A name may have any byte but this: what is behind it is run by the next shell.
        let end = text.iter().position(|byte| *byte == 0)?;
        let folder = text[..end].strip_suffix(b"\n")?;
        if folder.is_empty() {
            return None;
        }
        tokio::fs::write(&after.0, &text[end + 1..]).await.ok()?;
        Some(Left {
            folder: OsStr::from_bytes(folder).into(),
            state: Arc::new(after),
        })
    }
}
