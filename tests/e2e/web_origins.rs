//! Requests of web pages in the user's browser to our ports are refused, and no response lets a
//! page read anything.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::mcp_endpoint::OpenRun;
use test_support::gateway::GatewayProcess;
use test_support::simulator::{Simulator, Transport};

/// An HTTP server of ours and how to reach it.
struct TestedServer {
    host: String,
    path: String,
    token: String,
}

impl TestedServer {
    /// Returns the head of the response to a request with these headers.
    fn answer(&self, method: &str, headers: &[(&str, &str)]) -> String {
        let Self { host, path, .. } = self;
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        let mut stream = TcpStream::connect(host).unwrap();
        stream
            .write_all(format!("{request}\r\n").as_bytes())
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let head = answer.split("\r\n\r\n").next().unwrap();
        let head = head.to_ascii_lowercase();
        assert!(!head.contains("access-control-"), "{head}");
        head
    }

    fn status(&self, method: &str, headers: &[(&str, &str)]) -> u16 {
        let answer = self.answer(method, headers);
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// Checks that every page except its own is refused, with and without the token, with and
    /// without a preflight. `allowed` is the status its own page gets.
    fn refuses_pages(&self, method: &str, allowed: u16) {
        let bearer = format!("Bearer {}", self.token);
        let auth = ("Authorization", bearer.as_str());
        let port = self.host.split_once(':').unwrap().1;
        let other: u16 = port.parse::<u16>().unwrap() ^ 1;
        let foreign = [
            "https://evil.com".to_owned(),
            "null".into(),
            "file://".into(),
            "vscode-webview://1a2b".into(),
            format!("http://evil.com:{port}"),
            format!("https://127.0.0.1:{port}"),
            format!("http://localhost:{port}"), // another origin than 127.0.0.1
            format!("http://127.0.0.1:{other}"),
            "http://localhost:6274".into(),
            "http://127.0.0.1".into(),
        ];
        for origin in &foreign {
            let origin = ("Origin", origin.as_str());
            assert_eq!(self.status(method, &[auth, origin]), 403, "{origin:?}");
            assert_eq!(self.status(method, &[origin]), 403, "{origin:?}");
            let asked = [
                origin,
                ("Access-Control-Request-Method", "POST"),
                ("Access-Control-Request-Headers", "authorization"),
                ("Access-Control-Request-Private-Network", "true"),
            ];
            assert_eq!(self.status("OPTIONS", &asked), 403, "{origin:?}");
        }
        let own = format!("http://{}", self.host);
        let own = ("Origin", own.as_str());
        assert_eq!(self.status(method, &[auth, own]), allowed);
        assert_eq!(self.status(method, &[auth]), allowed, "no page at all");
        assert_eq!(
            self.status(method, &[own]),
            401,
            "the token is still needed"
        );
        // A same-origin page needs no preflight; if it sends one, it is refused without the token.
        let asked = [own, ("Access-Control-Request-Method", "POST")];
        assert_eq!(self.status("OPTIONS", &asked), 401);
    }
}

#[test]
fn the_gateway_answers_no_page_of_another_origin() {
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let door = TestedServer {
        host: format!("127.0.0.1:{}", gateway.port()),
        path: "/v1/models".into(),
        token: gateway.token.clone(),
    };
    door.refuses_pages("GET", 200);
    assert_eq!(simulator.recorded().runs(), 0);
}

#[test]
fn the_mcp_endpoint_answers_no_page_of_another_origin() {
    let mut run = OpenRun::open();
    let url = run.at.url.strip_prefix("http://").unwrap().to_owned();
    let (host, path) = url.split_once('/').unwrap();
    let door = TestedServer {
        host: host.to_owned(),
        path: format!("/{path}"),
        token: run.at.token.clone(),
    };
    // If the request is allowed, rmcp rejects a GET without an MCP session.
    let let_in = door.status(
        "GET",
        &[("Authorization", &format!("Bearer {}", door.token))],
    );
    assert!(
        (400..500).contains(&let_in) && ![401, 403].contains(&let_in),
        "{let_in}"
    );
    door.refuses_pages("GET", let_in);
    run.finish();
}
