//! Where a URI says that it is reached.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use strowger_foundation::Transport;
use strowger_locate::LocateQuery;
use strowger_message::{Host, SipUri};

/// Returns the host that a URI is reached by; `maddr` takes precedence (RFC 3261 §19.1.1).
pub(crate) fn host_of<'a>(uri: &SipUri<'a>) -> Option<Host<'a>> {
    host_or(uri, uri.params.value("maddr"))
}

pub(crate) fn host_or<'a>(uri: &SipUri<'a>, maddr: Option<&'a [u8]>) -> Option<Host<'a>> {
    match maddr {
        Some(maddr) => Host::parse(maddr),
        None => Some(uri.host()),
    }
}

/// Returns the transport that a URI names: inner `None` if it names none, outer `None` if it names an unknown one, or
/// one that a `sips` URI cannot have.
pub(crate) fn transport_of(uri: &SipUri<'_>) -> Option<Option<Transport>> {
    transport_named(uri, uri.params.value("transport"))
}

pub(crate) fn transport_named(uri: &SipUri<'_>, named: Option<&[u8]>) -> Option<Option<Transport>> {
    match (named, uri.secure) {
        (None, false) => Some(None),
        (None, true) => Some(Some(Transport::Tls)),
        (Some(token), secure) => match (Transport::from_token(token)?, secure) {
            //= rfc3261#26.2.2
            // A datagram cannot be secure.
            (Transport::Udp, true) => None,
            (Transport::Tcp, true) => Some(Some(Transport::Tls)),
            (Transport::Ws, true) => Some(Some(Transport::Wss)),
            (transport, _) => Some(Some(transport)),
        },
    }
}

/// Returns the DNS query for a URI whose host is a name.
pub(crate) fn question_of(uri: &SipUri<'_>) -> Option<LocateQuery> {
    let Host::Name(name) = host_of(uri)? else { return None };
    let host = name.strip_suffix(b".").unwrap_or(name);
    Some(LocateQuery {
        host: host.iter().map(u8::to_ascii_lowercase).collect(),
        port: uri.port(),
        transport: transport_of(uri)?,
        is_secure: uri.secure,
    })
}

/// Returns the literal address of a URI, with the default port of its transport.
pub(crate) fn peer_of(uri: &SipUri<'_>) -> Option<SocketAddr> {
    let [named, maddr] = uri.params.values(["transport", "maddr"]);
    literal_address(uri, maddr, transport_named(uri, named)?.unwrap_or(Transport::Udp))
}

/// Returns the literal address that a URI names, with the default port of `transport`.
pub(crate) fn literal_address(uri: &SipUri<'_>, maddr: Option<&[u8]>, transport: Transport) -> Option<SocketAddr> {
    let ip = host_or(uri, maddr)?.ip().filter(|ip| is_one_host(*ip))?;
    Some(SocketAddr::new(ip, uri.port().unwrap_or(transport.default_port())))
}

/// Returns whether an address in a message can belong to a single host; the server never sends to broadcast or
/// multicast addresses.
pub(crate) fn is_one_host(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    !ip.is_unspecified() && !ip.is_multicast() && ip != IpAddr::V4(Ipv4Addr::BROADCAST)
}
