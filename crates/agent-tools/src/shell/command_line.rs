//! Which shell executes a command, and with which arguments.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::{hook_shell, in_shell, is_posix, shell};
#[cfg(windows)]
pub(crate) use windows::{hook_shell, in_shell, is_posix, shell};

use std::path::Path;

use tokio::process::Command;

use super::state::{ShellStateFiles, StateScope};

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

/// Returns a POSIX shell with a command that restores and saves its state.
fn posix(
    program: &Path,
    command: &str,
    state_files: &ShellStateFiles,
    rewrite: impl Fn(&str) -> String,
) -> Command {
    let script = match state_files.scope() {
        StateScope::Everything => SCRIPT,
        StateScope::Variables => PLAIN_SCRIPT,
    };
    let mut shell = Command::new(program);
    shell
        .arg("-c")
        .arg(rewrite(script))
        .args(["--", command])
        .args([state_files.before(), state_files.after()]);
    shell
}
