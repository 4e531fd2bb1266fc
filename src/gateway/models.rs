//! `GET /v1/models`: the models a client can request.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::Json as JsonBody;
use axum::extract::State;
use serde_json::{Value as Json, json};

use super::router::GatewayState;
use crate::model_resolver::catalog_client;
use agent::catalog::{FallbackReason, LevelRange, ModelList};
use agent::run::AssembleError;
use cursor_client::account::KeyError;

/// OpenAI's reasoning efforts end at `xhigh`.
pub(super) const PROFILE: LevelRange = LevelRange::UpToXhigh;

/// Returns the list. If Cursor's own is not available, returns the bundled one.
pub(super) async fn list(State(state): State<Arc<GatewayState>>) -> JsonBody<Json> {
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
    let data: Vec<Json> = rows
        .iter()
        .map(|row| {
            json!({"id": row.id, "object": "model", "created": created, "owned_by": "cursor",
                   "context_window": row.context_window})
        })
        .collect();
    JsonBody(json!({"object": "list", "data": data}))
}
