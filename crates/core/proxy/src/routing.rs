//! Route pre-processing and the next hop (RFC 3261 §16.4, §16.6 steps 6 and 7, §16.12).

use core::net::SocketAddr;
use std::io::Write as _;

use smallvec::SmallVec;
use strowger_foundation::{KeyRing, Tag};
use strowger_message::{HeaderName, Message, NameAddr, SipUri, Uri};

/// The URI parameter of our Record-Route that proves the dialog to be one that came through here.
const DIALOG_PARAM: &str = "dlg";
/// The parameters that keep the outside of the caller's and the callee's translation.
const CALLER_PARAM: &str = "caller";
const CALLEE_PARAM: &str = "callee";

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
    /// Where the other side of a proven dialog is reached, if a translation hides the address of its Contact.
    pub outside: Option<SocketAddr>,
}

/// The ends of a dialog that are behind a translation: requests for them go to its outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outsides {
    /// Who began the dialog.
    pub caller: Option<SocketAddr>,
    /// Who was called.
    pub callee: Option<SocketAddr>,
}

impl<'a> RouteSet<'a> {
    /// Reads the Routes; `is_us` says whether a URI's host and port are a listener of ours. `None` where a Route breaks
    /// its grammar.
    #[must_use]
    pub fn read(ring: &KeyRing, message: &Message<'a>, is_us: impl Fn(&SipUri<'_>) -> bool) -> Option<Self> {
        let mut routes: SmallVec<[&'a [u8]; 4]> = SmallVec::new();
        for element in message.head().elements(HeaderName::Route) {
            routes.push(NameAddr::parse(element)?.uri);
        }
        let mut set = Self {
            request_uri: message.request_uri(),
            from_last: false,
            ours: 0,
            remaining: routes,
            proven: false,
            outside: None,
        };
        //= rfc3261#16.4
        // A strict router has put our Record-Route into the Request-URI: the real target is the last Route.
        if let Some(Uri::Sip(uri)) = Uri::parse(set.request_uri)
            && is_own_route(&uri, &is_us)
            && let Some(last) = set.remaining.pop()
        {
            set.take_proof(ring, message, &uri);
            set.request_uri = last;
            set.from_last = true;
        }
        while let Some(Uri::Sip(uri)) = set.remaining.get(set.ours).and_then(|route| Uri::parse(route))
            && is_us(&uri)
        {
            set.take_proof(ring, message, &uri);
            set.ours = set.ours.saturating_add(1);
        }
        set.remaining.drain(..set.ours);
        Some(set)
    }

    /// Looks whether `uri`, a Route of ours, was written for the dialog that the request belongs to. Who was once called
    /// knows the Route of that call: it must open no other, so a request that begins one is never proven.
    fn take_proof(&mut self, ring: &KeyRing, message: &Message<'_>, uri: &SipUri<'_>) {
        let tag = uri.params.value(DIALOG_PARAM).and_then(Tag::from_text);
        let (Some(tag), Some(to)) = (tag, message.to().tag()) else { return };
        let param = |name| uri.params.value(name).unwrap_or(&[]);
        let (caller, callee) = (param(CALLER_PARAM), param(CALLEE_PARAM));
        let begun_by = |who: &[u8]| ring.verify(&[b"dialog", message.call_id(), who, caller, callee], &tag);
        let outside = if begun_by(message.from().tag().unwrap_or(&[])) {
            callee
        } else if begun_by(to) {
            caller
        } else {
            return;
        };
        self.proven = true;
        self.outside = core::str::from_utf8(outside).ok().and_then(|text| text.parse().ok()).or(self.outside);
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
pub type RecordRoute = SmallVec<[u8; 192]>;

/// The value of our Record-Route for the dialog that `message` begins. It is for both sides to send back: signed, so that
/// nobody opens the server or chooses an address with it, and bound to the caller's tag, which tells the sides apart.
#[must_use]
pub fn record_route(ring: &KeyRing, sent_by: &[u8], message: &Message<'_>, outsides: Outsides) -> RecordRoute {
    let text = |address: Option<SocketAddr>| -> SmallVec<[u8; 56]> {
        let mut text = SmallVec::new();
        if let Some(address) = address {
            let _ = write!(text, "{address}");
        }
        text
    };
    let (caller, callee) = (text(outsides.caller), text(outsides.callee));
    let begun_by = message.from().tag().unwrap_or(&[]);
    let tag = ring.current().sign(&[b"dialog", message.call_id(), begun_by, &caller, &callee]).to_text();
    let mut value = RecordRoute::new();
    for part in [&b"<sip:"[..], sent_by, b";lr"] {
        value.extend_from_slice(part);
    }
    for (name, text) in [(DIALOG_PARAM, &tag[..]), (CALLER_PARAM, &caller), (CALLEE_PARAM, &callee)] {
        if !text.is_empty() {
            let _ = write!(value, ";{name}=");
            value.extend_from_slice(text);
        }
    }
    value.push(b'>');
    value
}
