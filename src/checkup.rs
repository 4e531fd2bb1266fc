//! Checks of the setup, for `cursor-sidecar doctor` and for `/cursor-doctor` in a host.

mod disk;

use std::path::Path;

use crate::account_checkup;
use crate::config::Config;
use crate::last_error;
use crate::telemetry::log_file::LogDestination;
use cursor_client::account::CredentialSource;
use cursor_client::endpoint::{Endpoints, UrlSource};
use foundation::private_files;

/// Files of the state folder that must be private.
const SECRET_FILES: [&str; 2] = ["login.json", "gateway-token"];
/// Less free space than this is a problem, because conversations are stored.
const MIN_FREE_BYTES: u64 = 64 * 1024 * 1024;

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Ok,
    /// It works, but not as the user may expect.
    Warning,
    /// Turns or recovery will fail.
    Problem,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) text: String,
}

impl Finding {
    pub(crate) fn ok(text: impl Into<String>) -> Self {
        Self {
            severity: Severity::Ok,
            text: text.into(),
        }
    }

    pub(crate) fn warning(text: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            text: text.into(),
        }
    }

    /// Returns whether it quotes a text that may be the user's.
    pub(crate) fn is_private(&self) -> bool {
        self.text.starts_with(last_error::PREFIX)
    }

    pub(crate) fn problem(text: impl Into<String>) -> Self {
        Self {
            severity: Severity::Problem,
            text: text.into(),
        }
    }
}

/// Returns the findings about the program, the account, the endpoints, the settings and the state
/// folder. Uses no network. `host_key` is set if a host has sent the key in use, and `no_key` is
/// what a user without a key can do.
pub(crate) fn check(
    config: &Config,
    host_key: Option<CredentialSource>,
    no_key: &str,
) -> Vec<Finding> {
    let mut findings = vec![program()];
    findings.extend(account_checkup::check(config, host_key, no_key));
    findings.push(endpoint(config));
    if let Some(file) = &config.file {
        let text = format!("configuration file: {}", file.display());
        findings.push(Finding::ok(text));
    }
    let warnings = config.warnings.iter();
    findings.extend(warnings.map(|warning| Finding::warning(warning.to_string())));
    for finding in state(config.state_dir.as_deref()) {
        // The check of the account may have reported the same file.
        let is_known = |other: &Finding| other.text.contains(&finding.text);
        if !findings.iter().any(is_known) {
            findings.push(finding);
        }
    }
    let last_error = config.state_dir.as_deref().and_then(last_error::read);
    findings.extend(last_error.map(|error| error.finding()));
    findings.push(match &config.debug_log {
        LogDestination::Off => {
            Finding::ok("debug log: off (PI_CURSOR_PROVIDER_DEBUG=1 turns it on)")
        }
        LogDestination::NewFileIn(folder) => {
            Finding::ok(format!("debug log: in {}", folder.display()))
        }
        LogDestination::File(path) => Finding::ok(format!("debug log: {}", path.display())),
        LogDestination::NoStateDir => Finding::problem(NO_STATE),
    });
    findings
}

pub(crate) const NO_STATE: &str =
    "there is no state folder on this machine; set PI_CURSOR_STATE_DIR";

fn program() -> Finding {
    let version = env!("CARGO_PKG_VERSION");
    match std::env::current_exe() {
        Ok(path) => Finding::ok(format!("cursor-sidecar {version} ({})", path.display())),
        Err(_) => Finding::ok(format!("cursor-sidecar {version}")),
    }
}

fn endpoint(config: &Config) -> Finding {
    match Endpoints::resolve(&config.client.endpoints) {
        Ok(endpoints) => {
            let source = match endpoints.agent_source {
                UrlSource::Setting(name) => format!("set by {name}"),
                UrlSource::CliConfig => "from the Cursor CLI's configuration".to_owned(),
                UrlSource::Default => "default".to_owned(),
            };
            Finding::ok(format!("runs go to {} ({source})", endpoints.agent))
        }
        Err(error) => Finding::problem(error.to_string()),
    }
}

/// Checks whether the state folder can be written, has room, and is private: files of a folder
/// that others can write are not used.
fn state(folder: Option<&Path>) -> Vec<Finding> {
    let Some(folder) = folder else {
        return vec![Finding::problem(NO_STATE)];
    };
    if let Err(error) = private_files::check_folder(folder) {
        return vec![Finding::problem(format!("state folder: {error}"))];
    }
    let mut findings = vec![writable(folder)];
    findings.extend(room(folder));
    let secrets = SECRET_FILES.map(|name| private_files::read_secret(&folder.join(name)));
    let exposed = secrets.into_iter().filter_map(Result::err);
    findings.extend(exposed.map(|error| Finding::problem(error.to_string())));
    findings
}

/// Creates and removes a file, or checks that the folder can be created.
fn writable(folder: &Path) -> Finding {
    let shown = folder.display();
    let lost = "turns work, but cannot be recovered after a crash";
    if !folder.exists() {
        let existing = folder.ancestors().find(|folder| folder.exists());
        return match existing {
            Some(existing) if disk::can_create_in(existing) => {
                Finding::ok(format!("state folder: {shown} (made when it is needed)"))
            }
            _ => Finding::problem(format!("state folder: {shown} cannot be created: {lost}")),
        };
    }
    let probe = folder.join(format!(".doctor-{}", uuid::Uuid::new_v4()));
    match std::fs::write(&probe, "probe") {
        Ok(()) => {
            // A leftover file would do no harm.
            let _ = std::fs::remove_file(&probe);
            Finding::ok(format!("state folder: {shown}, can be written"))
        }
        Err(error) => {
            let _ = std::fs::remove_file(&probe);
            Finding::problem(format!(
                "state folder: {shown} cannot be written ({error}): {lost}"
            ))
        }
    }
}

/// Returns a problem if little space is left.
fn room(folder: &Path) -> Option<Finding> {
    let existing = folder.ancestors().find(|folder| folder.exists())?;
    let free = disk::free_bytes(existing)?;
    (free < MIN_FREE_BYTES).then(|| {
        let mebibytes = free / (1024 * 1024);
        Finding::problem(format!(
            "state folder: only {mebibytes} MiB are free on its disk"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_created_is_a_problem() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(
            writable(&file.join("state")).severity,
            Severity::Problem,
            "below a file"
        );
        let missing = root.path().join("a/b/state");
        assert_eq!(writable(&missing).severity, Severity::Ok);
        assert!(!missing.exists());
    }
}
