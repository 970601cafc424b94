//! The session establishment rate of RFC 7502, §4.10.

use super::Settings;

/// The algorithm for the RFC's `max_sps` as a state machine: the next rate to try, and the reaction to its result.
#[derive(Clone, Debug)]
pub(super) struct Climb {
    /// `r`
    at: f64,
    /// `old_r`: the highest rate without failures.
    best: f64,
    /// `w`
    up: f64,
    /// `d`
    down: f64,
    /// Successes without progress.
    count: u32,
    rounds: u32,
}

/// Lower limit of the weights.
const LEAST_WEIGHT: f64 = 0.10;

impl Climb {
    pub(super) const fn new(settings: &Settings) -> Self {
        Self { at: settings.start, best: 0.0, up: settings.up, down: settings.down, count: 0, rounds: settings.rounds }
    }

    pub(super) const fn at(&self) -> f64 {
        self.at
    }

    /// Handles the result at `tried`, the rate actually used; the machine continues from there.
    //= rfc7502#4.10
    // On success the rate rises by the weight w; ten successes without a higher rate end the search. On failure it
    // falls by d, and both weights are halved, down to a tenth.
    pub(super) fn handle(&mut self, tried: f64, holds: bool) {
        if holds {
            if tried > self.best {
                self.best = tried;
            } else {
                self.count += 1;
            }
            self.at = tried + self.up * tried;
        } else {
            self.at = tried - self.down * tried;
            self.down = (self.down / 2.0).max(LEAST_WEIGHT);
            self.up = (self.up / 2.0).max(LEAST_WEIGHT);
        }
    }

    /// Returns whether the search is complete.
    pub(super) const fn has_converged(&self) -> bool {
        self.count >= self.rounds
    }
}
