//! Handling of a new, parsed request.

mod authentication;
mod facts;

use core::cell::Cell;
use core::time::Duration;
use std::sync::Arc;

use strowger_balancer::TargetId;
use strowger_foundation::{Flow, Timestamp};
use strowger_locate::Hop;
use strowger_message::{Aor, HeaderName, Message, Method, Status, Uri, parse_decimal};
use strowger_proxy::branch::{has_looped, loop_hash};
use strowger_proxy::forward::{Edits, begins_dialog};
use strowger_proxy::local;
use strowger_proxy::routing::RouteSet;
use strowger_proxy::{DEFAULT_MAX_BREADTH, Forwarding, ForwardingPolicy, NextHop, NextHopAddress, Stateless, Target};
use strowger_transaction::{ServerId, ServerKey};

use crate::callbacks::CACHE_ONLY_QUERY;
use crate::media::{Outgoing, may_carry_offer};
use crate::next_hops::{ResolutionNotes, WeightedChoice};
use crate::own_responses::{LOADING, Refusal, option_tags};
use crate::receive::NewRequest;
use crate::responder::Responder;
use crate::router::{ForwardOptions, RouteDecision, Router};
use crate::shard::Shard;
use crate::snapshot::Snapshot;

/// Minimum interval between calls that are let through to targets of a route none of which answers.
const PROBE_EVERY: Duration = Duration::from_secs(5);

//= rfc3261#20.33
/// Retry-After when no target of a route is in service.
const GATEWAYS_RETRY_AFTER: Duration = Duration::from_secs(5);

/// A request with what every step needs to know about it.
pub(crate) struct Request<'a, 'm> {
    pub(crate) message: &'m Message<'a>,
    pub(crate) source: Flow,
    pub(crate) snapshot: &'m Snapshot,
    /// The address of record that a REGISTER claims, if its domain is local.
    pub(crate) claimed: Option<&'m Aor>,
    routes: &'m RouteSet<'a>,
    /// The loop hash, if already computed.
    loop_hash: Option<u64>,
    /// Set once the request was found to carry a user's credentials.
    is_authenticated: Cell<bool>,
}

impl Shard {
    /// Serves a request that matches no transaction.
    pub(crate) fn serve(&mut self, now: Timestamp, arrived: NewRequest<'_, '_>) {
        let snapshot = Arc::clone(&self.snapshot);
        // Taken out temporarily to reuse its memory.
        let mut targets = core::mem::take(&mut self.targets);
        self.serve_with(now, arrived, &snapshot, &mut targets);
        targets.clear();
        self.targets = targets;
    }

    //= rfc3261#16.2:steps
    /// Serves a request; `targets` is empty and is filled if the request is forwarded.
    fn serve_with(
        &mut self,
        now: Timestamp,
        arrived: NewRequest<'_, '_>,
        snapshot: &Snapshot,
        targets: &mut Vec<Target>,
    ) {
        let NewRequest { source, key, message, steered } = arrived;
        let mut routes = RouteSet::default();
        match message.method() {
            Method::Ack => self.serve_ack(now, arrived, snapshot, targets),
            Method::Cancel => self.serve_cancel(now, arrived, snapshot, targets),
            //= rfc3261#16.3:unknown-methods
            _ => match self.examine(source, snapshot, message, steered.claimed.as_ref(), &mut routes) {
                Ok(request) => {
                    let decision = self.decide(now, &request, targets);
                    self.execute(now, key, &request, decision, targets);
                }
                //= rfc3261#16.3:refuses
                Err(refusal) => {
                    self.refuse(now, Responder::stateless(key, &source, false), source, message, refusal);
                }
            },
        }
    }

    fn execute(
        &mut self,
        now: Timestamp,
        key: ServerKey,
        request: &Request<'_, '_>,
        decision: Result<RouteDecision, Refusal>,
        targets: &mut Vec<Target>,
    ) {
        let Request { message, source, .. } = *request;
        let onward = match decision {
            Ok(RouteDecision::Forward(onward)) => onward,
            Ok(RouteDecision::Registrar) => return self.register(now, key, request),
            _ => return self.answer_locally(now, key, request, decision),
        };
        // A nonce count is valid once, so the retransmission of an authenticated request must match a transaction.
        if !request.needs_auth()
            && !request.needs_auth_in_dialog()
            && is_stateless(onward, targets, &source)
            && max_breadth(message) > 0
            && !(self.media.is_some() && may_carry_offer(message.method()))
        {
            // Its call may have started with state. Nobody waits for the response to a BYE, so the call guard is
            // released.
            drop(self.track_in_dialog(now, message));
            //= rfc3261#16.11:no-provisional
            self.forward_stateless(now, request, onward, targets);
            return;
        }
        if let Err(refusal) = check_breadth(message, targets) {
            self.answer_locally(now, key, request, Err(refusal));
            return;
        }
        let is_invite = message.method() == Method::Invite;
        if is_invite && onward.is_to_route_targets && !self.has_live_target(now, request.snapshot, onward, targets) {
            if let Some(absence) = onward.fallback {
                return self.answer_locally(now, key, request, Ok(RouteDecision::refuse(absence.status())));
            }
            let Some(by) = self.responder(now, key, request, false) else { return };
            match onward.failover_timeout {
                Some(_) => self.refuse_no_target(now, by, request, "No Target Answers", None),
                None => self.refuse_route_out_of_service(now, by, request, "No Gateway Answers"),
            }
            return;
        }
        // Of forwarded requests, only an INVITE gets more than one response.
        let is_proven = !is_invite || request.is_proven();
        //= rfc3261#17.2.1:to-user
        let Some(by) = self.open(now, source, key, message, is_proven) else { return };
        let Some(server) = by.server() else { return };
        //= rfc3261#8.2.6.1:no-provisional
        //= rfc3261#16.2:no-100-to-others
        if is_invite {
            self.answer_trying(now, by, &source, message);
        }
        let call = self.begin_call(now, request);
        let call_guard = self.track_in_dialog(now, message);
        if self.media.is_some() && self.hold_request(now, request, &mut Outgoing { by, call, onward, targets }) {
            return;
        }
        self.forward_opened(now, server, request, onward, call, targets);
        if let Some(call_guard) = call_guard {
            self.proxy.hold_call(server, call_guard);
        }
    }

    /// Forwards the request of a server transaction.
    // Inlined because most requests pass here.
    #[inline(always)]
    pub(crate) fn forward_opened(
        &mut self,
        now: Timestamp,
        server: ServerId,
        request: &Request<'_, '_>,
        onward: ForwardOptions,
        call: u64,
        targets: &mut Vec<Target>,
    ) {
        let forwarding = self.forwarding(request, onward, call);
        self.proxy.forward(now, server, request.message, &forwarding, targets);
        if let Some(absence) = onward.fallback {
            self.proxy.set_fallback_status(now, server, absence.status());
        }
    }

    //= rfc3261#8.2.6.1:final-soon
    /// Answers a request that is not forwarded.
    // Never inlined: most requests are forwarded.
    #[inline(never)]
    fn answer_locally(
        &mut self,
        now: Timestamp,
        key: ServerKey,
        request: &Request<'_, '_>,
        way: Result<RouteDecision, Refusal>,
    ) {
        let Request { message, source, .. } = *request;
        let is_challenge = matches!(way, Err(Refusal::Challenge { .. }));
        let Some(by) = self.responder(now, key, request, is_challenge) else { return };
        match way {
            Err(refusal) => self.refuse(now, by, source, message, refusal),
            Ok(RouteDecision::Refuse { status, reason }) => {
                self.refuse_call(now, request, status);
                self.refuse(now, by, source, message, Refusal::WithReason(status, reason));
            }
            Ok(RouteDecision::OutOfService) => {
                self.refuse_route_out_of_service(now, by, request, "No Gateway In Service");
            }
            Ok(RouteDecision::NoTarget { held_until }) => {
                // In whole seconds, rounded up.
                let wait =
                    held_until.map(|until| Duration::from_secs((until - now).as_millis().div_ceil(1_000) as u64));
                self.refuse_no_target(now, by, request, "No Target In Service", wait);
            }
            Ok(RouteDecision::Loading) => self.refuse(now, by, source, message, LOADING),
            Ok(RouteDecision::Local) => self.serve_local(now, by, source, message),
            Ok(RouteDecision::Redirect { contacts }) => self.redirect(now, by, source, message, &contacts),
            Ok(RouteDecision::Registrar | RouteDecision::Forward(_)) => {
                debug_assert!(false, "these are not answered here");
            }
        }
    }

    //= rfc3261#8.2.7
    /// Returns the responder for the final response to a request that is not forwarded. Nothing is stored for an
    /// unproven source: strangers could fill the table, and retransmitted responses would hit whatever address they
    /// forge. `None` if the table is full; the request is then already answered.
    pub(crate) fn responder(
        &mut self,
        now: Timestamp,
        key: ServerKey,
        request: &Request<'_, '_>,
        is_challenge: bool,
    ) -> Option<Responder> {
        let Request { message, source, .. } = *request;
        let is_proven = request.is_proven();
        //= rfc3261#26.3.2.4
        // A challenge needs no state, except within a dialog: there the To tag is another element's, and only a
        // transaction recognizes the ACK.
        let keeps_none =
            !is_proven || is_challenge && (message.method() != Method::Invite || message.to().tag().is_none());
        if keeps_none {
            return Some(Responder::stateless(key, &source, is_proven && !is_challenge));
        }
        self.open(now, source, key, message, !is_challenge)
    }

    //= rfc3261#16.7 step 6
    /// Refuses a request because no target of its route is in service. A 503 would say that this server can serve no
    /// request at all, and the client would send it none; only one route is affected.
    fn refuse_route_out_of_service(
        &mut self,
        now: Timestamp,
        by: Responder,
        request: &Request<'_, '_>,
        reason: &'static str,
    ) {
        self.refuse_temporarily(now, by, request, (Status::SERVER_ERROR, reason, GATEWAYS_RETRY_AFTER));
    }

    //= rfc3261#21.5.4
    /// Refuses a request that no target of a balanced set accepts. The sender may try another balancer, or retry
    /// after `wait`.
    fn refuse_no_target(
        &mut self,
        now: Timestamp,
        by: Responder,
        request: &Request<'_, '_>,
        reason: &'static str,
        wait: Option<Duration>,
    ) {
        let wait = wait.unwrap_or(GATEWAYS_RETRY_AFTER);
        self.refuse_temporarily(now, by, request, (Status::SERVICE_UNAVAILABLE, reason, wait));
    }

    fn refuse_temporarily(
        &mut self,
        now: Timestamp,
        by: Responder,
        request: &Request<'_, '_>,
        (status, reason, wait): (Status, &'static str, Duration),
    ) {
        self.refuse_call(now, request, status);
        self.refuse(now, by, request.source, request.message, Refusal::RetryAfter(status, reason, wait));
        self.counters.no_gateway += 1;
    }

    //= rfc3263#4.3
    /// Returns whether one of a route's targets may answer a call, as far as is known. If none has recently, one call
    /// is let through now and then as a probe.
    fn has_live_target(&self, now: Timestamp, snapshot: &Snapshot, onward: ForwardOptions, targets: &[Target]) -> bool {
        let places = || targets.iter().flat_map(|target| &target.next_hops);
        if places().any(|place| matches!(place.address, NextHopAddress::Name { .. })) {
            return true;
        }
        let hops = places().filter_map(|place| match &place.address {
            NextHopAddress::Flow(flow) => Some(Hop::of(flow)),
            NextHopAddress::Name { .. } => None,
        });
        // As long as trying all of them may take, but short enough that each is found dead again before its avoidance
        // ends; otherwise all calls would be let through then.
        let count = u32::try_from(places().count()).unwrap_or(u32::MAX);
        let policy = &snapshot.proxy;
        let patience = onward.failover_timeout.unwrap_or(policy.failover_timeout);
        let every = patience.saturating_mul(count).min(policy.avoid_for / 2).max(PROBE_EVERY);
        self.outages.admits(now, hops, every)
    }

    //= rfc3261#16.3:validates
    //= rfc3261#16.11:validates
    /// Performs the checks of RFC 3261 §16.3 that need no routing decision. `routes` is empty on entry.
    pub(crate) fn examine<'a, 'm>(
        &self,
        source: Flow,
        snapshot: &'m Snapshot,
        message: &'m Message<'a>,
        claimed: Option<&'m Aor>,
        routes: &'m mut RouteSet<'a>,
    ) -> Result<Request<'a, 'm>, Refusal> {
        routes
            .read(self.proxy.route_keys(), &snapshot.listeners, message, |uri| snapshot.own_hop(uri))
            .ok_or(Refusal::Status(Status::BAD_REQUEST, Some("Bad Route Header")))?;
        // A looped request has at least one Via more.
        let loop_hash = (!message.has_one_via()).then(|| loop_hash(self.proxy.loop_key(), message));
        //= rfc3261#16.3
        //= rfc5393#4.1:checked
        //= rfc5393#4.1:by-this-way
        //= rfc5393#4.2.2:before-forwarding
        if loop_hash.is_some_and(|hash| has_looped(self.proxy.ring(), message, hash)) {
            //= rfc5393#4.2.2:482
            return Err(Status::LOOP_DETECTED.into());
        }
        //= rfc3261#16.3:proxy-require
        //= rfc3261#16.3:unsupported
        //= rfc3261#8.2.2.3:not-in-cancel-or-ack
        // The server supports no option tags for proxies, so it refuses every Proxy-Require.
        if message.head().has(HeaderName::ProxyRequire) && !matches!(message.method(), Method::Ack | Method::Cancel) {
            let required = option_tags(message, HeaderName::ProxyRequire);
            if !required.is_empty() {
                return Err(Refusal::BadExtension(required));
            }
        }
        Ok(Request { message, source, snapshot, claimed, routes, loop_hash, is_authenticated: Cell::new(false) })
    }

    fn decide(
        &mut self,
        now: Timestamp,
        request: &Request<'_, '_>,
        targets: &mut Vec<Target>,
    ) -> Result<RouteDecision, Refusal> {
        if request.snapshot.clusters.is_none() && request.is_for_the_registrar() {
            return Ok(RouteDecision::Registrar);
        }
        self.record_proof(now, request);
        let way = self.route(now, request, targets);
        if matches!(way, RouteDecision::Registrar) {
            return Ok(way);
        }
        // A request that will be refused is not worth a challenge, but a challenge must not tell an unknown user from
        // a known one.
        if let RouteDecision::Refuse {
            status: Status::UNSUPPORTED_URI_SCHEME | Status::BAD_REQUEST | Status::TOO_MANY_HOPS,
            ..
        } = way
        {
            return Ok(way);
        }
        if matches!(way, RouteDecision::Forward(ForwardOptions { is_registration: true, .. })) {
            return Ok(way);
        }
        //= rfc3261#16.3:credentials
        if request.needs_auth() {
            self.authenticate_caller(now, request)?;
        } else if request.needs_auth_in_dialog() {
            self.authenticate_party(now, request)?;
        }
        Ok(way)
    }

    /// Records the source of a request with a Route of ours as proven: it must have received that Route. The ACK is
    /// the first request of a call with one, so others are not checked.
    fn record_proof(&self, now: Timestamp, request: &Request<'_, '_>) {
        if request.routes.is_dialog_proven && request.message.method() == Method::Ack {
            self.proven.insert(now, request.source.peer.ip());
        }
    }

    //= rfc3261#16.11:finds-targets
    pub(crate) fn route(
        &mut self,
        now: Timestamp,
        request: &Request<'_, '_>,
        targets: &mut Vec<Target>,
    ) -> RouteDecision {
        let notes = ResolutionNotes::default();
        let last;
        let uri = if request.routes.is_uri_from_last_route {
            last = request.uri();
            last.as_ref()
        } else {
            request.message.uri()
        };
        let question = Router {
            now,
            snapshot: request.snapshot,
            locations: &self.locations,
            names: &self.names,
            outages: &self.outages,
            ring: self.proxy.ring(),
            message: request.message,
            //= rfc3261#16.11:cancel-and-ack
            // A CANCEL or ACK takes the path of its INVITE.
            method: match request.message.method() {
                Method::Ack | Method::Cancel => Method::Invite,
                method => method,
            },
            request_uri: request.routes.request_uri,
            uri,
            next_hop: request.routes.next_hop(),
            is_dialog_proven: request.routes.is_dialog_proven,
            dialog_flow: request.routes.dialog_flow.as_ref(),
            trunk: request.routes.trunk,
            target: self.target_of(request),
            is_tentative: request.needs_auth()
                && request.message.head().first(HeaderName::ProxyAuthorization).is_none(),
            token_flow: request.routes.token_flow.as_ref(),
            source: &request.source,
            claimed: request.claimed,
            cluster_request: request.routes.cluster_request.as_ref(),
            egress: request.routes.egress.unwrap_or(request.source.listener),
            is_secure: uri.and_then(Uri::sip).is_some_and(|uri| uri.secure),
            choice: WeightedChoice::ByCallId(self.proxy.tag_key(), request.message.call_id()),
            named_by: &request.source,
            notes: &notes,
        };
        let way = question.decide(targets);
        if let Some(name) = notes.refresh.take() {
            self.questions.push_back((CACHE_ONLY_QUERY, *name));
        }
        if let Some(refused) = notes.refused.take() {
            self.report_local_destination(refused);
        }
        match way {
            way @ (RouteDecision::Registrar | RouteDecision::Local) => way,
            //= rfc3261#16.3:max-forwards
            //= rfc3261#16.3:483
            // Max-Forwards limits forwarding; a request to the server itself is served.
            _ if request.message.max_forwards() == Some(0) => {
                RouteDecision::Refuse { status: Status::TOO_MANY_HOPS, reason: None }
            }
            way => way,
        }
    }

    /// Returns the target of a balanced set that has the request's call.
    fn target_of(&self, request: &Request<'_, '_>) -> Option<TargetId> {
        // A proven Route of ours is sufficient: a request may pass this server a second time, on its way back.
        let calls = self.calls.as_ref().filter(|_| self.has_sets && !request.routes.is_dialog_proven);
        request.routes.target.or_else(|| calls?.target_of(request.message))
    }

    //= rfc3261#16.6
    fn forwarding<'m>(&self, request: &'m Request<'m, 'm>, onward: ForwardOptions, call: u64) -> Forwarding<'m> {
        let message = request.message;
        let policy = &request.snapshot.proxy;
        // Credentials forwarded by a first stage are meant for the cluster.
        let has_credentials =
            message.head().first(HeaderName::ProxyAuthorization).is_some() && !request.snapshot.is_first_stage();
        let own_realm = || request.snapshot.auth.realm.as_deref().unwrap_or(request.callers_domain());
        let loop_hash = request.loop_hash.unwrap_or_else(|| loop_hash(self.proxy.loop_key(), message));
        let is_recorded = policy.record_route && begins_dialog(message);
        let is_given_path = request.needs_path();
        Forwarding {
            edits: Edits {
                source: request.source,
                routes: request.routes,
                strict: onward.is_by_own_route && request.routes.is_strict(),
                record_route: policy.record_route,
                strip_identity: !request.is_trusted(),
                strip_credentials: has_credentials.then(own_realm),
            },
            caller: if is_recorded { request.callers_flow() } else { None },
            outbound: is_given_path && request.wants_outbound(),
            loop_hash,
            max_breadth: max_breadth(message),
            policy: ForwardingPolicy {
                path: is_given_path,
                ..ForwardingPolicy::of(policy, onward.ring_timeout, onward.failover_timeout)
            },
            call,
            // A REGISTER and its responses are steered by address of record, not by Call-ID.
            has_shared_keys: request.snapshot.has_shared_keys && message.method() != Method::Register,
        }
    }

    /// Forwards without state. An unknown name is resolved in the background, and the client's retransmission finds
    /// it.
    pub(crate) fn forward_stateless(
        &mut self,
        now: Timestamp,
        request: &Request<'_, '_>,
        onward: ForwardOptions,
        targets: &[Target],
    ) {
        let Some(target) = targets.first() else { return };
        if let Some(NextHopAddress::Name { question, .. }) = target.next_hops.first().map(|place| &place.address) {
            self.questions.push_back((CACHE_ONLY_QUERY, question.as_ref().clone()));
            return;
        }
        let forwarding = self.forwarding(request, onward, 0);
        self.proxy.forward_stateless(now, request.message, &forwarding, target);
    }

    /// Handles an ACK that no transaction absorbed: it belongs to a 2xx or to a statelessly forwarded call. It is
    /// never answered.
    fn serve_ack(
        &mut self,
        now: Timestamp,
        arrived: NewRequest<'_, '_>,
        snapshot: &Snapshot,
        targets: &mut Vec<Target>,
    ) {
        let NewRequest { source, key, message, .. } = arrived;
        //= rfc3261#8.2.7
        // It acknowledges a response sent without state.
        if local::is_ack_of_ours(self.proxy.tag_key(), key, message) {
            return;
        }
        let mut routes = RouteSet::default();
        let Ok(request) = self.examine(source, snapshot, message, None, &mut routes) else { return };
        // An ACK cannot be challenged. If its INVITE needed authentication, it goes to others only by a Route of
        // ours.
        if request.needs_auth() && request.local_user_uri().is_none() {
            return;
        }
        self.record_proof(now, &request);
        if let RouteDecision::Forward(onward) = self.route(now, &request, targets)
            && !(self.media.is_some() && self.hold_ack(now, &request, onward, targets))
        {
            self.forward_stateless(now, &request, onward, targets);
        }
    }

    //= rfc3261#16.11:cancel
    //= rfc3261#16.10
    fn serve_cancel(
        &mut self,
        now: Timestamp,
        arrived: NewRequest<'_, '_>,
        snapshot: &Snapshot,
        targets: &mut Vec<Target>,
    ) {
        let NewRequest { source, key, message, .. } = arrived;
        let invite = self.find_cancelled(message);
        let mut routes = RouteSet::default();
        if invite.is_none()
            && let Ok(request) = self.examine(source, snapshot, message, None, &mut routes)
            // A request that needed authentication was not forwarded without state either.
            && !request.needs_auth()
            && !request.needs_auth_in_dialog()
            && let RouteDecision::Forward(onward) = self.route(now, &request, targets)
            && (is_stateless(onward, targets, &source) || request.may_be_other_members(onward))
        {
            self.forward_stateless(now, &request, onward, targets);
            return;
        }
        let Some(invite) = invite else {
            let by = Responder::stateless(key, &source, false);
            self.answer(now, by, source, message, Status::NO_SUCH_TRANSACTION, None, |reply| reply);
            return;
        };
        //= rfc3261#16.10:200
        let Some(by) = self.open(now, source, key, message, false) else { return };
        self.answer(now, by, source, message, Status::OK, None, |reply| reply);
        self.cancel_call(now, message);
        if self.media.is_some() && self.cancel_held(now, invite) {
            return;
        }
        self.proxy.cancel(now, invite);
    }

    fn find_cancelled(&self, message: &Message<'_>) -> Option<ServerId> {
        self.proxy.transactions_ref().find_server(self.cancelled_key(message))
    }
}

//= rfc3261#16.1:forks-with-state
fn is_stateless(onward: ForwardOptions, targets: &[Target], source: &Flow) -> bool {
    match onward.stateless {
        Stateless::Never => false,
        //= rfc3261#18.2.2:same-connection
        // Only a transaction knows the connection for the response.
        Stateless::WhenPossible if source.transport.is_reliable() => false,
        Stateless::WhenPossible => {
            //= rfc3263#4.4:stateful
            let is_one = |target: &Target| matches!(&target.next_hops[..], [hop] if !is_by_stream(hop));
            matches!(targets, [target] if is_one(target))
        }
        Stateless::Always => true,
    }
}

//= rfc3261#16.1:transports
/// Whether a next hop is reached over a stream. Its responses come once, so a transaction must repeat them over datagrams.
fn is_by_stream(hop: &NextHop) -> bool {
    matches!(&hop.address, NextHopAddress::Flow(flow) if flow.transport.is_reliable())
}

fn max_breadth(message: &Message<'_>) -> u32 {
    let given = message.head().first(HeaderName::MaxBreadth).and_then(parse_decimal);
    let given = given.and_then(|breadth| u32::try_from(breadth).ok());
    //= rfc5393#5.3.3:most
    //= rfc5393#5.3.3:overwritten
    //= rfc5393#5.3.3:overwritten-value
    given.map_or(DEFAULT_MAX_BREADTH, |breadth| breadth.min(DEFAULT_MAX_BREADTH))
}

//= rfc5393#5.3.3:440
/// Checks that Max-Breadth suffices for all targets tried in parallel.
fn check_breadth(message: &Message<'_>, targets: &[Target]) -> Result<(), Refusal> {
    let best = targets.iter().map(|target| target.q).max();
    let at_once = targets.iter().filter(|target| Some(target.q) == best).count();
    let needed = u32::try_from(at_once).unwrap_or(u32::MAX);
    if max_breadth(message) < needed { Err(Status::MAX_BREADTH_EXCEEDED.into()) } else { Ok(()) }
}
