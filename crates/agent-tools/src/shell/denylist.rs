//! Commands that an administrator's list denies.
//!
//! The list comes with each request. Every command in the text is found ([`parse`]), also those
//! that other commands execute ([`wrapper`]): `env`, `xargs`, `find -exec`, `bash -c`, `eval`,
//! `trap`. A text that cannot be parsed is not executed, nor is one whose commands are known
//! only when it is executed: an expansion as a name, a sourced file, a shell that reads its
//! input. What a program or a script executes by itself is not checked.

mod parse;
#[cfg(test)]
mod tests;
mod word;
mod wrapper;

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::{command_line, process_group};
use crate::prompts::refusals;
use parse::{FoundCommands, Invocation, ParseError};
use word::{ShellWord, WordPart};

/// How long the shell may take to check the syntax of a command.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The stack of the parser's thread, which is large because the parser is recursive.
const STACK: usize = 32 * 1024 * 1024;

/// Returns why a command is denied, or `None` if it may run.
pub(super) async fn denial_reason(command: &str, rules: &[String]) -> Option<String> {
    if rules.is_empty() {
        return None;
    }
    let invocations = if is_valid(command).await {
        invocations(command.to_owned()).await.unwrap_or_default()
    } else {
        Vec::new()
    };
    let matched = |rule: &&String| invocations.iter().any(|it| matches(rule, it));
    if let Some(rule) = rules.iter().find(matched) {
        return Some(refusals::denied_by_administrator(rule));
    }
    let may_match = || {
        let all = || invocations.iter().filter(|it| !it.is_known());
        rules.iter().any(|rule| all().any(|it| may_match(rule, it)))
    };
    // A text without commands is refused too, as the official client does.
    if invocations.iter().all(Invocation::declares) || may_match() {
        return Some(refusals::unknown_to_administrator());
    }
    None
}

/// Returns the commands of a text. It parses on a separate thread, because the parser needs a deep
/// stack and is slow with long texts.
async fn invocations(command: String) -> Result<Vec<Invocation>, ParseError> {
    let (found, result) = tokio::sync::oneshot::channel();
    let work = move || {
        let mut all = FoundCommands::default();
        let done = all.program(&command);
        // The receiver is dropped if the request was cancelled.
        let _ = found.send(done.map(|()| all.invocations));
    };
    let thread = std::thread::Builder::new().stack_size(STACK);
    thread.spawn(work).map_err(|_| ParseError)?;
    // A parser that panicked has sent nothing.
    result.await.map_err(|_| ParseError)?
}

/// Returns whether the syntax of a command is valid for the shell. Nothing is executed.
async fn is_valid(command: &str) -> bool {
    if !command_line::is_posix() {
        return false;
    }
    let mut shell = Command::new(command_line::shell());
    process_group::scrub(&mut shell);
    let status = shell
        .args(["-n", "-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status();
    matches!(tokio::time::timeout(TIMEOUT, status).await, Ok(Ok(status)) if status.success())
}

impl Invocation {
    /// Returns whether it only tests or declares something.
    fn declares(&self) -> bool {
        let name = self.0.first().and_then(ShellWord::text).unwrap_or_default();
        matches!(
            name.as_str(),
            "[" | "export" | "declare" | "local" | "readonly" | "typeset" | "unset"
        )
    }

    /// Returns whether the text of all its words is known.
    fn is_known(&self) -> bool {
        self.0.iter().all(|word| word.text().is_some())
    }

    fn pieces(&self) -> Vec<WordPart> {
        joined(self.0.iter().map(|word| word.pieces.clone()))
    }

    fn written(&self) -> Vec<WordPart> {
        joined(
            self.0
                .iter()
                .map(|word| ShellWord::literal(&word.written).pieces),
        )
    }
}

fn joined(words: impl Iterator<Item = Vec<WordPart>>) -> Vec<WordPart> {
    let mut all = Vec::new();
    for word in words {
        if !all.is_empty() {
            all.push(WordPart::Letter(' '));
        }
        all.extend(word);
    }
    all
}

/// Returns whether a rule names a command: `rm`, `git push`, `git p*`, or `name:arguments`.
fn matches(rule: &str, command: &Invocation) -> bool {
    is_named(rule, &command.written()) || command.is_known() && may_match(rule, command)
}

/// Returns whether a rule names a command, or could name it depending on its expansions.
fn may_match(rule: &str, command: &Invocation) -> bool {
    is_named(rule, &command.pieces())
}

fn is_named(rule: &str, text: &[WordPart]) -> bool {
    let rule = rule.split_whitespace().collect::<Vec<_>>().join(" ");
    if rule.is_empty() {
        return false;
    }
    let by_parts = rule.split_once(':').is_some_and(|(name, arguments)| {
        let end = text
            .iter()
            .position(|piece| *piece == WordPart::Letter(' '));
        let (first, rest) = text.split_at(end.unwrap_or(text.len()));
        is_like(name, first) && is_like(arguments, rest.get(1..).unwrap_or_default())
    });
    by_parts || is_like(&rule, text) || is_like(&format!("{rule} *"), text)
}

/// Returns whether a text can match a pattern, in which `*` matches anything.
fn is_like(pattern: &str, text: &[WordPart]) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let mut reached = vec![false; pattern.len() + 1];
    reached[0] = true;
    skip_stars(&pattern, &mut reached);
    for piece in text {
        let mut next = vec![false; pattern.len() + 1];
        for at in 0..=pattern.len() {
            if !reached[at] {
                continue;
            }
            let expected = pattern.get(at).copied();
            match *piece {
                _ if expected == Some('*') => next[at] = true,
                WordPart::Letter(letter) if expected == Some(letter) => next[at + 1] = true,
                WordPart::Letter(_) => {}
                WordPart::Part | WordPart::Parts => next[at] = true,
            }
        }
        // Unknown text may match any amount of the pattern, but a part of a word does not extend
        // into the next word.
        if !matches!(piece, WordPart::Letter(_)) {
            for at in 0..pattern.len() {
                let goes_on = *piece == WordPart::Parts || pattern[at] != ' ';
                next[at + 1] |= next[at] && goes_on;
            }
        }
        reached = next;
        skip_stars(&pattern, &mut reached);
    }
    reached[pattern.len()]
}

/// Marks the positions after stars as reached, because a star may match nothing.
fn skip_stars(pattern: &[char], reached: &mut [bool]) {
    for (at, letter) in pattern.iter().enumerate() {
        reached[at + 1] |= reached[at] && *letter == '*';
    }
}
