//! Kernel filter: what the worker's `KernelFilter` drops by socket filters. In the simulation it costs nothing and
//! remembers dropped messages exactly.

use core::time::Duration;
use std::collections::BTreeSet;

use strowger_foundation::Timestamp;
use strowger_overload::{Filter, FilterAbilities, FilteredKind, fingerprint, may_be_dropped_unread, position_of};

/// Shortest time for which a dropped message is remembered; the longest is twice that.
const GENERATION: Duration = Duration::from_secs(32);

/// Filter of the queue of new work.
#[derive(Debug)]
pub(super) struct KernelFilter {
    is_allowed: bool,
    has_memory: bool,
    salt: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Drops nothing.
    Open,
    /// Drops what does not pass the filter.
    Stateless(Filter),
    /// Drops what does not pass the filter, and retransmissions of dropped messages.
    Memory { filter: Filter, dropped: DroppedFingerprints, generation_ends: Timestamp },
}

/// Fingerprints of dropped messages, in two generations.
#[derive(Debug, Default)]
struct DroppedFingerprints {
    young: BTreeSet<u32>,
    old: BTreeSet<u32>,
}

impl KernelFilter {
    /// Creates a filter that drops nothing yet; if not allowed, it never does.
    pub(super) const fn new(is_allowed: bool, has_memory: bool, salt: u32) -> Self {
        Self { is_allowed, has_memory, salt, state: State::Open }
    }

    /// Returns the abilities of the filter.
    pub(super) const fn abilities(&self) -> FilterAbilities {
        FilterAbilities { has_memory: self.has_memory, knows_sources: self.has_memory }
    }

    /// Returns the time of the next action without input.
    pub(super) const fn next_deadline(&self) -> Timestamp {
        match self.state {
            State::Memory { generation_ends, .. } => generation_ends,
            State::Open | State::Stateless(_) => Timestamp::MAX,
        }
    }

    /// Returns whether new work is dropped. `kind` matters only if the filter knows sources.
    pub(super) fn drops(&mut self, kind: FilteredKind, bytes: &[u8]) -> bool {
        let kind = kind.seen_by(self.abilities());
        let passes = |filter: &Filter, fingerprint| filter.passes(kind, position_of(fingerprint));
        match &mut self.state {
            State::Open => false,
            State::Stateless(filter) => !passes(filter, fingerprint(bytes, self.salt)) && may_be_dropped_unread(bytes),
            State::Memory { filter, dropped, .. } => {
                let fingerprint = fingerprint(bytes, self.salt);
                let is_unwanted = !passes(filter, fingerprint) || dropped.contains(fingerprint);
                let drops = is_unwanted && may_be_dropped_unread(bytes);
                if drops {
                    dropped.insert(fingerprint);
                }
                drops
            }
        }
    }

    /// Remembers new work that the worker did not serve.
    pub(super) fn remember(&mut self, bytes: &[u8]) {
        if let State::Memory { dropped, .. } = &mut self.state {
            dropped.insert(fingerprint(bytes, self.salt));
        }
    }

    /// Applies the controller's filter. Messages that the worker drops are remembered from the start.
    pub(super) fn follow(&mut self, now: Timestamp, wanted: Filter, is_limiting: bool) {
        match &mut self.state {
            _ if !self.is_allowed => {}
            State::Memory { filter, dropped, generation_ends } => {
                *filter = wanted;
                if now < *generation_ends {
                    return;
                }
                *generation_ends = now + GENERATION;
                let has_dropped = !dropped.young.is_empty();
                dropped.begin_generation();
                if !has_dropped && wanted.is_open() && !is_limiting {
                    self.state = State::Open;
                }
            }
            State::Open if !(is_limiting && self.has_memory) && wanted.is_open() => {}
            State::Stateless(filter) if filter.is_close_to(&wanted) => {}
            State::Stateless(_) if wanted.is_open() => self.state = State::Open,
            State::Open if self.has_memory => {
                let generation_ends = now + GENERATION;
                self.state = State::Memory { filter: wanted, dropped: DroppedFingerprints::default(), generation_ends };
            }
            State::Open | State::Stateless(_) => self.state = State::Stateless(wanted),
        }
    }
}

impl DroppedFingerprints {
    fn contains(&self, fingerprint: u32) -> bool {
        self.young.contains(&fingerprint) || self.old.contains(&fingerprint)
    }

    /// A retransmission does not extend the time.
    fn insert(&mut self, fingerprint: u32) {
        if !self.contains(fingerprint) {
            self.young.insert(fingerprint);
        }
    }

    fn begin_generation(&mut self) {
        self.old = core::mem::take(&mut self.young);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invite(number: u32) -> Vec<u8> {
        format!(
            "INVITE sip:bob@example.com SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK-{number}\r\n\
             Max-Forwards: 70\r\nFrom: <sip:alice@example.com>;tag={number}\r\nTo: <sip:bob@example.com>\r\n\
             Call-ID: {number}@192.0.2.1\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n"
        )
        .into_bytes()
    }

    fn half() -> Filter {
        let mut filter = Filter::OPEN;
        filter.set(FilteredKind::Call, 1 << 15);
        filter
    }

    fn dropped_of_a_hundred(filter: &mut KernelFilter) -> usize {
        (0..100).filter(|number| filter.drops(FilteredKind::Call, &invite(*number))).count()
    }

    #[test]
    fn a_memory_keeps_dropping_the_same_calls() {
        for (has_memory, later) in [(false, 0), (true, 50)] {
            let mut filter = KernelFilter::new(true, has_memory, 1);
            assert_eq!(dropped_of_a_hundred(&mut filter), 0);
            filter.follow(Timestamp::ZERO, half(), true);
            let dropped = dropped_of_a_hundred(&mut filter);
            assert!(dropped.abs_diff(50) < 20, "{dropped}");
            filter.follow(Timestamp::from_millis(100), Filter::OPEN, false);
            let still = dropped_of_a_hundred(&mut filter);
            assert!(still.abs_diff(later) < 20 && (still == dropped) == has_memory, "{still} of {dropped}");
        }
    }

    #[test]
    fn a_memory_ends_after_a_generation_without_drops() {
        let mut filter = KernelFilter::new(true, true, 1);
        filter.follow(Timestamp::ZERO, half(), true);
        let dropped = dropped_of_a_hundred(&mut filter);
        filter.follow(Timestamp::ZERO + GENERATION, Filter::OPEN, false);
        assert!(dropped > 0 && matches!(filter.state, State::Memory { .. }));
        filter.follow(Timestamp::ZERO + 2 * GENERATION, Filter::OPEN, false);
        assert!(matches!(filter.state, State::Open) && dropped_of_a_hundred(&mut filter) == 0);
    }
}
