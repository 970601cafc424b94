//! Numbers of host names, so that a flow can carry one.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use hashbrown::HashMap;
use strowger_foundation::HostId;
use strowger_foundation::map::{SeededState, seeded};

use crate::MAX_HOST;

/// Maximum number of host names of secure peers. A further one takes the place of one that was not used for long.
pub const MAX_HOSTS: usize = 65_536;

/// The host names of secure peers by number.
///
/// Callers may choose names, so the table forgets those that are not used. A number never returns with another name:
/// connections and flows may outlive the name, and must not serve the peer of another.
#[derive(Debug)]
pub struct HostNames {
    table: RwLock<Table>,
}

#[derive(Debug)]
struct Table {
    limit: usize,
    /// The places of the names.
    places: HashMap<Arc<str>, usize, SeededState>,
    names: Vec<Entry>,
    /// The place that is examined next when one is needed.
    hand: usize,
}

/// A name at its place. Its number is the place plus one plus a multiple of the limit: one more for each name that
/// was there before.
#[derive(Debug)]
struct Entry {
    name: Arc<str>,
    id: HostId,
    /// Whether it was asked for again since the hand passed.
    is_used: AtomicBool,
}

impl Entry {
    fn note_use(&self) -> HostId {
        // Written rarely, because all workers read it.
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        self.id
    }
}

impl HostNames {
    /// Creates an empty table. `seed` keeps peers from choosing names that collide.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with_limit(seed, MAX_HOSTS)
    }

    fn with_limit(seed: u64, limit: usize) -> Self {
        let places = HashMap::with_hasher(seeded(seed));
        Self { table: RwLock::new(Table { limit, places, names: Vec::new(), hand: 0 }) }
    }

    /// Returns the number of `host`, in lower case; `None` for what is not a name, and after four billion names.
    pub fn number(&self, host: &[u8]) -> Option<HostId> {
        let host = str::from_utf8(host).ok().filter(|host| (1..=MAX_HOST).contains(&host.len()))?;
        if let Some(id) = self.known(host) {
            return Some(id);
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.find(host).map(Entry::note_use).or_else(|| table.insert(host.into()))
    }

    /// Returns the number of `host` if it has one.
    #[must_use]
    pub fn known(&self, host: &str) -> Option<HostId> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).find(host).map(Entry::note_use)
    }

    /// Returns the name with a number; none for [`HostId::NONE`] and a name that has been forgotten.
    #[must_use]
    pub fn name(&self, id: HostId) -> Option<Arc<str>> {
        let at = usize::try_from(id.0.checked_sub(1)?).ok()?;
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let entry = table.names.get(at.checked_rem(table.limit)?).filter(|entry| entry.id == id)?;
        Some(Arc::clone(&entry.name))
    }
}

impl Table {
    fn find(&self, host: &str) -> Option<&Entry> {
        self.names.get(*self.places.get(host)?)
    }

    /// Gives a new name a place, if need be that of one that was not used for a turn of the hand.
    fn insert(&mut self, name: Arc<str>) -> Option<HostId> {
        let at = if self.names.len() < self.limit { self.names.len() } else { self.unused()? };
        let id = match self.names.get(at) {
            Some(former) => {
                let next = former.id.0.checked_add(u32::try_from(self.limit).ok()?)?;
                let id = Some(HostId(next)).filter(|id| *id != HostId::SOURCE)?;
                self.places.remove(&former.name);
                id
            }
            None => HostId(u32::try_from(at).ok()?.checked_add(1)?),
        };
        self.places.insert(Arc::clone(&name), at);
        // The hand has just passed, so even a name that is never used again stays for a turn.
        let entry = Entry { name, id, is_used: AtomicBool::new(false) };
        match self.names.get_mut(at) {
            Some(place) => *place = entry,
            None => self.names.push(entry),
        }
        Some(id)
    }

    /// Moves the hand to a name that was not used since it last passed; at the latest after one turn, all are unused.
    fn unused(&mut self) -> Option<usize> {
        loop {
            let at = self.hand;
            self.hand = at.checked_add(1).filter(|next| *next < self.names.len()).unwrap_or(0);
            if !core::mem::take(self.names.get_mut(at)?.is_used.get_mut()) {
                return Some(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number() {
        let hosts = HostNames::new(1);
        let [one, two] = [b"one.example".as_slice(), b"two.example"].map(|host| hosts.number(host).expect("room"));
        assert_ne!(one, two);
        assert_eq!((hosts.number(b"one.example"), hosts.known("two.example")), (Some(one), Some(two)));
        assert_eq!(hosts.name(one).as_deref(), Some("one.example"));
        assert_eq!((hosts.name(HostId::NONE), hosts.name(HostId(3)), hosts.number(b"")), (None, None, None));
    }

    #[test]
    fn unused_names_make_room_and_their_numbers_do_not_return() {
        let hosts = HostNames::with_limit(1, 8);
        let number = |name: &str| hosts.number(name.as_bytes()).expect("room");
        let trunk = number("trunk.example");
        let mut seen = vec![trunk];
        for round in 0..100 {
            let name = format!("{round}.example");
            let id = number(&name);
            assert!(!seen.contains(&id), "{id:?} was another name's");
            assert_eq!(hosts.name(id).as_deref(), Some(&*name));
            // What is used stays.
            assert_eq!(hosts.known("trunk.example"), Some(trunk));
            seen.push(id);
        }
        assert_eq!((hosts.known("0.example"), hosts.name(seen[1])), (None, None), "forgotten");
        let table = hosts.table.read().expect("no panic");
        assert_eq!((table.names.len(), table.places.len()), (8, 8));
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let hosts = HostNames::new(1);
        let count = (0..=2 * MAX_HOSTS).filter_map(|number| hosts.number(number.to_string().as_bytes())).count();
        assert_eq!(count, 2 * MAX_HOSTS + 1);
        assert_eq!(hosts.table.read().expect("no panic").names.len(), MAX_HOSTS);
    }
}
