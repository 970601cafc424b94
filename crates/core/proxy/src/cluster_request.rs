//! What a member of one cluster asks of another cluster, in a Route that only members can write.
//!
//! Users are spread over clusters. A member passes a request for a user of another cluster on to that one, which asks the cluster that had
//! the user before. The Route `<sip:DOMAIN;lr;asked=…>` says what is asked: who is the second to be asked deals with the request by what it
//! knows itself, so that members that disagree on who has a user never pass a request to and fro. It is signed for one request, and says
//! that the sender of the request has been asked for credentials where that was due, but for a REGISTER.

use strowger_foundation::{KeyRing, Tag};
use strowger_message::{Message, Method, SipUri};

/// The URI parameter that says what is asked, signed.
const CLUSTER_REQUEST_PARAM: &str = "asked";
/// The URI parameter that names the bindings that are known already.
const KNOWN_BINDINGS_PARAM: &str = "except";
/// Hexadecimal digits of a [`BindingId`].
const DIGITS: usize = 8;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterRequestKind {
    /// To serve the request as the cluster that has the user. Whom that one asks in turn is asked to [serve](Self::Serve) it.
    ServeAsOwner,
    /// To serve the request by what is known there, and to ask nobody.
    ServeLocally,
    /// To remove the bindings that the REGISTER removes, which its sender was allowed to.
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

/// The request that a Route is written for; it says nothing of any other one.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'m> {
    method: &'m [u8],
    call_id: &'m [u8],
    /// The URI in To of a REGISTER, else the Request-URI.
    uri: &'m [u8],
}

impl<'m> Subject<'m> {
    /// That of `message`, which goes on with this Request-URI. What belongs to an INVITE (ACK, CANCEL) has the same.
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

/// What tells a binding of an address of record from others, as members with one key agree on: see [`Inquiry::excepts`].
pub type BindingId = u32;

/// What a Route of a member asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterRequest<'a> {
    /// What.
    pub kind: ClusterRequestKind,
    except: &'a [u8],
}

impl<'a> ClusterRequest<'a> {
    /// Reads the parameters of a Route of ours; `None` where no member wrote them for this request.
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

    /// Whether who asks knows this binding already.
    #[must_use]
    pub fn has_known_binding(&self, id: BindingId) -> bool {
        self.except.as_chunks::<DIGITS>().0.contains(&hexadecimal(id))
    }
}

/// The Route of a request that is passed to another cluster for a user of `domain`, with the bindings of the user that
/// are known here.
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

    /// Reads a Route, and hands on what it asks.
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
    fn a_route_of_a_member_says_what_is_asked() {
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
    fn nobody_else_can_write_one() {
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
