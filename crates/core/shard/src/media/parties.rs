//! The two ends of a call as an engine has to know them: browsers, and phones behind a NAT.

use core::net::IpAddr;

use strowger_foundation::Flow;
use strowger_media::{Profile, SessionKind, When};
use strowger_message::{HeaderName, Message, Method, NameAddr, Uri};
use strowger_proxy::{NextHopAddress, NextHopKind, Target};

/// Returns whether a target is a browser, as far as is known before names are resolved. Phones do not use WebSocket.
pub(super) fn is_browser_target(target: &Target) -> bool {
    match target.next_hops.first().map(|hop| &hop.address) {
        Some(NextHopAddress::Flow(flow)) => flow.transport.is_web_socket(),
        _ => false,
    }
}

//= rfc3264#4
/// Whether requests of this method, and their responses, may carry a description that an engine has to see.
pub(crate) fn may_carry_offer(method: Method<'_>) -> bool {
    matches!(method, Method::Invite | Method::Update | Method::Prack)
}

/// Returns how the engine rewrites a description from one party for another.
pub(super) const fn profile(is_from_browser: bool, is_to_browser: bool, received_from: Option<IpAddr>) -> Profile {
    let to = match (is_from_browser, is_to_browser) {
        (true, false) => SessionKind::Plain,
        (false, true) => SessionKind::Browser,
        _ => SessionKind::AsOffered,
    };
    Profile { to, is_to_browser, received_from }
}

/// Returns whether the media of a call go through an engine.
pub(super) fn applies(when: When, message: &Message<'_>, source: &Flow, targets: &[Target]) -> bool {
    let is_mixed = || targets.iter().any(|target| is_browser_target(target) != source.transport.is_web_socket());
    let is_translated = || translated_source(message, source).is_some() || targets.iter().any(is_behind_nat);
    match when {
        When::Never => false,
        When::Browser => is_mixed(),
        When::Nat => is_mixed() || is_translated(),
        When::Always => true,
    }
}

/// Returns whether a target is behind a NAT: its contact names another address than the one that it is reached at.
fn is_behind_nat(target: &Target) -> bool {
    let Some(hop) = target.next_hops.first() else { return false };
    let (NextHopAddress::Flow(flow), NextHopKind::Flow { .. }) = (&hop.address, hop.kind) else { return false };
    let uri = Uri::parse(&hop.request_uri);
    let host = uri.as_ref().and_then(Uri::sip).and_then(|uri| uri.host().ip());
    !flow.transport.is_web_socket() && host.is_some_and(|ip| ip.to_canonical() != flow.peer.ip().to_canonical())
}

/// Returns the source of a message from a phone behind a NAT: the addresses in its description are not reachable. A
/// phone behind another proxy is that proxy's business, and a browser finds its addresses by ICE.
pub(super) fn translated_source(message: &Message<'_>, source: &Flow) -> Option<IpAddr> {
    let ip = source.peer.ip().to_canonical();
    if source.transport.is_web_socket() {
        return None;
    }
    let contact = message.head().elements(HeaderName::Contact).next().and_then(NameAddr::parse);
    let contact = contact.and_then(|contact| contact.parse_uri());
    let host = contact.as_ref().and_then(Uri::sip).and_then(|uri| uri.host().ip()).map(|ip| ip.to_canonical());
    let has_private_contact = host.is_some_and(|host| is_private(host) && host != ip);
    if message.status().is_some() {
        return has_private_contact.then_some(ip);
    }
    let via = message.via().host().ip().map(|ip| ip.to_canonical());
    (message.has_one_via() && (has_private_contact || via.is_some_and(|via| via != ip))).then_some(ip)
}

/// Whether an address is not routed in the Internet (RFC 1918, RFC 6598, RFC 4193).
fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [first, second, ..] = ip.octets();
            ip.is_private() || (first == 100 && (64..128).contains(&second))
        }
        IpAddr::V6(ip) => ip.is_unique_local(),
    }
}
