//! Connections to the server: proxies that must not be used, and custom certificates.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
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

/// A proxy that wants a user and a password.
struct Proxy {
    address: SocketAddr,
    /// The request line of each tunnel that it opened.
    tunnels: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// `user:secret` in Base64.
    const AUTHORIZATION: &str = "Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=";

    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tunnels: Arc<Mutex<Vec<String>>> = Arc::default();
        let opened = Arc::clone(&tunnels);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(Self::serve(client, Arc::clone(&opened)));
            }
        });
        Self { address, tunnels }
    }

    async fn serve(client: tokio::net::TcpStream, opened: Arc<Mutex<Vec<String>>>) {
        let mut client = BufReader::new(client);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            client.read_line(&mut line).await.unwrap();
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_owned()),
            }
        }
        if !head.iter().any(|line| line == Self::AUTHORIZATION) {
            let refusal =
                b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
            client.write_all(refusal).await.unwrap();
            return;
        }
        let target = head[0].split(' ').nth(1).unwrap();
        let mut server = tokio::net::TcpStream::connect(target).await.unwrap();
        opened.lock().unwrap().push(head[0].clone());
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    }
}

/// Calls over TLS use the tunnel of the user's proxy, also if the proxy itself is reached over TLS.
#[tokio::test]
async fn calls_over_tls_use_the_proxy_of_the_environment() {
    let simulator = Simulator::start(Transport::Tls);
    let server = simulator.url.trim_start_matches("https://");
    let folder = tempfile::tempdir().unwrap();
    for http in ["1", "2"] {
        for over_tls in [false, true] {
            let proxy = Proxy::start().await;
            let mut trusted = std::fs::read_to_string(simulator.ca.as_ref().unwrap()).unwrap();
            let mut proxy_url = format!("http://user:secret@{}", proxy.address);
            if over_tls {
                let (address, pem) = self_signed("localhost", proxy.address).await;
                trusted += &pem;
                proxy_url = format!("https://user:secret@localhost:{}", address.port());
            }
            let ca = folder.path().join("ca.pem");
            std::fs::write(&ca, trusted).unwrap();
            let env = [
                ("HTTPS_PROXY", proxy_url.clone()),
                ("NODE_EXTRA_CA_CERTS", ca.display().to_string()),
                ("PI_CURSOR_HTTP", http.to_owned()),
            ];
            let backend = simulator.url.clone();
            let ca = simulator.ca.clone();
            let outcome = tokio::task::spawn_blocking(move || {
                let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
                let mut session = RpcSession::at(&backend, ca.as_deref(), "s", &env);
                session.prompt("@hello there")
            });
            let outcome = outcome.await.unwrap();
            assert_eq!(
                (outcome.error.as_str(), outcome.text.as_str()),
                ("", "Hello, world!"),
                "HTTP/{http} through {proxy_url}"
            );
            let tunnels = proxy.tunnels.lock().unwrap();
            assert!(!tunnels.is_empty(), "HTTP/{http} through {proxy_url}");
            for tunnel in tunnels.iter() {
                assert_eq!(*tunnel, format!("CONNECT {server} HTTP/1.1"));
            }
        }
    }
}

/// A proxy that refuses the tunnel is named as the cause; the server is never called directly.
#[tokio::test]
async fn a_refused_tunnel_is_the_cause_of_the_error() {
    let simulator = Simulator::start(Transport::Tls);
    let proxy = Proxy::start().await;
    let proxy_url = format!("http://{}", proxy.address);
    let output = tokio::process::Command::new(test_support::binary())
        .args(["models", "--refresh"])
        .env_clear()
        .env("CURSOR_API_KEY", "crsr_test")
        .env("CURSOR_BACKEND_URL", &simulator.url)
        .env("NODE_EXTRA_CA_CERTS", simulator.ca.as_ref().unwrap())
        .env("HTTPS_PROXY", &proxy_url)
        .output()
        .await
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("proxy authorization required"), "{errors}");
    let named = format!("the proxy {}: ", proxy.address);
    assert!(errors.contains(&named), "{errors}");
    assert_eq!(simulator.recording().await.paths(), Vec::<&str>::new());
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
