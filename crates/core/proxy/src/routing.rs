//! Route pre-processing and the next hop (RFC 3261 §16.4, §16.6 steps 6 and 7, §16.12).

use smallvec::SmallVec;
use strowger_foundation::{Flow, KeyRing, Tag};
use strowger_message::{HeaderName, Message, NameAddr, SipUri, Uri, split_list};

use crate::flow_token;
use crate::listener::{Listener, transport_param};

/// The URI parameter of our Record-Route that proves the dialog to be one that came through here.
const DIALOG_PARAM: &str = "dlg";
/// The parameters that keep the flows by which the caller and the callee are reached.
const CALLER_PARAM: &str = "caller";
const CALLEE_PARAM: &str = "callee";
/// The parameter that names the trunk of the callee.
const TRUNK_PARAM: &str = "trunk";

/// How a request is routed once our own Routes are off.
#[derive(Clone, Debug)]
pub struct RouteSet<'a> {
    /// The Request-URI that counts: the request's own, or the one that a strict router put at the end of its Routes.
    pub request_uri: &'a [u8],
    /// Whether that came from the last Route, which then goes.
    pub from_last: bool,
    /// Leading Routes that name us, and go.
    pub ours: usize,
    /// The Routes that remain, as URIs.
    pub remaining: SmallVec<[&'a [u8]; 4]>,
    /// Whether a Route of ours proved that the dialog was set up through here.
    pub proven: bool,
    /// The flow on which the other side of a proven dialog is reached, where its Contact does not say enough.
    pub outside: Option<Flow>,
    /// The flow of a token of ours: a Path or a Service-Route led the request here (RFC 5626 §5.3).
    pub token: Option<Flow>,
    /// The last of our own Routes: the side of ours on which the request leaves (RFC 5658 §5).
    pub exit: Option<SipUri<'a>>,
    /// The trunk that the dialog goes through, as its id.
    pub trunk: Option<u32>,
}

/// The ends of a dialog that are reached by their flow: behind a translation, or on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outsides {
    /// Who began the dialog.
    pub caller: Option<Flow>,
    /// Who was called.
    pub callee: Option<Flow>,
    /// The trunk through which the callee is reached.
    pub trunk: Option<u32>,
}

impl<'a> RouteSet<'a> {
    /// Reads the Routes; `is_us` says whether a URI's host and port are a listener of ours. `None` where a Route breaks
    /// its grammar.
    #[must_use]
    pub fn read(ring: &KeyRing, message: &Message<'a>, is_us: impl Fn(&SipUri<'_>) -> bool) -> Option<Self> {
        let mut routes: SmallVec<[&'a [u8]; 4]> = SmallVec::new();
        for value in message.head().all(HeaderName::Route) {
            for element in split_list(value) {
                routes.push(NameAddr::parse(element)?.uri);
            }
        }
        let mut set = Self {
            request_uri: message.request_uri(),
            from_last: false,
            ours: 0,
            remaining: routes,
            proven: false,
            outside: None,
            token: None,
            exit: None,
            trunk: None,
        };
        //= rfc3261#16.4
        // A strict router has put our Record-Route into the Request-URI: the real target is the last Route.
        if let Some(Uri::Sip(uri)) = message.uri()
            && is_own_route(uri, &is_us)
            && let Some(last) = set.remaining.pop()
        {
            set.take_proof(ring, message, uri);
            set.request_uri = last;
            set.from_last = true;
        }
        while let Some(Uri::Sip(uri)) = set.remaining.get(set.ours).and_then(|route| Uri::parse(route))
            && is_us(&uri)
        {
            set.take_proof(ring, message, &uri);
            set.token = uri.user.and_then(|user| flow_token::verify(ring, user)).or(set.token);
            set.exit = Some(uri);
            set.ours = set.ours.saturating_add(1);
        }
        set.remaining.drain(..set.ours);
        Some(set)
    }

    /// Looks whether `uri`, a Route of ours, was written for the dialog that the request belongs to. Who was once called
    /// knows the Route of that call: it must open no other, so a request that begins one is never proven.
    fn take_proof(&mut self, ring: &KeyRing, message: &Message<'_>, uri: &SipUri<'_>) {
        let Some(to) = message.to().tag() else { return };
        let [dialog, caller, callee, trunk] =
            uri.params.values([DIALOG_PARAM, CALLER_PARAM, CALLEE_PARAM, TRUNK_PARAM]).map(Option::unwrap_or_default);
        let Some(tag) = Tag::from_text(dialog) else { return };
        let begun_by = |who: &[u8]| ring.verify(&[b"dialog", message.call_id(), who, caller, callee, trunk], &tag);
        let (outside, towards_callee) = if begun_by(message.from().tag().unwrap_or(&[])) {
            (callee, true)
        } else if begun_by(to) {
            (caller, false)
        } else {
            return;
        };
        self.proven = true;
        self.outside = flow_token::decode(outside).or(self.outside);
        let trunk = core::str::from_utf8(trunk).ok().and_then(|text| text.parse().ok());
        self.trunk = trunk.filter(|_| towards_callee).or(self.trunk);
    }

    /// The same Routes once more, of a request that was read before.
    #[must_use]
    pub(crate) fn again(message: &Message<'a>, ours: usize, from_last: bool) -> Self {
        let routes = message.head().elements(HeaderName::Route).filter_map(NameAddr::parse);
        let mut remaining: SmallVec<[&'a [u8]; 4]> = routes.map(|route| route.uri).collect();
        let last = if from_last { remaining.pop() } else { None };
        remaining.drain(..ours.min(remaining.len()));
        Self {
            request_uri: last.unwrap_or(message.request_uri()),
            from_last,
            ours,
            remaining,
            proven: false,
            outside: None,
            token: None,
            exit: None,
            trunk: None,
        }
    }

    /// The URI that decides where the request goes next: the first remaining Route, else the Request-URI.
    #[must_use]
    pub fn next_hop(&self) -> &'a [u8] {
        self.remaining.first().copied().unwrap_or(self.request_uri)
    }

    /// Whether the next hop is a strict router: a Route without `lr`.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        let next = self.remaining.first().and_then(|route| Uri::parse(route));
        next.is_some_and(|uri| uri.sip().is_none_or(|uri| !uri.params.contains("lr")))
    }
}

fn is_own_route(uri: &SipUri<'_>, is_us: &impl Fn(&SipUri<'_>) -> bool) -> bool {
    uri.user.is_none() && uri.params.contains("lr") && is_us(uri)
}

/// A Record-Route value.
pub type RecordRoute = SmallVec<[u8; 256]>;

/// The value of our Record-Route for the dialog that `message` begins, which came in by `entry` and leaves by `exit`. It is
/// for both sides to send back: signed, so that nobody opens the server or chooses an address with it, and bound to the
/// caller's tag, which tells the sides apart.
///
/// Where the two sides of ours differ in transport, family or address there is a URI for each, so that each side is given
/// the one that it can reach (RFC 5658 §5).
#[must_use]
pub fn record_route(
    ring: &KeyRing,
    entry: &Listener,
    exit: &Listener,
    message: &Message<'_>,
    outsides: Outsides,
) -> RecordRoute {
    let text = |flow: Option<Flow>| flow.map(|flow| flow_token::encode(&flow)).unwrap_or_default();
    let (caller, callee) = (text(outsides.caller), text(outsides.callee));
    let trunk = outsides.trunk.map(|trunk| trunk.to_string().into_bytes()).unwrap_or_default();
    let begun_by = message.from().tag().unwrap_or(&[]);
    let tag = ring.current().sign(&[b"dialog", message.call_id(), begun_by, &caller, &callee, &trunk]).to_text();
    let mut value = RecordRoute::new();
    //= rfc5658#5
    if entry.sent_by != exit.sent_by || entry.transport != exit.transport {
        value.extend_from_slice(&exit.route);
        value.extend_from_slice(b">, ");
    }
    value.extend_from_slice(&entry.route);
    for (name, text) in
        [(DIALOG_PARAM, &tag[..]), (CALLER_PARAM, &caller), (CALLEE_PARAM, &callee), (TRUNK_PARAM, &trunk)]
    {
        if !text.is_empty() {
            for part in [b";", name.as_bytes(), b"=", text] {
                value.extend_from_slice(part);
            }
        }
    }
    value.push(b'>');
    value
}

/// A Path value that leads back over `flow` (RFC 5626 §5.1): what is sent to it goes nowhere else.
#[must_use]
pub fn path(ring: &KeyRing, listener: &Listener, flow: &Flow, outbound: bool) -> RecordRoute {
    let mut value = RecordRoute::new();
    value.extend_from_slice(b"<sip:");
    value.extend_from_slice(&flow_token::sign(ring, flow));
    value.push(b'@');
    value.extend_from_slice(&listener.sent_by);
    value.extend_from_slice(transport_param(listener.transport).as_bytes());
    value.extend_from_slice(if outbound { b";lr;ob>" } else { b";lr>" });
    value
}
