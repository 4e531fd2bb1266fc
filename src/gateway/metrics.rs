//! `GET /metrics`: the counters of the process in Prometheus format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;

use super::router::GatewayState;
use foundation::metrics::counters;

/// Unknown fields and kinds on the wire, by kind.
const DRIFT: &str = "cursor_wire_drift";

/// Returns all counters.
pub(super) async fn show(State(state): State<Arc<GatewayState>>) -> impl IntoResponse {
    let drift = state.backends.in_use();
    let drift = drift.map(|backend| backend.drift.counts());
    let text = text(&counters().counts(), &drift.unwrap_or_default());
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
