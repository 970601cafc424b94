//! Challenges that users have received and answer in advance in later requests (RFC 7616 §3.4). Only users that were
//! challenged have an entry.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::script::MethodId;
use crate::session::Challenge;

/// Number of tables. Each grows by itself, so that a growth moves only a small part of the entries.
const TABLES: usize = 256;

/// The users' nonces of the server. A registrar and a proxy challenge independently.
#[derive(Debug)]
pub(super) struct Nonces(Vec<HashMap<u64, NonceEntry, FixedState>>);

#[derive(Debug)]
struct NonceEntry {
    challenge: Arc<Challenge>,
    /// Requests that have used the nonce.
    count: u32,
}

impl Nonces {
    pub(super) fn new(hasher: &FixedState) -> Self {
        Self((0..TABLES).map(|_| HashMap::with_hasher(hasher.clone())).collect())
    }

    /// Stores a new challenge for a user.
    pub(super) fn put(&mut self, user: u32, verb: MethodId, challenge: &Arc<Challenge>) {
        let (table, key) = Self::place(user, verb, challenge.is_proxy);
        if let Some(table) = self.0.get_mut(table) {
            table.insert(key, NonceEntry { challenge: Arc::clone(challenge), count: 0 });
        }
    }

    /// Returns the challenge, of a proxy or of another server, that a user's next request answers, and its nonce
    /// count. No two requests get the same count.
    //= rfc7616#3.4
    pub(super) fn next(&mut self, user: u32, verb: MethodId, is_proxy: bool) -> Option<(Arc<Challenge>, u32)> {
        let (table, key) = Self::place(user, verb, is_proxy);
        let held = self.0.get_mut(table)?.get_mut(&key)?;
        held.count += 1;
        Some((Arc::clone(&held.challenge), held.count))
    }

    /// Removes a challenge after the server has rejected the credentials.
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
