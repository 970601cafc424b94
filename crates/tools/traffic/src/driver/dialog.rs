//! The dialog of a session, as it is kept: one buffer of the other party, the next URI and the route set.

use std::net::SocketAddr;

use strowger_message::{Head, HeaderName, NameAddr, SipUri, Uri, split_list};

/// What a dialog's buffer holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    /// The value of To or From of the other party, with its tag.
    pub peer: &'a [u8],
    /// The remote target; empty where the other party said none.
    pub next: &'a [u8],
    /// The Route line, its end included; empty where there is no route set.
    pub routes: &'a [u8],
}

/// Two lengths of 16 bits in front.
const FRONT: usize = 4;

/// Reads a buffer.
pub(super) fn parts(buffer: &[u8]) -> Parts<'_> {
    let Some((front, rest)) = buffer.split_first_chunk::<FRONT>() else { return Parts::default() };
    let (peer, next) = (u16::from_be_bytes([front[0], front[1]]), u16::from_be_bytes([front[2], front[3]]));
    let (peer, rest) = rest.split_at_checked(usize::from(peer)).unwrap_or_default();
    let (next, routes) = rest.split_at_checked(usize::from(next)).unwrap_or_default();
    Parts { peer, next, routes }
}

/// Takes the dialog from a message: from a response by who sent the request, from a request by who answers it.
pub(super) fn store_dialog(buffer: &mut Vec<u8>, head: &Head<'_>, is_response: bool) {
    buffer.clear();
    let party = if is_response { HeaderName::To } else { HeaderName::From };
    let peer = head.first(party).unwrap_or(&[]);
    let contact = head.first(HeaderName::Contact).and_then(NameAddr::parse_first).map(|(addr, _)| addr.uri);
    let next = contact.unwrap_or(&[]);
    let length = |part: &[u8]| u16::try_from(part.len()).unwrap_or(0).to_be_bytes();
    buffer.extend_from_slice(&length(peer));
    buffer.extend_from_slice(&length(next));
    buffer.extend_from_slice(peer);
    buffer.extend_from_slice(next);
    let mut routes = head.elements(HeaderName::RecordRoute).peekable();
    if routes.peek().is_none() {
        return;
    }
    buffer.extend_from_slice(b"Route: ");
    //= rfc3261#12.1.2
    // The caller takes the route set in reverse order.
    if is_response {
        let all: Vec<_> = routes.collect();
        for (index, route) in all.iter().rev().enumerate() {
            if index > 0 {
                buffer.extend_from_slice(b", ");
            }
            buffer.extend_from_slice(route);
        }
    } else {
        for (index, route) in routes.enumerate() {
            if index > 0 {
                buffer.extend_from_slice(b", ");
            }
            buffer.extend_from_slice(route);
        }
    }
    buffer.extend_from_slice(b"\r\n");
}

/// Where requests inside the dialog go: to the first route, else to the remote target, where that is an address.
pub(super) fn destination(buffer: &[u8]) -> Option<SocketAddr> {
    let parts = parts(buffer);
    let route = parts.routes.strip_prefix(b"Route: ").and_then(|routes| split_list(routes).next());
    let uri = match route {
        Some(route) => NameAddr::parse(route.trim_ascii())?.uri,
        None => parts.next,
    };
    let Uri::Sip(uri) = Uri::parse(uri)? else { return None };
    address_of(&uri)
}

fn address_of(uri: &SipUri<'_>) -> Option<SocketAddr> {
    let ip = uri.host().ip()?;
    Some(SocketAddr::new(ip, uri.port().unwrap_or(5060)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialog_is_taken_from_either_side() {
        let text = b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP a\r\nRecord-Route: <sip:127.0.0.2;lr>\r\nRecord-Route: <sip:127.0.0.1:7;lr>, <sip:c>\r\n\
            From: <sip:a@a>;tag=1\r\nTo: <sip:b@b>;tag=2\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\nContact: <sip:b@127.0.0.9:99>\r\n\r\n";
        let head = Head::scan(text).expect("valid");
        let mut buffer = Vec::new();
        store_dialog(&mut buffer, &head, true);
        let found = parts(&buffer);
        assert_eq!((found.peer, found.next), (&b"<sip:b@b>;tag=2"[..], &b"sip:b@127.0.0.9:99"[..]));
        assert_eq!(found.routes, b"Route: <sip:c>, <sip:127.0.0.1:7;lr>, <sip:127.0.0.2;lr>\r\n");
        assert_eq!(destination(&buffer), None, "the first route is a name");
        store_dialog(&mut buffer, &head, false);
        assert_eq!(parts(&buffer).peer, b"<sip:a@a>;tag=1");
        assert_eq!(destination(&buffer), Some(SocketAddr::from(([127, 0, 0, 2], 5060))));
    }
}
