//! The newest change of each contact, if several members make changes.

use core::time::Duration;
use hashbrown::HashTable;
use std::collections::BTreeSet;

use strowger_foundation::Timestamp;

use crate::register_sequence::RegisterSequence;
use crate::version::Version;

/// The key of a contact of an address of record, the same in all members:
/// [`Parts::contact`](crate::text::Parts::contact).
pub(crate) type ContactKey = u64;

/// The data that decides between two changes of one contact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) version: Version,
    pub(crate) call: RegisterSequence,
    /// Whether it binds the contact; otherwise it removes it.
    pub(crate) is_binding: bool,
}

/// The resolution of a change against the known one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// The known one is kept: the change is older or already known.
    Keep,
    /// The change replaces the known one and gets this version.
    Replace(Version),
    /// The known one is kept as the newest, but gets this version.
    KeepAs(Version),
}

/// Retention time of a removal on disk, in ms: longer than the lifetime of any older binding.
const REMOVAL_RETENTION_MS: u64 = 24 * 3_600_000;

/// The Call-ID of changes without a REGISTER. No client's Call-ID equals it, so the version decides.
pub(crate) const SERVER_SEQUENCE: RegisterSequence = RegisterSequence { id: [0; 16], cseq: 0 };

impl Change {
    /// Returns until when a removal is retained on disk, in nanoseconds of store time.
    pub(crate) const fn retained_until(self) -> u64 {
        self.version.millis().saturating_add(REMOVAL_RETENTION_MS).saturating_mul(1_000_000)
    }

    /// Returns when all older changes with a lifetime of at most `longest` have expired, in nanoseconds of store
    /// time.
    pub(crate) fn tombstone_until(self, longest: Duration) -> u64 {
        let longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        self.version.millis().saturating_add(longest_ms).saturating_mul(1_000_000)
    }

    //= rfc3261#10.3 step 7
    /// Resolves two changes. Within one Call-ID the higher CSeq is newer, otherwise the later version. If CSeq
    /// contradicts the version, the newer change gets a version just after the older one's. So versions alone
    /// determine the final order: every member that sees the same changes, in any order, keeps the one with the
    /// latest version. A client that reuses a CSeq may cause two changes with one version; of these the binding one
    /// is kept.
    pub(crate) fn resolve(self, known: Self) -> Resolution {
        let is_later = (self.version, self.call.id, self.is_binding) > (known.version, known.call.id, known.is_binding);
        if self.call.id != known.call.id || self.call.cseq == known.call.cseq {
            return if is_later { Resolution::Replace(self.version) } else { Resolution::Keep };
        }
        match (self.call.cseq > known.call.cseq, is_later) {
            (true, true) => Resolution::Replace(self.version),
            (true, false) => Resolution::Replace(self.version.right_after(known.version)),
            (false, true) => Resolution::KeepAs(known.version.right_after(self.version)),
            (false, false) => Resolution::Keep,
        }
    }
}

/// A contact that is no longer bound, remembered until all changes older than its removal have expired.
#[derive(Clone, Debug)]
pub(crate) struct Tombstone {
    pub(crate) aor: Box<[u8]>,
    pub(crate) contact: ContactKey,
    pub(crate) change: Change,
    pub(crate) until: Timestamp,
}

/// The versions of one stripe. Empty, and without memory, if nothing is shared.
#[derive(Debug, Default)]
pub(crate) struct VersionTable {
    bound: HashTable<(ContactKey, Version)>,
    tombstones: HashTable<Tombstone>,
    /// The tombstones by time of removal.
    ends: BTreeSet<(Timestamp, ContactKey)>,
}

const SHRINK_FROM: usize = 64;

impl VersionTable {
    /// Returns the version of a bound contact; [`Version::NONE`] if it was never shared.
    pub(crate) fn of(&self, contact: ContactKey) -> Version {
        self.bound.find(contact, |(key, _)| *key == contact).map_or(Version::NONE, |(_, version)| *version)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bound.is_empty() && self.tombstones.is_empty()
    }

    pub(crate) fn set(&mut self, contact: ContactKey, version: Version) {
        match self.bound.find_mut(contact, |(key, _)| *key == contact) {
            Some((_, known)) => *known = version,
            None => {
                self.bound.insert_unique(contact, (contact, version), |(key, _)| *key);
            }
        }
        self.remove_tombstone(contact);
    }

    /// Gives the known state of a contact another version.
    pub(crate) fn restamp(&mut self, contact: ContactKey, version: Version) {
        if let Some((_, known)) = self.bound.find_mut(contact, |(key, _)| *key == contact) {
            *known = version;
        } else if let Some(mark) = self.tombstones.find_mut(contact, |mark| mark.contact == contact) {
            mark.change.version = version;
        }
    }

    /// Drops the version of a contact that was removed or has expired.
    pub(crate) fn remove(&mut self, contact: ContactKey) {
        if let Ok(entry) = self.bound.find_entry(contact, |(key, _)| *key == contact) {
            entry.remove();
            if self.bound.capacity() > SHRINK_FROM && self.bound.len() < self.bound.capacity() / 4 {
                self.bound.shrink_to(self.bound.len() * 2, |(key, _)| *key);
            }
        }
    }

    pub(crate) fn tombstone_of(&self, contact: ContactKey) -> Option<&Tombstone> {
        self.tombstones.find(contact, |mark| mark.contact == contact)
    }

    /// Returns whether an update with this sequence is older than the removal of its contact.
    pub(crate) fn is_before_tombstone(&self, contact: ContactKey, call: RegisterSequence) -> bool {
        let is_older = |mark: &Tombstone| mark.change.call.id == call.id && call.cseq <= mark.change.call.cseq;
        !self.tombstones.is_empty() && self.tombstone_of(contact).is_some_and(is_older)
    }

    pub(crate) fn insert_tombstone(&mut self, mark: Tombstone) {
        self.remove(mark.contact);
        self.remove_tombstone(mark.contact);
        self.ends.insert((mark.until, mark.contact));
        self.tombstones.insert_unique(mark.contact, mark, |mark| mark.contact);
    }

    /// Removes expired tombstones; each change removes some.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        const AT_ONCE: usize = 64;
        for _ in 0..AT_ONCE {
            let Some((_, contact)) = self.ends.first().copied().filter(|(until, _)| *until <= now) else { return };
            self.remove_tombstone(contact);
        }
    }

    /// Returns some tombstones, from position `from` on, counted from the newest; and the position of the next ones.
    pub(crate) fn tombstones_from(
        &self,
        from: usize,
        count: usize,
    ) -> (impl Iterator<Item = &Tombstone>, Option<usize>) {
        let next = from.saturating_add(count);
        let marks =
            self.ends.iter().rev().skip(from).take(count).filter_map(|(_, contact)| self.tombstone_of(*contact));
        (marks, (next < self.ends.len()).then_some(next))
    }

    /// Returns the numbers of bound contacts and tombstones.
    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        (self.bound.len(), self.tombstones.len())
    }

    fn remove_tombstone(&mut self, contact: ContactKey) {
        if let Ok(entry) = self.tombstones.find_entry(contact, |mark| mark.contact == contact) {
            let (mark, _) = entry.remove();
            self.ends.remove(&(mark.until, contact));
            if self.tombstones.capacity() > SHRINK_FROM && self.tombstones.len() < self.tombstones.capacity() / 4 {
                self.tombstones.shrink_to(self.tombstones.len() * 2, |mark| mark.contact);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::version::{MemberId, VersionClock};

    #[test]
    fn the_binding_wins_at_equal_versions() {
        let binding = change(1, 5, 1_000, 3);
        let removal = Change { is_binding: false, ..binding };
        assert_eq!(binding.resolve(removal), Resolution::Replace(binding.version));
        assert_eq!(removal.resolve(binding), Resolution::Keep);
        assert_eq!(binding.resolve(binding), Resolution::Keep);
    }

    fn change(call: u8, cseq: u32, store_ms: u64, member: u16) -> Change {
        let member = MemberId::new(member).expect("in range");
        Change {
            version: VersionClock::default().next(store_ms, member),
            call: RegisterSequence { id: [call; 16], cseq },
            is_binding: true,
        }
    }

    proptest! {
        /// Members that see the same changes in different orders, and tell each other the versions they assign, end
        /// up with one state.
        #[test]
        fn members_agree(changes in prop::collection::vec((0u8..3, 0u32..4, 1u64..8, 1u16..4), 1..7), orders in prop::collection::vec(any::<u64>(), 3)) {
            let all: Vec<Change> = changes.iter().map(|(call, cseq, at, member)| change(*call, *cseq, *at, *member)).collect();
            let mut members: Vec<Option<Change>> = vec![None; orders.len()];
            let mut told: Vec<Change> = Vec::new();
            for (member, order) in members.iter_mut().zip(&orders) {
                let mut own = all.clone();
                own.sort_by_key(|change| (change.version.to_bits() ^ u64::from(change.call.cseq)).wrapping_mul(order | 1));
                own.into_iter().for_each(|change| take(member, change, &mut told));
            }
            while let Some(change) = told.pop() {
                members.iter_mut().for_each(|member| take(member, change, &mut told));
            }
            let seen: Vec<_> = members.iter().flatten().map(|change| (change.version, change.call.id, change.call.cseq)).collect();
            prop_assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
            let last = members[0].expect("there was one");
            if all.iter().all(|change| change.call.id == last.call.id) {
                prop_assert_eq!(Some(last.call.cseq), all.iter().map(|change| change.call.cseq).max());
            }
        }
    }

    fn take(known: &mut Option<Change>, change: Change, told: &mut Vec<Change>) {
        let Some(before) = *known else {
            *known = Some(change);
            return;
        };
        match change.resolve(before) {
            Resolution::Keep => {}
            Resolution::Replace(version) => {
                *known = Some(Change { version, ..change });
                if version != change.version {
                    told.extend(*known);
                }
            }
            Resolution::KeepAs(version) => {
                *known = Some(Change { version, ..before });
                told.extend(*known);
            }
        }
    }

    #[test]
    fn an_expired_tombstone_is_removed() {
        let mut versions = VersionTable::default();
        versions.set(1, change(1, 1, 5, 1).version);
        let mark = |until_s: u64| Tombstone {
            aor: Box::default(),
            contact: 1,
            change: change(1, 2, 6, 1),
            until: Timestamp::from_millis(until_s * 1_000),
        };
        versions.insert_tombstone(mark(10));
        assert_eq!((versions.of(1), versions.counts()), (Version::NONE, (0, 1)));
        versions.insert_tombstone(mark(20));
        versions.expire(Timestamp::from_millis(15_000));
        assert!(versions.tombstone_of(1).is_some());
        versions.expire(Timestamp::from_millis(20_000));
        assert!(versions.is_empty());
    }
}
