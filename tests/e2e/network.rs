//! Connections to the server: proxies that must not be used, and custom certificates.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

use test_support::rpc_session::RpcSession;
use test_support::run_client::RunClient;
use test_support::simulator::{Simulator, Transport};

/// Cleartext requests to this machine are sent directly, whatever proxy the user has set.
#[test]
fn a_proxy_sees_nothing_in_clear_text() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let names = [
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ];
    let env = names.map(|name| (name, url.as_str()));
    for transport in [Transport::Http1, Transport::H2c] {
        let simulator = Simulator::start(transport);
        let mut session = RpcSession::new(&simulator, "s", &env);
        let outcome = session.prompt("@hello there");
        assert_eq!(
            (outcome.error.as_str(), outcome.text.as_str()),
            ("", "Hello, world!")
        );
        let met = proxy.accept().map(drop).map_err(|error| error.kind());
        assert_eq!(met, Err(std::io::ErrorKind::WouldBlock), "{transport:?}");
    }
}

/// Starts a TLS server with a self-signed certificate for `name` that forwards to `before`. Returns
/// its address and the certificate.
async fn self_signed(name: &str, before: SocketAddr) -> (SocketAddr, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut client) = acceptor.accept(client).await else {
                    return;
                };
                let mut server = tokio::net::TcpStream::connect(before).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, certificate.pem())
}

/// `openssl req -x509` creates a certificate that is marked as a CA. If the user names it, a server
/// may use it for its own host name.
#[tokio::test]
async fn a_self_signed_certificate_that_is_named_is_trusted() {
    let simulator = Simulator::start(Transport::H2c);
    let behind = simulator.url.trim_start_matches("http://").parse().unwrap();
    for (name, trusted) in [("localhost", true), ("elsewhere.example", false)] {
        let (address, pem) = self_signed(name, behind).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("server.pem");
        std::fs::write(&file, pem).unwrap();
        let mut ours = RunClient::with(&simulator, Transport::Tls, |options| {
            options.endpoints.backend = Some(format!("https://localhost:{}", address.port()));
            options.trust.extra = Some(file.clone());
        });
        let reply = ours.prompt("@hello there").await;
        if trusted {
            reply.finished("Hello, world!")
        } else {
            assert!(reply.failure().contains("TLS with localhost"))
        }
    }
}
