//! Detects that the client of a request has disconnected.
//!
//! rmcp keeps a session for a client that may reconnect, and does not report broken connections.
//! On loopback a client that disconnected is gone, so its call must not wait for an hour.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Fires when the client of a request has disconnected or received the whole response.
#[derive(Debug, Clone)]
pub(super) struct Left(pub(super) CancellationToken);

/// A response body. `Held` is released together with it.
pub(super) struct Answer<Held> {
    body: BoxBody<Bytes, Infallible>,
    _left: DropGuard,
    _held: Held,
}

impl<Held> Answer<Held> {
    /// Wraps a body so that `left` fires when it is dropped.
    pub(super) fn new(body: BoxBody<Bytes, Infallible>, left: Left, held: Held) -> Self {
        Self {
            body,
            _left: left.0.drop_guard(),
            _held: held,
        }
    }
}

impl<Held: Unpin> Body for Answer<Held> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
