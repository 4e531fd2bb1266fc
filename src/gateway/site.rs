//! Admission and routing.

use std::path::PathBuf;
use std::sync::Arc;

use http::{HeaderMap, Method, Request};
use hyper::body::Incoming;
use secrecy::SecretString;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::desk::Desk;
use super::fault::{self, Fault};
use super::{chat, metrics, models};
use crate::backends::Backends;
use crate::config::Config;
use crate::model_resolver::ModelResolver;
use agent::run::Backend;
use agent::turn::Policy;
use agent_tools::loopback::admission::{self, Refusal};
use agent_tools::loopback::{Answered, Loopback, Site};
use cursor_client::account::ApiKey;

/// How many turns may be active. Turns that wait for their client do not count.
pub(super) const MOST_TURNS: usize = 256;

/// Everything that requests share.
pub(super) struct House {
    pub(super) place: Arc<Loopback>,
    pub(super) secret: SecretString,
    pub(super) config: Arc<Config>,
    pub(super) workspace: PathBuf,
    pub(super) backends: Backends,
    pub(super) catalogue: ModelResolver,
    pub(super) policy: Policy,
    pub(super) desk: Desk,
    /// Active turns.
    pub(super) turns: TaskTracker,
    /// Permits for them.
    pub(super) places: Arc<Semaphore>,
    /// Cancelled at shutdown.
    pub(super) leaving: CancellationToken,
}

impl House {
    /// Returns the account and endpoints.
    pub(super) fn backend(&self) -> Result<(ApiKey, Backend), Fault> {
        Ok(self.backends.get(None, &self.config.client)?)
    }

    async fn route(
        self: Arc<Self>,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        body: Incoming,
    ) -> Result<Result<Answered, Fault>, Refusal> {
        Ok(match (method, path) {
            (&Method::POST, "/v1/chat/completions") => {
                let room = self.place.reserve(headers)?;
                let body = self.place.read(body).await?;
                match chat::read(headers, &body) {
                    Err(fault) => Err(fault),
                    Ok(asked) => {
                        drop((body, room)); // a turn may take an hour
                        let place = Arc::clone(&self.places).try_acquire_owned();
                        let place = place.map_err(|_| Refusal::Busy)?;
                        chat::answer(self, asked, place).await
                    }
                }
            }
            (&Method::GET, "/v1/models") => Ok(models::answer(&self).await),
            (&Method::GET, "/metrics") => Ok(metrics::answer(&self)),
            (_, "/v1/chat/completions") => Err(Fault::method("POST")),
            (_, "/v1/models" | "/metrics") => Err(Fault::method("GET")),
            _ => Err(Fault::nowhere(path)),
        })
    }
}

impl Site for House {
    /// Reads the body last, because a client without the token must not make us read anything.
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Answered, Refusal> {
        admission::local(request.uri(), request.headers(), self.place.port())?;
        admission::authorized(request.headers(), &self.secret)?;
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let answered = Box::pin(self.route(&head.method, &path, &head.headers, body)).await?;
        Ok(answered.unwrap_or_else(|fault| fault.answer()))
    }

    fn refused(&self, refusal: Refusal) -> Answered {
        fault::refused(refusal)
    }
}
