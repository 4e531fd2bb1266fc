//! `cursor-sidecar login` and `logout`: signing in with a browser.

use std::io::{IsTerminal as _, Write as _};
use std::process::{Command, Stdio};

use super::waiting::Waiting;
use crate::account_checkup;
use crate::config::Config;
use crate::shutdown_signal::shutdown_requested;
use agent::run::{AssembleError, dashboard};
use agent_tools::shell::remove_secrets;
use cursor_client::account::{
    BrowserLogin, CredentialSource, LoginError, LoginFileError, StoredLogin, find_credential,
};
use foundation::terminal_text::clean;

/// Sign in to Cursor with a browser, also one on another machine.
///
/// The login is stored in a private file and renewed when it is used.
#[derive(Debug, clap::Args)]
pub struct LoginCommand {
    /// Print the address only; do not open a browser.
    #[arg(long)]
    no_browser: bool,
}

/// Delete the login that is stored on this machine.
#[derive(Debug, clap::Args)]
pub struct LogoutCommand {}

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum LoginCommandError {
    /// The settings are incomplete.
    #[error(transparent)]
    Settings(#[from] AssembleError),
    /// The login failed.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// The login could not be stored.
    #[error(transparent)]
    Store(#[from] LoginFileError),
    /// The user stopped waiting.
    #[error("the login was cancelled; nothing is stored")]
    Cancelled,
    /// The terminal is gone.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl LoginCommand {
    /// Signs in and stores the login.
    pub async fn run(self, config: &Config) -> Result<(), LoginCommandError> {
        let (dashboard, endpoints) = dashboard(&config.client)?;
        StoredLogin::prepare(&config.client)?;
        let login = BrowserLogin::begin(&endpoints)?;
        let mut out = std::io::stdout();
        writeln!(out, "Sign in here:\n\n  {}\n", login.page())?;
        out.flush()?;
        if out.is_terminal() && !self.no_browser {
            open(login.page());
        }
        let message = "waiting until you have signed in (Ctrl+C to stop)";
        let mut waiting = Waiting::with_message(out.is_terminal(), &config.terminal, message);
        let login = tokio::select! {
            login = login.wait(&dashboard) => Some(login),
            () = shutdown_requested() => None,
        };
        waiting.end();
        let login = login.ok_or(LoginCommandError::Cancelled)??;
        login.save(&config.client)?;
        let who = clean(login.email.as_deref().unwrap_or("you"));
        writeln!(out, "Signed in: {who}.")?;
        if let Some(other) = other_credential(config) {
            writeln!(out, "Not used yet: {other} has precedence.")?;
        }
        Ok(())
    }
}

impl LogoutCommand {
    /// Deletes the stored login.
    pub fn run(self, config: &Config) -> Result<(), LoginCommandError> {
        let message = if StoredLogin::delete(&config.client)? {
            "Signed out."
        } else {
            "No account was signed in."
        };
        let mut out = std::io::stdout();
        writeln!(out, "{message}")?;
        if let Some(other) = other_credential(config) {
            writeln!(out, "Still used: {other}.")?;
        }
        Ok(())
    }
}

/// Returns the name of the credential in use if it is not the stored login.
fn other_credential(config: &Config) -> Option<&'static str> {
    let (_, source) = find_credential(None, &config.client).ok()?;
    (source != CredentialSource::Login).then(|| account_checkup::name(source))
}

/// Opens a page in a browser if there is one; the address is printed anyway.
fn open(page: &str) {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let mut command = Command::new(program);
    command
        .arg(page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // A browser runs for long and starts other processes.
    remove_secrets(&mut command);
    if let Err(error) = command.spawn() {
        tracing::debug!(%error, "no browser was opened");
    }
}
