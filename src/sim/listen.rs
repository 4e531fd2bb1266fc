//! The one loopback port: tells TLS, HTTP/2 with prior knowledge and HTTP/1.1 apart.

use std::sync::Arc;

use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::backend::Backend;
use super::exchange::{Peer, Security};
use super::{http1, http2};

/// How an HTTP/2 connection with prior knowledge begins; no HTTP/1.1 method does.
const PREFACE_START: &[u8; 3] = b"PRI";

/// Accepts connections until its task is cancelled.
pub(super) async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, backend: Arc<Backend>) {
    let mut connection = 0;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                connection += 1;
                let served = serve(stream, connection, tls.clone(), Arc::clone(&backend));
                backend.tasks().spawn(served);
            }
            Err(error) => {
                // Out of file descriptors, most likely: others must get to close theirs.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::task::yield_now().await;
            }
        }
    }
}

async fn serve(
    stream: TcpStream,
    connection: u64,
    tls: Option<TlsAcceptor>,
    backend: Arc<Backend>,
) {
    let peer = |security| Peer {
        connection,
        security,
    };
    let Some(tls) = tls else {
        return sniff(stream, peer(Security::Plain), backend).await;
    };
    match tls.accept(stream).await {
        Ok(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
            http2::serve(stream, peer(Security::Tls), backend).await;
        }
        Ok(stream) => http1::serve(stream, peer(Security::Tls), backend).await,
        Err(error) => tracing::debug!(%error, "tls handshake failed"),
    }
}

/// Looks at the first bytes of a plain connection.
async fn sniff(mut stream: TcpStream, peer: Peer, backend: Arc<Backend>) {
    let mut start = [0; PREFACE_START.len()];
    if stream.read_exact(&mut start).await.is_err() {
        return;
    }
    let (reader, writer) = stream.into_split();
    let rewound = tokio::io::join(std::io::Cursor::new(start).chain(reader), writer);
    if &start == PREFACE_START {
        http2::serve(rewound, peer, backend).await;
    } else {
        http1::serve(rewound, peer, backend).await;
    }
}
