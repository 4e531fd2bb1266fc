//! Serves HTTP/2: turns streams into requests and response parts into frames.
//!
//! Uses the `h2` crate directly because faults need its controls: reset and GOAWAY codes,
//! receive windows, and dropping a connection in the middle of a response.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response, Version};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};

use super::backend::SimBackend;
use super::exchange::{
    self, BodyChunk, ClientConnection, ConnectionSide, RequestHead, ResponsePart, SendWindow,
};

/// Receive window for all streams together; large, because one stream whose window is held
/// must not block the others.
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// How long the client may take to end its side of a stream after the server ended its own.
const CLIENT_END_TIMEOUT: Duration = Duration::from_secs(5);

/// What a stream asks its connection to do.
#[derive(Debug)]
enum ConnectionCommand {
    /// Signal when everything queued so far is on the wire.
    Flush(oneshot::Sender<()>),
    /// Send GOAWAY with this code and close.
    GoAway(Reason),
    /// Drop the connection.
    Cut,
}

/// Serves one connection until either side closes it.
pub(super) async fn serve<T>(io: T, client: ClientConnection, backend: Arc<SimBackend>)
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
    let (command_sender, mut commands) = mpsc::unbounded_channel();
    let start = |request: Request<RecvStream>, respond: SendResponse<Bytes>| {
        start_stream(request, respond, client, &backend, command_sender.clone());
    };
    loop {
        let command = tokio::select! {
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
            command = commands.recv() => command,
        };
        // One more poll writes everything the streams have queued.
        loop {
            match poll_fn(|cx| Poll::Ready(connection.poll_accept(cx))).await {
                Poll::Ready(Some(Ok((request, respond)))) => start(request, respond),
                Poll::Ready(_) => return,
                Poll::Pending => break,
            }
        }
        match command {
            Some(ConnectionCommand::Flush(done)) => {
                let _ = done.send(());
            }
            Some(ConnectionCommand::GoAway(reason)) => connection.abrupt_shutdown(reason),
            Some(ConnectionCommand::Cut) | None => return,
        }
    }
}

fn start_stream(
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    client: ClientConnection,
    backend: &Arc<SimBackend>,
    commands: mpsc::UnboundedSender<ConnectionCommand>,
) {
    let head = RequestHead::new(&request, Version::HTTP_2, client);
    let (incoming, connection) = exchange::open(head);
    let ConnectionSide {
        body,
        response,
        window,
    } = connection;
    let tasks = backend.tasks();
    tasks.spawn(read_body(request.into_body(), body, window));
    tasks.spawn(write_response(respond, response, commands));
    tasks.spawn(Arc::clone(backend).serve(incoming));
}

/// Passes on the request body, then waits for the client to end its side, because dropping
/// the stream earlier would reset it.
async fn read_body(mut body: RecvStream, chunks: mpsc::Sender<BodyChunk>, window: SendWindow) {
    loop {
        let next = if chunks.is_closed() {
            match tokio::time::timeout(CLIENT_END_TIMEOUT, body.data()).await {
                Ok(next) => next,
                Err(_) => return,
            }
        } else {
            tokio::select! {
                next = body.data() => next,
                () = chunks.closed() => continue,
            }
        };
        let chunk = match next {
            Some(Ok(data)) => {
                if !window.is_held() {
                    let _ = body.flow_control().release_capacity(data.len());
                }
                BodyChunk::Data(data)
            }
            Some(Err(_)) => BodyChunk::Broken,
            None => BodyChunk::End,
        };
        let last = !matches!(chunk, BodyChunk::Data(_));
        let _ = chunks.send(chunk).await;
        if last {
            return;
        }
    }
}

async fn write_response(
    respond: SendResponse<Bytes>,
    parts: mpsc::Receiver<ResponsePart>,
    commands: mpsc::UnboundedSender<ConnectionCommand>,
) {
    if let Err(error) = write_parts(respond, parts, commands).await {
        tracing::debug!(%error, "http/2 stream ended early");
    }
}

async fn write_parts(
    mut respond: SendResponse<Bytes>,
    mut parts: mpsc::Receiver<ResponsePart>,
    commands: mpsc::UnboundedSender<ConnectionCommand>,
) -> Result<(), h2::Error> {
    let mut stream: Option<SendStream<Bytes>> = None;
    loop {
        let part = tokio::select! {
            biased;
            part = parts.recv() => part,
            reset = poll_fn(|cx| match &mut stream {
                Some(stream) => stream.poll_reset(cx),
                None => respond.poll_reset(cx),
            }) => {
                reset?;
                return Ok(());
            }
        };
        match (part, &mut stream) {
            (Some(ResponsePart::Head(head)), _) => {
                let mut response = Response::new(());
                *response.status_mut() = http::StatusCode::from_u16(head.status)
                    .unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
                *response.headers_mut() = head.headers;
                let opened = respond.send_response(response, !head.has_body)?;
                if !head.has_body {
                    return Ok(());
                }
                stream = Some(opened);
            }
            (Some(ResponsePart::Data(data)), Some(stream)) => send(stream, data).await?,
            (Some(ResponsePart::Finish), Some(stream)) => {
                return stream.send_data(Bytes::new(), true);
            }
            (Some(ResponsePart::Reset(code)), _) => {
                // Flush first, because a reset discards what is still queued.
                let (done, flushed) = oneshot::channel();
                if commands.send(ConnectionCommand::Flush(done)).is_ok() {
                    let _ = flushed.await;
                }
                respond.send_reset(Reason::from(code));
                return Ok(());
            }
            (Some(ResponsePart::GoAway(code)), _) => {
                let command = ConnectionCommand::GoAway(Reason::from(code));
                return end_connection(respond, commands, command).await;
            }
            (Some(ResponsePart::Cut), _) => {
                return end_connection(respond, commands, ConnectionCommand::Cut).await;
            }
            (None, _) | (Some(ResponsePart::Data(_) | ResponsePart::Finish), None) => {
                respond.send_reset(Reason::INTERNAL_ERROR);
                return Ok(());
            }
        }
    }
}

/// Ends the whole connection. Keeps the stream until that is done, because dropping it
/// earlier would reset it and discard what is still queued.
async fn end_connection(
    mut respond: SendResponse<Bytes>,
    commands: mpsc::UnboundedSender<ConnectionCommand>,
    command: ConnectionCommand,
) -> Result<(), h2::Error> {
    if commands.send(command).is_ok() {
        poll_fn(|cx| respond.poll_reset(cx)).await?;
    }
    Ok(())
}

/// Queues no more data than the client's window allows, so that the data is on the wire before
/// a fault that follows it.
async fn send(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let mut capacity = stream.capacity();
        if capacity == 0 {
            capacity = match poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(capacity) => capacity?,
                None => return Err(Reason::STREAM_CLOSED.into()),
            };
        }
        let chunk = data.split_to(capacity.min(data.len()));
        stream.send_data(chunk, false)?;
    }
    Ok(())
}
