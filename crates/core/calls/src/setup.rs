//! How long the setup of calls takes.

use strowger_foundation::DurationHistogram;

/// Times from an INVITE to what became of it. A call whose first INVITE is challenged has begun with that one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetupTimes {
    /// To the first provisional response other than 100.
    pub ringing: DurationHistogram,
    /// To the first 2xx.
    pub answered: DurationHistogram,
    /// To a final response other than a 2xx.
    pub rejected: DurationHistogram,
    /// To the final response after the caller's CANCEL.
    pub cancelled: DurationHistogram,
}

impl SetupTimes {
    /// Adds all times of `other`.
    pub fn add(&mut self, other: &Self) {
        let Self { ringing, answered, rejected, cancelled } = other;
        self.ringing.add(ringing);
        self.answered.add(answered);
        self.rejected.add(rejected);
        self.cancelled.add(cancelled);
    }
}
