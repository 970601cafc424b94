//! Reachability of a contact: at its own address, or at the source of its REGISTER.

use core::net::SocketAddr;

use strowger_foundation::{Flow, Transport};
use strowger_message::{Host, NameAddr, SipUri, Uri};

use crate::policy::Nat;
use crate::update::{ContactUpdate, Update};
use crate::values::Source;

/// A binding's reachability data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reachability {
    pub(crate) flow: Flow,
    pub(crate) is_translated: bool,
}

impl Reachability {
    pub(crate) fn of(nat: Nat, source: &Source, update: &Update<'_>, contact: &ContactUpdate<'_>) -> Self {
        let Flow { listener, transport, peer, connection, .. } = source.flow;
        // With a Path, the other proxy handles NAT and flows.
        if !update.path.is_empty() {
            return Self { flow: Flow::new(listener, transport, peer), is_translated: false };
        }
        let outbound = contact.reg_id.is_some();
        let translated = outbound || is_translated(nat, source, &contact.uri);
        let Some(connection) = connection else {
            return Self { flow: Flow::new(listener, transport, peer), is_translated: translated };
        };
        //= rfc5626#6:flow-kept
        //= rfc7118#5
        // A client behind NAT, one that requested it, and one that can only connect, is reachable only over this
        // connection.
        if outbound || transport.is_web_socket() || translated && update.is_first_hop {
            let flow = Flow::on_connection(listener, transport, peer, connection);
            return Self { flow, is_translated: translated };
        }
        let peer = contact.uri.sip().and_then(|uri| literal_address(uri, transport)).unwrap_or(peer);
        let flow = Flow { reopen: true, ..Flow::on_connection(listener, transport, peer, connection) };
        Self { flow, is_translated: translated }
    }
}

/// Returns the URI whose address requests for `contact` are sent to: that of the contact, or the first of a Path;
/// `None` if they go to the source of the REGISTER.
#[must_use]
pub fn destination_uri<'a>(
    nat: Nat,
    source: &Source,
    update: &Update<'a>,
    contact: &ContactUpdate<'a>,
) -> Option<Uri<'a>> {
    if let Some(first) = update.path.first() {
        return NameAddr::parse(first)?.parse_uri();
    }
    let is_flow = contact.reg_id.is_some() || source.flow.transport.is_web_socket();
    let is_translated = is_translated(nat, source, &contact.uri);
    let by_source = match source.flow.connection {
        None => is_flow || is_translated,
        Some(_) => is_flow || is_translated && update.is_first_hop,
    };
    (!by_source).then_some(contact.uri)
}

/// Returns whether requests for the contact `uri` go to the source of its REGISTER.
#[must_use]
pub fn is_translated(nat: Nat, source: &Source, uri: &Uri<'_>) -> bool {
    match nat {
        // Its contact is a random name under `invalid`.
        _ if source.flow.transport.is_web_socket() => true,
        Nat::Never => false,
        Nat::Always => true,
        Nat::Auto => match uri {
            Uri::Sip(sip) => match sip.host() {
                Host::Ip(ip) => {
                    !source.via_sent_by_matches || ip.to_canonical() != source.flow.peer.ip().to_canonical()
                }
                // A client that registers a host name is reached at its source.
                Host::Name(_) => true,
            },
            Uri::Tel(_) => true,
            Uri::Other { .. } => false,
        },
    }
}

/// Returns the literal address of a URI; `maddr` takes precedence over the host (RFC 3261 §19.1.1).
fn literal_address(uri: &SipUri<'_>, transport: Transport) -> Option<SocketAddr> {
    let host = match uri.params.value("maddr") {
        Some(maddr) => Host::parse(maddr)?,
        None => uri.host(),
    };
    let default = if uri.secure { Transport::Tls } else { transport }.default_port();
    Some(SocketAddr::new(host.ip()?, uri.port().unwrap_or(default)))
}
