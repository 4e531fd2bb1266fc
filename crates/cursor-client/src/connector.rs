//! Opens connections: TCP, the tunnel through a proxy if one is configured, and TLS.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower_service::Service;

/// Maximum time until a connection can be used: name lookup, TCP, proxy and TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of TCP's own probes. They detect a lost peer of HTTP/1.1, which has no pings.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);
const PROBES: u32 = 3;
/// How long sent data may stay unacknowledged before the connection counts as lost.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type BoxedConnect<Stream> = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;
/// A connection to the server or the tunnel of a proxy, which may itself be reached over TLS.
type ProxiedStream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Opens connections on which requests can be sent.
#[derive(Debug, Clone)]
pub(super) struct Connector(HttpsConnector<TransportConnector>);

impl Connector {
    /// Returns a connector for unencrypted connections. No proxy is used, because it would see the
    /// credentials of a call, and its loopback address is another machine.
    pub(super) fn plain(no_tls: ClientConfig) -> Self {
        Self::new(None, no_tls)
    }

    /// Returns a connector for TLS that goes through the proxy of the environment or the system.
    pub(super) fn tls(tls: ClientConfig) -> Self {
        Self::new(Some(Arc::new(Matcher::from_system())), tls)
    }

    fn new(proxies: Option<Arc<Matcher>>, tls: ClientConfig) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(Some(PROBE_INTERVAL));
        tcp.set_keepalive_interval(Some(PROBE_INTERVAL));
        tcp.set_keepalive_retries(Some(PROBES));
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        // A proxy is spoken to in HTTP/1.1, whatever the server behind it speaks.
        let mut proxy_tls = tls.clone();
        proxy_tls.alpn_protocols.clear();
        let transport = TransportConnector {
            tcp,
            proxies,
            proxy_tls: Arc::new(proxy_tls),
        };
        Self(HttpsConnector::from((transport, tls)))
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<ProxiedStream>;
    type Error = BoxError;
    type Future = BoxedConnect<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let opening = self.0.call(server);
        Box::pin(async move {
            match tokio::time::timeout(CONNECT_TIMEOUT, opening).await {
                Ok(opened) => opened,
                Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        })
    }
}

/// A proxy that cannot be reached, or that opens no tunnel.
#[derive(Debug, thiserror::Error)]
#[error("the proxy {proxy} failed")]
pub(super) struct ProxyFailed {
    /// Its host and port.
    pub(super) proxy: String,
    source: BoxError,
}

/// Opens what TLS with the server runs on: TCP, or a tunnel through a proxy.
#[derive(Debug, Clone)]
struct TransportConnector {
    tcp: HttpConnector,
    proxies: Option<Arc<Matcher>>,
    proxy_tls: Arc<ClientConfig>,
}

impl Service<Uri> for TransportConnector {
    type Response = ProxiedStream;
    type Error = BoxError;
    type Future = BoxedConnect<ProxiedStream>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let proxy = self
            .proxies
            .as_ref()
            .and_then(|proxies| proxies.intercept(&server));
        let Some(proxy) = proxy else {
            let opening = self.tcp.call(server);
            return Box::pin(async move { Ok(MaybeHttpsStream::Http(opening.await?)) });
        };
        let to_proxy = HttpsConnector::from((self.tcp.clone(), Arc::clone(&self.proxy_tls)));
        let address = proxy.uri().authority().map(|authority| {
            // Without the user and the password.
            let authority = authority.as_str();
            authority.rsplit('@').next().unwrap_or(authority).to_owned()
        });
        let mut tunnel = Tunnel::new(proxy.uri().clone(), to_proxy);
        if let Some(authorization) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(authorization.clone());
        }
        Box::pin(async move {
            tunnel.call(server).await.map_err(|error| {
                let failed = ProxyFailed {
                    proxy: address.unwrap_or_default(),
                    source: error.into(),
                };
                failed.into()
            })
        })
    }
}
