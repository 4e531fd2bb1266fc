//! `POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's messages.

mod request;
mod response;

use std::sync::Arc;

use axum::Json as JsonBody;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use self::request::MessagesRequest;
use self::response::MessageEncoder;
use super::api_error::{ApiError, ErrorForm};
use super::router::GatewayState;
use super::{event_stream, turn_driver};

/// Answers a request. The turn is cancelled if the client disconnects.
pub(super) async fn create(
    State(state): State<Arc<GatewayState>>,
    request: Request,
) -> Result<Response, ApiError> {
    let answering = async {
        let asked = read(&state, request).await?;
        let (model, shows_thinking) = (asked.turn.model.clone(), asked.shows_thinking);
        let turn = turn_driver::start(&state, asked.turn).await?;
        let encoder = MessageEncoder::new(model, shows_thinking, turn.estimated_input);
        if asked.stream {
            event_stream::stream(turn, encoder).await
        } else {
            encoder.whole(turn).await
        }
    };
    answering.await.map_err(in_form)
}

/// Estimates the tokens of a request; Cursor counts them only while it answers.
pub(super) async fn count_tokens(
    State(state): State<Arc<GatewayState>>,
    request: Request,
) -> Result<Response, ApiError> {
    let asked = read(&state, request).await.map_err(in_form)?;
    let count = turn_driver::estimate_input(&asked.turn.transcript);
    Ok(JsonBody(json!({"input_tokens": count})).into_response())
}

async fn read(state: &GatewayState, request: Request) -> Result<MessagesRequest, ApiError> {
    let (head, body) = request.into_parts();
    let (body, _memory) = state.bodies.read(&head.headers, body).await?;
    MessagesRequest::parse(&body, &head.headers, &state.images).await
}

fn in_form(error: ApiError) -> ApiError {
    error.in_form(ErrorForm::Anthropic)
}
