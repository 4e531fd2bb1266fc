//! Why a request was not executed, and what the model can do instead.

use std::fmt::Display;
use std::path::Path;

use crate::policy::DenialReason;

pub(crate) const BACKGROUND_NEEDS_LOCAL_SHELL: &str =
    "the host's shell runs commands in the foreground only; run the command in the foreground";
pub(crate) const NO_HOST: &str = "no host is attached that could run this tool";
pub(crate) const HOST_TOOLS_OFF: &str = "the user has switched off all tools of the host";
pub(crate) const NO_SUBAGENTS: &str = "this client does not run subagents";
pub(crate) const NO_SANDBOX: &str =
    "this client has no sandbox that keeps a command from changing things";
pub(crate) const PARTLY_READ: &str = "the host's read tool showed only a part of this file; \
     writing it whole would lose the rest: change it with a command or an edit of the host";
pub(crate) const PATH_NOT_CHECKED: &str = "the path could not be checked";
pub(crate) const PATH_UNRESOLVED: &str = "the target of its path cannot be determined";
const COMMAND_NOT_RUN: &str = "was not executed. It cannot be approved from this conversation; \
     only a user can run it manually outside the agent. You may continue working on the task.";
pub(crate) const MCP_CALL: &str = "The call of the MCP tool";
pub(crate) const FILE_READ: &str = "Reading the file";
pub(crate) const COMMAND_INPUT: &str = "The input of the command";
pub(crate) const COMMAND: &str = "The command";
pub(crate) const OTHER_TOOL: &str = "The tool";
pub(crate) const HOOK_GAVE_NO_REASON: &str = "it gave no reason";
pub(crate) const HOOK_CHANGES_INPUT: &str =
    "it requires other input, which this client cannot send";
pub(crate) const HOOK_OUTPUT_NOT_JSON: &str = "the hook's output is not JSON";
pub(crate) const HOOK_OUTPUT_INVALID: &str = "the hook's output is invalid";
pub(crate) const HOOK_KILLED: &str = "the hook was killed";

/// Why a native tool is refused.
pub(crate) fn denied(reason: DenialReason, tool: &str) -> String {
    match reason {
        DenialReason::Denied => format!("the user's settings deny this client the tool {tool}"),
        DenialReason::Host => format!("this host does not allow Cursor's built-in tool {tool}"),
        DenialReason::SwitchedOff => {
            format!("the user has switched off the host's tools for {tool}")
        }
        DenialReason::NoHostTool => {
            "this client leaves Cursor's built-in tools to the host, which has none for this".into()
        }
        DenialReason::PlanMode => {
            format!("{tool} is not available in plan mode: plan, change nothing")
        }
        DenialReason::Declined => "the user declined this; ask before you try again".into(),
        DenialReason::Settings => "this client does not execute Cursor's built-in tools".into(),
    }
}

/// Follows a reason: the host's tool for the same work.
pub(crate) fn use_instead(tool: &str) -> String {
    format!("; use the tool {tool} instead")
}

/// Follows a reason: the native tools that can be used.
pub(crate) fn available(tools: &[&str]) -> String {
    format!("; available: {}", tools.join(", "))
}

/// The error of a kind of request that this client does not know.
pub(crate) fn no_handler(kind: &str) -> String {
    format!("this client has no handler for {kind}")
}

/// The refusal of a request that a hook denied. `action` starts a sentence.
pub(crate) fn blocked_by_hook(action: impl Display, reason: &str) -> String {
    format!(
        "{action} was blocked by a hook: {reason}\n\nDo not look for another way to do the same."
    )
}

/// Stands for the files that a hook removed from a result.
pub(crate) fn files_omitted(count: usize) -> String {
    format!("[{count} file(s) omitted: a hook does not allow reading them]")
}

/// The reason of a hook that demands the user's approval.
pub(crate) fn approval_unavailable(reason: impl Display) -> String {
    format!("it requires the user's approval{reason}, which cannot be requested here")
}

/// The reason when a hook printed too much.
pub(crate) fn hook_output_too_long(mebibytes: u64) -> String {
    format!("the hook printed more than {mebibytes} MiB")
}

/// The reason when a hook could not be started.
pub(crate) fn hook_not_started(error: impl Display) -> String {
    format!("the hook could not be run: {error}")
}

/// The reason when a hook did not end in time.
pub(crate) fn hook_timed_out(seconds: u64) -> String {
    format!("the hook did not answer within {seconds} s")
}

/// The reason when a hook failed.
pub(crate) fn hook_failed(code: i32) -> String {
    format!("the hook failed with exit code {code}")
}

/// The refusal of a command that an administrator denied.
pub(crate) fn denied_by_administrator(rule: &str) -> String {
    format!(
        "Denied: this command was blocked by administrator policy (denylist rule: {rule}) and \
         {COMMAND_NOT_RUN}"
    )
}

/// The refusal of a command that cannot be compared with an administrator's list.
pub(crate) fn unknown_to_administrator() -> String {
    format!(
        "Denied: this command could not be conclusively analyzed against your team's \
         administrator command denylist, so it was blocked (fail-closed) and {COMMAND_NOT_RUN}"
    )
}

/// The error of a command that may only read.
pub(crate) fn sandbox_unsupported(policy: &str) -> String {
    format!("Sandbox policy '{policy}' is not supported on this system: {NO_SANDBOX}")
}

/// The refusal of a write through a link whose target does not exist.
pub(crate) fn dangling_link(path: &Path) -> String {
    format!(
        "Write blocked: {} is a dangling symlink; what it would create cannot be verified",
        path.display()
    )
}

/// The refusal of a change to Cursor's settings in the workspace.
pub(crate) fn settings_file(path: &Path) -> String {
    format!(
        "{} configures the commands and hooks that run here; only the user may change it",
        path.display()
    )
}

/// The refusal of a change to a file that other programs execute.
pub(crate) fn protected(path: &Path, rule: &str, setting: &str) -> String {
    format!(
        "{} is protected (rule {rule}): other programs run what it says, so only the user \
         changes it, or allows it with {setting}",
        path.display()
    )
}

/// The refusal of access to credentials.
pub(crate) fn secret(path: &Path) -> String {
    format!(
        "{} is where cursor-sidecar or pi keeps credentials; tools may not access it",
        path.display()
    )
}

/// The refusal of a change outside the workspace.
pub(crate) fn outside(path: &Path) -> String {
    format!(
        "{} is outside the workspace; cursor-sidecar writes and deletes inside it only \
         (the user can allow more with PI_CURSOR_ALLOW_OUTSIDE_WRITES=1)",
        path.display()
    )
}

/// The refusal to read the memory and state of processes.
pub(crate) fn process(path: &Path) -> String {
    format!(
        "{} shows the insides of a process, which are not read",
        path.display()
    )
}

/// The refusal to fetch from this machine or its network.
pub(crate) fn private_address(host: &str) -> String {
    format!(
        "{host} is on this machine or in a private network; the user can allow that with \
         PI_CURSOR_ALLOW_PRIVATE_FETCH=1"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal() {
        let path = Path::new("/work/file");
        let reasons = [
            DenialReason::Denied,
            DenialReason::Host,
            DenialReason::SwitchedOff,
            DenialReason::NoHostTool,
            DenialReason::PlanMode,
            DenialReason::Declined,
            DenialReason::Settings,
        ];
        let mut texts: Vec<String> = reasons.map(|reason| denied(reason, "grep")).into();
        texts.extend([
            denied(DenialReason::Settings, "read") + &use_instead("pi__read"),
            denied(DenialReason::NoHostTool, "ls") + &available(&["read", "grep"]),
            BACKGROUND_NEEDS_LOCAL_SHELL.into(),
            NO_HOST.into(),
            HOST_TOOLS_OFF.into(),
            NO_SUBAGENTS.into(),
            NO_SANDBOX.into(),
            no_handler("adopt_args"),
            PARTLY_READ.into(),
            PATH_NOT_CHECKED.into(),
            settings_file(path),
            protected(path, ".git/hooks/", "PI_CURSOR_PROTECTED_PATHS"),
            secret(path),
            outside(path),
            process(path),
            private_address("localhost"),
            denied_by_administrator("Shell(rm)"),
            unknown_to_administrator(),
            sandbox_unsupported("workspace_readonly"),
            dangling_link(path),
            blocked_by_hook(FILE_READ, HOOK_GAVE_NO_REASON),
            blocked_by_hook(MCP_CALL, HOOK_KILLED),
            blocked_by_hook(COMMAND_INPUT, HOOK_KILLED),
            blocked_by_hook(COMMAND, HOOK_KILLED),
            blocked_by_hook(OTHER_TOOL, HOOK_KILLED),
            files_omitted(2),
            approval_unavailable(" (release branch)"),
            HOOK_CHANGES_INPUT.into(),
            HOOK_OUTPUT_NOT_JSON.into(),
            HOOK_OUTPUT_INVALID.into(),
            HOOK_KILLED.into(),
            PATH_UNRESOLVED.into(),
            hook_output_too_long(1),
            hook_not_started("not found"),
            hook_timed_out(30),
            hook_failed(1),
        ]);
        insta::assert_snapshot!(texts.join("\n"));
    }
}
