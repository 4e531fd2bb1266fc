//! Random faults: single streams break often, whole connections now and then.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::chance::Chance;

use test_support::fault_proxy::{FaultPlan, WireFault};

/// One frame in this many breaks its stream, or its connection.
#[derive(Debug, Clone, Copy)]
pub struct Odds {
    pub stream: u64,
    pub connection: u64,
}

/// State shared by all connections.
pub struct Storm {
    odds: Odds,
    calm: AtomicBool,
    chance: Mutex<Chance>,
    /// Faults injected so far.
    seen: Mutex<BTreeMap<WireFault, u64>>,
}

const OF_STREAMS: [WireFault; 4] = [
    WireFault::StreamReset,
    WireFault::HalfClose,
    WireFault::StreamStall,
    WireFault::ServerError,
];
const OF_CONNECTIONS: [WireFault; 4] = [
    WireFault::Reset,
    WireFault::GoAway,
    WireFault::Stall,
    WireFault::Garbage,
];

impl Storm {
    pub fn new(odds: Odds, seed: u64) -> Self {
        Self {
            odds,
            calm: AtomicBool::new(false),
            chance: Mutex::new(Chance::new(seed)),
            seen: Mutex::default(),
        }
    }

    /// Turns faults off or on.
    pub fn calm(&self, calm: bool) {
        self.calm.store(calm, Ordering::Relaxed);
    }

    /// Returns the faults injected so far.
    pub fn seen(&self) -> BTreeMap<WireFault, u64> {
        self.seen.lock().unwrap().clone()
    }
}

impl FaultPlan for Storm {
    fn strikes(&self, _bytes: usize) -> Option<(usize, WireFault)> {
        if self.calm.load(Ordering::Relaxed) {
            return None;
        }
        let mut chance = self.chance.lock().unwrap();
        let kinds = if chance.once_in(self.odds.connection) {
            OF_CONNECTIONS
        } else if chance.once_in(self.odds.stream) {
            OF_STREAMS
        } else {
            return None;
        };
        let fault = kinds[chance.below(kinds.len() as u64) as usize];
        *self.seen.lock().unwrap().entry(fault).or_default() += 1;
        Some((0, fault))
    }
}
