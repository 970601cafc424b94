//! Messages sent by clients.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::wire::{hops, tag, value};

/// Purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// An INVITE.
    Call,
    /// A REGISTER.
    Registration,
    /// A BYE.
    HangUp,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Call, Self::Registration, Self::HangUp];

    const fn method(self) -> &'static str {
        match self {
            Self::Call => "INVITE",
            Self::Registration => "REGISTER",
            Self::HangUp => "BYE",
        }
    }
}

/// Key of a request, recovered from the branch of its responses.
pub(super) type Key = (Kind, u64);

/// Builds a branch that encodes the request and the number of the attempt.
fn branch((kind, number): Key, attempt: usize) -> String {
    format!("z9hG4bK-{}-{number}-{attempt}", kind.method())
}

/// Returns the request that a response answers, from the branch.
pub(super) fn key_of(response: &str) -> Option<Key> {
    let mut parts = value(response, "Via").split("branch=z9hG4bK-").nth(1)?.split(['-', ';']);
    let method = parts.next()?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.method() == method)?;
    Some((kind, parts.next()?.parse().ok()?))
}

/// Builds an INVITE to a user, or a REGISTER of a user with the contact `contact`. Each attempt is the same request
/// in a new transaction (RFC 3263 §4.3).
pub(super) fn first(key: Key, attempt: usize, user: &str, own: SocketAddr, contact: SocketAddr) -> String {
    let (kind, number) = key;
    let (method, branch) = (kind.method(), branch(key, attempt));
    let (uri, from, contact) = match kind {
        Kind::Registration => ("sip:example.com".to_owned(), user, format!("<sip:{user}@{contact}>")),
        Kind::Call | Kind::HangUp => (format!("sip:{user}@example.com"), "caller", format!("<sip:caller@{own}>")),
    };
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch={branch};rport\r\nMax-Forwards: 70\r\nFrom: <sip:{from}@example.com>;\
         tag=c{number}\r\nTo: <sip:{user}@example.com>\r\nCall-ID: {method}-{number}\r\nCSeq: 1 {method}\r\nContact: {contact}\r\n\
         Expires: 3600\r\nContent-Length: 0\r\n\r\n"
    )
}

/// Builds the ACK to a final response to an INVITE: for a failure with the INVITE's branch (RFC 3261 §17.1.1.3), for
/// a success along the recorded route (§13.2.2.4).
pub(super) fn acknowledge(invite: &str, response: &str, own: SocketAddr, is_success: bool) -> String {
    if is_success {
        return in_dialog("ACK", "z9hG4bK-ACK", 1, response, own);
    }
    let (uri, via) = (invite.split(' ').nth(1).unwrap_or_default(), value(invite, "Via"));
    let [from, to, call_id] = [value(invite, "From"), value(response, "To"), value(invite, "Call-ID")];
    format!(
        "ACK {uri} SIP/2.0\r\nVia: {via}\r\nMax-Forwards: 70\r\nFrom: {from}\r\nTo: {to}\r\nCall-ID: {call_id}\r\nCSeq: 1 ACK\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

/// Builds the BYE of a call answered by this response.
pub(super) fn hang_up(number: u64, response: &str, own: SocketAddr) -> String {
    in_dialog("BYE", &branch((Kind::HangUp, number), 0), 2, response, own)
}

fn in_dialog(method: &str, branch: &str, cseq: u32, response: &str, own: SocketAddr) -> String {
    let target = value(response, "Contact").trim_matches(['<', '>']);
    let unique = tag(response, "From");
    let mut text =
        format!("{method} {target} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch={branch}-{unique}\r\nMax-Forwards: 70\r\n");
    let route: Vec<_> = hops(response, "Record-Route").collect();
    for hop in route.iter().rev() {
        // Writing to a String cannot fail.
        let _ = write!(text, "Route: {hop}\r\n");
    }
    let [from, to, call_id] = ["From", "To", "Call-ID"].map(|name| value(response, name));
    text + &format!(
        "From: {from}\r\nTo: {to}\r\nCall-ID: {call_id}\r\nCSeq: {cseq} {method}\r\nContent-Length: 0\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_matched_by_branch() {
        let own = SocketAddr::from(([127, 0, 0, 1], 5060));
        for kind in Kind::ALL {
            assert_eq!(key_of(&first((kind, 7), 2, "bob", own, own)), Some((kind, 7)));
        }
        let answer = "SIP/2.0 200 OK\r\nRecord-Route: <sip:b;lr>, <sip:a;lr>\r\nFrom: <sip:x@y>;tag=c7\r\nTo: <sip:z@y>;tag=t\r\n\
                      Contact: <sip:z@h>\r\nCall-ID: c\r\n\r\n";
        let bye = hang_up(7, answer, own);
        assert_eq!(key_of(&bye), Some((Kind::HangUp, 7)));
        assert_eq!(hops(&bye, "Route").collect::<Vec<_>>(), ["<sip:a;lr>", "<sip:b;lr>"]);
        assert_eq!(key_of("SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK-other\r\n\r\n"), None);
    }
}
