//! The built-in responder: a small assistant for when no scenario is played.

use super::conversation::Shared;
use super::request::RunRequest;
use super::session::{Session, Stop};

/// Answers one run.
pub(super) async fn respond(
    session: &mut Session,
    _request: &RunRequest,
    _conversation: Shared,
) -> Result<(), Stop> {
    session
        .send(&serde_json::json!({ "interactionUpdate": { "textDelta": { "text": "Hello." } } }))
        .await?;
    session
        .send(&serde_json::json!({ "interactionUpdate": { "turnEnded": {} } }))
        .await?;
    session.end().await
}
