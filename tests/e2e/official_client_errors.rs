//! How the official client handles errors: what it shows and how often it retries.

use serde_json::{Value as Json, json};

use test_support::official_client::{OfficialClient, only_send};
use test_support::simulator::{Recording, Simulator, TRANSPORTS};

/// Plays a scenario that fails, over every transport concurrently, because most of the time is
/// spent in the client's own delays.
fn fails(scenario: &str, check: impl Fn(&Json, &Recording) + Sync) {
    std::thread::scope(|scope| {
        for transport in TRANSPORTS {
            let check = &check;
            scope.spawn(move || {
                let simulator = Simulator::start(transport);
                let spec = json!({"agent": {}, "sends": [{"text": format!("@{scenario} go")}]});
                let report = OfficialClient::new().drive(&simulator, spec);
                let send = only_send(&report);
                assert_eq!(send["status"], "error", "{transport:?}: {report}");
                check(&send["error"], &simulator.recorded());
            });
        }
    });
}

#[test]
fn unauthenticated_is_final() {
    fails("error-unauthenticated", |error, recording| {
        let text = error["message"].as_str().unwrap();
        assert!(text.contains("[unauthenticated]"), "{text}");
        assert_eq!(recording.runs(), 1);
    });
}

#[test]
fn resource_exhausted_is_tried_four_times() {
    fails("error-resource-exhausted", |error, recording| {
        let text = error["message"].as_str().unwrap();
        assert!(text.contains("[resource_exhausted]"), "{text}");
        assert_eq!(recording.runs(), 4);
    });
}

#[test]
fn internal_is_tried_four_times_with_new_request_ids() {
    fails("error-internal", |error, recording| {
        let text = error["message"].as_str().unwrap();
        assert!(text.contains("[internal]"), "{text}");
        let mut runs = recording.requests("/agent.v1.AgentService/Run");
        runs.extend(recording.requests("/agent.v1.AgentService/RunSSE"));
        assert_eq!(runs.len(), 4);
        let header = |run: &Json, name: &str| run["headers"][name].as_str().unwrap().to_owned();
        let mut ids: Vec<_> = runs.iter().map(|run| header(run, "x-request-id")).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 4);
        let first = header(runs[0], "x-original-request-id");
        assert!(
            runs.iter()
                .all(|run| header(run, "x-original-request-id") == first)
        );
    });
}

#[test]
fn typed_details_are_shown_and_final() {
    fails("error-free-usage", |error, recording| {
        let text = error["message"].as_str().unwrap();
        assert!(
            !text.contains('['),
            "title and detail, not the code: {text}"
        );
        assert_eq!(recording.runs(), 1);
    });
}
