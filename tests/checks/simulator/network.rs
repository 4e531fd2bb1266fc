//! Ports, protocols, unary calls, sign-in, RunSSE with BidiAppend.

use cursor_proto::envelope::{self, Decoder, Encoding, Kind};
use cursor_sim::{Options, Sim, SimError, VerdictOutcome};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::raw_client::*;

const HELLO: &str = "{ text = \"hi\" }, { usage = {} }, { end = true }";

fn text(text: &str) -> Value {
    json!({ "interactionUpdate": { "textDelta": { "text": text } } })
}

#[tokio::test]
async fn only_loopback_addresses_are_accepted() {
    let error = Sim::start(Options {
        listen: "192.0.2.1:0".parse().unwrap(),
        ..Options::default()
    })
    .await
    .unwrap_err();
    assert!(matches!(error, SimError::NotLoopback(_)));
    assert_eq!(
        error.to_string(),
        "192.0.2.1:0 is not a loopback address: the simulator serves this machine only"
    );
}

#[tokio::test]
async fn dropping_the_simulator_closes_port_and_connections() {
    let sim = start_with(&one_run("{ text = \"hi\" }, { stall = true }")).await;
    let address = sim.address();
    let mut run = run(&sim, "x").await;
    assert_eq!(run.message().await, text("hi"));
    drop(sim);
    assert!(matches!(
        with_timeout(run.next()).await,
        StreamEvent::Broken(_)
    ));
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn each_call_accepts_only_its_kind_of_credential() {
    let sim = start(None).await;
    let at = sim.address();
    let token = format!("Bearer {}", access_token(&sim).await);
    let exchange = "/auth/exchange_user_api_key";
    let cases = [
        ("POST", exchange, Some("Bearer crsr_invalid"), 401),
        ("POST", exchange, None, 401),
        ("GET", "/v1/models", Some("Bearer crsr_any"), 200),
        ("GET", "/v1/models", Some("Bearer crsr_invalid"), 401),
        ("GET", "/v1/models", Some(token.as_str()), 401),
        ("GET", "/v1/models", None, 401),
        ("GET", "/v1/me", Some("Bearer crsr_any"), 200),
        (
            "POST",
            "/aiserver.v1.DashboardService/GetMe",
            Some(token.as_str()),
            200,
        ),
        (
            "POST",
            "/aiserver.v1.DashboardService/GetMe",
            Some("Bearer crsr_any"),
            401,
        ),
        (
            "POST",
            "/agent.v1.AgentService/RunSSE",
            Some("Bearer crsr_any"),
            401,
        ),
        (
            "GET",
            "/aiserver.v1.DashboardService/GetMe",
            Some(token.as_str()),
            405,
        ),
    ];
    for (method, path, authorization, status) in cases {
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(authorization.map(|value| ("authorization", value)));
        let reply = http1(at, method, path, &headers, b"{}").await;
        assert_eq!(reply.status, status, "{method} {path} {authorization:?}");
    }
    let reply = http1(at, "POST", "/no.such.v1.Service/Call", &[], b"").await;
    assert_eq!(reply.status, 404);
    assert_eq!(
        reply.json(),
        json!({ "code": "unimplemented", "message": "/no.such.v1.Service/Call is not implemented by the simulator" })
    );
}

#[tokio::test]
async fn a_browser_login_is_pending_once() {
    let sim = start(None).await;
    let poll = |method: &'static str, uuid: &'static str| {
        let path = format!("/auth/poll?uuid={uuid}&verifier=v");
        let body = json!({ "uuid": uuid, "verifier": "v" }).to_string();
        let at = sim.address();
        async move {
            match method {
                "GET" => http1(at, "GET", &path, &[], b"").await,
                _ => http1(at, "POST", "/auth/poll", &[], body.as_bytes()).await,
            }
        }
    };
    for (method, uuid) in [("GET", "u1"), ("POST", "u2")] {
        let pending = poll(method, uuid).await;
        assert_eq!(
            (pending.status, pending.body.as_slice()),
            (404, &b"Not found"[..])
        );
        let done = poll(method, uuid).await;
        assert_eq!(done.status, 200);
        assert!(
            done.json()["accessToken"]
                .as_str()
                .unwrap()
                .starts_with("h.")
        );
    }
}

#[tokio::test]
async fn unary_calls_accept_protobuf_and_json_on_both_http_versions() {
    let sim = start_with(&format!(
        "{}\n[server]\nhttp2 = 2\nagent_url = \"http://127.0.0.1:9\"\n",
        one_run(HELLO)
    ))
    .await;
    let authorization = format!("Bearer {}", access_token(&sim).await);
    let headers = |content_type| {
        [
            ("authorization", authorization.as_str()),
            ("content-type", content_type),
        ]
    };
    let path = "/aiserver.v1.ServerConfigService/GetServerConfig";
    let response = "aiserver.v1.GetServerConfigResponse";
    let expected = json!({
        "configVersion": "simulated",
        "http2Config": "HTTP2_CONFIG_FORCE_ALL_ENABLED",
        "agentUrlConfig": { "agentUrl": "http://127.0.0.1:9", "agentnUrl": "http://127.0.0.1:9" },
    });
    let binary = http1(
        sim.address(),
        "POST",
        path,
        &headers("application/proto"),
        b"",
    )
    .await;
    assert_eq!(decode(response, &binary.body), expected);
    assert!(binary.head.contains("content-type: application/proto"));
    let text = http1(
        sim.address(),
        "POST",
        path,
        &headers("application/json"),
        b"{}",
    )
    .await;
    assert_eq!(encode(response, &text.json()), encode(response, &expected));

    let mut connection = Http2Client::connect(&sim).await;
    let (status, body) = connection
        .unary(path, &headers("application/proto"), Vec::new())
        .await;
    assert_eq!((status, decode(response, &body)), (200, expected));
    let (status, body) = connection
        .unary(
            "/aiserver.v1.AiService/AvailableModels",
            &headers("application/proto"),
            vec![0x28, 1],
        )
        .await;
    assert_eq!(status, 200);
    let models = decode("aiserver.v1.AvailableModelsResponse", &body);
    let names = models["modelNames"].as_array().unwrap();
    assert_eq!(names.len(), 34);
    let sonnet = names.iter().position(|name| name == "claude-sonnet-4-6");
    let variants = &models["models"][sonnet.unwrap()]["variants"];
    let large = json!({"id": "context", "value": "1m"});
    for variant in variants.as_array().unwrap() {
        let values = variant["parameterValues"].as_array().unwrap();
        assert_eq!(variant["isMaxMode"] == true, values.contains(&large));
    }
    for path in [
        "/agent.v1.AgentService/GetUsableModels",
        "/aiserver.v1.AiService/GetUsableModels",
    ] {
        let (_, body) = connection
            .unary(path, &headers("application/proto"), Vec::new())
            .await;
        let models = decode("agent.v1.GetUsableModelsResponse", &body);
        assert_eq!(models["models"][0]["modelId"], "claude-fable-5");
    }
    let (status, body) = connection
        .unary(path, &headers("text/plain"), Vec::new())
        .await;
    let error: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (status, &error["message"]),
        (415, &json!("unsupported content type \"text/plain\""))
    );
    let bad = http1(
        sim.address(),
        "POST",
        path,
        &headers("application/json"),
        b"{\"nope\":1}",
    )
    .await;
    assert_eq!(
        (bad.status, &bad.json()["code"]),
        (400, &json!("invalid_argument"))
    );
}

#[tokio::test]
async fn tls_serves_runs_over_h2_and_calls_without_alpn() {
    let sim = start_tls(Some(&one_run(HELLO))).await;
    assert!(sim.url().starts_with("https://127.0.0.1:"));
    // Without ALPN the connection is HTTP/1.1.
    let headers = [("authorization", "Bearer crsr_any")];
    let stream = tls(&sim, &[]).await;
    let reply = http1_on(
        stream,
        "POST",
        "/auth/exchange_user_api_key",
        &headers,
        b"{}",
    )
    .await;
    let token = reply.json()["accessToken"].as_str().unwrap().to_owned();
    let stream = tls(&sim, &["http/1.1"]).await;
    let reply = http1_on(stream, "GET", "/v1/models", &headers, b"").await;
    assert_eq!(reply.status, 200);

    let mut connection = Http2Client::on(tls(&sim, &["h2", "http/1.1"]).await).await;
    let mut run = connection.run(&token, user_message("x")).await;
    assert_eq!(run.message().await, text("hi"));
    assert_eq!(
        run.message().await,
        json!({ "interactionUpdate": { "turnEnded": {} } })
    );
    assert_eq!(run.next().await, StreamEvent::End(json!({})));
    assert_eq!(run.next().await, StreamEvent::Closed { truncated: false });
    let requests = sim.recording().requests();
    let seen: Vec<_> = requests
        .iter()
        .map(|r| (r.version, r.tls, r.connection))
        .collect();
    assert_eq!(seen, [("1.1", true, 1), ("1.1", true, 2), ("2", true, 3)]);
}

#[tokio::test]
async fn run_needs_http2() {
    let sim = start_with(&one_run(HELLO)).await;
    let authorization = format!("Bearer {}", access_token(&sim).await);
    let headers = [("authorization", authorization.as_str())];
    let reply = http1(
        sim.address(),
        "POST",
        "/agent.v1.AgentService/Run",
        &headers,
        b"",
    )
    .await;
    assert_eq!(reply.status, 505);
}

/// Appends one client message, as hex or binary.
async fn append(sim: &Sim, token: &str, seqno: u64, message: Value, binary: bool) -> Http1Response {
    let message = encode("agent.v1.AgentClientMessage", &message);
    let mut request = json!({ "requestId": { "requestId": "sse-1" }, "appendSeqno": seqno });
    if binary {
        use base64::Engine as _;
        let data = base64::engine::general_purpose::STANDARD.encode(&message);
        request["dataBinary"] = data.into();
    } else {
        let hex: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
        request["data"] = hex.into();
    }
    let authorization = format!("Bearer {token}");
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/proto"),
    ];
    let body = encode("aiserver.v1.BidiAppendRequest", &request);
    http1(
        sim.address(),
        "POST",
        "/aiserver.v1.BidiService/BidiAppend",
        &headers,
        &body,
    )
    .await
}

async fn run_sse(sim: &Sim, token: &str) -> Http1Response {
    let id = encode(
        "aiserver.v1.BidiRequestId",
        &json!({ "requestId": "sse-1" }),
    );
    let authorization = format!("Bearer {token}");
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/connect+proto"),
    ];
    let body = envelope::encode(Kind::Message, &id);
    http1(
        sim.address(),
        "POST",
        "/agent.v1.AgentService/RunSSE",
        &headers,
        &body,
    )
    .await
}

#[tokio::test]
async fn appended_messages_are_ordered_by_sequence_number() {
    let sim = start_with(&one_run(
        "{ kv_set = { text = \"a\" } }, { kv_set = { text = \"b\" } }, { text = \"done\" }, { usage = {} }, { end = true }",
    ))
    .await;
    let token = access_token(&sim).await;
    let kv = |id: u32| json!({ "kvClientMessage": { "id": id, "setBlobResult": {} } });
    // Messages arrive before RunSSE, out of order and twice.
    let request = json!({ "runRequest": user_message("x") });
    assert_eq!(
        append(&sim, &token, 0, request.clone(), false).await.status,
        200
    );
    let run = async {
        let reply = run_sse(&sim, &token).await;
        assert!(reply.complete);
        reply
    };
    let appends = async {
        let recording = sim.recording();
        let requested = |expected: usize| {
            move |recording: &cursor_sim::RecordingHandle| {
                let frames = recording.frames();
                let kv = frames
                    .iter()
                    .filter(|f| f.kind == "kvServerMessage.setBlobArgs");
                (kv.count() >= expected).then_some(())
            }
        };
        recording.wait_for(requested(1)).await;
        assert_eq!(
            append(&sim, &token, 0, request.clone(), false).await.status,
            200
        );
        assert_eq!(
            append(&sim, &token, 2, json!({ "clientHeartbeat": {} }), false)
                .await
                .status,
            200
        );
        assert_eq!(append(&sim, &token, 1, kv(1), true).await.status, 200);
        recording.wait_for(requested(2)).await;
        assert_eq!(append(&sim, &token, 3, kv(2), false).await.status, 200);
    };
    let (reply, ()) = with_timeout(async { tokio::join!(run, appends) }).await;
    let mut decoder = Decoder::default();
    decoder.push(&reply.body);
    let mut last = Value::Null;
    while let Some(envelope) = decoder.next_envelope().unwrap() {
        if envelope.kind() == Kind::EndStream {
            let payload = envelope.into_payload(Encoding::Identity).unwrap();
            last = serde_json::from_slice(&payload).unwrap();
        }
    }
    assert_eq!(last, json!({}));
    assert_eq!(verdict(&sim).await.outcome, VerdictOutcome::Completed);
    let kinds: Vec<String> = sim
        .recording()
        .frames()
        .into_iter()
        .filter(|frame| frame.from == cursor_sim::Side::Client)
        .map(|frame| frame.kind)
        .collect();
    assert_eq!(
        kinds,
        [
            "runRequest",
            "kvClientMessage.setBlobResult",
            "clientHeartbeat",
            "kvClientMessage.setBlobResult"
        ]
    );

    let late = append(&sim, &token, 4, json!({ "clientHeartbeat": {} }), false).await;
    assert_eq!(
        (late.status, &late.json()["code"]),
        (404, &json!("not_found"))
    );
    assert_eq!(run_sse(&sim, &token).await.status, 409);
}

#[tokio::test]
async fn an_expired_token_is_rejected() {
    let sim = start_with(&format!("{}\n[server]\ntoken_ttl_ms = 0\n", one_run(HELLO))).await;
    let authorization = format!("Bearer {}", access_token(&sim).await);
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
    ];
    let path = "/aiserver.v1.DashboardService/GetMe";
    let reply = http1(sim.address(), "POST", path, &headers, b"{}").await;
    assert_eq!(
        (reply.status, reply.json()),
        (
            401,
            json!({ "code": "unauthenticated", "message": "the access token has expired" })
        )
    );
}

#[tokio::test]
async fn canned_replies_apply_after_and_for_the_given_calls() {
    let sim = start_with(&format!(
        "{}\n[server.unary.\"/v1/models\"]\nlate_ms = 1\n[server.unary.\"/v1/me\"]\nstatus = 503\nafter = 1\ntimes = 1\n[server.unary.\"/agent.v1.AgentService/RunSSE\"]\nstatus = 404\n",
        one_run(HELLO)
    ))
    .await;
    let headers = [("authorization", "Bearer crsr_any")];
    let status = async |path| {
        http1(sim.address(), "GET", path, &headers, b"")
            .await
            .status
    };
    assert_eq!(status("/v1/models").await, 200);
    let statuses = [
        status("/v1/me").await,
        status("/v1/me").await,
        status("/v1/me").await,
    ];
    assert_eq!(statuses, [200, 503, 200]);
    assert_eq!(status("/agent.v1.AgentService/RunSSE").await, 404);
}

#[tokio::test]
async fn canned_replies_end_after_their_count() {
    let sim = start_with(&format!(
        "{}\n[server.unary.\"/v1/models\"]\nstatus = 503\nbody = {{ message = \"later\" }}\ntimes = 1\n",
        one_run(HELLO)
    ))
    .await;
    let headers = [("authorization", "Bearer crsr_any")];
    let first = http1(sim.address(), "GET", "/v1/models", &headers, b"").await;
    assert_eq!(
        (first.status, first.json()),
        (503, json!({ "message": "later" }))
    );
    let second = http1(sim.address(), "GET", "/v1/models", &headers, b"").await;
    assert_eq!(second.status, 200);
}
