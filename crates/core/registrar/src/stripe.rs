//! The bindings of one shard.

use core::hash::BuildHasher as _;
use core::time::Duration;

use smallvec::SmallVec;
use strowger_foundation::map::SeededState;
use strowger_foundation::wheel::TimerId;
use strowger_foundation::{ConnId, ShardId, Timestamp};

use crate::binding::{Binding, Links, PackedFlow, Preference};
use crate::chunked_vec::ChunkedVec;
use crate::connections::Connections;
use crate::expiries::Expiries;
use crate::gruu::{GruuKey, instance_hash};
use crate::index::{Index, Indices, low_half};
use crate::policy::{KeepAlive, Policy};
use crate::record::{self, Record, State};
use crate::record_buffer::RecordBuffer;
use crate::record_context::{Origin, RecordContext};
use crate::register_sequence::RegisterSequence;
use crate::text::Parts;
use crate::values::{BindingView, PendingKeepAlive};
use crate::version::Version;
use crate::version_table::VersionTable;
use crate::wheel::{BindingKey, Wheel};

/// Maximum number of keep-alive timers visited per call; those of expired bindings are skipped.
const KEEP_ALIVES_PER_POLL: usize = 64;

/// Number of bindings whose states are copied per lock of the stripe.
const BINDINGS_PER_COPY: u32 = 256;

/// Maximum number of refreshed bindings moved to a later expiry per step.
const MOVES_PER_EXPIRE: usize = 256;

#[derive(Debug)]
pub(crate) struct Stripe {
    pub(crate) index: Index,
    pub(crate) bindings: ChunkedVec<Binding>,
    connections: Connections,
    expiries: Expiries,
    keep_alives: Wheel,
    addresses: usize,
    pub(crate) serial: u32,
    keep_alive_interval: Option<Duration>,
    pub(crate) hasher: SeededState,
    /// Buffer for records that are not stored.
    pub(crate) scratch: Vec<u8>,
    /// The versions of shared contacts.
    pub(crate) versions: VersionTable,
    /// The latest version assigned in place of a change's own.
    pub(crate) restamped: Version,
}

impl Stripe {
    pub(crate) fn new(hasher: SeededState) -> Self {
        Self {
            index: Index::new(),
            bindings: ChunkedVec::new(),
            connections: Connections::new(hasher.clone()),
            hasher,
            expiries: Expiries::new(),
            keep_alives: Wheel::at(Timestamp::ZERO),
            addresses: 0,
            serial: 0,
            keep_alive_interval: None,
            scratch: Vec::new(),
            versions: VersionTable::default(),
            restamped: Version::NONE,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.bindings.len()
    }

    pub(crate) const fn addresses(&self) -> usize {
        self.addresses
    }

    /// Returns the unexpired bindings of `aor`: by falling q, and at equal q the newest first.
    pub(crate) fn current_bindings<'s>(
        &'s self,
        now: Timestamp,
        aor: &'s [u8],
        hash: u32,
    ) -> SmallVec<[&'s Binding; 8]> {
        let mut current: SmallVec<[&Binding; 8]> = SmallVec::new();
        for (_, binding) in self.bindings_of(aor, hash).filter(|(_, binding)| now < binding.expires) {
            current.push(binding);
        }
        if current.len() > 1 {
            current.sort_unstable_by(|a, b| a.precedence(b));
        }
        current
    }

    /// Applies `record` to an address.
    pub(crate) fn put(&mut self, context: &RecordContext<'_>, hash: u32, record: &Record<'_>, origin: Origin) {
        let (now, aor) = (context.now, record.aor());
        if record.is_change_set() || context.version != Version::NONE {
            self.put_changes(context, hash, record, origin);
            return self.shrink(now);
        }
        for refresh in record.refreshes() {
            let is = |(_, binding): &(u32, &Binding)| binding.text.parts().fingerprint() == refresh.fingerprint;
            let known = self.bindings_of(aor, hash).find(is).map(|(index, _)| index);
            let expires = context.process_time(refresh.expires);
            if let Some(index) = known.filter(|_| origin.is_local() || now < expires) {
                self.touch(now, index, expires, refresh.cseq);
            }
        }
        if !record.is_refresh() {
            self.put_state(context, hash, record, origin);
        }
        self.shrink(now);
    }

    fn put_state(&mut self, context: &RecordContext<'_>, hash: u32, record: &Record<'_>, origin: Origin) {
        let (now, aor) = (context.now, record.aor());
        // A binding that the record repeats stays if it still exists, and is not restored if it is gone.
        let stays = |binding: &Binding| {
            let parts = binding.text.parts();
            origin.is_local()
                && now < binding.expires
                && record.states().any(|state| !state.is_new && state.parts.same_binding(&parts))
        };
        let mut replaced: Indices =
            self.bindings_of(aor, hash).filter(|(_, binding)| !stays(binding)).map(|(index, _)| index).collect();
        for state in record.states().filter(|state| state.is_new || !origin.is_local()) {
            let Some((flow, expires)) = origin.resolve(context, &state) else { continue };
            let written = BindingContents {
                parts: state.parts,
                call: RegisterSequence { id: state.call_id, cseq: state.cseq },
                expires,
                place: PackedFlow::new(&flow, Preference::new(state.q, state.is_translated)),
            };
            // Overwrites the binding with the same text, which avoids an allocation, else any that is removed.
            let same = |index: &u32| self.bindings.get(*index).is_some_and(|b| b.text.parts() == written.parts);
            let same = replaced.iter().position(same);
            let index = same.map(|at| replaced.swap_remove(at)).or_else(|| replaced.pop());
            self.write(now, hash, index, &written);
            self.share_epoch(hash, &written.parts);
        }
        self.remove_all(replaced);
    }

    pub(crate) fn set_keep_alive(&mut self, policy: &Policy) {
        self.keep_alive_interval =
            (policy.keep_alive != KeepAlive::Off).then(|| policy.keep_alive_interval.max(Duration::from_secs(1)));
    }

    /// Sets the written epoch in all bindings of its instance.
    pub(crate) fn share_epoch(&mut self, hash: u32, written: &Parts<'_>) {
        let stale: Indices = self
            .bindings_of(written.aor, hash)
            .filter(|(_, binding)| binding.has_instance(written.instance) && binding.text.epoch() != written.epoch)
            .map(|(index, _)| index)
            .collect();
        for index in stale {
            if let Some(binding) = self.bindings.get_mut(index) {
                binding.text.set_epoch(written.epoch);
            }
        }
    }

    /// Removes the bindings on `connection`. Adds the changes of shared ones to `piece`.
    pub(crate) fn disconnect(
        &mut self,
        context: &RecordContext<'_>,
        connection: ConnId,
        piece: &mut RecordBuffer,
    ) -> usize {
        let now = context.now;
        let mut gone = self.connections.candidates(connection);
        gone.retain(|index| {
            self.bindings.get(*index).is_some_and(|binding| binding.bound_connection() == Some(connection))
        });
        let removed = gone.len();
        if context.version != Version::NONE {
            self.write_removals(context, &gone, piece);
        }
        // From the back, so that an element moved into a gap is never one still to be removed.
        gone.sort_unstable_by(|a, b| b.cmp(a));
        for index in gone {
            self.remove(index);
        }
        self.shrink(now);
        removed
    }

    /// Removes all bindings of `aor`, including expired ones not yet removed.
    pub(crate) fn remove_address(&mut self, now: Timestamp, aor: &[u8], hash: u32) -> usize {
        let all: Indices = self.bindings_of(aor, hash).map(|(index, _)| index).collect();
        let removed = all.len();
        self.remove_all(all);
        self.shrink(now);
        removed
    }

    /// Processes at most `limit` expiries.
    pub(crate) fn expire(&mut self, context: &RecordContext<'_>, limit: usize) -> usize {
        let now = context.now;
        let (mut expired, mut moves) = (0, MOVES_PER_EXPIRE);
        while expired < limit
            && let Some(index) = self.expiries.poll(&mut self.bindings, now, &mut moves)
        {
            self.leave_tombstone(context, index);
            self.remove(index);
            expired += 1;
        }
        self.versions.expire(now);
        self.shrink(now);
        expired
    }

    /// Returns whether [`next_deadline`](Self::next_deadline) may have changed since the last call.
    pub(crate) fn take_timers_changed(&mut self) -> bool {
        self.expiries.take_changed() | self.keep_alives.take_changed()
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let (expiry, keep_alive) = (self.expiries.next_deadline(), self.keep_alives.next_deadline());
        expiry.into_iter().chain(keep_alive).min()
    }

    pub(crate) fn poll_keep_alive(&mut self, now: Timestamp) -> Option<PendingKeepAlive> {
        for _ in 0..KEEP_ALIVES_PER_POLL {
            let key = self.keep_alives.poll_expired(now)?;
            let interval = self.keep_alive_interval;
            let Some(binding) = self.find(key).and_then(|index| self.bindings.get_mut(index)) else { continue };
            binding.keep_alive = TimerId::NEVER;
            let Some(interval) = interval.filter(|_| now < binding.expires) else { continue };
            binding.keep_alive = self.keep_alives.insert(next_keep_alive(now, interval, key.hash), key);
            return Some(PendingKeepAlive {
                flow: binding.flow(),
                uri: binding.uri().into(),
                aor: binding.aor().into(),
            });
        }
        None
    }

    pub(crate) fn for_each(&self, now: Timestamp, f: &mut dyn FnMut(BindingView<'_>)) {
        for binding in
            self.index.iter().filter_map(|index| self.bindings.get(index)).filter(|binding| now < binding.expires)
        {
            f(BindingView {
                aor: binding.aor(),
                uri: binding.uri(),
                q: binding.packed_flow.preference.q(),
                expires_in_s: binding.expires_in_s(now),
                flow: binding.flow(),
                is_translated: binding.packed_flow.preference.is_translated(),
                instance: binding.instance(),
                reg_id: binding.reg_id(),
                path: binding.text.path(),
                member: self.holder(binding),
            });
        }
    }

    /// Adds the whole states of the addresses of some bindings to `piece`: of those at the highest indices below
    /// `top`. Returns the lowest index, which is the next call's `top`; 0 at the end. A binding not yet visited never
    /// moves above `top`, because a removal fills its gap with the last binding.
    pub(crate) fn copy_states(&self, context: &RecordContext<'_>, top: u32, piece: &mut RecordBuffer) -> u32 {
        let top = top.min(u32::try_from(self.bindings.len()).unwrap_or(u32::MAX));
        let bottom = top.saturating_sub(BINDINGS_PER_COPY);
        for index in (bottom..top).rev() {
            let Some(binding) = self.bindings.get(index) else { continue };
            let aor = binding.aor();
            let current = self.bindings_of(aor, binding.hash).filter(|(_, binding)| context.now < binding.expires);
            let mut current: SmallVec<[_; 8]> = current.collect();
            // An address comes up once for each of its bindings; once per buffer is enough.
            if current.is_empty() || current.iter().any(|(other, _)| (index + 1..top).contains(other)) {
                continue;
            }
            current.sort_unstable_by(|(_, a), (_, b)| a.age(b));
            let states = current.into_iter().map(|(_, binding)| self.state(context, binding));
            piece.add(|record| match context.member {
                None => record::write_state(record, aor, states),
                // Tombstones are copied separately, because the address of a removed contact cannot be looked up.
                Some(_) => record::write_changes(record, aor, states, core::iter::empty()),
            });
        }
        bottom
    }

    pub(crate) fn check_invariants(&self, place: impl Fn(&[u8]) -> (ShardId, u32), owner: ShardId) {
        assert_eq!(self.index.len(), self.bindings.len(), "an index for each binding");
        assert_eq!(self.expiries.count(&self.bindings), self.bindings.len(), "an expiry for each binding");
        assert!(self.keep_alives.len() <= self.bindings.len(), "a keep-alive for a binding at most");
        let mut aors: Vec<&[u8]> = Vec::with_capacity(self.len());
        let mut bound = 0;
        for index in self.index.iter() {
            let binding = self.bindings.get(index);
            assert!(binding.is_some(), "an index without a binding");
            let Some(binding) = binding else { continue };
            assert_eq!(place(binding.aor()), (owner, binding.hash), "a binding in its place");
            assert_eq!(self.find(binding.key()), Some(index), "one name each");
            let same = |b: &Binding| match binding.reg_id() {
                Some(reg_id) => b.reg_id() == Some(reg_id) && b.has_instance(binding.instance()),
                None => b.reg_id().is_none() && b.uri() == binding.uri(),
            };
            assert!(self.bindings_of(binding.aor(), binding.hash).filter(|(_, b)| same(b)).count() == 1, "one of each");
            if let Some(connection) = binding.bound_connection() {
                bound += 1;
                assert!(self.connections.candidates(connection).contains(&index), "a bound one goes with its own");
            }
            aors.push(binding.aor());
        }
        assert_eq!(self.connections.len(), bound, "nothing else goes with a connection");
        aors.sort_unstable();
        aors.dedup();
        assert_eq!(aors.len(), self.addresses, "addresses are counted");
    }

    /// Returns a binding in the form of a record.
    pub(crate) fn state<'b>(&self, context: &RecordContext<'_>, binding: &'b Binding) -> State<'b> {
        let call = RegisterSequence { id: binding.call_id, cseq: binding.cseq };
        let expires = context.store_time(binding.expires);
        let parts = binding.text.parts();
        let version = if self.versions.is_empty() { Version::NONE } else { self.versions.of(parts.contact()) };
        let state = context.state(parts, call, expires, &binding.flow(), binding.packed_flow.preference, false);
        State { version, ..state }
    }

    /// Overwrites the binding at `index`, or adds a new one.
    pub(crate) fn write(&mut self, now: Timestamp, hash: u32, index: Option<u32>, new: &BindingContents<'_>) {
        let index = match index {
            Some(index) => self.overwrite(index, new),
            None => self.add(hash, new),
        };
        if let Some(index) = index {
            self.touch(now, index, new.expires, new.call.cseq);
        }
    }

    fn overwrite(&mut self, index: u32, new: &BindingContents<'_>) -> Option<u32> {
        let old = self.bindings.get_mut(index)?;
        let bound = old.bound_connection();
        if old.text.parts() != new.parts {
            old.text = new.parts.to_text();
        }
        old.call_id = new.call.id;
        old.packed_flow = new.place;
        let now_bound = old.bound_connection();
        self.connections.remove(bound, index);
        self.connections.insert(now_bound, index);
        Some(index)
    }

    /// Adds a binding that must then be touched, which gives it its serial.
    fn add(&mut self, hash: u32, new: &BindingContents<'_>) -> Option<u32> {
        if self.bindings_of(new.parts.aor, hash).next().is_none() {
            self.addresses += 1;
        }
        let index = u32::try_from(self.bindings.len()).ok()?;
        let serial = self.serial.wrapping_add(1);
        let binding = Binding {
            text: new.parts.to_text(),
            call_id: new.call.id,
            expires: new.expires,
            links: Links::default(),
            keep_alive: TimerId::NEVER,
            hash,
            first_serial: serial,
            cseq: new.call.cseq,
            serial,
            packed_flow: new.place,
        };
        self.connections.insert(binding.bound_connection(), index);
        self.bindings.push(binding);
        self.index.insert(hash, index);
        self.expiries.insert(&mut self.bindings, index);
        Some(index)
    }

    /// Gives the binding at `index` new times; it becomes the youngest.
    pub(crate) fn touch(&mut self, now: Timestamp, index: u32, expires: Timestamp, cseq: u32) {
        self.serial = self.serial.wrapping_add(1);
        let Some(binding) = self.bindings.get_mut(index) else { return };
        let is_sooner = expires < binding.expires;
        binding.expires = expires;
        binding.cseq = cseq;
        binding.serial = self.serial;
        // An armed keep-alive stays: its time depends on the address, not on the REGISTER.
        match self.keep_alive_interval.filter(|_| binding.wants_keep_alive()) {
            Some(interval) if binding.keep_alive == TimerId::NEVER => {
                let turn = next_keep_alive(now, interval, binding.hash);
                binding.keep_alive = self.keep_alives.insert(turn, binding.key());
            }
            Some(_) => {}
            None => {
                let armed = core::mem::replace(&mut binding.keep_alive, TimerId::NEVER);
                self.keep_alives.cancel(armed);
            }
        }
        if is_sooner {
            self.expiries.remove(&mut self.bindings, index);
            self.expiries.insert(&mut self.bindings, index);
        }
    }

    /// Removes the bindings at `indices`.
    fn remove_all(&mut self, mut indices: Indices) {
        // From the back, so that an element moved into a gap is never one still to be removed.
        indices.sort_unstable_by(|a, b| b.cmp(a));
        for index in indices {
            self.remove(index);
        }
    }

    pub(crate) fn remove(&mut self, index: u32) {
        let Ok(last) = u32::try_from(self.bindings.len().saturating_sub(1)) else { return };
        self.expiries.remove(&mut self.bindings, index);
        let Some(gone) = self.bindings.swap_remove(index) else { return };
        if !self.versions.is_empty() {
            self.versions.remove(gone.text.parts().contact());
        }
        self.index.remove(gone.hash, index);
        self.connections.remove(gone.bound_connection(), index);
        self.keep_alives.cancel(gone.keep_alive);
        if let Some(moved) = self.bindings.get(index) {
            self.index.relocate(moved.hash, last, index);
            self.connections.relocate(moved.bound_connection(), last, index);
            self.expiries.relocate(&mut self.bindings, index);
        }
        if self.bindings_of(gone.aor(), gone.hash).next().is_none() {
            self.addresses -= 1;
        }
    }

    fn find(&self, key: BindingKey) -> Option<u32> {
        self.index.of(key.hash).find(|index| self.bindings.get(*index).is_some_and(|binding| binding.key() == key))
    }

    /// Returns the bindings of the address and instance with these hashes, in no particular order.
    pub(crate) fn bindings_of_gruu(&self, now: Timestamp, key: GruuKey) -> impl Iterator<Item = &Binding> {
        let hash = low_half(key.aor);
        self.index
            .of(hash)
            .filter_map(|index| self.bindings.get(index))
            .filter(move |binding| self.hasher.hash_one(binding.aor()) == key.aor)
            .filter(move |binding| now < binding.expires && binding.text.epoch() == key.epoch)
            .filter(move |binding| key.instance != 0 && instance_hash(binding.instance()) == key.instance)
    }

    pub(crate) fn bindings_of<'s>(&'s self, aor: &'s [u8], hash: u32) -> impl Iterator<Item = (u32, &'s Binding)> {
        self.index
            .of(hash)
            .filter_map(|index| self.bindings.get(index).map(|binding| (index, binding)))
            .filter(move |(_, binding)| binding.aor() == aor)
    }
}

impl Stripe {
    /// Frees the memory of keep-alive timers when most of it is unused. Costs a pass over the remaining bindings,
    /// which are few, once per reduction to a quarter.
    fn shrink(&mut self, now: Timestamp) {
        if !self.keep_alives.is_sparse() {
            return;
        }
        let interval = self.keep_alive_interval;
        self.keep_alives = Wheel::at(now);
        for index in self.index.iter() {
            let Some(binding) = self.bindings.get_mut(index) else { continue };
            let armed = binding.keep_alive != TimerId::NEVER;
            binding.keep_alive = match interval.filter(|_| armed) {
                Some(interval) => self.keep_alives.insert(next_keep_alive(now, interval, binding.hash), binding.key()),
                None => TimerId::NEVER,
            };
        }
    }
}

/// The new contents of a binding.
pub(crate) struct BindingContents<'w> {
    pub(crate) parts: Parts<'w>,
    pub(crate) call: RegisterSequence,
    pub(crate) expires: Timestamp,
    pub(crate) place: PackedFlow,
}

/// Returns the time within the next interval that belongs to `hash`.
fn next_keep_alive(now: Timestamp, interval: Duration, hash: u32) -> Timestamp {
    let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
    let phase = u64::try_from((u128::from(interval) * u128::from(hash)) >> 32).unwrap_or(0);
    let begun = now.as_nanos().saturating_sub(phase) / interval;
    let turn = if now.as_nanos() < phase {
        phase
    } else {
        begun.saturating_add(1).saturating_mul(interval).saturating_add(phase)
    };
    Timestamp::from_nanos(turn)
}
