//! The effect of a REGISTER: written to a record for the store, or applied at once without a store.

use core::time::Duration;

use smallvec::SmallVec;
use strowger_foundation::Timestamp;

use crate::binding::{Binding, PackedFlow, Preference};
use crate::index::Indices;
use crate::plan::{Plan, PlannedContact, narrow};
use crate::policy::{Nat, Policy};
use crate::reachability::Reachability;
use crate::record::{self, Record, Refresh, Removal, State};
use crate::record_context::{Origin, RecordContext};
use crate::refusal::Refusal;
use crate::register_sequence::RegisterSequence;
use crate::stripe::Stripe;
use crate::text::Parts;
use crate::update::{Update, UpdateKind};
use crate::values::{Source, UpdateCounts};
use crate::version::Version;
use crate::version_table::{Change, ContactKey};

/// Longer than storing a record may take.
const REFRESH_MARGIN: Duration = Duration::from_secs(20);

/// Capacity of the scratch record that stays allocated, in bytes.
const SCRATCH: usize = 4096;

/// A REGISTER and its address of record.
pub(crate) struct StageRequest<'o, 'a> {
    pub(crate) policy: &'o Policy,
    pub(crate) source: &'o Source,
    pub(crate) call: RegisterSequence,
    pub(crate) update: &'o Update<'a>,
}

impl StageRequest<'_, '_> {
    /// Returns whether a contact that is not behind NAT has the peer's address as host.
    fn is_untranslated(&self) -> bool {
        let is_datagram = self.source.flow.connection.is_none() && self.update.path.is_empty();
        self.policy.nat == Nat::Auto && self.source.via_sent_by_matches && is_datagram
    }
}

/// The new states of bindings.
type NewStates<'f> = SmallVec<[State<'f>; 1]>;

impl Stripe {
    //= rfc3261#8.2:all-or-nothing
    //= rfc3261#10.3 steps 6 and 7
    /// Writes the effect of `order` to `record` and changes nothing; `record` is empty if nothing is requested.
    /// Removals are written even for contacts that are not bound: the store may have a binding that the table has
    /// not, such as one refreshed just before it expired.
    pub(crate) fn stage(
        &mut self,
        ground: &RecordContext<'_>,
        (aor, hash): (&[u8], u32),
        order: &StageRequest<'_, '_>,
        record: &mut Vec<u8>,
    ) -> Result<UpdateCounts, Refusal> {
        record.clear();
        let Some(plan) = self.plan_request(ground, (aor, hash), order)? else {
            return self.stage_without_contacts(ground, (aor, hash), order, record);
        };
        let path = order.update.joined_path();
        let fresh = self.new_states((aor, &path), ground, order, &plan);
        if ground.version != Version::NONE {
            self.write_changes(ground, aor, (order, &plan), &fresh, record);
            return Ok(plan.applied);
        }
        let is_refresh = |indices: Indices| self.is_refresh(ground.now, &indices, &fresh);
        if self.refreshed_bindings(&plan, &fresh).is_some_and(is_refresh) {
            let refresh = |state: &State<'_>| Refresh {
                expires: state.expires,
                cseq: state.cseq,
                fingerprint: state.parts.fingerprint(),
            };
            record::write_refresh(record, aor, fresh.iter().map(refresh));
        } else {
            self.write_change(ground, (aor, hash), &plan, &fresh, record);
        }
        Ok(plan.applied)
    }

    //= rfc3261#8.2:all-or-nothing
    /// Does [`stage`](Self::stage) and [`put`](Self::put) in one step. Most REGISTERs only repeat the current
    /// bindings and need no record.
    pub(crate) fn apply(
        &mut self,
        ground: &RecordContext<'_>,
        (aor, hash): (&[u8], u32),
        order: &StageRequest<'_, '_>,
    ) -> Result<UpdateCounts, Refusal> {
        let mut record = core::mem::take(&mut self.scratch);
        record.clear();
        let applied = match self.plan_request(ground, (aor, hash), order)? {
            None => self.stage_without_contacts(ground, (aor, hash), order, &mut record)?,
            Some(plan) => {
                let path = order.update.joined_path();
                let fresh = self.new_states((aor, &path), ground, order, &plan);
                if let Some(indices) = self.refreshed_bindings(&plan, &fresh) {
                    for (state, index) in fresh.iter().zip(indices) {
                        if let Some(binding) = self.bindings.get_mut(index) {
                            binding.call_id = state.call_id;
                            binding.packed_flow =
                                binding.packed_flow.with_at_peer(order.is_untranslated() && !state.is_translated);
                        }
                        self.touch(ground.now, index, ground.process_time(state.expires), state.cseq);
                    }
                } else {
                    self.write_change(ground, (aor, hash), &plan, &fresh, &mut record);
                }
                plan.applied
            }
        };
        if let Ok(record) = Record::parse(&record) {
            self.put(ground, hash, &record, Origin::Local { closed: None });
        }
        if record.capacity() <= SCRATCH {
            self.scratch = record;
        }
        Ok(applied)
    }

    /// Returns the effect of its contacts; `None` if it has none.
    fn plan_request<'u, 'a>(
        &mut self,
        ground: &RecordContext<'_>,
        (aor, hash): (&[u8], u32),
        order: &StageRequest<'u, 'a>,
    ) -> Result<Option<Plan<'u, 'a>>, Refusal> {
        self.set_keep_alive(order.policy);
        if u16::try_from(aor.len()).is_err() {
            return Err(Refusal::BadRequest("Address Too Long"));
        }
        match &order.update.kind {
            UpdateKind::Contacts(contacts) if !contacts.is_empty() => {
                self.plan(ground, (aor, hash), order.policy, contacts, order.call).map(Some)
            }
            UpdateKind::Contacts(_) | UpdateKind::Fetch | UpdateKind::RemoveAll => Ok(None),
        }
    }

    fn stage_without_contacts(
        &self,
        ground: &RecordContext<'_>,
        (aor, hash): (&[u8], u32),
        order: &StageRequest<'_, '_>,
        record: &mut Vec<u8>,
    ) -> Result<UpdateCounts, Refusal> {
        if !matches!(order.update.kind, UpdateKind::RemoveAll) {
            return Ok(UpdateCounts::default());
        }
        let current = || self.bindings_of(aor, hash).filter(|(_, binding)| ground.now < binding.expires);
        //= rfc3261#10.3:star-of-another-call
        //= rfc3261#10.3:star-with-higher-cseq
        //= rfc3261#10.3:star-with-lower-cseq
        if !current().all(|(_, binding)| order.call.is_after(binding)) {
            return Err(Refusal::OutOfOrder);
        }
        let removed = current().count();
        if ground.version == Version::NONE {
            record::write_state(record, aor, core::iter::empty());
        } else {
            let change = Change { version: ground.version, call: order.call, is_binding: false };
            let removals = current().map(|(_, binding)| Removal { contact: binding.text.parts().contact(), change });
            record::write_changes(record, aor, core::iter::empty(), removals);
        }
        Ok(UpdateCounts { removed: narrow(removed), ..UpdateCounts::default() })
    }

    fn new_states<'f, 'a: 'f>(
        &self,
        (aor, path): (&'f [u8], &'f [u8]),
        ground: &RecordContext<'_>,
        order: &StageRequest<'_, '_>,
        plan: &Plan<'_, 'a>,
    ) -> NewStates<'f> {
        let mut fresh = NewStates::new();
        for &PlannedContact { contact, lifetime, epoch } in &plan.planned {
            let reach = Reachability::of(order.policy.nat, order.source, order.update, contact);
            let epoch = match epoch {
                _ if contact.instance.is_empty() => 0,
                Some(epoch) => epoch,
                None => ground.new_epoch(&self.hasher, self.serial),
            };
            let (uri, instance) = (contact.uri.as_bytes(), contact.instance);
            let parts = Parts { aor, uri, path, instance, reg_id: contact.reg_id.unwrap_or(0), epoch };
            let expires = ground.store_time(ground.now + lifetime);
            let preference = Preference::new(contact.q, reach.is_translated);
            fresh.push(ground.state(parts, order.call, expires, &reach.flow, preference, true));
        }
        fresh
    }

    /// Writes the new state of an address.
    fn write_change(
        &self,
        ground: &RecordContext<'_>,
        (aor, hash): (&[u8], u32),
        plan: &Plan<'_, '_>,
        fresh: &[State<'_>],
        record: &mut Vec<u8>,
    ) {
        let stays = |(index, binding): &(u32, &Binding)| ground.now < binding.expires && !plan.replaced.contains(index);
        let mut kept: SmallVec<[&Binding; 8]> =
            self.bindings_of(aor, hash).filter(stays).map(|(_, binding)| binding).collect();
        kept.sort_unstable_by(|a, b| a.age(b));
        let kept = kept.into_iter().map(|binding| {
            let renewed = fresh.iter().rev().find(|state| binding.has_instance(state.parts.instance));
            let epoch = renewed.map_or(binding.text.epoch(), |state| state.parts.epoch);
            let call = RegisterSequence { id: binding.call_id, cseq: binding.cseq };
            let parts = Parts { epoch, ..binding.text.parts() };
            let expires = ground.store_time(binding.expires);
            ground.state(parts, call, expires, &binding.flow(), binding.packed_flow.preference, false)
        });
        record::write_state(record, aor, kept.chain(fresh.iter().copied()));
    }

    /// Writes the changes of a shared address; contacts that are not named stay.
    fn write_changes(
        &self,
        ground: &RecordContext<'_>,
        aor: &[u8],
        (order, plan): (&StageRequest<'_, '_>, &Plan<'_, '_>),
        fresh: &[State<'_>],
        record: &mut Vec<u8>,
    ) {
        let change = Change { version: ground.version, call: order.call, is_binding: false };
        let replaced = plan.replaced.iter().filter_map(|index| Some(self.bindings.get(*index)?.text.parts().contact()));
        let mut gone: SmallVec<[ContactKey; 8]> =
            replaced.chain(plan.removals.iter().map(|contact| contact.key(aor))).collect();
        gone.sort_unstable();
        gone.dedup();
        gone.retain(|contact| fresh.iter().all(|state| state.parts.contact() != *contact));
        let removals = gone.iter().map(|contact| Removal { contact: *contact, change });
        record::write_changes(record, aor, fresh.iter().copied(), removals);
    }

    /// Returns the bindings that `fresh` repeats, in that order, apart from times and Call-IDs; `None` if anything
    /// else changes.
    fn refreshed_bindings(&self, plan: &Plan<'_, '_>, fresh: &[State<'_>]) -> Option<Indices> {
        if plan.has_removals || plan.replaced.len() != fresh.len() {
            return None;
        }
        let mut written_over = Indices::new();
        for state in fresh {
            let place = PackedFlow::new(&state.flow(), Preference::new(state.q, state.is_translated));
            let is = |index: &&u32| {
                self.bindings
                    .get(**index)
                    .is_some_and(|old| old.packed_flow.is_same(&place) && old.text.parts() == state.parts)
            };
            written_over.push(*plan.replaced.iter().find(is)?);
        }
        Some(written_over)
    }

    /// Returns whether `fresh` only changes the times of the bindings at `indices`. A binding that may expire before
    /// the record is stored cannot be refreshed then, so it is written in full.
    fn is_refresh(&self, now: Timestamp, indices: &[u32], fresh: &[State<'_>]) -> bool {
        indices.iter().zip(fresh).all(|(index, state)| {
            let old = self.bindings.get(*index);
            old.is_some_and(|old| old.call_id == state.call_id && now + REFRESH_MARGIN < old.expires)
        })
    }
}
