//! Times until trunks and balanced targets, which may be members of a cluster, respond to INVITEs.

use strowger_foundation::map::{SeededMap, seeded};
use strowger_foundation::{DurationHistogram, Timestamp};

use crate::target::CallDestination;

/// Maximum number of destinations of a shard; times of further ones are not recorded.
pub(crate) const MAX_RESPONSE_DESTINATIONS: usize = 2048;

/// Times by destination; one that is neither a trunk nor a target has none.
#[derive(Debug)]
pub(crate) struct ResponseTimes {
    times: SeededMap<CallDestination, Box<DurationHistogram>>,
}

/// The first response to an INVITE that was sent to a named destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstResponse {
    pub(crate) from: CallDestination,
    pub(crate) sent_at: Timestamp,
}

impl ResponseTimes {
    pub(crate) fn new(seed: u64) -> Self {
        Self { times: SeededMap::with_hasher(seeded(seed)) }
    }

    // Never inlined: most calls have neither trunk nor target.
    #[inline(never)]
    pub(crate) fn record(&mut self, now: Timestamp, first: FirstResponse) {
        if !self.times.contains_key(&first.from) && self.times.len() >= MAX_RESPONSE_DESTINATIONS {
            return;
        }
        self.times.entry(first.from).or_default().record(first.sent_at, now);
    }

    pub(crate) fn for_each(&self, mut visit: impl FnMut(CallDestination, &DurationHistogram)) {
        self.times.iter().for_each(|(to, times)| visit(*to, times));
    }
}
