//! HTTP/2 on a connection: streams become exchanges, replies become frames.
//!
//! Works on the bare `h2` crate because faults need its controls: reset and GOAWAY codes,
//! receive windows, and a connection that can be dropped in the middle of a sentence.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};

use super::backend::Backend;
use super::exchange::{self, BodyPlan, FarEnd, Peer, Piece, Reply, RequestHead, Version, Window};

/// Room for all streams together: one held stream must not starve the others.
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// After our end of stream the client has this long to end its own side.
const LINGER: Duration = Duration::from_secs(5);

/// What a stream asks of its connection.
#[derive(Debug)]
enum Order {
    /// Say when everything handed over so far is on the wire.
    Flush(oneshot::Sender<()>),
    /// Send GOAWAY with this code and close.
    GoAway(Reason),
    /// Drop the connection.
    Cut,
}

/// Serves one connection until either side closes it.
pub(super) async fn serve<T>(io: T, peer: Peer, backend: Arc<Backend>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = h2::server::Builder::new();
    builder.initial_connection_window_size(CONNECTION_WINDOW);
    if let Some(streams) = backend.max_streams() {
        builder.max_concurrent_streams(streams);
    }
    let mut connection: Connection<T, Bytes> = match builder.handshake(io).await {
        Ok(connection) => connection,
        Err(error) => {
            tracing::debug!(%error, "http/2 handshake failed");
            return;
        }
    };
    let (orders, mut incoming) = mpsc::unbounded_channel();
    let start = |request: Request<RecvStream>, respond: SendResponse<Bytes>| {
        start_stream(request, respond, peer, &backend, orders.clone());
    };
    loop {
        let order = tokio::select! {
            biased;
            accepted = connection.accept() => match accepted {
                Some(Ok((request, respond))) => {
                    start(request, respond);
                    continue;
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "http/2 connection ended");
                    return;
                }
                None => return,
            },
            order = incoming.recv() => order,
        };
        // One more poll puts everything the streams handed over on the wire.
        loop {
            match poll_fn(|cx| Poll::Ready(connection.poll_accept(cx))).await {
                Poll::Ready(Some(Ok((request, respond)))) => start(request, respond),
                Poll::Ready(_) => return,
                Poll::Pending => break,
            }
        }
        match order {
            Some(Order::Flush(done)) => {
                let _ = done.send(());
            }
            Some(Order::GoAway(reason)) => connection.abrupt_shutdown(reason),
            Some(Order::Cut) | None => return,
        }
    }
}

fn start_stream(
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    peer: Peer,
    backend: &Arc<Backend>,
    orders: mpsc::UnboundedSender<Order>,
) {
    let head = RequestHead::new(&request, Version::Http2, peer);
    let (exchange, far) = exchange::open(head);
    let FarEnd {
        body,
        reply,
        window,
    } = far;
    let tasks = backend.tasks();
    tasks.spawn(read(request.into_body(), body, window));
    tasks.spawn(write(respond, reply, orders));
    tasks.spawn(Arc::clone(backend).serve(exchange));
}

/// Moves request bytes to the exchange; afterwards waits for the client to end its side,
/// since dropping the stream earlier would reset it.
async fn read(mut body: RecvStream, pieces: mpsc::Sender<Piece>, window: Window) {
    loop {
        let next = if pieces.is_closed() {
            match tokio::time::timeout(LINGER, body.data()).await {
                Ok(next) => next,
                Err(_) => return,
            }
        } else {
            tokio::select! {
                next = body.data() => next,
                () = pieces.closed() => continue,
            }
        };
        let piece = match next {
            Some(Ok(data)) => {
                if !window.is_held() {
                    let _ = body.flow_control().release_capacity(data.len());
                }
                Piece::Data(data)
            }
            Some(Err(_)) => Piece::Broken,
            None => Piece::End,
        };
        let last = !matches!(piece, Piece::Data(_));
        let _ = pieces.send(piece).await;
        if last {
            return;
        }
    }
}

async fn write(
    respond: SendResponse<Bytes>,
    replies: mpsc::Receiver<Reply>,
    orders: mpsc::UnboundedSender<Order>,
) {
    if let Err(error) = write_replies(respond, replies, orders).await {
        tracing::debug!(%error, "http/2 stream ended early");
    }
}

async fn write_replies(
    mut respond: SendResponse<Bytes>,
    mut replies: mpsc::Receiver<Reply>,
    orders: mpsc::UnboundedSender<Order>,
) -> Result<(), h2::Error> {
    let mut stream: Option<SendStream<Bytes>> = None;
    loop {
        let reply = tokio::select! {
            biased;
            reply = replies.recv() => reply,
            reset = poll_fn(|cx| match &mut stream {
                Some(stream) => stream.poll_reset(cx),
                None => respond.poll_reset(cx),
            }) => {
                reset?;
                return Ok(());
            }
        };
        match (reply, &mut stream) {
            (Some(Reply::Head(head)), _) => {
                let mut response = Response::new(());
                *response.status_mut() = http::StatusCode::from_u16(head.status)
                    .unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
                *response.headers_mut() = head.headers;
                let ends = head.body == BodyPlan::None;
                let opened = respond.send_response(response, ends)?;
                if ends {
                    return Ok(());
                }
                stream = Some(opened);
            }
            (Some(Reply::Data(data)), Some(stream)) => send(stream, data).await?,
            (Some(Reply::Finish), Some(stream)) => {
                return stream.send_data(Bytes::new(), true);
            }
            (Some(Reply::Reset(code)), _) => {
                // A reset discards what is still queued, so let that out first.
                let (done, flushed) = oneshot::channel();
                if orders.send(Order::Flush(done)).is_ok() {
                    let _ = flushed.await;
                }
                respond.send_reset(Reason::from(code));
                return Ok(());
            }
            (Some(Reply::GoAway(code)), _) => {
                return end_connection(respond, orders, Order::GoAway(Reason::from(code))).await;
            }
            (Some(Reply::Cut), _) => return end_connection(respond, orders, Order::Cut).await,
            (None, _) | (Some(Reply::Data(_) | Reply::Finish), None) => {
                respond.send_reset(Reason::INTERNAL_ERROR);
                return Ok(());
            }
        }
    }
}

/// Ends the whole connection. The stream is held until that is done: dropping it sooner
/// would reset it and discard what is still queued.
async fn end_connection(
    mut respond: SendResponse<Bytes>,
    orders: mpsc::UnboundedSender<Order>,
    order: Order,
) -> Result<(), h2::Error> {
    if orders.send(order).is_ok() {
        poll_fn(|cx| respond.poll_reset(cx)).await?;
    }
    Ok(())
}

/// Hands data over only as far as the client has room, so a fault after it finds it sent.
async fn send(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let mut room = stream.capacity();
        if room == 0 {
            room = match poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(room) => room?,
                None => return Err(Reason::STREAM_CLOSED.into()),
            };
        }
        let piece = data.split_to(room.min(data.len()));
        stream.send_data(piece, false)?;
    }
    Ok(())
}
