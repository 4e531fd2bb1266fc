//! The task of one session: owns its history and choices, and runs its prompts one by one.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use agent_client_protocol::v1::Responder;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, ContentBlock, ContentChunk, ImageContent, LoadSessionRequest,
    LoadSessionResponse, McpServer, NewSessionRequest, NewSessionResponse, PromptRequest,
    PromptResponse, ResumeSessionRequest, ResumeSessionResponse, SessionId, SessionNotification,
    SessionUpdate, SetSessionConfigOptionRequest, SetSessionConfigOptionResponse,
    SetSessionModeRequest, SetSessionModeResponse, ToolCallContent, ToolCallStatus,
};
use tokio::sync::mpsc;

use super::history::{HistoryItem, SessionRecord, StoredContent};
use super::permissions::{RememberedPermissions, new_call};
use super::prompt_turn::{self, PromptChoices, SessionContext};
use super::session_models::{
    self, SelectableModel, SessionModeChoice, SetModelRequest, SetModelResponse,
};
use super::tool_call_display::{ToolCallView, plan};
use super::{AcpError, AcpState, Connection, mcp_servers, prompt_content};
use agent_tools::cursor_config::ConfigCache;

/// A request that opens a session.
pub(super) enum OpenRequest {
    New(SessionId, NewSessionRequest, Responder<NewSessionResponse>),
    Load(LoadSessionRequest, Responder<LoadSessionResponse>),
    /// The same, without sending the history.
    Resume(ResumeSessionRequest, Responder<ResumeSessionResponse>),
}

impl OpenRequest {
    pub(super) fn session_id(&self) -> &SessionId {
        match self {
            Self::New(id, ..) => id,
            Self::Load(request, _) => &request.session_id,
            Self::Resume(request, _) => &request.session_id,
        }
    }

    /// Returns the session's folder and MCP servers.
    fn place(&self) -> (&PathBuf, &Vec<McpServer>) {
        match self {
            Self::New(_, request, _) => (&request.cwd, &request.mcp_servers),
            Self::Load(request, _) => (&request.cwd, &request.mcp_servers),
            Self::Resume(request, _) => (&request.cwd, &request.mcp_servers),
        }
    }

    fn refuse(self, error: AcpError) {
        // Sending fails only if the connection has ended.
        let _ = match self {
            Self::New(_, _, responder) => responder.respond_with_error(error),
            Self::Load(_, responder) => responder.respond_with_error(error),
            Self::Resume(_, responder) => responder.respond_with_error(error),
        };
    }
}

/// A command for a session.
pub(super) enum EditorCommand {
    Prompt(PromptRequest, Responder<PromptResponse>),
    SetMode(SetSessionModeRequest, Responder<SetSessionModeResponse>),
    SetOption(
        SetSessionConfigOptionRequest,
        Responder<SetSessionConfigOptionResponse>,
    ),
    SetModel(SetModelRequest, Responder<SetModelResponse>),
    Cancel,
}

/// What the user has chosen for a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SessionChoices {
    pub(super) model: Option<String>,
    /// The name of a thinking level; it applies to models that have it.
    pub(super) level: Option<String>,
    pub(super) mode: SessionModeChoice,
}

/// A session.
pub(super) struct EditorSession {
    context: SessionContext,
    record: SessionRecord,
    permissions: RememberedPermissions,
    choices: SessionChoices,
    models: Vec<SelectableModel>,
}

impl EditorSession {
    /// Opens a session, responds, and serves its commands until the connection ends.
    pub(super) async fn open(
        state: Arc<AcpState>,
        request: OpenRequest,
        client: Connection,
        capabilities: ClientCapabilities,
        commands: mpsc::Receiver<EditorCommand>,
    ) {
        let (cwd, servers) = request.place();
        let (cwd, servers) = (cwd.clone(), servers.clone());
        let record = match &request {
            OpenRequest::New(..) => Ok(SessionRecord::new(cwd.clone())),
            OpenRequest::Load(..) | OpenRequest::Resume(..) => state
                .history
                .load(&request.session_id().0)
                .map_err(|error| AcpError::new(-32602, error.to_string())),
        };
        let checked = if cwd.is_absolute() {
            record
        } else {
            Err(AcpError::new(-32602, "cwd: it must be an absolute path"))
        };
        let opened = checked.and_then(|record| {
            let servers = mcp_servers::convert(servers, &cwd)?;
            Ok((record, servers))
        });
        let (mut record, servers) = match opened {
            Ok(opened) => opened,
            Err(error) => return request.refuse(error),
        };
        record.cwd.clone_from(&cwd);
        let library = ConfigCache::new(state.config.home.clone(), state.reaper.clone())
            .with_state(state.config.state_dir.clone())
            .with_host_servers(servers);
        let library = Arc::new(library);
        // Load these before the first prompt needs them.
        library.prefetch(&state.config.turn.cursor, &cwd);
        library.repositories().refresh(&cwd);
        let models = session_models::load(&state).await;
        let choices = SessionChoices {
            model: record.model.clone(),
            level: record.level.clone(),
            mode: record.mode,
        };
        let mut task = Self {
            context: SessionContext {
                id: request.session_id().clone(),
                cwd,
                client,
                capabilities,
                library,
                state,
            },
            record,
            permissions: RememberedPermissions::default(),
            choices,
            models,
        };
        task.respond_opened(request);
        task.serve(commands).await;
        task.context.library.close();
    }

    fn respond_opened(&mut self, request: OpenRequest) {
        let (modes, options) = (self.choices.mode.state(), self.options());
        let _ = match request {
            OpenRequest::New(id, _, responder) => {
                self.context.state.history.save(&id.0, &self.record);
                let response = NewSessionResponse::new(id);
                responder.respond(response.modes(modes).config_options(options))
            }
            OpenRequest::Load(_, responder) => {
                self.replay();
                let response = LoadSessionResponse::new();
                responder.respond(response.modes(modes).config_options(options))
            }
            OpenRequest::Resume(_, responder) => {
                let response = ResumeSessionResponse::new();
                responder.respond(response.modes(modes).config_options(options))
            }
        };
    }

    fn options(&self) -> Vec<agent_client_protocol::v1::schema::SessionConfigOption> {
        session_models::options(&self.models, &self.choices)
    }

    /// Sends the history of a loaded session.
    fn replay(&self) {
        let results = |id: &str| {
            self.record.items.iter().find_map(|item| match item {
                HistoryItem::ToolResult {
                    call_id,
                    content,
                    is_error,
                    ..
                } if call_id == id => Some((content, *is_error)),
                _ => None,
            })
        };
        for item in &self.record.items {
            match item {
                HistoryItem::User { content } => {
                    for part in content {
                        let chunk = ContentChunk::new(block(part));
                        self.context.notify(SessionUpdate::UserMessageChunk(chunk));
                    }
                }
                HistoryItem::Answer { text, calls, .. } => {
                    if !text.is_empty() {
                        let chunk = ContentChunk::new(text.as_str().into());
                        self.context.notify(SessionUpdate::AgentMessageChunk(chunk));
                    }
                    for call in calls {
                        let result = results(&call.id);
                        let view =
                            ToolCallView::of_call(&call.name, &call.arguments, &self.context.cwd);
                        let failed = result.is_none_or(|(_, is_error)| is_error);
                        let status = if failed {
                            ToolCallStatus::Failed
                        } else {
                            ToolCallStatus::Completed
                        };
                        let parts = result.map(|(content, _)| content.as_slice());
                        let parts = parts.unwrap_or_default();
                        if let Some(StoredContent::Text(text)) = parts.first()
                            && let Some(plan) = plan(&call.name, &call.arguments, text)
                        {
                            self.context.notify(SessionUpdate::Plan(plan));
                        }
                        let content = parts.iter().map(|part| ToolCallContent::from(block(part)));
                        let shown = new_call(&call.id, &view, status).content(content.collect());
                        self.context.notify(SessionUpdate::ToolCall(shown));
                    }
                }
                HistoryItem::ToolResult { .. } => {}
            }
        }
    }

    async fn serve(&mut self, mut commands: mpsc::Receiver<EditorCommand>) {
        while let Some(command) = commands.recv().await {
            let (request, responder) = match command {
                EditorCommand::Prompt(request, responder) => (request, responder),
                other => {
                    self.choose(other);
                    continue;
                }
            };
            let content = match prompt_content::convert(request.prompt) {
                Ok(content) => content,
                Err(error) => {
                    let _ = responder.respond_with_error(error);
                    continue;
                }
            };
            let cancel = self.context.state.shutdown.child_token();
            let withdrawn = responder.cancellation();
            let Self {
                context,
                record,
                permissions,
                choices,
                models,
            } = self;
            let model = choices.model.as_deref();
            let chosen = PromptChoices {
                model: model
                    .unwrap_or_else(|| session_models::default_model(models))
                    .to_owned(),
                level: session_models::level(models, choices),
                mode: choices.mode,
            };
            let answer = {
                let prompt = prompt_turn::run(
                    context,
                    &chosen,
                    record,
                    permissions,
                    content,
                    cancel.clone(),
                );
                let mut prompt = pin!(prompt);
                loop {
                    let command = tokio::select! {
                        biased;
                        answer = &mut prompt => break answer,
                        command = commands.recv() => command,
                        () = withdrawn.cancelled(), if !cancel.is_cancelled() => {
                            Some(EditorCommand::Cancel)
                        }
                    };
                    match command {
                        Some(EditorCommand::Cancel) => cancel.cancel(),
                        Some(EditorCommand::Prompt(_, responder)) => {
                            let problem = "a prompt of this session is running; cancel it first";
                            let _ = responder.respond_with_error(AcpError::new(-32600, problem));
                        }
                        // Stored with the answer, when the prompt ends.
                        Some(other) => choose(other, choices, models, |_| {}),
                        // The session is closed.
                        None => {
                            cancel.cancel();
                            break prompt.await;
                        }
                    }
                }
            };
            self.save();
            let answer = answer.map(PromptResponse::new);
            let _ = responder.respond_with_result(answer);
        }
    }

    /// Changes a choice, stores it, and responds.
    fn choose(&mut self, command: EditorCommand) {
        let Self {
            context,
            record,
            choices,
            models,
            ..
        } = self;
        choose(command, choices, models, |choices| {
            save(context, record, choices);
        });
    }

    fn save(&mut self) {
        save(&self.context, &mut self.record, &self.choices);
    }
}

/// Stores the session.
fn save(context: &SessionContext, record: &mut SessionRecord, choices: &SessionChoices) {
    record.model.clone_from(&choices.model);
    record.level.clone_from(&choices.level);
    record.mode = choices.mode;
    context.state.history.save(&context.id.0, record);
}

/// Changes a choice, has it stored, and responds. A choice applies from the next prompt on.
fn choose(
    command: EditorCommand,
    choices: &mut SessionChoices,
    models: &[SelectableModel],
    store: impl FnOnce(&SessionChoices),
) {
    let invalid = |problem: String| AcpError::new(-32602, problem);
    let _ = match command {
        EditorCommand::SetMode(request, responder) => {
            match SessionModeChoice::find(&request.mode_id.0) {
                Some(mode) => {
                    choices.mode = mode;
                    store(choices);
                    responder.respond(SetSessionModeResponse::new())
                }
                None => {
                    let problem = format!("modeId: there is no mode {:?}", &*request.mode_id.0);
                    responder.respond_with_error(invalid(problem))
                }
            }
        }
        EditorCommand::SetOption(request, responder) => {
            let value = request.value.as_value_id().map(|value| value.0.to_string());
            let value = value.unwrap_or_default();
            match session_models::choose(models, choices, &request.config_id.0, &value) {
                Ok(()) => {
                    store(choices);
                    let options = session_models::options(models, choices);
                    responder.respond(SetSessionConfigOptionResponse::new(options))
                }
                Err(problem) => responder.respond_with_error(invalid(problem)),
            }
        }
        EditorCommand::SetModel(request, responder) => {
            match session_models::choose_model(models, choices, &request.model_id) {
                Ok(()) => {
                    store(choices);
                    responder.respond(SetModelResponse {})
                }
                Err(problem) => responder.respond_with_error(invalid(problem)),
            }
        }
        // Without a running prompt there is nothing to cancel.
        EditorCommand::Cancel | EditorCommand::Prompt(..) => Ok(()),
    };
}

/// Returns stored content as a block of the protocol.
pub(super) fn block(content: &StoredContent) -> ContentBlock {
    match content {
        StoredContent::Text(text) => text.as_str().into(),
        StoredContent::Image { data, mime_type } => {
            ContentBlock::Image(ImageContent::new(data.clone(), mime_type.clone()))
        }
    }
}

impl SessionContext {
    /// Sends an update of the session.
    pub(super) fn notify(&self, update: SessionUpdate) {
        // Sending fails only if the connection has ended.
        let notification = SessionNotification::new(self.id.clone(), update);
        let _ = self.client.send_notification(notification);
    }
}
