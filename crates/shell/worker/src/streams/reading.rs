//! Input of connections: which are read next, and what is kept of it.

use mio::event::Event;
use strowger_foundation::{ConnId, Timestamp};
use strowger_net::IoOutcome;

use super::{CloseReason, FIRST_TOKEN, Streams, UnreadInput};
use crate::connection::{OutputState, Phase};
use crate::limits::{FREE_BYTES, KEPT_BYTES};

/// Maximum number of paused connections checked at a time.
const REVIEWS: usize = 256;

impl Streams {
    /// Handles a mio event; returns whether it is about a connection.
    pub(crate) fn on_event(&mut self, event: &Event) -> bool {
        let Some(slot) = event.token().0.checked_sub(FIRST_TOKEN).and_then(|slot| u32::try_from(slot).ok()) else {
            return false;
        };
        let Some(connection) = self.get(slot) else { return true };
        let is_broken = event.is_error();
        connection.is_readable |= event.is_readable() || event.is_read_closed() || is_broken;
        connection.is_ending |= event.is_read_closed() || is_broken;
        if event.is_writable() || is_broken {
            connection.output = match connection.output {
                OutputState::Blocked => OutputState::Idle,
                other => other,
            };
        }
        if connection.phase == Phase::Opening {
            if connection.channel.is_secure() || connection.channel.expects_preface() {
                self.queue_handshake(slot);
                return true;
            }
            self.advance(Timestamp::ZERO, slot);
        }
        let Some(connection) = self.get(slot).filter(|connection| connection.phase != Phase::Opening) else {
            return true;
        };
        let (is_readable, has_output) = (connection.is_readable, connection.unsent() > 0);
        if is_readable {
            self.list(slot);
        }
        if has_output {
            self.mark(slot);
        }
        true
    }

    /// Returns the number of connections that may have input.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Returns whether a round has work even if nothing new arrives.
    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty()
            || !self.handshakes.is_empty()
            || !self.deferred.is_empty()
            || !self.dirty.is_empty()
            || !self.dead.is_empty()
            || !self.failed.is_empty()
    }

    pub(crate) fn has_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Makes stalled connections ready again.
    pub(crate) fn resume_stalled(&mut self) {
        while let Some(slot) = self.stalled.pop() {
            self.list(slot);
        }
    }

    /// Returns the next ready connection with its unparsed bytes.
    pub(crate) fn next_ready(&mut self) -> Option<(u32, Vec<u8>)> {
        loop {
            let slot = self.ready.pop_front()?;
            if let Some(next) = self.take_turn(slot) {
                return Some(next);
            }
        }
    }

    /// Returns the next deferred connection with its unparsed bytes.
    pub(crate) fn next_deferred(&mut self) -> Option<(u32, Vec<u8>)> {
        loop {
            let slot = self.deferred.pop_front()?;
            if let Some(next) = self.take_turn(slot) {
                return Some(next);
            }
        }
    }

    /// An entry may be that of the slot's previous connection. One in its handshake must not be read then: its first
    /// bytes are the PROXY header or TLS.
    fn take_turn(&mut self, slot: u32) -> Option<(u32, Vec<u8>)> {
        let connection = self.get(slot).filter(|connection| connection.phase != Phase::Opening)?;
        connection.is_listed = false;
        let kept = std::mem::take(&mut connection.unparsed);
        self.kept_bytes -= kept.len().saturating_sub(FREE_BYTES);
        Some((slot, kept))
    }

    /// Defers a connection behind all that bring other input.
    pub(crate) fn defer(&mut self, slot: u32) {
        let Some(connection) = self.get(slot) else { return };
        if !connection.is_listed && connection.phase != Phase::Dead {
            connection.is_listed = true;
            self.deferred.push_back(slot);
        }
    }

    /// Stops reading a connection, regardless of kernel events, until it is [resumed](Self::resume_reading).
    pub(crate) fn pause_reading(&mut self, slot: u32) {
        let id = self.id(slot);
        let Some(connection) = self.get(slot) else { return };
        if !connection.is_listed && connection.phase != Phase::Dead {
            connection.is_listed = true;
            self.paused.push_back(id);
            self.counters.overload_pauses += 1;
        }
    }

    /// Resumes reading where allowed; waiting new work on these connections is dropped as too old. Returns whether
    /// any are still paused.
    pub(crate) fn resume_reading(&mut self, reads: impl Fn(ConnId) -> bool) -> bool {
        for _ in 0..self.paused.len().min(REVIEWS) {
            let Some(id) = self.paused.pop_front() else { break };
            let Some(slot) = self.find(id) else { continue };
            let Some(connection) = self.get(slot) else { continue };
            if connection.is_ending || reads(id) {
                connection.is_stale = true;
                self.deferred.push_back(slot);
            } else {
                self.paused.push_back(id);
            }
        }
        !self.paused.is_empty()
    }

    /// Returns the time since which connections have continuously had input; called before reading. The kernel does
    /// not report how long stream input has waited, so this serves as an upper bound.
    pub(crate) fn busy_since(&mut self, now: Timestamp) -> Timestamp {
        *self.busy_since.get_or_insert(now)
    }

    /// Ends the busy period if no input remains; called after reading.
    pub(crate) fn end_busy_period(&mut self) {
        if self.ready.is_empty() && self.deferred.is_empty() {
            self.busy_since = None;
        }
    }

    /// Returns the number of deferred connections.
    pub(crate) fn deferred_len(&self) -> usize {
        self.deferred.len()
    }

    /// Returns whether connections buffer so much that input should be handled without deferral.
    pub(crate) fn is_scarce(&self) -> bool {
        self.kept_bytes >= KEPT_BYTES
    }

    /// Reads from a connection, unless it has a backlog that comes first.
    pub(crate) fn read(&mut self, now: Timestamp, slot: u32, buffer: &mut [u8]) -> usize {
        let Self { slots, queued_bytes, kept_bytes, counters, .. } = self;
        let Some(connection) = slots.get_mut(slot as usize).and_then(|slot| slot.connection.as_mut()) else { return 0 };
        if connection.has_backlog || !connection.is_readable || connection.phase == Phase::Dead {
            return 0;
        }
        let (before, held) = (connection.channel.pending(), connection.held());
        let outcome = connection.channel.read(buffer);
        // Reading may answer: with alerts, new keys.
        *queued_bytes = *queued_bytes - before + connection.channel.pending();
        *kept_bytes = *kept_bytes - held + connection.held();
        if connection.held() > held && *kept_bytes > KEPT_BYTES {
            self.kill(slot, CloseReason::Memory);
            return 0;
        }
        let reason = match outcome {
            Ok(IoOutcome::Bytes(count)) => {
                // A short read has drained the socket, but an end of stream may follow.
                connection.is_readable =
                    count == buffer.len() || connection.is_ending || connection.channel.has_input();
                counters.bytes_in += count as u64;
                return count;
            }
            Ok(IoOutcome::Blocked) => {
                connection.is_readable = false;
                return 0;
            }
            Ok(IoOutcome::Eof) => CloseReason::Ended,
            Err(error) => {
                self.log_refusal(now, slot, &error);
                CloseReason::Broken
            }
        };
        self.kill(slot, reason);
        0
    }

    /// Counts what a channel holds for the kernel, and of incomplete input, which have changed.
    pub(crate) fn recount(&mut self, before: (usize, usize), slot: u32) {
        let after = self.get(slot).map_or((0, 0), |connection| (connection.channel.pending(), connection.held()));
        self.queued_bytes = self.queued_bytes - before.0 + after.0;
        self.kept_bytes = self.kept_bytes - before.1 + after.1;
    }

    /// Stores unhandled input, in its own buffer or one that just fits.
    pub(crate) fn keep(
        &mut self,
        now: Timestamp,
        slot: u32,
        kept: UnreadInput<'_>,
        needed: Option<usize>,
        is_begun: bool,
    ) {
        let message_timeout = self.limits.message_timeout;
        // Complete messages that wait for their turn or for another worker may use the same amount again.
        let has_room = self.kept_bytes < KEPT_BYTES * if needed.is_some() { 1 } else { 2 };
        let Some(connection) = self.get(slot) else { return };
        if connection.phase == Phase::Dead {
            return;
        }
        connection.unparsed = match kept {
            UnreadInput::Owned(mut bytes, consumed) => {
                bytes.drain(..consumed);
                // Accounting is by length, so the capacity must stay close to it.
                bytes.shrink_to(2 * bytes.len());
                bytes
            }
            UnreadInput::Borrowed(bytes) => bytes.to_vec(),
        };
        let extra = connection.unparsed.len().saturating_sub(FREE_BYTES);
        connection.has_backlog = needed.is_none();
        connection.is_stale &= needed.is_none() || connection.is_readable;
        connection.needed = u32::try_from(needed.unwrap_or(0)).unwrap_or(u32::MAX);
        if needed.is_none() {
            connection.since = Timestamp::MAX;
        } else if is_begun || connection.since == Timestamp::MAX {
            connection.since = now;
        }
        let deadline = if needed.is_some() { connection.since + message_timeout } else { Timestamp::MAX };
        self.kept_bytes += extra;
        if extra > 0 && !has_room {
            return self.kill(slot, CloseReason::Memory);
        }
        self.hurry(slot, deadline);
    }

    /// Records that all input was handled, except for the beginning of a TLS record. `is_begun` tells that there were
    /// messages before it.
    pub(crate) fn keep_nothing(&mut self, now: Timestamp, slot: u32, is_begun: bool) {
        let message_timeout = self.limits.message_timeout;
        let Some(connection) = self.get(slot) else { return };
        connection.has_backlog = false;
        connection.needed = 0;
        connection.is_stale &= connection.is_readable;
        if !connection.channel.is_midway() {
            connection.since = Timestamp::MAX;
        } else if is_begun || connection.since == Timestamp::MAX {
            connection.since = now;
            self.hurry(slot, now + message_timeout);
        }
    }

    /// Records that the message which a WebSocket returned was handled.
    pub(crate) fn take_message(&mut self, slot: u32) {
        if let Some(web_socket) = self.get(slot).and_then(|connection| connection.channel.web_socket_mut()) {
            web_socket.take();
        }
    }

    /// Marks a connection as ready to be read.
    pub(crate) fn list(&mut self, slot: u32) {
        let Some(connection) = self.get(slot) else { return };
        if !connection.is_listed && !matches!(connection.phase, Phase::Opening | Phase::Dead) {
            connection.is_listed = true;
            self.ready.push_back(slot);
        }
    }

    /// Makes a connection ready in the next round.
    pub(crate) fn stall(&mut self, slot: u32) {
        self.counters.handover_pauses += 1;
        self.stalled.push(slot);
    }
}
