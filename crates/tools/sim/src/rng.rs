//! The simulator's only random generator: splitmix64, so that a seed gives the same run on every machine and in every
//! version.

/// Random number generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator from a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates an independent generator from one number of this one.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.next_u64() ^ 0x5DEE_CE66_D1CE_4E5B)
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number from `from` to `to`, both included.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next_u64() % (to.saturating_sub(from) + 1)
    }

    /// Returns true with a probability of `per_mille` ‰.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.next_u64() % 1000 < per_mille
    }

    /// Returns one of `items`, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let index = self.next_u64() % items.len() as u64;
        &items[usize::try_from(index).unwrap_or(0)]
    }

    /// Returns a number from 0 up to, but not including, 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns an exponentially distributed number with a mean of 1.
    ///
    /// Von Neumann's method only compares. A logarithm could differ in the last bit between machines.
    pub fn exponential(&mut self) -> f64 {
        let mut whole = 0.0;
        loop {
            let first = self.uniform();
            let (mut last, mut length) = (first, 1_u32);
            loop {
                let next = self.uniform();
                if next >= last {
                    break;
                }
                (last, length) = (next, length + 1);
            }
            if length % 2 == 1 {
                return whole + first;
            }
            whole += 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_numbers_have_the_right_mean_and_tail() {
        let mut rng = Rng::new(3);
        let numbers: Vec<f64> = (0..20_000).map(|_| rng.exponential()).collect();
        let mean = numbers.iter().sum::<f64>() / 20_000.0;
        let past_two = numbers.iter().filter(|number| **number > 2.0).count();
        assert!((0.97..1.03).contains(&mean), "{mean}");
        // e^-2 of 20,000.
        assert!((2_550..2_870).contains(&past_two), "{past_two}");
    }
}
