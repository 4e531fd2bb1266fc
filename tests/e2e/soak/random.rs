//! Reproducible randomness: the same seed returns the same numbers.

/// A pseudo-random number generator (xorshift).
#[derive(Debug, Clone)]
pub struct RandomNumbers(u64);

impl RandomNumbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number less than `below`.
    pub fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    /// Returns true once in `times` calls on average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
