//! `turn/*` and `session/*`: converts the host's requests for [`agent::turn`] and sends back the
//! events.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use jsonrpsee::types::ErrorObjectOwned;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::controls::{Controls, UnknownMode};
use super::ending::{ended, unsent};
use super::error::INVALID_PARAMS;
use super::models::ModelService;
use super::peer::Peer;
use super::protocol::*;
use super::telling::{call_host_tool, log, permit, send_events};
use crate::backends::Backends;
use crate::keeping::Keeping;
use crate::model_resolver::ResolvedModel;
use crate::parked::Parked;
use crate::sessions::Sessions;
use agent::catalog::Speed;
use agent::conversation::picture;
use agent::conversation::transcript::{Tool, Transcript};
use agent::run::{Backend, Mode, UserMessage};
use agent::turn::{
    Door, Follows, Hands, Keep, Policy, Session, Stop, Surface, TurnPlace, TurnRequest,
    turn_events, words,
};
use agent_tools::bridge::Verdict;
use agent_tools::cursor_config::ConfigCache;
use agent_tools::policy::HostPolicy;
use cursor_client::account::ApiKey;
use foundation::settings::Warning;
use foundation::{Digest, prefix};

/// Statistics of the events sent to the host during a turn.
#[derive(Default)]
struct EventStats {
    events: usize,
    first: Option<Instant>,
}

/// How many events one notification may contain.
const BATCH: usize = 64;

/// Sessions, active turns, and the backend they share.
#[derive(Default)]
pub(super) struct Turns {
    /// The user's Cursor settings, for all sessions.
    library: Arc<ConfigCache>,
    sessions: Sessions,
    active: Mutex<HashMap<String, ActiveTurn>>,
    parked: Parked,
    backends: Backends,
    keeping: Keeping,
    policy: OnceLock<Policy>,
    /// Set once the host was sent the warnings about settings.
    warned_settings: OnceLock<()>,
    /// Set once a request with unknown fields was logged.
    warned_unknown_fields: OnceLock<()>,
}

/// Handles to an active turn.
struct ActiveTurn {
    cancel: CancellationToken,
    injections: mpsc::Sender<UserMessage>,
}

/// The context of a `turn/start` request.
pub(super) struct Origin<'a> {
    pub(super) peer: &'a Peer,
    pub(super) home: Option<&'a Path>,
    pub(super) cwd: PathBuf,
    pub(super) models: &'a ModelService,
    pub(super) tools: HostTools,
    /// The host's policy for native tools, from `initialize`.
    pub(super) native_tools: HostPolicy,
    /// Warnings about invalid settings.
    pub(super) misread: &'a [Warning],
}

/// Whether a run was parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParkOutcome {
    Parked,
    Cancelled,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An active turn; removed and cancelled when its request is dropped.
struct ActiveTurnGuard<'a> {
    turns: &'a Turns,
    id: String,
    cancel: CancellationToken,
    injections: Option<mpsc::Receiver<UserMessage>>,
}

impl ActiveTurnGuard<'_> {
    /// Ends the turn before its run starts. Its injected messages are kept for the next turn.
    async fn abandon(&mut self, place: TurnPlace, stop: Stop) -> TurnStartResult {
        if let Some(injections) = &mut self.injections {
            place.give_up(injections).await;
        }
        unsent(stop)
    }
}

impl Drop for ActiveTurnGuard<'_> {
    fn drop(&mut self) {
        self.cancel.cancel();
        lock(&self.turns.active).remove(&self.id);
    }
}

impl Turns {
    /// Returns an empty registry.
    pub(super) fn new(library: Arc<ConfigCache>) -> Self {
        Self {
            library,
            ..Self::default()
        }
    }

    /// Runs a turn to its end and sends its events.
    pub(super) async fn start(
        &self,
        params: TurnStartParams,
        origin: Origin<'_>,
    ) -> Result<TurnStartResult, ErrorObjectOwned> {
        // Every log event of the turn carries its id and session.
        let span = tracing::debug_span!(
            "turn",
            turn = params.turn_id,
            session = prefix(&params.session_id)
        );
        self.start_logged(params, origin).instrument(span).await
    }

    /// Runs a turn and logs its start and end.
    async fn start_logged(
        &self,
        params: TurnStartParams,
        origin: Origin<'_>,
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
        let result = self.run(params, origin, &mut stats).await;
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
        params: TurnStartParams,
        origin: Origin<'_>,
        stats: &mut EventStats,
    ) -> Result<TurnStartResult, ErrorObjectOwned> {
        let asked = Instant::now();
        self.log_unknown_fields(&params);
        self.send_setting_warnings(&origin).await;
        let (key, backend) = match self.backend(params.api_key.as_deref(), origin.home) {
            Ok(backend) => backend,
            // Not an invalid request: the turn ends with the error text.
            Err(problem) => return Ok(unsent(Stop::Failed(problem))),
        };
        let mut turn = self.begin(&params.turn_id)?;
        // Before anything is awaited, because turns of a session run in the order they arrive.
        let session = self.session(&params, origin.home);
        let place = tokio::select! {
            place = session.place() => place,
            () = turn.cancel.cancelled() => return Ok(unsent(Stop::Aborted)),
        };
        let workspace = params.workspace.clone().map_or(origin.cwd, PathBuf::from);
        let (policy, library) = match params.kind {
            TurnKind::Main => (self.policy().clone(), Arc::clone(&self.library)),
            // It uses the model and nothing else.
            TurnKind::Side => (self.policy().clone().words_only(), Arc::default()),
        };
        if let (TurnKind::Main, Some(is_trusted)) = (params.kind, params.project_trusted) {
            library.set_host_trust(&workspace, is_trusted);
        }
        prefetch_settings(&library, &policy, &workspace);
        let controls = Controls::read(params.kept.as_ref().unwrap_or(&Kept::default()));
        let mode = match mode(&params, &controls) {
            Ok(mode) => mode,
            Err(unknown) => {
                return Ok(turn.abandon(place, Stop::Failed(unknown.to_string())).await);
            }
        };
        let model = params.model.clone();
        let mut wishes = controls.wishes;
        wishes.run = model.fast.map(Speed::from_switch).or(wishes.run);
        let key_given = params.api_key.as_deref();
        let resolved = tokio::select! {
            resolved = origin.models.resolve(model, &wishes, &backend, key_given) => resolved,
            () = turn.cancel.cancelled() => return Ok(turn.abandon(place, Stop::Aborted).await),
        };
        let ResolvedModel {
            model,
            limits,
            model_id,
        } = match resolved {
            Ok(resolved) => resolved,
            Err(problem) => return Ok(turn.abandon(place, Stop::Failed(problem)).await),
        };
        if params.kind == TurnKind::Main {
            self.parked.forget(&params.session_id);
        }
        let (events, mut inbox) = turn_events();
        let (calls, mut called) = mpsc::channel(64);
        let (permissions, mut asked_for) = mpsc::channel(16);
        let native_tools = HostPolicy::from(&params.native_tools).or(&origin.native_tools);
        let hands = match origin.tools {
            HostTools::Inline => Hands::Inline(calls),
            HostTools::Between => {
                drop(calls);
                Hands::Between
            }
        };
        let request = TurnRequest {
            account: key.fingerprint(),
            backend,
            workspace,
            asked,
            transcript: Transcript::read(
                params.system_prompt,
                params
                    .tools
                    .map(|tools| tools.into_iter().map(tool).collect()),
                params.messages,
            ),
            model,
            limits,
            mode,
            policy,
            native_tools,
            permissions: Some(permissions),
            library,
            keep: match params.keep {
                TurnKeep::Disk => Keep::Disk,
                TurnKeep::Memory => Keep::Memory,
            },
            door: Door::Native,
            hands,
            surface: match params.surface {
                TurnSurface::Text => Surface::Text,
                TurnSurface::Cards => Surface::Cards(params.card_tools),
            },
            cancel: turn.cancel.clone(),
            injections: turn.injections.take().unwrap_or_else(|| mpsc::channel(1).1),
            events,
        };
        let sending = async {
            let mut batch = Vec::new();
            while inbox.recv_many(&mut batch, BATCH).await > 0 {
                stats.first.get_or_insert_with(Instant::now);
                stats.events += batch.len();
                send_events(origin.peer, &turn.id, &mut batch).await;
            }
        };
        let calling = async {
            // All in this task, so that the host gets calls in the order they were made.
            let mut asked = FuturesUnordered::new();
            loop {
                tokio::select! {
                    call = called.recv() => match call {
                        Some(call) => asked.push(call_host_tool(origin.peer.clone(), turn.id.clone(), call)),
                        None => break,
                    },
                    Some(()) = asked.next() => {}
                }
            }
            // The turn is over: the results of open calls have no receiver.
        };
        let permitting = async {
            let mut asked = FuturesUnordered::new();
            loop {
                tokio::select! {
                    Some(request) = asked_for.recv() => {
                        asked.push(permit(origin.peer.clone(), turn.id.clone(), request));
                    }
                    Some(()) = asked.next() => {}
                    else => std::future::pending().await,
                }
            }
        };
        // The events end with the turn, so the answer comes after the last of them.
        let running = async { tokio::join!(place.turn(request), sending, calling) };
        let (mut result, (), ()) = tokio::select! {
            taken = running => taken,
            () = permitting => return Ok(unsent(Stop::Aborted)),
        };
        if let (Stop::Finished, Some(id), Some(window)) = (&result.stop, model_id, result.window) {
            origin.models.learn(&id, window);
        }
        if result.stop == Stop::ToolUse
            && self.park(&turn, params.session_id).await == ParkOutcome::Cancelled
        {
            session.let_go().await;
            result.stop = Stop::Aborted;
        }
        self.keeping.tidy();
        Ok(ended(result.stop, result.tokens, params.model.cost))
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
    async fn send_setting_warnings(&self, origin: &Origin<'_>) {
        if self.warned_settings.set(()).is_ok() {
            for warning in origin.misread {
                log(origin.peer, LogLevel::Warning, &warning.to_string()).await;
            }
        }
    }

    fn begin(&self, id: &str) -> Result<ActiveTurnGuard<'_>, ErrorObjectOwned> {
        let cancel = CancellationToken::new();
        let (injections, inbox) = mpsc::channel(16);
        let mut active = lock(&self.active);
        if active.contains_key(id) {
            let problem = format!("turnId: turn {id:?} is already active");
            return Err(ErrorObjectOwned::owned(INVALID_PARAMS, problem, None::<()>));
        }
        let turn = ActiveTurn {
            cancel: cancel.clone(),
            injections,
        };
        active.insert(id.to_owned(), turn);
        Ok(ActiveTurnGuard {
            turns: self,
            id: id.to_owned(),
            cancel,
            injections: Some(inbox),
        })
    }

    /// Returns the session of a turn. A side turn gets a new session that is not stored.
    fn session(&self, params: &TurnStartParams, home: Option<&Path>) -> Session {
        if params.kind == TurnKind::Side {
            return Session::start(None, self.library.reaper().clone());
        }
        self.enter(&params.session_id, home)
    }

    /// Returns the session of that name.
    fn enter(&self, name: &str, home: Option<&Path>) -> Session {
        let env = |name: &str| std::env::var(name).ok();
        let store = self.keeping.store(&env, home);
        let waiting = self.policy().most_parked;
        self.sessions.enter(name, waiting, |last| {
            let store = store.map(|store| (store, name.to_owned()));
            Session::start_after(last, store, self.library.reaper().clone())
        })
    }

    /// Returns the user's Cursor settings.
    pub(super) fn library(&self) -> &Arc<ConfigCache> {
        &self.library
    }

    /// Returns the settings for turns, read once.
    pub(super) fn policy(&self) -> &Policy {
        self.policy.get_or_init(|| {
            let env = |name: &str| std::env::var(name).ok();
            Policy::from_env(&env).0
        })
    }

    /// Records a parked run, unless the host has cancelled it. If too many are parked, the one that
    /// waited longest is released.
    async fn park(&self, turn: &ActiveTurnGuard<'_>, session: String) -> ParkOutcome {
        let longest = {
            // Under one lock, so that a cancellation finds the turn in one place or the other.
            let mut active = lock(&self.active);
            if turn.cancel.is_cancelled() {
                return ParkOutcome::Cancelled;
            }
            active.remove(&turn.id);
            let most = self.policy().most_parked;
            self.parked.add(turn.id.clone(), session, most)
        };
        if let Some(session) = longest.and_then(|session| self.find(&session)) {
            session.let_go().await;
        }
        ParkOutcome::Parked
    }

    /// Returns an open session.
    pub(super) fn find(&self, session: &str) -> Option<Session> {
        self.sessions.find(session)
    }

    async fn release(&self, session: &str) {
        if let Some(session) = self.find(session) {
            session.release().await;
        }
    }

    /// Cancels an active turn, or the parked run of an earlier one.
    pub(super) async fn cancel(&self, params: &TurnCancelParams) -> TurnCancelResult {
        let found = {
            let active = lock(&self.active);
            let turn = active.get(&params.turn_id);
            turn.map(|turn| turn.cancel.cancel()).is_some()
        };
        tracing::debug!(turn = params.turn_id, found, "turn.cancel");
        if found {
            return TurnCancelResult { found };
        }
        let waiting = self.parked.take(&params.turn_id);
        if let Some(session) = &waiting {
            self.release(session).await;
        }
        TurnCancelResult {
            found: waiting.is_some(),
        }
    }

    /// Injects a message into an active turn.
    pub(super) async fn inject(
        &self,
        params: TurnInjectParams,
    ) -> Result<TurnInjectResult, ErrorObjectOwned> {
        let pictures = picture::decode(params.images.iter().map(|image| image.data.as_str()));
        let pictures = pictures.map_err(|error| {
            ErrorObjectOwned::owned(INVALID_PARAMS, format!("images: {error}"), None::<()>)
        })?;
        let message = words(params.text, pictures);
        let turn = lock(&self.active)
            .get(&params.turn_id)
            .map(|turn| turn.injections.clone());
        let taken = match turn {
            Some(injections) => injections.send(message).await.is_ok(),
            None => false,
        };
        Ok(TurnInjectResult { taken })
    }

    /// Returns the recorded result of a card; an unknown card is an error.
    pub(super) fn recorded(
        &self,
        params: &ReplayResultParams,
    ) -> Result<ReplayResult, ErrorObjectOwned> {
        let session = self.find(&params.session_id);
        let record = session.and_then(|session| session.recorded(&params.call_id));
        let Some(record) = record else {
            let problem = format!(
                "callId: no recorded Cursor result for {:?}; it is not executed again",
                params.call_id
            );
            return Err(ErrorObjectOwned::owned(INVALID_PARAMS, problem, None::<()>));
        };
        Ok(ReplayResult {
            content: serde_json::json!([{"type": "text", "text": record.content}]),
            details: record.details,
            is_error: record.verdict == Verdict::Failed,
            terminate: record.follows == Follows::Nothing,
        })
    }

    /// Forgets the conversation: the next turn of the session sends the whole history.
    pub(super) async fn invalidate(&self, params: &SessionParams, home: Option<&Path>) {
        self.parked.forget(&params.session_id);
        tracing::debug!(session = prefix(&params.session_id), "session.invalidate");
        // Opens the session, so that the next turn is queued after this.
        self.enter(&params.session_id, home).invalidate().await;
    }

    /// Closes a session; what is stored stays.
    pub(super) fn close(&self, params: &SessionParams) {
        self.parked.forget(&params.session_id);
        tracing::debug!(session = prefix(&params.session_id), "session.close");
        self.sessions.remove(&params.session_id);
    }

    /// Returns the backend for a key, built once.
    pub(super) fn backend(
        &self,
        key: Option<&str>,
        home: Option<&Path>,
    ) -> Result<(ApiKey, Backend), String> {
        let env = |name: &str| std::env::var(name).ok();
        let found = self.backends.get(key, &env, home);
        found.map_err(|error| error.to_string())
    }

    /// Returns the backend in use, else the one of the environment.
    pub(super) fn inspect(&self, home: Option<&Path>) -> Result<Backend, String> {
        if let Some(backend) = self.backends.in_use() {
            return Ok(backend);
        }
        let env = |name: &str| std::env::var(name).ok();
        let found = Backend::from_env(&env, home).map(|(backend, _)| backend);
        found.map_err(|error| error.to_string())
    }
}

/// Reads the workspace's Cursor settings in the background while the model is resolved.
fn prefetch_settings(library: &Arc<ConfigCache>, policy: &Policy, workspace: &Path) {
    let library = Arc::clone(library);
    let (choice, workspace) = (policy.cursor.clone(), workspace.to_owned());
    tokio::spawn(async move { drop(library.open(&choice, &workspace).await) });
}

/// Returns the mode of a turn: its own, else the user's choice. A side turn, or a host that keeps
/// no state for us, leaves it to Cursor.
fn mode(params: &TurnStartParams, controls: &Controls) -> Result<Option<Mode>, UnknownMode> {
    let chosen = match (params.mode, params.kind, &params.kept) {
        (Some(mode), ..) => Some(mode),
        (None, TurnKind::Main, Some(_)) => Some(controls.mode()?),
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
