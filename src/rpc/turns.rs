//! `turn/*` and `session/*`: converts the host's requests for [`agent::turn`] and sends back the
//! events.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use jsonrpsee::types::ErrorObjectOwned;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::error::{INVALID_PARAMS, for_host};
use super::host_messages::TranscriptReader;
use super::models::ModelService;
use super::peer::Peer;
use super::protocol::*;
use super::turn_events::{OpenRequests, log, send_events};
use super::turn_result::{not_started, to_result};
use super::user_choices::{UnknownMode, UserChoices};
use super::wait_clock::WaitClock;
use crate::backends::Backends;
use crate::config::Config;
use crate::last_error;
use crate::model_resolver::ResolvedModel;
use crate::session_options::session_options;
use agent::catalog::Speed;
use agent::conversation::image;
use agent::conversation::transcript::Tool;
use agent::run::{Backend, Mode};
use agent::session_manager::{
    AnswerSummary, ReserveError, SessionManager, SessionSelector, TurnTicket,
};
use agent::turn::usage::SessionUsage;
use agent::turn::{
    Frontend, HostToolMode, Keep, Policy, Stop, Surface, TurnEvent, TurnRequest, UserCommands,
    user_message, with_next_step,
};
use agent_tools::cursor_config::ConfigCache;
use agent_tools::policy::HostPolicy;
use cursor_client::account::Credential;
use foundation::{Digest, prefix};

/// Statistics of the events sent to the host during a turn.
#[derive(Default)]
struct EventStats {
    events: usize,
    first: Option<Instant>,
}

/// How many events one notification may contain.
const BATCH: usize = 64;

/// The turns of a host, and the backend they share.
pub(super) struct Turns {
    config: Arc<Config>,
    /// The user's Cursor settings, for all sessions.
    library: Arc<ConfigCache>,
    sessions: Arc<SessionManager>,
    backends: Backends,
    transcripts: TranscriptReader,
    /// Set once the host was sent the warnings about settings.
    warned_settings: OnceLock<()>,
    /// Set once a request with unknown fields was logged.
    warned_unknown_fields: OnceLock<()>,
}

/// The context of a `turn/start` request.
pub(super) struct TurnContext<'a> {
    pub(super) peer: &'a Peer,
    pub(super) cwd: PathBuf,
    pub(super) models: &'a ModelService,
    pub(super) tools: HostToolTiming,
    /// The host's policy for native tools, from `initialize`.
    pub(super) native_tools: HostPolicy,
    /// Whether the host displays what a turn waits for.
    pub(super) shows_waits: bool,
}

fn invalid(problem: String) -> ErrorObjectOwned {
    ErrorObjectOwned::owned(INVALID_PARAMS, problem, None::<()>)
}

impl Turns {
    /// Returns the turns of a host that has none yet.
    pub(super) fn new(library: Arc<ConfigCache>, config: Arc<Config>) -> Self {
        let sessions = session_options(&config, library.reaper().clone());
        Self {
            config,
            library,
            sessions: Arc::new(SessionManager::new(sessions)),
            backends: Backends::default(),
            transcripts: TranscriptReader::default(),
            warned_settings: OnceLock::new(),
            warned_unknown_fields: OnceLock::new(),
        }
    }

    /// Runs a turn to its end and sends its events.
    pub(super) async fn start(
        &self,
        params: TurnStartParams,
        context: TurnContext<'_>,
    ) -> Result<TurnStartResult, ErrorObjectOwned> {
        // Every log event of the turn carries its id and session.
        let span = tracing::debug_span!(
            "turn",
            turn = params.turn_id,
            session = prefix(&params.session_id)
        );
        self.start_logged(params, context).instrument(span).await
    }

    /// Runs a turn and logs its start and end.
    async fn start_logged(
        &self,
        params: TurnStartParams,
        context: TurnContext<'_>,
    ) -> Result<TurnStartResult, ErrorObjectOwned> {
        tracing::debug!(
            model = params.model.id,
            messages = params.messages.len(),
            tools = params.tools.as_ref().map(Vec::len),
            system = %Digest(params.system_prompt.as_deref().unwrap_or_default()),
            kind = ?params.kind,
            "turn.started"
        );
        let started = Instant::now();
        let mut stats = EventStats::default();
        let result = self.run(params, context, &mut stats).await;
        if let Ok(TurnStartResult {
            error_message: Some(error),
            ..
        }) = &result
        {
            last_error::record(self.config.state_dir.as_deref(), "rpc", error).await;
        }
        let ms = started.elapsed().as_millis() as u64;
        match &result {
            Ok(result) => tracing::debug!(
                stop = ?result.stop_reason,
                ms,
                events = stats.events,
                first_ms = stats.first.map(|at| (at - started).as_millis() as u64),
                input = result.usage.input,
                output = result.usage.output,
                cache_read = result.usage.cache_read,
                estimated = result.usage.estimated,
                "turn.answered"
            ),
            Err(error) => tracing::debug!(code = error.code(), ms, "turn.refused"),
        }
        result
    }

    async fn run(
        &self,
        mut params: TurnStartParams,
        context: TurnContext<'_>,
        stats: &mut EventStats,
    ) -> Result<TurnStartResult, ErrorObjectOwned> {
        let asked = Instant::now();
        let tools = params.tools.take();
        let transcript = self.transcripts.read(
            params.system_prompt.take(),
            tools.map(|tools| tools.into_iter().map(tool).collect()),
            std::mem::take(&mut params.messages),
        );
        let transcript = transcript.map_err(|error| {
            ErrorObjectOwned::owned(INVALID_PARAMS, error.to_string(), None::<()>)
        })?;
        self.log_unknown_fields(&params);
        self.send_setting_warnings(&context).await;
        let (key, backend) = match self.backend(params.api_key.as_deref()) {
            Ok(backend) => backend,
            // Not an invalid request: the turn ends with the error text.
            Err(problem) => return Ok(not_started(Stop::Failed(problem))),
        };
        // Before the request is built, because turns of a session run in the order they arrive.
        let mut ticket = match self.reserve(&params).await {
            Ok(ticket) => ticket,
            Err(ReserveError::Cancelled) => return Ok(not_started(Stop::Aborted)),
            Err(ReserveError::AlreadyActive) => {
                let problem = format!("turnId: turn {:?} is already active", params.turn_id);
                return Err(invalid(problem));
            }
        };
        let workspace = params.workspace.clone().map_or(context.cwd, PathBuf::from);
        let (policy, library) = match params.kind {
            TurnKind::Main => (self.config.turn.clone(), Arc::clone(&self.library)),
            // It uses the model and nothing else.
            TurnKind::Side => (self.config.turn.clone().words_only(), Arc::default()),
        };
        if let (TurnKind::Main, Some(is_trusted)) = (params.kind, params.project_trusted) {
            library.set_host_trust(&workspace, is_trusted);
        }
        // They are read while the model is resolved.
        library.prefetch(&policy.cursor, &workspace);
        let choices = UserChoices::read(params.kept.as_ref().unwrap_or(&SavedChoices::default()));
        let mode = match mode(&params, &choices) {
            Ok(mode) => mode,
            Err(unknown) => return Ok(not_started(Stop::Failed(unknown.to_string()))),
        };
        let model = params.model.clone();
        let mut wishes = choices.wishes;
        wishes.run = model.fast.map(Speed::from_switch).or(wishes.run);
        let key_given = params.api_key.as_deref();
        let resolved = tokio::select! {
            resolved = context.models.resolve(model, &wishes, &backend, key_given) => resolved,
            () = ticket.cancel_token().cancelled() => {
                return Ok(not_started(Stop::Aborted));
            }
        };
        let ResolvedModel {
            model,
            limits,
            model_id,
        } = match resolved {
            Ok(resolved) => resolved,
            Err(problem) => return Ok(not_started(Stop::Failed(problem))),
        };
        let native_tools = HostPolicy::from(&params.native_tools).or(&context.native_tools);
        let request = TurnRequest {
            account: key.fingerprint(),
            backend,
            workspace,
            asked,
            transcript,
            model,
            limits,
            mode,
            policy,
            native_tools,
            can_be_asked: true,
            library,
            keep: match params.keep {
                TurnKeep::Disk => Keep::Disk,
                TurnKeep::Memory => Keep::Memory,
            },
            frontend: Frontend::Native,
            tool_mode: match context.tools {
                HostToolTiming::Inline => HostToolMode::Inline,
                HostToolTiming::Between => HostToolMode::Between,
            },
            surface: match params.surface {
                TurnSurface::Text => Surface::Text,
                TurnSurface::Cards => Surface::Cards(params.card_tools),
            },
        };
        let turn_id = params.turn_id;
        let (mut inbox, result) = ticket.start(request).await;
        let sending = async {
            let mut batch = Vec::new();
            let mut clock = WaitClock::new(context.peer, &turn_id, context.shows_waits);
            let mut open = OpenRequests::new(context.peer, &turn_id);
            loop {
                tokio::select! {
                    count = inbox.recv_many(&mut batch, BATCH) => if count == 0 { break },
                    () = clock.tick() => {
                        open.answer_during(clock.send()).await;
                        continue;
                    }
                    () = open.answer() => continue,
                }
                let line = batch.iter().rev().find_map(|event| match event {
                    TurnEvent::Waiting(line) => Some(line.clone()),
                    _ => None,
                });
                batch.retain(|event| match event {
                    TurnEvent::Waiting(_) => false,
                    TurnEvent::RetryNotice(_) => !context.shows_waits,
                    _ => true,
                });
                if let Some(line) = line {
                    open.answer_during(clock.begin(line)).await;
                }
                if batch.is_empty() {
                    continue;
                }
                stats.first.get_or_insert_with(Instant::now);
                stats.events += batch.len();
                let requests = open
                    .answer_during(send_events(context.peer, &turn_id, &mut batch))
                    .await;
                requests.into_iter().for_each(|request| open.add(request));
            }
            // The answers to open requests have no receiver any more.
            drop(open);
            clock.end().await;
        };
        // The events end with the turn, so the answer comes after the last of them.
        let (mut result, ()) = tokio::join!(result, sending);
        if let (Stop::Finished, Some(id), Some(window)) = (&result.stop, model_id, result.window) {
            context.models.learn(&id, window);
        }
        // The host's session id identifies the next turn.
        let answer = AnswerSummary::default();
        if !ticket.finish(&result.stop, &answer).await {
            result.stop = Stop::Aborted;
        }
        if let Stop::Failed(text) = &mut result.stop {
            *text = with_next_step(text, result.cause.as_ref(), UserCommands::SLASH);
        }
        Ok(to_result(result.stop, result.tokens, params.model.cost))
    }

    /// Logs unknown fields once, because another extension adds them to every turn.
    fn log_unknown_fields(&self, params: &TurnStartParams) {
        if !params.unknown.is_empty() && self.warned_unknown_fields.set(()).is_ok() {
            let names: Vec<&str> = params.unknown.keys().map(String::as_str).collect();
            let names: String = names.join(", ").chars().take(100).collect();
            tracing::warn!("turn/start has unknown fields, which are ignored: {names}");
        }
    }

    /// Sends warnings about settings to the host once, because its user does not see our stderr.
    async fn send_setting_warnings(&self, context: &TurnContext<'_>) {
        for warning in self.take_setting_warnings() {
            log(context.peer, LogLevel::Warning, &warning).await;
        }
    }

    /// Returns the warnings about settings, and nothing when they are requested again.
    pub(super) fn take_setting_warnings(&self) -> Vec<String> {
        match self.warned_settings.set(()) {
            Ok(()) => self
                .config
                .warnings
                .iter()
                .map(ToString::to_string)
                .collect(),
            Err(()) => Vec::new(),
        }
    }

    /// Reserves the next place in the session's queue. A side turn gets a session of its own.
    async fn reserve(&self, params: &TurnStartParams) -> Result<TurnTicket, ReserveError> {
        let selector = match params.kind {
            TurnKind::Main => SessionSelector::Id(&params.session_id),
            TurnKind::Side => SessionSelector::Temporary,
        };
        let cancel = CancellationToken::new();
        self.sessions
            .reserve(&params.turn_id, selector, cancel)
            .await
    }

    /// Returns the user's Cursor settings.
    pub(super) fn library(&self) -> &Arc<ConfigCache> {
        &self.library
    }

    /// Returns the settings for turns.
    pub(super) fn policy(&self) -> &Policy {
        &self.config.turn
    }

    pub(super) fn sessions(&self) -> &SessionManager {
        &self.sessions
    }

    /// Injects a message into an active turn.
    pub(super) async fn inject(
        &self,
        params: TurnInjectParams,
    ) -> Result<TurnInjectResult, ErrorObjectOwned> {
        let pictures = image::decode(params.images.iter().map(|image| image.data.as_str()));
        let pictures = pictures.map_err(|error| invalid(format!("images: {error}")))?;
        let message = user_message(params.text, pictures);
        let taken = self.sessions.inject(&params.turn_id, message).await;
        Ok(TurnInjectResult { taken })
    }

    /// Returns the recorded result of a card; an unknown card is an error.
    pub(super) fn recorded(
        &self,
        params: &ReplayResultParams,
    ) -> Result<ReplayResult, ErrorObjectOwned> {
        let (session, call) = (&params.session_id, &params.call_id);
        let Some(record) = self.sessions.recorded_card(session, call) else {
            let problem = format!(
                "callId: no recorded Cursor result for {:?}; it is not executed again",
                params.call_id
            );
            return Err(invalid(problem));
        };
        Ok(ReplayResult {
            content: serde_json::json!([{"type": "text", "text": record.content}]),
            details: record.details,
            is_error: record.is_error,
            terminate: record.is_last,
        })
    }

    /// Returns the backend for a key, built once.
    pub(super) fn backend(&self, key: Option<&str>) -> Result<(Credential, Backend), String> {
        let found = self.backends.get(key, &self.config.client);
        found.map_err(|error| for_host(&error))
    }

    /// Returns what Cursor reported for a session that is open.
    pub(super) fn session_usage(&self, session: &str) -> Option<SessionUsage> {
        self.sessions.usage(session)
    }

    /// Returns whether the key in use was sent by the host.
    pub(super) fn has_host_key(&self) -> bool {
        self.backends.uses_host_credential()
    }

    /// Returns the backend in use, else the configured one.
    pub(super) fn inspect(&self) -> Result<Backend, String> {
        if let Some(backend) = self.backends.in_use() {
            return Ok(backend);
        }
        Backend::new(&self.config.client).map_err(|error| for_host(&error))
    }
}

/// Returns the mode of a turn: its own, else the user's choice. A side turn, or a host that keeps
/// no state for us, leaves it to Cursor.
fn mode(params: &TurnStartParams, choices: &UserChoices) -> Result<Option<Mode>, UnknownMode> {
    let chosen = match (params.mode, params.kind, &params.kept) {
        (Some(mode), ..) => Some(mode),
        (None, TurnKind::Main, Some(_)) => Some(choices.mode()?),
        (None, ..) => None,
    };
    Ok(chosen.map(|mode| match mode {
        TurnMode::Agent => Mode::Agent,
        TurnMode::Plan => Mode::Plan,
    }))
}

fn tool(tool: HostTool) -> Tool {
    Tool {
        name: tool.name,
        description: tool.description,
        parameters: tool.parameters,
    }
}
