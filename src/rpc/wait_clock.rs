//! The line that says what a turn waits for, with the seconds that it takes.

use std::time::Duration;

use tokio::time::Instant;

use super::peer::Peer;
use super::protocol::{HostEvent, TurnEventParams};
use foundation::presentable;

/// How often the seconds are updated.
const TICK: Duration = Duration::from_secs(1);
/// Shorter waits are displayed without their time.
const SHORT: u64 = 2;

/// The current wait of a turn.
pub(super) struct WaitClock<'a> {
    peer: &'a Peer,
    turn_id: &'a str,
    /// Whether the host displays waits.
    is_shown: bool,
    current: Option<(String, Instant)>,
    next_tick: Instant,
}

impl<'a> WaitClock<'a> {
    pub(super) fn new(peer: &'a Peer, turn_id: &'a str, is_shown: bool) -> Self {
        Self {
            peer,
            turn_id,
            is_shown,
            current: None,
            next_tick: Instant::now(),
        }
    }

    /// Starts another wait and sends it.
    pub(super) async fn begin(&mut self, line: String) {
        if self.is_shown {
            self.current = Some((line, Instant::now()));
            self.send().await;
        }
    }

    /// Sends that nothing is waited for, if something was.
    pub(super) async fn end(mut self) {
        if self.current.take().is_some() {
            self.notify(String::new()).await;
        }
    }

    /// Resolves when the seconds have changed.
    pub(super) async fn tick(&self) {
        match self.current {
            Some(_) => tokio::time::sleep_until(self.next_tick).await,
            None => std::future::pending().await,
        }
    }

    pub(super) async fn send(&mut self) {
        self.next_tick = Instant::now() + TICK;
        let Some((line, since)) = &self.current else {
            return;
        };
        let seconds = since.elapsed().as_secs();
        let line = presentable(line);
        let text = if seconds < SHORT {
            line
        } else {
            format!("{line} {seconds} s")
        };
        self.notify(text).await;
    }

    async fn notify(&self, text: String) {
        let params = TurnEventParams {
            turn_id: self.turn_id.to_owned(),
            events: vec![HostEvent::Waiting { text }],
        };
        self.peer.notify("turn/event", params).await;
    }
}
