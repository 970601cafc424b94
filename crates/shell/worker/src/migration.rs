//! Shards on their way from one worker to another.
//!
//! A shard moves as one value, between two rounds, and nothing that is meant for it is lost or overtaken:
//!
//! 1. A [`Plan`] says which shards go where. One worker makes it and every worker gets it, those first that lose shards by it.
//! 2. Who opens it sends, from then on, to the new owner, and tells the old one so by a mark in the ring to it: what stands
//!    before the mark is older than anything that goes to the new owner.
//! 3. The old owner has the shard until it has the marks of all others, and lets it go at the end of that round. By then
//!    everything older is dealt with, and what the shard had to say is sent and handed to the store.
//! 4. The new owner holds what comes for the shard until the shard itself is there, and then hands it on in its order.
//!
//! Answers of the DNS and of the store come to whoever asked, and are passed on: there is one plan at a time, so who has let a
//! shard go knows where it is. That a connection is closed is told to all workers, and whether before or after a plan is the
//! same for all of them ([`Contact::turn`]): before it the old owner tells the shard, after it the new one does, behind all that
//! the connection brought. So each shard hears it once.
//!
//! [`Contact::turn`]: crate::contact::Contact::turn

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use strowger_foundation::{Flow, ShardId, Timestamp};
use strowger_locate::{LocateResult, QueryId};
use strowger_message::{MAX_STREAM_MESSAGE, Peek};

use crate::record_sink::RecordResult;
use crate::shard_factory::{ShardFactory, StateMachine as _};
use crate::shard_host::{ShardHost, ShardSlot};
use crate::status::Load;
use crate::streams::ClosedConnection;
use strowger_shard::{Input, SteeringResult, Verdict};

/// Messages for shards on their way that a worker holds at most; past it they are dropped and counted as those that a full
/// ring drops.
pub const MAX_HELD_MESSAGES: usize = 4096;

/// The same in bytes.
pub const MAX_HELD_BYTES: usize = 8 * 1024 * 1024;

/// How many may be held before streams are not read for such shards.
const STREAMS_HELD: usize = MAX_HELD_MESSAGES / 8;

/// The same in bytes.
const STREAMS_HELD_BYTES: usize = MAX_HELD_BYTES / 8;

const _: () = assert!(STREAMS_HELD_BYTES + MAX_STREAM_MESSAGE < MAX_HELD_BYTES);

/// One shard's move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardMove {
    pub(crate) shard: ShardId,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// Shards that move together.
#[derive(Debug)]
pub(crate) struct MigrationPlan {
    moves: Vec<ShardMove>,
    /// How many have not arrived.
    left: AtomicUsize,
}

impl MigrationPlan {
    /// Whom the shards are from, each once.
    pub(crate) fn sources(&self) -> Vec<usize> {
        let mut givers: Vec<usize> = self.moves.iter().map(|one| one.from).collect();
        givers.sort_unstable();
        givers.dedup();
        givers
    }

    /// A plan of moves, none of which is from a worker to itself, and none of a shard that another one is of.
    pub(crate) fn new(moves: Vec<ShardMove>) -> Self {
        debug_assert!(moves.iter().all(|one| one.from != one.to), "a move leads elsewhere");
        let left = AtomicUsize::new(moves.len());
        Self { moves, left }
    }

    #[cfg(test)]
    pub(crate) fn moves(&self) -> &[ShardMove] {
        &self.moves
    }

    #[cfg(test)]
    pub(crate) fn finish(&self) {
        self.left.store(0, Ordering::Release);
    }

    #[cfg(test)]
    pub(crate) fn begin_again(&self) {
        self.left.store(self.moves.len(), Ordering::Release);
    }

    /// Whether all of it has been carried out.
    pub(crate) fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }
}

/// Whose bindings go.
#[derive(Clone, Debug)]
pub(crate) struct BindingRemoval {
    pub(crate) aor: Box<[u8]>,
    pub(crate) reason: RemovalReason,
}

/// Why they go.
#[derive(Clone, Debug)]
pub(crate) enum RemovalReason {
    /// The user may not be called any more.
    Bar,
    /// An operator ends all registrations, or only that of this contact.
    Unregister(Option<Box<[u8]>>),
}

/// What is to be told to one shard.
#[derive(Debug)]
pub(crate) enum ShardMessage {
    Message {
        arrival: Timestamp,
        flow: Flow,
        bytes: Vec<u8>,
    },
    Answer(QueryId, LocateResult),
    /// With what is let go when it is dealt with.
    RecordResult(RecordResult, Vec<Arc<()>>),
    RemoveBindings(BindingRemoval),
    FlowFailed(Flow),
    Closed(ClosedConnection),
}

/// What one worker knows of moves.
#[derive(Debug, Default)]
pub(crate) struct MigrationState {
    /// The plan by which shards of this worker have to go.
    leaving: Option<Arc<MigrationPlan>>,
    /// How many other workers know the plan by now.
    barriers: usize,
    /// Shards that are to come, and by which plan.
    awaited: Vec<(ShardId, Arc<MigrationPlan>)>,
    /// What is meant for them, in its order.
    held: Vec<(ShardId, ShardMessage)>,
    /// How many of `held` are messages.
    messages: usize,
    /// How long these are together.
    bytes: usize,
}

impl MigrationState {
    fn is_awaited(&self, id: ShardId) -> bool {
        self.awaited.iter().any(|(shard, _)| *shard == id)
    }
}

impl<M: ShardFactory> ShardHost<M> {
    /// Begins to carry out a plan.
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

    /// Another worker knows the plan, perhaps before this one does.
    pub(crate) fn handle_barrier(&mut self) {
        self.migration.barriers += 1;
    }

    /// Lets shards go where nothing can come any more that is older than what goes to their new owners. What they had to say
    /// must have left.
    pub(crate) fn release_shards(&mut self, now: Timestamp, post: impl FnOnce(&mut Self, Timestamp)) {
        if self.migration.leaving.is_none() || self.migration.barriers < self.io.others() {
            return;
        }
        let Some(plan) = self.migration.leaving.take() else { return };
        debug_assert_eq!(self.migration.barriers, self.io.others(), "a mark of each");
        self.migration.barriers = 0;
        let mut takers = Vec::new();
        let common = Arc::clone(&self.shared);
        // Until this is let go nobody sums up, so nothing is missed or counted twice.
        let mut moving = common.in_transit.lock().unwrap_or_else(PoisonError::into_inner);
        let me = self.io.index;
        for &ShardMove { shard, to, .. } in plan.moves.iter().filter(|one| one.from == me) {
            let Some(index) = self.slot_of(shard) else { continue };
            let tally = self.totals_of(index, now);
            let Some(seat) = self.remove_slot(shard) else { continue };
            moving.push((shard, tally));
            takers.push(to);
            if let Some(arrivals) = common.arrivals.get(to) {
                arrivals.lock().unwrap_or_else(PoisonError::into_inner).push(seat);
            }
        }
        post(self, now);
        drop(moving);
        takers.sort_unstable();
        takers.dedup();
        takers.into_iter().for_each(|to| self.io.notify_arrivals(to));
    }

    /// Takes the shards that have come, and tells them what was held for them.
    pub(crate) fn adopt_shards(&mut self, now: Timestamp, mut post: impl FnMut(&mut Self, Timestamp)) {
        let common = Arc::clone(&self.shared);
        let arrived = common.arrivals.get(self.io.index);
        let arrived = arrived.map(|seats| std::mem::take(&mut *seats.lock().unwrap_or_else(PoisonError::into_inner)));
        for seat in arrived.unwrap_or_default() {
            let id = seat.id;
            let mut moving = common.in_transit.lock().unwrap_or_else(PoisonError::into_inner);
            moving.retain(|(shard, _)| *shard != id);
            let is_behind = seat.version < self.version;
            self.insert_slot(seat);
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

    /// Gives a message to a shard of this worker, or keeps it until the shard is here.
    pub(crate) fn deliver(
        &mut self,
        now: Timestamp,
        id: ShardId,
        (arrival, flow): (Timestamp, Flow),
        (peek, steered): (&Peek<'_>, &SteeringResult),
        bytes: &[u8],
    ) {
        if let Some(seat) = self.slot_of(id) {
            let verdict = self.admit(now, (arrival, &flow), (peek, steered), bytes);
            if verdict == Verdict::Drop {
                return;
            }
            let input = Input::Message { arrival, flow, peek, steering: steered, verdict };
            return self.run(seat, now, bytes, |brain| brain.handle_input(now, input));
        }
        self.hold_or_forward(id, ShardMessage::Message { arrival, flow, bytes: bytes.to_vec() });
    }

    /// Whether a message of a stream can be taken for a shard of this worker now.
    pub(crate) fn has_room(&self) -> bool {
        self.migration.messages < STREAMS_HELD && self.migration.bytes < STREAMS_HELD_BYTES
    }

    /// Tells a shard something, wherever it is.
    pub(crate) fn send_to_shard(&mut self, now: Timestamp, id: ShardId, word: ShardMessage) {
        let Some(seat) = self.slot_of(id) else { return self.hold_or_forward(id, word) };
        match word {
            ShardMessage::Message { arrival, flow, bytes } => {
                let mut peek = Peek::default();
                if let Some(steered) = &self.read_steered(now, &bytes, &mut peek) {
                    let input = Input::Message {
                        arrival: arrival.min(now),
                        flow,
                        peek: &peek,
                        steering: steered,
                        verdict: Verdict::Admit,
                    };
                    self.run(seat, now, &bytes, |brain| brain.handle_input(now, input));
                }
            }
            ShardMessage::Answer(query, answer) => {
                self.run(seat, now, &[], |brain| brain.handle_input(now, Input::Resolved { query, answer }));
            }
            ShardMessage::RecordResult(RecordResult { ticket, record, is_stored: kept, .. }, tokens) => {
                if let Some(ticket) = ticket {
                    self.run(seat, now, &[], |brain| {
                        brain.handle_input(now, Input::Stored { ticket, record, is_durable: kept });
                    });
                }
                drop(tokens);
            }
            ShardMessage::RemoveBindings(BindingRemoval { aor, reason: order }) => {
                let input = match &order {
                    RemovalReason::Bar => Input::BarUser { aor: &aor },
                    RemovalReason::Unregister(contact) => Input::Unregister { aor: &aor, contact: contact.as_deref() },
                };
                self.run(seat, now, &[], |brain| brain.handle_input(now, input));
            }
            ShardMessage::FlowFailed(flow) => {
                self.run(seat, now, &[], |brain| brain.handle_input(now, Input::ConnectFailed { flow }));
            }
            ShardMessage::Closed((connection, peer)) => {
                self.run(seat, now, &[], |brain| brain.handle_input(now, Input::Closed { connection, peer }));
            }
        }
    }

    /// Holds what is meant for a shard that is on its way here, and passes on what is another worker's.
    #[cold]
    fn hold_or_forward(&mut self, id: ShardId, word: ShardMessage) {
        let (is_message, length) = match &word {
            ShardMessage::Message { bytes, .. } => (true, bytes.len()),
            _ => (false, 0),
        };
        // Whoever sends a message here knows a plan by which the shard comes, which this worker may not have opened yet.
        if is_message || self.migration.is_awaited(id) {
            let is_full =
                self.migration.messages >= MAX_HELD_MESSAGES || self.migration.bytes + length > MAX_HELD_BYTES;
            if is_message && is_full {
                self.io.counters.handover_drops += 1;
                return;
            }
            self.io.counters.held += 1;
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

    /// Tells shards that connections are closed: those that this worker has, or will have by the plan that it knows.
    pub(crate) fn handle_closed(&mut self, now: Timestamp, closed: &[ClosedConnection]) {
        if closed.is_empty() {
            return;
        }
        let leaving = self.migration.leaving.clone();
        for index in 0..self.slots.len() {
            let Some(id) = self.slots.get(index).map(|seat| seat.id) else { break };
            // What the connection has brought last may be with the new owner, who hears of its end too.
            if leaving.as_ref().is_none_or(|plan| plan.moves.iter().all(|one| one.shard != id)) {
                closed.iter().for_each(|one| self.send_to_shard(now, id, ShardMessage::Closed(*one)));
            }
        }
        for index in 0..self.migration.awaited.len() {
            let Some(id) = self.migration.awaited.get(index).map(|(shard, _)| *shard) else { break };
            closed.iter().for_each(|one| self.migration.held.push((id, ShardMessage::Closed(*one))));
        }
    }

    /// Gives a shard the snapshot that this worker's shards have.
    fn update_snapshot(&mut self, now: Timestamp, id: ShardId) {
        if let Some(seat) = self.slot_of(id) {
            let snapshot = Arc::clone(&self.snapshot);
            self.run(seat, now, &[], |brain| brain.handle_input(now, Input::Config(snapshot)));
        }
    }

    fn remove_slot(&mut self, id: ShardId) -> Option<ShardSlot<M::Shard>> {
        let index = self.slot_of(id)?;
        let mut seat = self.slots.swap_remove(index);
        seat.version = self.version;
        if let Some(place) = self.slot_by_shard.get_mut(usize::from(id.0)) {
            *place = None;
        }
        if let Some(moved) = self.slots.get(index)
            && let Some(place) = self.slot_by_shard.get_mut(usize::from(moved.id.0))
        {
            *place = u16::try_from(index).ok();
        }
        Some(seat)
    }

    fn insert_slot(&mut self, seat: ShardSlot<M::Shard>) {
        if let Some(place) = self.slot_by_shard.get_mut(usize::from(seat.id.0)) {
            debug_assert!(place.is_none(), "{} is nowhere else", seat.id);
            *place = u16::try_from(self.slots.len()).ok();
        }
        self.has_acted |= seat.has_acted;
        self.slots.push(seat);
    }

    /// How much each shard of this worker had to do of late, in messages.
    pub(crate) fn take_loads(&mut self, into: &mut Vec<Load>) {
        // The older half of what it had to do counts half.
        let take = |seat: &mut ShardSlot<M::Shard>| {
            let messages = seat.inputs;
            seat.inputs /= 2;
            Load { shard: seat.id, messages }
        };
        into.clear();
        into.extend(self.slots.iter_mut().map(take));
    }
}
