//! `turn/*` and `session/*`: from the host's words to the turn room and back.

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
use super::telling::{ask, log, permit, tell};
use crate::account::ApiKey;
use crate::catalog::Speed;
use crate::conversation::picture;
use crate::conversation::transcript::{Tool, Transcript};
use crate::diag::settings::Warning;
use crate::diag::{Digest, prefix};
use crate::doors::backends::Backends;
use crate::doors::keeping::Keeping;
use crate::doors::model_resolver::ResolvedModel;
use crate::doors::parked::Parked;
use crate::doors::sessions::Sessions;
use crate::run::{Backend, Mode, UserMessage};
use crate::tools::bridge::Verdict;
use crate::tools::native::policy::HostPolicy;
use crate::tools::settings::Library;
use crate::turn::{
    Door, Follows, Hands, Keep, Policy, Session, Stop, Surface, TurnPlace, TurnRequest,
    turn_events, words,
};

/// What went to the host during a turn.
#[derive(Default)]
struct Flow {
    events: usize,
    first: Option<Instant>,
}

/// Events put into one notification at most.
const BATCH: usize = 64;

/// Sessions, turns under way, and the backend they share.
#[derive(Default)]
pub(super) struct Turns {
    /// The user's Cursor settings, for all sessions.
    library: Arc<Library>,
    sessions: Sessions,
    under_way: Mutex<HashMap<String, Way>>,
    parked: Parked,
    backends: Backends,
    keeping: Keeping,
    policy: OnceLock<Policy>,
    /// Whether the host was told which settings were not understood.
    told_misread: OnceLock<()>,
    /// Whether it was told that a request has fields nobody knows.
    told_unknown: OnceLock<()>,
}

/// What can be done to a turn under way.
struct Way {
    cancel: CancellationToken,
    injections: mpsc::Sender<UserMessage>,
}

/// Where a turn comes from.
pub(super) struct Origin<'a> {
    pub(super) peer: &'a Peer,
    pub(super) home: Option<&'a Path>,
    pub(super) cwd: PathBuf,
    pub(super) models: &'a ModelService,
    pub(super) tools: HostTools,
    /// What the host stated about native tools when it connected.
    pub(super) native_tools: HostPolicy,
    /// Settings that were not understood.
    pub(super) misread: &'a [Warning],
}

/// What a run is given that waits for the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Given {
    Time,
    Up,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A turn under way; forgotten and cancelled when its request is dropped.
struct UnderWay<'a> {
    turns: &'a Turns,
    id: String,
    cancel: CancellationToken,
    injections: Option<mpsc::Receiver<UserMessage>>,
}

impl UnderWay<'_> {
    /// The turn comes to nothing before its run; what it was told is not lost.
    async fn undone(&mut self, place: TurnPlace, stop: Stop) -> TurnStartResult {
        if let Some(injections) = &mut self.injections {
            place.give_up(injections).await;
        }
        unsent(stop)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.cancel.cancel();
        lock(&self.turns.under_way).remove(&self.id);
    }
}

impl Turns {
    /// No sessions yet.
    pub(super) fn new(library: Arc<Library>) -> Self {
        Self {
            library,
            ..Self::default()
        }
    }

    /// Takes a turn to its end, telling what happens on the way.
    pub(super) async fn start(
        &self,
        params: TurnStartParams,
        origin: Origin<'_>,
    ) -> Result<TurnStartResult, ErrorObjectOwned> {
        // The turn's name and session stand on everything that is told while it lasts.
        let span = tracing::debug_span!(
            "turn",
            turn = params.turn_id,
            session = prefix(&params.session_id)
        );
        self.told(params, origin).instrument(span).await
    }

    /// Takes a turn and tells the log of it.
    async fn told(
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
        let mut flow = Flow::default();
        let result = self.take(params, origin, &mut flow).await;
        let ms = started.elapsed().as_millis() as u64;
        match &result {
            Ok(result) => tracing::debug!(
                stop = ?result.stop_reason,
                ms,
                events = flow.events,
                first_ms = flow.first.map(|at| (at - started).as_millis() as u64),
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

    async fn take(
        &self,
        params: TurnStartParams,
        origin: Origin<'_>,
        flow: &mut Flow,
    ) -> Result<TurnStartResult, ErrorObjectOwned> {
        let asked = Instant::now();
        self.tell_unknown(&params);
        self.tell_misread(&origin).await;
        let (key, backend) = match self.backend(params.api_key.as_deref(), origin.home) {
            Ok(backend) => backend,
            // Not a mistake in the request: the turn is answered, with what to do.
            Err(problem) => return Ok(unsent(Stop::Failed(problem))),
        };
        let mut turn = self.begin(&params.turn_id)?;
        // Before anything is waited for: turns of a session are taken in the order they came.
        let session = self.session(&params, origin.home);
        let place = tokio::select! {
            place = session.place() => place,
            () = turn.cancel.cancelled() => return Ok(unsent(Stop::Aborted)),
        };
        let workspace = params.workspace.clone().map_or(origin.cwd, PathBuf::from);
        let (policy, library) = match params.kind {
            TurnKind::Main => (self.policy().clone(), Arc::clone(&self.library)),
            // It borrows the model and nothing else.
            TurnKind::Side => (self.policy().clone().words_only(), Arc::default()),
        };
        if let (TurnKind::Main, Some(is_trusted)) = (params.kind, params.project_trusted) {
            library.set_host_trust(&workspace, is_trusted);
        }
        look_ahead(&library, &policy, &workspace);
        let controls = Controls::read(params.kept.as_ref().unwrap_or(&Kept::default()));
        let mode = match mode(&params, &controls) {
            Ok(mode) => mode,
            Err(unknown) => {
                return Ok(turn.undone(place, Stop::Failed(unknown.to_string())).await);
            }
        };
        let model = params.model.clone();
        let mut wishes = controls.wishes;
        wishes.run = model.fast.map(Speed::from_switch).or(wishes.run);
        let key_given = params.api_key.as_deref();
        let resolved = tokio::select! {
            resolved = origin.models.resolve(model, &wishes, &backend, key_given) => resolved,
            () = turn.cancel.cancelled() => return Ok(turn.undone(place, Stop::Aborted).await),
        };
        let ResolvedModel {
            model,
            limits,
            model_id,
        } = match resolved {
            Ok(resolved) => resolved,
            Err(problem) => return Ok(turn.undone(place, Stop::Failed(problem)).await),
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
                drop(calls); // nobody calls
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
        let telling = async {
            let mut batch = Vec::new();
            while inbox.recv_many(&mut batch, BATCH).await > 0 {
                flow.first.get_or_insert_with(Instant::now);
                flow.events += batch.len();
                tell(origin.peer, &turn.id, &mut batch).await;
            }
        };
        let calling = async {
            // All in this task: the host hears of calls in the order they were made.
            let mut asked = FuturesUnordered::new();
            loop {
                tokio::select! {
                    call = called.recv() => match call {
                        Some(call) => asked.push(ask(origin.peer.clone(), turn.id.clone(), call)),
                        None => break,
                    },
                    Some(()) = asked.next() => {}
                }
            }
            // The turn is over: nobody waits for what is still asked.
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
        let taking = async { tokio::join!(place.turn(request), telling, calling) };
        let (mut result, (), ()) = tokio::select! {
            taken = taking => taken,
            () = permitting => return Ok(unsent(Stop::Aborted)),
        };
        if let (Stop::Finished, Some(id), Some(window)) = (&result.stop, model_id, result.window) {
            origin.models.learn(&id, window);
        }
        if result.stop == Stop::ToolUse && self.park(&turn, params.session_id).await == Given::Up {
            session.let_go().await;
            result.stop = Stop::Aborted;
        }
        self.keeping.tidy();
        Ok(ended(result.stop, result.tokens, params.model.cost))
    }

    /// Once: another extension's fields come with every turn.
    fn tell_unknown(&self, params: &TurnStartParams) {
        if !params.unknown.is_empty() && self.told_unknown.set(()).is_ok() {
            let names: Vec<&str> = params.unknown.keys().map(String::as_str).collect();
            let names: String = names.join(", ").chars().take(100).collect();
            tracing::warn!("turn/start has fields that are not ours and are not read: {names}");
        }
    }

    /// Once: a person who set them looks at the host, not at our stderr.
    async fn tell_misread(&self, origin: &Origin<'_>) {
        if self.told_misread.set(()).is_ok() {
            for warning in origin.misread {
                log(origin.peer, LogLevel::Warning, &warning.to_string()).await;
            }
        }
    }

    fn begin(&self, id: &str) -> Result<UnderWay<'_>, ErrorObjectOwned> {
        let cancel = CancellationToken::new();
        let (injections, inbox) = mpsc::channel(16);
        let mut under_way = lock(&self.under_way);
        if under_way.contains_key(id) {
            let problem = format!("turnId: turn {id:?} is under way already");
            return Err(ErrorObjectOwned::owned(INVALID_PARAMS, problem, None::<()>));
        }
        let way = Way {
            cancel: cancel.clone(),
            injections,
        };
        under_way.insert(id.to_owned(), way);
        Ok(UnderWay {
            turns: self,
            id: id.to_owned(),
            cancel,
            injections: Some(inbox),
        })
    }

    /// The session of a turn. One beside the session is a session of its own, kept nowhere.
    fn session(&self, params: &TurnStartParams, home: Option<&Path>) -> Session {
        if params.kind == TurnKind::Side {
            return Session::start(None, self.library.leash().clone());
        }
        self.enter(&params.session_id, home)
    }

    /// The session of that name.
    fn enter(&self, name: &str, home: Option<&Path>) -> Session {
        let env = |name: &str| std::env::var(name).ok();
        let store = self.keeping.store(&env, home);
        let waiting = self.policy().most_parked;
        self.sessions.enter(name, waiting, |last| {
            let store = store.map(|store| (store, name.to_owned()));
            Session::start_after(last, store, self.library.leash().clone())
        })
    }

    /// The user's Cursor settings.
    pub(super) fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// What the settings say, read once.
    pub(super) fn policy(&self) -> &Policy {
        self.policy.get_or_init(|| {
            let env = |name: &str| std::env::var(name).ok();
            Policy::from_env(&env).0
        })
    }

    /// Remembers that a run waits for the host, unless the host has given it up; of too many,
    /// the first goes.
    async fn park(&self, turn: &UnderWay<'_>, session: String) -> Given {
        let longest = {
            // Whoever cancels finds the turn in one place or in the other.
            let mut under_way = lock(&self.under_way);
            if turn.cancel.is_cancelled() {
                return Given::Up;
            }
            under_way.remove(&turn.id);
            let most = self.policy().most_parked;
            self.parked.add(turn.id.clone(), session, most)
        };
        if let Some(session) = longest.and_then(|session| self.find(&session)) {
            session.let_go().await;
        }
        Given::Time
    }

    /// A session there is.
    pub(super) fn find(&self, session: &str) -> Option<Session> {
        self.sessions.find(session)
    }

    async fn release(&self, session: &str) {
        if let Some(session) = self.find(session) {
            session.release().await;
        }
    }

    /// Ends a turn, or the run a turn left waiting for the host.
    pub(super) async fn cancel(&self, params: &TurnCancelParams) -> TurnCancelResult {
        let found = {
            let under_way = lock(&self.under_way);
            let way = under_way.get(&params.turn_id);
            way.map(|way| way.cancel.cancel()).is_some()
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

    /// Gives words to a turn under way.
    pub(super) async fn inject(
        &self,
        params: TurnInjectParams,
    ) -> Result<TurnInjectResult, ErrorObjectOwned> {
        let pictures = picture::decode(params.images.iter().map(|image| image.data.as_str()));
        let pictures = pictures.map_err(|error| {
            ErrorObjectOwned::owned(INVALID_PARAMS, format!("images: {error}"), None::<()>)
        })?;
        let message = words(params.text, pictures);
        let way = lock(&self.under_way)
            .get(&params.turn_id)
            .map(|way| way.injections.clone());
        let taken = match way {
            Some(injections) => injections.send(message).await.is_ok(),
            None => false,
        };
        Ok(TurnInjectResult { taken })
    }

    /// The recorded result behind a card; a card nobody knows is a mistake.
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

    /// The next turn of a session tells its history anew.
    pub(super) async fn invalidate(&self, params: &SessionParams, home: Option<&Path>) {
        self.parked.forget(&params.session_id);
        tracing::debug!(session = prefix(&params.session_id), "session.invalidate");
        // In hand from now on, so that the next turn comes behind this.
        self.enter(&params.session_id, home).invalidate().await;
    }

    /// Lets go of a session; what is kept of it stays.
    pub(super) fn close(&self, params: &SessionParams) {
        self.parked.forget(&params.session_id);
        tracing::debug!(session = prefix(&params.session_id), "session.close");
        self.sessions.remove(&params.session_id);
    }

    /// The backend for a key, made once.
    pub(super) fn backend(
        &self,
        key: Option<&str>,
        home: Option<&Path>,
    ) -> Result<(ApiKey, Backend), String> {
        let env = |name: &str| std::env::var(name).ok();
        let found = self.backends.get(key, &env, home);
        found.map_err(|error| error.to_string())
    }

    /// What is known of the backend: the one in use, else the one the environment gives.
    pub(super) fn inspect(&self, home: Option<&Path>) -> Result<Backend, String> {
        if let Some(backend) = self.backends.in_use() {
            return Ok(backend);
        }
        let env = |name: &str| std::env::var(name).ok();
        let found = Backend::from_env(&env, home).map(|(backend, _)| backend);
        found.map_err(|error| error.to_string())
    }
}

/// Has the workspace's Cursor settings read while others are asked for the model.
fn look_ahead(library: &Arc<Library>, policy: &Policy, workspace: &Path) {
    let library = Arc::clone(library);
    let (choice, workspace) = (policy.cursor.clone(), workspace.to_owned());
    tokio::spawn(async move { drop(library.open(&choice, &workspace).await) });
}

/// The mode of a turn: what it says, else what the person chose. A turn beside the session,
/// or of a host that keeps nothing for us, leaves it to Cursor.
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
