//! Handshakes of secure connections: a few per round, because each step may cost a millisecond.

use std::io;
use std::net::SocketAddr;

use strowger_foundation::{HostId, Timestamp, Transport};
use strowger_locate::NameCache;
use strowger_message::Peek;
use strowger_net::Progress;
use strowger_shard::{Event, Snapshot};

use crate::connection::{Connection, Phase};
use crate::limits::HANDSHAKES_A_ROUND;
use crate::streams::{CloseReason, Limit, Streams};

/// Maximum number of domains of a peer's certificate for which its connection serves requests.
const OFFERED_DOMAINS: usize = 16;

impl Streams {
    /// Counts the handshake of a peer that has connected; returns whether it may begin.
    pub(crate) fn admit_handshake(&mut self, now: Timestamp, peer: SocketAddr, transport: Transport) -> bool {
        let (all, per_source) = (self.limits.handshakes, self.limits.handshakes_per_source);
        let Err(reason) = self.index.begin_handshake(peer.ip(), all, per_source) else { return true };
        self.on_refused(now, peer, Limit::Handshakes(reason, transport));
        false
    }

    /// Lets a handshake continue in one of the next rounds.
    pub(crate) fn queue_handshake(&mut self, slot: u32) {
        let Some(connection) = self.get(slot) else { return };
        if !connection.is_listed && connection.phase == Phase::Opening {
            connection.is_listed = true;
            self.handshakes.push_back(slot);
        }
    }

    /// Continues handshakes for which something has arrived, a few per round. Returns whether there were any.
    pub(crate) fn continue_handshakes(&mut self, now: Timestamp) -> bool {
        let count = self.handshakes.len().min(HANDSHAKES_A_ROUND);
        for _ in 0..count {
            let Some(slot) = self.handshakes.pop_front() else { break };
            // An entry may be that of the slot's previous connection.
            let Some(connection) = self.get(slot).filter(|connection| connection.phase == Phase::Opening) else {
                continue;
            };
            connection.is_listed = false;
            self.advance(now, slot);
        }
        count > 0
    }

    /// Continues to open a connection.
    pub(crate) fn advance(&mut self, now: Timestamp, slot: u32) {
        let Some(connection) = self.get(slot).filter(|connection| connection.phase == Phase::Opening) else { return };
        let before = (connection.channel.pending(), connection.held());
        let progress = connection.channel.advance();
        self.recount(before, slot);
        if !self.adopt_source(now, slot) {
            return;
        }
        match progress {
            Ok(Progress::Opening) => {}
            Ok(Progress::Open) => self.on_open(slot),
            Err(error) => self.on_open_failed(now, slot, &error),
        }
    }

    fn on_open(&mut self, slot: u32) {
        let Some(connection) = self.get(slot) else { return };
        let handshake = connection.handshake();
        let is_upgrading = connection.channel.web_socket().is_some();
        connection.phase = if is_upgrading { Phase::Upgrading } else { Phase::Open };
        connection.writers = None;
        let is_secure = connection.channel.is_secure();
        if !is_secure && handshake.is_none() {
            return;
        }
        // What came with the last bytes of the handshake is not reported by the kernel.
        connection.is_readable = true;
        let (is_resumed, has_output) = (connection.channel.is_resumed(), connection.unsent() > 0);
        if is_secure {
            let domains = connection.channel.domains();
            let trunk = trunk_id(&self.trunk_domains, &domains, &self.names);
            if let Some(connection) = self.get(slot) {
                connection.channel.set_trunk(trunk);
            }
        }
        if let Some(source) = handshake.filter(|_| !is_upgrading) {
            self.index.end_handshake(source);
            self.offer(slot);
        }
        self.counters.tls_handshakes += u64::from(is_secure);
        self.counters.tls_resumed += u64::from(is_resumed);
        self.list(slot);
        if has_output {
            self.mark(slot);
        }
    }

    /// Lets requests use a connection that the peer opened, if they are for a name or an address that its certificate
    /// proves: at its true address, and at its true address with the port where it says that it listens.
    //= rfc5923#8.2
    pub(crate) fn offer(&mut self, slot: u32) {
        let Some(connection) = self.get(slot) else { return };
        let (channel, peer) = (&connection.channel, connection.peer);
        let alias = channel.alias().filter(|port| *port != peer.port()).map(|port| SocketAddr::new(peer.ip(), port));
        let domains = channel.domains();
        let has_address = channel.has_address(peer.ip().to_canonical());
        let hosts = self.names.hosts();
        // A name that was never called has no number, and peers cannot fill the table with names.
        let names = domains.iter().take(OFFERED_DOMAINS).filter_map(|domain| hosts.known(domain));
        let names: Vec<HostId> = has_address.then_some(HostId::NONE).into_iter().chain(names).collect();
        let at = |peer: SocketAddr| names.iter().map(move |name| (peer, *name));
        let ways = at(peer).chain(alias.into_iter().flat_map(at)).collect();
        self.withdraw(slot);
        if let Some(connection) = self.get(slot) {
            connection.channel.set_ways(ways);
        }
        self.claim(slot);
    }

    /// Offers a connection for requests to the port at which its peer says it listens, if its certificate proves who
    /// it is.
    //= rfc5923#8.2
    pub(crate) fn adopt_alias(&mut self, slot: u32, peek: &Peek<'_>, bytes: &[u8]) {
        let Some(connection) = self.get(slot) else { return };
        // A message for another worker is not read as far as the Via; it is only if it may have an alias.
        let via = peek.via.or_else(|| may_name_alias(bytes).then(|| Peek::read(bytes).ok()?.via).flatten());
        let Some(via) = via.filter(|via| via.params.find("alias").is_some()) else { return };
        let port = via.sent_by.port.unwrap_or(Transport::Tls.default_port());
        if connection.channel.alias() != Some(port) {
            connection.channel.set_alias(port);
            self.offer(slot);
        }
    }

    /// Logs why an open session has failed; under TLS 1.3, a server refuses our certificate only then.
    pub(crate) fn log_refusal(&mut self, now: Timestamp, slot: u32, error: &io::Error) {
        let Some(connection) = self.get(slot) else { return };
        if connection.channel.is_secure() && error.kind() == io::ErrorKind::InvalidData {
            self.log_failure(now, slot, error);
        }
    }

    /// Learns the domains of trunks, and which connections are theirs; and the names of targets, to which requests
    /// may use the connections that their peers have opened.
    pub(crate) fn learn_trunks(&mut self, snapshot: &Snapshot) {
        self.learn_targets(snapshot);
        let domains = snapshot.trunks.iter().flat_map(|trunk| &trunk.domains).cloned().collect();
        if self.trunk_domains == domains {
            return;
        }
        self.trunk_domains = domains;
        let Self { slots, trunk_domains, names, .. } = self;
        for connection in slots.iter_mut().filter(|connection| connection.channel.is_secure()) {
            let trunk = trunk_id(trunk_domains, &connection.channel.domains(), names);
            connection.channel.set_trunk(trunk);
        }
    }

    /// Gives each named target a number and offers the connections of peers again if some had none.
    fn learn_targets(&mut self, snapshot: &Snapshot) {
        let hosts = self.names.hosts();
        let mut numbers: Vec<HostId> = snapshot.secure_names().filter_map(|name| hosts.number(name)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        if self.target_names == numbers {
            return;
        }
        self.target_names = numbers;
        for slot in self.slots.used() {
            let is_offered =
                |connection: &&mut Connection| connection.phase == Phase::Open && connection.may_have_alias();
            if self.get(slot).filter(is_offered).is_some() {
                self.offer(slot);
            }
        }
    }

    fn on_open_failed(&mut self, now: Timestamp, slot: u32, error: &io::Error) {
        let Some(connection) = self.get(slot) else { return };
        let is_accepted = connection.is_accepted;
        if connection.channel.expects_preface() {
            return self.on_no_preface(now, slot, error);
        }
        // Only an error of the session itself is about the handshake; the others are about the network.
        if !connection.channel.is_secure() || (!is_accepted && error.kind() != io::ErrorKind::InvalidData) {
            return self.kill(slot, CloseReason::ConnectFailed);
        }
        self.log_failure(now, slot, error);
        self.kill(slot, CloseReason::HandshakeFailed);
    }

    fn log_failure(&mut self, now: Timestamp, slot: u32, error: &io::Error) {
        let Some(connection) = self.get(slot) else { return };
        let (peer, host) = (connection.peer, connection.channel.host());
        if connection.is_accepted {
            let transport = connection.channel.transport();
            return self.report(Event::HandshakeFailed { peer, transport, reason: error.to_string() });
        }
        let Some(others) = self.failure_log.begin(now) else { return };
        let name = self.names.hosts().name(host);
        let name = name.as_deref().unwrap_or_default();
        tracing::warn!(%peer, name, others, "no TLS connection: {error}");
    }
}

/// Returns whether a Via of the message may have the parameter `alias` (RFC 5923 §5).
fn may_name_alias(bytes: &[u8]) -> bool {
    bytes.windows(b"alias".len()).any(|word| word.eq_ignore_ascii_case(b"alias"))
}

/// Returns the number of the trunk's domain that a certificate speaks for; [`HostId::NONE`] if it is no trunk's.
fn trunk_id(trunks: &[Box<str>], domains: &[String], names: &NameCache) -> HostId {
    trunk_of(trunks, domains).and_then(|one| names.hosts().number(one)).unwrap_or(HostId::NONE)
}

/// Returns the first of a certificate's domains that is a trunk's.
fn trunk_of<'a>(trunks: &[Box<str>], domains: &'a [String]) -> Option<&'a [u8]> {
    let is_trunk = |domain: &&String| trunks.iter().any(|trunk| **trunk == ***domain);
    domains.iter().find(is_trunk).map(String::as_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rfc5922#7.4
    #[test]
    fn only_a_domain_of_a_trunk_names_a_peer() {
        let domains = ["other.example", "carrier.example"].map(str::to_owned);
        assert_eq!(trunk_of(&["carrier.example".into()], &domains), Some(b"carrier.example".as_slice()));
        assert_eq!(trunk_of(&["example".into()], &domains), None);
        assert_eq!(trunk_of(&[], &domains), None);
    }
}
