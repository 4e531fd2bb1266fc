//! Starts a run: puts together its conversation, message, tools and rules.

use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::Value as Json;
use tokio::sync::watch;

use super::activity_display::{ActivityDisplay, Recorded};
use super::channels::OpenTurn;
use super::conversation_slot::Conversation;
use super::intent_logging::IntentLogger;
use super::live_run::{AnswerRounds, LiveRun};
use super::recover;
use super::request::{HostToolMode, TurnRequest};
use super::usage;
use crate::conversation::bootstrap::{self, HistoryBudget};
use crate::conversation::image::{self, DecodedImage};
use crate::conversation::store::LockedConversation;
use crate::effect_log::{EffectLog, EffectLogFile};
use crate::message::Message;
use crate::run::{Action, RetriesUsed, RetryPolicy, RunSpec, Timing, UserMessage, start};
use agent_tools::bridge::Bridge;
use agent_tools::bridge::external_calls::{self, ExternalCallSender};
use agent_tools::bridge::tool_set::{HostTool, OfferedTools, PROVIDER};
use agent_tools::cursor_config::CursorConfig;
use agent_tools::cursor_config::hooks::{HookContext, HookedExecutor};
use agent_tools::handlers;
use agent_tools::host_delegate::ReadCache;
use agent_tools::permission::GrantedTools;
use agent_tools::policy::ToolDecisions;
use agent_tools::prompts::contract::{SessionTools, contract};
use agent_tools::request_context::{Instruction, RunContext};
use agent_tools::shell::ShellSession;

/// What all runs of a session share.
pub(super) struct SessionResources {
    /// Recorded results of the cards the host was sent.
    pub(super) recorded: Recorded,
    /// Commands that outlive a run; they end with the session.
    pub(super) shell_session: Arc<ShellSession>,
    /// File contents that host tools have shown.
    pub(super) read_cache: Arc<ReadCache>,
    /// Native tools the host has allowed for the rest of the session.
    pub(super) granted: GrantedTools,
    /// Publishes the sender of external calls of the live run.
    pub(super) external_calls: watch::Sender<Weak<ExternalCallSender>>,
}

/// What happened earlier in the turn a run is started for.
pub(super) struct CarriedOver {
    /// Retries used so far.
    pub(super) spent: RetriesUsed,
    /// How long to wait before the first attempt.
    pub(super) delay: Duration,
    /// Answer text that was sent to the host since the checkpoint the run starts from.
    pub(super) shown: String,
    /// All answer text that was sent to the host in this turn.
    pub(super) answer: String,
    /// Effects of earlier runs, and the file in which they are recorded.
    pub(super) effects: EffectLog,
    pub(super) log_file: Option<Arc<EffectLogFile>>,
}

/// Starts a run with `action`.
pub(super) fn launch(
    conversation: Conversation,
    action: Action,
    request: &OpenTurn,
    snapshot: OfferedTools,
    before: CarriedOver,
    settings: &Arc<CursorConfig>,
    resources: &SessionResources,
) -> LiveRun {
    let mut offers = snapshot.offers();
    let host_offers = offers.clone();
    let tools = request.tools();
    if tools.mcp_servers {
        offers.extend(settings.servers.offers(offers.len()));
    }
    let hosted = snapshot
        .tools
        .iter()
        // Under the name that is offered and the name the server may use.
        .flat_map(|tool| {
            [
                tool.offered.clone(),
                format!("mcp_{PROVIDER}_{}", tool.offered),
            ]
        });
    let show = ActivityDisplay::new(
        resources.recorded.clone(),
        request.workspace.clone(),
        hosted,
        tools.decisions.clone(),
        &resources.shell_session,
    );
    let facts = RunContext {
        workspace: request.workspace.clone(),
        rules: rules(request, &snapshot, &tools.decisions),
        offers: host_offers,
        home: request.policy.home.clone(),
        shell: request.policy.shell.clone(),
        settings: Arc::clone(settings),
        repositories: Arc::clone(request.library.repositories()),
        ..RunContext::default()
    };
    let policy = &request.policy;
    let gates = tools.decisions.gates();
    let (tools, current) = watch::channel(tools);
    let diagnostics = policy.diagnostics.clone();
    let bridge = if policy.offers_tools {
        Bridge::new(snapshot, policy.call_deadline, diagnostics)
    } else {
        Bridge::off(policy.call_deadline, diagnostics)
    };
    let execution = handlers::ExecutorOptions {
        policy: &policy.native,
        shell_session: &resources.shell_session,
        current,
        granted: resources.granted.clone(),
        bridge: Arc::clone(&bridge),
        seen: Arc::clone(&resources.read_cache),
    };
    let call_receiver = external_calls::open(Arc::clone(&bridge));
    resources
        .external_calls
        .send_replace(call_receiver.sender());
    // Inside the hooks, because what they refuse must not be logged as started.
    let executor = HookedExecutor::around(
        IntentLogger::around(
            handlers::executor(facts, execution),
            before.log_file,
            request.tool_mode == HostToolMode::Inline,
        ),
        settings,
        HookContext {
            workspace: request.workspace.clone(),
            home: policy.home.clone(),
            shell_session: Arc::clone(&resources.shell_session),
            conversation: conversation.id.clone(),
            model: request.model.id.clone(),
        },
    );
    let spec = RunSpec {
        conversation_id: conversation.id.clone(),
        state: conversation.state.clone(),
        action,
        model: request.model.clone(),
        offers,
        blob_key: conversation.blob_key.clone(),
        gates,
        shown: before.shown,
        spent: before.spent,
        delay: before.delay,
        effects: before.effects,
    };
    let handle = start(
        request.backend.clone(),
        spec,
        executor,
        conversation.blobs(),
        RetryPolicy {
            idle: request.policy.idle_retries,
            restarts_after_results: request.tool_mode == HostToolMode::Inline,
            ..RetryPolicy::default()
        },
        Timing {
            patience: request.policy.patience,
            ..Timing::default()
        },
    );
    let answer = AnswerRounds::new(request.history(), before.answer);
    LiveRun::new(
        handle,
        bridge,
        conversation,
        answer,
        show,
        call_receiver,
        tools,
    )
}

/// Returns a user message, with its images.
pub fn user_message(text: String, pictures: Vec<DecodedImage>) -> UserMessage {
    UserMessage {
        text,
        images: recover::images(pictures),
        mode: None,
    }
}

/// Returns a new conversation that starts from a bootstrapped history.
pub(super) fn rebuilt(
    request: &TurnRequest,
    history: &[Message],
    kept: Option<Arc<LockedConversation>>,
) -> Result<Conversation, String> {
    let mut conversation = Conversation::new(request.account.clone(), kept)
        .map_err(|error| format!("no source of randomness: {error}"))?;
    reset_to_history(&mut conversation, request, history)?;
    Ok(conversation)
}

/// Replaces the state of a conversation by a bootstrapped history: its old checkpoint is invalid.
pub(super) fn reset_to_history(
    conversation: &mut Conversation,
    request: &TurnRequest,
    history: &[Message],
) -> Result<(), String> {
    let window = u32::try_from(request.limits.window).unwrap_or(u32::MAX);
    let output = u32::try_from(request.limits.max_output).unwrap_or(u32::MAX);
    // The system prompt and the new message take their share of the window first.
    let messages = &request.transcript.messages;
    let now = messages.get(history.len()..).unwrap_or_default();
    let besides = usage::context(&request.transcript.system, now);
    let budget = HistoryBudget::for_window(window, output).less(besides);
    let rebuilt = bootstrap::build(history, budget);
    tracing::debug!(
        blobs = rebuilt.blobs.len(),
        left_out = rebuilt.omitted,
        folded = rebuilt.folded,
        "history.rebuilt"
    );
    let blobs = conversation.blobs();
    for (id, blob) in rebuilt.blobs {
        blobs.set(&id, blob).map_err(|error| error.to_string())?;
    }
    conversation.state = (!rebuilt.state.is_empty()).then_some(rebuilt.state);
    conversation.sent = None;
    conversation.answer = None;
    Ok(())
}

/// Returns the host tools this turn offers.
pub(super) fn snapshot(request: &TurnRequest) -> OfferedTools {
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

/// Returns the rules of a run, where Cursor reads them: the host's system prompt, then what the model
/// must know about its tools and about images it cannot see.
fn rules(
    request: &TurnRequest,
    snapshot: &OfferedTools,
    decisions: &ToolDecisions,
) -> Vec<Instruction> {
    let rule = |name: &str, content: String| Instruction {
        name: name.into(),
        content,
    };
    let mut rules = Vec::new();
    if !request.transcript.system.trim().is_empty() {
        rules.push(rule(
            "host/system-prompt",
            request.transcript.system.clone(),
        ));
    }
    let (missing, switched_off) = decisions.missing_and_switched_off();
    let tools = SessionTools {
        offered: snapshot.tools.first().map(|tool| tool.offered.as_str()),
        available: decisions.available(),
        missing,
        switched_off,
        omits_images: image::has_unsent(&request.transcript.messages),
    };
    rules.push(rule("host/tools", contract(&tools)));
    rules
}
