//! Route pre-processing and the next hop (RFC 3261 §16.4, §16.6 steps 6 and 7, §16.12).

use smallvec::SmallVec;
use strowger_foundation::{KeyRing, Tag};
use strowger_message::{HeaderName, Message, NameAddr, SipUri, Uri};

/// The URI parameter of our Record-Route that proves the dialog to be one that came through here.
const DIALOG_PARAM: &str = "dlg";

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
        let mut set =
            Self { request_uri: message.request_uri(), from_last: false, ours: 0, remaining: routes, proven: false };
        //= rfc3261#16.4
        // A strict router has put our Record-Route into the Request-URI: the real target is the last Route.
        if let Some(Uri::Sip(uri)) = Uri::parse(set.request_uri)
            && is_own_route(&uri, &is_us)
            && let Some(last) = set.remaining.pop()
        {
            set.proven = proves(ring, &uri, message.call_id());
            set.request_uri = last;
            set.from_last = true;
        }
        while let Some(Uri::Sip(uri)) = set.remaining.first().and_then(|route| Uri::parse(route))
            && is_us(&uri)
        {
            set.proven |= proves(ring, &uri, message.call_id());
            set.remaining.remove(0);
            set.ours = set.ours.saturating_add(1);
        }
        Some(set)
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

fn proves(ring: &KeyRing, uri: &SipUri<'_>, call_id: &[u8]) -> bool {
    let tag = uri.params.value(DIALOG_PARAM).and_then(Tag::from_text);
    tag.is_some_and(|tag| ring.verify(&[b"dialog", call_id], &tag))
}

/// The value of our Record-Route for a call.
#[must_use]
pub fn record_route(ring: &KeyRing, sent_by: &[u8], call_id: &[u8]) -> SmallVec<[u8; 96]> {
    let tag = ring.current().sign(&[b"dialog", call_id]).to_text();
    let mut value = SmallVec::new();
    for part in [&b"<sip:"[..], sent_by, b";lr;", DIALOG_PARAM.as_bytes(), b"=", &tag, b">"] {
        value.extend_from_slice(part);
    }
    value
}
