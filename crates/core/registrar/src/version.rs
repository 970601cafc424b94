//! When a contact was changed, where several servers ("members") change it: a hybrid logical clock (Kulkarni and others, *Logical
//! Physical Clocks*, 2014).
//!
//! A version is the store time of the change in milliseconds, a counter, and the member that made it. A clock that has seen a version
//! gives only later ones, so that what is known to be older is older, whatever the members' clocks say. Clocks that differ do no other
//! harm than that of two changes which know nothing of each other the later one may be taken for the earlier.

use core::sync::atomic::{AtomicU64, Ordering};

/// Bits of the member, and of the counter before it.
const MEMBER_BITS: u32 = 10;
const COUNTER_BITS: u32 = 10;

/// Which server of those that share registrations; from 1 to [`MAX_MEMBER`](Self::MAX).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(u16);

impl MemberId {
    /// The highest one.
    pub const MAX: u16 = (1 << MEMBER_BITS) - 1;

    /// The member of this number; `None` for 0 and beyond [`MAX`](Self::MAX).
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number == 0 || number > Self::MAX { None } else { Some(Self(number)) }
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// When a contact was changed, and by whom. The later one is the greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    /// Of what was never shared: before all others.
    pub const NONE: Self = Self(0);

    /// The version that [`to_bits`](Self::to_bits) gave.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The version as a number.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Who made the change; `None` where it was never shared.
    #[must_use]
    pub fn member(self) -> Option<MemberId> {
        MemberId::new(u16::try_from(self.0 & u64::from(MemberId::MAX)).unwrap_or(0))
    }

    /// Store time of the change in milliseconds, by the clock of its member or a later one that this has seen.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0 >> (MEMBER_BITS + COUNTER_BITS)
    }

    /// The next version after `other` by the same member as this one.
    pub(crate) const fn right_after(self, other: Self) -> Self {
        Self(((other.0 >> MEMBER_BITS) + 1) << MEMBER_BITS | self.0 & MemberId::MAX as u64)
    }
}

/// A member's clock.
#[derive(Debug, Default)]
pub(crate) struct VersionClock {
    /// The last time given or seen, with its counter.
    last: AtomicU64,
}

impl VersionClock {
    /// A version later than all that were given or seen. `store_ms` is the store time in milliseconds.
    pub(crate) fn next(&self, store_ms: u64, member: MemberId) -> Version {
        let at_least = store_ms << COUNTER_BITS;
        let step = |last: u64| at_least.max(last.saturating_add(1));
        let before = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(step(last)));
        let time = step(before.unwrap_or_else(|last| last));
        Version(time << MEMBER_BITS | u64::from(member.0))
    }

    /// Has seen a version.
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
    fn a_clock_gives_later_versions_only_whatever_the_time_does() {
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
    fn of_equal_times_the_member_decides() {
        let (one, two) = (VersionClock::default().next(5, member(1)), VersionClock::default().next(5, member(2)));
        assert!(one < two && Version::NONE < one && Version::NONE.member().is_none());
        let after = one.right_after(two);
        assert!(after > two && after.member() == Some(member(1)));
        assert_eq!(MemberId::new(0), None);
        assert_eq!(MemberId::new(MemberId::MAX + 1), None);
    }
}
