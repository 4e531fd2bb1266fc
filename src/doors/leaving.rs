//! When a process that serves has to go.

use tokio::signal::unix::{SignalKind, signal};

/// Resolves when a signal asks us to end. Children are only seen off by an end in order.
pub(super) async fn told_to_leave() {
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
