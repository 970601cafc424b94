//! The overload class of a request that may begin new work.

use core::net::IpAddr;

use smallvec::SmallVec;
use strowger_foundation::{Flow, HostId, Timestamp};
use strowger_message::{HeaderName, Kind, Method, Peek, StartLine, Uri, is_emergency_service};
use strowger_overload::{Class, FilteredKind, ProvenSources};
use strowger_registrar::{ContactTarget, Locations};

use crate::snapshot::Snapshot;
use crate::steering::SteeringResult;

/// The classification of a request that may begin new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification {
    /// Its class.
    pub class: Class,
    /// Its kind for a filter that knows which sources are proven.
    pub kind: FilteredKind,
    /// Whether its source is trusted and has no rate limit.
    pub is_unlimited: bool,
    /// Whether its source is trusted or has proven its address.
    pub is_proven: bool,
}

/// Returns whether the request begins work that could be refused. Requests that belong to existing work are always
/// served.
#[must_use]
pub fn begins_work(peek: &Peek<'_>, method: Method<'_>) -> bool {
    !peek.in_dialog && may_begin_work(method)
}

/// Returns whether a request of this method begins new work when its To has no tag. Anyone can write a tag, so a tag
/// from an unproven source proves nothing.
#[must_use]
pub const fn may_begin_work(method: Method<'_>) -> bool {
    !matches!(method, Method::Ack | Method::Cancel | Method::Bye | Method::Prack)
}

/// The inputs of a request's classification.
#[derive(Clone, Copy, Debug)]
pub struct Classifier<'s> {
    /// The configuration.
    pub snapshot: &'s Snapshot,
    /// The registered contacts and their sources.
    pub locations: &'s Locations,
    /// Sources that have proven their address.
    pub proven: &'s ProvenSources,
}

impl Classifier<'_> {
    /// Classifies a request that [begins work](begins_work).
    #[must_use]
    pub fn classify(&self, now: Timestamp, peek: &Peek<'_>, steered: &SteeringResult, source: &Flow) -> Classification {
        let ip = source.peer.ip();
        // A trunk is known by its address or its certificate.
        let is_trusted = self.snapshot.trusts(ip) || source.host != HostId::NONE;
        // A first stage sends the requests of many phones.
        let is_sibling = self.snapshot.is_from_sibling(source);
        let is_proven = is_trusted || is_sibling || self.proven.contains(ip);
        let method = match peek.kind {
            Kind::Request(method) => method,
            Kind::Response(_) => Method::Other(&[]),
        };
        let kind = match method {
            Method::Invite if is_trusted => FilteredKind::TrunkCall,
            Method::Invite if is_proven => FilteredKind::ProvenCall,
            Method::Invite => FilteredKind::Call,
            Method::Register => FilteredKind::Register,
            _ => FilteredKind::Other,
        };
        let usual = || match kind {
            // It checks whether this server is alive, and would take a busy server for dead.
            FilteredKind::Other if is_sibling && is_probe(peek, method) => Class::TrunkCall,
            FilteredKind::TrunkCall => Class::TrunkCall,
            FilteredKind::ProvenCall => Class::Call,
            FilteredKind::Register if self.is_refresh(now, steered, source) => Class::Refresh,
            FilteredKind::Register => Class::Contact,
            FilteredKind::Call | FilteredKind::Other => Class::Other,
        };
        let class = if is_emergency(peek, method, is_proven) {
            Class::Emergency
        } else if peek.in_dialog && !is_proven {
            Class::Other
        } else {
            self.class_of_route(peek, method, ip).unwrap_or_else(usual)
        };
        Classification { class, kind, is_unlimited: is_trusted || is_sibling, is_proven }
    }

    /// Returns whether a REGISTER is for an address that is registered from its source, or, if it comes from another
    /// server of ours, through any of them.
    fn is_refresh(&self, now: Timestamp, steered: &SteeringResult, source: &Flow) -> bool {
        let Some(claimed) = &steered.claimed else { return false };
        let mut bindings: SmallVec<[ContactTarget; 2]> = SmallVec::new();
        self.locations.lookup(now, self.snapshot.directory.resolve(claimed.as_bytes()), &mut bindings);
        let is_sibling = self.snapshot.is_from_sibling(source);
        let registered_from = bindings.iter().map(|binding| binding.flow.peer.ip());
        registered_from.into_iter().any(|from| from == source.peer.ip() || is_sibling && self.snapshot.is_sibling(from))
    }

    /// Returns the class of the first route that matches the request and has one.
    fn class_of_route(&self, peek: &Peek<'_>, method: Method<'_>, ip: IpAddr) -> Option<Class> {
        let mut routes = self.snapshot.routes.iter().filter(|route| route.class.is_some()).peekable();
        routes.peek()?;
        let StartLine::Request { uri, .. } = peek.head().start() else { return None };
        let uri = Uri::parse(uri)?;
        let domain: SmallVec<[u8; 64]> = match uri.sip() {
            Some(sip) => match self.snapshot.domain(&sip.host()) {
                Some(domain) => domain.into(),
                None => sip.host_port.host.to_ascii_lowercase().into(),
            },
            None => SmallVec::new(),
        };
        routes.find(|route| route.matches.fits(&domain, method.as_bytes(), &uri, ip))?.class
    }
}

/// Returns whether it is an OPTIONS to the server itself.
fn is_probe(peek: &Peek<'_>, method: Method<'_>) -> bool {
    let StartLine::Request { uri, .. } = peek.head().start() else { return false };
    method == Method::Options && Uri::parse(uri).and_then(|uri| uri.sip().map(|sip| sip.user.is_none())) == Some(true)
}

/// Returns whether a call is to an emergency service, or has a priority and comes from a trusted source (RFC 4412
/// §8).
fn is_emergency(peek: &Peek<'_>, method: Method<'_>, is_believed: bool) -> bool {
    let StartLine::Request { uri, .. } = peek.head().start() else { return false };
    let has_priority = || is_believed && peek.head().first(HeaderName::ResourcePriority).is_some();
    method == Method::Invite && (is_emergency_service(uri) || has_priority())
}
