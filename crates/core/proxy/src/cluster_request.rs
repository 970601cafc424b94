//! Requests between clusters: the question of one cluster's member to another cluster, in a Route that only members
//! can write.
//!
//! Users are partitioned over clusters. A member forwards a request for another cluster's user to that cluster, which
//! in turn asks the cluster that had the user before. The Route `<sip:DOMAIN;lr;asked=…>` states what is requested.
//! The second cluster that is asked decides by its own data alone, so members that disagree about a user never
//! forward a request in a loop. The Route is signed for one request. It also asserts that the sender was
//! authenticated if required, except for a REGISTER.

use strowger_foundation::{KeyRing, Tag};
use strowger_message::{Message, Method, SipUri};

/// The URI parameter with the kind of request, signed.
const CLUSTER_REQUEST_PARAM: &str = "asked";
/// The URI parameter that lists the bindings already known.
const KNOWN_BINDINGS_PARAM: &str = "except";
/// Number of hexadecimal digits of a [`BindingId`].
const DIGITS: usize = 8;

/// What the receiving cluster shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterRequestKind {
    /// Serve the request as the owner of the user. A cluster asked in turn gets [`ServeLocally`](Self::ServeLocally).
    ServeAsOwner,
    /// Serve the request from local data and ask no other cluster.
    ServeLocally,
    /// Remove the bindings that the REGISTER removes; its sender was authorized.
    RemoveBindings,
}

impl ClusterRequestKind {
    const fn letter(self) -> u8 {
        match self {
            Self::ServeAsOwner => b'o',
            Self::ServeLocally => b's',
            Self::RemoveBindings => b'r',
        }
    }
}

/// The request that a Route is valid for.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'m> {
    method: &'m [u8],
    call_id: &'m [u8],
    /// The To URI of a REGISTER, otherwise the Request-URI.
    uri: &'m [u8],
}

impl<'m> Subject<'m> {
    /// Returns the subject of `message`, forwarded with this Request-URI. An ACK or CANCEL has that of its INVITE.
    #[must_use]
    pub fn of(message: &'m Message<'_>, request_uri: &'m [u8]) -> Self {
        let (method, uri) = match message.method() {
            Method::Register => (Method::Register, message.to().uri),
            Method::Ack | Method::Cancel => (Method::Invite, request_uri),
            method => (method, request_uri),
        };
        Self { method: method.as_bytes(), call_id: message.call_id(), uri }
    }

    const fn parts(&self, ask: &'m [u8], except: &'m [u8]) -> [&'m [u8]; 6] {
        [b"asked", ask, self.method, self.call_id, self.uri, except]
    }
}

/// Identifies a binding of an address of record among members with the same key; see
/// [`ClusterRequest::has_known_binding`].
pub type BindingId = u32;

/// The content of a member's Route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterRequest<'a> {
    /// What is requested.
    pub kind: ClusterRequestKind,
    except: &'a [u8],
}

impl<'a> ClusterRequest<'a> {
    /// Parses the parameters of one of our Routes; `None` if no member wrote them for this request.
    #[must_use]
    pub fn read(ring: &KeyRing, subject: &Subject<'_>, uri: &SipUri<'a>) -> Option<Self> {
        let [asked, except] = uri.params.values([CLUSTER_REQUEST_PARAM, KNOWN_BINDINGS_PARAM]);
        let (letter, text) = asked?.split_first()?;
        let ask =
            [ClusterRequestKind::ServeAsOwner, ClusterRequestKind::ServeLocally, ClusterRequestKind::RemoveBindings]
                .into_iter()
                .find(|ask| ask.letter() == *letter)?;
        let except = except.unwrap_or_default();
        let tag = Tag::from_text(text)?;
        ring.verify(&subject.parts(&[ask.letter()], except), &tag).then_some(Self { kind: ask, except })
    }

    /// Whether the sender already knows this binding.
    #[must_use]
    pub fn has_known_binding(&self, id: BindingId) -> bool {
        self.except.as_chunks::<DIGITS>().0.contains(&hexadecimal(id))
    }
}

/// Returns the Route for a request forwarded to another cluster for a user of `domain`, listing the user's bindings
/// known here.
#[must_use]
pub fn route(
    ring: &KeyRing,
    domain: &[u8],
    subject: &Subject<'_>,
    ask: ClusterRequestKind,
    known: impl IntoIterator<Item = BindingId>,
) -> Box<[u8]> {
    let except: Vec<u8> = known.into_iter().flat_map(hexadecimal).collect();
    let tag = ring.current().sign(&subject.parts(&[ask.letter()], &except)).to_text();
    let mut route = Vec::with_capacity(64 + domain.len() + except.len());
    for part in [&b"<sip:"[..], domain, b";lr;", CLUSTER_REQUEST_PARAM.as_bytes(), b"=", &[ask.letter()], &tag] {
        route.extend_from_slice(part);
    }
    if !except.is_empty() {
        [b";", KNOWN_BINDINGS_PARAM.as_bytes(), b"=", &except].iter().for_each(|part| route.extend_from_slice(part));
    }
    route.push(b'>');
    route.into()
}

fn hexadecimal(id: BindingId) -> [u8; DIGITS] {
    let mut digits = *b"00000000";
    for (at, digit) in digits.iter_mut().rev().enumerate() {
        let value = id >> (4 * at) & 15;
        *digit = b"0123456789abcdef".get(value as usize).copied().unwrap_or(b'0');
    }
    digits
}

#[cfg(test)]
mod tests {
    use strowger_foundation::TagKey;
    use strowger_message::{NameAddr, Uri};

    use super::*;

    fn ring(secret: u8) -> KeyRing {
        KeyRing::new(TagKey::new([secret; 16]))
    }

    const INVITE: Subject<'_> = Subject { method: b"INVITE", call_id: b"call", uri: b"sip:bob@example.com" };

    /// Parses a Route and passes its request to `then`.
    fn asked<T>(
        ring: &KeyRing,
        subject: &Subject<'_>,
        route: &[u8],
        then: impl Fn(Option<ClusterRequest<'_>>) -> T,
    ) -> T {
        let Some(Uri::Sip(uri)) = NameAddr::parse(route).and_then(|route| route.parse_uri()) else { panic!("a Route") };
        then(ClusterRequest::read(ring, subject, &uri))
    }

    #[test]
    fn a_members_route_carries_its_request() {
        let ring = ring(5);
        for ask in
            [ClusterRequestKind::ServeAsOwner, ClusterRequestKind::ServeLocally, ClusterRequestKind::RemoveBindings]
        {
            let route = route(&ring, b"example.com", &INVITE, ask, [7, 0xdead_beef]);
            asked(&ring, &INVITE, &route, |asked| {
                let asked = asked.unwrap();
                assert_eq!(asked.kind, ask);
                assert_eq!([7, 0xdead_beef, 8].map(|id| asked.has_known_binding(id)), [true, true, false]);
            });
        }
    }

    #[test]
    fn forged_routes_are_refused() {
        let route = route(&ring(5), b"example.com", &INVITE, ClusterRequestKind::ServeLocally, [7]);
        asked(&ring(6), &INVITE, &route, |asked| assert_eq!(asked, None, "another key"));
        for other in [
            Subject { call_id: b"other", ..INVITE },
            Subject { method: b"MESSAGE", ..INVITE },
            Subject { uri: b"sip:carol@example.com", ..INVITE },
        ] {
            asked(&ring(5), &other, &route, |asked| assert_eq!(asked, None, "{other:?}"));
        }
        let text = String::from_utf8(route.to_vec()).unwrap();
        for (from, to) in [("asked=s", "asked=r"), ("except=00000007", "except=00000008"), (";except=00000007", "")] {
            let forged = text.replace(from, to);
            asked(&ring(5), &INVITE, forged.as_bytes(), |asked| assert_eq!(asked, None, "{forged}"));
        }
        asked(&ring(5), &INVITE, b"<sip:example.com;lr>", |asked| assert_eq!(asked, None));
        asked(&ring(5), &INVITE, b"<sip:example.com;lr;asked=s>", |asked| assert_eq!(asked, None));
    }
}
