//! The server's location table behind the interface of the other tables.
//!
//! Each stripe is a whole `Locations` with a single stripe behind a lock of this module. The lock inside is then
//! always free, and waits are visible from outside.

use std::cell::RefCell;
use std::hash::BuildHasher as _;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard};

use strowger_foundation::map::{SeededState, seeded};
use strowger_foundation::{Flow, ListenerId, ShardId, Timestamp, Transport};
use strowger_message::Uri;
use strowger_registrar::{
    ContactTarget, ContactUpdate, Locations, OptionTags, Policy, RefreshRequest, Source, Update, UpdateKind,
};

use super::table::{EXPIRES, LockTimer, Table, ThreadIndex, Waits};

/// Maximum number of bindings checked for expiry at once.
const EXPIRED_AT_ONCE: usize = 64;

/// The stripes of the server's table.
#[derive(Debug)]
pub struct StripedTable {
    stripes: Box<[Stripe]>,
    hasher: SeededState,
    policy: Policy,
    source: Source,
    patience: LockTimer,
}

#[derive(Debug)]
struct Stripe {
    locations: Mutex<()>,
    inner: Locations,
    contended: AtomicU64,
}

impl StripedTable {
    /// Creates a table of empty stripes.
    #[must_use]
    pub fn new(stripes: usize, seed: u64) -> Self {
        let stripe =
            |_| Stripe { locations: Mutex::default(), inner: Locations::new(1, seed), contended: AtomicU64::new(0) };
        let peer = SocketAddr::from(([127, 0, 0, 1], 40_000));
        Self {
            stripes: (0..stripes.max(1)).map(stripe).collect(),
            hasher: seeded(!seed),
            policy: Policy { expires_max: EXPIRES, ..Policy::default() },
            source: Source { flow: Flow::new(ListenerId(0), Transport::Udp, peer), via_sent_by_matches: true },
            patience: LockTimer::default(),
        }
    }

    fn place(&self, aor: &[u8]) -> usize {
        let hash = self.hasher.hash_one(aor) >> 32;
        ((hash * self.stripes.len() as u64) >> 32) as usize
    }

    fn lock<'a>(&self, stripe: &'a Stripe) -> MutexGuard<'a, ()> {
        self.patience.take(&stripe.locations, &stripe.contended)
    }

    /// Applies an update of `kind` to an address.
    fn apply<'a>(&self, now: Timestamp, aor: &'a [u8], cseq: u32, kind: UpdateKind<'a>) {
        let update = Update {
            // A phone uses one Call-ID for all its registrations.
            call_id: aor,
            cseq,
            path: Default::default(),
            supported: OptionTags::default(),
            is_first_hop: true,
            kind,
        };
        let stripe = &self.stripes[self.place(aor)];
        let _held = self.lock(stripe);
        stripe.inner.apply(now, aor, &self.policy, &self.source, &update).expect("it is allowed");
    }

    /// Removes the binding of an address.
    pub fn remove(&self, now: Timestamp, aor: &[u8], cseq: u32) {
        self.apply(now, aor, cseq, UpdateKind::RemoveAll);
    }
}

thread_local! {
    /// Buffer of the response's Contact fields, reused as in a shard.
    static LINES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Receives the only contact.
struct ContactSink<'a>(&'a mut Vec<u8>);

impl Extend<ContactTarget> for ContactSink<'_> {
    fn extend<T: IntoIterator<Item = ContactTarget>>(&mut self, targets: T) {
        targets.into_iter().for_each(|target| self.0.extend_from_slice(&target.uri));
    }
}

impl Table for StripedTable {
    /// As in the server, a refresh without changes takes the fast path, which also writes the response's Contact.
    fn put(&self, now: Timestamp, aor: &[u8], contact: &[u8], cseq: u32) {
        let renewal = RefreshRequest::new((aor, cseq), contact, Some(EXPIRES.as_secs() as u32));
        let stripe = &self.stripes[self.place(aor)];
        let is_renewed = LINES.with_borrow_mut(|lines| {
            lines.clear();
            let _held = self.lock(stripe);
            stripe.inner.refresh(now, aor, &self.policy, &self.source, &renewal, lines)
        });
        if !is_renewed {
            self.load(now, aor, contact, cseq);
        }
    }

    fn load(&self, now: Timestamp, aor: &[u8], contact: &[u8], cseq: u32) {
        let uri = Uri::parse(contact).expect("a contact");
        let contact =
            ContactUpdate { uri, expires_s: Some(EXPIRES.as_secs() as u32), q: None, instance: b"", reg_id: None };
        self.apply(now, aor, cseq, UpdateKind::Contacts([contact].into_iter().collect()));
    }

    fn lookup(&self, now: Timestamp, aor: &[u8], out: &mut Vec<u8>) -> bool {
        let before = out.len();
        let stripe = &self.stripes[self.place(aor)];
        let _held = self.lock(stripe);
        stripe.inner.lookup(now, aor, &mut ContactSink(out));
        out.len() > before
    }

    fn step(&self, now: Timestamp, ThreadIndex { thread, of }: ThreadIndex) -> Option<usize> {
        let is_due = |stripe: &&Stripe| stripe.inner.next_deadline(ShardId(0)).is_some_and(|deadline| deadline <= now);
        let stripe = self.stripes.iter().skip(thread).step_by(of).find(is_due)?;
        let _held = self.lock(stripe);
        let removed = stripe.inner.expire(now, ShardId(0), EXPIRED_AT_ONCE);
        while stripe.inner.poll_keep_alive(now, ShardId(0)).is_some() {}
        Some(removed)
    }

    fn sweep(&self, _: Timestamp, _: usize, _: usize) -> usize {
        0
    }

    fn owner(&self, aor: &[u8], threads: usize) -> Option<usize> {
        Some(self.place(aor) % threads)
    }

    fn len(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.inner.len()).sum()
    }

    fn waits(&self) -> Waits {
        self.patience.waits(self.stripes.iter().map(|stripe| &stripe.contended))
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::{Names, REFRESH};
    use super::*;

    #[test]
    fn repeated_registrations_take_the_short_path() {
        let (table, mut names) = (StripedTable::new(2, 1), Names::default());
        for round in 0..4 {
            let (aor, contact) = names.both(5);
            table.put(Timestamp::from_millis(1_000) + REFRESH * round, aor, contact, round);
            // The first registration is new; with the second, the table records that the address is not translated by
            // NAT.
            assert_eq!(LINES.with_borrow(|lines| !lines.is_empty()), round > 1, "round {round}");
        }
        assert_eq!(table.len(), 1);
    }
}
