//! Moves of shards from and to this worker.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use strowger_foundation::{Flow, ShardId, Timestamp};
use strowger_message::Peek;
use strowger_shard::{Input, SteeringResult, Verdict};

use crate::migration::{
    BindingRemoval, MAX_HELD_BYTES, MAX_HELD_MESSAGES, MigrationPlan, RemovalReason, STREAMS_HELD, STREAMS_HELD_BYTES,
    ShardMessage, ShardMove,
};
use crate::record_result::RecordResult;
use crate::shard_factory::{ShardFactory, StateMachine as _};
use crate::shard_host::{ShardHost, ShardSlot};
use crate::status::Load;
use crate::streams::ClosedConnection;

impl<M: ShardFactory> ShardHost<M> {
    /// Starts to carry out a plan.
    pub(crate) fn handle_plan(&mut self, plan: &Arc<MigrationPlan>) {
        let me = self.io.index;
        for &ShardMove { shard, from, to } in &plan.moves {
            debug_assert_eq!(self.io.worker_of(shard), from, "{shard} moves from where it is");
            self.io.assign(shard, to);
            if to == me {
                self.migration.awaited.push((shard, Arc::clone(plan)));
            }
            if from == me {
                self.migration.leaving = Some(Arc::clone(plan));
            }
        }
        plan.sources().into_iter().filter(|giver| *giver != me).for_each(|giver| self.io.send_barrier(giver));
    }

    /// Handles the barrier of another worker, which may have received the plan before this one.
    pub(crate) fn handle_barrier(&mut self) {
        self.migration.barriers += 1;
    }

    /// Releases shards once nothing can arrive that is older than what goes to their new owners. Their output must
    /// have been sent.
    pub(crate) fn release_shards(&mut self, now: Timestamp, post: impl FnOnce(&mut Self, Timestamp)) {
        if self.migration.leaving.is_none() || self.migration.barriers < self.io.others() {
            return;
        }
        let Some(plan) = self.migration.leaving.take() else { return };
        debug_assert_eq!(self.migration.barriers, self.io.others(), "a mark of each");
        self.migration.barriers = 0;
        let mut takers = Vec::new();
        let common = Arc::clone(&self.shared);
        // While this lock is held no totals are computed, so nothing is missed or counted twice.
        let mut moving = common.in_transit.lock().unwrap_or_else(PoisonError::into_inner);
        let me = self.io.index;
        for &ShardMove { shard, to, .. } in plan.moves.iter().filter(|one| one.from == me) {
            let Some(index) = self.slot_of(shard) else { continue };
            let tally = self.totals_of(index, now);
            let Some(shard_slot) = self.remove_slot(shard) else { continue };
            moving.push((shard, tally));
            takers.push(to);
            if let Some(arrivals) = common.arrivals.get(to) {
                arrivals.lock().unwrap_or_else(PoisonError::into_inner).push(shard_slot);
            }
        }
        post(self, now);
        drop(moving);
        takers.sort_unstable();
        takers.dedup();
        takers.into_iter().for_each(|to| self.io.notify_arrivals(to));
    }

    /// Adopts the shards that have arrived and delivers the messages held for them.
    pub(crate) fn adopt_shards(&mut self, now: Timestamp, mut post: impl FnMut(&mut Self, Timestamp)) {
        let common = Arc::clone(&self.shared);
        let arrived = common.arrivals.get(self.io.index);
        let arrived = arrived.map(|slots| std::mem::take(&mut *slots.lock().unwrap_or_else(PoisonError::into_inner)));
        for shard_slot in arrived.unwrap_or_default() {
            let id = shard_slot.id;
            let mut moving = common.in_transit.lock().unwrap_or_else(PoisonError::into_inner);
            moving.retain(|(shard, _)| *shard != id);
            let is_behind = shard_slot.version < self.version;
            self.insert_slot(shard_slot);
            post(self, now);
            drop(moving);
            if is_behind {
                self.update_snapshot(now, id);
            }
            let waiting = self.migration.awaited.iter().position(|(shard, _)| *shard == id);
            let plan = waiting.map(|index| self.migration.awaited.swap_remove(index).1);
            debug_assert!(plan.is_some(), "{id} was awaited");
            self.deliver_held(now, id);
            if let Some(plan) = plan {
                plan.left.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// Delivers a message to a shard of this worker, or holds it until the shard arrives.
    pub(crate) fn deliver(
        &mut self,
        now: Timestamp,
        id: ShardId,
        (arrival, flow): (Timestamp, Flow),
        (peek, steered): (&Peek<'_>, &SteeringResult),
        bytes: &[u8],
    ) {
        if self.io.predecessors.is_some() && self.relay_to_predecessor(id, (arrival, flow), (peek, steered), bytes) {
            return;
        }
        if let Some(shard_slot) = self.slot_of(id) {
            let verdict = self.admit(now, (arrival, &flow), (peek, steered), bytes);
            if verdict == Verdict::Drop {
                return;
            }
            let input = Input::Message { arrival, flow, peek, steering: steered, verdict };
            return self.run(shard_slot, now, bytes, |machine| machine.handle_input(now, input));
        }
        self.hold_or_forward(id, ShardMessage::Message { arrival, flow, bytes: bytes.to_vec() });
    }

    /// Returns whether a plan is being carried out that concerns this worker.
    pub(crate) fn is_migrating(&self) -> bool {
        self.migration.leaving.is_some() || !self.migration.awaited.is_empty()
    }

    /// Returns whether a stream message for a shard in transit can be held.
    pub(crate) fn has_room(&self) -> bool {
        self.migration.messages < STREAMS_HELD && self.migration.bytes < STREAMS_HELD_BYTES
    }

    /// Sends a message to a shard, wherever it is.
    pub(crate) fn send_to_shard(&mut self, now: Timestamp, id: ShardId, word: ShardMessage) {
        let Some(shard_slot) = self.slot_of(id) else { return self.hold_or_forward(id, word) };
        match word {
            ShardMessage::Message { arrival, flow, bytes } => {
                let mut peek = Peek::default();
                if let Some(steered) = &self.read_steered(now, &bytes, &mut peek)
                    && !self.relay_to_predecessor(id, (arrival, flow), (&peek, steered), &bytes)
                {
                    let input = Input::Message {
                        arrival: arrival.min(now),
                        flow,
                        peek: &peek,
                        steering: steered,
                        verdict: Verdict::Admit,
                    };
                    self.run(shard_slot, now, &bytes, |machine| machine.handle_input(now, input));
                }
            }
            ShardMessage::Answer(query, answer) => {
                self.run(shard_slot, now, &[], |machine| machine.handle_input(now, Input::Resolved { query, answer }));
            }
            ShardMessage::Media(engine, message) => {
                let message = &*message;
                self.run(shard_slot, now, &[], |machine| machine.handle_input(now, Input::Media { engine, message }));
            }
            ShardMessage::RecordResult(RecordResult { ticket, record, is_stored: kept, .. }, tokens) => {
                if let Some(ticket) = ticket {
                    self.run(shard_slot, now, &[], |machine| {
                        machine.handle_input(now, Input::Stored { ticket, record, is_durable: kept });
                    });
                }
                drop(tokens);
            }
            ShardMessage::RemoveBindings(BindingRemoval { aor, reason: order }) => {
                let input = match &order {
                    RemovalReason::Bar => Input::BarUser { aor: &aor },
                    RemovalReason::Unregister(contact) => Input::Unregister { aor: &aor, contact: contact.as_deref() },
                };
                self.run(shard_slot, now, &[], |machine| machine.handle_input(now, input));
            }
            ShardMessage::FlowFailed(flow) | ShardMessage::Closed(ClosedConnection::Way(flow)) => {
                self.run(shard_slot, now, &[], |machine| machine.handle_input(now, Input::ConnectFailed { flow }));
            }
            ShardMessage::Closed(ClosedConnection::Connection(connection, peer)) => {
                self.run(shard_slot, now, &[], |machine| machine.handle_input(now, Input::Closed { connection, peer }));
            }
        }
    }

    /// Holds a message for a shard in transit to this worker, and forwards one for a shard of another worker.
    #[cold]
    fn hold_or_forward(&mut self, id: ShardId, word: ShardMessage) {
        let (is_message, length) = match &word {
            ShardMessage::Message { bytes, .. } => (true, bytes.len()),
            _ => (false, 0),
        };
        // The sender of a message knows a plan by which the shard comes here; this worker may not have received it
        // yet.
        if is_message || self.migration.is_awaited(id) {
            let is_full =
                self.migration.messages >= MAX_HELD_MESSAGES || self.migration.bytes + length > MAX_HELD_BYTES;
            if is_message && is_full {
                self.io.counters.handover_drops += 1;
                return;
            }
            self.io.counters.held_for_rebalance += 1;
            self.migration.messages += usize::from(is_message);
            self.migration.bytes += length;
            self.migration.held.push((id, word));
        } else {
            self.io.forward(id, word);
        }
    }

    fn deliver_held(&mut self, now: Timestamp, id: ShardId) {
        let is_its = |(shard, _): &mut (ShardId, ShardMessage)| *shard == id;
        let words: Vec<_> = self.migration.held.extract_if(.., is_its).collect();
        for (_, word) in words {
            if let ShardMessage::Message { bytes, .. } = &word {
                self.migration.messages -= 1;
                self.migration.bytes -= bytes.len();
            }
            self.send_to_shard(now, id, word);
        }
    }

    /// Tells the shards of this worker, and those that are migrating to it, that connections closed.
    pub(crate) fn handle_closed(&mut self, now: Timestamp, closed: &[ClosedConnection]) {
        if closed.is_empty() {
            return;
        }
        let leaving = self.migration.leaving.clone();
        for index in 0..self.slots.len() {
            let Some(id) = self.slots.get(index).map(|shard_slot| shard_slot.id) else { break };
            // The last input of the connection may be at the new owner, which reports the closure too.
            if leaving.as_ref().is_none_or(|plan| plan.moves.iter().all(|one| one.shard != id)) {
                closed.iter().for_each(|one| self.send_to_shard(now, id, ShardMessage::Closed(*one)));
            }
        }
        for index in 0..self.migration.awaited.len() {
            let Some(id) = self.migration.awaited.get(index).map(|(shard, _)| *shard) else { break };
            closed.iter().for_each(|one| self.migration.held.push((id, ShardMessage::Closed(*one))));
        }
    }

    /// Updates a shard to the snapshot of this worker.
    fn update_snapshot(&mut self, now: Timestamp, id: ShardId) {
        if let Some(shard_slot) = self.slot_of(id) {
            let snapshot = Arc::clone(&self.snapshot);
            self.run(shard_slot, now, &[], |machine| machine.handle_input(now, Input::Config(snapshot)));
        }
    }

    fn remove_slot(&mut self, id: ShardId) -> Option<ShardSlot<M::Shard>> {
        let index = self.slot_of(id)?;
        let mut shard_slot = self.slots.swap_remove(index);
        shard_slot.version = self.version;
        if let Some(place) = self.slot_by_shard.get_mut(usize::from(id.0)) {
            *place = None;
        }
        if let Some(moved) = self.slots.get(index)
            && let Some(place) = self.slot_by_shard.get_mut(usize::from(moved.id.0))
        {
            *place = u16::try_from(index).ok();
        }
        Some(shard_slot)
    }

    fn insert_slot(&mut self, shard_slot: ShardSlot<M::Shard>) {
        if let Some(place) = self.slot_by_shard.get_mut(usize::from(shard_slot.id.0)) {
            debug_assert!(place.is_none(), "{} is nowhere else", shard_slot.id);
            *place = u16::try_from(self.slots.len()).ok();
        }
        self.has_acted |= shard_slot.has_acted;
        self.slots.push(shard_slot);
    }

    /// Collects the recent load of each shard of this worker, in messages.
    pub(crate) fn take_loads(&mut self, into: &mut Vec<Load>) {
        // Exponential decay: older load counts half.
        let take = |shard_slot: &mut ShardSlot<M::Shard>| {
            let messages = shard_slot.inputs;
            shard_slot.inputs /= 2;
            Load { shard: shard_slot.id, messages }
        };
        into.clear();
        into.extend(self.slots.iter_mut().map(take));
    }
}
