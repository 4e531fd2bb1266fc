//! Serves HTTP/1.1 with hyper; faults drop the connection.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use super::backend::SimBackend;
use super::exchange::{self, BodyChunk, ClientConnection, RequestHead, ResponsePart};

/// Serves one connection until either side closes it.
pub(super) async fn serve<T>(io: T, client: ClientConnection, backend: Arc<SimBackend>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (drop_sender, mut drop_requests) = mpsc::unbounded_channel();
    let service = service_fn(move |request| {
        respond(request, client, Arc::clone(&backend), drop_sender.clone())
    });
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), service);
    tokio::select! {
        // The connection comes first, so that data sent before the drop request is flushed.
        biased;
        ended = connection => if let Err(error) = ended {
            tracing::debug!(%error, "http/1.1 connection ended");
        },
        _ = drop_requests.recv() => {}
    }
}

/// Asks the connection's task to drop the connection.
struct DropConnection;

async fn respond(
    request: Request<Incoming>,
    client: ClientConnection,
    backend: Arc<SimBackend>,
    drop_sender: mpsc::UnboundedSender<DropConnection>,
) -> Result<Response<ResponseBody>, Infallible> {
    let head = RequestHead::new(&request, Version::HTTP_11, client);
    let (incoming, mut connection) = exchange::open(head);
    backend
        .tasks()
        .spawn(read_body(request.into_body(), connection.body));
    backend.tasks().spawn(Arc::clone(&backend).serve(incoming));

    let mut response = Response::new(ResponseBody {
        parts: None,
        drop_sender: drop_sender.clone(),
    });
    match connection.response.recv().await {
        Some(ResponsePart::Head(head)) => {
            *response.status_mut() = http::StatusCode::from_u16(head.status)
                .unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
            *response.headers_mut() = head.headers;
            if head.has_body {
                response.body_mut().parts = Some(connection.response);
            }
            Ok(response)
        }
        Some(_) => {
            let _ = drop_sender.send(DropConnection);
            std::future::pending().await
        }
        None => {
            *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
            Ok(response)
        }
    }
}

async fn read_body(mut body: Incoming, chunks: mpsc::Sender<BodyChunk>) {
    loop {
        let chunk = match body.frame().await {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => BodyChunk::Data(data),
                Err(_) => continue, // trailers, which the simulator does not use
            },
            Some(Err(_)) => BodyChunk::Broken,
            None => BodyChunk::End,
        };
        let last = !matches!(chunk, BodyChunk::Data(_));
        if chunks.send(chunk).await.is_err() || last {
            return;
        }
    }
}

/// A response body that hyper polls.
struct ResponseBody {
    parts: Option<mpsc::Receiver<ResponsePart>>,
    drop_sender: mpsc::UnboundedSender<DropConnection>,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Some(parts) = &mut self.parts else {
            return Poll::Ready(None);
        };
        match std::task::ready!(parts.poll_recv(cx)) {
            Some(ResponsePart::Data(data)) => Poll::Ready(Some(Ok(Frame::data(data)))),
            Some(ResponsePart::Finish) => {
                self.parts = None;
                Poll::Ready(None)
            }
            Some(ResponsePart::Reset(_) | ResponsePart::GoAway(_) | ResponsePart::Cut) => {
                // Returns no error, because hyper must flush earlier data before the
                // connection is dropped.
                let _ = self.drop_sender.send(DropConnection);
                Poll::Pending
            }
            Some(ResponsePart::Head(_)) | None => {
                Poll::Ready(Some(Err(io::Error::other("response ended early"))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_none()
    }
}
