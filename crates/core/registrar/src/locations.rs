//! The location table as all shards share it.

use core::hash::BuildHasher as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use strowger_foundation::map::{Seeded, seeded};
use strowger_foundation::{ConnId, Flow, ShardId, TagKey, Timestamp};
use strowger_message::{Reply, unescape};

use crate::echo::{self, GruuText};
use crate::instance::{GruuKey, instance_hash};
use crate::policy::Policy;
use crate::refusal::Refusal;
use crate::stripe::{Stripe, low_half};
use crate::update::Update;

/// Where a REGISTER came from.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The listener and the peer's address; on a stream the connection too.
    pub flow: Flow,
    /// Whether the host of the top Via's sent-by, and on datagrams its port, is the packet's source: if not, there is a
    /// translation between. On a stream a Via has the port that is listened on.
    pub via_sent_by_matches: bool,
}

/// One place where an address of record is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The contact URI as registered, byte for byte: a `?headers` part is still there and must not become headers of a
    /// request. Header parameters (`expires`, `q`) are not part of it.
    pub uri: SmallVec<[u8; 64]>,
    /// The preference in thousandths; 1000 where none was given.
    pub q: u16,
    /// Listener and address that the REGISTER came from, and the connection where it was a stream. Only that connection will
    /// do for who is behind a translation or registered the flow itself; else with [`reopen`](Flow::reopen) `peer` is the
    /// URI's own address, where it has one.
    pub flow: Flow,
    /// Send by `flow`, not to the URI's address.
    pub translated: bool,
    /// Which device it is, where it said so; else 0. Targets of one device are tried one after the other (RFC 5626 §7).
    pub instance: u32,
    /// What becomes the Route of requests (RFC 3327 §5.4); empty without other proxies between. The next hop is its first
    /// URI; neither `flow` nor the URI's address is.
    pub path: SmallVec<[u8; 24]>,
}

/// What an update did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Contacts that were not there before.
    pub added: u16,
    /// Contacts that were there.
    pub refreshed: u16,
    /// Bindings that are there no more.
    pub removed: u16,
}

/// A binding behind a translation is to be kept open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepAliveDue {
    /// Where to send.
    pub flow: Flow,
    /// The contact URI as registered.
    pub uri: SmallVec<[u8; 64]>,
    /// The address of record.
    pub aor: SmallVec<[u8; 48]>,
}

/// One binding, for the operator.
#[derive(Clone, Copy, Debug)]
pub struct BindingView<'a> {
    /// The address of record.
    pub aor: &'a [u8],
    /// The contact URI as registered.
    pub uri: &'a [u8],
    /// The preference in thousandths, where one was given.
    pub q: Option<u16>,
    /// Seconds until it expires, rounded up.
    pub expires_in_s: u64,
    /// Where the REGISTER came from.
    pub flow: Flow,
    /// Requests go by `flow`.
    pub translated: bool,
    /// The device's name; empty where it has none.
    pub instance: &'a [u8],
    /// Which of its flows it is, where it registered flows.
    pub reg_id: Option<u32>,
    /// The Route of requests; empty without other proxies between.
    pub path: &'a [u8],
}

/// The bindings of all addresses of record, in stripes. Stripe i is written by shard i only; other shards lock it for a
/// look-up. A lock is held for one operation and never with another.
///
/// An address of record is the canonical `user@domain` of [`Aor`](strowger_message::Aor).
#[derive(Debug)]
pub struct Locations {
    stripes: Box<[Mutex<Stripe>]>,
    hasher: Seeded,
    call_ids: TagKey,
}

impl Locations {
    /// An empty table with a stripe for each of `stripes` shards (at least one); `seed` keys its hashes.
    #[must_use]
    pub fn new(stripes: u16, seed: u64) -> Self {
        let mut key = [0; 16];
        for (byte, seed) in key.iter_mut().zip(seed.to_le_bytes().into_iter().cycle()) {
            *byte = seed;
        }
        Self {
            stripes: (0..stripes.max(1)).map(|_| Mutex::new(Stripe::new(seeded(seed)))).collect(),
            hasher: seeded(seed),
            call_ids: TagKey::new(key).derive("Call-ID"),
        }
    }

    /// The shard that owns the bindings of `aor`.
    #[must_use]
    pub fn shard_of(&self, aor: &[u8]) -> ShardId {
        self.place(aor).0
    }

    /// Adds the places where `aor` is reached at `now` to `out`: by falling q, among equals the newest first.
    pub fn lookup(&self, now: Timestamp, aor: &[u8], out: &mut impl Extend<Target>) {
        let (shard, hash) = self.place(aor);
        let Some(stripe) = self.lock(shard) else { return };
        out.extend(stripe.current(now, aor, hash).iter().map(|binding| binding.target()));
    }

    //= rfc5627#6.1
    /// As [`lookup`](Self::lookup), of the device only that the public GRUU of `aor` with this `gr` names; `gr` is the URI
    /// parameter's value as written.
    pub fn lookup_instance(&self, now: Timestamp, aor: &[u8], gr: &[u8], out: &mut impl Extend<Target>) {
        let (shard, hash) = self.place(aor);
        let Some(stripe) = self.lock(shard) else { return };
        let instance: SmallVec<[u8; 48]> = unescape(gr).collect();
        let current = stripe.current(now, aor, hash);
        out.extend(current.iter().filter(|binding| binding.is_of(&instance)).map(|binding| binding.target()));
    }

    //= rfc5627#6.1
    /// As [`lookup`](Self::lookup), of the device only that a temporary GRUU names; its address of record. `None` where the
    /// GRUU is good no more.
    pub fn lookup_temporary(
        &self,
        now: Timestamp,
        key: &GruuKey,
        out: &mut impl Extend<Target>,
    ) -> Option<SmallVec<[u8; 48]>> {
        let stripe = self.lock(key.stripe)?;
        let mut current: SmallVec<[_; 8]> = stripe.of_gruu(now, *key).collect();
        current.sort_unstable_by(|a, b| a.precedence(b));
        let aor = current.first()?.aor();
        out.extend(current.iter().map(|binding| binding.target()));
        Some(aor.into())
    }

    /// Does what a REGISTER for `aor` asks, all of it or nothing. Only the owner calls this.
    ///
    /// # Errors
    /// A [`Refusal`] that becomes the answer; the table is unchanged.
    pub fn apply(
        &self,
        now: Timestamp,
        aor: &[u8],
        policy: &Policy,
        source: &Source,
        update: &Update<'_>,
    ) -> Result<Applied, Refusal> {
        let (shard, hash) = self.place(aor);
        let call_id = self.call_ids.hash128(&[update.call_id]).to_le_bytes();
        let Some(mut stripe) = self.lock(shard) else { return Ok(Applied::default()) };
        stripe.apply(now, (aor, hash), policy, source, call_id, update)
    }

    /// Removes all bindings of `aor`, for its user may not be called any more; says how many went. This is the operator's
    /// doing: the one change that need not come from the owner.
    pub fn forget(&self, now: Timestamp, aor: &[u8]) -> usize {
        let (shard, hash) = self.place(aor);
        self.lock(shard).map_or(0, |mut stripe| stripe.forget(now, aor, hash))
    }

    /// Removes the bindings of `shard` that no other connection than `connection`, which is closed, leads to; says how many.
    pub fn disconnect(&self, now: Timestamp, shard: ShardId, connection: ConnId) -> usize {
        self.lock(shard).map_or(0, |mut stripe| stripe.disconnect(now, connection))
    }

    /// Writes a Contact header for each current binding of `aor`, with its remaining seconds rounded up, its instance, and
    /// with `gruu`, which makes the text of a temporary GRUU, the GRUUs of each instance. The stripe is locked meanwhile.
    #[must_use]
    pub fn write_contacts<'b>(
        &self,
        now: Timestamp,
        aor: &[u8],
        gruu: Option<&dyn Fn(&GruuKey) -> GruuText>,
        reply: Reply<'b>,
    ) -> Reply<'b> {
        let (shard, hash) = self.place(aor);
        let Some(stripe) = self.lock(shard) else { return reply };
        //= rfc3261#10.3 step 8
        stripe.current(now, aor, hash).iter().fold(reply, |reply, binding| {
            let (instance, epoch) = (instance_hash(binding.instance()), binding.text.epoch());
            let key = GruuKey { stripe: shard, aor: hash, instance, epoch };
            reply.header("Contact", &[&echo::contact(now, binding, gruu.map(|seal| (key, seal)))])
        })
    }

    /// Removes at most `limit` bindings of `shard` that have expired; says how many. Work is left where it says `limit`.
    pub fn expire(&self, now: Timestamp, shard: ShardId, limit: usize) -> usize {
        self.lock(shard).map_or(0, |mut stripe| stripe.expire(now, limit))
    }

    /// When [`expire`](Self::expire) or [`poll_keep_alive`](Self::poll_keep_alive) next has something to do. Never scans.
    #[must_use]
    pub fn next_deadline(&self, shard: ShardId) -> Option<Timestamp> {
        self.lock(shard)?.next_deadline()
    }

    /// Takes one binding of `shard` that is to be kept open at `now`; call until `None`. Each binding behind a translation
    /// comes up once an interval, at a moment of the interval that depends on its address of record.
    ///
    /// Kind and interval are those of the policy of the shard's last [`apply`](Self::apply).
    pub fn poll_keep_alive(&self, now: Timestamp, shard: ShardId) -> Option<KeepAliveDue> {
        self.lock(shard)?.poll_keep_alive(now)
    }

    /// Bindings, those included whose expiry is due but not yet worked off.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sum(Stripe::len)
    }

    /// Addresses of record that have a binding.
    #[must_use]
    pub fn addresses(&self) -> usize {
        self.sum(Stripe::addresses)
    }

    /// Whether there is no binding.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows each current binding of a stripe to `f`, in no particular order. The stripe is locked meanwhile.
    pub fn for_each_in_stripe(&self, now: Timestamp, stripe: u16, mut f: impl FnMut(BindingView<'_>)) {
        if let Some(stripe) = self.lock(ShardId(stripe)) {
            stripe.for_each(now, &mut f);
        }
    }

    /// Panics where the table contradicts itself; for tests and the simulator.
    pub fn check_invariants(&self) {
        for (number, _) in (0u16..).zip(&self.stripes) {
            if let Some(stripe) = self.lock(ShardId(number)) {
                stripe.check_invariants(|aor| self.place(aor), ShardId(number));
            }
        }
    }

    /// The owner of `aor`, and its hash within the owner's stripe.
    fn place(&self, aor: &[u8]) -> (ShardId, u32) {
        let hash = self.hasher.hash_one(aor);
        let stripe = ((hash >> 32) * self.stripes.len() as u64) >> 32;
        (ShardId(u16::try_from(stripe).unwrap_or(0)), low_half(hash))
    }

    /// A panic while a stripe was locked is the shard's to handle; the others go on with what is there.
    fn lock(&self, shard: ShardId) -> Option<MutexGuard<'_, Stripe>> {
        let stripe = self.stripes.get(usize::from(shard.0))?;
        Some(stripe.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn sum(&self, of: impl Fn(&Stripe) -> usize) -> usize {
        self.stripes.iter().map(|stripe| of(&stripe.lock().unwrap_or_else(PoisonError::into_inner))).sum()
    }
}
