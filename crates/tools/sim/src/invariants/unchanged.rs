//! Changes to a message that a proxy may make; all others are violations.

use strowger_message::{HeaderName, Message};

use super::{Rule, Verdict};
use crate::invariants::broken_unless;
use crate::ladder::summary;

/// Returns a response as it must leave.
pub(super) fn without_top_via(message: &Message<'_>) -> Vec<u8> {
    let head = message.head();
    let Some(field) = head.fields().iter().find(|field| field.name == HeaderName::Via) else { return Vec::new() };
    let line = head.line(field);
    let at = head.position_of(line);
    let mut bytes = message.bytes().to_vec();
    bytes.drain(at..at + line.len());
    bytes
}

/// Compares a request as received and as sent. A change of transport adds two Record-Route values (RFC 5658).
pub(super) fn check_request(came: &Message<'_>, left: &Message<'_>, crossed: bool) -> Verdict {
    let broken = |what: &str| format!("{what}: {}", summary(left.bytes()));
    let check = |holds, what| broken_unless(holds, Rule::RequestUnchanged, || broken(what));
    //= rfc3261#16.6:body
    check(came.body() == left.body(), "another body")?;
    //= rfc3261#16.6:copies-fields
    //= rfc3261#16.6:removes-nothing
    //= rfc3261#16.6:order
    //= rfc3261#16.6:order-of-values
    check(lines(came) == lines(left), "other header lines")?;
    let hops = came.max_forwards().map_or(70, |hops| hops.saturating_sub(1));
    //= rfc3261#16.6:decrements-max-forwards
    check(left.max_forwards() == Some(hops), "not one hop less")?;
    check(routes_end_alike(came, left), "other Routes")?;
    let record_routes = |message: &Message<'_>| message.head().elements(HeaderName::RecordRoute).count();
    let (added, recorded) = (record_routes(left) - record_routes(came), 1 + usize::from(crossed));
    check(added == 0 || added == recorded, "other Record-Routes")?;
    let vias = |message: &Message<'_>| message.head().elements(HeaderName::Via).count();
    //= rfc3261#16.6:via
    check(vias(left) == vias(came) + 1, "not one Via more")?;
    let below = |message: &Message<'_>, skipped| -> Vec<Vec<u8>> {
        message.head().elements(HeaderName::Via).skip(skipped).map(<[u8]>::to_vec).collect()
    };
    //= rfc3261#16.6:order-of-values
    //= rfc3261#16.6:via
    check(below(came, 1) == below(left, 2), "other Vias below")?;
    // Within a dialog the Request-URI is the peer's own address.
    let same_uri = came.to().tag().is_none() || came.request_uri() == left.request_uri();
    check(same_uri, "another Request-URI")
}

/// Returns the header fields that a proxy must not change, in order.
fn lines<'a>(message: &'a Message<'_>) -> Vec<&'a [u8]> {
    let head = message.head();
    let others = head.fields().iter().filter(|field| {
        !matches!(
            field.name,
            HeaderName::Via
                | HeaderName::MaxForwards
                | HeaderName::MaxBreadth
                | HeaderName::Route
                | HeaderName::RecordRoute
                | HeaderName::ProxyAuthorization
                | HeaderName::PAssertedIdentity
        )
    });
    others.map(|field| head.line(field)).collect()
}

/// Returns whether Route values were removed only from the top.
fn routes_end_alike(came: &Message<'_>, left: &Message<'_>) -> bool {
    let routes = |message: &Message<'_>| -> Vec<Vec<u8>> {
        message.head().elements(HeaderName::Route).map(<[u8]>::to_vec).collect()
    };
    routes(came).ends_with(&routes(left))
}
