//! `POST /v1/chat/completions`: OpenAI's chat completions.

mod messages;
mod request;
mod response;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;

use self::request::ChatRequest;
use self::response::ChatEncoder;
use super::api_error::ApiError;
use super::router::GatewayState;
use super::{event_stream, turn_driver};

/// Answers a request. The turn is cancelled if the client disconnects.
pub(super) async fn create(
    State(state): State<Arc<GatewayState>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let (body, memory) = state.bodies.read(&head.headers, body).await?;
    let chat = ChatRequest::parse(&body, &head.headers, &state.images).await?;
    drop((body, memory)); // a turn may take an hour
    let encoder = ChatEncoder::new(&chat);
    let turn = turn_driver::start(&state, chat.turn).await?;
    if chat.stream {
        event_stream::stream(turn, encoder).await
    } else {
        encoder.whole(turn).await
    }
}
