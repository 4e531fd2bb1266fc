//! Runs a hook: a command that reads JSON on stdin and decides whether a tool may run.
//!
//! A hook that cannot be started, times out or prints an unusable answer denies the tool,
//! because it was configured to prevent something.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Map, Value as Json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::config::HookAction;
use crate::prompts::refusals;
use crate::shell::command_line::hook_shell;
use crate::shell::process_group::{scrub, spawn};
use crate::shell::reaper::ChildReaper;

/// Maximum size, in bytes, of a hook's output. More on stdout is an error, more on stderr is dropped.
const MAX_OUTPUT: u64 = 1024 * 1024;
/// The most characters of a hook's message that are passed on.
const MAX_REASON_CHARS: usize = 4096;

/// The decision of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookDecision {
    /// The tool may run.
    Allow,
    /// The tool may not run; the text is for the model.
    Deny(String),
}

/// Exit code and output of a hook's process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct HookExit {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs one hook and returns its decision; every failure is a denial.
pub(super) async fn ask(
    action: &HookAction,
    payload: &Json,
    workspace: &Path,
    reaper: &ChildReaper,
) -> HookDecision {
    let (command, folder, timeout) = match action {
        HookAction::Unusable(why) => return HookDecision::Deny(why.clone()),
        HookAction::Command {
            command,
            folder,
            timeout,
        } => (command, folder, *timeout),
    };
    match tokio::time::timeout(timeout, run(command, folder, payload, workspace, reaper)).await {
        Ok(Ok(ended)) => judge(&ended),
        Ok(Err(error)) if error.kind() == ErrorKind::FileTooLarge => {
            HookDecision::Deny(refusals::hook_output_too_long(MAX_OUTPUT >> 20))
        }
        Ok(Err(error)) => HookDecision::Deny(refusals::hook_not_started(error.kind())),
        Err(_) => HookDecision::Deny(refusals::hook_timed_out(timeout.as_secs())),
    }
}

async fn run(
    command: &str,
    folder: &Path,
    payload: &Json,
    workspace: &Path,
    reaper: &ChildReaper,
) -> std::io::Result<HookExit> {
    let mut shell = hook_shell(command);
    scrub(&mut shell);
    shell
        .current_dir(folder)
        .env("CURSOR_PROJECT_DIR", workspace)
        .env("CLAUDE_PROJECT_DIR", workspace)
        .env("CURSOR_VERSION", env!("CARGO_PKG_VERSION"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // `_group` ends the hook's processes even if this future is dropped.
    let (mut child, _group) = spawn(&mut shell, reaper)?;
    let missing = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
    let mut input = child.stdin.take().ok_or_else(missing)?;
    let output = child.stdout.take().ok_or_else(missing)?;
    let mut errors = child.stderr.take().ok_or_else(missing)?;
    let text = payload.to_string();
    let writing = async move {
        // A write error is ignored because a hook need not read its input.
        let _ = input.write_all(text.as_bytes()).await;
        let _ = input.shutdown().await;
        Ok::<(), std::io::Error>(())
    };
    let answering = async move {
        let mut stdout = Vec::new();
        output.take(MAX_OUTPUT + 1).read_to_end(&mut stdout).await?;
        if stdout.len() as u64 > MAX_OUTPUT {
            // Fail now: the rest is not read, so the hook would block and never exit.
            return Err(ErrorKind::FileTooLarge.into());
        }
        Ok(stdout)
    };
    let complaining = async move {
        let mut stderr = Vec::new();
        (&mut errors)
            .take(MAX_OUTPUT)
            .read_to_end(&mut stderr)
            .await?;
        tokio::io::copy(&mut errors, &mut tokio::io::sink()).await?;
        Ok(stderr)
    };
    let ((), stdout, stderr) = tokio::try_join!(writing, answering, complaining)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(HookExit {
        code: child.wait().await?.code(),
        stdout: text(&stdout),
        stderr: text(&stderr),
    })
}

/// Maps the exit code and output of a hook to a decision.
fn judge(ended: &HookExit) -> HookDecision {
    let deny = |text: &str| HookDecision::Deny(text.chars().take(MAX_REASON_CHARS).collect());
    let printed = HookOutput::read(&ended.stdout);
    match ended.code {
        Some(0) => match printed.objects.iter().find_map(denial) {
            Some(why) => deny(&why),
            // No output means no objection.
            None if ended.stdout.is_empty() => HookDecision::Allow,
            None if !printed.is_last || printed.objects.is_empty() => {
                deny(refusals::HOOK_OUTPUT_NOT_JSON)
            }
            None if printed.is_torn() => deny(refusals::HOOK_OUTPUT_INVALID),
            None => HookDecision::Allow,
        },
        Some(2) => {
            let reason = printed.objects.iter().rev().find_map(message);
            let others = [
                ended.stdout.as_str(),
                &ended.stderr,
                refusals::HOOK_GAVE_NO_REASON,
            ];
            let reason = reason.or_else(|| others.into_iter().find(|text| !text.is_empty()));
            deny(reason.unwrap_or_default())
        }
        Some(code) => deny(&refusals::hook_failed(code)),
        None => deny(refusals::HOOK_KILLED),
    }
}

type JsonObject = Map<String, Json>;

/// The output of a hook: JSON objects, possibly mixed with other text.
#[derive(Debug, Default)]
struct HookOutput {
    objects: Vec<JsonObject>,
    /// All text outside the objects.
    words: String,
    /// Whether nothing follows the last object.
    is_last: bool,
}

impl HookOutput {
    fn read(text: &str) -> Self {
        let mut printed = Self::default();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            let (words, from) = rest.split_at(at);
            printed.words.push_str(words);
            let mut parsed = serde_json::Deserializer::from_str(from).into_iter();
            let length = match parsed.next() {
                Some(Ok(object)) => {
                    printed.objects.push(object);
                    parsed.byte_offset()
                }
                _ => {
                    printed.words.push('{');
                    1
                }
            };
            rest = &from[length..];
            printed.is_last = length > 1 && rest.trim().is_empty();
        }
        printed.words.push_str(rest);
        printed
    }

    /// Whether the text outside the objects contains the key of a decision, as in broken JSON.
    fn is_torn(&self) -> bool {
        let words = self.words.to_ascii_lowercase();
        ["\"permission", "\"decision"]
            .iter()
            .any(|word| words.contains(word))
    }
}

/// The values of a key; case and underscores in its name are ignored, so `user_message`
/// matches `userMessage`.
fn named<'a>(object: &'a JsonObject, name: &'a str) -> impl Iterator<Item = &'a Json> {
    let same = move |(key, value): (&'a String, &'a Json)| {
        let same = key.replace('_', "").eq_ignore_ascii_case(name);
        same.then_some(value)
    };
    object.iter().filter_map(same)
}

/// The object itself and its `hookSpecificOutput`, where Claude's hooks put their decision.
fn parts(object: &JsonObject) -> Vec<&JsonObject> {
    let inner = named(object, "hookSpecificOutput").filter_map(Json::as_object);
    std::iter::once(object).chain(inner).collect()
}

/// Returns why an object denies the tool, or `None` if it does not.
fn denial(object: &JsonObject) -> Option<String> {
    let why = message(object);
    let no = || Some(why.unwrap_or(refusals::HOOK_GAVE_NO_REASON).to_owned());
    for part in parts(object) {
        if named(part, "updatedInput").any(|input| !input.is_null()) {
            // Running the tool with the original input is not what the hook allowed.
            return Some(refusals::HOOK_CHANGES_INPUT.into());
        }
        if named(part, "continue").any(|goes_on| *goes_on == false) {
            return no();
        }
        let names = ["permission", "decision", "permissionDecision"];
        for decision in names.iter().flat_map(|name| named(part, name)) {
            match decision.as_str() {
                Some("allow" | "approve") => {}
                Some("deny" | "block") => return no(),
                Some("ask") => {
                    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
                    return Some(refusals::approval_unavailable(why));
                }
                _ => return Some(refusals::HOOK_OUTPUT_INVALID.into()),
            }
        }
    }
    None
}

/// The first non-empty message of an object: the one for the agent, else one for the user.
fn message(object: &JsonObject) -> Option<&str> {
    let names = [
        "agentMessage",
        "userMessage",
        "reason",
        "permissionDecisionReason",
        "stopReason",
    ];
    let parts = parts(object);
    let all = names
        .iter()
        .flat_map(|name| parts.iter().flat_map(|part| named(part, name)));
    all.filter_map(Json::as_str)
        .find(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    async fn decision(command: &str) -> HookDecision {
        let folder = std::env::temp_dir();
        let action = HookAction::Command {
            command: command.into(),
            folder: folder.clone(),
            timeout: Duration::from_secs(30),
        };
        let payload = json!({"command": "rm -rf /"});
        ask(&action, &payload, &folder, &ChildReaper::default()).await
    }

    #[tokio::test]
    async fn the_answer_of_a_hook_decides() {
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
            ("echo '[{\"permission\":\"allow\"}]'", false),
            ("echo '{\"permission\":\"allow\"}' bye", false),
            ("echo '{x} {\"permission\":\"allow\"}'", true),
            ("echo '{\"n\":{}}{\"permission\":\"allow\"}'", true),
        ] {
            assert_eq!(
                decision(command).await == HookDecision::Allow,
                allowed,
                "{command}"
            );
        }
    }

    #[test]
    fn a_denial_counts_wherever_it_is() {
        let decision = |stdout: &str| {
            judge(&HookExit {
                code: Some(0),
                stdout: stdout.into(),
                stderr: String::new(),
            })
        };
        let no = |why: &str| HookDecision::Deny(why.into());
        for (stdout, verdict) in [
            (
                r#"{"permission":"deny","reason":"r"} {"log":"done"}"#,
                no("r"),
            ),
            (
                r#"{"permission":"deny","reason":"r"} {"permission":"allow"}"#,
                no("r"),
            ),
            (
                r#"{"permission":"deny",} {"log":"done"}"#,
                no(refusals::HOOK_OUTPUT_INVALID),
            ),
            (r#"{"Permission":"deny","User_Message":"r"}"#, no("r")),
            (r#"{"decision":"block","reason":"r"}"#, no("r")),
            (
                r#"{"permission":"allow","decision":"block"}"#,
                no("it gave no reason"),
            ),
            (r#"{"continue":false,"stopReason":"r"}"#, no("r")),
            (
                r#"{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecisionReason":"r"}}"#,
                no("r"),
            ),
            (
                r#"{"hookSpecificOutput":{"permissionDecision":"allow","updatedInput":{}}}"#,
                no(refusals::HOOK_CHANGES_INPUT),
            ),
            (
                r#"{"hookSpecificOutput":{"permissionDecision":"defer"}}"#,
                no(refusals::HOOK_OUTPUT_INVALID),
            ),
            (
                r#"{"hookSpecificOutput":{"permissionDecision":"allow"}}"#,
                HookDecision::Allow,
            ),
            (
                r#"{"continue":true,"decision":"approve"}"#,
                HookDecision::Allow,
            ),
            (r#"{"log":"{"} {"log":"done"}"#, HookDecision::Allow),
        ] {
            assert_eq!(decision(stdout), verdict, "{stdout}");
        }
    }

    #[tokio::test]
    async fn a_hook_that_prints_too_much_denies_at_once() {
        let HookDecision::Deny(why) = decision("head -c 2000000 /dev/zero; sleep 600").await else {
            panic!("allowed");
        };
        assert_eq!(why, "the hook printed more than 1 MiB");
        // Excess output on stderr is discarded and does not affect the decision.
        let chatty = "head -c 2000000 /dev/zero >&2; echo '{\"permission\": \"allow\"}'";
        assert_eq!(decision(chatty).await, HookDecision::Allow);
    }

    #[tokio::test]
    async fn a_hook_gets_the_request_and_its_reason_is_returned() {
        let reads =
            "grep -q 'rm -rf' && echo '{\"permission\":\"deny\",\"user_message\":\"no rm\"}'";
        assert_eq!(decision(reads).await, HookDecision::Deny("no rm".into()));
        assert_eq!(
            decision("echo no >&2; exit 2").await,
            HookDecision::Deny("no".into())
        );
        let HookDecision::Deny(words) = decision("echo $CURSOR_PROJECT_DIR; exit 2").await else {
            panic!("allowed");
        };
        assert_eq!(Path::new(&words), std::env::temp_dir().as_path());
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_hangs_denies() {
        let HookDecision::Deny(why) = decision("sleep 600").await else {
            panic!("allowed");
        };
        assert_eq!(why, "the hook did not answer within 30 s");
    }
}
