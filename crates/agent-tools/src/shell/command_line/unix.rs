//! bash, or `/bin/sh`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tokio::process::Command;

use crate::shell::state::ShellStateFiles;

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

/// Returns true: commands are in the language of a POSIX shell.
pub(crate) fn is_posix() -> bool {
    true
}

/// Returns a shell with a command that restores and saves its state.
pub(crate) fn in_shell(command: &str, state_files: &ShellStateFiles) -> io::Result<Command> {
    Ok(super::posix(shell(), command, state_files, str::to_owned))
}

/// Returns the shell with the command of a hook.
pub(crate) fn hook_shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]);
    shell
}
