//! Calls that are over, remembered for as long as copies of their messages may still come (RFC 6026 §7.1, RFC 3261
//! §17.1.1.2): the INVITEs that were answered here, and the refusals that were acknowledged.

use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use strowger_foundation::Timestamp;

use crate::script::StepIndex;
use crate::session::{NO_INVITE, Session};

use super::{Driver, mix};

/// Number of tables. Each grows by itself, so that a growth moves only a small part of the entries.
const TABLES: usize = 256;
/// Maximum number of calls in one generation: 32,000 a second for 64·T1. If there are more, the older generation is
/// dropped early, and counted.
const MAX_REMEMBERED: usize = 1 << 20;

/// A map of two generations. Each is dropped as a whole, so that an entry lives for one to two periods.
#[derive(Debug)]
pub(super) struct RecentMap<V> {
    young: Generation<V>,
    old: Generation<V>,
    turned_at: Timestamp,
    time: Duration,
    limit: usize,
    /// Entries that were dropped too early.
    pub forgotten: u64,
}

#[derive(Debug)]
struct Generation<V> {
    tables: Vec<HashMap<u64, V, FixedState>>,
    count: usize,
}

impl<V> Generation<V> {
    fn new(hasher: &FixedState) -> Self {
        Self { tables: (0..TABLES).map(|_| HashMap::with_hasher(hasher.clone())).collect(), count: 0 }
    }

    fn insert(&mut self, key: u64, value: V) {
        if let Some(table) = self.tables.get_mut(table_of(key)) {
            self.count += usize::from(table.insert(key, value).is_none());
        }
    }

    fn get(&self, key: u64) -> Option<&V> {
        self.tables.get(table_of(key))?.get(&key)
    }

    /// Removes all entries and keeps the memory.
    fn clear(&mut self) {
        if self.count > 0 {
            self.tables.iter_mut().for_each(HashMap::clear);
        }
        self.count = 0;
    }
}

fn table_of(key: u64) -> usize {
    usize::from(key.to_be_bytes()[0]) % TABLES
}

impl<V> RecentMap<V> {
    pub(super) fn new(hasher: &FixedState, time: Duration) -> Self {
        let (young, old) = (Generation::new(hasher), Generation::new(hasher));
        Self { young, old, turned_at: Timestamp::ZERO, time, limit: MAX_REMEMBERED, forgotten: 0 }
    }

    pub(super) fn insert(&mut self, now: Timestamp, key: u64, value: V) {
        self.turn(now);
        if self.young.count >= self.limit {
            self.forgotten += self.old.count as u64;
            self.next_generation(now);
        }
        self.young.insert(key, value);
    }

    pub(super) fn get(&mut self, now: Timestamp, key: u64) -> Option<&V> {
        self.turn(now);
        self.young.get(key).or_else(|| self.old.get(key))
    }

    fn turn(&mut self, now: Timestamp) {
        let since = now.saturating_since(self.turned_at);
        if since < self.time {
            return;
        }
        self.next_generation(now);
        if since >= self.time * 2 {
            self.old.clear();
        }
    }

    fn next_generation(&mut self, now: Timestamp) {
        std::mem::swap(&mut self.young, &mut self.old);
        self.young.clear();
        self.turned_at = now;
    }
}

/// An own call that was refused or that a refusal ended: what the ACK's request line and Route are made from. The
/// rest comes from the response.
#[derive(Clone, Debug)]
pub(super) struct RefusedCall {
    pub script: u16,
    pub local: u16,
    pub caller: u32,
    pub callee: u32,
    pub accepted_cseq: u32,
    pub invite_cseq: u32,
    pub invite_step: StepIndex,
    /// Empty without a dialog.
    pub dialog: Box<[u8]>,
}

/// Returns the key of an INVITE that began a call here. It includes the CSeq, because a caller that the callee
/// challenged sends another INVITE with the same Call-ID.
const fn key_of(call: u64, cseq: u32) -> u64 {
    mix(call ^ cseq as u64)
}

impl Driver {
    /// Returns how many ended calls were forgotten early, because the table was full, while retransmissions of their
    /// messages could still arrive. A retransmitted INVITE of such a call would be taken for a new call.
    #[must_use]
    pub const fn forgotten(&self) -> u64 {
        self.answered.forgotten + self.refused.forgotten
    }

    /// Remembers a session that ends; does nothing over a reliable transport, which repeats no messages.
    pub(super) fn remember(&mut self, slot: u32, now: Timestamp) {
        let Some(session) = self.sessions.get(slot).filter(|_| !self.setup.transport.is_reliable()) else { return };
        if let Some(cseq) = session.first_invite() {
            self.answered.insert(now, key_of(session.call, cseq), ());
        } else if session.invite_class > 2 {
            let &Session { script, local, caller, callee, accepted_cseq, invite_cseq, invite_step, .. } = session;
            let is_in_dialog = accepted_cseq != NO_INVITE;
            let dialog = if is_in_dialog { session.dialog.as_slice().into() } else { Box::default() };
            let refused =
                RefusedCall { script, local, caller, callee, accepted_cseq, invite_cseq, invite_step, dialog };
            self.refused.insert(now, session.call, refused);
        }
    }

    /// Returns whether an INVITE is a copy of one whose call has ended.
    //= rfc6026#7.1
    // Copies are absorbed.
    pub(super) fn has_ended(&mut self, now: Timestamp, call: u64, cseq: u32) -> bool {
        self.answered.get(now, key_of(call, cseq)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_expire_in_time_and_the_map_stays_bounded() {
        let at = |seconds: u64| Timestamp::from_millis(seconds * 1_000);
        let mut recent = RecentMap::new(&FixedState::with_seed(1), Duration::from_secs(32));
        recent.limit = 100;
        recent.insert(at(40), 7, 'a');
        assert_eq!(recent.get(at(71), 7), Some(&'a'));
        assert_eq!(recent.get(at(80), 7), Some(&'a'), "the older generation");
        assert_eq!(recent.get(at(140), 7), None);
        (0..250).for_each(|key| recent.insert(at(141), mix(key), 'b'));
        let found = [249, 150, 0].map(|key| recent.get(at(141), mix(key)).is_some());
        assert_eq!((found, recent.forgotten), ([true, true, false], 100));
    }
}
