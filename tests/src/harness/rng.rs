//! A small seeded generator of random numbers, so that a run can be repeated from its seed alone.
//!
//! SplitMix64: one word of state, and independent streams by [`Rng::fork`], so that a change of the workload does not shift the faults.

/// A seeded stream of numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A stream of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed ^ 0x9E37_79B9_7F4A_7C15 }
    }

    /// An independent stream, named by a number.
    pub fn fork(&self, stream: u64) -> Self {
        let mut rng = Self::new(self.state ^ stream.wrapping_mul(0xD1B5_4A32_D192_ED03));
        let _ = rng.next();
        rng
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "a stream that never ends is not read as an iterator here")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is above 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
