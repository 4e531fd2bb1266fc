//! A run put together: its conversation, its words, its tools, its rules.

use std::sync::{Arc, Weak};

use serde_json::Value as Json;
use tokio::sync::watch;

use super::live::Live;
use super::memory::Conversation;
use super::policy::Bridging;
use super::request::TurnRequest;
use super::show::{Recorded, Show};
use crate::conversation::fingerprint::Fingerprint;
use crate::conversation::history::{self, Budget};
use crate::conversation::picture;
use crate::conversation::store::Kept;
use crate::run::{Action, RetryPolicy, RunSpec, Timing, ToolGates, UserMessage, start};
use crate::tools::bridge::Bridge;
use crate::tools::bridge::gate::{self, Gate};
use crate::tools::bridge::snapshot::{HostTool, PROVIDER, Snapshot};
use crate::tools::context::{Facts, Rule};
use crate::tools::hosted::Hosted;
use crate::tools::native::{self, Workbench};

/// What a session has for all its runs.
pub(super) struct Surroundings<'a> {
    /// Results behind the cards the host was given.
    pub(super) recorded: &'a Recorded,
    /// Commands that outlive a run.
    pub(super) bench: &'a Arc<Workbench>,
    /// Told of each run's side entrance.
    pub(super) gate: &'a watch::Sender<Weak<Gate>>,
}

/// Starts a run that says `message`.
pub(super) fn launch(
    conversation: Conversation,
    message: UserMessage,
    request: &TurnRequest,
    snapshot: Snapshot,
    surroundings: &Surroundings<'_>,
) -> Live {
    let offers = snapshot.offers();
    let hosted = snapshot
        .tools
        .iter()
        // As offered, and as the server may call it.
        .flat_map(|tool| {
            [
                tool.offered.clone(),
                format!("mcp_{PROVIDER}_{}", tool.offered),
            ]
        });
    let show = Show::new(
        surroundings.recorded.clone(),
        request.workspace.clone(),
        hosted,
    );
    let facts = Facts {
        workspace: request.workspace.clone(),
        rules: rules(request),
        offers: offers.clone(),
        home: std::env::home_dir(),
        ..Facts::default()
    };
    let policy = &request.policy;
    let diagnostics = policy.diagnostics.clone();
    let bridge = match policy.bridge {
        Bridging::On => Bridge::new(snapshot, policy.call_deadline, diagnostics),
        Bridging::Off => Bridge::off(diagnostics),
    };
    let inlet = gate::open(Arc::clone(&bridge));
    surroundings.gate.send_replace(inlet.gate());
    let executor = Hosted {
        bridge: Arc::clone(&bridge),
        native: native::executor(&request.policy.native, facts, surroundings.bench),
    };
    let spec = RunSpec {
        conversation_id: conversation.id.clone(),
        state: conversation.state.clone(),
        action: Action::UserMessage(message),
        model: request.model.clone(),
        offers,
        custom_system_prompt: None,
        blob_key: conversation.blob_key.clone(),
        gates: ToolGates::default(),
    };
    let handle = start(
        request.backend.clone(),
        spec,
        Arc::new(executor),
        conversation.blobs(),
        RetryPolicy::default(),
        Timing::default(),
    );
    let told = &request.transcript;
    let covers = Fingerprint::of(&told.system, &told.messages);
    Live::new(handle, bridge, conversation, covers, show, inlet)
}

/// A new conversation that starts from a history told anew.
pub(super) fn rebuilt(
    request: &TurnRequest,
    history: &[Json],
    kept: Option<Arc<Kept>>,
) -> Result<Conversation, String> {
    let mut conversation = Conversation::new(request.account.clone(), kept)
        .map_err(|error| format!("no source of randomness: {error}"))?;
    let window = u32::try_from(request.limits.window).unwrap_or(u32::MAX);
    let output = u32::try_from(request.limits.max_output).unwrap_or(u32::MAX);
    let rebuilt = history::rebuild(history, Budget::for_window(window, output));
    tracing::debug!(
        blobs = rebuilt.blobs.len(),
        left_out = rebuilt.omitted,
        "history.rebuilt"
    );
    let blobs = conversation.blobs();
    for (id, blob) in rebuilt.blobs {
        blobs.set(&id, blob).map_err(|error| error.to_string())?;
    }
    conversation.state = (!rebuilt.state.is_empty()).then_some(rebuilt.state);
    Ok(conversation)
}

/// The host's tools this turn offers.
pub(super) fn snapshot(request: &TurnRequest) -> Snapshot {
    let tools: Vec<HostTool> = request
        .transcript
        .tools
        .iter()
        .map(|tool| HostTool {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
            origin: Json::Null,
        })
        .collect();
    request.policy.offered(&tools, &request.surface)
}

/// The system prompt goes where Cursor reads it, and so does what the model must know
/// about pictures it cannot see.
fn rules(request: &TurnRequest) -> Vec<Rule> {
    let rule = |name: &str, content: &str| Rule {
        name: name.into(),
        content: content.into(),
    };
    let mut rules = Vec::new();
    if !request.transcript.system.trim().is_empty() {
        rules.push(rule("host/system-prompt", &request.transcript.system));
    }
    if picture::any_earlier(&request.transcript.messages) {
        rules.push(rule("host/pictures", picture::NOTE));
    }
    rules
}
