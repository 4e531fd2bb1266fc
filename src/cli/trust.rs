//! `cursor-sidecar trust`: accepts the commands that a project's Cursor settings define.

use std::io::Write as _;
use std::path::PathBuf;

use crate::config::Config;
use agent_tools::cursor_config::consent::{self, ConsentError};

/// Accept the MCP servers and hooks of a project's Cursor settings in their current form.
#[derive(Debug, clap::Args)]
pub struct TrustCommand {
    /// The project folder [default: the current one].
    folder: Option<PathBuf>,
    /// Revoke the acceptance.
    #[arg(long)]
    revoke: bool,
}

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The acceptance cannot be stored.
    #[error(transparent)]
    Consent(#[from] ConsentError),
    /// The folder or the terminal is gone.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl TrustCommand {
    /// Stores or revokes the acceptance.
    pub fn run(self, config: &Config) -> Result<(), TrustError> {
        let state = config.state_dir.as_deref();
        let folder = match self.folder {
            Some(folder) => std::path::absolute(folder)?,
            None => std::env::current_dir()?,
        };
        let mut out = std::io::stdout();
        if self.revoke {
            consent::revoke(state, &folder)?;
            writeln!(out, "Nothing in {} is accepted", folder.display())?;
            return Ok(());
        }
        let names = consent::accept(state, &folder)?;
        writeln!(out, "{}", consent::accepted(&folder, &names))?;
        Ok(())
    }
}
