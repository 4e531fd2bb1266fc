//! HTTP/1.1 on a connection: hyper does the talking, faults drop the connection.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use super::backend::Backend;
use super::exchange::{self, Peer, Piece, Reply, RequestHead, Version};

/// Serves one connection until either side closes it.
pub(super) async fn serve<T>(io: T, peer: Peer, backend: Arc<Backend>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (cut, mut cuts) = mpsc::unbounded_channel();
    let service =
        service_fn(move |request| answer(request, peer, Arc::clone(&backend), cut.clone()));
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), service);
    tokio::select! {
        // First, so that what was said before a cut is flushed when the cut is seen.
        biased;
        ended = connection => if let Err(error) = ended {
            tracing::debug!(%error, "http/1.1 connection ended");
        },
        _ = cuts.recv() => {}
    }
}

/// The order to drop the connection.
struct Cut;

async fn answer(
    request: Request<Incoming>,
    peer: Peer,
    backend: Arc<Backend>,
    cut: mpsc::UnboundedSender<Cut>,
) -> Result<Response<Outgoing>, Infallible> {
    let head = RequestHead::new(&request, Version::Http1, peer);
    let (exchange, mut far) = exchange::open(head);
    backend.tasks().spawn(read(request.into_body(), far.body));
    backend.tasks().spawn(Arc::clone(&backend).serve(exchange));

    let mut response = Response::new(Outgoing {
        replies: None,
        cut: cut.clone(),
    });
    match far.reply.recv().await {
        Some(Reply::Head(head)) => {
            *response.status_mut() = http::StatusCode::from_u16(head.status)
                .unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
            *response.headers_mut() = head.headers;
            if head.body == exchange::BodyPlan::Follows {
                response.body_mut().replies = Some(far.reply);
            }
            Ok(response)
        }
        Some(_) => {
            let _ = cut.send(Cut);
            std::future::pending().await
        }
        None => {
            *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
            Ok(response)
        }
    }
}

async fn read(mut body: Incoming, pieces: mpsc::Sender<Piece>) {
    loop {
        let piece = match body.frame().await {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => Piece::Data(data),
                Err(_) => continue, // trailers: nothing we read is in them
            },
            Some(Err(_)) => Piece::Broken,
            None => Piece::End,
        };
        let last = !matches!(piece, Piece::Data(_));
        if pieces.send(piece).await.is_err() || last {
            return;
        }
    }
}

/// A reply's body as hyper asks for it.
struct Outgoing {
    replies: Option<mpsc::Receiver<Reply>>,
    cut: mpsc::UnboundedSender<Cut>,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Some(replies) = &mut self.replies else {
            return Poll::Ready(None);
        };
        match std::task::ready!(replies.poll_recv(cx)) {
            Some(Reply::Data(data)) => Poll::Ready(Some(Ok(Frame::data(data)))),
            Some(Reply::Finish) => {
                self.replies = None;
                Poll::Ready(None)
            }
            Some(Reply::Reset(_) | Reply::GoAway(_) | Reply::Cut) => {
                // Not an error: hyper must flush what came before, then the connection goes.
                let _ = self.cut.send(Cut);
                Poll::Pending
            }
            Some(Reply::Head(_)) | None => {
                Poll::Ready(Some(Err(io::Error::other("reply broke off"))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.replies.is_none()
    }
}
