//! Hooks: commands of the user, the project or the administrator that can deny a tool. If a hook
//! cannot be run, the tool is denied.

mod ask;
pub mod config;
mod guarded;
mod reveal;
mod subject;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

pub use ask::Verdict;
use config::{Event, Hook};
pub use guarded::Guarded;

use crate::leash::Leash;
use crate::native::Workbench;

/// The hooks of a workspace.
#[derive(Debug, Clone, Default)]
pub struct Hooks {
    pub(super) all: Vec<Hook>,
    pub(super) leash: Leash,
}

/// The context that hooks are run in.
#[derive(Debug, Clone, Default)]
pub struct Occasion {
    /// The workspace.
    pub workspace: PathBuf,
    /// The user's home, for paths that begin with `~`.
    pub home: Option<PathBuf>,
    /// The session's shells: their current folder, and the input that was sent to them.
    pub bench: Arc<Workbench>,
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
    pub(crate) fn events(&self) -> Vec<Event> {
        let has = |event: &Event| self.all.iter().any(|hook| hook.event == *event);
        Event::ALL.into_iter().filter(has).collect()
    }

    /// Whether any hook applies to shell commands.
    pub(crate) fn judge_commands(&self) -> bool {
        self.has(Event::PreToolUse, "Shell")
            || self
                .all
                .iter()
                .any(|hook| hook.event == Event::BeforeShellExecution)
    }

    fn has(&self, event: Event, subject: &str) -> bool {
        self.all.iter().any(|hook| hook.matches(event, subject))
    }

    /// Runs all hooks that match, concurrently. One denial is enough to deny.
    async fn ask(
        &self,
        event: Event,
        subject: &str,
        about: Map<String, Json>,
        occasion: &Occasion,
    ) -> Verdict {
        let wanted: Vec<&Hook> = self
            .all
            .iter()
            .filter(|hook| hook.matches(event, subject))
            .collect();
        if wanted.is_empty() {
            return Verdict::Allow;
        }
        let payload = payload(event, about, occasion);
        let asking = wanted
            .iter()
            .map(|hook| ask::ask(&hook.asked, &payload, &occasion.workspace, &self.leash));
        let said = futures_util::future::join_all(asking).await;
        let no: Vec<String> = said
            .into_iter()
            .filter_map(|verdict| match verdict {
                Verdict::Allow => None,
                Verdict::Deny(why) => Some(why),
            })
            .collect();
        tracing::debug!(
            event = event.name(),
            asked = wanted.len(),
            denied = no.len(),
            "hook.asked"
        );
        if no.is_empty() {
            Verdict::Allow
        } else {
            Verdict::Deny(no.join("\n\n---\n\n"))
        }
    }
}

/// Returns the JSON input of a hook.
fn payload(event: Event, about: Map<String, Json>, occasion: &Occasion) -> Json {
    let mut payload = about;
    let common = json!({
        "conversation_id": occasion.conversation,
        "generation_id": occasion.conversation,
        "session_id": occasion.conversation,
        "model": occasion.model,
        "hook_event_name": event.name(),
        "cursor_version": env!("CARGO_PKG_VERSION"),
        "workspace_roots": [occasion.workspace],
        "user_email": null,
        "transcript_path": null,
    });
    if let Json::Object(common) = common {
        payload.extend(common);
    }
    Json::Object(payload)
}
