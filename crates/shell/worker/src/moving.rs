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
use strowger_locate::{Answer, QueryId};
use strowger_message::{MAX_STREAM_MESSAGE, Peek};

use crate::brain::{Brain as _, Maker};
use crate::desk::{Desk, Seat};
use crate::keep::Stored;
use crate::status::Load;
use crate::streams::Closed;
use strowger_shard::{Input, Steered, Verdict};

/// Messages for shards on their way that a worker holds at most; past it they are dropped and counted as those that a full
/// ring drops.
pub const HELD: usize = 4096;

/// The same in bytes.
pub const HELD_BYTES: usize = 8 * 1024 * 1024;

/// How many may be held before streams are not read for such shards.
const STREAMS_HELD: usize = HELD / 8;

/// The same in bytes.
const STREAMS_HELD_BYTES: usize = HELD_BYTES / 8;

const _: () = assert!(STREAMS_HELD_BYTES + MAX_STREAM_MESSAGE < HELD_BYTES);

/// One shard's move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) shard: ShardId,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// Shards that move together.
#[derive(Debug)]
pub(crate) struct Plan {
    moves: Vec<Move>,
    /// How many have not arrived.
    left: AtomicUsize,
}

impl Plan {
    /// Whom the shards are from, each once.
    pub(crate) fn givers(&self) -> Vec<usize> {
        let mut givers: Vec<usize> = self.moves.iter().map(|one| one.from).collect();
        givers.sort_unstable();
        givers.dedup();
        givers
    }

    /// A plan of moves, none of which is from a worker to itself, and none of a shard that another one is of.
    pub(crate) fn new(moves: Vec<Move>) -> Self {
        debug_assert!(moves.iter().all(|one| one.from != one.to), "a move leads elsewhere");
        let left = AtomicUsize::new(moves.len());
        Self { moves, left }
    }

    #[cfg(test)]
    pub(crate) fn moves(&self) -> &[Move] {
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
pub(crate) struct Forgotten {
    pub(crate) aor: Box<[u8]>,
    pub(crate) order: Order,
}

/// Why they go.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// The user may not be called any more.
    Bar,
    /// An operator ends all registrations, or only that of this contact.
    Unregister(Option<Box<[u8]>>),
}

/// What is to be told to one shard.
#[derive(Debug)]
pub(crate) enum Word {
    Message {
        arrival: Timestamp,
        flow: Flow,
        bytes: Vec<u8>,
    },
    Answer(QueryId, Answer),
    /// With what is let go when it is dealt with.
    Stored(Stored, Vec<Arc<()>>),
    Forget(Forgotten),
    Unconnected(Flow),
    Closed(Closed),
}

/// What one worker knows of moves.
#[derive(Debug, Default)]
pub(crate) struct Transit {
    /// The plan by which shards of this worker have to go.
    leaving: Option<Arc<Plan>>,
    /// How many other workers know the plan by now.
    marks: usize,
    /// Shards that are to come, and by which plan.
    awaited: Vec<(ShardId, Arc<Plan>)>,
    /// What is meant for them, in its order.
    held: Vec<(ShardId, Word)>,
    /// How many of `held` are messages.
    messages: usize,
    /// How long these are together.
    bytes: usize,
}

impl Transit {
    fn is_awaited(&self, id: ShardId) -> bool {
        self.awaited.iter().any(|(shard, _)| *shard == id)
    }
}

impl<M: Maker> Desk<M> {
    /// Begins to carry out a plan.
    pub(crate) fn handle_plan(&mut self, plan: &Arc<Plan>) {
        let me = self.exits.index;
        for &Move { shard, from, to } in &plan.moves {
            debug_assert_eq!(self.exits.worker_of(shard), from, "{shard} moves from where it is");
            self.exits.assign(shard, to);
            if to == me {
                self.transit.awaited.push((shard, Arc::clone(plan)));
            }
            if from == me {
                self.transit.leaving = Some(Arc::clone(plan));
            }
        }
        plan.givers().into_iter().filter(|giver| *giver != me).for_each(|giver| self.exits.mark(giver));
    }

    /// Another worker knows the plan, perhaps before this one does.
    pub(crate) fn handle_mark(&mut self) {
        self.transit.marks += 1;
    }

    /// Lets shards go where nothing can come any more that is older than what goes to their new owners. What they had to say
    /// must have left.
    pub(crate) fn let_go(&mut self, now: Timestamp, post: impl FnOnce(&mut Self, Timestamp)) {
        if self.transit.leaving.is_none() || self.transit.marks < self.exits.others() {
            return;
        }
        let Some(plan) = self.transit.leaving.take() else { return };
        debug_assert_eq!(self.transit.marks, self.exits.others(), "a mark of each");
        self.transit.marks = 0;
        let mut takers = Vec::new();
        let common = Arc::clone(&self.common);
        // Until this is let go nobody sums up, so nothing is missed or counted twice.
        let mut moving = common.moving.lock().unwrap_or_else(PoisonError::into_inner);
        let me = self.exits.index;
        for &Move { shard, to, .. } in plan.moves.iter().filter(|one| one.from == me) {
            let Some(index) = self.seat_of(shard) else { continue };
            let tally = self.tally(index, now);
            let Some(seat) = self.take_seat(shard) else { continue };
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
        takers.into_iter().for_each(|to| self.exits.announce(to));
    }

    /// Takes the shards that have come, and tells them what was held for them.
    pub(crate) fn take_arrivals(&mut self, now: Timestamp, mut post: impl FnMut(&mut Self, Timestamp)) {
        let common = Arc::clone(&self.common);
        let arrived = common.arrivals.get(self.exits.index);
        let arrived = arrived.map(|seats| std::mem::take(&mut *seats.lock().unwrap_or_else(PoisonError::into_inner)));
        for seat in arrived.unwrap_or_default() {
            let id = seat.id;
            let mut moving = common.moving.lock().unwrap_or_else(PoisonError::into_inner);
            moving.retain(|(shard, _)| *shard != id);
            let is_behind = seat.version < self.version;
            self.put_seat(seat);
            post(self, now);
            drop(moving);
            if is_behind {
                self.bring_up_to_date(now, id);
            }
            let waiting = self.transit.awaited.iter().position(|(shard, _)| *shard == id);
            let plan = waiting.map(|index| self.transit.awaited.swap_remove(index).1);
            debug_assert!(plan.is_some(), "{id} was awaited");
            self.tell_held(now, id);
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
        (peek, steered): (&Peek<'_>, &Steered),
        bytes: &[u8],
    ) {
        if let Some(seat) = self.seat_of(id) {
            let verdict = self.judge(now, (arrival, &flow), (peek, steered), bytes);
            if verdict == Verdict::Drop {
                return;
            }
            let input = Input::Message { arrival, flow, peek, steered, verdict };
            return self.run(seat, now, bytes, |brain| brain.handle_input(now, input));
        }
        self.tell_elsewhere(id, Word::Message { arrival, flow, bytes: bytes.to_vec() });
    }

    /// Whether a message of a stream can be taken for a shard of this worker now.
    pub(crate) fn has_room(&self) -> bool {
        self.transit.messages < STREAMS_HELD && self.transit.bytes < STREAMS_HELD_BYTES
    }

    /// Tells a shard something, wherever it is.
    pub(crate) fn tell(&mut self, now: Timestamp, id: ShardId, word: Word) {
        let Some(seat) = self.seat_of(id) else { return self.tell_elsewhere(id, word) };
        match word {
            Word::Message { arrival, flow, bytes } => {
                let mut peek = Peek::default();
                if let Some(steered) = &self.read_steered(now, &bytes, &mut peek) {
                    let input = Input::Message {
                        arrival: arrival.min(now),
                        flow,
                        peek: &peek,
                        steered,
                        verdict: Verdict::Admit,
                    };
                    self.run(seat, now, &bytes, |brain| brain.handle_input(now, input));
                }
            }
            Word::Answer(query, answer) => {
                self.run(seat, now, &[], |brain| brain.handle_input(now, Input::Resolved { query, answer }));
            }
            Word::Stored(Stored { ticket, record, kept, .. }, tokens) => {
                if let Some(ticket) = ticket {
                    self.run(seat, now, &[], |brain| brain.handle_input(now, Input::Stored { ticket, record, kept }));
                }
                drop(tokens);
            }
            Word::Forget(Forgotten { aor, order }) => {
                let input = match &order {
                    Order::Bar => Input::Forget { aor: &aor },
                    Order::Unregister(contact) => Input::Unregister { aor: &aor, contact: contact.as_deref() },
                };
                self.run(seat, now, &[], |brain| brain.handle_input(now, input));
            }
            Word::Unconnected(flow) => {
                self.run(seat, now, &[], |brain| brain.handle_input(now, Input::Unconnected { flow }));
            }
            Word::Closed((connection, peer)) => {
                self.run(seat, now, &[], |brain| brain.handle_input(now, Input::Closed { connection, peer }));
            }
        }
    }

    /// Holds what is meant for a shard that is on its way here, and passes on what is another worker's.
    #[cold]
    fn tell_elsewhere(&mut self, id: ShardId, word: Word) {
        let (is_message, length) = match &word {
            Word::Message { bytes, .. } => (true, bytes.len()),
            _ => (false, 0),
        };
        // Whoever sends a message here knows a plan by which the shard comes, which this worker may not have opened yet.
        if is_message || self.transit.is_awaited(id) {
            let is_full = self.transit.messages >= HELD || self.transit.bytes + length > HELD_BYTES;
            if is_message && is_full {
                self.exits.counters.handover_drops += 1;
                return;
            }
            self.exits.counters.held += 1;
            self.transit.messages += usize::from(is_message);
            self.transit.bytes += length;
            self.transit.held.push((id, word));
        } else {
            self.exits.pass_on(id, word);
        }
    }

    fn tell_held(&mut self, now: Timestamp, id: ShardId) {
        let is_its = |(shard, _): &mut (ShardId, Word)| *shard == id;
        let words: Vec<_> = self.transit.held.extract_if(.., is_its).collect();
        for (_, word) in words {
            if let Word::Message { bytes, .. } = &word {
                self.transit.messages -= 1;
                self.transit.bytes -= bytes.len();
            }
            self.tell(now, id, word);
        }
    }

    /// Tells shards that connections are closed: those that this worker has, or will have by the plan that it knows.
    pub(crate) fn handle_closed(&mut self, now: Timestamp, closed: &[Closed]) {
        if closed.is_empty() {
            return;
        }
        let leaving = self.transit.leaving.clone();
        for index in 0..self.seats.len() {
            let Some(id) = self.seats.get(index).map(|seat| seat.id) else { break };
            // What the connection has brought last may be with the new owner, who hears of its end too.
            if leaving.as_ref().is_none_or(|plan| plan.moves.iter().all(|one| one.shard != id)) {
                closed.iter().for_each(|one| self.tell(now, id, Word::Closed(*one)));
            }
        }
        for index in 0..self.transit.awaited.len() {
            let Some(id) = self.transit.awaited.get(index).map(|(shard, _)| *shard) else { break };
            closed.iter().for_each(|one| self.transit.held.push((id, Word::Closed(*one))));
        }
    }

    /// Gives a shard the snapshot that this worker's shards have.
    fn bring_up_to_date(&mut self, now: Timestamp, id: ShardId) {
        if let Some(seat) = self.seat_of(id) {
            let snapshot = Arc::clone(&self.snapshot);
            self.run(seat, now, &[], |brain| brain.handle_input(now, Input::Config(snapshot)));
        }
    }

    fn take_seat(&mut self, id: ShardId) -> Option<Seat<M::Brain>> {
        let index = self.seat_of(id)?;
        let mut seat = self.seats.swap_remove(index);
        seat.version = self.version;
        if let Some(place) = self.places.get_mut(usize::from(id.0)) {
            *place = None;
        }
        if let Some(moved) = self.seats.get(index)
            && let Some(place) = self.places.get_mut(usize::from(moved.id.0))
        {
            *place = u16::try_from(index).ok();
        }
        Some(seat)
    }

    fn put_seat(&mut self, seat: Seat<M::Brain>) {
        if let Some(place) = self.places.get_mut(usize::from(seat.id.0)) {
            debug_assert!(place.is_none(), "{} is nowhere else", seat.id);
            *place = u16::try_from(self.seats.len()).ok();
        }
        self.has_acted |= seat.has_acted;
        self.seats.push(seat);
    }

    /// How much each shard of this worker had to do of late, in messages.
    pub(crate) fn take_loads(&mut self, into: &mut Vec<Load>) {
        // The older half of what it had to do counts half.
        let take = |seat: &mut Seat<M::Brain>| {
            let messages = seat.inputs;
            seat.inputs /= 2;
            Load { shard: seat.id, messages }
        };
        into.clear();
        into.extend(self.seats.iter_mut().map(take));
    }
}
