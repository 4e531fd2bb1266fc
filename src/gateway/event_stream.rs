//! Sends a turn as server-sent events. Each API encodes the updates of a turn in its own events.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use http::header::CONTENT_TYPE;
use serde::Serialize;
use serde_json::Value as Json;

use super::answer::{TurnEnd, TurnUpdate, lost_turn};
use super::api_error::ApiError;
use super::turn_driver::StartedTurn;

/// How often a waiting client is sent something to keep the connection alive.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The events of one response.
pub(super) trait EventEncoder: Send + 'static {
    /// Returns the events before the first update.
    fn open(&mut self) -> Vec<Event>;
    /// Returns the events of an update that is not the end.
    fn update(&mut self, update: TurnUpdate) -> Vec<Event>;
    /// Returns the events that end the response.
    fn end(&mut self, end: &TurnEnd) -> Vec<Event>;
    /// Returns the events that end a response that failed.
    fn fail(&mut self, error: &ApiError) -> Vec<Event>;
    /// Returns what is sent to a waiting client.
    fn keep_alive(&self) -> Event {
        Event::default().comment("keep-alive")
    }
}

/// Returns an event without a name.
pub(super) fn data(json: &Json) -> Event {
    Event::default().data(json.to_string())
}

/// Returns an event without a name, written without a tree of values: an answer has thousands.
pub(super) fn serialized(data: &impl Serialize) -> Event {
    // Only values whose keys are not text have none.
    Event::default().data(serde_json::to_string(data).unwrap_or_default())
}

/// Returns an event that is named after its `type`.
pub(super) fn typed(json: &Json) -> Event {
    named(json["type"].as_str().unwrap_or_default(), json)
}

/// Returns an event with a name.
pub(super) fn named(name: &str, json: &Json) -> Event {
    Event::default().event(name).data(json.to_string())
}

/// Returns the response as a stream. Its status waits for the first update, but no longer than the
/// keep-alive interval.
pub(super) async fn stream<E: EventEncoder>(
    mut turn: StartedTurn,
    mut encoder: E,
) -> Result<Response, ApiError> {
    let waiting = tokio::time::timeout(KEEP_ALIVE, turn.updates.recv()).await;
    let first = match waiting.map(|update| update.unwrap_or_else(lost_turn)) {
        Ok(TurnUpdate::End(Err(error))) => return Err(error),
        Ok(update) => Some(update),
        Err(_) => None,
    };
    let keep_alive = KeepAlive::new()
        .interval(KEEP_ALIVE)
        .event(encoder.keep_alive());
    let opening = encoder.open();
    let headers = turn.headers();
    let state = UpdateStream {
        turn,
        encoder,
        first,
        is_over: false,
    };
    let rest = stream::unfold(state, |mut state| async move {
        let events = state.next().await?;
        Some((stream::iter(events), state))
    });
    let events = stream::iter(opening)
        .chain(rest.flatten())
        .map(Ok::<_, Infallible>);
    let kind = "text/event-stream; charset=utf-8";
    let sse = Sse::new(events).keep_alive(keep_alive);
    Ok((headers, [(CONTENT_TYPE, kind)], sse).into_response())
}

struct UpdateStream<E> {
    turn: StartedTurn,
    encoder: E,
    first: Option<TurnUpdate>,
    is_over: bool,
}

impl<E: EventEncoder> UpdateStream<E> {
    /// Returns the next events; `None` after the end.
    async fn next(&mut self) -> Option<Vec<Event>> {
        while !self.is_over {
            let update = match self.first.take() {
                Some(first) => first,
                None => self.turn.updates.recv().await.unwrap_or_else(lost_turn),
            };
            let events = match update {
                TurnUpdate::End(end) => {
                    self.is_over = true;
                    match end {
                        Ok(end) => self.encoder.end(&end),
                        Err(error) => {
                            tracing::debug!(code = error.code(), "gateway.broke_off");
                            self.encoder.fail(&error)
                        }
                    }
                }
                update => self.encoder.update(update),
            };
            if !events.is_empty() {
                return Some(events);
            }
        }
        None
    }
}
