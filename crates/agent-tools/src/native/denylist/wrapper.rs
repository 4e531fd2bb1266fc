//! Commands that execute others: `env`, `xargs`, `bash -c`, `eval` and similar.

use super::parse::{Found, Unclear};
use super::word::{Piece, Word, hides_code};

/// A command whose arguments are options, optional operands, and then a command.
struct Prefix {
    name: &'static str,
    /// Short options without a value.
    flags: &'static str,
    /// Short options with a value.
    valued: &'static str,
    /// Long options without a value.
    long_flags: &'static [&'static str],
    /// Long options with a value, which may be the next word.
    long_valued: &'static [&'static str],
    /// Words before the command.
    operands: usize,
    /// Whether variables may be set before the command.
    assigns: bool,
}

const fn prefix(name: &'static str, flags: &'static str, valued: &'static str) -> Prefix {
    Prefix {
        name,
        flags,
        valued,
        long_flags: &[],
        long_valued: &[],
        operands: 0,
        assigns: false,
    }
}

const PREFIXES: &[Prefix] = &[
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
    Prefix {
        long_valued: &["adjustment"],
        ..prefix("nice", "0123456789", "n")
    },
    Prefix {
        long_flags: &["preserve-status", "foreground", "verbose"],
        long_valued: &["kill-after", "signal"],
        operands: 1,
        ..prefix("timeout", "v", "ks")
    },
    Prefix {
        long_valued: &["input", "output", "error"],
        ..prefix("stdbuf", "", "ioe")
    },
    Prefix {
        long_flags: &["ignore-environment", "null", "debug"],
        long_valued: &["unset", "chdir"],
        assigns: true,
        ..prefix("env", "i0v", "uC")
    },
    Prefix {
        long_flags: &["non-interactive", "preserve-env", "stdin", "set-home"],
        long_valued: &["user", "group", "chdir"],
        assigns: true,
        ..prefix("sudo", "AbEHnPSk", "ugprtTCDRh")
    },
    Prefix {
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

/// Commands that execute others in their own ways.
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
/// Shells with another grammar, and builtins that change the meaning of names.
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
pub(super) fn follow(found: &mut Found, name: &str, args: &[Word]) -> Result<(), Unclear> {
    if UNCLEAR.contains(&name) {
        return Err(Unclear);
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
        let texts = || args.iter().filter_map(Word::text);
        let calls_back = matches!(name, "mapfile" | "readarray")
            && texts().any(|text| text.starts_with('-') && text.contains('C'));
        if calls_back || texts().any(|text| hides_code(&text)) {
            return Err(Unclear);
        }
    }
    match name {
        "find" | "fd" | "fdfind" => executed_by_find(found, args),
        "eval" => {
            let args = skip_dashes(args);
            let texts: Result<Vec<String>, Unclear> = args.iter().map(Word::known).collect();
            found.program(&texts?.join(" "))
        }
        "trap" => trap(found, args),
        // A definition changes the meaning of a name.
        "alias" if args.iter().any(is_definition) => Err(Unclear),
        "hash" if args.iter().any(is_option) => Err(Unclear),
        _ => Ok(()),
    }
}

fn is_definition(word: &Word) -> bool {
    word.text().is_none_or(|text| text.contains('='))
}

fn is_option(word: &Word) -> bool {
    word.text().is_none_or(|text| text.starts_with('-'))
}

fn skip_dashes(args: &[Word]) -> &[Word] {
    match args.split_first() {
        Some((first, rest)) if first.text().as_deref() == Some("--") => rest,
        _ => args,
    }
}

/// Adds the command after the options of a prefix.
fn after_prefix(found: &mut Found, prefix: &Prefix, args: &[Word]) -> Result<(), Unclear> {
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
                return Err(Unclear);
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
                let next = || args.get(at).map_or(Err(Unclear), Word::known);
                replaced = Some(match &value {
                    Some(value) if !value.is_empty() => value.clone(),
                    _ => next()?,
                });
            }
            at += usize::from(value.is_some_and(|value| value.is_empty()));
        } else if prefix.assigns && text.contains('=') {
            // Defines an exported function, which may have any name.
            if text.starts_with("BASH_FUNC_") {
                return Err(Unclear);
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
fn harmless_or_unclear(long: &str) -> Result<(), Unclear> {
    if matches!(long, "help" | "version") {
        Ok(())
    } else {
        Err(Unclear)
    }
}

/// Returns the value in a cluster of short options: `None` if no option has a value, empty if the
/// value is the next word.
fn value_of(prefix: &Prefix, cluster: &str) -> Result<Option<String>, Unclear> {
    for (at, option) in cluster.char_indices() {
        if prefix.valued.contains(option) {
            return Ok(Some(cluster[at + option.len_utf8()..].to_owned()));
        }
        if !prefix.flags.contains(option) {
            return Err(Unclear);
        }
    }
    Ok(None)
}

/// Adds the arguments that `xargs` reads from its input: at the end, or in place of `replaced`.
fn read_by_xargs(words: &mut Vec<Word>, replaced: Option<&str>) -> Result<(), Unclear> {
    let Some(replaced) = replaced else {
        words.push(Word::unknown());
        return Ok(());
    };
    for (at, word) in words.iter_mut().enumerate() {
        if word.text().is_none_or(|text| text.contains(replaced)) {
            if at == 0 {
                return Err(Unclear);
            }
            word.pieces = vec![Piece::Part];
        }
    }
    Ok(())
}

/// Adds the command of a shell. A script is not read.
fn shell(found: &mut Found, args: &[Word]) -> Result<(), Unclear> {
    let mut is_command = false;
    let mut at = 0;
    while let Some(word) = args.get(at) {
        let text = word.known()?;
        at += 1;
        match text.as_str() {
            "--version" | "--help" => return Ok(()),
            "--norc" | "--noprofile" | "--posix" | "--login" | "--" => {}
            long if long.starts_with("--") => return Err(Unclear),
            short if short.len() > 1 && short.starts_with(['-', '+']) => {
                if short.contains(['s', 'i', 'O']) {
                    return Err(Unclear);
                }
                is_command |= short.contains('c');
                at += usize::from(short.contains('o'));
            }
            command if is_command => return found.program(command),
            "-" => return Err(Unclear),
            script if script.starts_with("/dev/") || script.starts_with("/proc/") => {
                return Err(Unclear);
            }
            _ => return Ok(()),
        }
    }
    // The shell executes its standard input.
    Err(Unclear)
}

/// Treats every word as the possible start of a command, and as a possible text of commands.
fn anywhere(found: &mut Found, args: &[Word]) -> Result<(), Unclear> {
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

fn executed_by_find(found: &mut Found, args: &[Word]) -> Result<(), Unclear> {
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
            // An expansion that is split may be any of its words.
            None => first.pieces.contains(&Piece::Parts),
        };
        if !begins {
            continue;
        }
        first.known()?;
        let is_end = |word: &Word| matches!(word.text().as_deref(), Some(";" | "+"));
        let end = after.iter().position(is_end).unwrap_or(after.len());
        let mut words = after[..end].to_vec();
        read_by_xargs(&mut words, Some("{"))?;
        words.push(Word::unknown());
        found.invocation(words)?;
        rest = &after[end..];
    }
    Ok(())
}

fn trap(found: &mut Found, args: &[Word]) -> Result<(), Unclear> {
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
