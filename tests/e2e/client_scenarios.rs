//! Our client against the scenarios of the official client.

use agent::run::{Outcome, RunEvent, Usage};
use cursor_client::failure::Failure;
use serde_json::json;

use test_support::run_client::{OnText, RunClient};
use test_support::simulator::{Simulator, TRANSPORTS, Transport};

#[tokio::test]
async fn hello_over_every_transport() {
    for transport in TRANSPORTS {
        let simulator = Simulator::start(transport);
        let reply = RunClient::new(&simulator, transport)
            .prompt("@hello there")
            .await;
        reply.finished("Hello, world!");
        let usage = Usage {
            input: Some(100),
            output: Some(20),
            cache_read: Some(30),
            cache_write: Some(4),
            reasoning: Some(5),
        };
        assert_eq!(reply.ended.usage, Some(usage));
        let recording = simulator.recording().await;
        recording.assert_played(&["completed"]);
        let path = match transport {
            Transport::Tls | Transport::H2c => "/agent.v1.AgentService/Run",
            Transport::Http1 => "/agent.v1.AgentService/RunSSE",
        };
        assert_eq!(recording.requests(path).len(), 1, "{transport:?}");
    }
}

#[tokio::test]
async fn thinking_and_text() {
    let simulator = Simulator::start(Transport::H2c);
    let reply = RunClient::new(&simulator, Transport::H2c)
        .prompt("@thinking go")
        .await;
    assert_eq!(reply.ended.outcome, Outcome::Finished);
    assert!(!reply.thinking.is_empty() && !reply.text.is_empty());
    assert!(
        reply
            .events
            .iter()
            .any(|event| matches!(event, RunEvent::ThinkingDone))
    );
}

#[tokio::test]
async fn scripts_with_expectations_are_played_to_the_end() {
    for transport in TRANSPORTS {
        let simulator = Simulator::start(transport);
        for scenario in ["kv", "gzip", "usage", "unknown"] {
            let reply = RunClient::new(&simulator, transport)
                .prompt(&format!("@{scenario} go"))
                .await;
            assert_eq!(
                reply.ended.outcome,
                Outcome::Finished,
                "{scenario} over {transport:?}"
            );
        }
        simulator.recording().await.assert_played(&["completed"; 4]);
    }
}

#[tokio::test]
async fn every_question_is_answered() {
    let simulator = Simulator::start(Transport::H2c);
    let reply = RunClient::new(&simulator, Transport::H2c)
        .prompt("@queries go")
        .await;
    assert_eq!(reply.ended.outcome, Outcome::Finished);
    simulator.recording().await.assert_played(&["completed"]);
}

#[tokio::test]
async fn unknown_questions_and_fields_are_answered_and_counted() {
    let simulator = Simulator::start(Transport::H2c);
    let mut ours = RunClient::new(&simulator, Transport::H2c);
    let reply = ours.prompt("@unknown-query go").await;
    assert_eq!(reply.ended.outcome, Outcome::Finished);
    ours.prompt("@unknown go").await.finished("still here");
    simulator
        .recording()
        .await
        .assert_played(&["completed", "completed"]);
    let counts = ours.backend.drift.counts();
    assert!(counts.contains_key("query: unknown question"), "{counts:?}");
    assert!(
        counts.contains_key("agent.v1.AgentServerMessage.60"),
        "{counts:?}"
    );
    assert!(
        counts.contains_key("agent.v1.InteractionUpdate.99"),
        "{counts:?}"
    );
    assert!(
        counts.contains_key("agent.v1.TextDeltaUpdate.50"),
        "{counts:?}"
    );
}

#[tokio::test]
async fn a_drop_after_a_checkpoint_is_resumed() {
    for transport in TRANSPORTS {
        let simulator = Simulator::start(transport);
        let reply = RunClient::new(&simulator, transport)
            .prompt("@checkpoint-drop go")
            .await;
        reply.finished("before checkpoint. after checkpoint, lost. \n\nresumed.");
        assert_eq!(reply.ended.attempts, 2);
        let recording = simulator.recording().await;
        let requests = recording.client("runRequest");
        assert_eq!(
            requests[0]["runRequest"]["runId"],
            requests[1]["runRequest"]["runId"]
        );
        assert!(
            recording
                .verdicts()
                .iter()
                .all(|v| v["failures"] == json!([]))
        );
    }
}

#[tokio::test]
async fn a_drop_without_a_checkpoint_is_not_replayed_over_shown_text() {
    let simulator = Simulator::start(Transport::H2c);
    let reply = RunClient::new(&simulator, Transport::H2c)
        .prompt("@drop-no-checkpoint go")
        .await;
    assert!(matches!(
        reply.ended.outcome,
        Outcome::Failed(Failure::Transport(_))
    ));
    assert_eq!(simulator.recording().await.runs(), 1);
}

#[tokio::test]
async fn the_next_turn_carries_the_last_checkpoint() {
    let simulator = Simulator::start(Transport::Tls);
    let mut ours = RunClient::new(&simulator, Transport::Tls);
    ours.prompt("@followup one").await;
    let reply = ours.prompt("@followup and then").await;
    assert_eq!(reply.ended.outcome, Outcome::Finished);
    simulator
        .recording()
        .await
        .assert_played(&["completed", "completed"]);
}

#[tokio::test]
async fn cancelling_ends_the_stream_at_once_and_keeps_the_conversation() {
    for transport in TRANSPORTS {
        let simulator = Simulator::start(transport);
        let mut ours = RunClient::new(&simulator, transport);
        let reply = ours
            .prompt_and("@cancel go", OnText::Cancel("cancel me"))
            .await;
        assert_eq!(reply.ended.outcome, Outcome::Cancelled);
        ours.prompt("@hello again").await.finished("Hello, world!");
        let recording = simulator.recording().await;
        assert_eq!(recording.verdicts()[0]["failures"], json!([]));
        let cancels = recording.client("conversationAction.cancelAction");
        assert_eq!(cancels.len(), 1, "{transport:?}");
    }
}

#[tokio::test]
async fn steering_reaches_the_run() {
    for transport in TRANSPORTS {
        let simulator = Simulator::start(transport);
        let mut ours = RunClient::new(&simulator, transport);
        let reply = ours
            .prompt_and("@steer go", OnText::Steer("working", "steer me left"))
            .await;
        assert_eq!(reply.ended.outcome, Outcome::Finished);
        assert!(
            reply
                .events
                .iter()
                .any(|event| matches!(event, RunEvent::Injection(_)))
        );
        simulator.recording().await.assert_played(&["completed"]);
    }
}

#[tokio::test]
async fn runs_share_one_connection() {
    let simulator = Simulator::start(Transport::Tls);
    let mut ours = RunClient::new(&simulator, Transport::Tls);
    for _ in 0..5 {
        ours.prompt("@hello again").await.finished("Hello, world!");
    }
    let recording = simulator.recording().await;
    let runs = recording.requests("/agent.v1.AgentService/Run");
    assert_eq!(runs.len(), 5);
    assert_eq!(recording.requests("/auth/exchange_user_api_key").len(), 1);
    let connections: std::collections::BTreeSet<_> = runs
        .iter()
        .map(|run| run["connection"].as_u64().unwrap())
        .collect();
    assert_eq!(connections.len(), 1);
}

#[tokio::test]
async fn many_runs_at_once() {
    let simulator = Simulator::start(Transport::H2c);
    let mut first = RunClient::new(&simulator, Transport::H2c);
    first.prompt("@hello warm").await.finished("Hello, world!");
    let backend = first.backend.clone();
    let runs = (0..50).map(|_| {
        let mut ours = RunClient::new(&simulator, Transport::H2c);
        ours.backend = backend.clone();
        async move { ours.prompt("@hello there").await.finished("Hello, world!") }
    });
    futures_util::future::join_all(runs).await;
    assert_eq!(simulator.recording().await.runs(), 51);
}
