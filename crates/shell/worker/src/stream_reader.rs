//! Reading of connections, in short turns.

use std::ops::Range;

use strowger_foundation::{ConnId, ShardId, Timestamp};
use strowger_message::{Fault, Head, Kind, Method, Peek, ResponseBuilder};
use strowger_overload::{LATE_WAIT, Queue, is_to_service, queue_of};

use crate::admission::WaitQueue;
use crate::connection::Phase;
use crate::framing::Frame;
use crate::ingress::Ingress;
use crate::predecessors::{RelayKind, RelayedMessage};
use crate::shard_factory::ShardFactory;
use crate::streams::{CloseReason, UnreadInput};
use crate::timing::MessageArrival;

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

/// The next piece of a connection's input.
pub(crate) enum Piece {
    /// A message: its place, and the number of bytes to drop.
    Message(Range<usize>, usize),
    /// Line ends between messages.
    Blank {
        /// Length in bytes.
        length: usize,
        /// Whether the peer expects a response.
        is_ping: bool,
    },
    /// Something between messages that has been handled; the number of bytes to drop.
    Control(usize),
    /// Incomplete: at least this many bytes are needed.
    More(usize),
    /// Malformed: nothing after this can be trusted.
    Broken(Fault),
    /// The connection is ending.
    Ended,
}

impl<M: ShardFactory> Ingress<M> {
    /// Gives each readable connection a turn; those with new work come last while the worker limits it. Returns
    /// whether there were any.
    pub(crate) fn read_streams(&mut self, now: Timestamp) -> bool {
        if !self.host.io.reads_streams() {
            return false;
        }
        let streams = &mut self.host.io.streams;
        let is_advanced = streams.continue_handshakes(now);
        streams.resume_stalled();
        let (turns, put_off) = (streams.ready().min(TURNS_A_ROUND), streams.deferred_len());
        if turns + put_off == 0 {
            return is_advanced;
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
        let count = streams.read(now, slot, scratch);
        let fresh = scratch.get_mut(..count).unwrap_or_default();
        let Some(connection) = streams.get(slot) else { return 0 };
        let (phase, needed, is_readable) = (connection.phase, connection.needed as usize, connection.is_readable);
        // The messages of a WebSocket are masked and must be decoded first.
        let is_framed = connection.channel.web_socket().is_some();
        let is_deferred = !is_framed && {
            let next = if kept.is_empty() { &*fresh } else { &kept };
            self.is_deferred(slot, next, (puts_off, is_late))
        };
        let streams = &mut self.host.io.streams;
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
        let is_too_short = is_owned && kept.len() < needed;
        let bytes = if is_owned { &mut kept[..] } else { &mut *fresh };
        let (consumed, messages, end) = if is_too_short {
            (0, 0, TurnEnd::Incomplete(needed))
        } else if is_deferred {
            (0, 0, TurnEnd::Deferred)
        } else {
            self.handle_frames(now, slot, bytes, (puts_off, is_late))
        };
        let rest = if is_owned {
            UnreadInput::Owned(kept, consumed)
        } else {
            UnreadInput::Borrowed(fresh.get(consumed..).unwrap_or_default())
        };
        self.end_turn(now, slot, rest, consumed > 0, end);
        messages
    }

    /// Notes whether the next message of a connection is new work that has become too old; returns whether it is new
    /// work that is deferred.
    fn is_deferred(&mut self, slot: u32, next: &[u8], (puts_off, is_late): (bool, bool)) -> bool {
        let Some(connection) = self.host.io.streams.get(slot) else { return false };
        let (was_stale, peer) = (connection.is_stale, connection.source());
        let brings_new_work = queue_of(next) == Queue::NewWork;
        let is_stale = was_stale || (is_late && !puts_off && brings_new_work && self.host.may_be_stale(peer));
        if let Some(connection) = self.host.io.streams.get(slot) {
            connection.is_stale = is_stale;
        }
        puts_off && !is_stale && self.is_deferrable(next)
    }

    /// Returns whether the next input of a connection is new work that can be deferred.
    fn is_deferrable(&self, bytes: &[u8]) -> bool {
        queue_of(bytes) == Queue::NewWork && !is_to_service(bytes) && !self.host.io.streams.is_scarce()
    }

    /// Splits bytes into messages and passes each to its shard. Returns the number of bytes and messages handled, and
    /// how it ended.
    fn handle_frames(
        &mut self,
        now: Timestamp,
        slot: u32,
        bytes: &mut [u8],
        haste: (bool, bool),
    ) -> (usize, usize, TurnEnd) {
        let id = self.host.io.streams.id(slot);
        self.host.io.timing.begin();
        let limit = if self.host.io.streams.is_scarce() { usize::MAX } else { MESSAGES_A_TURN };
        let (mut at, mut messages) = (0, 0);
        loop {
            let rest = bytes.get_mut(at..).unwrap_or_default();
            let Some(connection) = self.host.io.streams.get(slot) else { return (at, messages, TurnEnd::Dead) };
            if matches!(connection.phase, Phase::Ending | Phase::Dead) {
                return (at, messages, TurnEnd::Dead);
            }
            if rest.is_empty() {
                return (at, messages, TurnEnd::Empty);
            }
            if messages >= limit {
                return (at, messages, TurnEnd::Interrupted);
            }
            let Some(piece) = self.next_piece(now, slot, rest) else {
                self.host.io.streams.kill(slot, CloseReason::Malformed);
                return (at, messages, TurnEnd::Dead);
            };
            let Some(connection) = self.host.io.streams.get(slot) else { return (at, messages, TurnEnd::Dead) };
            if !matches!(piece, Piece::More(_) | Piece::Broken(_) | Piece::Ended) {
                connection.heard = now;
            }
            let is_framed = connection.channel.web_socket().is_some();
            match piece {
                Piece::Message(place, consumed) => {
                    let message = rest.get(place).unwrap_or_default();
                    if is_framed && messages == 0 && self.is_deferred(slot, message, haste) {
                        return (at, messages, TurnEnd::Deferred);
                    }
                    let Some(is_handled) = self.handle_or_filter(now, slot, id, message) else {
                        return (at, messages, TurnEnd::Stalled);
                    };
                    at += consumed;
                    messages += usize::from(is_handled);
                    self.host.io.streams.take_message(slot);
                }
                Piece::Blank { length, is_ping } => {
                    at += length;
                    // In a WebSocket, each is a message for itself and may have a response.
                    messages += usize::from(is_framed);
                    self.host.io.counters.keep_alives += 1;
                    if is_ping {
                        self.host.io.streams.counters.pings += 1;
                        //= rfc5626#5.4:crlf
                        self.host.io.streams.write(slot, None, b"\r\n");
                    }
                }
                Piece::Control(length) => {
                    at += length;
                    messages += 1;
                }
                Piece::More(needed) => return (at, messages, TurnEnd::Incomplete(needed)),
                Piece::Broken(fault) => return (at, messages, TurnEnd::Broken(fault)),
                Piece::Ended => return (at, messages, TurnEnd::Dead),
            }
        }
    }

    /// Finds the next piece of a connection's input; `None` if that failed.
    fn next_piece(&mut self, now: Timestamp, slot: u32, bytes: &mut [u8]) -> Option<Piece> {
        let connection = self.host.io.streams.get(slot)?;
        if connection.channel.web_socket().is_some() {
            return self.next_of_web_socket(now, slot, bytes);
        }
        let mut cutter = connection.framer;
        let piece = self.host.catch_panic(now, bytes, || cutter.next(bytes))?;
        self.host.io.streams.get(slot)?.framer = cutter;
        Some(match piece {
            Frame::Message(length) => Piece::Message(0..length, length),
            Frame::Blank { length, is_ping } => Piece::Blank { length, is_ping },
            Frame::More(needed) => Piece::More(needed),
            Frame::Broken(fault) => Piece::Broken(fault),
        })
    }

    /// Passes a message to its shard, or drops it as too old; returns whether it was passed, `None` if there is no
    /// room for it yet.
    fn handle_or_filter(&mut self, now: Timestamp, slot: u32, id: ConnId, message: &[u8]) -> Option<bool> {
        let connection = self.host.io.streams.get(slot)?;
        let (peer, is_stale, transport) = (connection.source(), connection.is_stale, connection.channel.transport());
        if self.host.io.streams.banned.contains(peer.ip) {
            self.host.io.streams.kill(slot, CloseReason::Banned);
            return Some(false);
        }
        let is_shed = self.host.filters_out_of_stream(peer, is_stale, message);
        if !is_shed && !self.handle_stream_message(now, slot, id, message) {
            return None;
        }
        let io = &mut self.host.io;
        io.streams.counters.messages_in += 1;
        io.streams.transports.of_mut(transport).messages_in += 1;
        io.counters.shed += u64::from(is_shed);
        Some(!is_shed)
    }

    /// Passes a message to the shard that owns it, here or on another worker; returns `false` if there is no room for
    /// it yet.
    fn handle_stream_message(&mut self, now: Timestamp, slot: u32, id: ConnId, bytes: &[u8]) -> bool {
        let mut peek = Peek::default();
        let steered = self.host.steer(now, bytes, &mut peek);
        let exits = &mut self.host.io;
        exits.timing.end_common(1);
        let Some((shard, steered)) = &steered else {
            if let Some(fault) = self.host.take_fault() {
                self.host.io.streams.report_malformed(slot, fault);
            }
            return true;
        };
        if exits.successor.is_some() {
            return self.relay_stream_message(now, slot, id, *shard, bytes);
        }
        let owner = exits.worker_of(*shard);
        let is_here = owner == exits.index;
        if !exits.has_room(owner) || (is_here && !self.host.has_room()) {
            return false;
        }
        let exits = &mut self.host.io;
        let Some(connection) = exits.streams.get(slot) else { return true };
        connection.is_known = true;
        if connection.may_have_alias() {
            exits.streams.adopt_alias(slot, &peek, bytes);
        }
        let Some(connection) = exits.streams.get(slot) else { return true };
        let (flow, arrival) = (connection.flow(id), self.streams_busy_since.min(now));
        exits.tracer.received(now, &flow, bytes);
        if is_here {
            let measured = MessageArrival::new(flow.transport, arrival, exits.timing.received().unwrap_or(now));
            exits.timing.begin_message(&peek);
            self.host.deliver(now, *shard, (arrival, flow), (&peek, steered), bytes);
            self.host.io.timing.end_message(measured);
        } else {
            exits.hand_over(owner, *shard, (arrival, exits.timing.received()), flow, bytes);
            exits.timing.skip();
        }
        true
    }

    /// Passes a message to the process that has taken over; returns `false` if there is no room for it yet.
    #[cold]
    fn relay_stream_message(&mut self, now: Timestamp, slot: u32, id: ConnId, shard: ShardId, bytes: &[u8]) -> bool {
        let exits = &mut self.host.io;
        let Some(connection) = exits.streams.get(slot) else { return true };
        connection.is_known = true;
        let flow = connection.flow(id);
        let Some(successor) = &exits.successor else { return true };
        let is_relayed = successor.relay(RelayKind::Deliver, RelayedMessage { shard, flow, arrival: now, bytes });
        exits.counters.relayed += u64::from(is_relayed);
        is_relayed
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
            TurnEnd::Empty => streams.keep_nothing(now, slot, is_begun),
            TurnEnd::Incomplete(needed) => streams.keep(now, slot, rest, Some(needed), is_begun),
            TurnEnd::Interrupted | TurnEnd::Stalled | TurnEnd::Deferred => {
                streams.keep(now, slot, rest, None, is_begun);
            }
            TurnEnd::Broken(_) | TurnEnd::Dead => return,
        }
        let id = streams.id(slot);
        let Some(connection) = streams.get(slot) else { return };
        let (has_more, peer) = (connection.is_readable || connection.has_backlog, connection.source());
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
        streams.report_malformed(slot, fault);
        match answer {
            Some(answer) => {
                streams.write(slot, None, &answer);
                streams.end(now, slot, CloseReason::Malformed);
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
