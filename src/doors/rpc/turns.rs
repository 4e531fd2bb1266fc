//! `turn/*` and `session/*`: from the host's words to the turn room and back.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jsonrpsee::types::ErrorObjectOwned;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::error::INVALID_PARAMS;
use super::peer::Peer;
use super::protocol::*;
use crate::account::{ApiKey, KeyError};
use crate::conversation::transcript::{Tool, Transcript};
use crate::diag::settings::Warning;
use crate::run::{Backend, Mode, Model};
use crate::turn::usage::{Basis, Limits, Tokens};
use crate::turn::{Session, Stop, TurnEvent, TurnRequest};

/// Limits of a model the host says nothing about.
const DEFAULT_WINDOW: u32 = 128_000;
const DEFAULT_OUTPUT: u32 = 16_384;
/// A host has more ways to be given a key than a command line has.
const NO_KEY: &str = "no Cursor API key: set CURSOR_API_KEY, store one with /login, or start with --api-key (keys are made in Cursor's dashboard under Integrations)";
/// Events put into one notification at most.
const BATCH: usize = 64;

/// Sessions, turns under way, and the backend they share.
#[derive(Default)]
pub(super) struct Turns {
    sessions: Mutex<HashMap<String, Session>>,
    under_way: Mutex<HashMap<String, CancellationToken>>,
    backend: Mutex<Option<(ApiKey, Backend)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A turn under way; forgotten and cancelled when its request is dropped.
struct UnderWay<'a> {
    turns: &'a Turns,
    id: String,
    cancel: CancellationToken,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.cancel.cancel();
        lock(&self.turns.under_way).remove(&self.id);
    }
}

impl Turns {
    /// Takes a turn to its end, telling what happens on the way.
    pub(super) async fn start(
        &self,
        params: TurnStartParams,
        peer: &Peer,
        home: Option<&Path>,
        cwd: PathBuf,
    ) -> Result<TurnStartResult, ErrorObjectOwned> {
        let backend = match self.backend(params.api_key.as_deref(), home) {
            Ok(backend) => backend,
            // Not a mistake in the request: the turn is answered, with what to do.
            Err(problem) => return Ok(ended(Stop::Failed(problem), Tokens::default())),
        };
        let turn = self.begin(&params.turn_id)?;
        let session = match params.kind {
            TurnKind::Main => lock(&self.sessions)
                .entry(params.session_id)
                .or_insert_with(Session::start)
                .clone(),
            // Nobody closes what stands beside a session: it ends with its turn.
            TurnKind::Side => Session::start(),
        };
        let (events, mut inbox) = mpsc::channel(256);
        let request = TurnRequest {
            backend,
            workspace: params.workspace.map_or(cwd, PathBuf::from),
            transcript: Transcript::read(
                params.system_prompt,
                params
                    .tools
                    .map(|tools| tools.into_iter().map(tool).collect()),
                params.messages,
            ),
            model: Model {
                id: params.model.id,
                parameters: params.model.parameters.into_iter().collect(),
            },
            limits: Limits {
                window: params.model.context_window.unwrap_or(DEFAULT_WINDOW).into(),
                max_output: params.model.max_tokens.unwrap_or(DEFAULT_OUTPUT).into(),
            },
            mode: params.mode.map(|mode| match mode {
                TurnMode::Agent => Mode::Agent,
                TurnMode::Plan => Mode::Plan,
            }),
            cancel: turn.cancel.clone(),
            events,
        };
        let telling = async {
            let mut batch = Vec::new();
            while inbox.recv_many(&mut batch, BATCH).await > 0 {
                let events = batch.drain(..).map(host_event).collect();
                let params = TurnEventParams {
                    turn_id: turn.id.clone(),
                    events,
                };
                peer.notify("turn/event", params).await;
            }
        };
        // The events end with the turn, so the answer comes after the last of them.
        let (result, ()) = tokio::join!(session.turn(request), telling);
        Ok(ended(result.stop, result.tokens))
    }

    fn begin(&self, id: &str) -> Result<UnderWay<'_>, ErrorObjectOwned> {
        let cancel = CancellationToken::new();
        let mut under_way = lock(&self.under_way);
        if under_way.contains_key(id) {
            let problem = format!("turnId: turn {id:?} is under way already");
            return Err(ErrorObjectOwned::owned(INVALID_PARAMS, problem, None::<()>));
        }
        under_way.insert(id.to_owned(), cancel.clone());
        Ok(UnderWay {
            turns: self,
            id: id.to_owned(),
            cancel,
        })
    }

    /// Ends a turn.
    pub(super) fn cancel(&self, params: &TurnCancelParams) -> TurnCancelResult {
        let found = lock(&self.under_way).get(&params.turn_id).cloned();
        if let Some(cancel) = &found {
            cancel.cancel();
        }
        TurnCancelResult {
            found: found.is_some(),
        }
    }

    /// The next turn of a session tells its history anew.
    pub(super) async fn invalidate(&self, params: &SessionParams) {
        let session = lock(&self.sessions).get(&params.session_id).cloned();
        if let Some(session) = session {
            session.invalidate().await;
        }
    }

    /// Forgets a session.
    pub(super) fn close(&self, params: &SessionParams) {
        lock(&self.sessions).remove(&params.session_id);
    }

    /// The backend for a key, made once. Another key is another account: sessions start anew.
    fn backend(&self, key: Option<&str>, home: Option<&Path>) -> Result<Backend, String> {
        let env = |name: &str| std::env::var(name).ok();
        let key = key
            .map(str::to_owned)
            .or_else(|| env("CURSOR_API_KEY"))
            .unwrap_or_default();
        let parsed = ApiKey::parse(&key).map_err(|error| match error {
            KeyError::Missing => NO_KEY.to_owned(),
            other => other.to_string(),
        })?;
        let mut cached = lock(&self.backend);
        if let Some((for_key, backend)) = &*cached
            && for_key.same(&parsed)
        {
            return Ok(backend.clone());
        }
        let with_key = |name: &str| match name {
            "CURSOR_API_KEY" => Some(key.clone()),
            name => env(name),
        };
        let (backend, warnings) =
            Backend::from_env(&with_key, home).map_err(|error| error.to_string())?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        if cached.is_some() {
            lock(&self.sessions).clear();
        }
        *cached = Some((parsed, backend.clone()));
        Ok(backend)
    }

    /// What is known of the backend: the one in use, else the one the environment gives.
    pub(super) fn inspect(&self, home: Option<&Path>) -> (Result<Backend, String>, Vec<Warning>) {
        if let Some((_, backend)) = &*lock(&self.backend) {
            return (Ok(backend.clone()), Vec::new());
        }
        let env = |name: &str| std::env::var(name).ok();
        match Backend::from_env(&env, home) {
            Ok((backend, warnings)) => (Ok(backend), warnings),
            Err(error) => (Err(error.to_string()), Vec::new()),
        }
    }
}

fn host_event(event: TurnEvent) -> HostEvent {
    match event {
        TurnEvent::Text(text) => HostEvent::Text { text },
        TurnEvent::Thinking(text) => HostEvent::Thinking { text },
        TurnEvent::ThinkingDone => HostEvent::ThinkingDone,
        TurnEvent::Retrying(reason) => HostEvent::Retrying { reason },
    }
}

fn tool(tool: HostTool) -> Tool {
    Tool {
        name: tool.name,
        description: tool.description,
        parameters: tool.parameters,
    }
}

fn ended(stop: Stop, tokens: Tokens) -> TurnStartResult {
    let (stop_reason, error_message) = match stop {
        Stop::Finished => (StopReason::Stop, None),
        Stop::Aborted => (StopReason::Aborted, None),
        Stop::Failed(text) => (StopReason::Error, Some(text)),
    };
    TurnStartResult {
        stop_reason,
        error_message,
        usage: TurnUsage {
            input: tokens.input,
            output: tokens.output,
            cache_read: tokens.cache_read,
            cache_write: tokens.cache_write,
            total_tokens: tokens.total,
            estimated: tokens.basis == Basis::Estimated,
        },
    }
}
