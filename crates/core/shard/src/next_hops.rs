//! Resolution of a URI, a binding or a route to next hops (RFC 3263).

mod configured;

use core::cell::Cell;
use core::net::{IpAddr, SocketAddr};
use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;
use strowger_balancer::{
    Advice, FailoverBudget, Key, MAX_TRIES, Member, MemberOrder, MethodClass, Policy, SelectionInput, Set, TargetId,
};
use strowger_foundation::{Flow, HostId, KeyRing, ListenerId, TagKey, Timestamp, Transport, octets};
use strowger_locate::{CandidateList, Hop, LocateError, LocateQuery, LocateResult, Lookup, NameCache, Outages};
use strowger_message::{Aor, Host, Message, Method, NameAddr, SipUri, Status, Uri, split_list};
use strowger_proxy::{BalancedTarget as Load, NextHop, NextHopAddress, NextHopKind, Stateless, Target, flow_token};

use crate::route::{self, Action, Route, RouteTarget};
use crate::snapshot::{BalancedMember, Snapshot};
use crate::uri_address::{is_one_host, literal_address, question_of, transport_named, transport_of};

/// The inputs of next-hop resolution.
#[derive(Clone, Copy)]
pub(crate) struct NextHopResolver<'a> {
    pub(crate) now: Timestamp,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) names: &'a NameCache,
    pub(crate) outages: &'a Outages,
    pub(crate) ring: &'a KeyRing,
    pub(crate) egress: ListenerId,
    /// Set if only secure next hops may be taken.
    pub(crate) is_secure: bool,
    pub(crate) choice: WeightedChoice<'a>,
    /// The address of who named the destination; `None` if the operator did.
    pub(crate) named_by: Option<&'a SocketAddr>,
    pub(crate) notes: &'a ResolutionNotes,
}

/// What a resolution finds besides next hops.
#[derive(Default)]
pub(crate) struct ResolutionNotes {
    /// A name whose cached answer is stale and must be resolved again.
    pub(crate) refresh: Cell<Option<Box<LocateQuery>>>,
    pub(crate) refused: Cell<Option<RefusedDestination>>,
}

/// An address of this machine that somebody elsewhere has named, and that is not used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedDestination {
    /// The address of who has named it.
    pub(crate) named_by: IpAddr,
    pub(crate) address: SocketAddr,
}

impl ResolutionNotes {
    /// Returns whether an address of this machine was refused.
    fn refused_any(&self) -> bool {
        self.refused.get().is_some()
    }
}

/// The random value for the choice among targets by weight.
#[derive(Clone, Copy)]
pub(crate) enum WeightedChoice<'a> {
    /// The value drawn when the DNS was asked.
    Fixed(u64),
    /// A hash of the Call-ID, so that a whole call goes one way; computed only if there is a choice.
    ByCallId(&'a TagKey, &'a [u8]),
}

impl WeightedChoice<'_> {
    fn number(self) -> u64 {
        match self {
            Self::Fixed(number) => number,
            //= rfc3263#4.4:order
            Self::ByCallId(key, call_id) => key.table64(&[call_id]),
        }
    }
}

/// A request that matched a route.
#[derive(Clone, Copy)]
pub(crate) struct RoutedRequest<'a> {
    pub(crate) message: &'a Message<'a>,
    pub(crate) source: &'a Flow,
    /// The effective Request-URI, as text and parsed.
    pub(crate) request_uri: &'a [u8],
    pub(crate) uri: Option<&'a Uri<'a>>,
    /// The target of a balanced set that has the call.
    pub(crate) target: Option<TargetId>,
    /// Set if the request will be challenged and goes to no target yet.
    pub(crate) is_tentative: bool,
}

impl<'a> RoutedRequest<'a> {
    /// Returns the user of the Request-URI, or of To for a REGISTER, whose Request-URI names a domain (RFC 3261
    /// §10.2). Without a user, returns the whole Request-URI.
    fn user(&self) -> &'a [u8] {
        let registered = || Uri::parse(self.message.to().uri).and_then(|uri| uri.sip().and_then(|uri| uri.user));
        let user = match self.message.method() {
            Method::Register => registered(),
            _ => self.uri.and_then(Uri::sip).and_then(|uri| uri.user),
        };
        user.unwrap_or(self.request_uri)
    }
}

/// The next hops of a Request-URI; nothing is added if no listener reaches it.
pub(crate) type NextHops = SmallVec<[NextHop; 1]>;

impl NextHopResolver<'_> {
    /// Adds the next hops of `uri` to `found`, for a request with the Request-URI `request_uri`.
    pub(crate) fn resolve_uri(&self, uri: &SipUri<'_>, request_uri: &[u8], found: &mut NextHops) -> Result<(), Status> {
        let [named, maddr] = uri.params.values(["transport", "maddr"]);
        let named = transport_named(uri, named).ok_or(Status::BAD_GATEWAY)?;
        //= rfc3263#4.1:numeric
        let transport = named.unwrap_or(Transport::Udp);
        if let Some(address) = literal_address(uri, maddr, transport) {
            let reach = if named.is_some() { NextHopKind::AddressFixedTransport } else { NextHopKind::Address };
            // A URI with the address of a listener was routed to its user, or refused at the REGISTER.
            if is_loopback(address) && self.is_forbidden(address, None) {
                return Err(Status::FORBIDDEN);
            }
            let host = if transport.is_secure() { self.name_of(address) } else { None };
            if let Some(flow) = self.flow_to(Hop::new(transport, address), host) {
                found.push(next_hop(request_uri, NextHopAddress::Flow(flow), reach));
            }
            return Ok(());
        }
        let question = question_of(uri).ok_or(Status::BAD_GATEWAY)?;
        self.resolve_name(&question, request_uri, found)
    }

    /// Adds the next hops of a registered contact to `found`; returns `None` if the contact is unreachable.
    pub(crate) fn resolve_binding(
        &self,
        binding: &strowger_registrar::ContactTarget,
        found: &mut NextHops,
    ) -> Option<()> {
        let uri = Uri::parse(&binding.uri);
        let sip = uri.as_ref().and_then(Uri::sip);
        //= rfc3261#16.6:no-headers
        // Headers in a contact URI must not become headers of a request or part of its Request-URI.
        let request_uri = sip.map_or(&binding.uri[..], |uri| uri.without_headers());
        // The phone has named its addresses, whoever calls it.
        let named_by = Some(&binding.flow.peer);
        if !binding.path.is_empty() {
            return NextHopResolver { named_by, ..*self }.resolve_path(&binding.path, request_uri, found);
        }
        if let Some(holder) = binding.holder {
            let before = found.len();
            let path = path_through(self.ring, holder, &binding.flow);
            Self { named_by: None, ..*self }.resolve_path(&path, request_uri, found)?;
            // Many phones are reached through that member.
            let through_member = found.get_mut(before..).unwrap_or_default().iter_mut();
            through_member
                .filter(|place| !matches!(place.kind, NextHopKind::Flow { .. }))
                .for_each(|place| place.kind = NextHopKind::Shared);
            return Some(());
        }
        let from = NextHopResolver { egress: binding.flow.listener, named_by, ..*self };
        let by_flow = NextHopKind::Flow { status_if_gone: Status::TEMPORARILY_UNAVAILABLE };
        let same_transport = || {
            let named = sip.and_then(|uri| transport_of(uri).flatten());
            named.is_none_or(|transport| transport == binding.flow.transport)
        };
        if binding.is_translated || (binding.flow.connection.is_some() && same_transport()) {
            let known = self.snapshot.listeners.get(binding.flow.listener);
            known.filter(|own| own.carries(&binding.flow) && is_one_host(binding.flow.peer.ip()))?;
            // A `sips` contact that was registered over UDP or TCP is not reached there.
            if sip.is_some_and(|uri| uri.secure) && !binding.flow.transport.is_secure() {
                return None;
            }
            //= rfc5626#7:same-flow
            found.push(next_hop(request_uri, NextHopAddress::Flow(binding.flow), by_flow));
            return Some(());
        }
        let before = found.len();
        from.resolve_uri(sip?, request_uri, found).ok()?;
        (found.len() > before).then_some(())
    }

    //= rfc3327#5.4
    //= rfc5626#6:path
    /// Adds the next hop of the first URI of a Path, with the Path as Routes. A first URI of our own is removed and
    /// leads over the flow in its token.
    fn resolve_path(&self, path: &[u8], request_uri: &[u8], found: &mut NextHops) -> Option<()> {
        let mut path = path;
        loop {
            let first = split_list(path).next()?;
            let parsed = NameAddr::parse(first)?.parse_uri()?;
            let uri = parsed.sip()?;
            if !self.snapshot.is_own_hop(uri) {
                let before = found.len();
                self.resolve_uri(uri, request_uri, found).ok()?;
                let new = found.get_mut(before..).filter(|new| !new.is_empty())?;
                new.iter_mut().for_each(|place| place.path = Some(path.into()));
                return Some(());
            }
            let at = first.as_ptr().addr().wrapping_sub(path.as_ptr().addr()).saturating_add(first.len());
            let rest = path.get(at..).unwrap_or(&[]).trim_ascii_start();
            let rest = rest.strip_prefix(b",").unwrap_or(rest).trim_ascii_start();
            if let Some(flow) = token_of(self.ring, uri) {
                let path = (!rest.is_empty()).then(|| rest.into());
                let reach = NextHopKind::Flow { status_if_gone: Status::TEMPORARILY_UNAVAILABLE };
                found.push(NextHop { path, ..next_hop(request_uri, NextHopAddress::Flow(flow), reach) });
                return Some(());
            }
            path = rest;
        }
    }

    /// Adds one target with all next hops of a route, in the order in which they are tried, to `found`.
    pub(crate) fn resolve_route(
        &self,
        route: &Route,
        asked: &RoutedRequest<'_>,
        found: &mut Vec<Target>,
    ) -> Result<(), Status> {
        let Action::Proxy { targets, stateless, trunk, balance } = &route.action else {
            return Err(Status::BAD_GATEWAY);
        };
        if let Some(set) = balance {
            return self.resolve_set(route, set, targets, asked, found);
        }
        let request_uri = asked.request_uri;
        let budget = (targets.len() > 1).then(|| self.earned_budget(&route.budget, asked));
        let (changes, is_rewritten) = (route.changes.clone(), route.rewrite.is_some());
        let mut result = Target { changes, trunk: *trunk, budget, is_rewritten, ..Target::default() };
        let places = &mut result.next_hops;
        let mut failure = Status::BAD_GATEWAY;
        let mut try_one = |target: &RouteTarget| {
            let uri = route.request_uri(request_uri, target, trunk.is_some());
            if let Err(status) = self.resolve_target(target, uri.as_deref().unwrap_or(request_uri), places) {
                failure = status;
            }
        };
        match &targets[..] {
            [only] => try_one(only),
            several => route::order_targets(several, self.choice.number()).into_iter().for_each(try_one),
        }
        if places.is_empty() {
            return Err(failure);
        }
        //= rfc3261#16.11:choice
        //= rfc3261#16.11:same-destination
        //= rfc3263#4.3
        //= rfc3263#4.4:same-server
        // Next hops that failed recently are tried last. This does not apply to stateless forwarding: a
        // retransmission must take the path of the original, whatever has happened since (RFC 3261 §16.11).
        if *stateless != Stateless::Always {
            self.sort_failed_last(&mut places[..]);
        }
        found.push(result);
        Ok(())
    }

    /// Adds one target with the next hops of a balanced set, in the order in which they are tried, to `found`.
    fn resolve_set(
        &self,
        route: &Route,
        set: &Set,
        targets: &[RouteTarget],
        asked: &RoutedRequest<'_>,
        found: &mut Vec<Target>,
    ) -> Result<(), Status> {
        let mut order = MemberOrder::new();
        let known = asked.target.and_then(|id| set.position(id));
        match known.filter(|_| asked.message.to().tag().is_some()) {
            Some(known) => order.push(known),
            // A selection for a tentative request would cost that member its turn.
            None if asked.is_tentative && !set.members().is_empty() => order.push(0),
            None => self.select(set, targets, asked, &mut order),
        }
        // The member that challenged the caller gets the answer first, if it is still in the set.
        if let Some(at) = known.and_then(|known| order.iter().position(|at| *at == known)) {
            if let Some(front) = order.get_mut(..=at) {
                front.rotate_right(1);
            }
        } else if let Some(known) =
            known.filter(|known| asked.message.to().tag().is_none() && set.is_in_service(*known, self.now))
        {
            order.insert(0, known);
        }
        let budget = (targets.len() > 1).then(|| self.earned_budget(set.budget(), asked));
        let (changes, is_rewritten) = (route.changes.clone(), route.rewrite.is_some());
        let mut result = Target { changes, budget, is_rewritten, ..Target::default() };
        result.next_hops.reserve(order.len());
        let mut failure = Status::SERVICE_UNAVAILABLE;
        for at in order {
            let Some(target) = targets.get(at) else { continue };
            let uri = route.request_uri(asked.request_uri, target, false);
            let request_uri = uri.as_deref().unwrap_or(asked.request_uri);
            let balanced = BalancedMember { set, index: at, route_target: target };
            if let Err(status) = self.resolve_balanced(&balanced, asked.message, request_uri, &mut result.next_hops) {
                failure = status;
            }
        }
        if result.next_hops.is_empty() {
            return Err(failure);
        }
        found.push(result);
        Ok(())
    }

    /// Returns the failover budget that the request may draw on; a new request first adds its share to it.
    fn earned_budget(&self, budget: &Arc<FailoverBudget>, asked: &RoutedRequest<'_>) -> Arc<FailoverBudget> {
        let belongs =
            matches!(asked.message.method(), Method::Ack | Method::Cancel) || asked.message.to().tag().is_some();
        if !asked.is_tentative && !belongs {
            budget.deposit(self.now);
        }
        Arc::clone(budget)
    }

    /// Lets the set select the targets for the request.
    fn select(&self, set: &Set, targets: &[RouteTarget], asked: &RoutedRequest<'_>, order: &mut MemberOrder) {
        let call_id = asked.message.call_id();
        //= rfc3261#16.10
        // A request that belongs to an INVITE forwarded by another member goes to all members that may have it.
        let policy = set.config().policy;
        let limit = match asked.message.method() {
            Method::Ack | Method::Cancel if policy.is_by_load() => {
                order.extend(set.candidates(call_id).into_iter().flatten());
                return;
            }
            Method::Ack | Method::Cancel if policy.is_by_key() || policy == Policy::Priority => 1,
            // The turn that the INVITE took is unknown.
            Method::Ack | Method::Cancel => return,
            _ => MAX_TRIES,
        };
        let (ip, aor);
        let key: &[u8] = match set.config().key {
            Key::CallId => call_id,
            Key::From => asked.message.from().uri,
            Key::To => asked.message.to().uri,
            Key::User => asked.user(),
            Key::Aor => {
                aor = aor_of(asked);
                aor.as_bytes()
            }
            Key::Source => {
                ip = octets(asked.source.peer.ip());
                &ip[..]
            }
        };
        let pick = SelectionInput {
            now: self.now,
            call_id,
            key,
            random: self.choice.number(),
            begins_call: asked.message.method() == Method::Invite && asked.message.to().tag().is_none(),
            limit,
            advice: &|at| match targets.get(at) {
                Some(target) if self.is_target_out(target) => match self.held_until(target) {
                    // The target accepted the ACK or CANCEL together with its INVITE.
                    Some(_) if !matches!(asked.message.method(), Method::Ack | Method::Cancel) => Advice::Exclude,
                    _ => Advice::Avoid,
                },
                _ => Advice::Neutral,
            },
        };
        set.select(&pick, order);
    }

    /// Adds the next hops of a balanced target to `found`.
    pub(crate) fn resolve_balanced(
        &self,
        balanced: &BalancedMember<'_>,
        message: &Message<'_>,
        request_uri: &[u8],
        found: &mut NextHops,
    ) -> Result<(), Status> {
        let before = found.len();
        self.resolve_target(balanced.route_target, request_uri, found)?;
        let Some(member) = balanced.set.members().get(balanced.index) else { return Ok(()) };
        let load = load_of(balanced, member, message);
        for place in found.iter_mut().skip(before) {
            place.balanced = Some(load.clone());
        }
        Ok(())
    }

    /// Counts a request within a call for its target if `found` leads to the target's host: by the target's own
    /// Record-Route, or to a contact at another port. A request from that host to another of its ports is the
    /// target's own, on its way back, and is not counted.
    pub(crate) fn count_request_in_call(
        &self,
        balanced: &BalancedMember<'_>,
        message: &Message<'_>,
        source: &Flow,
        found: &mut NextHops,
    ) {
        let Some(member) = balanced.set.members().get(balanced.index) else { return };
        let load = load_of(balanced, member, message);
        let is_it = |address: SocketAddr, flow: &Flow| {
            let is_its_own = source.peer.ip() == address.ip();
            address == flow.peer || (address.ip() == flow.peer.ip() && !is_its_own)
        };
        let is_there = |flow: &Flow| match &balanced.route_target.address {
            route::TargetAddress::Literal { address, .. } => is_it(*address, flow),
            route::TargetAddress::Name(question) => {
                let located = self.names.peek(self.now, &self.asked(question));
                let mut hops = located.iter().flat_map(|located| &located.candidates).flat_map(|one| &one.hops);
                hops.any(|hop| is_it(hop.address, flow))
            }
        };
        for place in found {
            if matches!(&place.address, NextHopAddress::Flow(flow) if is_there(flow)) {
                place.balanced = Some(load.clone());
            }
        }
    }

    /// Returns whether a target has failed recently.
    fn is_target_out(&self, target: &RouteTarget) -> bool {
        let hop = match &target.address {
            route::TargetAddress::Literal { address, transport } => Hop::new(transport.unwrap_or_default(), *address),
            route::TargetAddress::Name(question) => {
                let question = &*self.asked(question);
                let located = self.names.peek(self.now, question);
                let mut hops =
                    located.iter().flat_map(|located| &located.candidates).flat_map(|one| &one.hops).peekable();
                return hops.peek().is_some()
                    && hops.all(|hop| self.outages.is_out(self.now, &self.names.hop_to(hop, question)));
            }
        };
        self.outages.is_out(self.now, &hop)
    }

    //= rfc3261#21.5.4
    /// Returns when the first of a set's targets accepts requests again, if every target has asked for a pause.
    pub(crate) fn all_held_until(&self, set: &Set, targets: &[RouteTarget]) -> Option<Timestamp> {
        let in_service = targets.iter().enumerate().filter(|(at, _)| set.is_in_service(*at, self.now));
        in_service.map(|(_, target)| self.held_until(target)).min().flatten()
    }

    /// Returns until when a target has asked for a pause; for a name, all its addresses must have asked.
    fn held_until(&self, target: &RouteTarget) -> Option<Timestamp> {
        let held_until = |hop: &Hop| self.outages.back_off_until(self.now, hop);
        match &target.address {
            route::TargetAddress::Literal { address, transport } => {
                held_until(&Hop::new(transport.unwrap_or_default(), *address))
            }
            route::TargetAddress::Name(question) => {
                let question = &*self.asked(question);
                let located = self.names.peek(self.now, question);
                let hops = located.iter().flat_map(|located| &located.candidates).flat_map(|one| &one.hops);
                // If one is not paused, this is `None`, the minimum.
                hops.map(|hop| held_until(&self.names.hop_to(hop, question))).min().flatten()
            }
        }
    }

    fn resolve_target(&self, target: &RouteTarget, request_uri: &[u8], found: &mut NextHops) -> Result<(), Status> {
        match &target.address {
            route::TargetAddress::Literal { address, transport } => {
                let reach = if transport.is_some() { NextHopKind::SharedFixedTransport } else { NextHopKind::Shared };
                let hop = Hop::new(transport.unwrap_or_default(), *address);
                if let Some(flow) = self.flow_to(hop, None) {
                    found.push(next_hop(request_uri, NextHopAddress::Flow(flow), reach));
                }
                Ok(())
            }
            route::TargetAddress::Name(question) => {
                Self { named_by: None, ..*self }.resolve_name(question, request_uri, found)
            }
        }
    }

    fn resolve_name(&self, question: &LocateQuery, request_uri: &[u8], found: &mut NextHops) -> Result<(), Status> {
        let question = &*self.asked(question);
        let reach = if question.transport.is_some() { NextHopKind::SharedFixedTransport } else { NextHopKind::Shared };
        let answer = match self.names.lookup(self.now, question) {
            Lookup::Fresh(answer) => answer,
            Lookup::Stale(answer) => {
                self.notes.refresh.set(Some(Box::new(question.clone())));
                answer
            }
            // Only the peer could open the connection, and a name does not say which one is its.
            Lookup::Miss if question.transport.is_some_and(Transport::is_web_socket) => {
                return Err(Status::TEMPORARILY_UNAVAILABLE);
            }
            Lookup::Miss => {
                let (listener, named_by) = (self.egress, self.named_by.map(SocketAddr::ip));
                let to = NextHopAddress::Name { question: Box::new(question.clone()), listener, named_by };
                found.push(next_hop(request_uri, to, reach));
                return Ok(());
            }
        };
        let flows = self.flows_of(question, &answer)?;
        found.extend(flows.into_iter().map(|flow| next_hop(request_uri, NextHopAddress::Flow(flow), reach)));
        Ok(())
    }

    //= rfc3263#4.1:sips-services
    /// Returns what to ask the DNS, and the cache of its answers, for a name: only secure services if the request
    /// may take no others.
    fn asked<'q>(&self, question: &'q LocateQuery) -> Cow<'q, LocateQuery> {
        // Datagrams cannot be secure; such a next hop is removed later.
        if !self.is_secure || question.is_secure || question.transport == Some(Transport::Udp) {
            return Cow::Borrowed(question);
        }
        Cow::Owned(secure(question))
    }

    /// Returns the flows to the addresses of a name, in the order in which they are tried; if there are none, the
    /// status for the caller.
    pub(crate) fn flows_of(
        &self,
        question: &LocateQuery,
        answer: &LocateResult,
    ) -> Result<SmallVec<[Flow; 4]>, Status> {
        match answer {
            Ok(located) => {
                let flows = self.in_order(question, located);
                match flows.is_empty() {
                    true if self.notes.refused_any() => Err(Status::FORBIDDEN),
                    true => Err(Status::BAD_GATEWAY),
                    false => Ok(flows),
                }
            }
            Err(LocateError::NoSuchName) => Err(Status::BAD_GATEWAY),
            Err(LocateError::NoAnswer) => Err(Status::SERVICE_UNAVAILABLE),
        }
    }

    fn in_order(&self, question: &LocateQuery, located: &CandidateList) -> SmallVec<[Flow; 4]> {
        let mut hops: SmallVec<[Hop; 4]> = SmallVec::new();
        let is_out = |hop: &Hop| self.outages.is_out(self.now, &self.names.hop_to(hop, question));
        located.order(self.choice.number(), is_out, &mut hops);
        hops.retain(|hop| {
            !self.snapshot.is_own_address(hop.address) || !self.is_forbidden(hop.address, Some(&question.host))
        });
        hops.into_iter().filter_map(|hop| self.flow_to(hop, Some(&question.host))).collect()
    }

    /// Moves next hops that failed recently to the end.
    pub(crate) fn sort_failed_last(&self, places: &mut [NextHop]) {
        if places.len() > 1 {
            places.sort_by_key(|place| self.is_out(place));
        }
    }

    fn is_out(&self, place: &NextHop) -> bool {
        match &place.address {
            NextHopAddress::Flow(flow) => self.outages.is_out(self.now, &Hop::of(flow)),
            NextHopAddress::Name { .. } => false,
        }
    }

    /// Returns whether who named an address of this machine must not choose such a one. `host` is the name that has led there:
    /// that of a domain of ours leads its users' calls here.
    // Nearly all addresses are elsewhere.
    #[cold]
    fn is_forbidden(&self, address: SocketAddr, host: Option<&[u8]>) -> bool {
        let Some(by) = self.named_by.map(SocketAddr::ip) else { return false };
        let is_own_domain = host.is_some_and(|host| self.snapshot.domain(&Host::Name(host)).is_some());
        let is_spiral = is_own_domain && !is_loopback(address);
        if is_spiral || !self.snapshot.guards_itself_from(by) {
            return false;
        }
        self.notes.refused.set(Some(RefusedDestination { named_by: by, address }));
        true
    }

    fn flow_to(&self, hop: Hop, host: Option<&[u8]>) -> Option<Flow> {
        if !is_one_host(hop.address.ip()) {
            return None;
        }
        let listener = self.snapshot.listeners.towards(hop.transport, hop.address, self.egress)?;
        flow_by_name(self.names, listener, hop, host)
    }
}

// Never inlined: few requests are `sips`.
#[inline(never)]
fn secure(question: &LocateQuery) -> LocateQuery {
    LocateQuery { is_secure: true, ..question.clone() }
}

//= rfc3263#4.1:certificates
//= rfc5922#7.3
/// Returns the flow to an address of `host`. On a secure transport it carries the name, because the peer's certificate
/// must speak for the domain that was asked for, whatever the DNS answered.
pub(crate) fn flow_by_name(names: &NameCache, listener: ListenerId, hop: Hop, host: Option<&[u8]>) -> Option<Flow> {
    let host = match host {
        Some(host) if hop.transport.is_secure() => names.hosts().number(host)?,
        _ => HostId::NONE,
    };
    Some(Flow { host, ..Flow::new(listener, hop.transport, hop.address) })
}

//= rfc3261#10.2
/// Returns the address of record that a request is for.
fn aor_of(asked: &RoutedRequest<'_>) -> Aor {
    let to;
    let uri = if asked.message.method() == Method::Register {
        to = asked.message.to().parse_uri();
        to.as_ref()
    } else {
        asked.uri
    };
    match uri.and_then(Uri::sip) {
        Some(uri) => Aor::new(uri.user.unwrap_or_default(), uri.host_port.host),
        None => Aor::new(asked.request_uri, b""),
    }
}

/// Returns the load of a request on a target.
fn load_of(balanced: &BalancedMember<'_>, member: &Member, message: &Message<'_>) -> Load {
    let work = balanced.set.work_of(&member.target, MethodClass::from_token(message.method().as_bytes()));
    Load { target: Arc::clone(&member.target), work, capacity: member.capacity.unwrap_or(u32::MAX) }
}

fn next_hop(request_uri: &[u8], to: NextHopAddress, reach: NextHopKind) -> NextHop {
    NextHop { request_uri: SmallVec::from_slice(request_uri), address: to, path: None, kind: reach, balanced: None }
}

/// Returns whether a message received on `source` came on `flow`.
pub(crate) fn is_from(source: &Flow, flow: &Flow) -> bool {
    match flow.connection {
        Some(connection) => source.connection == Some(connection),
        None => source.peer == flow.peer,
    }
}

/// Returns the Path to a flow of another member. Members share one key, so it equals the Path that this member would
/// have written.
fn path_through(ring: &KeyRing, member: SocketAddr, flow: &Flow) -> SmallVec<[u8; 128]> {
    let mut path = SmallVec::from_slice(b"<sip:");
    path.extend_from_slice(&flow_token::sign(ring, flow));
    path.push(b'@');
    path.extend_from_slice(member.to_string().as_bytes());
    path.extend_from_slice(b";lr>");
    path
}

fn token_of(ring: &KeyRing, uri: &SipUri<'_>) -> Option<Flow> {
    flow_token::verify(ring, uri.user?)
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}
