//! What the operator calls the places that requests are sent to.

use core::fmt;
use core::net::IpAddr;

use strowger_foundation::Timestamp;
use strowger_locate::{Hop, Names, Question};
use strowger_message::{Uri, lossy};

use crate::places::{peer_of, question_of, transport_of};
use crate::route::{Action, Place, Route};
use crate::snapshot::Snapshot;

/// A place under its name in the configuration or the database. Texts are escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceName {
    /// Its URI as written there.
    pub uri: String,
    /// What it belongs to.
    pub of: Owner,
}

/// What a place belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// It is a gateway of this set.
    Set(String),
    /// It is a target of this trunk.
    Trunk(String),
    /// It is a target of a route.
    Route,
}

impl fmt::Display for PlaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.of {
            Owner::Set(set) => write!(f, "gateway {} of {set}", self.uri),
            Owner::Trunk(trunk) => write!(f, "{} of trunk {trunk}", self.uri),
            Owner::Route => write!(f, "target {}", self.uri),
        }
    }
}

impl Snapshot {
    /// What the operator calls the place at `hop`: gateways, targets of trunks and of routes, as far as it is known where
    /// their names lead.
    #[must_use]
    pub fn names_of(&self, now: Timestamp, names: &Names, hop: &Hop) -> Vec<PlaceName> {
        let is_it = |place: &Place| match place {
            Place::At { address, transport } => {
                *address == hop.address && transport.is_none_or(|transport| transport == hop.transport)
            }
            Place::Named(question) => leads_to(now, names, question, |other| other == hop),
        };
        let mut found: Vec<PlaceName> = Vec::new();
        for (set, members) in self.directory.gateways().sets() {
            for gateway in members {
                if place_of(&gateway.uri).is_some_and(|place| is_it(&place)) {
                    found.push(PlaceName { uri: lossy(&gateway.uri), of: Owner::Set(lossy(set)) });
                }
            }
        }
        let gateways = found.len();
        for route in &self.routes {
            let Action::Proxy { targets, trunk, .. } = &route.action else { continue };
            let trunk = trunk.and_then(|id| self.trunks.iter().find(|trunk| trunk.id() == id));
            let of = trunk.map_or(Owner::Route, |trunk| Owner::Trunk(trunk.name.to_string()));
            for target in targets.iter().filter(|target| is_it(&target.place)) {
                let name = PlaceName { uri: lossy(&target.uri), of: of.clone() };
                // A set's gateways are targets of the routes that name it.
                let is_gateway = found.iter().take(gateways).any(|known| known.uri == name.uri);
                if !is_gateway && !found.contains(&name) {
                    found.push(name);
                }
            }
        }
        found
    }

    /// Whether `is_out` is said of every place that belongs to `owner` and is in service; never of a route's.
    pub(crate) fn are_all_out(
        &self,
        now: Timestamp,
        names: &Names,
        owner: &Owner,
        is_out: impl Fn(&Hop) -> bool,
    ) -> bool {
        let is_place_out = |place: &Place| match place {
            Place::At { address, transport } => {
                is_out(&Hop { transport: transport.unwrap_or_default(), address: *address })
            }
            Place::Named(question) => {
                let located = names.peek(now, question);
                let mut hops =
                    located.iter().flat_map(|located| &located.candidates).flat_map(|one| &one.hops).peekable();
                hops.peek().is_some() && hops.all(&is_out)
            }
        };
        match owner {
            Owner::Set(set) => {
                let enabled =
                    || self.directory.gateways().members(set.as_bytes()).iter().filter(|member| member.enabled);
                enabled().next().is_some()
                    && enabled().all(|member| place_of(&member.uri).is_some_and(|place| is_place_out(&place)))
            }
            Owner::Trunk(name) => {
                let trunk = self.trunks.iter().find(|trunk| *trunk.name == **name).map(|trunk| trunk.id());
                let of_trunk = |route: &&Route| matches!(&route.action, Action::Proxy { trunk: of, .. } if of.is_some() && *of == trunk);
                let mut targets =
                    self.routes.iter().filter(of_trunk).flat_map(|route| route.action.targets()).peekable();
                targets.peek().is_some() && targets.all(|target| is_place_out(&target.place))
            }
            Owner::Route => false,
        }
    }

    /// Whether `ip` is where a route may send requests: a gateway's or a target's address.
    pub(crate) fn is_place(&self, now: Timestamp, names: &Names, ip: IpAddr) -> bool {
        let targets = self.routes.iter().flat_map(|route| route.action.targets());
        targets.map(|target| &target.place).any(|place| match place {
            Place::At { address, .. } => address.ip() == ip,
            Place::Named(question) => leads_to(now, names, question, |hop| hop.address.ip() == ip),
        })
    }
}

/// Whether a name stands for such a place, as far as is known.
fn leads_to(now: Timestamp, names: &Names, question: &Question, is_it: impl Fn(&Hop) -> bool) -> bool {
    let located = names.peek(now, question);
    located.is_some_and(|located| located.candidates.iter().flat_map(|candidate| &candidate.hops).any(is_it))
}

/// Where a gateway is, by its URI.
fn place_of(uri: &[u8]) -> Option<Place> {
    let uri = Uri::parse(uri)?;
    let uri = uri.sip()?;
    let literal = peer_of(uri).zip(transport_of(uri)).map(|(address, transport)| Place::At { address, transport });
    literal.or_else(|| question_of(uri).map(Place::Named))
}
