//! The command line: answers, clear errors, exit codes, proxies.

use serde_json::json;
use std::path::Path;
use std::process::{Command, Output};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use test_support::binary;
use test_support::scenario::{Steps, playing, value};
use test_support::simulator::{Simulator, Transport};

fn sidecar(arguments: &[&str], env: &[(&str, &str)]) -> Output {
    let home = tempfile::tempdir().unwrap();
    Command::new(binary())
        .args(arguments)
        .env_clear()
        .env("HOME", home.path())
        .envs(env.iter().copied())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap()
}

/// Returns the exit code and both streams as a user sees them.
fn seen(output: &Output) -> String {
    format!(
        "exit {}\n--- stdout\n{}--- stderr\n{}",
        output.status.code().unwrap(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

const KEY: (&str, &str) = ("CURSOR_API_KEY", "crsr_0123456789");

#[test]
fn an_answer_and_nothing_else() {
    let simulator = Simulator::start(Transport::Http1);
    let backend = ("CURSOR_BACKEND_URL", simulator.url.as_str());
    let output = sidecar(&["ask", "@hello there"], &[KEY, backend]);
    insta::assert_snapshot!(seen(&output), @"
    exit 0
    --- stdout
    Hello, world!
    --- stderr
    ");
}

#[test]
fn invalid_settings_are_reported_in_one_line() {
    let cases: &[&[(&str, &str)]] = &[
        &[],
        &[("CURSOR_API_KEY", "crsr_1\ncrsr_2")],
        &[KEY, ("CURSOR_BACKEND_URL", "http://example.com")],
        &[KEY, ("CURSOR_BACKEND_URL", "cursor")],
        &[KEY, ("PI_CURSOR_AGENT_URL", "ftp://127.0.0.1")],
        &[
            KEY,
            ("CURSOR_BACKEND_URL", "https://127.0.0.1:9"),
            ("SSL_CERT_FILE", "no-such-file.pem"),
        ],
        &[
            KEY,
            ("CURSOR_BACKEND_URL", "https://127.0.0.1:9"),
            ("NODE_EXTRA_CA_CERTS", "no-such-file.pem"),
        ],
    ];
    let printed: Vec<String> = cases
        .iter()
        .map(|env| {
            let output = sidecar(&["ask", "hi"], env);
            assert_eq!(output.status.code(), Some(1));
            String::from_utf8(output.stderr).unwrap()
        })
        .collect();
    insta::assert_snapshot!(printed.concat(), @r#"
    error: no Cursor API key: run `cursor-sidecar login`, or set CURSOR_API_KEY to a key from Cursor's dashboard (under Integrations)
    error: the Cursor API key contains a line break; give the key alone, on one line
    error: CURSOR_BACKEND_URL: plain http is only accepted for this machine (localhost, 127.0.0.1, [::1]); use https for example.com
    error: CURSOR_BACKEND_URL: not a usable URL (relative URL without a base); expected something like https://api2.cursor.sh
    error: PI_CURSOR_AGENT_URL: unsupported scheme "ftp"; use https
    error: cannot get a token from Cursor: SSL_CERT_FILE: cannot read CA file no-such-file.pem: No such file or directory (os error 2)
    error: cannot get a token from Cursor: NODE_EXTRA_CA_CERTS: cannot read CA file no-such-file.pem: No such file or directory (os error 2)
    "#);
}

#[test]
fn no_error_ever_shows_the_key() {
    let simulator = playing(
        Transport::Http1,
        r#"{ end = { code = "permission_denied", message = "no" } }"#,
    );
    let backend = ("CURSOR_BACKEND_URL", simulator.url.as_str());
    for env in [
        [KEY, backend, ("RUST_LOG", "trace")],
        [
            ("CURSOR_API_KEY", "crsr_0123456789 x"),
            backend,
            ("RUST_LOG", "trace"),
        ],
        [
            KEY,
            ("CURSOR_BACKEND_URL", "http://127.0.0.1:9"),
            ("RUST_LOG", "error"),
        ],
    ] {
        let output = sidecar(&["ask", "a secret prompt"], &env);
        let seen = seen(&output);
        assert_ne!(output.status.code(), Some(0));
        assert!(!seen.contains("0123456789"), "{seen}");
        assert!(!seen.contains("a secret prompt"), "{seen}");
    }
}

#[test]
fn a_refused_key_is_reported_without_retries() {
    let simulator = Simulator::start(Transport::Http1);
    let env = [
        ("CURSOR_API_KEY", "crsr_invalid"),
        ("CURSOR_BACKEND_URL", simulator.url.as_str()),
    ];
    let output = sidecar(&["ask", "hi"], &env);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr.starts_with("error: Cursor did not accept the API key"),
        "{stderr}"
    );
    let recording = simulator.recorded();
    assert_eq!(recording.requests("/auth/exchange_user_api_key").len(), 1);
}

#[test]
fn mistakes_in_scenarios_name_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let broken = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let output = sidecar(&["sim", "--scenario", path.to_str().unwrap()], &[]);
        assert_ne!(output.status.code(), Some(0));
        assert_eq!(output.stdout, b"");
        let stderr = String::from_utf8(output.stderr).unwrap();
        stderr.replace(folder.path().to_str().unwrap(), "FOLDER")
    };
    let printed = [
        broken(
            "a.toml",
            "name = \"a\"\n[[run]]\nsteps = [\n  { txet = \"x\" },\n]\n",
        ),
        broken("b.toml", "name = \"b\"\n[[run]\n"),
        broken(
            "c.toml",
            "name = \"c\"\n[[run]]\nsteps = [\n  { text = \"x\" },\n  { exec = { raedArgs = {} } },\n]\n",
        ),
        broken(
            "d.json",
            "{\n \"name\": \"d\",\n \"run\": [ { \"steps\": [\n  { \"usage\": { \"inputTokens\": \"many\" } }\n ] } ]\n}\n",
        ),
        broken("e.json", "{\n \"name\": \"e\",\n \"run\": oops\n}\n"),
    ];
    insta::assert_snapshot!(printed.join("\n"), @r#"
    error: FOLDER/a.toml:4: unknown step "txet"; expected one of text, thinking, thinking_done, deltas, update, send, send_hex, exec, await, abort, kv_set, kv_get, query, checkpoint, token_details, usage, end, status, expect_client, expect_request, expect_headers, expect_state, expect_history, expect_cancel, expect_file, together, delay_ms, heartbeat, silence_ms, reset, goaway, half_close, stall, truncate, garbage, oversized, cut, drip, hold_window

    error: FOLDER/b.toml:2: unclosed array table, expected `]`

    error: FOLDER/c.toml:5: unknown field "raedArgs" in agent.v1.ExecServerMessage; it has id, shellArgs, writeArgs, deleteArgs, grepArgs, readArgs, lsArgs, diagnosticsArgs, requestContextArgs, mcpArgs, shellStreamArgs, execId and 34 more

    error: FOLDER/d.json:4: field "inputTokens" of agent.v1.TurnEndedUpdate takes a whole number, not a string

    error: FOLDER/e.json:3: expected value
    "#);
}

#[test]
fn the_simulator_serves_this_machine_only() {
    let output = sidecar(&["sim", "--listen", "0.0.0.0:0"], &[]);
    insta::assert_snapshot!(seen(&output), @r"
    exit 1
    --- stdout
    --- stderr
    error: 0.0.0.0:0 is not a loopback address: the simulator serves this machine only
    ");
}

#[test]
fn help_lists_the_commands() {
    let output = sidecar(&["--help"], &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("ask") && text.contains("sim"), "{text}");
    let version = sidecar(&["--version"], &[]);
    let version = String::from_utf8(version.stdout).unwrap();
    assert_eq!(
        version.trim(),
        format!("cursor-sidecar {}", env!("CARGO_PKG_VERSION"))
    );
}

/// A proxy that tunnels `CONNECT` and reports each request.
async fn connect_proxy(listener: TcpListener, seen: tokio::sync::mpsc::UnboundedSender<String>) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let seen = seen.clone();
        tokio::spawn(async move {
            let mut client = BufReader::new(client);
            let mut request = String::new();
            client.read_line(&mut request).await.unwrap();
            let target = request.split(' ').nth(1).unwrap().to_owned();
            loop {
                let mut header = String::new();
                client.read_line(&mut header).await.unwrap();
                if header.trim().is_empty() {
                    break;
                }
            }
            seen.send(request.trim().to_owned()).unwrap();
            let mut server = TcpStream::connect(target).await.unwrap();
            client
                .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                .await
                .unwrap();
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn https_proxy_and_its_exceptions() {
    let simulator = Simulator::start(Transport::Tls);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(connect_proxy(listener, sender));
    let ca = simulator.ca.clone().unwrap();
    let url = simulator.url.clone();
    let ask = move |more: &'static [(&str, &str)]| {
        let (ca, url, proxy) = (ca.clone(), url.clone(), proxy.clone());
        tokio::task::spawn_blocking(move || {
            let mut env = vec![
                KEY,
                ("CURSOR_BACKEND_URL", url.as_str()),
                ("NODE_EXTRA_CA_CERTS", ca.to_str().unwrap()),
                ("HTTPS_PROXY", proxy.as_str()),
            ];
            env.extend(more);
            let output = sidecar(&["ask", "@hello there"], &env);
            assert_eq!(String::from_utf8(output.stdout).unwrap(), "Hello, world!\n");
        })
    };
    ask(&[]).await.unwrap();
    let first = seen.try_recv().expect("the proxy was used");
    assert!(first.starts_with("CONNECT 127.0.0.1:"), "{first}");
    while seen.try_recv().is_ok() {}
    ask(&[("NO_PROXY", "127.0.0.1")]).await.unwrap();
    assert!(seen.try_recv().is_err(), "NO_PROXY was ignored");
    let recording = simulator.recording().await;
    assert_eq!(recording.requests("/agent.v1.AgentService/Run").len(), 2);
}

/// TLS without ALPN in front of a server without HTTP/2.
async fn http1_only_front(
    listener: TcpListener,
    server: String,
    certificate: rcgen::CertifiedKey<rcgen::KeyPair>,
) {
    use tokio_rustls::rustls;
    let key = rustls::pki_types::PrivateKeyDer::try_from(certificate.signing_key.serialize_der())
        .unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let (acceptor, server) = (acceptor.clone(), server.clone());
        tokio::spawn(async move {
            let Ok(mut client) = acceptor.accept(socket).await else {
                return;
            };
            let mut start = [0; 4];
            if client.read_exact(&mut start).await.is_err() {
                return;
            }
            if &start == b"PRI " {
                let _ = client
                    .write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
                    .await;
                let _ = client.shutdown().await;
                return;
            }
            let mut server = TcpStream::connect(server).await.unwrap();
            server.write_all(&start).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_without_alpn_is_passed_over_http1() {
    let simulator = Simulator::start(Transport::Http1);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, certificate.cert.pem()).unwrap();
    let server = simulator.url.strip_prefix("http://").unwrap().to_owned();
    tokio::spawn(http1_only_front(listener, server, certificate));
    let ask = move |ca: &Path| {
        let url = format!("https://{address}");
        let env = [
            KEY,
            ("CURSOR_BACKEND_URL", url.as_str()),
            ("NODE_EXTRA_CA_CERTS", ca.to_str().unwrap()),
        ];
        sidecar(&["ask", "@hello there"], &env)
    };
    let output = tokio::task::spawn_blocking(move || ask(&ca)).await.unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "Hello, world!\n",
        "{:?}",
        String::from_utf8(output.stderr)
    );
    let recording = simulator.recording().await;
    assert_eq!(recording.requests("/agent.v1.AgentService/RunSSE").len(), 1);
}

#[test]
fn all_tools_work_if_all_are_permitted() {
    let read = |expect: &str| {
        Steps::new()
            .context()
            .step(json!({
                "exec": {"readArgs": {"path": "$WS/a.txt", "toolCallId": "a"}},
                "expect": {"readResult": value(expect)},
            }))
            .text("Done.")
            .build()
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "alpha").unwrap();
    let place = folder.path().to_str().unwrap();
    for (flag, expect) in [
        ("--tools", r#"{ success = { content = "alpha" } }"#),
        ("--json", r#"{ rejected = {} }"#),
    ] {
        let simulator = playing(Transport::Http1, &read(expect));
        let backend = ("CURSOR_BACKEND_URL", simulator.url.as_str());
        let arguments = ["ask", "go", flag, "--workspace", place];
        let output = sidecar(&arguments, &[KEY, backend]);
        assert_eq!(output.status.code(), Some(0), "{}", seen(&output));
        simulator.recorded().assert_played(&["completed"]);
    }
}

/// Plan mode changes nothing, whatever the server requests.
#[test]
fn a_plan_reads_and_changes_nothing() {
    let steps = [
        r#"{ exec = { requestContextArgs = {} } }"#,
        r#"{ exec = { readArgs = { path = "$WS/a.txt", toolCallId = "r" } }, expect = { readResult = { success = { content = "alpha" } } } }"#,
        r#"{ exec = { shellArgs = { command = "touch made", workingDirectory = "$WS", toolCallId = "s", skipApproval = true, parsingResult = {} } }, expect = { shellResult = { rejected = { reason = { "$contains" = "plan mode" } } } } }"#,
        r#"{ exec = { writeArgs = { path = "$WS/made", fileText = "x", toolCallId = "w" } }, expect = { writeResult = { rejected = { reason = { "$contains" = "plan mode" } } } } }"#,
        r#"{ exec = { deleteArgs = { path = "$WS/a.txt", toolCallId = "d" } }, expect = { deleteResult = { rejected = { reason = { "$contains" = "plan mode" } } } } }"#,
        r#"{ text = "Done." }"#,
    ];
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "alpha").unwrap();
    let place = folder.path().to_str().unwrap();
    let simulator = playing(Transport::Http1, &steps.join(", "));
    let backend = ("CURSOR_BACKEND_URL", simulator.url.as_str());
    let arguments = ["ask", "go", "--plan", "--tools", "--workspace", place];
    let output = sidecar(&arguments, &[KEY, backend]);
    assert_eq!(output.status.code(), Some(0), "{}", seen(&output));
    simulator.recorded().assert_played(&["completed"]);
    assert!(folder.path().join("a.txt").exists());
    assert!(!folder.path().join("made").exists());
}

/// Returns the model of the run that `ask --model` starts.
fn requested(simulator: &Simulator, model: &str) -> serde_json::Value {
    let backend = ("CURSOR_BACKEND_URL", simulator.url.as_str());
    let output = sidecar(&["ask", "--model", model, "@hello"], &[KEY, backend]);
    assert!(output.status.success(), "{}", seen(&output));
    let recording = simulator.recorded();
    let requests = recording.client("runRequest");
    requests.last().unwrap()["runRequest"]["requestedModel"].clone()
}

#[test]
fn ask_resolves_models_as_hosts_do() {
    let simulator = Simulator::start(Transport::Http1);
    let sized = requested(&simulator, "sonnet-5@1m");
    assert_eq!(sized["modelId"], "claude-sonnet-5");
    let size = json!({"id": "context", "value": "1m"});
    let has = |model: &serde_json::Value, parameter: &serde_json::Value| {
        let parameters = model["parameters"].as_array().unwrap();
        parameters.contains(parameter)
    };
    assert!(has(&sized, &size), "{sized}");
    let level = requested(&simulator, "gpt-5.2:high");
    let high = json!({"id": "reasoning", "value": "high"});
    assert!(has(&level, &high), "{level}");
    let own = requested(&simulator, "gpt-5.2:high,reasoning=low");
    assert!(!has(&own, &high), "a parameter replaces the level: {own}");
    let backend = ("CURSOR_BACKEND_URL", simulator.url.as_str());
    let output = sidecar(&["ask", "--model", "compsoer", "hi"], &[KEY, backend]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("similar models: composer"), "{text}");
    let output = sidecar(&["ask", "--model", "gpt-5.2:loud", "hi"], &[KEY, backend]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("neither a thinking level"), "{text}");
}

#[test]
fn a_closed_pipe_is_no_error() {
    for arguments in [&["models"][..], &["models", "--json"], &["schema"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let home = tempfile::tempdir().unwrap();
        let output = Command::new(binary())
            .args(arguments)
            .env_clear()
            .env("HOME", home.path())
            .stdout(writer)
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("pipe"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn completions_and_the_manual_page_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let output = sidecar(&["completions", shell], &[]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("gateway"), "{shell}: {script}");
    }
    let output = sidecar(&["man"], &[]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains(".TH cursor-sidecar 1"), "{page}");
}

#[test]
fn a_prompt_that_cannot_be_sent_is_refused_at_once() {
    for (prompt, wanted) in [
        ("", "error: the prompt is empty: write it in quotes"),
        (" \n", "error: the prompt is empty"),
    ] {
        let output = sidecar(&["ask", prompt], &[("CURSOR_API_KEY", "crsr_x")]);
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.starts_with(wanted), "{stderr}");
    }
}

/// Also an error that Cursor sends without a reason.
#[test]
fn an_error_names_its_cause_and_the_next_step() {
    let failing = |end: &str| {
        let simulator = playing(Transport::Http1, &format!("{{ end = {{ {end} }} }}"));
        let env = [
            ("CURSOR_API_KEY", "crsr_x"),
            ("CURSOR_BACKEND_URL", simulator.url.as_str()),
        ];
        let output = sidecar(&["ask", "go"], &env);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let aborted =
        failing(r#"code = "aborted", error = "ERROR_USER_ABORTED_REQUEST", message = "Error""#);
    assert!(
        aborted.ends_with(
            "error: Cursor reports an error without its reason. The same request would be refused \
             again: change the message or the model, or start a new session.\n"
        ),
        "{aborted}"
    );
    let signed_out = failing(r#"code = "unauthenticated", message = "who?""#);
    assert!(
        signed_out.ends_with(
            "error: [unauthenticated] who? Sign in again with `cursor-sidecar login`, or replace the key.\n"
        ),
        "{signed_out}"
    );
}

/// It starts, because its user may sign in while it runs.
#[test]
fn a_gateway_without_a_key_says_so_at_its_start() {
    let home = tempfile::tempdir().unwrap();
    let mut gateway = std::process::Command::new(test_support::binary())
        .args(["gateway", "--port", "0"])
        .env_clear()
        .env("HOME", home.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stderr = gateway.stderr.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stderr), &mut line).unwrap();
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    assert!(
        line.contains("no Cursor API key: run `cursor-sidecar login`"),
        "{line}"
    );
}
