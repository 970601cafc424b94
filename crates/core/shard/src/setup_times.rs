//! Times of call setup by trunk and by balanced target, which may be a member of a cluster.

use strowger_calls::{Reason, SetupTimes};
use strowger_foundation::Timestamp;
use strowger_foundation::map::{SeededMap, seeded};
use strowger_proxy::CallDestination;

/// Maximum number of destinations of a shard; calls to further ones are only in the total.
pub const MAX_SETUP_DESTINATIONS: usize = 2048;

/// What has become of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SetupOutcome {
    Ringing,
    Answered,
    Ended(Reason),
}

/// Times by destination; a destination that is neither a trunk nor a target has none.
#[derive(Debug)]
pub(crate) struct DestinationTimes {
    times: SeededMap<CallDestination, Box<SetupTimes>>,
}

impl DestinationTimes {
    pub(crate) fn new(seed: u64) -> Self {
        Self { times: SeededMap::with_hasher(seeded(seed)) }
    }

    // Never inlined: most calls have neither trunk nor target.
    #[inline(never)]
    pub(crate) fn record(&mut self, to: CallDestination, began: Timestamp, now: Timestamp, outcome: SetupOutcome) {
        if !self.times.contains_key(&to) && self.times.len() >= MAX_SETUP_DESTINATIONS {
            return;
        }
        let times = self.times.entry(to).or_default();
        let of_outcome = match outcome {
            SetupOutcome::Ringing => &mut times.ringing,
            SetupOutcome::Answered => &mut times.answered,
            SetupOutcome::Ended(Reason::Rejected) => &mut times.rejected,
            SetupOutcome::Ended(_) => &mut times.cancelled,
        };
        of_outcome.record(began, now);
    }

    pub(crate) fn for_each(&self, mut visit: impl FnMut(CallDestination, &SetupTimes)) {
        self.times.iter().for_each(|(to, times)| visit(*to, times));
    }
}
