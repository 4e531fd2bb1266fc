//! Asking a hook: a command that reads JSON and says whether a tool may run.
//!
//! A hook that cannot be asked, takes too long or makes no sense says no: it was put there
//! to keep something from happening.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value as Json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::config::Asked;
use crate::tools::leash::Leash;
use crate::tools::native::{scrub, spawn};

/// What a hook may say.
const MOST_OUTPUT: u64 = 1024 * 1024;
/// What is told of it.
const MOST_TOLD: usize = 4096;

/// What a hook decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The tool may run.
    Allow,
    /// It may not; the words are for the model.
    Deny(String),
}

/// What a hook's process did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Asks one hook.
pub(super) async fn ask(asked: &Asked, payload: &Json, workspace: &Path, leash: &Leash) -> Verdict {
    let (command, folder, patience) = match asked {
        Asked::Not(why) => return Verdict::Deny(why.clone()),
        Asked::Command {
            command,
            folder,
            patience,
        } => (command, folder, *patience),
    };
    match tokio::time::timeout(patience, run(command, folder, payload, workspace, leash)).await {
        Ok(Ok(ended)) => judge(&ended),
        Ok(Err(error)) => Verdict::Deny(format!("the hook could not be run: {}", error.kind())),
        Err(_) => Verdict::Deny(format!(
            "the hook did not answer within {} s",
            patience.as_secs()
        )),
    }
}

async fn run(
    command: &str,
    folder: &Path,
    payload: &Json,
    workspace: &Path,
    leash: &Leash,
) -> std::io::Result<Ended> {
    let mut shell = Command::new("sh");
    scrub(&mut shell);
    shell
        .args(["-c", command])
        .current_dir(folder)
        .env("CURSOR_PROJECT_DIR", workspace)
        .env("CLAUDE_PROJECT_DIR", workspace)
        .env("CURSOR_VERSION", env!("CARGO_PKG_VERSION"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // Given up or not, nothing of it stays.
    let (mut child, _group) = spawn(&mut shell, leash)?;
    let missing = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
    let mut input = child.stdin.take().ok_or_else(missing)?;
    let output = child.stdout.take().ok_or_else(missing)?;
    let errors = child.stderr.take().ok_or_else(missing)?;
    let text = payload.to_string();
    let telling = async move {
        // A hook need not read what it is told.
        let _ = input.write_all(text.as_bytes()).await;
        let _ = input.shutdown().await;
    };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (mut output, mut errors) = (output.take(MOST_OUTPUT), errors.take(MOST_OUTPUT));
    let (_, read, complained) = tokio::join!(
        telling,
        output.read_to_end(&mut stdout),
        errors.read_to_end(&mut stderr)
    );
    read.and(complained)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(Ended {
        code: child.wait().await?.code(),
        stdout: text(&stdout),
        stderr: text(&stderr),
    })
}

/// What a hook's end means.
fn judge(ended: &Ended) -> Verdict {
    let deny = |text: &str| Verdict::Deny(text.chars().take(MOST_TOLD).collect());
    let json = last_object(&ended.stdout);
    match (ended.code, &json) {
        (Some(0), Some(json)) => judge_words(json),
        // It has nothing to say.
        (Some(0), None) if ended.stdout.is_empty() => Verdict::Allow,
        (Some(0), None) => deny("the hook's answer is no JSON"),
        (Some(2), Some(json)) if message(json).is_some() => deny(message(json).unwrap_or_default()),
        (Some(2), _) if !ended.stdout.is_empty() => deny(&ended.stdout),
        (Some(2), _) if !ended.stderr.is_empty() => deny(&ended.stderr),
        (Some(2), _) => deny("it gave no reason"),
        (Some(code), _) => deny(&format!("the hook failed with exit code {code}")),
        (None, _) => deny("the hook was killed"),
    }
}

fn judge_words(json: &Json) -> Verdict {
    if json
        .get("updated_input")
        .is_some_and(|input| !input.is_null())
    {
        // Running it as it was asked for would not be what the hook wants.
        return Verdict::Deny("it wants other input, which this client cannot pass on".into());
    }
    let said = json.get("permission").or_else(|| json.get("decision"));
    let why = message(json).unwrap_or("it gave no reason");
    match said.map(Json::as_str) {
        None | Some(Some("allow" | "approve")) => Verdict::Allow,
        Some(Some("deny" | "block")) => Verdict::Deny(why.chars().take(MOST_TOLD).collect()),
        Some(Some("ask")) => {
            let why = message(json)
                .map(|why| format!(" ({why})"))
                .unwrap_or_default();
            Verdict::Deny(format!(
                "it wants a person to be asked{why}, and nobody can be asked here"
            ))
        }
        Some(_) => Verdict::Deny("the hook's answer makes no sense".into()),
    }
}

/// Words for the model, else those for the person.
fn message(json: &Json) -> Option<&str> {
    [
        "agent_message",
        "user_message",
        "agentMessage",
        "userMessage",
        "reason",
    ]
    .iter()
    .find_map(|key| json.get(key)?.as_str())
    .filter(|text| !text.trim().is_empty())
}

/// The object a text is or ends with: hooks like to print a line before.
fn last_object(text: &str) -> Option<Json> {
    let object = |text: &str| serde_json::from_str(text).ok().filter(Json::is_object);
    object(text).or_else(|| {
        let starts = text.match_indices('{').map(|(at, _)| at);
        starts.rev().take(64).find_map(|at| object(&text[at..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    async fn said(command: &str) -> Verdict {
        let folder = std::env::temp_dir();
        let asked = Asked::Command {
            command: command.into(),
            folder: folder.clone(),
            patience: Duration::from_secs(30),
        };
        let payload = json!({"command": "rm -rf /"});
        ask(&asked, &payload, &folder, &Leash::default()).await
    }

    #[tokio::test]
    async fn what_a_hook_says_counts() {
        for (command, allowed) in [
            ("cat >/dev/null; echo '{\"permission\": \"allow\"}'", true),
            ("true", true),
            ("echo '{}'", true),
            ("echo checking; echo '{\"permission\":\"allow\"}'", true),
            ("exit 2", false),
            ("exit 1", false),
            ("kill -9 $$", false),
            ("/no/such/hook", false),
            ("echo what?", false),
            ("echo '{\"permission\": \"ask\"}'", false),
            ("echo '{\"permission\": \"perhaps\"}'", false),
            ("echo '{\"permission\": 7}'", false),
            (
                "echo '{\"permission\": \"allow\", \"updated_input\": {}}'",
                false,
            ),
        ] {
            assert_eq!(said(command).await == Verdict::Allow, allowed, "{command}");
        }
    }

    #[tokio::test]
    async fn it_is_told_what_is_asked_and_its_words_are_passed_on() {
        let reads =
            "grep -q 'rm -rf' && echo '{\"permission\":\"deny\",\"user_message\":\"no rm\"}'";
        assert_eq!(said(reads).await, Verdict::Deny("no rm".into()));
        assert_eq!(
            said("echo no >&2; exit 2").await,
            Verdict::Deny("no".into())
        );
        let Verdict::Deny(words) = said("echo $CURSOR_PROJECT_DIR; exit 2").await else {
            panic!("allowed");
        };
        assert_eq!(Path::new(&words), std::env::temp_dir().as_path());
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_hangs_says_no() {
        let Verdict::Deny(why) = said("sleep 600").await else {
            panic!("allowed");
        };
        assert_eq!(why, "the hook did not answer within 30 s");
    }
}
