//! What clients know of their registrations.

use std::time::{Duration, Instant};

/// What a binding or a removal may be off in time: a member notices after a moment that something has expired.
const LEEWAY: Duration = Duration::from_secs(3);

/// The last change of a registration that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcknowledgedChange {
    pub(super) cseq: u32,
    /// When it was sent and when it was acknowledged, and for how long it binds; `None` for a removal.
    pub(super) bound: Option<(Instant, Instant, Duration)>,
}

/// What a client knows of one registration.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct History {
    pub(super) acknowledged: Option<AcknowledgedChange>,
    /// The CSeq that was used last.
    pub(super) used: u32,
}

/// What contradicts a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contradiction {
    /// A binding that was acknowledged, and has not expired, is not there, or an older one is there instead.
    Lost,
    /// A binding is there that was removed or has expired.
    Returned,
}

/// The preference that a REGISTER with this CSeq gives its contact, in thousandths: what is listed shows which one it was.
pub(super) const fn preference(cseq: u32) -> u32 {
    cseq % 1_000
}

impl History {
    /// What contradicts it where a member lists this registration with such a preference, or does not list it.
    pub(super) fn contradiction(&self, now: Instant, listed: Option<u32>) -> Option<Contradiction> {
        let acknowledged = self.acknowledged?;
        // What came later without an answer may count.
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
    fn only_what_is_certain_can_be_contradicted() {
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
