//! Every fault, seen from the wire.

use std::future::poll_fn;

use cursor_sidecar::sim::{Outcome, Sim};
use cursor_sidecar::wire::envelope::{self, Kind};
use serde_json::{Value, json};

use crate::client::*;

fn text(text: &str) -> Value {
    json!({ "interactionUpdate": { "textDelta": { "text": text } } })
}

/// A run that says "half" and then does this.
async fn after_half(fault: &str) -> (Sim, Run) {
    let sim = playing(&one_run(&format!("{{ text = \"half\" }}, {fault}"))).await;
    let mut run = run(&sim, "x").await;
    // What came before a fault always arrives.
    assert_eq!(within(run.message()).await, text("half"));
    (sim, run)
}

#[tokio::test]
async fn a_reset_has_its_code() {
    for (fault, code) in [("\"cancel\"", 8), ("\"internal_error\"", 2), ("7", 7)] {
        let (sim, mut run) = after_half(&format!("{{ reset = {fault} }}")).await;
        assert_eq!(within(run.next()).await, Event::Broken(Some(code)));
        assert_eq!(verdict(&sim).await.outcome, Outcome::Completed);
    }
}

#[tokio::test]
async fn goaway_has_its_code_and_ends_the_connection() {
    for (fault, code) in [("no_error", 0), ("enhance_your_calm", 11)] {
        let sim = playing(&one_run(&format!(
            "{{ text = \"half\" }}, {{ goaway = \"{fault}\" }}"
        )))
        .await;
        let token = access_token(&sim).await;
        let mut connection = Http2::connect(&sim).await;
        let mut run = connection.run(&token, user_message("x")).await;
        assert_eq!(run.message().await, text("half"));
        assert!(matches!(within(run.next()).await, Event::Broken(_)));
        let ended = within(connection.ended).await.unwrap();
        let seen = ended
            .err()
            .and_then(|error| error.reason())
            .map_or(0, u32::from);
        assert_eq!(seen, code);
    }
}

#[tokio::test]
async fn a_half_close_has_no_end_envelope() {
    let (_sim, mut run) = after_half("{ half_close = true }").await;
    assert_eq!(within(run.next()).await, Event::Closed { torn: false });
}

#[tokio::test]
async fn a_truncated_envelope_is_torn() {
    for bytes in [3, 9] {
        let (_sim, mut run) = after_half(&format!("{{ truncate = {bytes} }}")).await;
        assert_eq!(within(run.next()).await, Event::Closed { torn: true });
    }
}

#[tokio::test]
async fn garbage_and_giants_are_sent_as_they_are() {
    for (fault, wanted) in [
        (
            "{ garbage = \"48 54 54 50\" }",
            vec![0x48, 0x54, 0x54, 0x50],
        ),
        ("{ oversized = 4294967295 }", vec![0, 255, 255, 255, 255]),
    ] {
        let sim = playing(&one_run(fault)).await;
        let mut run = run(&sim, "x").await;
        let mut body = Vec::new();
        while let Some(data) = within(run.body.data()).await {
            body.extend_from_slice(&data.unwrap());
        }
        // After such bytes an end-of-stream envelope would make no sense.
        assert_eq!(body, wanted);
    }
}

#[tokio::test]
async fn a_cut_drops_the_connection() {
    let (_sim, mut run) = after_half("{ cut = true }").await;
    assert!(matches!(within(run.next()).await, Event::Broken(_)));
}

#[tokio::test]
async fn a_drip_comes_in_pieces() {
    let sim = playing(&one_run(
        "{ drip = { text = \"slow\", bytes = 2, every_ms = 1 } }, { usage = {} }, { end = true }",
    ))
    .await;
    let mut run = run(&sim, "x").await;
    let first = within(run.body.data()).await.unwrap().unwrap();
    assert!(first.len() <= 4, "{} bytes at once", first.len());
    let mut whole = first.to_vec();
    while let Some(data) = within(run.body.data()).await {
        whole.extend_from_slice(&data.unwrap());
    }
    let wanted = encode("agent.v1.AgentServerMessage", &text("slow"));
    assert!(whole.starts_with(&envelope::encode(Kind::Message, &wanted)));
}

#[tokio::test]
async fn a_held_window_does_not_grow() {
    let sim = playing(&one_run(
        "{ hold_window = true }, { text = \"held\" }, { expect_cancel = true }",
    ))
    .await;
    let token = access_token(&sim).await;
    let mut connection = Http2::connect(&sim).await;
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
        within(connection.pings.ping(h2::Ping::opaque()))
            .await
            .unwrap();
    }
    assert!(sent < 65_536, "{sent} bytes went out");
    run.send.send_reset(h2::Reason::CANCEL);
    // The zeros were no envelopes anybody could take; leaving is what counts.
    verdict(&sim).await;
}

#[tokio::test]
async fn a_window_that_is_not_held_grows() {
    let sim = playing(&one_run("{ text = \"open\" }, { expect_cancel = true }")).await;
    let mut run = run(&sim, "x").await;
    assert_eq!(run.message().await, text("open"));
    let mut sent = 0;
    while sent < 200_000 {
        run.send.reserve_capacity(16_384);
        let room = within(poll_fn(|cx| run.send.poll_capacity(cx)))
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
    assert_eq!(verdict(&sim).await.outcome, Outcome::CancelledByClient);
}

#[tokio::test]
async fn a_stall_lasts_until_the_client_leaves() {
    let (sim, mut run) = after_half("{ stall = true }").await;
    run.send.send_reset(h2::Reason::CANCEL);
    let verdict = verdict(&sim).await;
    assert_eq!(
        (verdict.outcome, verdict.failures),
        (Outcome::CancelledByClient, vec![])
    );
}

#[tokio::test]
async fn leaving_is_noticed_in_every_form() {
    let scenario = one_run("{ text = \"half\" }, { expect_cancel = true }");
    // A half-close alone: the server ends its side too.
    let sim = playing(&scenario).await;
    let mut half = run(&sim, "x").await;
    half.message().await;
    half.send.send_data(bytes::Bytes::new(), true).unwrap();
    assert_eq!(
        within(half.next()).await,
        Event::End(json!({ "error": { "code": "canceled", "message": "the client left" } }))
    );
    assert_eq!(verdict(&sim).await.outcome, Outcome::CancelledByClient);

    // The connection goes.
    let sim = playing(&scenario).await;
    let token = access_token(&sim).await;
    let mut connection = Http2::connect(&sim).await;
    let mut gone = connection.run(&token, user_message("x")).await;
    gone.message().await;
    connection.ended.abort();
    assert_eq!(verdict(&sim).await.outcome, Outcome::CancelledByClient);
}

#[tokio::test]
async fn statuses_replace_the_stream() {
    let sim = playing(&one_run(
        "{ status = 429, body = { code = \"resource_exhausted\" }, headers = { retry-after = \"3\" } }",
    ))
    .await;
    let mut limited = run(&sim, "x").await;
    assert_eq!(limited.status, 429);
    assert_eq!(limited.headers["retry-after"], "3");
    let body = limited.body.data().await.unwrap().unwrap();
    assert_eq!(body, "{\"code\":\"resource_exhausted\"}");

    let sim = playing(&one_run("{ status = 503, trailers_only = true }")).await;
    let bare = run(&sim, "x").await;
    assert_eq!(bare.status, 503);
    assert!(bare.body.is_end_stream());
}

#[tokio::test]
async fn gzip_is_announced_and_used_to_the_end() {
    let scenario = "name = \"t\"\n[[run]]\ngzip = true\nsteps = [{ text = \"packed\" }, { usage = {} }, { end = true }]";
    let sim = playing(scenario).await;
    let mut run = run(&sim, "x").await;
    assert_eq!(run.headers["connect-content-encoding"], "gzip");
    assert_eq!(run.message().await, text("packed"));
    run.message().await;
    assert_eq!(run.next().await, Event::End(json!({})));
    let flags: Vec<u8> = sim
        .recording()
        .frames()
        .iter()
        .map(|frame| frame.flags)
        .collect();
    assert_eq!(flags, [0, 1, 1, 3]);
}

/// Opens RunSSE with its request already appended and reads until the connection closes.
async fn sse(scenario: &str) -> Reply {
    let sim = playing(scenario).await;
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
    within(http1(
        sim.address(),
        "POST",
        "/agent.v1.AgentService/RunSSE",
        &headers("application/connect+proto"),
        &envelope::encode(Kind::Message, &id),
    ))
    .await
}

#[tokio::test]
async fn http1_is_cut_where_http2_is_reset() {
    let half = envelope::encode(
        Kind::Message,
        &encode("agent.v1.AgentServerMessage", &text("half")),
    );
    for fault in ["cut = true", "reset = \"cancel\"", "goaway = \"no_error\""] {
        let reply = sse(&one_run(&format!("{{ text = \"half\" }}, {{ {fault} }}"))).await;
        assert_eq!((reply.status, reply.whole), (200, false), "{fault}");
        assert_eq!(reply.body, half, "{fault}");
    }
    let reply = sse(&one_run("{ text = \"half\" }, { half_close = true }")).await;
    assert_eq!((reply.status, reply.whole), (200, true));
    assert_eq!(reply.body, half);
}
