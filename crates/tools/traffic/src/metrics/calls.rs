//! Outcomes of calls, for experiments with a loaded server: setup times, whether answered calls ended properly, and
//! why the others were not answered.

use std::time::Duration;

use crate::script::SessionResult;
use crate::time_histogram::TimeHistogram;

/// Request Timeout: a proxy's final response if nobody has answered.
const REQUEST_TIMEOUT: u16 = 408;
/// Service Unavailable: an overloaded server's response.
const SERVICE_UNAVAILABLE: u16 = 503;

/// Outcomes of the calls of one end. A session that sent no INVITE is not a call. Each call that has ended counts in
/// exactly one of [`ended_by_bye`](Self::ended_by_bye), [`ended_otherwise`](Self::ended_otherwise),
/// [`refused_503`](Self::refused_503), [`timed_out`](Self::timed_out) and
/// [`refused_otherwise`](Self::refused_otherwise).
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Calls whose INVITE was sent.
    pub begun: u64,
    /// Calls that were answered with 2xx, whether or not they have ended.
    pub answered: u64,
    /// Answered calls that ended with a BYE, of either end, that was answered with 2xx.
    pub ended_by_bye: u64,
    /// Answered calls that ended in another way: the BYE was refused or not answered, or none was sent.
    pub ended_otherwise: u64,
    /// Calls that were refused with 503 and given up.
    pub refused_503: u64,
    /// Calls whose INVITE got 408 or no final response.
    //= rfc3261#8.1.3.1
    // A missing response counts as 408.
    pub timed_out: u64,
    /// Calls in `timed_out` that got a 408.
    pub timed_out_408: u64,
    /// Calls that were not answered for any other reason.
    pub refused_otherwise: u64,
    /// Number of retries after the Retry-After time of a 503.
    pub tried_again: u64,
    /// Times from the first transmission of an answered INVITE to its 200. Retransmissions and requests with
    /// credentials do not restart the time; a retry after a 503 does.
    pub setup: TimeHistogram,
}

impl Calls {
    /// Records that a call was answered, `after` its INVITE was first sent.
    pub(crate) fn on_answer(&mut self, after: Duration) {
        self.answered += 1;
        self.setup.record(after);
    }

    /// Records the end of a call: whether it had been answered, and whether a BYE of either end got a 2xx.
    pub(crate) const fn on_end(&mut self, ending: SessionResult, is_answered: bool, is_hung_up: bool) {
        match ending {
            _ if is_answered && is_hung_up => self.ended_by_bye += 1,
            _ if is_answered => self.ended_otherwise += 1,
            SessionResult::Refused(SERVICE_UNAVAILABLE) => self.refused_503 += 1,
            SessionResult::Refused(REQUEST_TIMEOUT) => {
                self.timed_out += 1;
                self.timed_out_408 += 1;
            }
            SessionResult::Lost => self.timed_out += 1,
            _ => self.refused_otherwise += 1,
        }
    }

    /// Returns the number of calls in progress.
    #[must_use]
    pub const fn in_progress(&self) -> u64 {
        self.begun.saturating_sub(
            self.ended_by_bye + self.ended_otherwise + self.refused_503 + self.timed_out + self.refused_otherwise,
        )
    }

    /// Returns the share of ended answered calls whose BYE was answered, or 1 if none has ended.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts, far below 2^52")]
    pub const fn bye_share(&self) -> f64 {
        let ended = self.ended_by_bye + self.ended_otherwise;
        if ended == 0 { 1.0 } else { self.ended_by_bye as f64 / ended as f64 }
    }

    /// Adds the counts of another driver.
    pub fn merge(&mut self, other: &Self) {
        self.begun += other.begun;
        self.answered += other.answered;
        self.ended_by_bye += other.ended_by_bye;
        self.ended_otherwise += other.ended_otherwise;
        self.refused_503 += other.refused_503;
        self.timed_out += other.timed_out;
        self.timed_out_408 += other.timed_out_408;
        self.refused_otherwise += other.refused_otherwise;
        self.tried_again += other.tried_again;
        self.setup.merge(&other.setup);
    }
}
