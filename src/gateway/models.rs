//! `GET /v1/models` and `/v1/models/{id}`: the models a client can request.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::Json as JsonBody;
use axum::extract::{Path, State};
use serde_json::{Value as Json, json};

use super::api_error::ApiError;
use super::router::GatewayState;
use crate::model_resolver::catalog_client;
use agent::catalog::{FallbackReason, HostModel, HostModels, LevelRange, ModelList};
use agent::run::AssembleError;
use cursor_client::account::KeyError;

/// OpenAI's reasoning efforts end at `xhigh`.
pub(super) const PROFILE: LevelRange = LevelRange::UpToXhigh;

/// Cursor does not say when a model was released.
const EPOCH: &str = "1970-01-01T00:00:00Z";

/// Returns the list. If Cursor's own is not available, returns the bundled one.
pub(super) async fn list(State(state): State<Arc<GatewayState>>) -> JsonBody<Json> {
    let (rows, created) = rows(&state).await;
    let data: Vec<Json> = rows.iter().map(|row| object(row, created)).collect();
    let id = |row: Option<&HostModel>| row.map(|row| row.id.clone());
    // Clients of Anthropic's API read the last three.
    JsonBody(json!({"object": "list", "data": data, "has_more": false,
                    "first_id": id(rows.first()), "last_id": id(rows.last())}))
}

/// Returns one model, by its id or by a name that stands for it.
pub(super) async fn find(
    State(state): State<Arc<GatewayState>>,
    Path(name): Path<String>,
) -> Result<JsonBody<Json>, ApiError> {
    let (rows, created) = rows(&state).await;
    let id = state.config.gateway.models.resolve(&name, &rows);
    let found = rows.find(&id)?;
    Ok(JsonBody(object(found.model, created)))
}

/// Returns the models, and when Cursor's list was fetched.
async fn rows(state: &GatewayState) -> (HostModels, u64) {
    let options = &state.config.client;
    let catalog = &state.models.catalog;
    let mut listing = match state.backends.get(None, options) {
        Ok((key, backend)) => catalog.current(&catalog_client(&backend, key)).await,
        Err(AssembleError::Key(error @ KeyError::Missing)) => {
            catalog.without_key(&options.endpoints, &error.to_string())
        }
        Err(error) => ModelList::bundled(FallbackReason::DiscoveryFailed, &error.to_string()),
    };
    let rows = state.models.host_models(&mut listing, PROFILE);
    for warning in &listing.warnings {
        tracing::info!("{warning}");
    }
    let created = listing
        .fetched_at
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok())
        .map_or(0, |since| since.as_secs());
    (rows, created)
}

fn object(row: &HostModel, created: u64) -> Json {
    json!({"id": row.id, "object": "model", "created": created, "owned_by": "cursor",
           "context_window": row.context_window, "type": "model", "display_name": row.name,
           "lifecycle": "active", "deprecated_at": null, "retires_at": null,
           "max_input_tokens": row.context_window, "max_tokens": null,
           "capabilities": null, "line": null, "created_at": EPOCH})
}
