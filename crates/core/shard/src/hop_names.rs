//! Names of next hops in the configuration and the database.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use strowger_foundation::{HostId, Timestamp, Transport};
use strowger_locate::{Hop, LocateQuery, NameCache};
use strowger_message::{Uri, lossy};

use crate::route::{Action, Route, TargetAddress};
use crate::snapshot::Snapshot;
use crate::uri_address::{peer_of, question_of, transport_of};

/// A next hop's name in the configuration or the database. Texts are escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHopName {
    /// Its URI as written there.
    pub uri: String,
    /// The owner of the next hop.
    pub owner: NextHopOwner,
}

/// The owner of a next hop.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NextHopOwner {
    /// A gateway of this set.
    Set(String),
    /// A target of this trunk.
    Trunk(String),
    /// A target of a route.
    Route,
}

impl fmt::Display for NextHopName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            NextHopOwner::Set(set) => write!(f, "gateway {} of {set}", self.uri),
            NextHopOwner::Trunk(trunk) => write!(f, "{} of trunk {trunk}", self.uri),
            NextHopOwner::Route => write!(f, "target {}", self.uri),
        }
    }
}

impl Snapshot {
    /// Returns the names of the next hop `hop`: gateways and targets of trunks and routes. Host names count as far as
    /// the cache knows their addresses.
    #[must_use]
    pub fn names_of(&self, now: Timestamp, names: &NameCache, hop: &Hop) -> Vec<NextHopName> {
        let is_it = |place: &TargetAddress| match place {
            TargetAddress::Literal { address, transport } => {
                let is_transport = transport.is_none_or(|transport| transport == hop.transport);
                *address == hop.address && hop.host == HostId::NONE && is_transport
            }
            TargetAddress::Name(question) => {
                resolves_to(now, names, question, |other| names.hop_to(other, question) == *hop)
            }
        };
        let mut found: Vec<NextHopName> = Vec::new();
        for (set, members) in self.directory.gateways().sets() {
            for gateway in members {
                if gateway_address(&gateway.uri).is_some_and(|place| is_it(&place)) {
                    found.push(NextHopName { uri: lossy(&gateway.uri), owner: NextHopOwner::Set(lossy(set)) });
                }
            }
        }
        let gateways = found.len();
        for route in &self.routes {
            let Action::Proxy { targets, trunk, .. } = &route.action else { continue };
            let trunk = trunk.and_then(|id| self.trunks.iter().find(|trunk| trunk.id() == id));
            let of = trunk.map_or(NextHopOwner::Route, |trunk| NextHopOwner::Trunk(trunk.name.to_string()));
            for target in targets.iter().filter(|target| is_it(&target.address)) {
                let name = NextHopName { uri: lossy(&target.uri), owner: of.clone() };
                // The gateways of a set are also targets of the routes that name the set.
                let is_gateway = found.iter().take(gateways).any(|known| known.uri == name.uri);
                if !is_gateway && !found.contains(&name) {
                    found.push(name);
                }
            }
        }
        found
    }

    /// Returns the names of the targets of routes that may be called over TLS; some may come twice.
    pub fn secure_names(&self) -> impl Iterator<Item = &[u8]> {
        let targets = self.routes.iter().flat_map(|route| route.action.targets());
        targets.filter_map(|target| match &target.address {
            TargetAddress::Name(question) if question.transport.is_none_or(Transport::is_secure) => {
                Some(&question.host[..])
            }
            TargetAddress::Name(_) | TargetAddress::Literal { .. } => None,
        })
    }

    /// Returns whether `is_out` holds for every next hop of `owner` that is in service; always `false` for a route.
    pub(crate) fn are_all_out(
        &self,
        now: Timestamp,
        names: &NameCache,
        owner: &NextHopOwner,
        is_out: impl Fn(&Hop) -> bool,
    ) -> bool {
        let is_place_out = |place: &TargetAddress| match place {
            TargetAddress::Literal { address, transport } => is_out(&Hop::new(transport.unwrap_or_default(), *address)),
            TargetAddress::Name(question) => {
                let located = names.peek(now, question);
                let mut hops =
                    located.iter().flat_map(|located| &located.candidates).flat_map(|one| &one.hops).peekable();
                hops.peek().is_some() && hops.all(|hop| is_out(&names.hop_to(hop, question)))
            }
        };
        match owner {
            NextHopOwner::Set(set) => {
                let enabled =
                    || self.directory.gateways().members(set.as_bytes()).iter().filter(|member| member.enabled);
                enabled().next().is_some()
                    && enabled().all(|member| gateway_address(&member.uri).is_some_and(|place| is_place_out(&place)))
            }
            NextHopOwner::Trunk(name) => {
                let trunk = self.trunks.iter().find(|trunk| *trunk.name == **name).map(|trunk| trunk.id());
                let of_trunk = |route: &&Route| matches!(&route.action, Action::Proxy { trunk: of, .. } if of.is_some() && *of == trunk);
                let mut targets =
                    self.routes.iter().filter(of_trunk).flat_map(|route| route.action.targets()).peekable();
                targets.peek().is_some() && targets.all(|target| is_place_out(&target.address))
            }
            NextHopOwner::Route => false,
        }
    }

    /// Returns whether `ip` is the address of a gateway or of a route's target.
    #[must_use]
    pub fn is_next_hop(&self, now: Timestamp, names: &NameCache, ip: IpAddr) -> bool {
        self.has_next_hop(now, names, |address| address.ip() == ip)
    }

    /// Returns whether `is_it` holds for the address of a gateway or of a route's target.
    pub(crate) fn has_next_hop(&self, now: Timestamp, names: &NameCache, is_it: impl Fn(SocketAddr) -> bool) -> bool {
        let targets = self.routes.iter().flat_map(|route| route.action.targets());
        targets.map(|target| &target.address).any(|place| match place {
            TargetAddress::Literal { address, .. } => is_it(*address),
            TargetAddress::Name(question) => resolves_to(now, names, question, |hop| is_it(hop.address)),
        })
    }
}

/// Returns whether a cached name resolves to a hop for which `is_it` holds.
fn resolves_to(now: Timestamp, names: &NameCache, question: &LocateQuery, is_it: impl Fn(&Hop) -> bool) -> bool {
    let located = names.peek(now, question);
    located.is_some_and(|located| located.candidates.iter().flat_map(|candidate| &candidate.hops).any(is_it))
}

/// Returns the address in a gateway's URI.
fn gateway_address(uri: &[u8]) -> Option<TargetAddress> {
    let uri = Uri::parse(uri)?;
    let uri = uri.sip()?;
    let literal =
        peer_of(uri).zip(transport_of(uri)).map(|(address, transport)| TargetAddress::Literal { address, transport });
    literal.or_else(|| question_of(uri).map(TargetAddress::Name))
}
