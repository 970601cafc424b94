//! What became of calls, as an experiment with a loaded server asks: how long it took to set them up, whether those that were
//! answered ended properly, and why the others were not answered.

use std::time::Duration;

use crate::script::Ending;
use crate::time_histogram::TimeHistogram;

/// Request timeout: what a proxy says where nobody has answered it.
const REQUEST_TIMEOUT: u16 = 408;
/// Service unavailable: what a server says that has too much to do.
const SERVICE_UNAVAILABLE: u16 = 503;

/// What became of the calls of one end; a session that sent no INVITE is none. Each call that has ended is in exactly one of
/// [`ended_by_bye`](Self::ended_by_bye), [`ended_otherwise`](Self::ended_otherwise), [`refused_503`](Self::refused_503),
/// [`timed_out`](Self::timed_out) and [`refused_otherwise`](Self::refused_otherwise).
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Calls whose INVITE was sent.
    pub begun: u64,
    /// Those of them that were answered with 2xx, whether they have ended or not.
    pub answered: u64,
    /// Answered calls that were ended by a BYE that had its 2xx, whoever sent it.
    pub ended_by_bye: u64,
    /// Answered calls that ended in another way: their BYE was refused or never answered, or none was sent.
    pub ended_otherwise: u64,
    /// Calls that the server refused with 503, and that were given up.
    pub refused_503: u64,
    /// Calls whose INVITE had no final response, or 408.
    //= rfc3261#8.1.3.1
    // Who gets no answer takes it for 408.
    pub timed_out: u64,
    /// Those of them that had 408.
    pub timed_out_408: u64,
    /// Calls that were not answered for another reason.
    pub refused_otherwise: u64,
    /// How often calls were tried again after the time that a 503 said.
    pub tried_again: u64,
    /// From the first transmission of an INVITE that was answered to its 200: requests with credentials belong to the first one,
    /// retransmissions begin nothing anew, and a call that is tried again after a 503 begins anew.
    pub setup: TimeHistogram,
}

impl Calls {
    /// A call was answered, so long after its INVITE was first sent.
    pub(crate) fn on_answer(&mut self, after: Duration) {
        self.answered += 1;
        self.setup.record(after);
    }

    /// A call ended; whether it had been answered, and a BYE of either end with 2xx.
    pub(crate) const fn on_end(&mut self, ending: Ending, is_answered: bool, is_hung_up: bool) {
        match ending {
            _ if is_answered && is_hung_up => self.ended_by_bye += 1,
            _ if is_answered => self.ended_otherwise += 1,
            Ending::Refused(SERVICE_UNAVAILABLE) => self.refused_503 += 1,
            Ending::Refused(REQUEST_TIMEOUT) => {
                self.timed_out += 1;
                self.timed_out_408 += 1;
            }
            Ending::Lost => self.timed_out += 1,
            _ => self.refused_otherwise += 1,
        }
    }

    /// Calls that go on.
    #[must_use]
    pub const fn in_progress(&self) -> u64 {
        self.begun.saturating_sub(
            self.ended_by_bye + self.ended_otherwise + self.refused_503 + self.timed_out + self.refused_otherwise,
        )
    }

    /// Of the answered calls that have ended, the share whose BYE was answered; 1 where none has ended.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts, far below 2^52")]
    pub const fn bye_share(&self) -> f64 {
        let ended = self.ended_by_bye + self.ended_otherwise;
        if ended == 0 { 1.0 } else { self.ended_by_bye as f64 / ended as f64 }
    }

    /// Adds another driver's.
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
