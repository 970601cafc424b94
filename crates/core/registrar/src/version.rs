//! Versions of contact changes made by several servers ("members"): a hybrid logical clock (Kulkarni and others,
//! *Logical Physical Clocks*, 2014).
//!
//! A version consists of the store time of the change in milliseconds, a counter, and the member that made it. A
//! clock that has seen a version issues only later ones, so a change made with knowledge of another is always later,
//! whatever the members' clocks. Clock differences only affect two changes made without knowledge of each other: the
//! later one may be taken for the earlier.

use core::sync::atomic::{AtomicU64, Ordering};

/// Bits of the member, the lowest ones; the counter is above them.
const MEMBER_BITS: u32 = 10;
const COUNTER_BITS: u32 = 10;

/// A member among those that share registrations; from 1 to [`MAX_MEMBER`](Self::MAX).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(u16);

impl MemberId {
    /// The highest number.
    pub const MAX: u16 = (1 << MEMBER_BITS) - 1;

    /// Returns the member of this number; `None` for 0 and above [`MAX`](Self::MAX).
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number == 0 || number > Self::MAX { None } else { Some(Self(number)) }
    }

    /// Returns its number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// The time of a contact's change, and the member that made it. The later one is the greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    /// The version of a change that was never shared; less than all others.
    pub const NONE: Self = Self(0);

    /// Returns the version that [`to_bits`](Self::to_bits) encoded.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the version as a number.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the member that made the change; `None` if it was never shared.
    #[must_use]
    pub fn member(self) -> Option<MemberId> {
        MemberId::new(u16::try_from(self.0 & u64::from(MemberId::MAX)).unwrap_or(0))
    }

    /// Returns the store time of the change in milliseconds, by its member's clock or a later one that this clock has
    /// seen.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0 >> (MEMBER_BITS + COUNTER_BITS)
    }

    /// Returns the next version after `other`, by the same member as this one.
    pub(crate) const fn right_after(self, other: Self) -> Self {
        Self(((other.0 >> MEMBER_BITS) + 1) << MEMBER_BITS | self.0 & MemberId::MAX as u64)
    }
}

/// The clock of a member.
#[derive(Debug, Default)]
pub(crate) struct VersionClock {
    /// The last time issued or seen, with its counter.
    last: AtomicU64,
}

impl VersionClock {
    /// Returns a version later than all issued or seen. `store_ms` is the store time in milliseconds.
    pub(crate) fn next(&self, store_ms: u64, member: MemberId) -> Version {
        let at_least = store_ms << COUNTER_BITS;
        let step = |last: u64| at_least.max(last.saturating_add(1));
        let before = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(step(last)));
        let time = step(before.unwrap_or_else(|last| last));
        Version(time << MEMBER_BITS | u64::from(member.0))
    }

    /// Advances the clock past a version of another member.
    pub(crate) fn observe(&self, version: Version) {
        self.last.fetch_max(version.0 >> MEMBER_BITS, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u16) -> MemberId {
        MemberId::new(number).expect("in range")
    }

    #[test]
    fn the_version_clock_only_moves_forward() {
        let clock = VersionClock::default();
        let mut last = Version::NONE;
        for store_ms in [1_000, 1_000, 5, 1_001, 1_001] {
            let next = clock.next(store_ms, member(7));
            assert!(next > last && next.member() == Some(member(7)));
            last = next;
        }
        let ahead = VersionClock::default().next(9_000_000, member(2));
        clock.observe(ahead);
        let next = clock.next(1_002, member(1));
        assert!(next > ahead && next.millis() == 9_000_000);
    }

    #[test]
    fn equal_times_order_by_member() {
        let (one, two) = (VersionClock::default().next(5, member(1)), VersionClock::default().next(5, member(2)));
        assert!(one < two && Version::NONE < one && Version::NONE.member().is_none());
        let after = one.right_after(two);
        assert!(after > two && after.member() == Some(member(1)));
        assert_eq!(MemberId::new(0), None);
        assert_eq!(MemberId::new(MemberId::MAX + 1), None);
    }
}
