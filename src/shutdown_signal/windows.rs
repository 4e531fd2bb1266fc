//! Ctrl-C, Ctrl-Break, and the end of the console, the session or the system.

use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_logoff, ctrl_shutdown};

/// Resolves when an event asks the process to end.
pub(crate) async fn shutdown_requested() {
    let (Ok(mut stop), Ok(mut interrupt), Ok(mut close), Ok(mut log_off), Ok(mut shut_down)) = (
        ctrl_c(),
        ctrl_break(),
        ctrl_close(),
        ctrl_logoff(),
        ctrl_shutdown(),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = stop.recv() => {}
        _ = interrupt.recv() => {}
        _ = close.recv() => {}
        _ = log_off.recv() => {}
        _ = shut_down.recv() => {}
    }
}
