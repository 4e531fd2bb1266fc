//! Hooks: commands of the user, the project or the administrator that can deny a tool. If a hook
//! cannot be run, the tool is denied.

pub mod config;
mod executor;
mod filter_results;
mod hook_input;
mod run_hook;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use config::{Hook, HookEvent};
pub use executor::HookedExecutor;
pub use run_hook::HookDecision;

use crate::shell::ShellSession;
use crate::shell::reaper::ChildReaper;

/// The hooks of a workspace.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    pub(super) all: Vec<Hook>,
    pub(super) reaper: ChildReaper,
}

/// The context that hooks are run in.
#[derive(Debug, Clone, Default)]
pub struct HookContext {
    /// The workspace.
    pub workspace: PathBuf,
    /// The user's home, for paths that begin with `~`.
    pub home: Option<PathBuf>,
    /// The session's shells: their current folder, and the input that was sent to them.
    pub shell_session: Arc<ShellSession>,
    /// The conversation id.
    pub conversation: String,
    /// The model id.
    pub model: String,
}

impl Hooks {
    /// Whether there are no hooks.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the events that have hooks.
    pub(crate) fn events(&self) -> Vec<HookEvent> {
        let has = |event: &HookEvent| self.all.iter().any(|hook| hook.event == *event);
        HookEvent::ALL.into_iter().filter(has).collect()
    }

    /// Whether any hook applies to shell commands.
    pub(crate) fn has_command_hooks(&self) -> bool {
        self.has(HookEvent::PreToolUse, "Shell")
            || self
                .all
                .iter()
                .any(|hook| hook.event == HookEvent::BeforeShellExecution)
    }

    fn has(&self, event: HookEvent, subject: &str) -> bool {
        self.all.iter().any(|hook| hook.matches(event, subject))
    }

    /// Runs all hooks that match, concurrently. One denial is enough to deny.
    async fn ask(
        &self,
        event: HookEvent,
        subject: &str,
        about: Map<String, Json>,
        context: &HookContext,
    ) -> HookDecision {
        let wanted: Vec<&Hook> = self
            .all
            .iter()
            .filter(|hook| hook.matches(event, subject))
            .collect();
        if wanted.is_empty() {
            return HookDecision::Allow;
        }
        let payload = payload(event, about, context);
        let asking = wanted
            .iter()
            .map(|hook| run_hook::ask(&hook.action, &payload, &context.workspace, &self.reaper));
        let decisions = futures_util::future::join_all(asking).await;
        let no: Vec<String> = decisions
            .into_iter()
            .filter_map(|verdict| match verdict {
                HookDecision::Allow => None,
                HookDecision::Deny(why) => Some(why),
            })
            .collect();
        tracing::debug!(
            event = event.name(),
            asked = wanted.len(),
            denied = no.len(),
            "hook.asked"
        );
        if no.is_empty() {
            HookDecision::Allow
        } else {
            HookDecision::Deny(no.join("\n\n---\n\n"))
        }
    }
}

/// Returns the JSON input of a hook.
fn payload(event: HookEvent, about: Map<String, Json>, context: &HookContext) -> Json {
    let mut payload = about;
    let common = json!({
        "conversation_id": context.conversation,
        "generation_id": context.conversation,
        "session_id": context.conversation,
        "model": context.model,
        "hook_event_name": event.name(),
        "cursor_version": env!("CARGO_PKG_VERSION"),
        "workspace_roots": [context.workspace],
        "user_email": null,
        "transcript_path": null,
    });
    if let Json::Object(common) = common {
        payload.extend(common);
    }
    Json::Object(payload)
}
