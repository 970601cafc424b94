//! PROXY headers: connections of balancers become those of their clients.

use std::io;

use strowger_foundation::Timestamp;

use super::{CloseReason, Limit, Streams};

impl Streams {
    /// Makes the client that a PROXY header names the peer of the connection, within the limits of a source. Returns
    /// whether the connection may go on.
    pub(crate) fn adopt_source(&mut self, now: Timestamp, slot: u32) -> bool {
        let Some(connection) = self.get(slot) else { return false };
        let Some(source) = connection.channel.take_source() else { return true };
        let (balancer, transport) = (connection.peer, connection.channel.transport());
        self.counters.proxied += 1;
        let Some(client) = source else { return true };
        if self.banned.contains(client.ip()) {
            self.kill(slot, CloseReason::Banned);
            return false;
        }
        // From here on, the connection and its handshake are the client's.
        if !self.admit_handshake(now, client, transport) {
            self.kill(slot, CloseReason::Refused);
            return false;
        }
        if self.index.acquire_source(client.ip()).is_err() {
            self.index.end_handshake(client.ip());
            self.on_refused(now, client, Limit::Source);
            self.kill(slot, CloseReason::Refused);
            return false;
        }
        self.index.end_handshake(balancer.ip());
        if let Some(connection) = self.get(slot) {
            connection.peer = client;
        }
        true
    }

    /// Closes the connection of a balancer that does not begin with a PROXY header.
    pub(crate) fn on_no_preface(&mut self, now: Timestamp, slot: u32, error: &io::Error) {
        let Some(peer) = self.peer(slot) else { return };
        if error.kind() != io::ErrorKind::InvalidData {
            // It has only checked whether somebody listens.
            return self.kill(slot, CloseReason::Ended);
        }
        if let Some(others) = self.failure_log.begin(now) {
            tracing::warn!(%peer, others, "a connection from a balancer (tcp.proxy_protocol_from) is closed: {error}");
        }
        self.kill(slot, CloseReason::NoPreface);
    }
}
