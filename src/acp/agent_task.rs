//! Receives the client's messages and passes those of a session to its task.

use std::collections::HashMap;
use std::sync::Arc;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::Responder;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, AuthMethod, AuthMethodAgent, AuthMethodTerminal, AuthenticateRequest,
    AuthenticateResponse, CancelNotification, ClientCapabilities, CloseSessionRequest,
    CloseSessionResponse, DeleteSessionRequest, DeleteSessionResponse, Implementation,
    InitializeRequest, InitializeResponse, ListSessionsRequest, ListSessionsResponse,
    LoadSessionRequest, LoadSessionResponse, McpCapabilities, NewSessionRequest,
    NewSessionResponse, PromptCapabilities, PromptRequest, PromptResponse, ResumeSessionRequest,
    ResumeSessionResponse, SessionCapabilities, SessionCloseCapabilities,
    SessionDeleteCapabilities, SessionId, SessionInfo, SessionListCapabilities,
    SessionResumeCapabilities, SetSessionConfigOptionRequest, SetSessionConfigOptionResponse,
    SetSessionModeRequest, SetSessionModeResponse,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::prompt_turn::engine_session;
use super::session_models::{SetModelRequest, SetModelResponse};
use super::session_task::{EditorCommand, EditorSession, OpenRequest};
use super::{AcpError, AcpState, Connection};
use foundation::presentable;

/// The authentication method that uses a key or an earlier login.
const STORED_LOGIN: &str = "cursor";
/// The authentication method that logs in, in a terminal of the client.
const TERMINAL_LOGIN: &str = "cursor-login";
/// How many commands of a session may wait.
const MAX_COMMANDS: usize = 16;

/// A message of the client.
pub(super) enum ClientMessage {
    Initialize(Box<InitializeRequest>, Responder<InitializeResponse>),
    Authenticate(AuthenticateRequest, Responder<AuthenticateResponse>),
    NewSession(NewSessionRequest, Responder<NewSessionResponse>, Connection),
    LoadSession(
        LoadSessionRequest,
        Responder<LoadSessionResponse>,
        Connection,
    ),
    ResumeSession(
        ResumeSessionRequest,
        Responder<ResumeSessionResponse>,
        Connection,
    ),
    ListSessions(ListSessionsRequest, Responder<ListSessionsResponse>),
    CloseSession(CloseSessionRequest, Responder<CloseSessionResponse>),
    DeleteSession(DeleteSessionRequest, Responder<DeleteSessionResponse>),
    Prompt(PromptRequest, Responder<PromptResponse>),
    SetMode(SetSessionModeRequest, Responder<SetSessionModeResponse>),
    SetOption(
        SetSessionConfigOptionRequest,
        Responder<SetSessionConfigOptionResponse>,
    ),
    SetModel(SetModelRequest, Responder<SetModelResponse>),
    Cancel(CancelNotification),
}

/// The client, and the tasks of its sessions.
pub(super) struct AgentTask {
    state: Arc<AcpState>,
    capabilities: ClientCapabilities,
    sessions: HashMap<SessionId, OpenSession>,
}

/// The task of a session.
struct OpenSession {
    commands: mpsc::Sender<EditorCommand>,
    task: JoinHandle<()>,
}

impl OpenSession {
    /// Cancels the prompt under way, and waits until it is answered and stored.
    async fn close(self) {
        drop(self.commands);
        // If it panicked, it has ended too.
        let _ = self.task.await;
    }
}

impl AgentTask {
    pub(super) fn new(state: Arc<AcpState>) -> Self {
        Self {
            state,
            capabilities: ClientCapabilities::default(),
            sessions: HashMap::new(),
        }
    }

    /// Handles messages until the connection ends.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<ClientMessage>) {
        while let Some(message) = inbox.recv().await {
            // A response fails only if the connection has ended.
            let _ = self.handle(message).await;
        }
    }

    async fn handle(&mut self, message: ClientMessage) -> Result<(), AcpError> {
        match message {
            ClientMessage::Initialize(request, responder) => {
                self.capabilities = request.client_capabilities.clone();
                responder.respond(self.initialized())
            }
            ClientMessage::Authenticate(request, responder) => {
                let known = [STORED_LOGIN, TERMINAL_LOGIN].contains(&&*request.method_id.0);
                responder.respond_with_result(if known {
                    self.check_login().map(|()| AuthenticateResponse::new())
                } else {
                    let problem = format!("unknown method {:?}", &*request.method_id.0);
                    Err(AcpError::new(-32602, problem))
                })
            }
            ClientMessage::NewSession(request, responder, connection) => {
                if let Err(error) = self.check_login() {
                    return responder.respond_with_error(error);
                }
                let id = SessionId::new(Uuid::new_v4().to_string());
                self.open(OpenRequest::New(id, request, responder), connection)
                    .await
            }
            ClientMessage::LoadSession(request, responder, connection) => {
                if let Err(error) = self.check_login() {
                    return responder.respond_with_error(error);
                }
                self.open(OpenRequest::Load(request, responder), connection)
                    .await
            }
            ClientMessage::ResumeSession(request, responder, connection) => {
                if let Err(error) = self.check_login() {
                    return responder.respond_with_error(error);
                }
                self.open(OpenRequest::Resume(request, responder), connection)
                    .await
            }
            ClientMessage::CloseSession(request, responder) => {
                let id = request.session_id;
                let Some(session) = self.sessions.remove(&id) else {
                    return responder.respond_with_error(unknown_session(&id));
                };
                let sessions = Arc::clone(&self.state.sessions);
                tokio::spawn(async move {
                    session.close().await;
                    sessions.close(&engine_session(&id));
                    responder.respond(CloseSessionResponse::new())
                });
                Ok(())
            }
            ClientMessage::DeleteSession(request, responder) => {
                let id = request.session_id;
                let open = self.sessions.remove(&id);
                let state = Arc::clone(&self.state);
                tokio::spawn(async move {
                    if let Some(session) = open {
                        session.close().await;
                    }
                    responder.respond_with_result(delete(&state, &id).await)
                });
                Ok(())
            }
            ClientMessage::ListSessions(request, responder) => {
                let store = self.state.history.clone();
                tokio::task::spawn_blocking(move || {
                    let sessions = store.list(request.cwd.as_deref()).into_iter();
                    let sessions = sessions.map(|session| {
                        let title = session.title.map(|title| presentable(&title));
                        SessionInfo::new(session.id, session.cwd).title(title)
                    });
                    responder.respond(ListSessionsResponse::new(sessions.collect()))
                });
                Ok(())
            }
            ClientMessage::Prompt(request, responder) => {
                let id = request.session_id.clone();
                match self.sessions.get(&id) {
                    Some(session) => send(session, EditorCommand::Prompt(request, responder)).await,
                    None => responder.respond_with_error(unknown_session(&id)),
                }
            }
            ClientMessage::SetMode(request, responder) => {
                let id = request.session_id.clone();
                match self.sessions.get(&id) {
                    Some(session) => {
                        send(session, EditorCommand::SetMode(request, responder)).await
                    }
                    None => responder.respond_with_error(unknown_session(&id)),
                }
            }
            ClientMessage::SetOption(request, responder) => {
                let id = request.session_id.clone();
                match self.sessions.get(&id) {
                    Some(session) => {
                        send(session, EditorCommand::SetOption(request, responder)).await
                    }
                    None => responder.respond_with_error(unknown_session(&id)),
                }
            }
            ClientMessage::SetModel(request, responder) => {
                let id = request.session_id.clone();
                match self.sessions.get(&id) {
                    Some(session) => {
                        send(session, EditorCommand::SetModel(request, responder)).await
                    }
                    None => responder.respond_with_error(unknown_session(&id)),
                }
            }
            ClientMessage::Cancel(notification) => {
                match self.sessions.get(&notification.session_id) {
                    Some(session) => send(session, EditorCommand::Cancel).await,
                    None => Ok(()),
                }
            }
        }
    }

    /// Starts the task of a session. One that is open already is closed first, because the client
    /// has asked for it again.
    async fn open(&mut self, request: OpenRequest, connection: Connection) -> Result<(), AcpError> {
        let (commands, inbox) = mpsc::channel(MAX_COMMANDS);
        let id = request.session_id().clone();
        let capabilities = self.capabilities.clone();
        let state = Arc::clone(&self.state);
        let last = self.sessions.remove(&id);
        let task = tokio::spawn(async move {
            if let Some(last) = last {
                last.close().await;
            }
            EditorSession::open(state, request, connection, capabilities, inbox).await;
        });
        self.sessions.insert(id, OpenSession { commands, task });
        Ok(())
    }

    fn initialized(&self) -> InitializeResponse {
        let mut methods = vec![AuthMethod::Agent(
            AuthMethodAgent::new(STORED_LOGIN, "Cursor account")
                .description("CURSOR_API_KEY, or the login of `cursor-sidecar login`".to_owned()),
        )];
        if self.capabilities.auth.terminal {
            methods.push(AuthMethod::Terminal(
                AuthMethodTerminal::new(TERMINAL_LOGIN, "Log in to Cursor")
                    .args(vec!["login".to_owned()]),
            ));
        }
        InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(
                AgentCapabilities::new()
                    .load_session(true)
                    .session_capabilities(
                        SessionCapabilities::new()
                            .list(SessionListCapabilities::new())
                            .resume(SessionResumeCapabilities::new())
                            .close(SessionCloseCapabilities::new())
                            .delete(SessionDeleteCapabilities::new()),
                    )
                    .prompt_capabilities(
                        PromptCapabilities::new().image(true).embedded_context(true),
                    )
                    .mcp_capabilities(McpCapabilities::new().http(true)),
            )
            .auth_methods(methods)
            .agent_info(Implementation::new(
                "cursor-sidecar",
                env!("CARGO_PKG_VERSION"),
            ))
    }

    /// Returns an error that asks the client to authenticate if there is no key and no login.
    fn check_login(&self) -> Result<(), AcpError> {
        let backend = self.state.backends.get(None, &self.state.config.client);
        backend
            .map(|_| ())
            .map_err(|error| login_needed(&error.to_string()))
    }
}

/// The error that asks a client to authenticate.
pub(super) fn login_needed(reason: &str) -> AcpError {
    let code = AcpError::auth_required().code;
    AcpError::new(code, presentable(reason))
}

/// Deletes what is stored of a session. A session that does not exist is none to delete.
async fn delete(state: &Arc<AcpState>, id: &SessionId) -> Result<DeleteSessionResponse, AcpError> {
    let store = state.history.clone();
    let name = id.0.to_string();
    let deleted = tokio::task::spawn_blocking(move || store.delete(&name)).await;
    let was_stored = deleted
        .map_err(|error| AcpError::new(-32603, error.to_string()))?
        .map_err(|error| AcpError::new(-32603, presentable(&error.to_string())))?;
    if was_stored {
        let session = engine_session(id);
        state.sessions.invalidate(&session).await;
        state.sessions.close(&session);
    }
    Ok(DeleteSessionResponse::new())
}

fn unknown_session(id: &SessionId) -> AcpError {
    AcpError::new(
        -32602,
        format!("sessionId: there is no session {:?}", &*id.0),
    )
}

async fn send(session: &OpenSession, command: EditorCommand) -> Result<(), AcpError> {
    // A dropped command answers its request with an error.
    let _ = session.commands.send(command).await;
    Ok(())
}
