//! Route pre-processing and the next hop (RFC 3261 §16.4, §16.6 steps 6 and 7, §16.12).

use smallvec::SmallVec;
use strowger_balancer::TargetId;
use strowger_foundation::{Flow, KeyRing, ListenerId, Seal, Transport, base16};
use strowger_message::{HeaderName, Message, NameAddr, SipUri, Uri};

use crate::cluster_request::{ClusterRequest, Subject};
use crate::flow_token;
use crate::listener::{Listener, Listeners, transport_param};

/// The URI parameter of our Record-Route that proves that the dialog was set up through this server.
const DIALOG_PARAM: &str = "dlg";
/// Parameters with the flows to the caller and the callee.
const CALLER_PARAM: &str = "caller";
const CALLEE_PARAM: &str = "callee";
/// The parameter with the callee's trunk.
const TRUNK_PARAM: &str = "trunk";
/// The parameter with the balanced target that has the call. With the seal it is a cookie: any holder of our keys
/// knows where the call is.
const TARGET_PARAM: &str = "tgt";

/// Keys for our Routes.
#[derive(Clone, Copy, Debug)]
pub struct RouteKeys<'a> {
    /// Keys of flow tokens.
    pub tokens: &'a KeyRing,
    /// Keys of Record-Routes.
    pub dialogs: &'a KeyRing,
}

/// Routing of a request after our own Routes are removed.
#[derive(Clone, Copy, Debug)]
pub struct RouteSet<'a> {
    /// The effective Request-URI: the request's own, or the last Route if a strict router moved it there.
    pub request_uri: &'a [u8],
    /// Whether it came from the last Route, which is then removed.
    pub is_uri_from_last_route: bool,
    /// Number of leading Routes that are ours and are removed.
    pub own_routes: usize,
    /// URI of the first remaining Route.
    pub next: Option<&'a [u8]>,
    /// Number of remaining Routes.
    pub remaining: usize,
    /// Whether one of our Routes proves that the dialog was set up through this server.
    pub is_dialog_proven: bool,
    /// The flow to the other end of a proven dialog, if its Contact does not suffice.
    pub dialog_flow: Option<Flow>,
    /// The flow of one of our tokens: the request follows a Path or Service-Route (RFC 5626 §5.3).
    pub token_flow: Option<Flow>,
    /// The listener named by the last of our Routes: where the request leaves (RFC 5658 §5).
    pub egress: Option<ListenerId>,
    /// Id of the dialog's trunk.
    pub trunk: Option<u32>,
    /// The balanced target that has the call, if the request is for the callee.
    pub target: Option<TargetId>,
    /// The request of a member of another cluster.
    pub cluster_request: Option<ClusterRequest<'a>>,
}

/// Ends of a dialog that must be reached by flow: behind a NAT or on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DialogEnds {
    /// Flow to the caller.
    pub caller: Option<Flow>,
    /// Flow to the callee.
    pub callee: Option<Flow>,
    /// The trunk of the callee.
    pub trunk: Option<u32>,
    /// The balanced target that has the call.
    pub target: Option<TargetId>,
}

/// What one of our Routes says of its dialog; empty if it says nothing.
#[derive(Clone, Copy, Default)]
struct DialogProof<'a> {
    dialog: &'a [u8],
    caller: &'a [u8],
    callee: &'a [u8],
    trunk: &'a [u8],
    target: &'a [u8],
}

impl<'a> DialogProof<'a> {
    fn of(uri: &SipUri<'a>) -> Self {
        let names = [DIALOG_PARAM, CALLER_PARAM, CALLEE_PARAM, TRUNK_PARAM, TARGET_PARAM];
        let [dialog, caller, callee, trunk, target] = uri.params.values(names).map(Option::unwrap_or_default);
        Self { dialog, caller, callee, trunk, target }
    }
}

/// An empty set.
impl Default for RouteSet<'_> {
    #[inline]
    fn default() -> Self {
        Self::empty(&[])
    }
}

impl<'a> RouteSet<'a> {
    /// Reads the Routes into an empty set, in place because a set is expensive to move. `own` tells whether a URI's
    /// host and port are ours, and the listener if it names one. Returns `None` if a Route is malformed.
    #[must_use]
    pub fn read(
        &mut self,
        keys: RouteKeys<'_>,
        listeners: &Listeners,
        message: &Message<'a>,
        own: impl Fn(&SipUri<'_>) -> Option<Option<ListenerId>>,
    ) -> Option<()> {
        debug_assert!(self.request_uri.is_empty(), "Routes are read once");
        self.request_uri = message.request_uri();
        let mut routes = message.head().elements(HeaderName::Route);
        let Some(mut route) = routes.next() else { return Some(()) };
        //= rfc3261#16.4:inspects-uri
        //= rfc3261#16.4:strict-router
        // A strict router has moved our Record-Route into the Request-URI: the real target is the last Route.
        if let Some(Uri::Sip(uri)) = message.uri()
            && uri.user.is_none()
            && uri.params.contains("lr")
            && own(uri).is_some()
        {
            self.verify_dialog(keys, message, &DialogProof::of(uri));
            self.is_uri_from_last_route = true;
        }
        loop {
            let uri = NameAddr::parse(route)?.uri;
            let following = routes.next();
            if following.is_none() && self.is_uri_from_last_route {
                self.request_uri = uri;
            } else if self.next.is_some() || !self.strip_own_route(keys, listeners, message, uri, &own) {
                self.next = self.next.or(Some(uri));
                self.remaining = self.remaining.saturating_add(1);
            }
            match following {
                Some(following) => route = following,
                None => return Some(()),
            }
        }
    }

    const fn empty(request_uri: &'a [u8]) -> Self {
        Self {
            request_uri,
            is_uri_from_last_route: false,
            own_routes: 0,
            next: None,
            remaining: 0,
            is_dialog_proven: false,
            dialog_flow: None,
            token_flow: None,
            egress: None,
            trunk: None,
            target: None,
            cluster_request: None,
        }
    }

    //= rfc3261#16.4:own-route
    /// Removes the Route `uri` if it is ours.
    fn strip_own_route(
        &mut self,
        keys: RouteKeys<'_>,
        listeners: &Listeners,
        message: &Message<'_>,
        uri: &'a [u8],
        own: &impl Fn(&SipUri<'_>) -> Option<Option<ListenerId>>,
    ) -> bool {
        if let Some((listener, dialog)) = parse_own_route_fast(listeners, uri) {
            self.verify_dialog(keys, message, &DialogProof { dialog, ..DialogProof::default() });
            self.egress = Some(listener);
        } else if let Some(Uri::Sip(uri)) = Uri::parse(uri)
            && let Some(listener) = own(&uri)
        {
            self.verify_dialog(keys, message, &DialogProof::of(&uri));
            let subject = Subject::of(message, message.request_uri());
            self.cluster_request = ClusterRequest::read(keys.tokens, &subject, &uri).or(self.cluster_request);
            self.token_flow = uri.user.and_then(|user| flow_token::verify(keys.tokens, user)).or(self.token_flow);
            self.egress = listener;
        } else {
            return false;
        }
        self.own_routes = self.own_routes.saturating_add(1);
        true
    }

    /// Verifies that one of our Routes was written for the request's dialog. Never true for a request that begins a
    /// dialog: a former callee knows the Route of its call and must not open another with it.
    fn verify_dialog(&mut self, keys: RouteKeys<'_>, message: &Message<'_>, proof: &DialogProof<'_>) {
        let Some(to) = message.to().tag() else { return };
        let DialogProof { dialog, caller, callee, trunk, target } = *proof;
        let Some(seal) = Seal::from_text(dialog) else { return };
        let begun_by = |who| {
            let parts = [message.call_id(), who, caller, callee, trunk, target];
            let ends = ends([who, caller, callee, trunk, target]);
            ends.is_some_and(|ends| keys.dialogs.is_joined_sealed(&parts, ends, seal))
        };
        let (outside, towards_callee) = if begun_by(message.from().tag().unwrap_or(&[])) {
            (callee, true)
        } else if begun_by(to) {
            (caller, false)
        } else {
            return;
        };
        self.is_dialog_proven = true;
        if !outside.is_empty() {
            self.dialog_flow = flow_token::decode(outside).or(self.dialog_flow);
        }
        let trunk = core::str::from_utf8(trunk).ok().and_then(|text| text.parse().ok());
        self.trunk = trunk.filter(|_| towards_callee).or(self.trunk);
        let target = core::str::from_utf8(target).ok().and_then(|text| text.parse().ok());
        self.target = target.filter(|_| towards_callee).or(self.target);
    }

    /// Rereads the Routes of a request that was read before.
    #[must_use]
    pub(crate) fn reread(message: &Message<'a>, ours: usize, from_last: bool) -> Self {
        let mut set =
            Self { own_routes: ours, is_uri_from_last_route: from_last, ..Self::empty(message.request_uri()) };
        let routes = message.head().elements(HeaderName::Route).filter_map(NameAddr::parse);
        for (at, route) in routes.enumerate() {
            set.remaining = at.saturating_add(1).saturating_sub(ours);
            if at == ours {
                set.next = Some(route.uri);
            }
            if from_last {
                set.request_uri = route.uri;
            }
        }
        set.remaining = set.remaining.saturating_sub(usize::from(from_last));
        set.next = set.next.filter(|_| set.remaining > 0);
        set
    }

    //= rfc3261#16.6:strict-router-leads
    //= rfc3261#16.6:route-leads
    /// The URI that determines the next hop: the first remaining Route, else the Request-URI.
    #[must_use]
    pub fn next_hop(&self) -> &'a [u8] {
        self.next.unwrap_or(self.request_uri)
    }

    //= rfc3261#16.6:looks-at-route
    /// Whether the next hop is a strict router, a Route without `lr`.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        let next = self.next.and_then(Uri::parse);
        next.is_some_and(|uri| uri.sip().is_none_or(|uri| !uri.params.contains("lr")))
    }
}

/// Packs the lengths of the sealed parts after the Call-ID, 12 bits each; `None` if one does not fit.
fn ends(parts: [&[u8]; 5]) -> Option<u64> {
    let length = |part: &[u8]| u64::try_from(part.len()).ok().filter(|length| *length < 1 << 12);
    parts.iter().try_fold(0, |ends, part| Some(ends << 12 | length(part)?))
}

/// Fast path for a URI written by [`record_route`] without flows, as nearly all are: returns its listener and seal.
fn parse_own_route_fast<'a>(listeners: &Listeners, uri: &'a [u8]) -> Option<(ListenerId, &'a [u8])> {
    let (front, dialog) = uri.split_last_chunk::<{ base16::LEN }>()?;
    base16::decode(dialog)?;
    let front = front.strip_suffix(b";dlg=")?;
    // Also one that was removed: calls set up through it still have its Route.
    let listener = listeners.find(|own| own.route.strip_prefix(b"<") == Some(front))?;
    Some((listener, dialog))
}

/// A Record-Route value.
pub type RecordRoute = SmallVec<[u8; 256]>;

//= rfc3261#16.6:record-route-resolves
//= rfc3261#18.2.1:handed-out
/// Returns our Record-Route for the dialog that `message` begins, received on `entry` and sent from `exit`. Both ends
/// return it. It is sealed, so that nobody can use it to send through the server or to choose an address, and bound
/// to the caller's tag, which distinguishes the two ends.
///
/// If the two sides differ in transport, family or address, there are two URIs, so that each side gets one that it
/// can reach (RFC 5658 §5).
#[must_use]
pub fn record_route(
    keys: RouteKeys<'_>,
    entry: &Listener,
    exit: &Listener,
    message: &Message<'_>,
    outsides: DialogEnds,
) -> RecordRoute {
    let text = |flow: Option<Flow>| flow.map(|flow| flow_token::encode(&flow)).unwrap_or_default();
    let (caller, callee) = (text(outsides.caller), text(outsides.callee));
    let trunk = outsides.trunk.map(|trunk| trunk.to_string().into_bytes()).unwrap_or_default();
    let target = outsides.target.map(|target| target.to_string().into_bytes()).unwrap_or_default();
    let begun_by = message.from().tag().unwrap_or(&[]);
    let parts = [message.call_id(), begun_by, &caller, &callee, &trunk, &target];
    // A tag too long to be sealed proves nothing later, like a missing one.
    let ends = ends([begun_by, &caller, &callee, &trunk, &target]);
    let seal = ends.map(|ends| keys.dialogs.current().seal_joined(&parts, ends).to_text());
    let seal = seal.as_ref().map_or(&[][..], |seal| &seal[..]);
    let mut value = RecordRoute::new();
    //= rfc3261#16.6:record-route-transport
    //= rfc5658#5
    let is_secure = exit.transport.is_secure() && is_sips(message.request_uri());
    if entry.sent_by != exit.sent_by || entry.transport != exit.transport {
        match is_secure {
            false => value.extend_from_slice(&exit.route),
            true => begin_secure_route(&mut value, exit),
        }
        value.extend_from_slice(b">, ");
    }
    match is_secure {
        false => value.extend_from_slice(&entry.route),
        true => begin_secure_route(&mut value, entry),
    }
    let params = [
        (DIALOG_PARAM, seal),
        (CALLER_PARAM, &caller),
        (CALLEE_PARAM, &callee),
        (TRUNK_PARAM, &trunk),
        (TARGET_PARAM, &target),
    ];
    for (name, text) in params {
        if !text.is_empty() {
            for part in [b";", name.as_bytes(), b"=", text] {
                value.extend_from_slice(part);
            }
        }
    }
    value.push(b'>');
    value
}

//= rfc3261#16.6:sips
/// Writes our URI up to its `lr`, as `sips` where the listener is secure.
// Never inlined: few dialogs are secured end to end.
#[inline(never)]
fn begin_secure_route(value: &mut RecordRoute, own: &Listener) {
    if !own.transport.is_secure() {
        return value.extend_from_slice(&own.route);
    }
    value.extend_from_slice(b"<sips:");
    value.extend_from_slice(&own.sent_by);
    if own.transport == Transport::Wss {
        value.extend_from_slice(b";transport=ws");
    }
    value.extend_from_slice(b";lr");
}

/// Returns whether a URI has the scheme `sips`, with which every hop must be secure (RFC 5630 §3.1.1).
#[must_use]
#[inline]
pub fn is_sips(uri: &[u8]) -> bool {
    uri.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"sips:"))
}

//= rfc5626#5.1:token
/// Returns a Path that leads back over `flow` only (RFC 5626 §5.1).
#[must_use]
pub fn path(ring: &KeyRing, listener: &Listener, flow: &Flow, outbound: bool) -> RecordRoute {
    let mut value = RecordRoute::new();
    value.extend_from_slice(b"<sip:");
    value.extend_from_slice(&flow_token::sign(ring, flow));
    value.push(b'@');
    value.extend_from_slice(&listener.sent_by);
    value.extend_from_slice(transport_param(listener.transport).as_bytes());
    //= rfc5626#5.1:ob
    value.extend_from_slice(if outbound { b";lr;ob>" } else { b";lr>" });
    value
}
