//! The newest change of each contact, where several servers change it.

use core::time::Duration;
use hashbrown::HashTable;
use std::collections::BTreeSet;

use strowger_foundation::Timestamp;

use crate::plan::Call;
use crate::version::Version;

/// Names a contact of an address of record in all members: [`Parts::contact`](crate::text::Parts::contact).
pub(crate) type ContactKey = u64;

/// What decides between two changes of one contact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) version: Version,
    pub(crate) call: Call,
    /// Whether it binds the contact, or removes it.
    pub(crate) binds: bool,
}

/// What becomes of a change where another one is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// It is older, or known.
    Stays,
    /// It is the newest, with this version.
    Replaces(Version),
    /// The known one is the newest, but has to say so with this version.
    StaysAs(Version),
}

/// For how long a removal is kept on the disk, in milliseconds: longer than what was bound before it lasts.
const KEPT_MS: u64 = 24 * 3_600_000;

/// The Call-ID of changes that no REGISTER asked for: no client's is the same, so that their version decides.
pub(crate) const OF_SERVER: Call = Call { id: [0; 16], cseq: 0 };

impl Change {
    /// Until when it is kept on the disk as a removal, in nanoseconds of store time.
    pub(crate) const fn kept_until(self) -> u64 {
        self.version.millis().saturating_add(KEPT_MS).saturating_mul(1_000_000)
    }

    /// When all that is older has expired that lasted for `longest` at most, in nanoseconds of store time.
    pub(crate) fn outlasts_until(self, longest: Duration) -> u64 {
        let longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        self.version.millis().saturating_add(longest_ms).saturating_mul(1_000_000)
    }

    //= rfc3261#10.3 step 7
    /// Within one Call-ID the higher CSeq is the newer, else the later version. Where CSeq speaks against the version, the newer
    /// change gets a version behind the older one's. So versions alone tell in which order all members end up: whoever sees the
    /// same changes in any order keeps the one with the latest version. A client that uses a CSeq twice may have two changes get one
    /// version so: of these the one that binds stays.
    pub(crate) fn order(self, known: Self) -> Order {
        let is_later = (self.version, self.call.id, self.binds) > (known.version, known.call.id, known.binds);
        if self.call.id != known.call.id || self.call.cseq == known.call.cseq {
            return if is_later { Order::Replaces(self.version) } else { Order::Stays };
        }
        match (self.call.cseq > known.call.cseq, is_later) {
            (true, true) => Order::Replaces(self.version),
            (true, false) => Order::Replaces(self.version.right_after(known.version)),
            (false, true) => Order::StaysAs(known.version.right_after(self.version)),
            (false, false) => Order::Stays,
        }
    }
}

/// A contact that is bound no more, remembered until all that is older than its removal has expired.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) aor: Box<[u8]>,
    pub(crate) contact: ContactKey,
    pub(crate) change: Change,
    pub(crate) until: Timestamp,
}

/// Those of one stripe. Empty, and without memory, where nothing is shared.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    bound: HashTable<(ContactKey, Version)>,
    marks: HashTable<Mark>,
    /// The marks by the time when they go.
    ends: BTreeSet<(Timestamp, ContactKey)>,
}

const SHRINK_FROM: usize = 64;

impl Versions {
    /// The version of a contact that is bound; [`Version::NONE`] where it was never shared.
    pub(crate) fn of(&self, contact: ContactKey) -> Version {
        self.bound.find(contact, |(key, _)| *key == contact).map_or(Version::NONE, |(_, version)| *version)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bound.is_empty() && self.marks.is_empty()
    }

    pub(crate) fn set(&mut self, contact: ContactKey, version: Version) {
        match self.bound.find_mut(contact, |(key, _)| *key == contact) {
            Some((_, known)) => *known = version,
            None => {
                self.bound.insert_unique(contact, (contact, version), |(key, _)| *key);
            }
        }
        self.unmark(contact);
    }

    /// What is known of a contact has another version.
    pub(crate) fn restamp(&mut self, contact: ContactKey, version: Version) {
        if let Some((_, known)) = self.bound.find_mut(contact, |(key, _)| *key == contact) {
            *known = version;
        } else if let Some(mark) = self.marks.find_mut(contact, |mark| mark.contact == contact) {
            mark.change.version = version;
        }
    }

    /// The contact is bound no more, for it was removed or has expired.
    pub(crate) fn forget(&mut self, contact: ContactKey) {
        if let Ok(entry) = self.bound.find_entry(contact, |(key, _)| *key == contact) {
            entry.remove();
            if self.bound.capacity() > SHRINK_FROM && self.bound.len() < self.bound.capacity() / 4 {
                self.bound.shrink_to(self.bound.len() * 2, |(key, _)| *key);
            }
        }
    }

    pub(crate) fn mark_of(&self, contact: ContactKey) -> Option<&Mark> {
        self.marks.find(contact, |mark| mark.contact == contact)
    }

    /// Whether an update of this number is older than the removal of its contact.
    pub(crate) fn is_before_mark(&self, contact: ContactKey, call: Call) -> bool {
        let is_older = |mark: &Mark| mark.change.call.id == call.id && call.cseq <= mark.change.call.cseq;
        !self.marks.is_empty() && self.mark_of(contact).is_some_and(is_older)
    }

    pub(crate) fn mark(&mut self, mark: Mark) {
        self.forget(mark.contact);
        self.unmark(mark.contact);
        self.ends.insert((mark.until, mark.contact));
        self.marks.insert_unique(mark.contact, mark, |mark| mark.contact);
    }

    /// Forgets the marks whose time is over; each change forgets some.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        const AT_ONCE: usize = 64;
        for _ in 0..AT_ONCE {
            let Some((_, contact)) = self.ends.first().copied().filter(|(until, _)| *until <= now) else { return };
            self.unmark(contact);
        }
    }

    /// Some marks, from the one on that is so far from the newest; and where the next ones are.
    pub(crate) fn marks_from(&self, from: usize, count: usize) -> (impl Iterator<Item = &Mark>, Option<usize>) {
        let next = from.saturating_add(count);
        let marks = self.ends.iter().rev().skip(from).take(count).filter_map(|(_, contact)| self.mark_of(*contact));
        (marks, (next < self.ends.len()).then_some(next))
    }

    /// How many contacts are bound and marked.
    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        (self.bound.len(), self.marks.len())
    }

    fn unmark(&mut self, contact: ContactKey) {
        if let Ok(entry) = self.marks.find_entry(contact, |mark| mark.contact == contact) {
            let (mark, _) = entry.remove();
            self.ends.remove(&(mark.until, contact));
            if self.marks.capacity() > SHRINK_FROM && self.marks.len() < self.marks.capacity() / 4 {
                self.marks.shrink_to(self.marks.len() * 2, |mark| mark.contact);
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
    fn of_one_version_all_keep_what_binds() {
        let binding = change(1, 5, 1_000, 3);
        let removal = Change { binds: false, ..binding };
        assert_eq!(binding.order(removal), Order::Replaces(binding.version));
        assert_eq!(removal.order(binding), Order::Stays);
        assert_eq!(binding.order(binding), Order::Stays);
    }

    fn change(call: u8, cseq: u32, store_ms: u64, member: u16) -> Change {
        let member = MemberId::new(member).expect("in range");
        Change {
            version: VersionClock::default().next(store_ms, member),
            call: Call { id: [call; 16], cseq },
            binds: true,
        }
    }

    proptest! {
        /// Members that see the same changes in other orders, and tell each other what they give another version, end up with one.
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
        match change.order(before) {
            Order::Stays => {}
            Order::Replaces(version) => {
                *known = Some(Change { version, ..change });
                if version != change.version {
                    told.extend(*known);
                }
            }
            Order::StaysAs(version) => {
                *known = Some(Change { version, ..before });
                told.extend(*known);
            }
        }
    }

    #[test]
    fn a_mark_goes_when_its_time_is_over() {
        let mut versions = Versions::default();
        versions.set(1, change(1, 1, 5, 1).version);
        let mark = |until_s: u64| Mark {
            aor: Box::default(),
            contact: 1,
            change: change(1, 2, 6, 1),
            until: Timestamp::from_millis(until_s * 1_000),
        };
        versions.mark(mark(10));
        assert_eq!((versions.of(1), versions.counts()), (Version::NONE, (0, 1)));
        versions.mark(mark(20));
        versions.expire(Timestamp::from_millis(15_000));
        assert!(versions.mark_of(1).is_some());
        versions.expire(Timestamp::from_millis(20_000));
        assert!(versions.is_empty());
    }
}
