//! `POST /v1/responses`: OpenAI's responses.

mod items;
mod request;
mod response;
mod store;
mod tool_names;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;

use self::request::ResponsesRequest;
use self::response::ResponseEncoder;
pub(super) use self::store::ResponseStore;
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
    let asked =
        ResponsesRequest::parse(&body, &head.headers, &state.images, &state.responses).await?;
    drop((body, memory)); // a turn may take an hour
    let turn = turn_driver::start(&state, asked.turn).await?;
    let encoder = ResponseEncoder::new(asked.shape, &turn, Arc::clone(&state.responses));
    if asked.stream {
        event_stream::stream(turn, encoder).await
    } else {
        encoder.whole(turn).await
    }
}
