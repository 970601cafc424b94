//! What connections bring: each gets its turn, and a turn is short.

use strowger_foundation::{ConnId, Timestamp};
use strowger_message::{Fault, Head, Kind, Method, Peek, Reply};
use strowger_overload::{LATE, Queue, is_to_service, queue_of};

use crate::admission::WaitQueue;
use crate::brain::Maker;
use crate::connection::Phase;
use crate::crew::Crew;
use crate::intake::Piece;
use crate::streams::{Reason, Rest};

/// Read from one connection at a time.
pub(crate) const SCRATCH_BYTES: usize = 32 * 1024;

/// Messages of one connection before the next one has its turn.
const MESSAGES_A_TURN: usize = 8;

/// Turns before the other sockets are looked at again, and messages: a round is what everybody else waits for.
const TURNS_A_ROUND: usize = 256;
const MESSAGES_A_ROUND: usize = 128;
/// With so many messages dealt with in a round, what was put off waits for the next.
const NEW_WORK_A_ROUND: usize = 64;

/// How a turn ended.
#[derive(Clone, Copy)]
enum End {
    /// Nothing is left.
    Empty,
    /// What is left waits until there are so many bytes.
    Incomplete(usize),
    /// The rest has to wait for the next turn.
    Interrupted,
    /// The rest has to wait until another worker has room.
    Stalled,
    /// The rest begins with new work, which has to wait until nothing else does.
    PutOff,
    /// What is left is no SIP.
    Broken(Fault),
    /// The connection is dead.
    Dead,
}

impl<M: Maker> Crew<M> {
    /// Gives each connection that has something to read its turn, those last that bring new work while that is limited; whether
    /// any had.
    pub(crate) fn read_streams(&mut self, now: Timestamp) -> bool {
        let streams = &mut self.desk.exits.streams;
        streams.revive();
        let (turns, put_off) = (streams.ready().min(TURNS_A_ROUND), streams.put_off_len());
        if turns + put_off == 0 {
            return false;
        }
        self.streams_busy_since = streams.busy_since(now);
        let is_late = self.desk.admission.is_limiting() && now.saturating_since(self.streams_busy_since) > LATE;
        self.desk.admission.reads_from(WaitQueue::Streams);
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut messages = 0;
        for _ in 0..turns {
            let Some((slot, kept)) = self.desk.exits.streams.next_ready() else { break };
            let puts_off = self.desk.admission.is_limiting();
            messages += self.turn(now, slot, kept, &mut scratch, (puts_off, is_late));
            if messages >= MESSAGES_A_ROUND {
                break;
            }
        }
        for number in 0..put_off.min(TURNS_A_ROUND) {
            // One has its turn in any case.
            if number > 0 && messages >= NEW_WORK_A_ROUND {
                break;
            }
            let Some((slot, kept)) = self.desk.exits.streams.next_put_off() else { break };
            messages += self.turn(now, slot, kept, &mut scratch, (false, is_late));
        }
        self.scratch = scratch;
        self.desk.exits.streams.note_idle();
        if self.desk.exits.streams.put_off_len() > 0 {
            // None of it may have had its turn.
            self.desk.admission.note_waiting(now, now.saturating_since(self.streams_busy_since));
        }
        true
    }

    /// Reads once and deals with what is whole; how many messages that were. With `puts_off` new work waits, and where it `is_late` it is
    /// too old.
    fn turn(
        &mut self,
        now: Timestamp,
        slot: u32,
        mut kept: Vec<u8>,
        scratch: &mut [u8],
        (puts_off, is_late): (bool, bool),
    ) -> usize {
        let streams = &mut self.desk.exits.streams;
        let count = streams.read(slot, scratch);
        let fresh = scratch.get(..count).unwrap_or_default();
        let Some(connection) = streams.get(slot) else { return 0 };
        let (phase, needed, is_readable) = (connection.phase, connection.needed as usize, connection.is_readable);
        let (was_stale, peer) = (connection.is_stale, connection.peer.ip());
        let brings_new_work = queue_of(if kept.is_empty() { fresh } else { &kept }) == Queue::NewWork;
        let is_stale = was_stale || (is_late && !puts_off && brings_new_work && self.desk.may_be_stale(peer));
        let streams = &mut self.desk.exits.streams;
        if let Some(connection) = streams.get(slot) {
            connection.is_stale = is_stale;
        }
        if matches!(phase, Phase::Ending | Phase::Dead) {
            if is_readable && phase == Phase::Ending {
                streams.list(slot);
            }
            return 0;
        }
        let is_owned = !kept.is_empty();
        if is_owned {
            kept.extend_from_slice(fresh);
        }
        let bytes = if is_owned { &kept[..] } else { fresh };
        let (consumed, messages, end) = if is_owned && kept.len() < needed {
            (0, 0, End::Incomplete(needed))
        } else if puts_off && !is_stale && self.may_wait(bytes) {
            (0, 0, End::PutOff)
        } else {
            self.deal(now, slot, bytes)
        };
        let rest = if is_owned {
            Rest::Owned(kept, consumed)
        } else {
            Rest::Borrowed(fresh.get(consumed..).unwrap_or_default())
        };
        self.end_turn(now, slot, rest, consumed > 0, end);
        messages
    }

    /// Whether what a connection brings next is new work, which can wait.
    fn may_wait(&self, bytes: &[u8]) -> bool {
        queue_of(bytes) == Queue::NewWork && !is_to_service(bytes) && !self.desk.exits.streams.is_scarce()
    }

    /// Cuts bytes into messages and gives each to its shard; how many bytes and messages are done with, and how it ended.
    fn deal(&mut self, now: Timestamp, slot: u32, bytes: &[u8]) -> (usize, usize, End) {
        let id = self.desk.exits.streams.id(slot);
        let limit = if self.desk.exits.streams.is_scarce() { usize::MAX } else { MESSAGES_A_TURN };
        let (mut at, mut messages) = (0, 0);
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let Some(connection) = self.desk.exits.streams.get(slot) else { return (at, messages, End::Dead) };
            if connection.phase == Phase::Dead {
                return (at, messages, End::Dead);
            }
            if rest.is_empty() {
                return (at, messages, End::Empty);
            }
            if messages >= limit {
                return (at, messages, End::Interrupted);
            }
            let mut cutter = connection.cutter;
            let Some(piece) = self.desk.contain(now, rest, || cutter.next(rest)) else {
                self.desk.exits.streams.kill(slot, Reason::Malformed);
                return (at, messages, End::Dead);
            };
            let Some(connection) = self.desk.exits.streams.get(slot) else { return (at, messages, End::Dead) };
            connection.cutter = cutter;
            if matches!(piece, Piece::Message(_) | Piece::Blank { .. }) {
                connection.heard = now;
            }
            let (peer, is_stale) = (connection.peer.ip(), connection.is_stale);
            match piece {
                Piece::Message(length)
                    if self.desk.filters_out_of_stream(peer, is_stale, rest.get(..length).unwrap_or_default()) =>
                {
                    at += length;
                    self.desk.exits.streams.counters.messages_in += 1;
                    self.desk.exits.counters.shed += 1;
                }
                Piece::Message(length) => {
                    if !self.handle_stream_message(now, slot, id, rest.get(..length).unwrap_or_default()) {
                        return (at, messages, End::Stalled);
                    }
                    at += length;
                    messages += 1;
                }
                Piece::Blank { length, is_ping } => {
                    at += length;
                    self.desk.exits.counters.keep_alives += 1;
                    if is_ping {
                        self.desk.exits.streams.counters.pings += 1;
                        self.desk.exits.streams.write(slot, None, b"\r\n");
                    }
                }
                Piece::More(needed) => return (at, messages, End::Incomplete(needed)),
                Piece::Broken(fault) => return (at, messages, End::Broken(fault)),
            }
        }
    }

    /// Gives a message to the shard that owns it, here or elsewhere; `false` where that one has no room for it now.
    fn handle_stream_message(&mut self, now: Timestamp, slot: u32, id: ConnId, bytes: &[u8]) -> bool {
        let mut peek = Peek::default();
        let steered = self.desk.steer(now, bytes, &mut peek);
        let exits = &mut self.desk.exits;
        let Some((shard, steered)) = &steered else {
            exits.streams.counters.messages_in += 1;
            return true;
        };
        let owner = exits.worker_of(*shard);
        let is_here = owner == exits.index;
        if !exits.has_room(owner) || (is_here && !self.desk.has_room()) {
            return false;
        }
        let exits = &mut self.desk.exits;
        exits.streams.counters.messages_in += 1;
        let Some(connection) = exits.streams.get(slot) else { return true };
        connection.is_known = true;
        let (flow, arrival) = (connection.flow(id), self.streams_busy_since.min(now));
        exits.tracer.received(now, &flow, bytes);
        if is_here {
            self.desk.deliver(now, *shard, (arrival, flow), (&peek, steered), bytes);
        } else {
            exits.hand_over(owner, *shard, arrival, flow, bytes);
        }
        true
    }

    fn end_turn(&mut self, now: Timestamp, slot: u32, rest: Rest<'_>, is_begun: bool, end: End) {
        if let End::Broken(fault) = end {
            let bytes = match &rest {
                Rest::Owned(bytes, consumed) => bytes.get(*consumed..).unwrap_or_default(),
                Rest::Borrowed(bytes) => bytes,
            };
            return self.refuse(now, slot, bytes, fault);
        }
        let streams = &mut self.desk.exits.streams;
        match end {
            End::Empty => streams.keep_nothing(slot),
            End::Incomplete(needed) => streams.keep(now, slot, rest, Some(needed), is_begun),
            End::Interrupted | End::Stalled | End::PutOff => streams.keep(now, slot, rest, None, is_begun),
            End::Broken(_) | End::Dead => return,
        }
        let id = streams.id(slot);
        let Some(connection) = streams.get(slot) else { return };
        let (has_more, peer) = (connection.is_readable || connection.has_backlog, connection.peer.ip());
        if matches!(end, End::Stalled) {
            streams.stall(slot);
        } else if matches!(end, End::PutOff) {
            let is_left = self.desk.leaves_unread(id, peer);
            let streams = &mut self.desk.exits.streams;
            if is_left { streams.leave_unread(slot) } else { streams.put_off(slot) }
        } else if has_more {
            streams.list(slot);
        }
    }

    /// Says what is wrong, where somebody asked something, and closes: where the next message begins, nobody knows.
    //= rfc3261#18.3
    fn refuse(&mut self, now: Timestamp, slot: u32, bytes: &[u8], fault: Fault) {
        let read = || Peek::read(bytes).ok().and_then(|peek| refusal(&peek, fault));
        let answer = self.desk.contain(now, bytes, read).flatten();
        let streams = &mut self.desk.exits.streams;
        match answer {
            Some(answer) => {
                streams.write(slot, None, &answer);
                streams.end(now, slot);
                streams.list(slot);
            }
            None => streams.kill(slot, Reason::Malformed),
        }
    }
}

/// The response to a request that cannot be served, where it has what a response needs.
//= rfc3261#8.2.6.2
fn refusal(peek: &Peek<'_>, fault: Fault) -> Option<Vec<u8>> {
    let is_answerable = match peek.kind {
        Kind::Request(method) => method != Method::Ack && peek.via.is_some() && !peek.call_id.is_empty(),
        Kind::Response(_) => false,
    };
    let head: &Head<'_> = peek.head();
    is_answerable.then(|| {
        let mut out = Vec::new();
        let reason = fault.to_string();
        // The connection ends with this answer, so no ACK will have to bear the tag again.
        Reply::begin(&mut out, head, fault.status(), &reason, b"refused", None).finish();
        out
    })
}
