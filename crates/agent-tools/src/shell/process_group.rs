//! Commands as process groups that do not outlive this process. On Windows a group is a job object.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::Semaphore;

use super::command_line;
use super::reaper::ChildReaper;
use super::state::ShellStateFiles;

#[cfg(unix)]
pub(crate) use unix::{ProcessGroup, Signal, lower_priority, spawn};
#[cfg(windows)]
pub(crate) use windows::{CommandJob, ProcessGroup, Signal, lower_priority, spawn};

/// How often to check whether processes that a command left running are still alive.
const LOOK: Duration = Duration::from_secs(1);

/// The most commands executed at once, foreground and background, in all sessions.
pub(crate) const MAX_COMMANDS: usize = 64;

/// One permit for each of them.
static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_COMMANDS)));

/// The limit of concurrent commands is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", crate::prompts::tools::too_many_commands(MAX_COMMANDS))]
pub(crate) struct TooManyCommands;

/// Where a command's standard input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StdinMode {
    /// Nothing.
    Nothing,
    /// A pipe that is written to later.
    Pipe,
}

/// A running command.
#[derive(Debug)]
pub(crate) struct RunningCommand {
    /// The process; its output pipes are still in it.
    pub(crate) child: Child,
    /// Its standard input, taken out of `child` because waiting for a child closes it.
    pub(crate) stdin: Option<ChildStdin>,
    /// Its process group.
    pub(crate) group: ProcessGroup,
    /// Its process id.
    pub(crate) pid: u32,
    /// The shell state it started from, and saves.
    pub(crate) state_files: ShellStateFiles,
}

/// Starts a command in a shell, in a process group of its own. Fails with [`TooManyCommands`] at
/// the limit.
pub(crate) fn start(
    command: &str,
    folder: &Path,
    state_files: ShellStateFiles,
    input: StdinMode,
    reaper: &ChildReaper,
) -> io::Result<RunningCommand> {
    let place = Arc::clone(&PLACES).try_acquire_owned();
    let place = place.map_err(|_| io::Error::other(TooManyCommands))?;
    let mut shell = command_line::in_shell(command, &state_files)?;
    shell
        .current_dir(folder)
        .stdin(match input {
            StdinMode::Nothing => Stdio::null(),
            StdinMode::Pipe => Stdio::piped(),
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    scrub(&mut shell);
    shell.envs(
        state_files
            .variables()
            .iter()
            .map(|(name, value)| (name, value)),
    );
    let (mut child, mut group) = spawn(&mut shell, reaper)?;
    group.place = Some(place);
    Ok(RunningCommand {
        pid: child.id().unwrap_or_default(),
        stdin: child.stdin.take(),
        child,
        group,
        state_files,
    })
}

/// Removes our credentials and settings from the environment that a command inherits.
pub fn remove_secrets(command: &mut std::process::Command) {
    for name in secret_names(std::env::vars_os().map(|(name, _)| name)) {
        command.env_remove(name);
    }
}

/// Removes them too, and turns colours off because the output is read by a program.
pub(crate) fn scrub(command: &mut Command) {
    remove_secrets(command.as_std_mut());
    command.envs(BTreeMap::from([
        ("CURSOR_AGENT", "1"),
        ("FORCE_COLOR", "0"),
        ("NO_COLOR", "1"),
        ("TERM", "dumb"),
    ]));
}

/// Returns the names of variables with our credentials or settings.
fn secret_names(names: impl Iterator<Item = OsString>) -> Vec<OsString> {
    names
        .filter(|name| {
            let name = name.to_string_lossy().to_ascii_uppercase();
            let words = ["KEY", "TOKEN", "SECRET", "PASSWORD", "JWT"];
            name.starts_with("PI_CURSOR_")
                || name == "INFERENCE_PROXY_JWT"
                || name.starts_with("CURSOR_") && words.iter().any(|word| name.contains(word))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::state::StateScope;

    #[test]
    fn only_our_own_credentials_and_settings_are_secret() {
        let names = [
            "CURSOR_API_KEY",
            "CURSOR_AUTH_TOKEN",
            "PI_CURSOR_STATE_DIR",
            "CURSOR_BACKEND_URL",
            "PATH",
            "AWS_SECRET_ACCESS_KEY",
        ];
        let secret = secret_names(names.iter().map(OsString::from));
        assert_eq!(secret, names[..3]);
    }

    #[tokio::test]
    async fn dropping_a_group_kills_processes_that_ignore_sigterm() {
        let folder = tempfile::tempdir().unwrap();
        let command = "trap '' TERM; (trap '' TERM; exec sleep 600) & echo $!; wait";
        let mut running = start(
            command,
            folder.path(),
            ShellStateFiles::new(folder.path(), None, StateScope::Everything),
            StdinMode::Nothing,
            &ChildReaper::default(),
        )
        .unwrap();
        let mut line = String::new();
        let mut output = tokio::io::BufReader::new(running.child.stdout.take().unwrap());
        tokio::io::AsyncBufReadExt::read_line(&mut output, &mut line)
            .await
            .unwrap();
        drop(running.group);
        // The pipe closes when the last process that holds it has ended.
        let mut rest = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut output, &mut rest)
            .await
            .unwrap();
        assert!(!running.child.wait().await.unwrap().success());
    }
}
