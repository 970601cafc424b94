//! Destination and transport options, which are common to runs, replays and answering.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::sync::Arc;

use strowger_foundation::Transport;

use crate::driver::ConnectionLifetime;
use crate::engine::{Plan, PlanError};
use crate::options::secure::SecureOptions;
use crate::population::Users;

/// The default SIP port.
const DEFAULT_PORT: u16 = 5060;

/// A destination or a listening address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The transport.
    pub transport: Transport,
    /// The address.
    pub address: SocketAddr,
    /// The host as written, unless it was an address.
    pub name: Option<Arc<str>>,
}

impl Target {
    /// Creates one without a name.
    #[must_use]
    pub const fn new(transport: Transport, address: SocketAddr) -> Self {
        Self { transport, address, name: None }
    }

    /// Parses `udp:127.0.0.1:5060`, `tls:host:port`, `host` or `host:port`.
    ///
    /// # Errors
    /// Says what is wrong, and how to write it.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let (transport, rest) = match text.split_once(':') {
            Some((name @ ("udp" | "tcp" | "tls" | "ws" | "wss"), rest)) => {
                (Transport::from_token(name.as_bytes()).unwrap_or_default(), rest)
            }
            _ => (Transport::Udp, text),
        };
        let wrong = |what: &str| {
            PlanError(format!("'{text}' {what}; a target is udp:HOST:PORT, or the same with tcp, tls, ws or wss"))
        };
        if let Some((name @ ("sctp" | "sip" | "sips"), _)) = text.split_once(':') {
            return Err(wrong(&format!("begins with {name}:, which load does not support")));
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if rest.parse::<IpAddr>().is_err() => (host, Some(port)),
            _ => (rest, None),
        };
        if port.is_some_and(|port| !port.ends_with(']') && port.parse::<u16>().is_err()) {
            return Err(wrong("has no port number after its last colon"));
        }
        let mut found = match rest.parse::<SocketAddr>() {
            Ok(address) => vec![address],
            Err(_) if rest.parse::<IpAddr>().is_ok() || !rest.contains(':') => {
                let found = (rest, transport.default_port())
                    .to_socket_addrs()
                    .map_err(|error| wrong(&format!("cannot be resolved: {error}")))?;
                found.collect()
            }
            Err(_) => rest.to_socket_addrs().map_err(|error| wrong(&format!("cannot be resolved: {error}")))?.collect(),
        };
        found.sort_by_key(SocketAddr::is_ipv6);
        let address = found.into_iter().next().ok_or_else(|| wrong("has no address"))?;
        let is_name = host.trim_matches(['[', ']']).parse::<IpAddr>().is_err();
        Ok(Self { transport, address, name: is_name.then(|| host.into()) })
    }

    /// Returns the address as the host part of a URI, for use as a domain if no other is known.
    //= rfc3261#19.1.4
    // A URI without a port does not match one with a port, even the default port. So the port is part of the domain
    // if it is not the default.
    pub(crate) fn domain(&self) -> String {
        match self.address {
            address if address.port() != DEFAULT_PORT => address.to_string(),
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        }
    }
}

/// The domain if there is no target.
pub(crate) const UNSPECIFIED_ADDRESS: &str = "127.0.0.1";

/// Returns the local address from which this machine reaches a target; without a target, the loopback address.
pub(crate) fn own_address(to: Option<&Target>) -> Result<IpAddr, PlanError> {
    let Some(to) = to else { return Ok(IpAddr::from([127, 0, 0, 1])) };
    let any = if to.address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let local = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(to.address)?;
        socket.local_addr()
    });
    local.map(|local| local.ip()).map_err(|error| {
        PlanError(format!("no route to {}: {error}; correct --to, or give a local address with --from", to.address))
    })
}

/// Sockets, threads and limits.
pub(crate) struct TransportOptions<'a> {
    pub to: Option<&'a Target>,
    /// Whether calls go directly from one end to the other, without a server.
    pub is_direct: bool,
    pub secure: &'a SecureOptions,
    pub from: &'a [IpAddr],
    pub sockets: usize,
    pub threads: usize,
    pub connecting: ConnectionLifetime,
    pub connections: usize,
    pub repeats: bool,
    pub max_sessions: Option<usize>,
    pub seed: u64,
}

impl TransportOptions<'_> {
    /// Creates a plan with these options and without any load.
    pub(crate) fn plan(&self, users: Users) -> Result<Plan, PlanError> {
        let mut plan = Plan::new(users, self.seed);
        plan.transport = self.to.map_or(Transport::Udp, |to| to.transport);
        self.secure.apply(&mut plan)?;
        plan.server_name = self.to.and_then(|to| to.name.clone());
        plan.remote = self.to.filter(|_| !self.is_direct).map(|to| to.address);
        plan.addresses = if self.from.is_empty() { vec![own_address(self.to)?] } else { self.from.to_vec() };
        (plan.sockets, plan.threads) = (self.sockets.max(1), self.threads.max(1));
        (plan.connection_lifetime, plan.connections) = (self.connecting, self.connections.max(1));
        plan.retransmits = self.repeats;
        plan.max_sessions = self.max_sessions.unwrap_or(plan.max_sessions * plan.threads).div_ceil(plan.threads);
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_targets_domain_omits_the_default_port() {
        let domain = |text: &str| Target::parse(text).expect(text).domain();
        let said = ["udp:127.0.0.1:5060", "127.0.0.1", "tcp:127.0.0.1:25060", "udp:[::1]:5060", "[::1]:7"].map(domain);
        let tls = Target::parse("tls:localhost").expect("a target");
        assert_eq!(
            (tls.transport, tls.address.port(), tls.name.as_deref()),
            (Transport::Tls, 5_061, Some("localhost"))
        );
        assert_eq!(Target::parse("wss:[::1]:7").expect("a target").name, None);
        assert_eq!(said, ["127.0.0.1", "127.0.0.1", "127.0.0.1:25060", "[::1]", "[::1]:7"]);
    }
}
