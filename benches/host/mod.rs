//! A host of the real sidecar on its pipes, and a relay in front of the simulator that reports
//! the bytes that pass.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// A sidecar and both ends of its pipes.
pub(crate) struct BenchHost {
    pub(crate) child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    _state: tempfile::TempDir,
}

impl BenchHost {
    /// Starts a sidecar with this backend.
    pub(crate) fn start(backend: SocketAddr) -> Self {
        let state = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_cursor-sidecar"))
            .env_clear()
            .env("PI_CURSOR_STATE_DIR", state.path())
            .env("CURSOR_BACKEND_URL", format!("http://{backend}"))
            .env("CURSOR_API_KEY", "crsr_test")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut host = Self {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            _state: state,
        };
        let params = json!({"protocolVersion": 1, "nativeTools": {"default": "local"}, "host": {"name": "bench"}});
        host.send("initialize", "i", &params);
        host.receive();
        host
    }

    pub(crate) fn send(&mut self, method: &str, id: &str, params: &Json) {
        let body =
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        let frame = format!("Content-Length: {}\r\n\r\n{body}", body.len());
        self.stdin.write_all(frame.as_bytes()).unwrap();
        self.stdin.flush().unwrap();
    }

    pub(crate) fn receive(&mut self) -> Json {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "gone");
            match line.trim().strip_prefix("Content-Length: ") {
                Some(number) => length = number.parse().unwrap(),
                None if line.trim().is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        self.stdout.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }
}

impl Drop for BenchHost {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Relays connections to a server, reporting each piece before it is forwarded.
pub(crate) async fn relay(
    server: SocketAddr,
    to: impl Fn(&[u8]) + Clone + Send + 'static,
    from: impl Fn(&[u8]) + Clone + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(server).await.unwrap();
            near.set_nodelay(true).unwrap();
            far.set_nodelay(true).unwrap();
            let (near_in, near_out) = near.into_split();
            let (far_in, far_out) = far.into_split();
            tokio::spawn(pass(near_in, far_out, to.clone()));
            tokio::spawn(pass(far_in, near_out, from.clone()));
        }
    });
    address
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, show: impl Fn(&[u8])) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        show(&buffer[..length]);
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
