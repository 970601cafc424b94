//! State of a server transaction.

use core::time::Duration;

use strowger_foundation::{Buf, Flow, Timestamp};
use strowger_message::Status;

use crate::key::ServerKey;
use crate::machine::{Actions, Kind, ServerEvent, ServerState, step_server};
use crate::output::NO_USER;
use crate::timer_queues::WaitEnd;
use crate::timers::Timers;
use crate::timing::Timing;

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) key: ServerKey,
    /// The last response, while the machine may have to resend it.
    pub(crate) response: Buf,
    pub(crate) flow: Flow,
    pub(crate) timers: Timers,
    /// Time of opening in ms, rounded up and truncated to 32 bits; used for a few seconds only.
    pub(crate) opened_ms: u32,
    pub(crate) generation: u32,
    pub(crate) user: u32,
    pub(crate) kind: Kind,
    pub(crate) state: ServerState,
    pub(crate) retransmissions: u8,
    /// How much may still be sent, in [`UNIT`]s; [`UNBOUNDED`] without a limit.
    pub(crate) allowance: u8,
}

/// Position of a server transaction or of its cached response, with a part of its key. A growing index thus rehashes
/// without reading the transactions, which are spread over memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexEntry {
    pub(crate) key_part: u32,
    pub(crate) index: u32,
}

impl Server {
    /// Returns the machine's event for a response; `None` if it must not be sent.
    pub(crate) fn response_event(&self, timing: &Timing, now: Timestamp, status: Status) -> Option<ServerEvent> {
        match (self.kind, status) {
            (Kind::NonInvite, Status::TRYING) => {
                //= rfc4320#4.1:no-early-100
                // No 100 over an unreliable transport before the client's Timer E reaches T2.
                let waited = Duration::from_millis(u64::from(self.age_ms(now))) >= timing.until_t2();
                (waited || self.flow.transport.is_reliable()).then_some(ServerEvent::Provisional)
            }
            //= rfc4320#4.1:only-100
            // No provisional response other than 100 to a non-INVITE request.
            (Kind::NonInvite, status) if status.is_provisional() => None,
            //= rfc4320#4.2:no-408
            // No 408 to a non-INVITE request.
            (Kind::NonInvite, Status::REQUEST_TIMEOUT) => Some(ServerEvent::Suppressed),
            (_, status) if status.is_provisional() => Some(ServerEvent::Provisional),
            (_, status) if status.is_success() => Some(ServerEvent::Success),
            _ => Some(ServerEvent::Failure),
        }
    }

    /// Whether the transaction can only resend its response from here on, and has no user.
    pub(crate) fn needs_only_response(&self, state: ServerState, actions: Actions) -> bool {
        let is_last = self.kind == Kind::NonInvite && state == ServerState::Completed;
        is_last && self.user == NO_USER && actions.has(Actions::SEND | Actions::KEEP)
    }

    /// Whether the allowance covers `bytes`.
    pub(crate) fn affords(&self, bytes: usize) -> bool {
        self.allowance == UNBOUNDED || bytes.div_ceil(UNIT) <= usize::from(self.allowance)
    }

    /// Whether `end` is the wait that this transaction is in.
    pub(crate) fn waits_for(&self, end: &WaitEnd) -> bool {
        self.generation == end.owner.generation && self.timers.is_last_until(end.at)
    }

    /// Whether its end is in a timer queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.timers.is_queued()
    }

    /// Time since it was opened, in whole ms.
    fn age_ms(&self, now: Timestamp) -> u32 {
        // Negative within the millisecond of opening, because that was rounded up.
        cut_ms(now).wrapping_sub(self.opened_ms).cast_signed().max(0).unsigned_abs()
    }

    pub(crate) const fn step(&self, event: ServerEvent) -> (ServerState, Actions) {
        step_server(self.kind, self.state, event, self.flow.transport.is_reliable())
    }
}

pub(crate) fn part_of(key: ServerKey) -> u32 {
    let [a, b, c, d, ..] = key.0;
    u32::from_le_bytes([a, b, c, d])
}

/// Expands a part of a key to a hash: the index takes the bucket from the low bits and the tag from the highest.
pub(crate) fn hash_of(key_part: u32) -> u64 {
    u64::from(key_part) << 32 | u64::from(key_part)
}

/// The allowance of a transaction without a limit.
pub(crate) const UNBOUNDED: u8 = u8::MAX;

/// Unit of allowances in bytes: what is sent is rounded up, what is allowed is rounded down.
pub(crate) const UNIT: usize = 64;

/// Returns an allowance of `units`, capped at the largest limited one.
pub(crate) fn bounded(units: usize) -> u8 {
    u8::try_from(units).unwrap_or(UNBOUNDED).min(UNBOUNDED - 1)
}

/// Returns the low 32 bits of the whole milliseconds.
pub(crate) fn cut_ms(at: Timestamp) -> u32 {
    u32::try_from(at.as_millis() & u64::from(u32::MAX)).unwrap_or(0)
}
