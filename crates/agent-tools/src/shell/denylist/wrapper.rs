//! Commands that execute others: `env`, `xargs`, `bash -c`, `eval` and similar.

use super::parse::{FoundCommands, ParseError};
use super::word::{ShellWord, WordPart, hides_code};

/// A command whose arguments are options, operands, and then a command.
struct PrefixCommand {
    name: &'static str,
    /// Short options without a value.
    flags: &'static str,
    /// Short options with a value.
    valued: &'static str,
    /// Long options without a value.
    long_flags: &'static [&'static str],
    /// Long options with a value, which may be the next word.
    long_valued: &'static [&'static str],
    /// The number of words between the options and the command.
    operands: usize,
    /// Whether variables may be set before the command.
    assigns: bool,
}

const fn prefix(name: &'static str, flags: &'static str, valued: &'static str) -> PrefixCommand {
    PrefixCommand {
        name,
        flags,
        valued,
        long_flags: &[],
        long_valued: &[],
        operands: 0,
        assigns: false,
    }
}

const PREFIXES: &[PrefixCommand] = &[
    prefix("command", "p", ""),
    prefix("builtin", "", ""),
    prefix("coproc", "", ""),
    prefix("exec", "cl", "a"),
    prefix("nohup", "", ""),
    prefix("setsid", "cfw", ""),
    prefix("time", "pvaqV", "fo"),
    prefix("ionice", "t", "cn"),
    prefix("doas", "n", "uC"),
    prefix("caffeinate", "dimsu", "tw"),
    PrefixCommand {
        long_valued: &["adjustment"],
        ..prefix("nice", "0123456789", "n")
    },
    PrefixCommand {
        long_flags: &["preserve-status", "foreground", "verbose"],
        long_valued: &["kill-after", "signal"],
        operands: 1,
        ..prefix("timeout", "v", "ks")
    },
    PrefixCommand {
        long_valued: &["input", "output", "error"],
        ..prefix("stdbuf", "", "ioe")
    },
    PrefixCommand {
        long_flags: &["ignore-environment", "null", "debug"],
        long_valued: &["unset", "chdir"],
        assigns: true,
        ..prefix("env", "i0v", "uC")
    },
    PrefixCommand {
        long_flags: &["non-interactive", "preserve-env", "stdin", "set-home"],
        long_valued: &["user", "group", "chdir"],
        assigns: true,
        ..prefix("sudo", "AbEHnPSk", "ugprtTCDRh")
    },
    PrefixCommand {
        long_flags: &["null", "no-run-if-empty", "verbose", "exit", "interactive"],
        long_valued: &[
            "arg-file",
            "delimiter",
            "max-args",
            "max-lines",
            "max-procs",
        ],
        ..prefix("xargs", "0rtxpo", "adEILnPs")
    },
];

/// Commands that execute others, and whose options are not known here: any word may begin a command.
const LOOSE: &[&str] = &[
    "busybox",
    "toybox",
    "strace",
    "ltrace",
    "watch",
    "parallel",
    "flock",
    "chrt",
    "taskset",
    "script",
    "su",
    "runuser",
    "chroot",
    "unshare",
    "nsenter",
    "setpriv",
    "systemd-run",
    "entr",
    "valgrind",
    "fakeroot",
    "proot",
    "expect",
    "unbuffer",
    "xvfb-run",
    "dbus-run-session",
    "ssh",
];
const SHELLS: &[&str] = &["bash", "sh", "dash", "zsh", "ksh", "mksh", "ash", "rbash"];
/// Shells with another grammar, and builtins that change the meaning of names. They are refused.
const UNCLEAR: &[&str] = &[
    "fish", "csh", "tcsh", "pwsh", "nu", "xonsh", "source", ".", "enable", "bind", "fc",
    "complete", "compgen",
];
/// Builtins that evaluate their arguments.
const EVALUATING: &[&str] = &[
    "let",
    "declare",
    "typeset",
    "local",
    "export",
    "readonly",
    "unset",
    "read",
    "printf",
    "test",
    "[",
    "wait",
    "mapfile",
    "readarray",
    "return",
    "exit",
    "shift",
    "getopts",
];

/// Adds the commands that a command executes.
pub(super) fn follow(
    found: &mut FoundCommands,
    name: &str,
    args: &[ShellWord],
) -> Result<(), ParseError> {
    if UNCLEAR.contains(&name) {
        return Err(ParseError);
    }
    if let Some(prefix) = PREFIXES.iter().find(|prefix| prefix.name == name) {
        return after_prefix(found, prefix, args);
    }
    if SHELLS.contains(&name) {
        return shell(found, args);
    }
    if LOOSE.contains(&name) {
        return anywhere(found, args);
    }
    if EVALUATING.contains(&name) {
        let texts = || args.iter().filter_map(ShellWord::text);
        let calls_back = matches!(name, "mapfile" | "readarray")
            && texts().any(|text| text.starts_with('-') && text.contains('C'));
        if calls_back || texts().any(|text| hides_code(&text)) {
            return Err(ParseError);
        }
    }
    match name {
        "find" | "fd" | "fdfind" => executed_by_find(found, args),
        "eval" => {
            let args = skip_dashes(args);
            let texts: Result<Vec<String>, ParseError> =
                args.iter().map(ShellWord::known).collect();
            found.program(&texts?.join(" "))
        }
        "trap" => trap(found, args),
        // A definition changes the meaning of a name.
        "alias" if args.iter().any(is_definition) => Err(ParseError),
        "hash" if args.iter().any(is_option) => Err(ParseError),
        _ => Ok(()),
    }
}

fn is_definition(word: &ShellWord) -> bool {
    word.text().is_none_or(|text| text.contains('='))
}

fn is_option(word: &ShellWord) -> bool {
    word.text().is_none_or(|text| text.starts_with('-'))
}

fn skip_dashes(args: &[ShellWord]) -> &[ShellWord] {
    match args.split_first() {
        Some((first, rest)) if first.text().as_deref() == Some("--") => rest,
        _ => args,
    }
}

/// Adds the command after the options of a prefix.
fn after_prefix(
    found: &mut FoundCommands,
    prefix: &PrefixCommand,
    args: &[ShellWord],
) -> Result<(), ParseError> {
    let mut operands = prefix.operands;
    let mut replaced = None;
    let mut options = true;
    let mut at = 0;
    while let Some(word) = args.get(at) {
        let text = word.known()?;
        at += 1;
        if options && text == "--" {
            options = false;
        } else if options && text == "-" && prefix.name == "env" {
        } else if let Some(long) = text.strip_prefix("--").filter(|_| options) {
            if long.contains('=') || prefix.long_flags.contains(&long) {
            } else if prefix.long_valued.contains(&long) {
                at += 1;
            } else {
                return harmless_or_unclear(long);
            }
            if long.starts_with("split-string") || long.starts_with("replace") {
                return Err(ParseError);
            }
        } else if let Some(cluster) = text
            .strip_prefix('-')
            .filter(|it| options && !it.is_empty())
        {
            if prefix.name == "command" && cluster.contains(['v', 'V']) {
                return Ok(()); // It only prints what a name stands for.
            }
            let value = value_of(prefix, cluster)?;
            if cluster.starts_with('I') {
                let next = || args.get(at).map_or(Err(ParseError), ShellWord::known);
                replaced = Some(match &value {
                    Some(value) if !value.is_empty() => value.clone(),
                    _ => next()?,
                });
            }
            at += usize::from(value.is_some_and(|value| value.is_empty()));
        } else if prefix.assigns && text.contains('=') {
            // Defines an exported function, which may have any name.
            if text.starts_with("BASH_FUNC_") {
                return Err(ParseError);
            }
        } else if operands > 0 {
            operands -= 1;
        } else {
            let mut words = args[at - 1..].to_vec();
            if prefix.name == "xargs" {
                read_by_xargs(&mut words, replaced.as_deref())?;
            }
            return found.invocation(words);
        }
    }
    Ok(())
}

/// Accepts options that only print something.
fn harmless_or_unclear(long: &str) -> Result<(), ParseError> {
    if matches!(long, "help" | "version") {
        Ok(())
    } else {
        Err(ParseError)
    }
}

/// Returns the value in a cluster of short options: `None` if no option has a value, empty if the
/// value is the next word.
fn value_of(prefix: &PrefixCommand, cluster: &str) -> Result<Option<String>, ParseError> {
    for (at, option) in cluster.char_indices() {
        if prefix.valued.contains(option) {
            return Ok(Some(cluster[at + option.len_utf8()..].to_owned()));
        }
        if !prefix.flags.contains(option) {
            return Err(ParseError);
        }
    }
    Ok(None)
}

/// Adds the arguments that `xargs` reads from its input: at the end, or in place of `replaced`.
fn read_by_xargs(words: &mut Vec<ShellWord>, replaced: Option<&str>) -> Result<(), ParseError> {
    let Some(replaced) = replaced else {
        words.push(ShellWord::unknown());
        return Ok(());
    };
    for (at, word) in words.iter_mut().enumerate() {
        if word.text().is_none_or(|text| text.contains(replaced)) {
            if at == 0 {
                return Err(ParseError);
            }
            word.pieces = vec![WordPart::Part];
        }
    }
    Ok(())
}

/// Adds the command of `sh -c`. A script file is not read.
fn shell(found: &mut FoundCommands, args: &[ShellWord]) -> Result<(), ParseError> {
    let mut is_command = false;
    let mut at = 0;
    while let Some(word) = args.get(at) {
        let text = word.known()?;
        at += 1;
        match text.as_str() {
            "--version" | "--help" => return Ok(()),
            "--norc" | "--noprofile" | "--posix" | "--login" | "--" => {}
            long if long.starts_with("--") => return Err(ParseError),
            short if short.len() > 1 && short.starts_with(['-', '+']) => {
                if short.contains(['s', 'i', 'O']) {
                    return Err(ParseError);
                }
                is_command |= short.contains('c');
                at += usize::from(short.contains('o'));
            }
            command if is_command => return found.program(command),
            "-" => return Err(ParseError),
            script if script.starts_with("/dev/") || script.starts_with("/proc/") => {
                return Err(ParseError);
            }
            _ => return Ok(()),
        }
    }
    // The shell executes its standard input.
    Err(ParseError)
}

/// Treats a word with white space as a script, and any other as the possible start of a command.
fn anywhere(found: &mut FoundCommands, args: &[ShellWord]) -> Result<(), ParseError> {
    for (at, word) in args.iter().enumerate() {
        let text = word.known()?;
        if text.contains(char::is_whitespace) {
            found.program(&text)?;
        } else if !text.starts_with('-') {
            found.invocation(args[at..].to_vec())?;
        }
    }
    Ok(())
}

fn executed_by_find(found: &mut FoundCommands, args: &[ShellWord]) -> Result<(), ParseError> {
    const BEGIN: [&str; 8] = [
        "-exec",
        "-execdir",
        "-ok",
        "-okdir",
        "-x",
        "-X",
        "--exec",
        "--exec-batch",
    ];
    let mut rest = args;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let begins = match first.text() {
            Some(text) => BEGIN.contains(&text.as_str()),
            // An unquoted expansion may be split into several words, one of which begins a command.
            None => first.pieces.contains(&WordPart::Parts),
        };
        if !begins {
            continue;
        }
        first.known()?;
        let is_end = |word: &ShellWord| matches!(word.text().as_deref(), Some(";" | "+"));
        let end = after.iter().position(is_end).unwrap_or(after.len());
        let mut words = after[..end].to_vec();
        read_by_xargs(&mut words, Some("{"))?;
        words.push(ShellWord::unknown());
        found.invocation(words)?;
        rest = &after[end..];
    }
    Ok(())
}

fn trap(found: &mut FoundCommands, args: &[ShellWord]) -> Result<(), ParseError> {
    let Some(first) = skip_dashes(args).first() else {
        return Ok(());
    };
    let text = first.known()?;
    let is_reset = text.is_empty()
        || matches!(text.as_str(), "-" | "-l" | "-p" | "-P")
        || text.bytes().all(|byte| byte.is_ascii_digit());
    if is_reset {
        return Ok(());
    }
    found.program(&text)
}
