//! Polling for something that other processes do.

use std::time::{Duration, Instant};

/// Generous, for a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Polls until `look` returns a value; panics after a minute.
#[track_caller]
pub fn until<T>(look: impl FnMut() -> Option<T>) -> T {
    until_named("a condition", look)
}

/// The same, naming what it waited for if it panics.
#[track_caller]
pub fn until_named<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < TIMEOUT, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
