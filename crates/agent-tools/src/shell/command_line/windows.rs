//! The shells of Windows, in the official client's order: Git's bash if this process was started
//! from it, PowerShell 7, Windows PowerShell; and `cmd` where there is none of them.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tokio::process::Command;

use crate::shell::state::ShellStateFiles;

/// A shell, by the language of its commands.
#[derive(Debug)]
enum WindowsShell {
    Bash(PathBuf),
    PowerShell(PathBuf),
    Cmd(PathBuf),
}

/// Executes the command in `$args[0]` and saves the directory and the environment as data. The
/// texts arrive in files, because Windows limits the length of a command line.
const POWERSHELL_SCRIPT: &str = r#"param([string]$__command, [string]$__after)
$ProgressPreference = 'SilentlyContinue'
$OutputEncoding = [Console]::OutputEncoding = New-Object System.Text.UTF8Encoding $false
$__text = [IO.File]::ReadAllText($__command)
$global:LASTEXITCODE = 0
$__code = 0
try { Invoke-Expression $__text; if (-not $?) { $__code = 1 }; if ($LASTEXITCODE) { $__code = $LASTEXITCODE } }
catch { [Console]::Error.WriteLine($_); $__code = 1 }
finally {
  $__state = (Get-Location).ProviderPath + "`n" + [char]0
  Get-ChildItem Env: | ForEach-Object { $__state += $_.Name + '=' + $_.Value + [char]0 }
  [IO.File]::WriteAllText($__after, $__state)
  Remove-Item -LiteralPath $__command -ErrorAction SilentlyContinue
}
exit $__code
"#;
const POWERSHELL: [&str; 4] = [
    "-NoProfile",
    "-NonInteractive",
    "-ExecutionPolicy",
    "Bypass",
];

fn chosen() -> &'static WindowsShell {
    static SHELL: OnceLock<WindowsShell> = OnceLock::new();
    SHELL.get_or_init(|| {
        let system = env::var_os("SYSTEMROOT").map_or_else(|| r"C:\Windows".into(), PathBuf::from);
        let system = system.join("System32");
        let windows_powershell = system.join(r"WindowsPowerShell\v1.0\powershell.exe");
        git_bash()
            .map(WindowsShell::Bash)
            .or_else(|| in_path("pwsh.exe").map(WindowsShell::PowerShell))
            .or_else(|| {
                let found = windows_powershell.is_file();
                found.then_some(WindowsShell::PowerShell(windows_powershell))
            })
            .unwrap_or_else(|| WindowsShell::Cmd(system.join("cmd.exe")))
    })
}

fn git_bash() -> Option<PathBuf> {
    env::var_os("MSYSTEM")?;
    let own = env::var_os("EXEPATH").map(|folder| PathBuf::from(folder).join(r"bash.exe"));
    let usual = PathBuf::from(r"C:\Program Files\Git\bin\bash.exe");
    own.into_iter().chain([usual]).find(|file| file.is_file())
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Returns the path of the shell.
pub(crate) fn shell() -> &'static Path {
    match chosen() {
        WindowsShell::Bash(path) | WindowsShell::PowerShell(path) | WindowsShell::Cmd(path) => path,
    }
}

/// Returns whether commands are in the language of a POSIX shell.
pub(crate) fn is_posix() -> bool {
    matches!(chosen(), WindowsShell::Bash(_))
}

/// Returns a shell with a command that restores and saves its state. `cmd` saves none.
pub(crate) fn in_shell(command: &str, state_files: &ShellStateFiles) -> io::Result<Command> {
    let mut shell = Command::new(shell());
    match chosen() {
        WindowsShell::Bash(path) => {
            // A directory in the form that Windows knows.
            let native = |script: &str| script.replacen("{ pwd;", "{ pwd -W;", 1);
            return Ok(super::posix(path, command, state_files, native));
        }
        WindowsShell::PowerShell(_) => {
            let text = state_files.after().with_extension("command");
            std::fs::write(&text, command)?;
            let script = state_files.after().with_file_name("run.ps1");
            // Always the same, so that concurrent commands may write it.
            if !script.exists() {
                std::fs::write(&script, POWERSHELL_SCRIPT)?;
            }
            shell.args(POWERSHELL).arg("-File").arg(script);
            shell.arg(text).arg(state_files.after());
        }
        WindowsShell::Cmd(_) => {
            shell.args(["/d", "/s", "/c"]);
            shell.raw_arg(format!("\"{command}\""));
        }
    }
    Ok(shell)
}

/// Returns the shell with the command of a hook.
pub(crate) fn hook_shell(command: &str) -> Command {
    let mut shell = Command::new(shell());
    match chosen() {
        WindowsShell::Bash(_) => {
            shell.args(["-c", command]);
        }
        WindowsShell::PowerShell(_) => {
            let quoted = command.starts_with(['\'', '"']);
            let call = if quoted { "& " } else { "" };
            shell.args(POWERSHELL).arg("-Command");
            shell.arg(format!("$input | {call}{command}"));
        }
        WindowsShell::Cmd(_) => {
            shell.args(["/d", "/s", "/c"]);
            shell.raw_arg(format!("\"{command}\""));
        }
    }
    shell
}
