//! Assignment of users to clusters, and the load of users that could move between clusters.
//!
//! A key (an address of record) belongs to one of [`SLOTS`] slots, and a weighted consistent hash assigns each slot
//! to a cluster. So adding or removing a cluster moves only its own share, and the load of each slot determines
//! exactly how any other weights would distribute the load.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

use crate::hash::{exponential, mix, of_key, stable};

/// Number of slots.
pub const SLOTS: usize = 1 << 16;

/// The slot of a key, by which its cluster is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub u16);

impl Slot {
    /// Returns the slot of `key`; the same on every machine and in every version.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        // The upper bits, because the lower ones select among the members of a cluster.
        Self((of_key(key) >> 48) as u16)
    }
}

/// An assignment of slots to clusters: highest random weight (Thaler and Ravishankar, 1998), with weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    parts: Box<[Cluster]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cluster {
    seed: u64,
    /// 2³² ÷ weight; `None` for weight zero.
    inverse: Option<u64>,
}

impl Partition {
    /// Creates the assignment for clusters with these names and weights. A cluster of weight zero has no slot.
    #[must_use]
    pub fn new<'a>(clusters: impl IntoIterator<Item = (&'a str, u16)>) -> Self {
        let part = |(name, weight): (&str, u16)| Cluster {
            seed: seed(name),
            inverse: (1_u64 << 32).checked_div(u64::from(weight)),
        };
        Self { parts: clusters.into_iter().map(part).collect() }
    }

    /// Returns the index of the cluster that has `slot`; `None` if all weights are zero.
    #[must_use]
    pub fn owner(&self, slot: Slot) -> Option<usize> {
        let rank = |part: &Cluster| Some((distance(part.seed, slot).saturating_mul(part.inverse?), part.seed));
        let ranks = self.parts.iter().enumerate().filter_map(|(at, part)| Some((rank(part)?, at)));
        ranks.min().map(|(_, at)| at)
    }

    /// Returns the number of slots of each cluster.
    #[must_use]
    pub fn slots(&self) -> Vec<u32> {
        self.sums(|_| 1).into_iter().map(|slots| u32::try_from(slots).unwrap_or(u32::MAX)).collect()
    }

    /// Returns, for each cluster, the sum of `each` over its slots.
    pub fn sums(&self, each: impl Fn(Slot) -> u64) -> Vec<u64> {
        let mut sums = vec![0_u64; self.parts.len()];
        for slot in (0..=u16::MAX).map(Slot) {
            if let Some(sum) = self.owner(slot).and_then(|owner| sums.get_mut(owner)) {
                *sum = sum.saturating_add(each(slot));
            }
        }
        sums
    }

    /// Returns the fraction of slots that have another cluster in `other`, from 0 to 1.
    #[must_use]
    pub fn moved(&self, other: &Self) -> f64 {
        let moved = (0..=u16::MAX).map(Slot).filter(|slot| self.owner(*slot) != other.owner(*slot)).count();
        moved as f64 / SLOTS as f64
    }
}

/// Returns the hash seed of a cluster name.
pub(crate) fn seed(name: &str) -> u64 {
    stable(&[b"cluster", name.as_bytes()])
}

/// Returns the distance of a slot from a cluster of weight one: exponentially distributed. The nearest cluster, by
/// weights, has the slot.
pub(crate) fn distance(seed: u64, slot: Slot) -> u64 {
    exponential(mix(u64::from(slot.0) ^ seed))
}

/// Recent request counts per slot.
#[derive(Debug, Default)]
pub struct SlotLoads {
    requests: Counts,
    calls: Counts,
}

/// A count per slot, allocated at the first request.
#[derive(Debug, Default)]
struct Counts(OnceLock<Box<[AtomicU32]>>);

impl SlotLoads {
    /// Counts one request, which may begin a call.
    #[inline]
    pub fn count(&self, slot: Slot, is_call: bool) {
        self.requests.count(slot);
        if is_call {
            self.calls.count(slot);
        }
    }

    /// Returns the number of requests; each [`halve`](Self::halve) halves the count so far.
    #[must_use]
    pub fn requests(&self, slot: Slot) -> u32 {
        self.requests.of(slot)
    }

    /// Returns the number of calls among them.
    #[must_use]
    pub fn calls(&self, slot: Slot) -> u32 {
        self.calls.of(slot)
    }

    /// Halves all counts. Requests counted meanwhile may be lost.
    pub fn halve(&self) {
        self.requests.halve();
        self.calls.halve();
    }
}

impl Counts {
    fn count(&self, slot: Slot) {
        let counts = self.0.get_or_init(|| (0..SLOTS).map(|_| AtomicU32::new(0)).collect());
        if let Some(count) = counts.get(usize::from(slot.0)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn of(&self, slot: Slot) -> u32 {
        let count = self.0.get().and_then(|counts| counts.get(usize::from(slot.0)));
        count.map_or(0, |count| count.load(Ordering::Relaxed))
    }

    fn halve(&self) {
        for count in self.0.get().into_iter().flatten() {
            let value = count.load(Ordering::Relaxed);
            if value != 0 {
                count.store(value / 2, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const USERS: u32 = 100_000;

    fn aor(user: u32) -> String {
        format!("u{user:06}@example.com")
    }

    fn owners(partition: &Partition) -> Vec<usize> {
        (0..USERS).filter_map(|user| partition.owner(Slot::of(aor(user).as_bytes()))).collect()
    }

    #[test]
    fn users_are_spread_by_weight() {
        let partition = Partition::new([("a", 100), ("b", 100), ("c", 200)]);
        let owners = owners(&partition);
        for (cluster, share) in [(0, 0.25), (1, 0.25), (2, 0.5)] {
            let has = owners.iter().filter(|owner| **owner == cluster).count() as f64 / f64::from(USERS);
            assert!((has - share).abs() < 0.01, "{cluster}: {has}");
        }
    }

    #[test]
    fn adding_or_removing_a_cluster_moves_only_its_share() {
        for clusters in 1..9_usize {
            let names: Vec<String> = (0..=clusters).map(|n| format!("cluster-{n}")).collect();
            let of = |count: usize| Partition::new(names.iter().take(count).map(|name| (&**name, 100)));
            let (before, after) = (owners(&of(clusters)), owners(&of(clusters + 1)));
            let moved = before.iter().zip(&after).filter(|(old, new)| old != new).count();
            assert!(before.iter().zip(&after).all(|(old, new)| old == new || *new == clusters), "only to the new one");
            let (share, wanted) = (moved as f64 / f64::from(USERS), 1.0 / (clusters + 1) as f64);
            assert!((share - wanted).abs() < 0.01, "{clusters}: {share} of {wanted}");
            assert!((of(clusters).moved(&of(clusters + 1)) - share).abs() < 0.01);
        }
    }

    #[test]
    fn a_higher_weight_moves_users_only_to_that_cluster() {
        let (even, more) = (
            Partition::new([("a", 100), ("b", 100), ("c", 100)]),
            Partition::new([("a", 100), ("b", 100), ("c", 150)]),
        );
        let moves: Vec<_> = owners(&even).into_iter().zip(owners(&more)).filter(|(old, new)| old != new).collect();
        assert!(!moves.is_empty() && moves.iter().all(|(_, new)| *new == 2));
    }

    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

    fn weighted(weights: &[u16]) -> Partition {
        Partition::new(NAMES.into_iter().zip(weights.iter().copied()))
    }

    /// Returns the slots whose cluster differs, as pairs of old and new cluster.
    fn moves(before: &Partition, after: &Partition) -> Vec<(Option<usize>, Option<usize>)> {
        let owners = (0..=u16::MAX).map(|slot| (before.owner(Slot(slot)), after.owner(Slot(slot))));
        owners.filter(|(before, after)| before != after).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn users_move_only_to_or_from_reweighted_clusters(
            weights in prop::collection::vec((0..400_u16, 0..400_u16, any::<bool>()), 1..=6)
        ) {
            let before: Vec<u16> = weights.iter().map(|(before, ..)| *before).collect();
            let after: Vec<u16> =
                weights.iter().map(|(before, after, has_changed)| if *has_changed { *after } else { *before }).collect();
            let has_changed = |cluster: Option<usize>| cluster.is_none_or(|cluster| before[cluster] != after[cluster]);
            for (from, to) in moves(&weighted(&before), &weighted(&after)) {
                prop_assert!(has_changed(from) || has_changed(to), "{from:?} to {to:?}");
                prop_assert!(to.is_none_or(|to| after[to] > 0));
            }
        }

        #[test]
        fn one_reweighted_cluster_only_gains_or_only_loses(
            before in prop::collection::vec(0..=u16::MAX, 1..=6), at in any::<prop::sample::Index>(), weight in 0..=u16::MAX
        ) {
            let at = at.index(before.len());
            let mut after = before.clone();
            after[at] = weight;
            for (from, to) in moves(&weighted(&before), &weighted(&after)) {
                prop_assert_eq!(if weight > before[at] { to } else { from }, Some(at));
            }
        }
    }

    #[test]
    fn a_zero_weight_cluster_has_no_users() {
        let partition = Partition::new([("a", 100), ("b", 0)]);
        assert_eq!(partition.slots(), [65_536, 0]);
        assert_eq!(Partition::new([("a", 0)]).owner(Slot(7)), None);
        assert_eq!(Partition::new([]).owner(Slot(7)), None);
    }

    #[test]
    fn the_order_of_clusters_does_not_matter() {
        let (one, other) = (Partition::new([("a", 100), ("b", 70)]), Partition::new([("b", 70), ("a", 100)]));
        let swapped: Vec<usize> = owners(&other).into_iter().map(|owner| 1 - owner).collect();
        assert_eq!(owners(&one), swapped);
    }

    #[test]
    fn slots_and_owners_never_change() {
        assert_eq!([b"alice@example.com".as_slice(), b"bob@example.com"].map(|key| Slot::of(key).0), [15_046, 36_170]);
        let partition = Partition::new([("a", 100), ("b", 100), ("c", 100)]);
        assert_eq!(
            (0..8).map(|slot| partition.owner(Slot(slot)).unwrap()).collect::<Vec<_>>(),
            [0, 1, 1, 1, 1, 0, 2, 2]
        );
    }

    #[test]
    fn slot_loads_sum_to_cluster_loads_and_decay() {
        let (loads, partition) = (SlotLoads::default(), Partition::new([("a", 100), ("b", 100)]));
        let slot = Slot::of(b"alice@example.com");
        for _ in 0..10 {
            loads.count(slot, true);
        }
        let sums = partition.sums(|slot| u64::from(loads.requests(slot)));
        assert_eq!(sums.iter().sum::<u64>(), 10);
        assert_eq!(sums.get(partition.owner(slot).unwrap()), Some(&10));
        loads.halve();
        assert_eq!((loads.requests(slot), loads.calls(slot)), (5, 5));
    }
}
