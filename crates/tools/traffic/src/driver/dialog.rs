//! The dialog of a session, stored in one buffer: the other party, the remote target and the route set.

use std::net::SocketAddr;

use strowger_message::{Head, HeaderName, NameAddr, SipUri, Uri, split_list};

/// Contents of a dialog's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    /// The other party's To or From value, with its tag.
    pub peer: &'a [u8],
    /// Remote target; empty if the other party gave none.
    pub next: &'a [u8],
    /// The Route line with its line end; empty without a route set.
    pub routes: &'a [u8],
}

/// Length of the header: two 16-bit lengths.
const FRONT: usize = 4;

/// Parses a buffer.
pub(super) fn parts(buffer: &[u8]) -> Parts<'_> {
    let Some((front, rest)) = buffer.split_first_chunk::<FRONT>() else { return Parts::default() };
    let (peer, next) = (u16::from_be_bytes([front[0], front[1]]), u16::from_be_bytes([front[2], front[3]]));
    let (peer, rest) = rest.split_at_checked(usize::from(peer)).unwrap_or_default();
    let (next, routes) = rest.split_at_checked(usize::from(next)).unwrap_or_default();
    Parts { peer, next, routes }
}

/// Stores the dialog of a message: of a response at the sender of the request, of a request at its receiver.
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
    // The caller reverses the route set.
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

/// Returns the destination of requests inside the dialog: the first route, else the remote target, if that is an
/// address.
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
    fn a_dialog_is_read_from_either_side() {
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
