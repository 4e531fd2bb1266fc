//! Whether Cursor's servers can be reached from here, for `cursor-sidecar doctor` and `/cursor-doctor`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method};

use crate::checkup::Finding;
use crate::config::Config;
use cursor_client::endpoint::{BaseUrl, Endpoints};
use cursor_client::error::{TransportError, WireError};
use cursor_client::headers::HttpVersion;
use cursor_client::http_clients::Http;
use cursor_client::unary::{Call, CallError};

/// How long a server may take to answer.
const DEADLINE: Duration = Duration::from_secs(3);
/// The longest answer that is read; its content does not matter.
const MAX_ANSWER: usize = 64 * 1024;

/// Connects to each server once, without a key, and returns a finding for each. A server answers
/// if it sends any response.
pub(crate) async fn check(config: &Config) -> Vec<Finding> {
    // An invalid address is reported by the checks of the settings.
    let Ok(endpoints) = Endpoints::resolve(&config.client.endpoints) else {
        return Vec::new();
    };
    let http = Http::new(config.client.trust.clone());
    let (backend, agent) = (&endpoints.backend, &endpoints.agent);
    if backend.authority() == agent.authority() {
        return vec![probe(&http, backend).await];
    }
    let (backend, agent) = tokio::join!(probe(&http, backend), probe(&http, agent));
    vec![backend, agent]
}

async fn probe(http: &Http, base: &BaseUrl) -> Finding {
    let host = base.authority();
    let call = Call {
        base,
        path: "/",
        headers: HeaderMap::new(),
        version: HttpVersion::Http1,
        deadline: DEADLINE,
    };
    let start = Instant::now();
    let answer = http.fetch_at_most(Method::HEAD, call, Bytes::new(), MAX_ANSWER);
    match answer.await {
        Ok(_)
        | Err(CallError::Wire(WireError::Transport(TransportError::MessageTooLarge { .. }))) => {
            let milliseconds = start.elapsed().as_millis();
            Finding::ok(format!("{host} answers ({milliseconds} ms)"))
        }
        Err(error) => Finding::problem(format!(
            "{host} does not answer: {error}. Check that this computer is online (behind a proxy, set HTTPS_PROXY)"
        )),
    }
}
