//! Accepts connections on the loopback port and detects their protocol: TLS, HTTP/2 with prior
//! knowledge or HTTP/1.1.

use std::sync::Arc;

use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::backend::SimBackend;
use super::exchange::ClientConnection;
use super::{http1, http2};

/// First bytes of an HTTP/2 connection with prior knowledge; no HTTP/1.1 method has them.
const PREFACE_START: &[u8; 3] = b"PRI";

/// Accepts connections until its task is cancelled.
pub(super) async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    backend: Arc<SimBackend>,
) {
    let mut number = 0;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                number += 1;
                let served = serve(stream, number, tls.clone(), Arc::clone(&backend));
                backend.tasks().spawn(served);
            }
            Err(error) => {
                // Most likely out of file descriptors: let other tasks close theirs.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::task::yield_now().await;
            }
        }
    }
}

async fn serve(
    stream: TcpStream,
    number: u64,
    acceptor: Option<TlsAcceptor>,
    backend: Arc<SimBackend>,
) {
    let client = ClientConnection {
        number,
        tls: acceptor.is_some(),
    };
    let Some(acceptor) = acceptor else {
        return serve_plain(stream, client, backend).await;
    };
    match acceptor.accept(stream).await {
        Ok(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
            http2::serve(stream, client, backend).await;
        }
        Ok(stream) => http1::serve(stream, client, backend).await,
        Err(error) => tracing::debug!(%error, "tls handshake failed"),
    }
}

/// Serves a plain connection; its first bytes decide the HTTP version.
async fn serve_plain(mut stream: TcpStream, client: ClientConnection, backend: Arc<SimBackend>) {
    let mut start = [0; PREFACE_START.len()];
    if stream.read_exact(&mut start).await.is_err() {
        return;
    }
    let (reader, writer) = stream.into_split();
    let rewound = tokio::io::join(std::io::Cursor::new(start).chain(reader), writer);
    if &start == PREFACE_START {
        http2::serve(rewound, client, backend).await;
    } else {
        http1::serve(rewound, client, backend).await;
    }
}
