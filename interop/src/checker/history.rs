//! What clients know of their registrations.

use std::time::{Duration, Instant};

/// Tolerance for the time of a binding or removal: a member notices an expiry with a delay.
const LEEWAY: Duration = Duration::from_secs(3);

/// The last acknowledged change of a registration.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcknowledgedChange {
    pub(super) cseq: u32,
    /// When the change was sent and acknowledged, and the lifetime of the binding. `None` for a removal.
    pub(super) bound: Option<(Instant, Instant, Duration)>,
}

/// What a client knows of one registration.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct History {
    pub(super) acknowledged: Option<AcknowledgedChange>,
    /// Last CSeq used.
    pub(super) used: u32,
}

/// How an observation contradicts a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contradiction {
    /// A binding that was acknowledged and has not expired is missing, or an older one is listed instead.
    Lost,
    /// A binding is listed that was removed or has expired.
    Returned,
}

/// Returns the q value of the contact in a REGISTER with this CSeq, in thousandths. It shows which REGISTER a listed
/// binding is from.
pub(super) const fn preference(cseq: u32) -> u32 {
    cseq % 1_000
}

impl History {
    /// Returns the contradiction, if any, between the history and a member that lists this registration with the
    /// given q value or not at all.
    pub(super) fn contradiction(&self, now: Instant, listed: Option<u32>) -> Option<Contradiction> {
        let acknowledged = self.acknowledged?;
        // A later change without an answer may or may not have taken effect.
        if acknowledged.cseq != self.used {
            return None;
        }
        let Some((sent, answered, lasts)) = acknowledged.bound else {
            return listed.map(|_| Contradiction::Returned);
        };
        if now > answered + lasts + LEEWAY {
            return listed.map(|_| Contradiction::Returned);
        }
        let is_there = listed == Some(preference(acknowledged.cseq));
        (!is_there && now + LEEWAY < sent + lasts).then_some(Contradiction::Lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_certain_states_can_be_contradicted() {
        let (now, hour) = (Instant::now(), Duration::from_secs(3_600));
        let bound = AcknowledgedChange { cseq: 7, bound: Some((now, now, hour)) };
        let certain = History { acknowledged: Some(bound), used: 7 };
        assert_eq!(certain.contradiction(now, Some(7)), None);
        assert_eq!(certain.contradiction(now, None), Some(Contradiction::Lost));
        assert_eq!(certain.contradiction(now, Some(6)), Some(Contradiction::Lost), "an older one");
        assert_eq!(History { used: 8, ..certain }.contradiction(now, None), None, "the next one may count");
        let later = now + hour + 2 * LEEWAY;
        assert_eq!(certain.contradiction(later, Some(7)), Some(Contradiction::Returned), "it has expired");
        assert_eq!(certain.contradiction(now + hour, None), None, "it expires at about this time");
        let removed = History { acknowledged: Some(AcknowledgedChange { bound: None, ..bound }), used: 7 };
        assert_eq!(removed.contradiction(now, None), None);
        assert_eq!(removed.contradiction(now, Some(6)), Some(Contradiction::Returned));
    }
}
