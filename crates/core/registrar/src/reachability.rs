//! Reachability of a contact: at its own address, or at the source of its REGISTER.

use core::net::SocketAddr;

use strowger_foundation::{Flow, Transport};
use strowger_message::{Host, SipUri, Uri};

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
        // A client behind NAT, or one that requested it, is reachable only over this connection.
        if outbound || translated && update.is_first_hop {
            let flow = Flow::on_connection(listener, transport, peer, connection);
            return Self { flow, is_translated: translated };
        }
        let peer = contact.uri.sip().and_then(|uri| literal_address(uri, transport)).unwrap_or(peer);
        let flow = Flow { listener, transport, reopen: true, peer, connection: Some(connection) };
        Self { flow, is_translated: translated }
    }
}

/// Returns whether requests for the contact `uri` go to the source of its REGISTER.
#[must_use]
pub fn is_translated(nat: Nat, source: &Source, uri: &Uri<'_>) -> bool {
    match nat {
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
