//! Bounds of the tables, and what did not fit.

/// Maximum number of sockets; packets of further ones are not paired.
const MAX_SOCKETS: usize = 65_536;
/// Maximum number of packets in the queues of all sockets together: 16 MB. The queue that gets a further one is
/// forgotten, and known again from the kernel's count.
const MAX_QUEUED: usize = 262_144;
/// Maximum number of threads; messages of further ones have a record without T_sip.
const MAX_THREADS: usize = 16_384;
/// Maximum number of messages and send calls, of all threads together, whose processing has not ended: 40 MB. Messages
/// beyond it have a record without T_sip, and send calls count only as sent.
const MAX_OPEN: usize = 262_144;
/// Maximum number of events that wait for earlier ones: 40 MB, what the buffer of the kernel's programs holds. The
/// earliest is taken if it is full.
const MAX_EVENTS: usize = 262_144;

/// Maximum number of entries of each table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) sockets: usize,
    pub(super) queued: usize,
    pub(super) threads: usize,
    pub(super) open: usize,
    pub(super) events: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sockets: MAX_SOCKETS, queued: MAX_QUEUED, threads: MAX_THREADS, open: MAX_OPEN, events: MAX_EVENTS }
    }
}

/// How often a table was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overflows {
    /// Packets of sockets beyond the limit.
    pub(crate) sockets: u64,
    /// Packets for which the queues had no room.
    pub(crate) queued: u64,
    /// Messages for whose sends there was no room.
    pub(crate) received: u64,
    /// Send calls that were not kept.
    pub(crate) sent: u64,
    /// Events that were taken early.
    pub(crate) events: u64,
}

impl Overflows {
    /// Returns a sentence for each table that was full: what is missing, and how often.
    pub(crate) fn notes(self) -> impl Iterator<Item = String> {
        let all = [
            (
                self.sockets,
                "packets came to more sockets than the probe can follow: they have no K_stack, K_sockq and K_copy",
            ),
            (
                self.queued,
                "packets waited in queues longer than the probe can follow: they have no K_stack, K_sockq and K_copy",
            ),
            (self.received, "messages were in progress beyond those that the probe can follow: they have no T_sip"),
            (
                self.sent,
                "send calls followed one message beyond those that the probe can follow: K_snd is without them",
            ),
            (self.events, "events were paired before all earlier ones had come: single times may be wrong"),
        ];
        all.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"))
    }
}
