//! `GET /metrics`: the counters of the process in Prometheus format, and what is open now.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;

use super::router::{GatewayState, MAX_TURNS};
use foundation::metrics::counters;

/// Unknown fields and kinds on the wire, by kind.
const DRIFT: &str = "cursor_wire_drift";

/// Requests, by path and status.
const REQUESTS: &str = "cursor_gateway.requests";
/// The paths that are counted by name. Others are counted together, because a client may send any
/// number of them.
const PATHS: [&str; 7] = [
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/models",
    "/health",
    "/metrics",
];

/// Counts a request when its status is known. A streamed answer may still fail; that is counted
/// with the run.
pub(super) async fn count_request(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let path = PATHS.into_iter().find(|known| *known == path);
    let response = next.run(request).await;
    let (path, status) = (path.unwrap_or("other"), response.status());
    counters().count(REQUESTS, &[("path", path), ("status", status.as_str())]);
    response
}

/// Returns all counters.
pub(super) async fn show(State(state): State<Arc<GatewayState>>) -> impl IntoResponse {
    let drift = state.backends.in_use();
    let drift = drift.map(|backend| backend.drift.counts());
    let mut text = text(&counters().counts(), &drift.unwrap_or_default());
    let active = MAX_TURNS - state.turn_permits.available_permits();
    let parked = state.sessions.parked_count();
    for (name, count) in [("active", active), ("parked", parked)] {
        let _ = writeln!(text, "# TYPE cursor_gateway_turns_{name} gauge");
        let _ = writeln!(text, "cursor_gateway_turns_{name} {count}");
    }
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(CONTENT_TYPE, kind)], text)
}

fn text(counts: &BTreeMap<String, u64>, drift: &BTreeMap<String, u64>) -> String {
    let mut families: BTreeMap<String, Vec<(&str, u64)>> = BTreeMap::new();
    for (name, count) in counts {
        let (family, labels) = name.split_at(name.find('{').unwrap_or(name.len()));
        let family = family.replace('.', "_");
        families.entry(family).or_default().push((labels, *count));
    }
    let mut text = String::new();
    for (family, samples) in families {
        let _ = writeln!(text, "# TYPE {family} counter");
        for (labels, count) in samples {
            let _ = writeln!(text, "{family}{labels} {count}");
        }
    }
    let _ = writeln!(text, "# TYPE {DRIFT} counter");
    for (what, count) in drift {
        let what = what.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = writeln!(text, "{DRIFT}{{what=\"{what}\"}} {count}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_one_metric_family() {
        let counts = [
            (r#"a.b{reason="x",model="m"}"#, 2),
            (r#"a.b{reason="y",model="m"}"#, 1),
            ("c.d", 7),
        ];
        let counts = counts.map(|(name, count)| (name.to_owned(), count));
        let drift = BTreeMap::from([(r#"field "9""#.to_owned(), 3)]);
        insta::assert_snapshot!(text(&BTreeMap::from(counts), &drift), @r#"
        # TYPE a_b counter
        a_b{reason="x",model="m"} 2
        a_b{reason="y",model="m"} 1
        # TYPE c_d counter
        c_d 7
        # TYPE cursor_wire_drift counter
        cursor_wire_drift{what="field \"9\""} 3
        "#);
    }
}
