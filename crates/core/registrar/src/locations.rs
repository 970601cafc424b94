//! The location table, shared by all shards.

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
use crate::index::low_half;
use crate::listener_addresses::ListenerAddresses;
use crate::policy::{Durability, Policy};
use crate::record::{self, Record};
use crate::record_buffer::RecordBuffer;
use crate::record_context::{Origin, RecordContext};
use crate::refresh::RefreshRequest;
use crate::refusal::Refusal;
use crate::register_sequence::RegisterSequence;
use crate::replication::{Cursor, StripeCursor};
use crate::staging::StageRequest;
use crate::stripe::Stripe;
use crate::update::Update;
use crate::values::{BindingView, ContactTarget, PendingKeepAlive, Source, UpdateCounts};
use crate::version::{MemberId, Version, VersionClock};

/// Maximum clock difference between members that share a table.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(600);

/// How far ahead a version may be, in ms; beyond that, the clock that made it is wrong.
const MAX_FUTURE_MS: u64 = 86_400_000;

/// A deadline that is never reached.
const NEVER: u64 = u64::MAX;

/// The bindings of all addresses of record, in stripes. Only shard i writes stripe i; other shards lock it for a
/// lookup. A lock is held for one operation and never together with another.
///
/// An address of record is the canonical `user@domain` of [`Aor`](strowger_message::Aor).
#[derive(Debug)]
pub struct Locations {
    stripes: Box<[Mutex<Stripe>]>,
    /// When each stripe next has work, in nanoseconds; [`NEVER`] for never.
    deadlines: Box<[AtomicU64]>,
    hasher: SeededState,
    call_ids: TagKey,
    listeners: ListenerAddresses,
    /// Nanoseconds of store time at [`Timestamp::ZERO`].
    origin: AtomicU64,
    /// Number of sources that have not been fully restored.
    pending_sources: AtomicU8,
    /// This member, if members share the table.
    member: Option<MemberId>,
    max_lifetime: Duration,
    clock: VersionClock,
    /// The other members that are alive.
    live_members: RwLock<Vec<(MemberId, SocketAddr)>>,
}

impl Locations {
    /// Creates an empty table with one stripe for each of `stripes` shards (at least one); `seed` keys its hashes. If
    /// records and temporary GRUUs must outlive the process, so must the seed.
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
            listeners: ListenerAddresses::default(),
            origin: AtomicU64::new(0),
            pending_sources: AtomicU8::new(0),
            member: None,
            max_lifetime: Duration::ZERO,
            clock: VersionClock::default(),
            live_members: RwLock::default(),
        }
    }

    /// Shares the table with other members; this one is `member`. Staged records then contain versioned changes.
    /// `longest` is the maximum lifetime of a binding, and the time for which removals are remembered.
    #[must_use]
    pub fn with_member(self, member: MemberId, longest: Duration) -> Self {
        Self { member: Some(member), max_lifetime: longest + MAX_CLOCK_SKEW, ..self }
    }

    /// Sets the other live members and their addresses. A contact reachable only through one member is found while
    /// that member is among them.
    pub fn set_live_members(&self, others: Vec<(MemberId, SocketAddr)>) {
        *self.live_members.write().unwrap_or_else(PoisonError::into_inner) = others;
    }

    /// Returns the other live members and their addresses.
    #[must_use]
    pub fn live_members(&self) -> Vec<(MemberId, SocketAddr)> {
        self.live_members.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn address_of(&self, member: MemberId) -> Option<SocketAddr> {
        let others = self.live_members.read().unwrap_or_else(PoisonError::into_inner);
        others.iter().find(|(other, _)| *other == member).map(|(_, address)| *address)
    }

    /// Sets the addresses of the listeners, in the order of their IDs; restored bindings find their listeners by
    /// them.
    #[must_use]
    pub fn with_listeners(self, listeners: impl IntoIterator<Item = (Transport, SocketAddr)>) -> Self {
        self.set_listeners(listeners.into_iter().map(|(transport, address)| (transport, address, true)));
        self
    }

    /// Sets the addresses of the listeners, in the order of their IDs, and whether each is open. An ID keeps its address:
    /// only new ones may be added at the end, at most [`MAX_LISTENER_IDS`](crate::MAX_LISTENER_IDS) in total. Bindings are
    /// restored to open listeners.
    pub fn set_listeners(&self, listeners: impl IntoIterator<Item = (Transport, SocketAddr, bool)>) {
        self.listeners.set(listeners);
    }

    /// Adds a pending source. The table is incomplete until [`complete_source`](Self::complete_source) has been
    /// called once for each; until then, an address that is not found may still be registered.
    #[must_use]
    pub fn with_pending_source(self) -> Self {
        let awaited = self.pending_sources.load(Ordering::Relaxed).saturating_add(1);
        Self { pending_sources: AtomicU8::new(awaited), ..self }
    }

    /// Sets the store time at [`Timestamp::ZERO`], in nanoseconds; call it before anything is staged or restored.
    /// Store time is kept by the store and continues, only forward, where the previous process stopped. Expiries are
    /// in store time, so a change of the wall clock does not end registrations.
    pub fn set_store_origin(&self, origin: u64) {
        self.origin.store(origin, Ordering::Relaxed);
    }

    /// Returns the store time in milliseconds.
    #[must_use]
    pub fn store_ms(&self, now: Timestamp) -> u64 {
        self.context(now).store_time(now) / 1_000_000
    }

    /// Restores a record of an earlier process, except bindings that have expired or were on a connection. Returns
    /// the number of bindings of its address. Takes one record per address, [merged](crate::record::merge) from all
    /// that exist: a refresh of an expired binding would have no effect.
    pub fn restore(&self, now: Timestamp, policy: &Policy, record: &Record<'_>) -> usize {
        let (shard, hash) = self.locate(record.aor());
        let restored = self.with_stripe(shard, |stripe| {
            stripe.set_keep_alive(policy);
            record.versions().for_each(|version| self.clock.observe(version));
            stripe.put(&self.context_with_version(now), hash, record, Origin::Store);
            // The other members get all of it once they are heard of.
            self.clock.observe(stripe.take_restamped());
            stripe.bindings_of(record.aor(), hash).count()
        });
        restored.unwrap_or(0)
    }

    /// Takes over the [state](Self::for_each_state) of an address from a process that this one replaces. Its clock,
    /// listeners and connections are those of this process. Only while nobody else writes.
    pub fn take_over(&self, now: Timestamp, policy: &Policy, record: &Record<'_>) {
        let (shard, hash) = self.locate(record.aor());
        self.with_stripe(shard, |stripe| {
            stripe.set_keep_alive(policy);
            record.versions().for_each(|version| self.clock.observe(version));
            stripe.put(&self.context(now), hash, record, Origin::Predecessor);
        });
    }

    /// Returns the store time at [`Timestamp::ZERO`], in nanoseconds.
    #[must_use]
    pub fn store_origin(&self) -> u64 {
        self.origin.load(Ordering::Relaxed)
    }

    /// Marks one [pending source](Self::with_pending_source) as fully restored.
    pub fn complete_source(&self) {
        let one_less = |awaited: u8| awaited.checked_sub(1);
        let _ = self.pending_sources.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less);
    }

    /// Returns how many [pending sources](Self::with_pending_source) are not fully restored.
    #[must_use]
    pub fn pending_sources(&self) -> u8 {
        self.pending_sources.load(Ordering::Acquire)
    }

    /// Returns whether everything is restored, so that an address that is not found is not registered.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.pending_sources() == 0
    }

    /// Returns the shard that owns the bindings of `aor`.
    #[must_use]
    pub fn shard_of(&self, aor: &[u8]) -> ShardId {
        self.locate(aor).0
    }

    /// Returns the number of shards, and of stripes.
    #[must_use]
    pub fn shards(&self) -> u16 {
        u16::try_from(self.stripes.len()).unwrap_or(u16::MAX)
    }

    /// Adds the contacts of `aor` at `now` to `out`: by falling q, and at equal q the newest first.
    pub fn lookup(&self, now: Timestamp, aor: &[u8], out: &mut impl Extend<ContactTarget>) {
        let (shard, hash) = self.locate(aor);
        let Some(stripe) = self.lock(shard) else { return };
        out.extend(stripe.current_bindings(now, aor, hash).iter().filter_map(|binding| self.target(&stripe, binding)));
    }

    //= rfc5627#6.1
    /// Like [`lookup`](Self::lookup), but only for the device that the public GRUU of `aor` with this `gr` names;
    /// `gr` is the URI parameter's value as written.
    pub fn lookup_instance(&self, now: Timestamp, aor: &[u8], gr: &[u8], out: &mut impl Extend<ContactTarget>) {
        let (shard, hash) = self.locate(aor);
        let Some(stripe) = self.lock(shard) else { return };
        let instance: SmallVec<[u8; 48]> = unescape(gr).collect();
        let current = stripe.current_bindings(now, aor, hash);
        let of_instance = current.iter().filter(|binding| binding.has_instance(&instance));
        out.extend(of_instance.filter_map(|binding| self.target(&stripe, binding)));
    }

    //= rfc5627#6.1
    /// Like [`lookup`](Self::lookup), but only for the device of a temporary GRUU; returns its address of record.
    /// `None` if the GRUU is no longer valid.
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

    /// Writes the effect of a REGISTER for `aor` to `record`, for [`put`](Self::put): all of it or nothing; `record`
    /// is empty if the REGISTER changes nothing. No lookup sees it yet. Only the owner calls this, and not again for
    /// this address before the record was applied or is known to be lost.
    ///
    /// # Errors
    /// A [`Refusal`] that becomes the response.
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

    /// Applies a staged record. Bindings removed meanwhile stay removed, and so do new ones that are on `closed`, the
    /// connection of the REGISTER, if that has closed. Only the owner calls this.
    ///
    /// Of a [change set](Record::is_change_set), only the newest change of each contact applies. Returns `true` if
    /// one got another version, which the other members must learn:
    /// [`write_current_changes`](Self::write_current_changes).
    pub fn put(&self, now: Timestamp, record: &Record<'_>, closed: Option<ConnId>) -> bool {
        let (shard, hash) = self.locate(record.aor());
        self.put_as(now, (shard, hash), record, Origin::Local { closed })
    }

    /// Applies changes of other members, or of this one in an earlier process: the [`put`](Self::put) for records
    /// from the engine. Bindings on connections of this member are dropped. A record with a version more than a day
    /// ahead is ignored, because it would override all others. Any thread may call this.
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

    /// Writes the current state of the contacts that a change set names.
    pub fn write_current_changes(&self, now: Timestamp, named: &Record<'_>, record: &mut Vec<u8>) {
        let (shard, hash) = self.locate(named.aor());
        if let Some(stripe) = self.lock(shard) {
            stripe.write_current_changes(&self.context(now), hash, named, record);
        }
    }

    /// Does [`stage`](Self::stage) and [`put`](Self::put) in one step, for tables without a store. Only the owner
    /// calls this.
    ///
    /// # Errors
    /// A [`Refusal`] that becomes the response; the table is unchanged.
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

    /// Removes all bindings of `aor`, because its user was removed or disabled, and writes a record of it; returns
    /// the number of removed bindings. Only the owner calls this.
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

    /// Removes the bindings of `shard` that are reachable only over `connection`, which has closed; returns their
    /// number. If the table is shared, `tell` gets a record of each removal.
    pub fn disconnect(&self, now: Timestamp, shard: ShardId, connection: ConnId, tell: impl FnMut(&[u8])) -> usize {
        let mut piece = RecordBuffer::default();
        let ground = self.context_with_version(now);
        let removed = self.with_stripe(shard, |stripe| stripe.disconnect(&ground, connection, &mut piece)).unwrap_or(0);
        piece.records().for_each(tell);
        removed
    }

    /// Appends a Contact field to `lines` for each current binding of `aor`, with its remaining seconds rounded up,
    /// its instance and, if `gruu` is given, the GRUUs of each instance; `gruu` makes the text of a temporary GRUU.
    /// Holds the lock of the stripe meanwhile.
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
        //= rfc3261#10.3:expires-of-each
        for binding in stripe.current_bindings(now, aor, hash) {
            let key = |seal| {
                let (instance, epoch) = (instance_hash(binding.instance()), binding.text.epoch());
                (GruuKey { aor: full_hash, instance, epoch }, seal)
            };
            contact_header::write_contact(lines, now, binding, gruu.map(key));
        }
    }

    /// Does [`apply`](Self::apply) and [`write_contacts`](Self::write_contacts) for a REGISTER that only refreshes
    /// the single binding of `aor`. Returns `false` without any change for any other REGISTER. Only the owner calls
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

    /// Removes at most `limit` expired bindings of `shard`; returns their number. Work is left while
    /// [`next_deadline`](Self::next_deadline) is not later than `now`.
    pub fn expire(&self, now: Timestamp, shard: ShardId, limit: usize) -> usize {
        self.with_stripe(shard, |stripe| stripe.expire(&self.context(now), limit)).unwrap_or(0)
    }

    /// Returns when [`expire`](Self::expire) or [`poll_keep_alive`](Self::poll_keep_alive) next has work. Takes no
    /// lock and never scans.
    #[must_use]
    pub fn next_deadline(&self, shard: ShardId) -> Option<Timestamp> {
        let deadline = self.deadlines.get(usize::from(shard.0))?.load(Ordering::Relaxed);
        (deadline != NEVER).then(|| Timestamp::from_nanos(deadline))
    }

    /// Returns one binding of `shard` whose keep-alive is due at `now`; call until `None`, and again while
    /// [`next_deadline`](Self::next_deadline) is not later than `now`. Each binding behind NAT comes up once per
    /// interval, at an offset that depends on its address of record.
    ///
    /// Kind and interval are those of the policy of the shard's last [`apply`](Self::apply).
    pub fn poll_keep_alive(&self, now: Timestamp, shard: ShardId) -> Option<PendingKeepAlive> {
        self.with_stripe(shard, |stripe| stripe.poll_keep_alive(now))?
    }

    /// Returns the number of bindings, including expired ones not yet removed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sum(Stripe::len)
    }

    /// Returns the number of addresses of record with a binding.
    #[must_use]
    pub fn addresses(&self) -> usize {
        self.sum(Stripe::addresses)
    }

    /// Returns whether there is no binding.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` for each current binding of a stripe, in no particular order. The stripe is locked meanwhile.
    pub fn for_each_in_stripe(&self, now: Timestamp, stripe: u16, mut f: impl FnMut(BindingView<'_>)) {
        if let Some(stripe) = self.lock(ShardId(stripe)) {
            stripe.for_each(now, &mut f);
        }
    }

    /// Calls `f` with the state of each address of record that has a current binding, as a whole [`Record`], for a
    /// store that has lost some. A stripe is locked for a few bindings at a time, and never while `f` runs. An
    /// address that changes meanwhile may come up in its old or new state, several times or not at all: the record of
    /// its change contains it. All others come up.
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

    /// Appends some of the table's changes to `out`, each as a [change set](Record::is_change_set), if `is_wanted`
    /// accepts its version; returns where to continue. Only for a table that is [shared](Self::with_member). An
    /// address that changes meanwhile may come up in its old or new state, several times or not at all.
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

    /// Panics if the table is inconsistent; for tests and the simulator.
    pub fn check_invariants(&self) {
        for (number, _) in (0u16..).zip(&self.stripes) {
            if let Some(stripe) = self.lock(ShardId(number)) {
                stripe.check_invariants(|aor| self.locate(aor), ShardId(number));
            }
        }
    }

    /// Without a store, Call-IDs are compared by the cheapest hash: a client that makes two collide only has its own
    /// updates refused.
    fn sequence(&self, policy: &Policy, call_id: &[u8], cseq: u32) -> RegisterSequence {
        let id = match policy.durability {
            Durability::Memory => u128::from(self.call_ids.table64(&[call_id])),
            Durability::WriteBehind | Durability::WriteThrough => self.call_ids.hash128(&[call_id]),
        };
        RegisterSequence { id: id.to_le_bytes(), cseq }
    }

    /// Returns the target of a binding; `None` if only a member that is not alive reaches it.
    fn target(&self, stripe: &Stripe, binding: &Binding) -> Option<ContactTarget> {
        if binding.packed_flow.is_via_other_member() {
            self.target_via_member(stripe, binding)
        } else {
            Some(binding.target())
        }
    }

    /// The same for a binding of another member. If that member is dead, a connection may be opened to the contact's
    /// own address.
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

    /// Returns the owner of `aor`, and its hash within the owner's stripe.
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

    /// Returns the context with a version for changes made now, if the table is shared.
    fn context_with_version(&self, now: Timestamp) -> RecordContext<'_> {
        let ground = self.context(now);
        let Some(member) = self.member else { return ground };
        let version = self.clock.next(ground.store_time(now) / 1_000_000, member);
        RecordContext { version, ..ground }
    }

    /// Changes a stripe and publishes its next deadline.
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

    /// Locks a stripe. A panic while it was locked is handled by its shard; others continue with its contents.
    fn lock(&self, shard: ShardId) -> Option<MutexGuard<'_, Stripe>> {
        let stripe = self.stripes.get(usize::from(shard.0))?;
        Some(stripe.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn sum(&self, of: impl Fn(&Stripe) -> usize) -> usize {
        self.stripes.iter().map(|stripe| of(&stripe.lock().unwrap_or_else(PoisonError::into_inner))).sum()
    }
}
