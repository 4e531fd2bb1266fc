//! Routes, and what their handlers share.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use http::Uri;
use secrecy::SecretString;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::api_error::ApiError;
use super::{chat_completions, metrics, models};
use crate::backends::Backends;
use crate::config::Config;
use crate::model_resolver::ModelResolver;
use agent::run::Backend;
use agent::session_manager::SessionManager;
use agent::turn::Policy;
use agent_tools::local_http::BodyReader;
use agent_tools::local_http::access::check_token;
use cursor_client::account::ApiKey;

/// How many turns may be active. Turns that wait for their client do not count.
pub(super) const MAX_TURNS: usize = 256;

/// Everything that requests share.
pub(super) struct GatewayState {
    pub(super) token: SecretString,
    pub(super) bodies: BodyReader,
    pub(super) config: Arc<Config>,
    pub(super) workspace: PathBuf,
    pub(super) backends: Backends,
    pub(super) models: ModelResolver,
    pub(super) policy: Policy,
    pub(super) sessions: Arc<SessionManager>,
    /// Active turns.
    pub(super) turns: TaskTracker,
    /// Permits for them.
    pub(super) turn_permits: Arc<Semaphore>,
    pub(super) shutdown: CancellationToken,
}

impl GatewayState {
    /// Returns the account and endpoints.
    pub(super) fn backend(&self) -> Result<(ApiKey, Backend), ApiError> {
        Ok(self.backends.get(None, &self.config.client)?)
    }
}

/// Returns the routes. Nothing of a request but its head is read before its token is checked.
pub(super) fn router(state: Arc<GatewayState>) -> Router {
    let only_get = || async { ApiError::method_not_allowed("GET") };
    let only_post = || async { ApiError::method_not_allowed("POST") };
    Router::new()
        .route(
            "/v1/chat/completions",
            post(chat_completions::create).fallback(only_post),
        )
        .route("/v1/models", get(models::list).fallback(only_get))
        .route("/metrics", get(metrics::show).fallback(only_get))
        .fallback(|uri: Uri| async move { ApiError::unknown_path(uri.path()) })
        .layer(from_fn_with_state(Arc::clone(&state), require_token))
        .with_state(state)
}

async fn require_token(
    State(state): State<Arc<GatewayState>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    check_token(request.headers(), &state.token)?;
    Ok(next.run(request).await)
}
