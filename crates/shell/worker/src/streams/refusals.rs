//! Connections that a limit refuses: counted, and logged now and then with the key that sets the limit.

use std::net::SocketAddr;

use strowger_foundation::{Timestamp, Transport};

use super::Streams;
use crate::connection_index::LimitExceeded;

/// A limit of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// All connections.
    Total,
    /// The connections of a source.
    Source,
    /// The connections of a transport.
    Transport(Transport),
    /// Handshakes and upgrades in progress, of all or of a source.
    Handshakes(LimitExceeded, Transport),
}

impl Limit {
    /// Returns what there is too much of, and what to do.
    fn explain(self) -> (&'static str, &'static str) {
        match self {
            Self::Total => ("connections", "raise tcp.connections and the limit of open files, or add a server"),
            Self::Source => {
                ("connections of one address", "raise tcp.per_source if it is a NAT or a carrier, otherwise ban it")
            }
            Self::Transport(transport) if transport.is_web_socket() => ("WebSockets", "raise websocket.connections"),
            Self::Transport(_) => ("connections over TLS", "raise tls.connections"),
            Self::Handshakes(LimitExceeded::Total, _) => {
                ("handshakes in progress", "add cores or a server if these are phones, otherwise it is a flood")
            }
            Self::Handshakes(LimitExceeded::Source, _) => {
                ("handshakes of one address in progress", "wait if it is a NAT with many phones, otherwise ban it")
            }
        }
    }
}

impl Streams {
    /// Counts a connection that a limit refuses, and logs it now and then.
    pub(crate) fn on_refused(&mut self, now: Timestamp, peer: SocketAddr, limit: Limit) {
        let counters = &mut self.counters;
        let counter = match limit {
            Limit::Total => &mut counters.refused_total,
            Limit::Source => &mut counters.refused_source,
            Limit::Transport(_) => &mut counters.refused_transport,
            Limit::Handshakes(of, transport) => match (of, transport.is_secure(), transport.is_web_socket()) {
                (LimitExceeded::Total, true, _) => &mut counters.tls_refused_total,
                (LimitExceeded::Source, true, _) => &mut counters.tls_refused_source,
                (LimitExceeded::Total, false, true) => &mut counters.ws_refused_total,
                (LimitExceeded::Source, false, true) => &mut counters.ws_refused_source,
                (LimitExceeded::Total, false, false) => &mut counters.proxy_refused_total,
                (LimitExceeded::Source, false, false) => &mut counters.proxy_refused_source,
            },
        };
        *counter += 1;
        if let Some(others) = self.refusal_log.begin_limit(now) {
            let (what, remedy) = limit.explain();
            tracing::warn!(%peer, others, "a connection is refused: too many {what}; {remedy}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_says_what_to_do() {
        let of = |limit: Limit| limit.explain();
        assert!(of(Limit::Total).1.contains("tcp.connections"));
        assert!(of(Limit::Source).1.contains("tcp.per_source"));
        assert!(of(Limit::Transport(Transport::Tls)).1.contains("tls.connections"));
        assert!(of(Limit::Transport(Transport::Wss)).1.contains("websocket.connections"));
        assert!(!of(Limit::Handshakes(LimitExceeded::Source, Transport::Tls)).1.is_empty());
    }
}
