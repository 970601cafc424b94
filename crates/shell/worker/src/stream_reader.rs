//! Reading of connections, in short turns.

use strowger_foundation::{ConnId, Timestamp};
use strowger_message::{Fault, Head, Kind, Method, Peek, ResponseBuilder};
use strowger_overload::{LATE_WAIT, Queue, is_to_service, queue_of};

use crate::admission::WaitQueue;
use crate::connection::Phase;
use crate::framing::Frame;
use crate::ingress::Ingress;
use crate::shard_factory::ShardFactory;
use crate::streams::{CloseReason, UnreadInput};

/// Maximum messages of one connection per turn.
const MESSAGES_A_TURN: usize = 8;

/// Maximum turns and messages per round. Everything else waits for the end of the round.
const TURNS_A_ROUND: usize = 256;
const MESSAGES_A_ROUND: usize = 128;
/// Number of messages in a round after which deferred connections wait for the next round.
const NEW_WORK_A_ROUND: usize = 64;

/// How a turn ended.
#[derive(Clone, Copy)]
enum TurnEnd {
    /// All input was handled.
    Empty,
    /// The rest is incomplete until this many bytes are there.
    Incomplete(usize),
    /// The rest waits for the next turn.
    Interrupted,
    /// The rest waits until another worker has room.
    Stalled,
    /// The rest begins with new work, which waits for everything else.
    Deferred,
    /// The rest is not SIP.
    Broken(Fault),
    /// The connection is dead.
    Dead,
}

impl<M: ShardFactory> Ingress<M> {
    /// Gives each readable connection a turn; those with new work come last while the worker limits it. Returns
    /// whether there were any.
    pub(crate) fn read_streams(&mut self, now: Timestamp) -> bool {
        let streams = &mut self.host.io.streams;
        streams.resume_stalled();
        let (turns, put_off) = (streams.ready().min(TURNS_A_ROUND), streams.deferred_len());
        if turns + put_off == 0 {
            return false;
        }
        self.streams_busy_since = streams.busy_since(now);
        let is_late = self.host.admission.is_limiting() && now.saturating_since(self.streams_busy_since) > LATE_WAIT;
        self.host.admission.set_wait_queue(WaitQueue::Streams);
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut messages = 0;
        for _ in 0..turns {
            let Some((slot, kept)) = self.host.io.streams.next_ready() else { break };
            let puts_off = self.host.admission.is_limiting();
            messages += self.turn(now, slot, kept, &mut scratch, (puts_off, is_late));
            if messages >= MESSAGES_A_ROUND {
                break;
            }
        }
        for number in 0..put_off.min(TURNS_A_ROUND) {
            // At least one deferred connection gets a turn.
            if number > 0 && messages >= NEW_WORK_A_ROUND {
                break;
            }
            let Some((slot, kept)) = self.host.io.streams.next_deferred() else { break };
            messages += self.turn(now, slot, kept, &mut scratch, (false, is_late));
        }
        self.scratch = scratch;
        self.host.io.streams.end_busy_period();
        if self.host.io.streams.deferred_len() > 0 {
            // It is possible that no new work was read in this round.
            self.host.admission.note_waiting(now, now.saturating_since(self.streams_busy_since));
        }
        true
    }

    /// Reads once and handles the complete messages; returns their number. With `puts_off`, new work is deferred;
    /// with `is_late`, it is too old.
    fn turn(
        &mut self,
        now: Timestamp,
        slot: u32,
        mut kept: Vec<u8>,
        scratch: &mut [u8],
        (puts_off, is_late): (bool, bool),
    ) -> usize {
        let streams = &mut self.host.io.streams;
        let count = streams.read(slot, scratch);
        let fresh = scratch.get(..count).unwrap_or_default();
        let Some(connection) = streams.get(slot) else { return 0 };
        let (phase, needed, is_readable) = (connection.phase, connection.needed as usize, connection.is_readable);
        let (was_stale, peer) = (connection.is_stale, connection.peer.ip());
        let brings_new_work = queue_of(if kept.is_empty() { fresh } else { &kept }) == Queue::NewWork;
        let is_stale = was_stale || (is_late && !puts_off && brings_new_work && self.host.may_be_stale(peer));
        let streams = &mut self.host.io.streams;
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
            (0, 0, TurnEnd::Incomplete(needed))
        } else if puts_off && !is_stale && self.is_deferrable(bytes) {
            (0, 0, TurnEnd::Deferred)
        } else {
            self.handle_frames(now, slot, bytes)
        };
        let rest = if is_owned {
            UnreadInput::Owned(kept, consumed)
        } else {
            UnreadInput::Borrowed(fresh.get(consumed..).unwrap_or_default())
        };
        self.end_turn(now, slot, rest, consumed > 0, end);
        messages
    }

    /// Returns whether the next input of a connection is new work that can be deferred.
    fn is_deferrable(&self, bytes: &[u8]) -> bool {
        queue_of(bytes) == Queue::NewWork && !is_to_service(bytes) && !self.host.io.streams.is_scarce()
    }

    /// Splits bytes into messages and passes each to its shard. Returns the number of bytes and messages handled, and
    /// how it ended.
    fn handle_frames(&mut self, now: Timestamp, slot: u32, bytes: &[u8]) -> (usize, usize, TurnEnd) {
        let id = self.host.io.streams.id(slot);
        let limit = if self.host.io.streams.is_scarce() { usize::MAX } else { MESSAGES_A_TURN };
        let (mut at, mut messages) = (0, 0);
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let Some(connection) = self.host.io.streams.get(slot) else { return (at, messages, TurnEnd::Dead) };
            if connection.phase == Phase::Dead {
                return (at, messages, TurnEnd::Dead);
            }
            if rest.is_empty() {
                return (at, messages, TurnEnd::Empty);
            }
            if messages >= limit {
                return (at, messages, TurnEnd::Interrupted);
            }
            let mut cutter = connection.framer;
            let Some(piece) = self.host.catch_panic(now, rest, || cutter.next(rest)) else {
                self.host.io.streams.kill(slot, CloseReason::Malformed);
                return (at, messages, TurnEnd::Dead);
            };
            let Some(connection) = self.host.io.streams.get(slot) else { return (at, messages, TurnEnd::Dead) };
            connection.framer = cutter;
            if matches!(piece, Frame::Message(_) | Frame::Blank { .. }) {
                connection.heard = now;
            }
            let (peer, is_stale) = (connection.peer.ip(), connection.is_stale);
            match piece {
                Frame::Message(length)
                    if self.host.filters_out_of_stream(peer, is_stale, rest.get(..length).unwrap_or_default()) =>
                {
                    at += length;
                    self.host.io.streams.counters.messages_in += 1;
                    self.host.io.counters.shed += 1;
                }
                Frame::Message(length) => {
                    if !self.handle_stream_message(now, slot, id, rest.get(..length).unwrap_or_default()) {
                        return (at, messages, TurnEnd::Stalled);
                    }
                    at += length;
                    messages += 1;
                }
                Frame::Blank { length, is_ping } => {
                    at += length;
                    self.host.io.counters.keep_alives += 1;
                    if is_ping {
                        self.host.io.streams.counters.pings += 1;
                        //= rfc5626#5.4:crlf
                        self.host.io.streams.write(slot, None, b"\r\n");
                    }
                }
                Frame::More(needed) => return (at, messages, TurnEnd::Incomplete(needed)),
                Frame::Broken(fault) => return (at, messages, TurnEnd::Broken(fault)),
            }
        }
    }

    /// Passes a message to the shard that owns it, here or on another worker; returns `false` if there is no room for
    /// it yet.
    fn handle_stream_message(&mut self, now: Timestamp, slot: u32, id: ConnId, bytes: &[u8]) -> bool {
        let mut peek = Peek::default();
        let steered = self.host.steer(now, bytes, &mut peek);
        let exits = &mut self.host.io;
        let Some((shard, steered)) = &steered else {
            exits.streams.counters.messages_in += 1;
            return true;
        };
        let owner = exits.worker_of(*shard);
        let is_here = owner == exits.index;
        if !exits.has_room(owner) || (is_here && !self.host.has_room()) {
            return false;
        }
        let exits = &mut self.host.io;
        exits.streams.counters.messages_in += 1;
        let Some(connection) = exits.streams.get(slot) else { return true };
        connection.is_known = true;
        let (flow, arrival) = (connection.flow(id), self.streams_busy_since.min(now));
        exits.tracer.received(now, &flow, bytes);
        if is_here {
            self.host.deliver(now, *shard, (arrival, flow), (&peek, steered), bytes);
        } else {
            exits.hand_over(owner, *shard, arrival, flow, bytes);
        }
        true
    }

    fn end_turn(&mut self, now: Timestamp, slot: u32, rest: UnreadInput<'_>, is_begun: bool, end: TurnEnd) {
        if let TurnEnd::Broken(fault) = end {
            let bytes = match &rest {
                UnreadInput::Owned(bytes, consumed) => bytes.get(*consumed..).unwrap_or_default(),
                UnreadInput::Borrowed(bytes) => bytes,
            };
            return self.refuse(now, slot, bytes, fault);
        }
        let streams = &mut self.host.io.streams;
        match end {
            TurnEnd::Empty => streams.keep_nothing(slot),
            TurnEnd::Incomplete(needed) => streams.keep(now, slot, rest, Some(needed), is_begun),
            TurnEnd::Interrupted | TurnEnd::Stalled | TurnEnd::Deferred => {
                streams.keep(now, slot, rest, None, is_begun);
            }
            TurnEnd::Broken(_) | TurnEnd::Dead => return,
        }
        let id = streams.id(slot);
        let Some(connection) = streams.get(slot) else { return };
        let (has_more, peer) = (connection.is_readable || connection.has_backlog, connection.peer.ip());
        if matches!(end, TurnEnd::Stalled) {
            streams.stall(slot);
        } else if matches!(end, TurnEnd::Deferred) {
            let is_left = self.host.should_pause(id, peer);
            let streams = &mut self.host.io.streams;
            if is_left { streams.pause_reading(slot) } else { streams.defer(slot) }
        } else if has_more {
            streams.list(slot);
        }
    }

    /// Rejects a malformed request if it can be answered, and closes the connection: the start of the next message is
    /// unknown.
    //= rfc3261#18.3:content-length
    fn refuse(&mut self, now: Timestamp, slot: u32, bytes: &[u8], fault: Fault) {
        let read = || Peek::read(bytes).ok().and_then(|peek| refusal(&peek, fault));
        let answer = self.host.catch_panic(now, bytes, read).flatten();
        let streams = &mut self.host.io.streams;
        match answer {
            Some(answer) => {
                streams.write(slot, None, &answer);
                streams.end(now, slot);
                streams.list(slot);
            }
            None => streams.kill(slot, CloseReason::Malformed),
        }
    }
}

/// Builds the response that rejects a request; `None` if the request lacks what a response needs.
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
        // The connection ends with this response, so no ACK will carry the tag.
        ResponseBuilder::begin(&mut out, head, fault.status(), &reason, b"refused", None).finish();
        out
    })
}
