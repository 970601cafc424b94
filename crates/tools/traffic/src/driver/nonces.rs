//! Challenges that users were given once and answer at once from then on (RFC 7616 §3.4): only who was challenged is here.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::script::MethodId;
use crate::session::Challenge;

/// Tables: each grows by itself, so that no growth moves more than a small part of all.
const TABLES: usize = 256;

/// What users know of the server's nonces. A registrar and a proxy challenge apart from each other.
#[derive(Debug)]
pub(super) struct Nonces(Vec<HashMap<u64, NonceEntry, FixedState>>);

#[derive(Debug)]
struct NonceEntry {
    challenge: Arc<Challenge>,
    /// Requests that have answered it.
    count: u32,
}

impl Nonces {
    pub(super) fn new(hasher: &FixedState) -> Self {
        Self((0..TABLES).map(|_| HashMap::with_hasher(hasher.clone())).collect())
    }

    /// A user was challenged anew.
    pub(super) fn put(&mut self, user: u32, verb: MethodId, challenge: &Arc<Challenge>) {
        let (table, key) = Self::place(user, verb, challenge.is_proxy);
        if let Some(table) = self.0.get_mut(table) {
            table.insert(key, NonceEntry { challenge: Arc::clone(challenge), count: 0 });
        }
    }

    /// The challenge of a proxy, or of who is no proxy, that a user's next request answers, and its count: no two requests
    /// have the same.
    //= rfc7616#3.4
    pub(super) fn next(&mut self, user: u32, verb: MethodId, is_proxy: bool) -> Option<(Arc<Challenge>, u32)> {
        let (table, key) = Self::place(user, verb, is_proxy);
        let held = self.0.get_mut(table)?.get_mut(&key)?;
        held.count += 1;
        Some((Arc::clone(&held.challenge), held.count))
    }

    /// The server does not believe the user.
    pub(super) fn forget(&mut self, user: u32, verb: MethodId, is_proxy: bool) {
        let (table, key) = Self::place(user, verb, is_proxy);
        if let Some(table) = self.0.get_mut(table) {
            table.remove(&key);
        }
    }

    fn place(user: u32, verb: MethodId, is_proxy: bool) -> (usize, u64) {
        let kind = u64::from(verb == MethodId::Register) << 1 | u64::from(is_proxy);
        (user as usize % TABLES, u64::from(user) << 2 | kind)
    }
}
