//! Whether the client of a request is still there.
//!
//! rmcp keeps a session for a client that may come back and tells nobody when a connection
//! breaks. On loopback a client that hung up is gone, so its call must not wait for an hour.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Fires when the client of a request has gone, or has all of its answer.
#[derive(Debug, Clone)]
pub(super) struct Left(pub(super) CancellationToken);

/// An answer on its way. `Held` is whatever must last as long as it does.
pub(super) struct Answer<Held> {
    body: BoxBody<Bytes, Infallible>,
    _left: DropGuard,
    _held: Held,
}

impl<Held> Answer<Held> {
    /// When this is dropped, `left` fires.
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
