//! Ways to share load over servers, and trials of what each keeps and breaks.
//!
//! A [`Deployment`] has a file of its own. To add one, write its file, and give it a line in [`Kind`]; the trials, the table and the
//! command take it from there.

mod dns;
mod identifier;
mod nat;
mod one_address;
mod phone;
mod report;
mod sniffer;
mod testbed;
mod trials;

use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::str::FromStr;

pub use dns::{Dns, Records};
pub use identifier::BalancerFront;
pub use nat::{Choice, Translator};
pub use one_address::{OneAddress, Spread};
pub use phone::Phone;
pub use report::document;
pub use sniffer::{Arrival, Arrivals};
pub use testbed::{Forwarding, Setup, Testbed};
pub use trials::{Count, Row, Trial};

use crate::Namespace;

/// Servers together with whatever distributes the phones' requests over them.
pub trait Deployment {
    /// Returns the networks and the servers.
    fn site(&self) -> &Testbed;

    /// Returns the networks and the servers for modification, such as killing a server.
    fn site_mut(&mut self) -> &mut Testbed;

    /// Returns the address that the phone of this number knows.
    fn entry(&self, phone: usize) -> SocketAddr;

    /// Returns whether phones can reach the addresses that servers put into Record-Route.
    fn follows_route(&self) -> bool {
        true
    }

    /// Makes these servers share the load.
    fn serve_with(&mut self, servers: &[usize]);
}

/// The available kinds of load sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SRV records with weights.
    DnsWeights,
    /// Several A records.
    DnsAddresses,
    /// Consistent hash of the user.
    IdentifierHash,
    /// First letter of the user.
    IdentifierRange,
    /// NAT with round robin.
    NatTurns,
    /// NAT with a hash of the source.
    NatSource,
    /// One address, packets distributed by round robin, transaction-stateful servers.
    PacketsStateful,
    /// One address, packets distributed by round robin, transaction-stateful servers that continue each other's
    /// calls.
    PacketsSet,
    /// One address, packets distributed by round robin, stateless servers.
    PacketsStateless,
    /// One address, hash of the flow, transaction-stateful servers.
    FlowsStateful,
    /// One address, hash of the flow, stateless servers.
    FlowsStateless,
}

impl Kind {
    /// All kinds, in the order of the table.
    pub const ALL: [Kind; 11] = [
        Kind::DnsWeights,
        Kind::DnsAddresses,
        Kind::IdentifierHash,
        Kind::IdentifierRange,
        Kind::NatTurns,
        Kind::NatSource,
        Kind::PacketsStateful,
        Kind::PacketsSet,
        Kind::PacketsStateless,
        Kind::FlowsStateful,
        Kind::FlowsStateless,
    ];

    /// Returns whether it can be tried here. If not, prints that it is skipped.
    ///
    /// # Panics
    /// If a program is missing, root runs the test, and `STROWGER_REQUIRE_INTEROP=1`.
    #[must_use]
    pub fn available(self) -> bool {
        let is_by_dns = matches!(self, Kind::DnsWeights | Kind::DnsAddresses);
        Namespace::available(&["ip", "nft", "conntrack", "nsenter"]) && (!is_by_dns || crate::bind9::Bind9::available())
    }

    /// Starts the first three of its servers. `members` decides whether they share registrations.
    ///
    /// # Panics
    /// If a program does not start.
    #[must_use]
    pub fn start(self, members: bool) -> Box<dyn Deployment> {
        let one_address = |spread, forwarding| Box::new(OneAddress::start(spread, forwarding, members));
        match self {
            Kind::DnsWeights => Box::new(Dns::start(Records::Weights([40, 40, 20, 20]), members)),
            Kind::DnsAddresses => Box::new(Dns::start(Records::Addresses, members)),
            Kind::IdentifierHash => Box::new(BalancerFront::start("hash", members)),
            Kind::IdentifierRange => Box::new(BalancerFront::start("range", members)),
            Kind::NatTurns => Box::new(Translator::start(Choice::Turns, members)),
            Kind::NatSource => Box::new(Translator::start(Choice::Source, members)),
            Kind::PacketsStateful => one_address(Spread::Packets, Forwarding::Stateful),
            Kind::PacketsSet => one_address(Spread::Packets, Forwarding::StatefulSet),
            Kind::PacketsStateless => one_address(Spread::Packets, Forwarding::Stateless),
            Kind::FlowsStateful => one_address(Spread::Flows, Forwarding::Stateful),
            Kind::FlowsStateless => one_address(Spread::Flows, Forwarding::Stateless),
        }
    }

    /// Returns the configured shares of the first three servers in percent.
    #[must_use]
    pub fn wanted(self) -> [f64; 3] {
        match self {
            Kind::DnsWeights => [40.0, 40.0, 20.0],
            _ => [100.0 / 3.0; 3],
        }
    }

    /// Returns the name used on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::DnsWeights => "dns-weights",
            Kind::DnsAddresses => "dns-addresses",
            Kind::IdentifierHash => "identifier-hash",
            Kind::IdentifierRange => "identifier-range",
            Kind::NatTurns => "nat-turns",
            Kind::NatSource => "nat-source",
            Kind::PacketsStateful => "packets-stateful",
            Kind::PacketsSet => "packets-set",
            Kind::PacketsStateless => "packets-stateless",
            Kind::FlowsStateful => "flows-stateful",
            Kind::FlowsStateless => "flows-stateless",
        }
    }
}

impl Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Kind::DnsWeights => "DNS, SRV weights",
            Kind::DnsAddresses => "DNS, several A records",
            Kind::IdentifierHash => "identifier, `hash`",
            Kind::IdentifierRange => "identifier, `range`",
            Kind::NatTurns => "NAT, by turns",
            Kind::NatSource => "NAT, hash of the source",
            Kind::PacketsStateful => "one address, packets by turns, stateful",
            Kind::PacketsSet => "one address, packets by turns, stateful with a set",
            Kind::PacketsStateless => "one address, packets by turns, stateless",
            Kind::FlowsStateful => "one address, hash of the flow, stateful",
            Kind::FlowsStateless => "one address, hash of the flow, stateless",
        })
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Kind, String> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| format!("{name} is no way"))
    }
}
