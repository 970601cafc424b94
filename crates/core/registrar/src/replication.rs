//! Changes of contacts shared by several members: for each contact the newest change counts, whichever member made
//! it.

use crate::binding::{Binding, PackedFlow, Preference};
use crate::record::{self, Record, Removal, State};
use crate::record_buffer::RecordBuffer;
use crate::record_context::{Origin, RecordContext};
use crate::register_sequence::RegisterSequence;
use crate::stripe::{BindingContents, Stripe};
use crate::version::{MemberId, Version};
use crate::version_table::{Change, ContactKey, Resolution, SERVER_SEQUENCE, Tombstone};

/// Number of bindings or tombstones visited per lock of the stripe.
const CHANGES_PER_COPY: u32 = 256;

/// The progress of copying a table; the default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    pub(crate) stripe: u16,
    pub(crate) part: StripeCursor,
}

/// The progress of copying a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StripeCursor {
    /// Bindings below this index remain. Removing a binding moves one from the end to its index.
    Bindings(u32),
    /// Tombstones from this position on, counted from the newest, remain.
    Tombstones(u32),
}

impl Default for StripeCursor {
    fn default() -> Self {
        Self::Bindings(u32::MAX)
    }
}

/// The known state of a contact: its binding or its tombstone.
struct KnownChange {
    index: Option<u32>,
    change: Change,
}

impl Stripe {
    /// Applies each change that is newer than the known state of its contact. If CSeq and version contradict each
    /// other, the newer change gets a later version, which the other members must learn:
    /// [`take_restamped`](Self::take_restamped).
    pub(crate) fn put_changes(&mut self, ground: &RecordContext<'_>, hash: u32, record: &Record<'_>, origin: Origin) {
        let aor = record.aor();
        for removal in record.removals() {
            let known = self.known_change((aor, hash), removal.contact);
            if let Some(version) = self.newest(known.as_ref(), removal.contact, removal.change) {
                let change = Change { version, ..removal.change };
                self.put_removal(ground, aor, known.and_then(|known| known.index), Removal { change, ..removal });
            }
        }
        for state in record.states() {
            // A change that was never shared gets a version here.
            let version = if state.version == Version::NONE { ground.version } else { state.version };
            let (state, contact) = (State { version, ..state }, state.parts.contact());
            let known = self.known_change((aor, hash), contact);
            if let Some(version) = self.newest(known.as_ref(), contact, state.change()) {
                let origin = if ground.is_from_other_member(state.version) { Origin::Member } else { origin };
                self.put_binding(ground, (hash, known), &State { version, ..state }, origin);
            }
        }
        self.versions.expire(ground.now);
    }

    /// Returns the version with which a change replaces the known state; `None` if the known state is kept.
    fn newest(&mut self, known: Option<&KnownChange>, contact: ContactKey, change: Change) -> Option<Version> {
        let Some(known) = known else { return Some(change.version) };
        let order = change.resolve(known.change);
        match order {
            Resolution::Keep => None,
            Resolution::Replace(version) => {
                if version != change.version {
                    self.restamped = self.restamped.max(version);
                }
                Some(version)
            }
            Resolution::KeepAs(version) => {
                self.restamped = self.restamped.max(version);
                self.versions.restamp(contact, version);
                None
            }
        }
    }

    fn known_change(&self, (aor, hash): (&[u8], u32), contact: ContactKey) -> Option<KnownChange> {
        let binding = self.bindings_of(aor, hash).find(|(_, binding)| binding.text.parts().contact() == contact);
        if let Some((index, binding)) = binding {
            let call = RegisterSequence { id: binding.call_id, cseq: binding.cseq };
            return Some(KnownChange {
                index: Some(index),
                change: Change { version: self.versions.of(contact), call, is_binding: true },
            });
        }
        self.versions.tombstone_of(contact).map(|mark| KnownChange { index: None, change: mark.change })
    }

    fn put_removal(&mut self, ground: &RecordContext<'_>, aor: &[u8], index: Option<u32>, removal: Removal) {
        if let Some(index) = index {
            self.remove(index);
        }
        let until = ground.process_time(removal.change.tombstone_until(ground.max_lifetime));
        if ground.now < until {
            self.versions.insert_tombstone(Tombstone {
                aor: aor.into(),
                contact: removal.contact,
                change: removal.change,
                until,
            });
        }
    }

    fn put_binding(
        &mut self,
        ground: &RecordContext<'_>,
        (hash, known): (u32, Option<KnownChange>),
        state: &State<'_>,
        origin: Origin,
    ) {
        let contact = state.parts.contact();
        let index = known.as_ref().and_then(|known| known.index);
        let Some((flow, expires)) = origin.resolve(ground, state) else {
            let is_over = ground.process_time(state.expires) <= ground.now;
            let change = if is_over {
                Change { is_binding: false, ..state.change() }
            } else {
                // Its connection is closed, which no other member knows.
                let version = state.version.right_after(state.version);
                self.restamped = self.restamped.max(version);
                Change { version, call: SERVER_SEQUENCE, is_binding: false }
            };
            return self.put_removal(ground, state.parts.aor, index, Removal { contact, change });
        };
        let is_elsewhere = matches!(origin, Origin::Member) && ground.is_via_other_member(state);
        let was_of_other = known.is_some_and(|known| known.change.version.member() != state.version.member());
        let was_outlasted =
            index.and_then(|index| self.bindings.get(index)).is_some_and(|old| old.packed_flow.needs_tombstone());
        let place = PackedFlow::new(&flow, Preference::new(state.q, state.is_translated));
        let place = place.with_via_other_member(is_elsewhere).with_needs_tombstone(was_of_other || was_outlasted);
        let call = RegisterSequence { id: state.call_id, cseq: state.cseq };
        self.write(ground.now, hash, index, &BindingContents { parts: state.parts, call, expires, place });
        self.share_epoch(hash, &state.parts);
        self.versions.set(contact, state.version);
    }

    /// Leaves a tombstone for an expiring binding if an older change of another member may expire later.
    pub(crate) fn leave_tombstone(&mut self, ground: &RecordContext<'_>, index: u32) {
        let Some(binding) = self.bindings.get(index).filter(|binding| binding.packed_flow.needs_tombstone()) else {
            return;
        };
        let contact = binding.text.parts().contact();
        let call = RegisterSequence { id: binding.call_id, cseq: binding.cseq };
        let change = Change { version: self.versions.of(contact), call, is_binding: false };
        let (aor, until) = (binding.aor().into(), ground.process_time(change.tombstone_until(ground.max_lifetime)));
        if ground.now < until {
            self.versions.insert_tombstone(Tombstone { aor, contact, change, until });
        }
    }

    /// Returns the latest version assigned in place of a change's own since the last call.
    pub(crate) const fn take_restamped(&mut self) -> Version {
        core::mem::replace(&mut self.restamped, Version::NONE)
    }

    /// Returns the member that registered a binding.
    pub(crate) fn holder(&self, binding: &Binding) -> Option<MemberId> {
        self.versions.of(binding.text.parts().contact()).member()
    }

    /// Writes the current state of the contacts that a change set names.
    pub(crate) fn write_current_changes(
        &self,
        ground: &RecordContext<'_>,
        hash: u32,
        named: &Record<'_>,
        out: &mut Vec<u8>,
    ) {
        let aor = named.aor();
        let is_named = |contact: ContactKey| {
            named.states().any(|state| state.parts.contact() == contact)
                || named.removals().any(|gone| gone.contact == contact)
        };
        let bound = self.bindings_of(aor, hash).map(|(_, binding)| binding);
        let bound = bound.filter(|binding| ground.now < binding.expires && is_named(binding.text.parts().contact()));
        let contacts =
            named.states().map(|state| state.parts.contact()).chain(named.removals().map(|gone| gone.contact));
        let marks = contacts.filter_map(|contact| self.versions.tombstone_of(contact));
        let removals = marks.map(|mark| Removal { contact: mark.contact, change: mark.change });
        record::write_changes(out, aor, bound.map(|binding| self.state(ground, binding)), removals);
    }

    /// Adds the current and wanted changes of some bindings or tombstones to `piece`. Returns where to continue.
    pub(crate) fn copy_changes(
        &self,
        ground: &RecordContext<'_>,
        from: StripeCursor,
        is_wanted: &dyn Fn(Version) -> bool,
        piece: &mut RecordBuffer,
    ) -> Option<StripeCursor> {
        match from {
            StripeCursor::Bindings(top) => {
                let top = top.min(u32::try_from(self.bindings.len()).unwrap_or(u32::MAX));
                let bottom = top.saturating_sub(CHANGES_PER_COPY);
                let bindings = (bottom..top).rev().filter_map(|index| self.bindings.get(index));
                for binding in bindings.filter(|binding| ground.now < binding.expires) {
                    let state = self.state(ground, binding);
                    if is_wanted(state.version) {
                        let state = core::iter::once(state);
                        piece.add(|out| record::write_changes(out, binding.aor(), state, core::iter::empty()));
                    }
                }
                Some(if bottom == 0 { StripeCursor::Tombstones(0) } else { StripeCursor::Bindings(bottom) })
            }
            StripeCursor::Tombstones(from) => {
                let count = usize::try_from(CHANGES_PER_COPY).unwrap_or(usize::MAX);
                let (marks, next) = self.versions.tombstones_from(usize::try_from(from).unwrap_or(usize::MAX), count);
                for mark in marks.filter(|mark| is_wanted(mark.change.version)) {
                    let removal = Removal { contact: mark.contact, change: mark.change };
                    piece.add(|out| {
                        record::write_changes(out, &mark.aor, core::iter::empty(), core::iter::once(removal));
                    });
                }
                next.map(|next| StripeCursor::Tombstones(u32::try_from(next).unwrap_or(u32::MAX)))
            }
        }
    }

    /// Adds the removal of each of these bindings to `piece`.
    pub(crate) fn write_removals(&self, ground: &RecordContext<'_>, indices: &[u32], piece: &mut RecordBuffer) {
        for binding in indices.iter().filter_map(|index| self.bindings.get(*index)) {
            let removal = removal_of(ground, binding);
            piece.add(|out| record::write_changes(out, binding.aor(), core::iter::empty(), core::iter::once(removal)));
        }
    }

    /// Writes the removal of all bindings of an address.
    pub(crate) fn write_removal_of_all(
        &self,
        ground: &RecordContext<'_>,
        (aor, hash): (&[u8], u32),
        out: &mut Vec<u8>,
    ) {
        let removals = self.bindings_of(aor, hash).map(|(_, binding)| removal_of(ground, binding));
        record::write_changes(out, aor, core::iter::empty(), removals);
    }
}

/// Returns the removal of a binding that no REGISTER requested.
fn removal_of(ground: &RecordContext<'_>, binding: &Binding) -> Removal {
    Removal {
        contact: binding.text.parts().contact(),
        change: Change { version: ground.version, call: SERVER_SEQUENCE, is_binding: false },
    }
}
