//! Every fault as a client observes it.

use std::future::poll_fn;

use cursor_proto::envelope::{self, Kind};
use cursor_sim::{Sim, VerdictOutcome};
use serde_json::{Value, json};

use super::raw_client::*;

fn text(text: &str) -> Value {
    json!({ "interactionUpdate": { "textDelta": { "text": text } } })
}

/// Starts a run that sends "half" and then causes this fault.
async fn after_half(fault: &str) -> (Sim, ClientRun) {
    let sim = start_with(&one_run(&format!("{{ text = \"half\" }}, {fault}"))).await;
    let mut run = run(&sim, "x").await;
    // Data sent before a fault always arrives.
    assert_eq!(with_timeout(run.message()).await, text("half"));
    (sim, run)
}

#[tokio::test]
async fn a_reset_has_the_code_of_its_step() {
    for (fault, code) in [("\"cancel\"", 8), ("\"internal_error\"", 2), ("7", 7)] {
        let (sim, mut run) = after_half(&format!("{{ reset = {fault} }}")).await;
        assert_eq!(
            with_timeout(run.next()).await,
            StreamEvent::Broken(Some(code))
        );
        assert_eq!(verdict(&sim).await.outcome, VerdictOutcome::Completed);
    }
}

#[tokio::test]
async fn goaway_has_the_code_of_its_step_and_ends_the_connection() {
    for (fault, code) in [("no_error", 0), ("enhance_your_calm", 11)] {
        let sim = start_with(&one_run(&format!(
            "{{ text = \"half\" }}, {{ goaway = \"{fault}\" }}"
        )))
        .await;
        let token = access_token(&sim).await;
        let mut connection = Http2Client::connect(&sim).await;
        let mut run = connection.run(&token, user_message("x")).await;
        assert_eq!(run.message().await, text("half"));
        assert!(matches!(
            with_timeout(run.next()).await,
            StreamEvent::Broken(_)
        ));
        let ended = with_timeout(connection.ended).await.unwrap();
        let seen = ended
            .err()
            .and_then(|error| error.reason())
            .map_or(0, u32::from);
        assert_eq!(seen, code);
    }
}

#[tokio::test]
async fn a_half_close_sends_no_end_of_stream_envelope() {
    let (_sim, mut run) = after_half("{ half_close = true }").await;
    assert_eq!(
        with_timeout(run.next()).await,
        StreamEvent::Closed { truncated: false }
    );
}

#[tokio::test]
async fn truncate_ends_the_body_within_an_envelope() {
    for bytes in [3, 9] {
        let (_sim, mut run) = after_half(&format!("{{ truncate = {bytes} }}")).await;
        assert_eq!(
            with_timeout(run.next()).await,
            StreamEvent::Closed { truncated: true }
        );
    }
}

#[tokio::test]
async fn garbage_and_oversized_prefixes_are_sent_unchanged() {
    for (fault, expected) in [
        (
            "{ garbage = \"48 54 54 50\" }",
            vec![0x48, 0x54, 0x54, 0x50],
        ),
        ("{ oversized = 4294967295 }", vec![0, 255, 255, 255, 255]),
    ] {
        let sim = start_with(&one_run(fault)).await;
        let mut run = run(&sim, "x").await;
        let mut body = Vec::new();
        while let Some(data) = with_timeout(run.body.data()).await {
            body.extend_from_slice(&data.unwrap());
        }
        // No end-of-stream envelope follows, because the stream is corrupted.
        assert_eq!(body, expected);
    }
}

#[tokio::test]
async fn a_cut_drops_the_connection() {
    let (_sim, mut run) = after_half("{ cut = true }").await;
    assert!(matches!(
        with_timeout(run.next()).await,
        StreamEvent::Broken(_)
    ));
}

#[tokio::test]
async fn drip_sends_an_envelope_in_pieces() {
    let sim = start_with(&one_run(
        "{ drip = { text = \"slow\", bytes = 2, every_ms = 1 } }, { usage = {} }, { end = true }",
    ))
    .await;
    let mut run = run(&sim, "x").await;
    let first = with_timeout(run.body.data()).await.unwrap().unwrap();
    assert!(first.len() <= 4, "{} bytes at once", first.len());
    let mut body = first.to_vec();
    while let Some(data) = with_timeout(run.body.data()).await {
        body.extend_from_slice(&data.unwrap());
    }
    let expected = encode("agent.v1.AgentServerMessage", &text("slow"));
    assert!(body.starts_with(&envelope::encode(Kind::Message, &expected)));
}

#[tokio::test]
async fn a_held_window_is_not_replenished() {
    let sim = start_with(&one_run(
        "{ hold_window = true }, { text = \"held\" }, { expect_cancel = true }",
    ))
    .await;
    let token = access_token(&sim).await;
    let mut connection = Http2Client::connect(&sim).await;
    let mut run = connection.run(&token, user_message("x")).await;
    assert_eq!(run.message().await, text("held"));
    run.send.reserve_capacity(200_000);
    let mut sent = 0;
    for _ in 0..10 {
        let room = run.send.capacity();
        if room > 0 {
            sent += room;
            run.send.send_data(vec![0; room].into(), false).unwrap();
            run.send.reserve_capacity(200_000);
        }
        with_timeout(connection.pings.ping(h2::Ping::opaque()))
            .await
            .unwrap();
    }
    assert!(sent < 65_536, "{sent} bytes went out");
    run.send.send_reset(h2::Reason::CANCEL);
    // The zeros are not valid envelopes, so only the end of the run matters here.
    verdict(&sim).await;
}

#[tokio::test]
async fn a_window_that_is_not_held_is_replenished() {
    let sim = start_with(&one_run("{ text = \"open\" }, { expect_cancel = true }")).await;
    let mut run = run(&sim, "x").await;
    assert_eq!(run.message().await, text("open"));
    let mut sent = 0;
    while sent < 200_000 {
        run.send.reserve_capacity(16_384);
        let room = with_timeout(poll_fn(|cx| run.send.poll_capacity(cx)))
            .await
            .unwrap()
            .unwrap();
        let heartbeat = envelope::encode(Kind::Message, &[0x3a, 0x00]);
        let count = room / heartbeat.len();
        sent += count * heartbeat.len();
        run.send
            .send_data(heartbeat.repeat(count).into(), false)
            .unwrap();
    }
    run.send.send_reset(h2::Reason::CANCEL);
    assert_eq!(
        verdict(&sim).await.outcome,
        VerdictOutcome::CancelledByClient
    );
}

#[tokio::test]
async fn a_stall_lasts_until_the_client_disconnects() {
    let (sim, mut run) = after_half("{ stall = true }").await;
    run.send.send_reset(h2::Reason::CANCEL);
    let verdict = verdict(&sim).await;
    assert_eq!(
        (verdict.outcome, verdict.failures),
        (VerdictOutcome::CancelledByClient, vec![])
    );
}

#[tokio::test]
async fn every_kind_of_disconnect_ends_the_run() {
    let scenario = one_run("{ text = \"half\" }, { expect_cancel = true }");
    // A half-close alone: the server ends its side too.
    let sim = start_with(&scenario).await;
    let mut half = run(&sim, "x").await;
    half.message().await;
    half.send.send_data(bytes::Bytes::new(), true).unwrap();
    assert_eq!(
        with_timeout(half.next()).await,
        StreamEvent::End(json!({ "error": { "code": "canceled", "message": "the client left" } }))
    );
    assert_eq!(
        verdict(&sim).await.outcome,
        VerdictOutcome::CancelledByClient
    );

    // The connection is lost.
    let sim = start_with(&scenario).await;
    let token = access_token(&sim).await;
    let mut connection = Http2Client::connect(&sim).await;
    let mut gone = connection.run(&token, user_message("x")).await;
    gone.message().await;
    connection.ended.abort();
    assert_eq!(
        verdict(&sim).await.outcome,
        VerdictOutcome::CancelledByClient
    );
}

#[tokio::test]
async fn status_replaces_the_stream() {
    let sim = start_with(&one_run(
        "{ status = 429, body = { code = \"resource_exhausted\" }, headers = { retry-after = \"3\" } }",
    ))
    .await;
    let mut limited = run(&sim, "x").await;
    assert_eq!(limited.status, 429);
    assert_eq!(limited.headers["retry-after"], "3");
    let body = limited.body.data().await.unwrap().unwrap();
    assert_eq!(body, "{\"code\":\"resource_exhausted\"}");

    let sim = start_with(&one_run("{ status = 503, trailers_only = true }")).await;
    let bare = run(&sim, "x").await;
    assert_eq!(bare.status, 503);
    assert!(bare.body.is_end_stream());
}

#[tokio::test]
async fn gzip_is_announced_and_used_for_all_envelopes() {
    let scenario = "name = \"t\"\n[[run]]\ngzip = true\nsteps = [{ text = \"packed\" }, { usage = {} }, { end = true }]";
    let sim = start_with(scenario).await;
    let mut run = run(&sim, "x").await;
    assert_eq!(run.headers["connect-content-encoding"], "gzip");
    assert_eq!(run.message().await, text("packed"));
    run.message().await;
    assert_eq!(run.next().await, StreamEvent::End(json!({})));
    let flags: Vec<u8> = sim
        .recording()
        .frames()
        .iter()
        .map(|frame| frame.flags)
        .collect();
    assert_eq!(flags, [0, 1, 1, 3]);
}

/// Appends a run request, opens RunSSE and reads until the connection closes.
async fn sse(scenario: &str) -> Http1Response {
    let sim = start_with(scenario).await;
    let authorization = format!("Bearer {}", access_token(&sim).await);
    let message = encode(
        "agent.v1.AgentClientMessage",
        &json!({ "runRequest": user_message("x") }),
    );
    let hex: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
    let append = json!({ "data": hex, "requestId": { "requestId": "r" } });
    let headers = |kind| {
        [
            ("authorization", authorization.as_str()),
            ("content-type", kind),
        ]
    };
    let path = "/aiserver.v1.BidiService/BidiAppend";
    http1(
        sim.address(),
        "POST",
        path,
        &headers("application/proto"),
        &encode("aiserver.v1.BidiAppendRequest", &append),
    )
    .await;
    let id = encode("aiserver.v1.BidiRequestId", &json!({ "requestId": "r" }));
    with_timeout(http1(
        sim.address(),
        "POST",
        "/agent.v1.AgentService/RunSSE",
        &headers("application/connect+proto"),
        &envelope::encode(Kind::Message, &id),
    ))
    .await
}

#[tokio::test]
async fn http1_drops_the_connection_instead_of_a_reset() {
    let half = envelope::encode(
        Kind::Message,
        &encode("agent.v1.AgentServerMessage", &text("half")),
    );
    for fault in ["cut = true", "reset = \"cancel\"", "goaway = \"no_error\""] {
        let reply = sse(&one_run(&format!("{{ text = \"half\" }}, {{ {fault} }}"))).await;
        assert_eq!((reply.status, reply.complete), (200, false), "{fault}");
        assert_eq!(reply.body, half, "{fault}");
    }
    let reply = sse(&one_run("{ text = \"half\" }, { half_close = true }")).await;
    assert_eq!((reply.status, reply.complete), (200, true));
    assert_eq!(reply.body, half);
}
