//! The location table as all shards share it.

use core::hash::BuildHasher as _;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use smallvec::SmallVec;
use strowger_foundation::map::{SeededState, seeded};
use strowger_foundation::{ConnId, Flow, ShardId, TagKey, Timestamp, Transport};
use strowger_message::unescape;

use crate::binding::Binding;
use crate::contact_header::{self, GruuText};
use crate::gruu::{GruuKey, instance_hash};
use crate::plan::RegisterSequence;
use crate::policy::{Durability, Policy};
use crate::record::{self, Record};
use crate::record_buffer::RecordBuffer;
use crate::record_context::{Origin, RecordContext};
use crate::refresh::RefreshRequest;
use crate::refusal::Refusal;
use crate::replication::{Cursor, StripeCursor};
use crate::staging::StageRequest;
use crate::stripe::{Stripe, low_half};
use crate::update::Update;
use crate::version::{MemberId, Version, VersionClock};

/// By how much the clocks of servers may differ that share a table.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(600);

/// A version that is so far ahead is that of a clock which is wrong.
const MAX_FUTURE_MS: u64 = 86_400_000;

/// A deadline that does not come.
const NEVER: u64 = u64::MAX;

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
pub struct ContactTarget {
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
    pub is_translated: bool,
    /// Which device it is, where it said so; else 0. Targets of one device are tried one after the other (RFC 5626 §7).
    pub instance: u32,
    /// What becomes the Route of requests (RFC 3327 §5.4); empty without other proxies between. The next hop is its first
    /// URI; neither `flow` nor the URI's address is.
    pub path: SmallVec<[u8; 24]>,
    /// The address of the server that alone reaches it by `flow`, which is one of that server's; `None` where this one can.
    pub holder: Option<SocketAddr>,
}

/// What an update did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateCounts {
    /// Contacts that were not there before.
    pub added: u16,
    /// Contacts that were there.
    pub refreshed: u16,
    /// Bindings that are there no more.
    pub removed: u16,
}

/// A binding behind a translation is to be kept open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingKeepAlive {
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
    pub is_translated: bool,
    /// The device's name; empty where it has none.
    pub instance: &'a [u8],
    /// Which of its flows it is, where it registered flows.
    pub reg_id: Option<u32>,
    /// The Route of requests; empty without other proxies between.
    pub path: &'a [u8],
    /// The member that took its last REGISTER, where members share registrations.
    pub member: Option<MemberId>,
}

/// The bindings of all addresses of record, in stripes. Stripe i is written by shard i only; other shards lock it for a
/// look-up. A lock is held for one operation and never with another.
///
/// An address of record is the canonical `user@domain` of [`Aor`](strowger_message::Aor).
#[derive(Debug)]
pub struct Locations {
    stripes: Box<[Mutex<Stripe>]>,
    /// When each stripe next has something to do, in nanoseconds; [`NEVER`] for never.
    deadlines: Box<[AtomicU64]>,
    hasher: SeededState,
    call_ids: TagKey,
    listeners: Box<[(Transport, SocketAddr)]>,
    /// Nanoseconds of store time at [`Timestamp::ZERO`].
    origin: AtomicU64,
    /// How many are still to say that all is there.
    pending_sources: AtomicU8,
    /// This server, where others share the table.
    member: Option<MemberId>,
    max_lifetime: Duration,
    clock: VersionClock,
    /// The other servers that are alive.
    live_members: RwLock<Vec<(MemberId, SocketAddr)>>,
}

impl Locations {
    /// An empty table with a stripe for each of `stripes` shards (at least one); `seed` keys its hashes. Where records and
    /// temporary GRUUs are to outlive the process, the seed must too.
    #[must_use]
    pub fn new(stripes: u16, seed: u64) -> Self {
        let mut key = [0; 16];
        for (byte, seed) in key.iter_mut().zip(seed.to_le_bytes().into_iter().cycle()) {
            *byte = seed;
        }
        Self {
            stripes: (0..stripes.max(1)).map(|_| Mutex::new(Stripe::new(seeded(seed)))).collect(),
            deadlines: (0..stripes.max(1)).map(|_| AtomicU64::new(NEVER)).collect(),
            hasher: seeded(seed),
            call_ids: TagKey::new(key).derive("Call-ID"),
            listeners: Box::default(),
            origin: AtomicU64::new(0),
            pending_sources: AtomicU8::new(0),
            member: None,
            max_lifetime: Duration::ZERO,
            clock: VersionClock::default(),
            live_members: RwLock::default(),
        }
    }

    /// Shared with other servers, of which this is `member`: what is staged are changes with versions. `longest` is how long a binding lasts
    /// at most; so long is remembered what is no more.
    #[must_use]
    pub fn with_member(self, member: MemberId, longest: Duration) -> Self {
        Self { member: Some(member), max_lifetime: longest + MAX_CLOCK_SKEW, ..self }
    }

    /// Says which other servers are alive, and where each takes requests: whom only one of them reaches is found as long as it is among
    /// them.
    pub fn set_live_members(&self, others: Vec<(MemberId, SocketAddr)>) {
        *self.live_members.write().unwrap_or_else(PoisonError::into_inner) = others;
    }

    fn address_of(&self, member: MemberId) -> Option<SocketAddr> {
        let others = self.live_members.read().unwrap_or_else(PoisonError::into_inner);
        others.iter().find(|(other, _)| *other == member).map(|(_, address)| *address)
    }

    /// With the addresses of the listeners, in the order of their ids: what is restored finds its listener by them.
    #[must_use]
    pub fn with_listeners(self, listeners: impl IntoIterator<Item = (Transport, SocketAddr)>) -> Self {
        Self { listeners: listeners.into_iter().collect(), ..self }
    }

    /// Incomplete until [`complete`](Self::complete) is called as often as this: who is not found may be registered all the same.
    #[must_use]
    pub fn with_pending_source(self) -> Self {
        let awaited = self.pending_sources.load(Ordering::Relaxed).saturating_add(1);
        Self { pending_sources: AtomicU8::new(awaited), ..self }
    }

    /// Says which store time it is at [`Timestamp::ZERO`], in nanoseconds; before anything is staged or restored. Store time
    /// is kept by the store and goes on, forward only, where it stood in the process before: expiries are written in it, so
    /// that a wall clock that is set does not end what was registered.
    pub fn set_store_origin(&self, origin: u64) {
        self.origin.store(origin, Ordering::Relaxed);
    }

    /// The store time in milliseconds.
    #[must_use]
    pub fn store_ms(&self, now: Timestamp) -> u64 {
        self.context(now).store_time(now) / 1_000_000
    }

    /// Brings back what a record of an earlier process says, but for what has expired or lived on a connection; says how many
    /// bindings of its address there are now. One record an address, [merged](crate::record::merge) from all that there are: a
    /// refresh of what has expired meanwhile would renew nothing.
    pub fn restore(&self, now: Timestamp, policy: &Policy, record: &Record<'_>) -> usize {
        let (shard, hash) = self.locate(record.aor());
        let restored = self.with_stripe(shard, |stripe| {
            stripe.set_keep_alive(policy);
            record.versions().for_each(|version| self.clock.observe(version));
            stripe.put(&self.context_with_version(now), hash, record, Origin::Store);
            // All is told to the others once they are heard of.
            self.clock.observe(stripe.take_restamped());
            stripe.bindings_of(record.aor(), hash).count()
        });
        restored.unwrap_or(0)
    }

    /// All is restored of what one of the sources has that are [awaited](Self::awaiting).
    pub fn complete_source(&self) {
        let one_less = |awaited: u8| awaited.checked_sub(1);
        let _ = self.pending_sources.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less);
    }

    /// How many of the sources that are [awaited](Self::awaiting) have not said yet that all of theirs is restored.
    #[must_use]
    pub fn pending_sources(&self) -> u8 {
        self.pending_sources.load(Ordering::Acquire)
    }

    /// Whether all is restored, so that who is not found is not registered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.pending_sources() == 0
    }

    /// The shard that owns the bindings of `aor`.
    #[must_use]
    pub fn shard_of(&self, aor: &[u8]) -> ShardId {
        self.locate(aor).0
    }

    /// How many shards write it.
    #[must_use]
    pub fn shards(&self) -> u16 {
        u16::try_from(self.stripes.len()).unwrap_or(u16::MAX)
    }

    /// Adds the places where `aor` is reached at `now` to `out`: by falling q, among equals the newest first.
    pub fn lookup(&self, now: Timestamp, aor: &[u8], out: &mut impl Extend<ContactTarget>) {
        let (shard, hash) = self.locate(aor);
        let Some(stripe) = self.lock(shard) else { return };
        out.extend(stripe.current_bindings(now, aor, hash).iter().filter_map(|binding| self.target(&stripe, binding)));
    }

    //= rfc5627#6.1
    /// As [`lookup`](Self::lookup), of the device only that the public GRUU of `aor` with this `gr` names; `gr` is the URI
    /// parameter's value as written.
    pub fn lookup_instance(&self, now: Timestamp, aor: &[u8], gr: &[u8], out: &mut impl Extend<ContactTarget>) {
        let (shard, hash) = self.locate(aor);
        let Some(stripe) = self.lock(shard) else { return };
        let instance: SmallVec<[u8; 48]> = unescape(gr).collect();
        let current = stripe.current_bindings(now, aor, hash);
        let of_instance = current.iter().filter(|binding| binding.has_instance(&instance));
        out.extend(of_instance.filter_map(|binding| self.target(&stripe, binding)));
    }

    //= rfc5627#6.1
    /// As [`lookup`](Self::lookup), of the device only that a temporary GRUU names; its address of record. `None` where the
    /// GRUU is good no more.
    pub fn lookup_temporary(
        &self,
        now: Timestamp,
        key: &GruuKey,
        out: &mut impl Extend<ContactTarget>,
    ) -> Option<SmallVec<[u8; 48]>> {
        let (shard, _) = self.locate_hash(key.aor);
        let stripe = self.lock(shard)?;
        let mut current: SmallVec<[_; 8]> = stripe.bindings_of_gruu(now, *key).collect();
        current.sort_unstable_by(|a, b| a.precedence(b));
        let aor = current.first()?.aor();
        out.extend(current.iter().filter_map(|binding| self.target(&stripe, binding)));
        Some(aor.into())
    }

    /// Writes what a REGISTER for `aor` comes to into `record`, all of it or nothing, for [`put`](Self::put); `record` is empty
    /// where nothing is asked for. Nobody else sees any of it yet. Only the owner calls this, and not again for this address
    /// before the record was put or is known to be lost.
    ///
    /// # Errors
    /// A [`Refusal`] that becomes the answer.
    pub fn stage(
        &self,
        now: Timestamp,
        aor: &[u8],
        policy: &Policy,
        source: &Source,
        update: &Update<'_>,
        record: &mut Vec<u8>,
    ) -> Result<UpdateCounts, Refusal> {
        let (shard, hash) = self.locate(aor);
        let call = self.sequence(policy, update.call_id, update.cseq);
        let order = StageRequest { policy, source, call, update };
        let ground = self.context_with_version(now);
        let staged = self.with_stripe(shard, |stripe| stripe.stage(&ground, (aor, hash), &order, record));
        staged.unwrap_or(Ok(UpdateCounts::default()))
    }

    /// Makes of the table what a staged record says. Bindings that went meanwhile stay away, and what the record brings does
    /// too where it lives on `closed`, the connection of its REGISTER. Only the owner calls this.
    ///
    /// Of [changes](Record::is_of_changes) those are taken that are the newest of their contact. `true` where one got another
    /// version, which the other servers have to hear: [`write_known`](Self::write_known).
    pub fn put(&self, now: Timestamp, record: &Record<'_>, closed: Option<ConnId>) -> bool {
        let (shard, hash) = self.locate(record.aor());
        self.put_as(now, (shard, hash), record, Origin::Local { closed })
    }

    /// Takes changes that other servers have made, or this one in an earlier process: [`put`](Self::put) for what the engine shows. What
    /// lived on a connection of this server is over. A record whose version is more than a day ahead is left out: it would outlast all others.
    /// Any thread may call this.
    pub fn put_remote(&self, now: Timestamp, record: &Record<'_>) -> bool {
        let latest = self.store_ms(now).saturating_add(MAX_FUTURE_MS);
        if !record.is_change_set() || record.versions().any(|version| version.millis() > latest) {
            return false;
        }
        self.put_as(now, self.locate(record.aor()), record, Origin::Store)
    }

    fn put_as(&self, now: Timestamp, (shard, hash): (ShardId, u32), record: &Record<'_>, origin: Origin) -> bool {
        record.versions().for_each(|version| self.clock.observe(version));
        let put = |stripe: &mut Stripe| {
            stripe.put(&self.context(now), hash, record, origin);
            stripe.take_restamped()
        };
        let restamped = self.with_stripe(shard, put).unwrap_or_default();
        self.clock.observe(restamped);
        restamped != Version::NONE
    }

    /// Writes what is known now of the contacts that a record of changes names.
    pub fn write_current_changes(&self, now: Timestamp, named: &Record<'_>, record: &mut Vec<u8>) {
        let (shard, hash) = self.locate(named.aor());
        if let Some(stripe) = self.lock(shard) {
            stripe.write_current_changes(&self.context(now), hash, named, record);
        }
    }

    /// [`stage`](Self::stage) and [`put`](Self::put) in one, for where no store keeps what changes. Only the owner calls this.
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
    ) -> Result<UpdateCounts, Refusal> {
        let (shard, hash) = self.locate(aor);
        let call = self.sequence(policy, update.call_id, update.cseq);
        let order = StageRequest { policy, source, call, update };
        let ground = self.context(now);
        let applied = self.with_stripe(shard, |stripe| stripe.apply(&ground, (aor, hash), &order));
        applied.unwrap_or(Ok(UpdateCounts::default()))
    }

    /// Removes all bindings of `aor`, for its user may not be called any more, and writes that into `record`; says how many
    /// went. Only the owner calls this.
    pub fn remove_address(&self, now: Timestamp, aor: &[u8], record: &mut Vec<u8>) -> usize {
        let (shard, hash) = self.locate(aor);
        let ground = self.context_with_version(now);
        let forget = |stripe: &mut Stripe| {
            match ground.member {
                None => record::write_state(record, aor, core::iter::empty()),
                Some(_) => stripe.write_removal_of_all(&ground, (aor, hash), record),
            }
            stripe.remove_address(now, aor, hash)
        };
        self.with_stripe(shard, forget).unwrap_or(0)
    }

    /// Removes the bindings of `shard` that no other connection than `connection`, which is closed, leads to; says how many. Where
    /// they are shared, `tell` is given the record of each.
    pub fn disconnect(&self, now: Timestamp, shard: ShardId, connection: ConnId, tell: impl FnMut(&[u8])) -> usize {
        let mut piece = RecordBuffer::default();
        let ground = self.context_with_version(now);
        let removed = self.with_stripe(shard, |stripe| stripe.disconnect(&ground, connection, &mut piece)).unwrap_or(0);
        piece.records().for_each(tell);
        removed
    }

    /// Appends a Contact field to `lines` for each current binding of `aor`, with its remaining seconds rounded up, its
    /// instance, and with `gruu`, which makes the text of a temporary GRUU, the GRUUs of each instance. The stripe is locked
    /// meanwhile.
    pub fn write_contacts(
        &self,
        now: Timestamp,
        aor: &[u8],
        gruu: Option<&dyn Fn(&GruuKey) -> GruuText>,
        lines: &mut Vec<u8>,
    ) {
        let full_hash = self.hasher.hash_one(aor);
        let (shard, hash) = self.locate_hash(full_hash);
        let Some(stripe) = self.lock(shard) else { return };
        //= rfc3261#10.3 step 8
        for binding in stripe.current_bindings(now, aor, hash) {
            let key = |seal| {
                let (instance, epoch) = (instance_hash(binding.instance()), binding.text.epoch());
                (GruuKey { aor: full_hash, instance, epoch }, seal)
            };
            contact_header::write_contact(lines, now, binding, gruu.map(key));
        }
    }

    /// [`apply`](Self::apply) and [`write_contacts`](Self::write_contacts) for a REGISTER that only renews the one binding of
    /// `aor`. `false` where it asks for anything else: then nothing is changed, and it goes their way. Only the owner calls
    /// this.
    pub fn refresh(
        &self,
        now: Timestamp,
        aor: &[u8],
        policy: &Policy,
        source: &Source,
        renewal: &RefreshRequest<'_>,
        lines: &mut Vec<u8>,
    ) -> bool {
        let (shard, hash) = self.locate(aor);
        let call = self.sequence(policy, renewal.call_id, renewal.cseq);
        let ground = self.context(now);
        let renew =
            |stripe: &mut Stripe| stripe.refresh(&ground, (aor, hash), (policy, source), (renewal, call), lines);
        self.with_stripe(shard, renew).unwrap_or(false)
    }

    /// Removes at most `limit` bindings of `shard` that have expired; says how many. Work is left while
    /// [`next_deadline`](Self::next_deadline) is not later than `now`.
    pub fn expire(&self, now: Timestamp, shard: ShardId, limit: usize) -> usize {
        self.with_stripe(shard, |stripe| stripe.expire(&self.context(now), limit)).unwrap_or(0)
    }

    /// When [`expire`](Self::expire) or [`poll_keep_alive`](Self::poll_keep_alive) next has something to do. Locks nothing and
    /// never scans.
    #[must_use]
    pub fn next_deadline(&self, shard: ShardId) -> Option<Timestamp> {
        let deadline = self.deadlines.get(usize::from(shard.0))?.load(Ordering::Relaxed);
        (deadline != NEVER).then(|| Timestamp::from_nanos(deadline))
    }

    /// Takes one binding of `shard` that is to be kept open at `now`; call until `None`, and again while
    /// [`next_deadline`](Self::next_deadline) is not later than `now`. Each binding behind a translation
    /// comes up once an interval, at a moment of the interval that depends on its address of record.
    ///
    /// Kind and interval are those of the policy of the shard's last [`apply`](Self::apply).
    pub fn poll_keep_alive(&self, now: Timestamp, shard: ShardId) -> Option<PendingKeepAlive> {
        self.with_stripe(shard, |stripe| stripe.poll_keep_alive(now))?
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

    /// Shows the state of each address of record that has a current binding to `f`, as a whole [`Record`], for a store that has
    /// lost some. A stripe is locked for some bindings at a time, and never while `f` runs. An address that changes meanwhile may
    /// come up as it was, as it is, several times or not at all: the record of its change says it. All others come up.
    pub fn for_each_state(&self, now: Timestamp, mut f: impl FnMut(&[u8])) {
        let mut piece = RecordBuffer::default();
        for (number, _) in (0u16..).zip(&self.stripes) {
            let mut rest = u32::MAX;
            while rest > 0 {
                piece.clear();
                let Some(stripe) = self.lock(ShardId(number)) else { break };
                rest = stripe.copy_states(&self.context(now), rest, &mut piece);
                drop(stripe);
                piece.records().for_each(&mut f);
            }
        }
    }

    /// Adds some of the changes that the table knows to `out`, each as a [record of changes](Record::is_of_changes), if `is_wanted` says
    /// so of its version; and says where there are more. Only of a table that is [shared](Self::shared_by). What changes meanwhile may come
    /// up as it was, as it is, several times or not at all.
    pub fn copy_changes(
        &self,
        now: Timestamp,
        from: Cursor,
        is_wanted: &dyn Fn(Version) -> bool,
        out: &mut Vec<Box<[u8]>>,
    ) -> Option<Cursor> {
        let Cursor { stripe: number, part } = from;
        let mut piece = RecordBuffer::default();
        let next = self.lock(ShardId(number))?.copy_changes(&self.context(now), part, is_wanted, &mut piece);
        out.extend(piece.records().map(Into::into));
        match next {
            Some(part) => Some(Cursor { stripe: number, part }),
            None => {
                (number + 1 < self.shards()).then_some(Cursor { stripe: number + 1, part: StripeCursor::default() })
            }
        }
    }

    /// Panics where the table contradicts itself; for tests and the simulator.
    pub fn check_invariants(&self) {
        for (number, _) in (0u16..).zip(&self.stripes) {
            if let Some(stripe) = self.lock(ShardId(number)) {
                stripe.check_invariants(|aor| self.locate(aor), ShardId(number));
            }
        }
    }

    /// Where no store keeps it, the Call-ID is told apart by what is by far the cheapest: who makes two that are taken for one
    /// has only its own updates refused.
    fn sequence(&self, policy: &Policy, call_id: &[u8], cseq: u32) -> RegisterSequence {
        let id = match policy.durability {
            Durability::Memory => u128::from(self.call_ids.table64(&[call_id])),
            Durability::WriteBehind | Durability::WriteThrough => self.call_ids.hash128(&[call_id]),
        };
        RegisterSequence { id: id.to_le_bytes(), cseq }
    }

    /// Where a binding is reached; `None` where only a server reaches it that is not alive.
    fn target(&self, stripe: &Stripe, binding: &Binding) -> Option<ContactTarget> {
        if binding.packed_flow.is_via_other_member() {
            self.target_via_member(stripe, binding)
        } else {
            Some(binding.target())
        }
    }

    /// The same of one that another server has registered. Where that one is dead, a connection may be opened to the contact's own address.
    fn target_via_member(&self, stripe: &Stripe, binding: &Binding) -> Option<ContactTarget> {
        let target = binding.target();
        if let Some(holder) = stripe.holder(binding).and_then(|member| self.address_of(member)) {
            return Some(ContactTarget { holder: Some(holder), ..target });
        }
        let Flow { transport, reopen, peer, .. } = target.flow;
        if !reopen || target.is_translated {
            return None;
        }
        let listener = self.context(Timestamp::ZERO).closest_listener(transport, peer)?;
        Some(ContactTarget { flow: Flow::new(listener, transport, peer), ..target })
    }

    /// The owner of `aor`, and its hash within the owner's stripe.
    fn locate(&self, aor: &[u8]) -> (ShardId, u32) {
        self.locate_hash(self.hasher.hash_one(aor))
    }

    fn locate_hash(&self, hash: u64) -> (ShardId, u32) {
        let stripe = ((hash >> 32) * self.stripes.len() as u64) >> 32;
        (ShardId(u16::try_from(stripe).unwrap_or(0)), low_half(hash))
    }

    fn context(&self, now: Timestamp) -> RecordContext<'_> {
        let origin = self.origin.load(Ordering::Relaxed);
        let Self { listeners, member, max_lifetime: longest, .. } = self;
        RecordContext { now, origin, listeners, member: *member, version: Version::NONE, max_lifetime: *longest }
    }

    /// With the version of what is changed now, where it is shared.
    fn context_with_version(&self, now: Timestamp) -> RecordContext<'_> {
        let ground = self.context(now);
        let Some(member) = self.member else { return ground };
        let version = self.clock.next(ground.store_time(now) / 1_000_000, member);
        RecordContext { version, ..ground }
    }

    /// Changes a stripe, and says abroad when it has something to do then.
    fn with_stripe<R>(&self, shard: ShardId, change: impl FnOnce(&mut Stripe) -> R) -> Option<R> {
        let mut stripe = self.lock(shard)?;
        let result = change(&mut stripe);
        if stripe.take_timers_changed()
            && let Some(deadline) = self.deadlines.get(usize::from(shard.0))
        {
            deadline.store(stripe.next_deadline().map_or(NEVER, Timestamp::as_nanos), Ordering::Relaxed);
        }
        Some(result)
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
