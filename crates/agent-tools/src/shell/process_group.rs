//! Commands as process groups that do not outlive this process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::reaper::ChildReaper;
use super::state::{ShellStateFiles, StateScope};

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

/// Starts a command in a process group of its own that does not outlive this process.
pub(crate) fn spawn(
    command: &mut Command,
    reaper: &ChildReaper,
) -> io::Result<(Child, ProcessGroup)> {
    reaper.ready();
    let child = command.process_group(0).spawn()?;
    let group = ProcessGroup::of(&child, reaper)?;
    Ok((child, group))
}

/// A process group. Dropping it kills every process in it.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    id: Pid,
    reaper: ChildReaper,
    /// Its permit among the commands executed at once.
    place: Option<OwnedSemaphorePermit>,
}

impl ProcessGroup {
    /// Returns the process group that `child` leads, registered with the reaper.
    fn of(child: &Child, reaper: &ChildReaper) -> io::Result<Self> {
        let number = child.id().and_then(|id| i32::try_from(id).ok());
        let pid = number.and_then(Pid::from_raw);
        let group = Self {
            id: pid.ok_or(io::ErrorKind::NotFound)?,
            reaper: reaper.clone(),
            place: None,
        };
        reaper.enter(group.id)?;
        Ok(group)
    }

    /// Sends a signal to every process of the group.
    pub(crate) fn signal(&self, signal: Signal) {
        // An error means that the group no longer exists.
        let _ = rustix::process::kill_process_group(self.id, signal);
    }

    /// Waits until no process of the group is left. The group is held until then, because its id
    /// may be reused afterwards.
    pub(crate) async fn gone(self) {
        while self.is_alive() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Returns whether a process of the group is left.
    pub(crate) fn is_alive(&self) -> bool {
        rustix::process::test_kill_process_group(self.id).is_ok()
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        self.reaper.leave(self.id);
    }
}

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

/// Restores the last command's state, runs the command, and saves directory and exports for the
/// next. It is one line, so that the shell's error messages have the command's line numbers and
/// so that no alias changes the script itself.
///
/// The saved state is sourced line by line: options come first because functions may need them,
/// but aliases are enabled only after all of it is read. Alias names may contain anything, so
/// they are quoted.
const SCRIPT: &str = r#"__command=$1 __before=$2 __after=$3; shift 3; [ -s "$__before" ] && . "$__before"; eval "$__command"; __code=$?; { pwd; printf '\0'; ( set +aeux; unset PWD SHLVL _; if [ "$BASH_VERSION" ]; then builtin echo "{"; builtin shopt -p; builtin echo "shopt -u expand_aliases; } 2>/dev/null"; builtin shopt -q expand_aliases && __code=on; builtin shopt -u expand_aliases; eval 'for __name in "${!BASH_ALIASES[@]}"; do builtin printf "alias -- %q\n" "$__name=${BASH_ALIASES[$__name]}"; done'; fi; export -p; declare -f; [ "$__code" = on ] && builtin echo "builtin shopt -s expand_aliases" ); } > "$__after" 2>/dev/null; exit $__code"#;

/// The same where only variables carry over: nothing is sourced, and the saved state is data.
const PLAIN_SCRIPT: &str = r#"__command=$1 __after=$3; shift 3; eval "$__command"; __code=$?; { pwd; printf '\0'; env -0; } > "$__after" 2>/dev/null; exit $__code"#;

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
    let mut shell = Command::new(shell());
    shell
        .arg("-c")
        .arg(match state_files.scope() {
            StateScope::Everything => SCRIPT,
            StateScope::Variables => PLAIN_SCRIPT,
        })
        .args(["--", command])
        .args([state_files.before(), state_files.after()])
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

/// Returns the path of bash, or `/bin/sh` if bash is not in `PATH`.
pub(crate) fn shell() -> &'static Path {
    static SHELL: OnceLock<PathBuf> = OnceLock::new();
    SHELL.get_or_init(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .map(|folder| folder.join("bash"))
            .find(|file| file.is_file())
            .unwrap_or_else(|| PathBuf::from("/bin/sh"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
