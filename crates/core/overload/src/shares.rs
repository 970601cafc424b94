//! Fairness among sources: each gets a share of the capacity, so that a source that sends more is limited before the
//! others.

use core::net::IpAddr;

use crate::proven::source_hash;
use crate::token_bucket::TokenBucket;

/// Maximum number of sources counted separately. Beyond it several sources count as one and share its part.
pub const MAX_SOURCES: usize = 1_024;

/// EWMA weight of a window's count in the rate.
const SMOOTHING: f64 = 0.3;

/// Requests per window that a source always has: too few to tell whether they are too many.
const MIN_REQUESTS: f64 = 2.0;

/// Share of all requests below which sources do not keep the kernel from dropping the excess of the others.
const SMALL_SHARE: f64 = 0.02;

/// Rounds in which the unused share of small sources is given to the others; after the fourth hardly anything is
/// left.
const ROUNDS: usize = 4;

/// Rates of the sources and their fair shares.
#[derive(Debug)]
pub(crate) struct FairShares {
    seed: u64,
    slots: Box<[Slot]>,
    /// All sources without a limit.
    unlimited: Slot,
    /// See [`largest_share`](Self::largest_share).
    most: f64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Requests in this window.
    count: u32,
    /// Requests that may be admitted regardless of their position.
    allowance: TokenBucket,
    /// Requests per window, smoothed.
    rate: f64,
    /// Share of the requests that is served in their class.
    share: f64,
}

impl FairShares {
    pub(crate) fn new(seed: u64) -> Self {
        let empty = Slot { count: 0, allowance: TokenBucket::UNLIMITED, rate: 0.0, share: 1.0 };
        Self { seed, slots: vec![empty; MAX_SOURCES].into_boxed_slice(), unlimited: empty, most: 1.0 }
    }

    /// Returns the largest share of any source, ignoring sources that are negligible together.
    pub(crate) const fn largest_share(&self) -> f64 {
        self.most
    }

    /// Counts a request of `ip`, or of an unlimited source, and returns the share of the source's requests that is
    /// served.
    pub(crate) fn count(&mut self, ip: Option<IpAddr>) -> f64 {
        let slot = self.slot(ip);
        slot.count = slot.count.saturating_add(1);
        slot.share
    }

    /// Admits a request of a source unless its share is used up.
    pub(crate) fn try_take(&mut self, ip: Option<IpAddr>) -> bool {
        ip.is_none() || self.slot(ip).allowance.try_take()
    }

    fn slot(&mut self, ip: Option<IpAddr>) -> &mut Slot {
        let Some(ip) = ip else { return &mut self.unlimited };
        let at = usize::try_from(source_hash(self.seed, ip) % MAX_SOURCES as u64).unwrap_or(0);
        self.slots.get_mut(at).unwrap_or(&mut self.unlimited)
    }

    /// Computes, once a window, the max-min fair share of each source out of `limit` requests, given a total rate of
    /// `rate`. Returns the sum of the shares, which exceeds the limit if no source sends much.
    pub(crate) fn handle_window(&mut self, limit: f64, rate: f64) -> f64 {
        let mut sum = 0.0;
        for slot in self.slots.iter_mut().chain([&mut self.unlimited]) {
            slot.rate += (f64::from(slot.count) - slot.rate) * SMOOTHING;
            slot.count = 0;
            sum += slot.rate;
        }
        // Sources sent requests before counting started.
        let scale = if sum > 0.0 { (rate / sum).max(1.0) } else { 1.0 };
        let unlimited = self.unlimited.rate * scale;
        let level = self.level((limit - unlimited) / scale).max(MIN_REQUESTS);
        let (mut small, mut served, mut most) = (0.0, 0.0, 0.0_f64);
        for slot in &mut self.slots {
            slot.share = if slot.rate <= level { 1.0 } else { level / slot.rate };
            slot.allowance.refill(level * scale);
            served += slot.rate.min(level) * scale;
            if slot.rate <= level {
                small += slot.rate * scale;
            } else {
                most = most.max(slot.share);
            }
        }
        self.most = if small + unlimited >= SMALL_SHARE * rate || most <= 0.0 { 1.0 } else { most };
        if sum > 0.0 { served + unlimited } else { rate }
    }

    /// Returns the maximum per source with which all sources together use `limit`, if they ask for that much.
    fn level(&self, limit: f64) -> f64 {
        let rates = || self.slots.iter().map(|slot| slot.rate).filter(|rate| *rate > 0.01);
        let mut level = 0.0;
        for _ in 0..ROUNDS {
            let (small, large) = rates().fold((0.0, 0_u32), |(small, large), rate| {
                if rate <= level { (small + rate, large) } else { (small, large.saturating_add(1)) }
            });
            if large == 0 {
                return f64::INFINITY;
            }
            level = ((limit - small) / f64::from(large)).max(level);
        }
        level
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    fn source(number: u32) -> IpAddr {
        Ipv4Addr::from(0x0A00_0000 + number).into()
    }

    /// Returns the share of each source in the tenth window.
    fn within(sources: &[(u32, u32)], limit: f64) -> Vec<f64> {
        let mut shares = FairShares::new(9);
        let mut found = Vec::new();
        for _ in 0..10 {
            found.clear();
            for (number, requests) in sources {
                found.push((0..*requests).map(|_| shares.count(Some(source(*number)))).fold(1.0, f64::min));
            }
            shares.handle_window(limit, sources.iter().map(|(_, requests)| f64::from(*requests)).sum());
        }
        found
    }

    #[test]
    fn only_a_source_above_its_share_is_limited() {
        let found = within(&[(1, 50), (2, 500)], 100.0);
        assert!(found[0] > 0.99 && (0.08..0.12).contains(&found[1]), "{found:?}");
        let mut many: Vec<_> = (1..=50).map(|number| (number, 1)).collect();
        many.push((60, 1_000));
        let found = within(&many, 100.0);
        let (innocent, flood) = found.split_at(50);
        // A few share a slot with the flood.
        assert!(innocent.iter().filter(|share| **share > 0.99).count() >= 48, "{innocent:?}");
        assert!((0.04..0.06).contains(&flood[0]), "{flood:?}");
    }

    #[test]
    fn a_lone_source_may_use_all() {
        assert_eq!(within(&[(1, 90)], 100.0), [1.0]);
        let found = within(&[(1, 400)], 100.0);
        assert!((0.23..0.27).contains(&found[0]), "{found:?}");
    }
}
