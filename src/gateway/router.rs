//! Routes, and what their handlers share.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Json as JsonBody;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Uri};
use secrecy::SecretString;
use serde_json::{Value as Json, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::api_error::{ApiError, ErrorForm};
use super::remote_images::ImageFetcher;
use super::responses::ResponseStore;
use super::status::{self, StatusPage};
use super::{chat, messages, metrics, models, responses};
use crate::backends::Backends;
use crate::config::Config;
use crate::model_resolver::ModelResolver;
use agent::run::Backend;
use agent::session_manager::SessionManager;
use agent::turn::Policy;
use agent_tools::local_http::BodyReader;
use agent_tools::local_http::access::{HttpError, RejectionResponse as _, check_token};
use cursor_client::account::Credential;

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
    pub(super) images: ImageFetcher,
    /// Responses that may be continued.
    pub(super) responses: Arc<ResponseStore>,
    /// Active turns.
    pub(super) turns: TaskTracker,
    /// Permits for them.
    pub(super) turn_permits: Arc<Semaphore>,
    pub(super) status: StatusPage,
    pub(super) shutdown: CancellationToken,
}

impl GatewayState {
    /// Returns the account and endpoints.
    pub(super) fn backend(&self) -> Result<(Credential, Backend), ApiError> {
        Ok(self.backends.get(None, &self.config.client)?)
    }
}

/// The header in which clients of Anthropic's API send the token.
const API_KEY: &str = "x-api-key";

/// Returns the routes. Nothing of a request but its head is read before its token is checked.
pub(super) fn router(state: Arc<GatewayState>) -> Router {
    let only_get = || async { ApiError::method_not_allowed("GET") };
    let only_post = |uri: Uri| async move {
        ApiError::method_not_allowed("POST").in_form(ErrorForm::of_path(uri.path()))
    };
    Router::new()
        .route(
            "/v1/chat/completions",
            post(chat::create).fallback(only_post),
        )
        .route("/v1/responses", post(responses::create).fallback(only_post))
        .route("/v1/messages", post(messages::create).fallback(only_post))
        .route(
            "/v1/messages/count_tokens",
            post(messages::count_tokens).fallback(only_post),
        )
        .route("/v1/models", get(models::list).fallback(only_get))
        .route("/v1/models/{*id}", get(models::find).fallback(only_get))
        .route("/health", get(health).fallback(only_get))
        .route("/metrics", get(metrics::show).fallback(only_get))
        .route(status::PAGE, get(status::page).fallback(only_get))
        .route(status::EVENTS, get(status::events).fallback(only_get))
        .route(status::SIGN_IN, post(status::sign_in).fallback(only_post))
        .route(status::SIGN_OUT, post(status::sign_out).fallback(only_post))
        .fallback(|uri: Uri| async move { ApiError::unknown_path(uri.path()) })
        .layer(from_fn_with_state(Arc::clone(&state), require_token))
        .layer(from_fn(metrics::count_request))
        .with_state(state)
}

async fn health() -> JsonBody<Json> {
    JsonBody(json!({"status": "ok", "version": env!("CARGO_PKG_VERSION")}))
}

async fn require_token(
    State(state): State<Arc<GatewayState>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if state.status.is_allowed(&request) {
        return Ok(next.run(request).await);
    }
    if let Err(error) = check_request_token(request.headers(), &state.token) {
        if let Some(response) = status::admit(&state.status, &request) {
            return Ok(response);
        }
        return Err(ApiError::reject(error, request.uri()));
    }
    Ok(next.run(request).await)
}

/// Checks the token of a request, in either header.
pub(super) fn check_request_token(
    headers: &HeaderMap,
    token: &SecretString,
) -> Result<(), HttpError> {
    check_token(headers, token).or_else(|error| check_api_key(headers, token).ok_or(error))
}

/// Checks the token in `x-api-key`, as [`check_token`] does.
fn check_api_key(headers: &HeaderMap, token: &SecretString) -> Option<()> {
    let mut keys = headers.get_all(API_KEY).iter();
    let (Some(key), None) = (keys.next(), keys.next()) else {
        return None;
    };
    let bearer = [b"Bearer ", key.as_bytes()].concat();
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_bytes(&bearer).ok()?);
    check_token(&headers, token).ok()
}
