//! Output of connections, queued until the end of a round.

use strowger_foundation::{Flow, ShardId};
use strowger_net::WebSocket;

use super::{CloseReason, Streams};
use crate::connection::{Connection, OutputState, Phase};
use crate::limits::{FREE_BYTES, QUEUED_BYTES};

/// Size beyond which a send queue is written at once instead of at the end of the round.
const WRITE_EARLY_BYTES: usize = 64 * 1024;

/// Number of spare buffers, and the maximum capacity of each.
const SPARES: usize = 64;
const SPARE_BYTES: usize = 16 * 1024;

impl Streams {
    /// Queues a message to be sent at the end of the round. `sender` is notified if it cannot be sent.
    pub(crate) fn write(&mut self, slot: u32, sender: Option<(ShardId, Flow)>, message: &[u8]) {
        //= rfc7118#5:one-message
        let has_frames = self.get(slot).is_some_and(|connection| connection.channel.web_socket().is_some());
        self.append(slot, sender, message, if has_frames { WebSocket::write_message } else { Vec::extend_from_slice });
    }

    /// Queues bytes that are no message.
    pub(crate) fn queue(&mut self, slot: u32, bytes: &[u8]) {
        self.append(slot, None, bytes, Vec::extend_from_slice);
    }

    fn append(&mut self, slot: u32, sender: Option<(ShardId, Flow)>, bytes: &[u8], put: fn(&mut Vec<u8>, &[u8])) {
        let (limit, is_scarce) = (self.limits.send_queue, self.queued_bytes > QUEUED_BYTES);
        let is_long = |connection: &Connection| connection.unsent() + bytes.len() > WRITE_EARLY_BYTES.min(limit);
        if self.get(slot).is_some_and(|connection| is_long(connection)) {
            self.flush(slot);
        }
        let spare = &mut self.spares;
        let Some(connection) = self.slots.get_mut(slot as usize).and_then(|slot| slot.connection.as_mut()) else {
            return;
        };
        if let Some((shard, flow)) = sender {
            connection.note_writer(shard, flow);
        }
        let waiting = connection.unsent() + bytes.len();
        if waiting > limit {
            return self.kill(slot, CloseReason::QueueFull);
        }
        if is_scarce && waiting > FREE_BYTES {
            return self.kill(slot, CloseReason::Memory);
        }
        if connection.out.capacity() == 0
            && let Some(buffer) = spare.pop()
        {
            connection.out = buffer;
        }
        let before = connection.out.len();
        put(&mut connection.out, bytes);
        self.queued_bytes += connection.out.len() - before;
        self.mark(slot);
    }

    pub(crate) fn mark(&mut self, slot: u32) {
        let Some(connection) = self.get(slot) else { return };
        if connection.output == OutputState::Idle {
            connection.output = OutputState::Listed;
            self.dirty.push(slot);
        }
    }

    /// Writes the waiting output of one connection.
    pub(super) fn flush(&mut self, slot: u32) {
        let Self { slots, spares, queued_bytes, counters, .. } = self;
        let Some(connection) = slots.get_mut(slot as usize).and_then(|slot| slot.connection.as_mut()) else { return };
        if connection.output == OutputState::Blocked || connection.phase == Phase::Opening {
            return;
        }
        let before = connection.unsent();
        let outcome = connection.write_out();
        *queued_bytes = *queued_bytes - before + connection.unsent();
        let Ok(written) = outcome else { return self.kill(slot, CloseReason::Broken) };
        counters.bytes_out += written as u64;
        if connection.unsent() > 0 {
            return;
        }
        let mut empty = std::mem::take(&mut connection.out);
        connection.written = 0;
        if (1..=SPARE_BYTES).contains(&empty.capacity()) && spares.len() < SPARES {
            empty.clear();
            spares.push(empty);
        }
        if connection.phase == Phase::Ending {
            connection.channel.end();
            *queued_bytes += connection.channel.pending();
        }
    }
}
