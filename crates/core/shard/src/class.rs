//! What a request that may begin something counts as under overload.

use core::net::IpAddr;

use smallvec::SmallVec;
use strowger_foundation::{Flow, Timestamp};
use strowger_message::{HeaderName, Kind, Method, Peek, StartLine, Uri, is_emergency_service};
use strowger_overload::{Class, FilteredKind, ProvenSources};
use strowger_registrar::{ContactTarget, Locations};

use crate::snapshot::Snapshot;
use crate::steering::SteeringResult;

/// A request that may begin something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification {
    /// Its class.
    pub class: Class,
    /// As which kind a filter sees it that knows who has proven to be there.
    pub kind: FilteredKind,
    /// Whether its source may send as much as it likes: it is trusted.
    pub is_unlimited: bool,
    /// Whether its source has proven that it is there, or is trusted.
    pub is_proven: bool,
}

/// Whether the request begins something that could be refused: what belongs to something begun is always served.
#[must_use]
pub fn begins_work(peek: &Peek<'_>, method: Method<'_>) -> bool {
    !peek.in_dialog && may_begin_work(method)
}

/// Whether a request of this method begins something where its To has no tag. Anybody can write a tag, so of a source that has
/// proven nothing it proves nothing.
#[must_use]
pub const fn may_begin_work(method: Method<'_>) -> bool {
    !matches!(method, Method::Ack | Method::Cancel | Method::Bye | Method::Prack)
}

/// What decides of a request's class.
#[derive(Clone, Copy, Debug)]
pub struct Classifier<'s> {
    /// The operator's decisions.
    pub snapshot: &'s Snapshot,
    /// Who is registered, and from where.
    pub locations: &'s Locations,
    /// Who has proven to be there.
    pub proven: &'s ProvenSources,
}

impl Classifier<'_> {
    /// What a request counts as that [begins work](begins_work).
    #[must_use]
    pub fn classify(&self, now: Timestamp, peek: &Peek<'_>, steered: &SteeringResult, source: &Flow) -> Classification {
        let ip = source.peer.ip();
        let is_trusted = self.snapshot.trusts(ip);
        // What a first stage sends is what many phones send.
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
            // It asks whether we are there, and takes us for dead if we are busy.
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

    /// Whether a REGISTER is of an address that is registered from there, or through any server of ours where it comes through one.
    fn is_refresh(&self, now: Timestamp, steered: &SteeringResult, source: &Flow) -> bool {
        let Some(claimed) = &steered.claimed else { return false };
        let mut bindings: SmallVec<[ContactTarget; 2]> = SmallVec::new();
        self.locations.lookup(now, self.snapshot.directory.resolve(claimed.as_bytes()), &mut bindings);
        let is_sibling = self.snapshot.is_from_sibling(source);
        let registered_from = bindings.iter().map(|binding| binding.flow.peer.ip());
        registered_from.into_iter().any(|from| from == source.peer.ip() || is_sibling && self.snapshot.is_sibling(from))
    }

    /// The class that the first route gives which takes the request and has one.
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

/// Whether it asks for nobody's but the server's own health.
fn is_probe(peek: &Peek<'_>, method: Method<'_>) -> bool {
    let StartLine::Request { uri, .. } = peek.head().start() else { return false };
    method == Method::Options && Uri::parse(uri).and_then(|uri| uri.sip().map(|sip| sip.user.is_none())) == Some(true)
}

/// Whether a call is to an emergency service, or has a priority and comes from somebody who may be believed (RFC 4412 §8).
fn is_emergency(peek: &Peek<'_>, method: Method<'_>, is_believed: bool) -> bool {
    let StartLine::Request { uri, .. } = peek.head().start() else { return false };
    let has_priority = || is_believed && peek.head().first(HeaderName::ResourcePriority).is_some();
    method == Method::Invite && (is_emergency_service(uri) || has_priority())
}
