//! Runs a prompt: one or more turns of the engine. Tools that the client executes, and native tools
//! that were executed here, end a turn; the next one continues the same run.

use std::path::PathBuf;
use std::sync::Arc;

use agent_client_protocol::v1::schema::{
    ClientCapabilities, ContentChunk, Diff, SessionId, SessionUpdate, StopReason, ToolCallContent,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, UsageUpdate,
};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::agent_task::login_needed;
use super::client_tools::{self, CallResult, ClientTools};
use super::history::{HistoryItem, SessionRecord, StoredCall, StoredContent};
use super::permissions::{RememberedPermissions, new_call};
use super::session_models::{LEVELS, SessionModeChoice};
use super::tool_call_display::{ToolCallView, plan};
use super::{AcpError, AcpState, Connection};
use crate::last_error;
use crate::model_resolver::{ModelRequest, ResolvedModel, catalog_client};
use agent::catalog::{SpeedPreferences, ThinkingLevel};
use agent::run::{Backend, Mode};
use agent::session_manager::{AnswerSummary, SessionSelector};
use agent::turn::{
    Cause, Frontend, HostRequest, HostToolMode, Keep, Stop, Surface, TurnEvent, TurnRequest,
    TurnResult, UserCommands, is_card, with_next_step,
};
use agent_tools::cursor_config::ConfigCache;
use agent_tools::permission::{Permission, PermissionRequest};
use agent_tools::policy::NativeTool;
use agent_tools::tool_cards::ACTIVITY_TOOL;
use cursor_client::account::Credential;
use foundation::presentable;

/// The cards a client is sent: every native tool has one of these.
const CARDS: [&str; 8] = [
    ACTIVITY_TOOL,
    "read",
    "bash",
    "edit",
    "write",
    "grep",
    "find",
    "ls",
];
/// The largest file whose change is displayed.
const MAX_DIFF: u64 = 1024 * 1024;
/// How many questions for the user may be queued; then the events of the turn wait.
const QUESTIONS: usize = 64;

/// What the prompts of a session share.
pub(super) struct SessionContext {
    pub(super) id: SessionId,
    pub(super) cwd: PathBuf,
    pub(super) client: Connection,
    pub(super) capabilities: ClientCapabilities,
    pub(super) library: Arc<ConfigCache>,
    pub(super) state: Arc<AcpState>,
}

/// A native tool that the user permitted and whose result is still to come.
struct PermittedCall {
    id: String,
    subject: String,
    /// The file before the change.
    before: Option<String>,
}

/// What a turn of the engine said.
#[derive(Default)]
struct TurnAnswer {
    text: String,
    calls: Vec<StoredCall>,
}

/// What was chosen when a prompt began.
pub(super) struct PromptChoices {
    pub(super) model: String,
    pub(super) level: Option<ThinkingLevel>,
    pub(super) mode: SessionModeChoice,
}

/// Runs a prompt to its end. The history then contains everything that was said.
pub(super) async fn run(
    context: &SessionContext,
    choices: &PromptChoices,
    record: &mut SessionRecord,
    permissions: &mut RememberedPermissions,
    content: Vec<StoredContent>,
    cancel: CancellationToken,
) -> Result<StopReason, AcpError> {
    let before = record.items.len();
    record.items.push(HistoryItem::User { content });
    let mut prompt = RunningPrompt {
        context,
        choices,
        permissions,
        permitted: Vec::new(),
        cancel,
    };
    let ended = prompt.run(record).await;
    prompt.complete_permitted();
    let is_refused = ended
        .as_ref()
        .is_err_and(|error| error.code == AcpError::invalid_params().code);
    if is_refused && record.items.len() == before + 1 {
        // It was not sent, and as a part of the history it would have the next prompt refused too.
        record.items.pop();
    }
    ended
}

struct RunningPrompt<'a> {
    context: &'a SessionContext,
    choices: &'a PromptChoices,
    permissions: &'a mut RememberedPermissions,
    permitted: Vec<PermittedCall>,
    cancel: CancellationToken,
}

impl RunningPrompt<'_> {
    async fn run(&mut self, record: &mut SessionRecord) -> Result<StopReason, AcpError> {
        let state = &self.context.state;
        let backend = state.backends.get(None, &state.config.client);
        let (key, backend) = backend.map_err(|error| login_needed(&error.to_string()))?;
        let client = catalog_client(&backend, key.clone());
        let model = ModelRequest {
            id: &self.choices.model,
            level: self.choices.level,
            ..ModelRequest::default()
        };
        let speed = SpeedPreferences::default();
        let resolved = state.models.resolve(&model, &speed, LEVELS, &client).await;
        let resolved =
            resolved.map_err(|unknown| AcpError::new(-32602, presentable(&unknown.to_string())))?;
        loop {
            let turn_id = format!("acp-{}", Uuid::new_v4());
            let (result, answer) = self
                .turn(&turn_id, &key, &backend, &resolved, record)
                .await?;
            let calls = answer.calls.clone();
            if !answer.text.is_empty() || !calls.is_empty() {
                record.items.push(HistoryItem::Answer {
                    text: answer.text,
                    calls: answer.calls,
                    is_complete: result.stop == Stop::Finished,
                });
            }
            let (used, size) = (result.tokens.total, resolved.limits.window);
            if used > 0 {
                let usage = UsageUpdate::new(used, size);
                self.context.notify(SessionUpdate::UsageUpdate(usage));
            }
            match result.stop {
                Stop::Finished => {
                    if let (Some(id), Some(window)) = (&resolved.model_id, result.window) {
                        state.models.learn(id, window);
                    }
                    return Ok(StopReason::EndTurn);
                }
                Stop::Aborted => return Ok(StopReason::Cancelled),
                Stop::Failed(text) => {
                    let cause = result.cause.as_ref();
                    let text = with_next_step(&text, cause, UserCommands::PROGRAM);
                    let state_dir = state.config.state_dir.as_deref();
                    last_error::record(state_dir, "acp", &text).await;
                    return Err(failure(&result.cause, &text));
                }
                Stop::ToolUse => {}
            }
            let is_over = self.finish_calls(calls, record).await;
            if self.cancel.is_cancelled() {
                state.sessions.cancel(&turn_id).await;
                return Ok(StopReason::Cancelled);
            }
            if is_over {
                return Ok(StopReason::EndTurn);
            }
        }
    }

    /// Runs one turn of the engine and sends its events.
    async fn turn(
        &mut self,
        turn_id: &str,
        key: &Credential,
        backend: &Backend,
        resolved: &ResolvedModel,
        record: &SessionRecord,
    ) -> Result<(TurnResult, TurnAnswer), AcpError> {
        let context = self.context;
        let state = &context.state;
        let asked = Instant::now();
        let session_id = engine_session(&context.id);
        let selector = SessionSelector::Id(&session_id);
        let reserved = state
            .sessions
            .reserve(turn_id, selector, self.cancel.child_token())
            .await;
        let mut ticket = reserved.map_err(|error| AcpError::new(-32603, error.to_string()))?;
        let mut policy = state.config.turn.clone();
        // The client's tools do the work of native ones and are not offered as tools of their own.
        policy.offers_tools = false;
        policy.asks_questions = false;
        let request = TurnRequest {
            account: key.fingerprint(),
            backend: backend.clone(),
            workspace: context.cwd.clone(),
            transcript: record.transcript(client_tools::tools(&context.capabilities)),
            asked,
            model: resolved.model.clone(),
            limits: resolved.limits,
            mode: Some(match self.choices.mode {
                SessionModeChoice::Agent => Mode::Agent,
                SessionModeChoice::Plan => Mode::Plan,
            }),
            policy,
            native_tools: client_tools::native_policy(&context.capabilities),
            can_be_asked: true,
            library: Arc::clone(&context.library),
            keep: Keep::Disk,
            frontend: Frontend::Native,
            tool_mode: HostToolMode::Between,
            surface: Surface::Cards(CARDS.map(str::to_owned).into()),
        };
        let mut answer = TurnAnswer::default();
        let (mut inbox, result) = ticket.start(request).await;
        // The questions for the user, who is asked one at a time while the answer goes on.
        let (questions, mut queued) = mpsc::channel::<PermissionRequest>(QUESTIONS);
        let sending = async {
            while let Some(event) = inbox.recv().await {
                match event {
                    TurnEvent::Request(HostRequest::Permission(request)) => {
                        let _ = questions.send(request).await;
                    }
                    event => send_event(context, event, &mut answer),
                }
            }
        };
        let (turn_ended, cancel) = (CancellationToken::new(), self.cancel.clone());
        let ended = turn_ended.clone();
        // One question at a time, so that an answer for the session counts for those that wait. A
        // question that is open when the turn ends is answered first, because the next turn would
        // ask the user again.
        let prompt = &mut *self;
        let permitting = async move {
            loop {
                let request = tokio::select! {
                    biased;
                    () = ended.cancelled() => return,
                    request = queued.recv() => request,
                };
                let Some(request) = request else {
                    return;
                };
                tokio::select! {
                    () = prompt.permit(request) => {}
                    () = cancel.cancelled() => return,
                }
            }
        };
        let running = async {
            let (result, ()) = tokio::join!(result, sending);
            turn_ended.cancel();
            result
        };
        let (mut result, ()) = tokio::join!(running, permitting);
        if !ticket.finish(&result.stop, &AnswerSummary::default()).await {
            result.stop = Stop::Aborted;
        }
        Ok((result, answer))
    }

    /// Asks the user whether a native tool may be executed here.
    async fn permit(&mut self, request: PermissionRequest) {
        let context = self.context;
        let view = ToolCallView::of_native(request.tool, &request.subject, &context.cwd);
        let id = format!("native-{}", Uuid::new_v4());
        let call = new_call(&id, &view, ToolCallStatus::Pending);
        context.notify(SessionUpdate::ToolCall(call.clone()));
        let (client, session) = (&context.client, &context.id);
        let allowed = self
            .permissions
            .is_allowed(request.tool, &call, client, session)
            .await;
        let status = if allowed {
            ToolCallStatus::InProgress
        } else {
            ToolCallStatus::Failed
        };
        let fields = ToolCallUpdateFields::new().status(status);
        let update = ToolCallUpdate::new(id.clone(), fields);
        context.notify(SessionUpdate::ToolCallUpdate(update));
        if allowed {
            let before = match (&view.path, request.tool) {
                (Some(path), NativeTool::Write) => read_text(path).await,
                _ => None,
            };
            self.permitted.push(PermittedCall {
                id,
                subject: view.subject,
                before,
            });
        }
        // The run may have ended meanwhile.
        let _ = request.answer.send(if allowed {
            Permission::AllowOnce
        } else {
            Permission::Deny
        });
    }

    /// Executes the calls of a turn, or displays the recorded results, and adds both to the
    /// history. Returns whether nothing follows.
    async fn finish_calls(&mut self, calls: Vec<StoredCall>, record: &mut SessionRecord) -> bool {
        let mut is_over = true;
        for call in calls {
            let result = if is_card(&call.id) {
                let (result, is_last) = self.show_card(&call).await;
                is_over &= is_last;
                result
            } else {
                is_over = false;
                let tools = ClientTools {
                    client: &self.context.client,
                    session: &self.context.id,
                    cwd: &self.context.cwd,
                    shell: self.context.state.config.turn.shell.as_deref(),
                    cancel: &self.cancel,
                };
                tools.execute(&call, self.permissions).await
            };
            record.items.push(HistoryItem::ToolResult {
                call_id: call.id,
                tool: call.name,
                content: result.content,
                is_error: result.is_error,
            });
        }
        is_over
    }

    /// Displays a native tool call that was executed here. Returns its result, and whether nothing
    /// follows it.
    async fn show_card(&mut self, call: &StoredCall) -> (CallResult, bool) {
        let context = self.context;
        let session = context.state.sessions.find(&engine_session(&context.id));
        let recorded = session.and_then(|session| session.recorded(&call.id));
        let (text, is_error, is_last) = match recorded {
            Some(recorded) => {
                let is_error = recorded.is_error;
                (recorded.content, is_error, recorded.is_last)
            }
            None => (String::new(), false, false),
        };
        if let Some(plan) = plan(&call.name, &call.arguments, &text) {
            context.notify(SessionUpdate::Plan(plan));
        }
        let view = ToolCallView::of_call(&call.name, &call.arguments, &context.cwd);
        let same = |permitted: &PermittedCall| {
            permitted.subject == view.subject
                || view.path.as_deref() == Some(context.cwd.join(&permitted.subject).as_path())
        };
        let permitted = self.permitted.iter().position(same);
        let permitted = permitted.map(|at| self.permitted.remove(at));
        let mut content = vec![ToolCallContent::from(text.clone())];
        if let (Some(permitted), Some(path), false) = (&permitted, &view.path, is_error)
            && let Some(after) = read_text(path).await
        {
            let diff = Diff::new(path.clone(), after).old_text(permitted.before.clone());
            content = vec![ToolCallContent::Diff(diff)];
        }
        let status = if is_error {
            ToolCallStatus::Failed
        } else {
            ToolCallStatus::Completed
        };
        match permitted {
            Some(permitted) => {
                let fields = ToolCallUpdateFields::new().status(status).content(content);
                let update = ToolCallUpdate::new(permitted.id, fields);
                context.notify(SessionUpdate::ToolCallUpdate(update));
            }
            None => {
                let shown = new_call(&call.id, &view, status).content(content);
                context.notify(SessionUpdate::ToolCall(shown));
            }
        }
        let result = CallResult {
            content: vec![StoredContent::Text(text)],
            is_error,
        };
        (result, is_last)
    }

    /// Completes the display of permitted calls whose result was not reported.
    fn complete_permitted(&mut self) {
        for permitted in self.permitted.drain(..) {
            let fields = ToolCallUpdateFields::new().status(ToolCallStatus::Completed);
            let update = ToolCallUpdate::new(permitted.id, fields);
            self.context.notify(SessionUpdate::ToolCallUpdate(update));
        }
    }
}

/// Returns the engine's name of a session.
pub(super) fn engine_session(id: &SessionId) -> String {
    format!("acp/{}", id.0)
}

/// Sends an event to the client, and records what belongs to the answer.
fn send_event(context: &SessionContext, event: TurnEvent, answer: &mut TurnAnswer) {
    let chunk = |text: String| ContentChunk::new(text.into());
    match event {
        TurnEvent::Text(text) => {
            answer.text.push_str(&text);
            context.notify(SessionUpdate::AgentMessageChunk(chunk(text)));
        }
        TurnEvent::Thinking(text) => {
            context.notify(SessionUpdate::AgentThoughtChunk(chunk(text)));
        }
        TurnEvent::Remark(text) | TurnEvent::RetryNotice(text) | TurnEvent::Notice(text) => {
            let text = format!("{}\n", presentable(&text));
            context.notify(SessionUpdate::AgentThoughtChunk(chunk(text)));
        }
        TurnEvent::ToolCall(call) => answer.calls.push(StoredCall {
            id: call.id,
            name: call.name,
            arguments: call.arguments,
        }),
        // Tools of the client are called between turns.
        TurnEvent::Request(_)
        | TurnEvent::ThinkingDone
        | TurnEvent::Retrying { .. }
        | TurnEvent::Waiting(_) => {}
    }
}

/// Returns the error of a failed turn.
fn failure(cause: &Option<Cause>, text: &str) -> AcpError {
    match cause {
        Some(Cause::Login) => login_needed(text),
        Some(Cause::Request) => AcpError::new(-32602, presentable(text)),
        _ => AcpError::new(-32603, presentable(text)),
    }
}

/// Returns a file's text if it is not too large to be displayed.
async fn read_text(path: &std::path::Path) -> Option<String> {
    let about = tokio::fs::metadata(path).await.ok()?;
    if !about.is_file() || about.len() > MAX_DIFF {
        return None;
    }
    tokio::fs::read_to_string(path).await.ok()
}
