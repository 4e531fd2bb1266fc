//! SIGTERM, SIGHUP and SIGINT.

use tokio::signal::unix::{SignalKind, signal};

/// Resolves when a signal asks the process to end. Children are only ended by an orderly shutdown.
pub(crate) async fn shutdown_requested() {
    let kinds = [
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::interrupt(),
    ];
    let [Ok(mut terminate), Ok(mut hang_up), Ok(mut interrupt)] = kinds.map(signal) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
        _ = interrupt.recv() => {}
    }
}
