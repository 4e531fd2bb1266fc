//! The one place where a trial breaks, counted over everything the server sends on runs.

use std::sync::Mutex;

use test_support::fault_proxy::{FaultPlan, WireFault};

/// Where the fault is injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultPosition {
    /// Before the frame with this number.
    Frame(usize),
    /// After this many bytes.
    Byte(usize),
    /// While the host executes the tools of this round.
    Pause(usize),
}

/// Injects one fault.
pub struct SingleFault {
    wire: Mutex<ForwardedBytes>,
    aside: Box<dyn Fn() + Send + Sync>,
}

struct ForwardedBytes {
    frames: usize,
    bytes: usize,
    pauses: usize,
    fault: Option<(FaultPosition, WireFault)>,
}

impl SingleFault {
    /// `aside` is called for a [`WireFault::Elsewhere`].
    pub fn new(
        fault: Option<(FaultPosition, WireFault)>,
        aside: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self {
            wire: Mutex::new(ForwardedBytes {
                frames: 0,
                bytes: 0,
                pauses: 0,
                fault,
            }),
            aside: Box::new(aside),
        }
    }

    /// Returns the number of frames and bytes of runs that were forwarded.
    pub fn carried(&self) -> (usize, usize) {
        let wire = self.wire.lock().unwrap();
        (wire.frames, wire.bytes)
    }

    /// Called when the host has tools to execute; returns whether the fault occurs before it does.
    pub fn strikes_pause(&self) -> bool {
        let struck = {
            let mut wire = self.wire.lock().unwrap();
            wire.pauses += 1;
            let now = FaultPosition::Pause(wire.pauses - 1);
            wire.fault.take_if(|(place, _)| *place == now).is_some()
        };
        if struck {
            (self.aside)();
        }
        struck
    }

    /// Whether the fault has occurred.
    pub fn broke(&self) -> bool {
        self.wire.lock().unwrap().fault.is_none()
    }
}

impl FaultPlan for SingleFault {
    fn fault_at(&self, bytes: usize) -> Option<(usize, WireFault)> {
        let mut wire = self.wire.lock().unwrap();
        let here = match wire.fault {
            Some((FaultPosition::Frame(number), how)) if wire.frames == number => Some((0, how)),
            Some((FaultPosition::Byte(number), how)) if number < wire.bytes + bytes => {
                Some((number - wire.bytes.min(number), how))
            }
            _ => None,
        };
        wire.frames += 1;
        wire.bytes += bytes;
        if here.is_some() {
            wire.fault = None;
        }
        here
    }

    fn aside(&self) {
        (self.aside)();
    }
}
