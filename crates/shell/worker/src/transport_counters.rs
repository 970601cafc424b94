//! Counters of connections by transport.

use strowger_foundation::Transport;

/// Transports of connections, in the order of [`TransportCounters`].
pub const STREAM_TRANSPORTS: [Transport; 4] = [Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss];

/// Totals of the connections of one transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportCount {
    /// Existing connections, including those being opened.
    pub open: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Messages received.
    pub messages_in: u64,
    /// Messages sent or queued for sending.
    pub messages_out: u64,
}

/// Totals of a worker's connections by transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportCounters([TransportCount; STREAM_TRANSPORTS.len()]);

impl TransportCounters {
    /// Returns the totals of a transport; those of UDP are always zero.
    #[must_use]
    pub fn of(&self, transport: Transport) -> TransportCount {
        let place = STREAM_TRANSPORTS.iter().position(|one| *one == transport);
        place.and_then(|place| self.0.get(place)).copied().unwrap_or_default()
    }

    /// Returns the totals of a transport of connections, to be changed.
    pub(crate) const fn of_mut(&mut self, transport: Transport) -> &mut TransportCount {
        let [tcp, tls, ws, wss] = &mut self.0;
        match transport {
            // Datagrams have no connections.
            Transport::Udp | Transport::Tcp => tcp,
            Transport::Tls => tls,
            Transport::Ws => ws,
            Transport::Wss => wss,
        }
    }

    /// Adds all values of `other`.
    pub fn add(&mut self, other: &Self) {
        for (sum, TransportCount { open, accepted, messages_in, messages_out }) in self.0.iter_mut().zip(&other.0) {
            sum.open += open;
            sum.accepted += accepted;
            sum.messages_in += messages_in;
            sum.messages_out += messages_out;
        }
    }
}
