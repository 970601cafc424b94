//! A token bucket: limits the admitted requests regardless of their positions.
//!
//! A position is a hash of bytes that the sender writes. Without this limit, a sender that gives all its messages an
//! admitted position would have all of them admitted.

/// Factor over the expected number that may be admitted, both in the long run and in a burst. At least `MIN_BURST`
/// requests always may.
const EXCESS: f64 = 1.05;
const BURST: f64 = 4.0;
const MIN_BURST: f64 = 8.0;

/// Bucket of the requests that may still be admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    left: f64,
}

impl TokenBucket {
    pub(crate) const UNLIMITED: Self = Self { left: f64::INFINITY };

    /// Refills the bucket once a window; `expected` requests are expected in it.
    pub(crate) fn refill(&mut self, expected: f64) {
        let most = (BURST * expected).max(MIN_BURST);
        self.left = (self.left + EXCESS * expected).min(most);
    }

    /// Takes a token. Returns `false` if none is left.
    pub(crate) fn try_take(&mut self) -> bool {
        let has_one = self.left >= 1.0;
        self.left -= f64::from(u8::from(has_one));
        has_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_pass_and_the_long_run_rate_is_five_percent_above() {
        let mut allowance = TokenBucket::UNLIMITED;
        allowance.refill(10.0);
        let mut takes = |count: u32| (0..count).filter(|_| allowance.try_take()).count();
        assert_eq!(takes(100), 40, "a burst");
        assert_eq!(takes(1), 0);
        let taken: usize = (0..100)
            .map(|_| {
                allowance.refill(10.0);
                (0..100).filter(|_| allowance.try_take()).count()
            })
            .sum();
        assert_eq!(taken, 1_050);
        allowance.refill(f64::INFINITY);
        assert!((0..1_000).all(|_| allowance.try_take()));
    }
}
