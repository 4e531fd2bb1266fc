//! Commands an administrator does not want, whoever asks for them.
//!
//! The list comes with each request. A command is taken apart far enough to see every simple
//! command in it; one that cannot be taken apart is not run. What a command does in the end
//! (`eval`, a variable as a name, another shell) cannot be seen here, nor by the official
//! client.

use std::process::Stdio;
use std::time::Duration;

use regex::Regex;
use tokio::process::Command;

use super::child;
use super::grammar::{self, Simple};

/// How long the shell may take to read a command.
const PATIENCE: Duration = Duration::from_secs(5);
const NOT_RUN: &str = "was not executed. It cannot be approved from this conversation; only a \
                       user can run it manually outside the agent. You may continue working on \
                       the task.";

/// Why a command is not run, if it is not.
pub(super) async fn objection(command: &str, rules: &[String]) -> Option<String> {
    if rules.is_empty() {
        return None;
    }
    let simple = match is_valid(command).await {
        true => grammar::simple_commands(command).unwrap_or_default(),
        false => Vec::new(),
    };
    if simple.is_empty() {
        return Some(format!(
            "Denied: this command could not be conclusively analyzed against your team's \
             administrator command denylist, so it was blocked (fail-closed) and {NOT_RUN}"
        ));
    }
    let rule = rules
        .iter()
        .find(|rule| simple.iter().any(|simple| matches(rule, simple)))?;
    Some(format!(
        "Denied: this command was blocked by administrator policy (denylist rule: {rule}) and \
         {NOT_RUN}"
    ))
}

/// Whether the shell can read a command. It reads only: nothing is run.
async fn is_valid(command: &str) -> bool {
    let mut shell = Command::new(child::shell());
    child::scrub(&mut shell);
    let status = shell
        .args(["-n", "-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status();
    matches!(tokio::time::timeout(PATIENCE, status).await, Ok(Ok(status)) if status.success())
}

/// Whether a rule names a command: `rm`, `git push`, `git p*`, or `name:arguments`.
fn matches(rule: &str, command: &Simple) -> bool {
    let rule = rule.split_whitespace().collect::<Vec<_>>().join(" ");
    if rule.is_empty() {
        return false;
    }
    [&command.plain, &command.written].into_iter().any(|words| {
        let text = words.join(" ");
        let by_parts = rule.split_once(':').is_some_and(|(name, arguments)| {
            let (first, rest) = text.split_once(' ').unwrap_or((&text, ""));
            is_like(name, "", first) && is_like(arguments, "", rest)
        });
        by_parts || is_like(&rule, "(?: .*)?", &text)
    })
}

/// Whether a text is what a rule says, where `*` is anything, and then what `end` allows.
fn is_like(rule: &str, end: &str, text: &str) -> bool {
    let pattern = regex::escape(rule).replace(r"\*", ".*");
    // A rule that is too large to be understood counts for everything.
    Regex::new(&format!("(?s)^{pattern}{end}$")).map_or(true, |pattern| pattern.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rules_name_commands_wherever_they_are() {
        for (command, rule) in [
            ("git push", "git *"),
            ("git push", "g*sh"),
            ("rm -f x", "rm:-f*"),
            ("rm -v -f x", "rm:*-f*"),
            ("curl a b", "curl:a b"),
            ("rm 'a b'", "rm a b"),
            ("rm 'a b'", "rm 'a b'"),
            ("rm a  b", "rm  a b"),
            ("ls", " ls "),
            ("rm -rf /x", "rm -rf /*"),
            ("git push x --force", "git push * --force"),
        ] {
            let objection = objection(command, &[rule.into()]).await;
            let expected = format!("(denylist rule: {rule})");
            assert!(
                objection
                    .as_ref()
                    .is_some_and(|text| text.contains(&expected)),
                "{command} {rule}: {objection:?}"
            );
        }
        for (command, rule) in [
            ("rm", "rm *"),
            ("rm -f x", "rm:-f"),
            ("lsx", "ls"),
            ("ls", "l?"),
            ("axb", "a.b"),
            ("git pushy", "git push"),
            ("ls", ""),
        ] {
            assert_eq!(objection(command, &[rule.into()]).await, None, "{command}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_not_run() {
        for command in [
            "if",
            "",
            "# only words",
            "x=1",
            "echo $'\\x72m'",
            "echo $((a);(b))",
        ] {
            let objection = objection(command, &["rm".into()]).await;
            assert!(
                objection.is_some_and(|text| text.contains("fail-closed")),
                "{command}"
            );
        }
        assert_eq!(objection("if", &[]).await, None);
    }
}
