//! The simulator's only source of chance: splitmix64, so that a seed means the same on every machine and in every version.

/// A stream of numbers that its seed decides.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another stream, which takes one number of this one and is independent of how much either is used.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.next_u64() ^ 0x5DEE_CE66_D1CE_4E5B)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from `from` to `to`, both included.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next_u64() % (to.saturating_sub(from) + 1)
    }

    /// True in `per_mille` of a thousand cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.next_u64() % 1000 < per_mille
    }

    /// One of `items`, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let index = self.next_u64() % items.len() as u64;
        &items[usize::try_from(index).unwrap_or(0)]
    }
}
