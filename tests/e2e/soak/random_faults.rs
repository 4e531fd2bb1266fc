//! Random faults: single streams break often, whole connections now and then.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::random::RandomNumbers;

use test_support::fault_proxy::{FaultPlan, WireFault};

/// One frame in this many breaks its stream, or its connection.
#[derive(Debug, Clone, Copy)]
pub struct FaultRates {
    pub stream: u64,
    pub connection: u64,
}

/// State shared by all connections.
pub struct RandomFaults {
    rates: FaultRates,
    paused: AtomicBool,
    random: Mutex<RandomNumbers>,
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

impl RandomFaults {
    pub fn new(rates: FaultRates, seed: u64) -> Self {
        Self {
            rates,
            paused: AtomicBool::new(false),
            random: Mutex::new(RandomNumbers::new(seed)),
            seen: Mutex::default(),
        }
    }

    /// Stops or continues to inject faults.
    pub fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Returns the faults injected so far.
    pub fn seen(&self) -> BTreeMap<WireFault, u64> {
        self.seen.lock().unwrap().clone()
    }
}

impl FaultPlan for RandomFaults {
    fn fault_at(&self, _bytes: usize) -> Option<(usize, WireFault)> {
        if self.paused.load(Ordering::Relaxed) {
            return None;
        }
        let mut random = self.random.lock().unwrap();
        let kinds = if random.once_in(self.rates.connection) {
            OF_CONNECTIONS
        } else if random.once_in(self.rates.stream) {
            OF_STREAMS
        } else {
            return None;
        };
        let fault = kinds[random.below(kinds.len() as u64) as usize];
        *self.seen.lock().unwrap().entry(fault).or_default() += 1;
        Some((0, fault))
    }
}
