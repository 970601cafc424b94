//! The striped, structurally shared snapshot.

use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use strowger_foundation::map::{SeededState, seeded};

use crate::User;
use crate::gateway::{Gateway, Gateways};

/// Number of stripes of a directory. A new version copies this many pointers, and the pointers of each changed
/// stripe: with a million users about 256 and 4,000.
const STRIPES: usize = 256;

/// A changed row of a store.
#[derive(Clone, PartialEq, Eq)]
pub enum DirectoryChange {
    /// A user is new, or has another password or state.
    PutUser(User),
    /// There is no user at this address anymore.
    RemoveUser(Box<[u8]>),
    /// `alias` resolves to `aor`.
    PutAlias {
        /// Canonical address that is looked up.
        alias: Box<[u8]>,
        /// Canonical address of the user it resolves to.
        aor: Box<[u8]>,
    },
    /// The address is no alias anymore.
    RemoveAlias(Box<[u8]>),
    /// Replaces all members of a set; an empty list removes the set.
    PutGateways {
        /// Name of the set.
        set: Box<[u8]>,
        /// Members, each URI once.
        gateways: Vec<Gateway>,
    },
}

/// An immutable version of all users, aliases and gateways. Cloning copies 256 pointers.
///
/// Dropping the last reference frees the stripes that no other version shares. If a pause matters (in a worker), let
/// a slower thread hold the old version until the workers have the new one.
#[derive(Clone)]
pub struct Directory {
    seed: SeededState,
    stripes: Box<[Arc<Stripe>]>,
    gateways: Gateways,
    users: usize,
    aliases: usize,
}

impl Directory {
    /// Creates an empty directory. `seed` is drawn at random once per process, so that nobody can choose addresses
    /// that collide.
    #[must_use]
    pub fn empty(seed: u64) -> Self {
        let stripe = Arc::new(Stripe::default());
        let stripes = (0..STRIPES).map(|_| Arc::clone(&stripe)).collect();
        Self { seed: seeded(seed), stripes, gateways: Gateways::default(), users: 0, aliases: 0 }
    }

    /// Returns the next version: this one with `changes` applied in order. This version stays unchanged.
    #[must_use]
    pub fn with_changes(&self, changes: impl IntoIterator<Item = DirectoryChange>) -> Self {
        let mut next = self.clone();
        for change in changes {
            next.on_change(change);
        }
        next
    }

    /// Returns the user at the canonical address `aor`. Does not follow aliases.
    #[must_use]
    pub fn user(&self, aor: &[u8]) -> Option<&User> {
        let hash = self.hash(aor);
        self.stripe(hash)?.users.find(hash, |user| *user.aor == *aor).map(|user| &**user)
    }

    /// Returns the address that the alias `aor` resolves to, or `aor` itself if it is no alias.
    ///
    /// Only one level is followed, so there are no loops. Stores refuse an alias of an alias, and an alias equal to a
    /// user's own address.
    #[must_use]
    pub fn resolve<'a>(&'a self, aor: &'a [u8]) -> &'a [u8] {
        if self.aliases == 0 {
            return aor;
        }
        let hash = self.hash(aor);
        let alias = self.stripe(hash).and_then(|stripe| stripe.aliases.find(hash, |alias| *alias.alias == *aor));
        alias.map_or(aor, |alias| &alias.aor)
    }

    /// Calls `visit` with the address of each user, in no particular order.
    pub fn for_each_user(&self, mut visit: impl FnMut(&[u8])) {
        self.stripes.iter().flat_map(|stripe| &stripe.users).for_each(|user| visit(&user.aor));
    }

    /// Returns the number of users.
    #[must_use]
    pub fn users(&self) -> usize {
        self.users
    }

    /// Returns the number of aliases.
    #[must_use]
    pub fn aliases(&self) -> usize {
        self.aliases
    }

    /// Returns the gateway sets.
    #[must_use]
    pub fn gateways(&self) -> &Gateways {
        &self.gateways
    }

    /// Panics unless each row is in its stripe, exists once, and is counted. Reads everything: for tests and the
    /// simulator.
    pub fn check_invariants(&self) {
        self.gateways.check_invariants();
        assert_eq!(self.stripes.len(), STRIPES);
        for (index, stripe) in self.stripes.iter().enumerate() {
            for user in &stripe.users {
                assert_eq!(stripe_index(self.hash(&user.aor)), index, "a user in a foreign stripe");
                assert!(self.user(&user.aor).is_some_and(|found| std::ptr::eq(found, &**user)), "a user twice");
            }
            for alias in &stripe.aliases {
                assert_eq!(stripe_index(self.hash(&alias.alias)), index, "an alias in a foreign stripe");
                assert!(std::ptr::eq(self.resolve(&alias.alias), &*alias.aor), "an alias twice");
            }
        }
        assert_eq!(self.users, self.stripes.iter().map(|stripe| stripe.users.len()).sum::<usize>());
        assert_eq!(self.aliases, self.stripes.iter().map(|stripe| stripe.aliases.len()).sum::<usize>());
    }

    fn on_change(&mut self, change: DirectoryChange) {
        let hash = self.hash(change.key());
        let seed = &self.seed;
        let Some(stripe) = self.stripes.get_mut(stripe_index(hash)) else {
            debug_assert!(false, "stripe_index is below STRIPES");
            return;
        };
        let stripe = Arc::make_mut(stripe);
        match change {
            DirectoryChange::PutUser(user) => {
                let added = put(&mut stripe.users, seed, hash, Arc::new(user));
                self.users += usize::from(added);
            }
            DirectoryChange::RemoveUser(aor) => {
                let removed = remove(&mut stripe.users, hash, &aor);
                debug_assert!(!removed || self.users > 0);
                self.users -= usize::from(removed);
            }
            DirectoryChange::PutAlias { alias, aor } => {
                let added = put(&mut stripe.aliases, seed, hash, Arc::new(Alias { alias, aor }));
                self.aliases += usize::from(added);
            }
            DirectoryChange::RemoveAlias(alias) => {
                let removed = remove(&mut stripe.aliases, hash, &alias);
                debug_assert!(!removed || self.aliases > 0);
                self.aliases -= usize::from(removed);
            }
            // Gateway sets are not striped.
            DirectoryChange::PutGateways { set, gateways } => self.gateways.put(set, gateways),
        }
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.seed.hash_one(key)
    }

    fn stripe(&self, hash: u64) -> Option<&Stripe> {
        self.stripes.get(stripe_index(hash)).map(|stripe| &**stripe)
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("users", &self.users).field("aliases", &self.aliases).finish_non_exhaustive()
    }
}

impl DirectoryChange {
    fn key(&self) -> &[u8] {
        match self {
            Self::PutUser(user) => &user.aor,
            Self::RemoveUser(key)
            | Self::PutAlias { alias: key, .. }
            | Self::RemoveAlias(key)
            | Self::PutGateways { set: key, .. } => key,
        }
    }
}

impl fmt::Debug for DirectoryChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PutUser(user) => write!(f, "PutUser({user:?})"),
            Self::RemoveUser(aor) => write!(f, "RemoveUser({})", aor.escape_ascii()),
            Self::PutAlias { alias, aor } => write!(f, "PutAlias({} -> {})", alias.escape_ascii(), aor.escape_ascii()),
            Self::RemoveAlias(alias) => write!(f, "RemoveAlias({})", alias.escape_ascii()),
            Self::PutGateways { set, gateways } => write!(f, "PutGateways({}: {gateways:?})", set.escape_ascii()),
        }
    }
}

/// A stripe of rows. Rows are behind pointers, so copying a stripe costs one reference count each and shares the
/// text.
#[derive(Clone, Default)]
struct Stripe {
    users: HashTable<Arc<User>>,
    aliases: HashTable<Arc<Alias>>,
}

struct Alias {
    alias: Box<[u8]>,
    aor: Box<[u8]>,
}

trait HasKey {
    fn key(&self) -> &[u8];
}

impl HasKey for User {
    fn key(&self) -> &[u8] {
        &self.aor
    }
}

impl HasKey for Alias {
    fn key(&self) -> &[u8] {
        &self.alias
    }
}

/// Inserts `row`, replacing the one with its key. Returns whether there was none.
fn put<T: HasKey>(table: &mut HashTable<Arc<T>>, seed: &SeededState, hash: u64, row: Arc<T>) -> bool {
    match table.entry(hash, |other| other.key() == row.key(), |other| seed.hash_one(other.key())) {
        Entry::Occupied(mut occupied) => {
            *occupied.get_mut() = row;
            false
        }
        Entry::Vacant(vacant) => {
            vacant.insert(row);
            true
        }
    }
}

/// Removes the row with this key. Returns whether there was one.
fn remove<T: HasKey>(table: &mut HashTable<Arc<T>>, hash: u64, key: &[u8]) -> bool {
    table.find_entry(hash, |row| row.key() == key).map(hashbrown::hash_table::OccupiedEntry::remove).is_ok()
}

/// Returns the stripe of a hash. The table within a stripe uses the lowest and the highest bits, so the stripe uses
/// others.
fn stripe_index(hash: u64) -> usize {
    (hash >> 32) as usize % STRIPES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ha1s;

    fn user(index: usize) -> User {
        let aor = format!("user{index}@example.com").into_bytes().into();
        User { aor, ha1: Ha1s { md5: Some([7; 16]), ..Ha1s::default() }, enabled: true }
    }

    #[test]
    fn a_change_copies_its_stripe_and_shares_the_others() {
        let before = Directory::empty(1).with_changes((0..10_000).map(|index| DirectoryChange::PutUser(user(index))));
        let after = before.with_changes([DirectoryChange::PutUser(User { enabled: false, ..user(5) })]);
        let copied = before.stripes.iter().zip(&*after.stripes).filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
        assert_eq!(copied, 1);
        let neighbours = before.stripe(before.hash(&user(5).aor)).map_or(0, |stripe| stripe.users.len());
        assert!(neighbours > 1, "a stripe with one user proves nothing");
        let same_rows = (0..10_000)
            .filter(|index| {
                let aor = user(*index).aor;
                matches!((before.user(&aor), after.user(&aor)), (Some(a), Some(b)) if std::ptr::eq(a, b))
            })
            .count();
        assert_eq!(same_rows, 9_999, "rows of a copied stripe are shared too");
        after.check_invariants();
    }

    #[test]
    fn users_spread_evenly_over_stripes() {
        let directory =
            Directory::empty(42).with_changes((0..25_600).map(|index| DirectoryChange::PutUser(user(index))));
        let fullest = directory.stripes.iter().map(|stripe| stripe.users.len()).max();
        let emptiest = directory.stripes.iter().map(|stripe| stripe.users.len()).min();
        assert!(fullest < Some(160) && emptiest > Some(50), "{emptiest:?} to {fullest:?} around 100");
        directory.check_invariants();
    }

    #[test]
    fn debug_shows_counts_only() {
        let directory = Directory::empty(3).with_changes([DirectoryChange::PutUser(user(1))]);
        assert_eq!(format!("{directory:?}"), "Directory { users: 1, aliases: 0, .. }");
    }

    #[test]
    fn debug_of_a_change_is_readable() {
        let alias = DirectoryChange::PutAlias { alias: (*b"desk@x").into(), aor: (*b"al\nice@x").into() };
        assert_eq!(format!("{alias:?}"), r"PutAlias(desk@x -> al\nice@x)");
        assert_eq!(format!("{:?}", DirectoryChange::RemoveUser((*b"alice@x").into())), "RemoveUser(alice@x)");
    }
}
