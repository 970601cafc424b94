//! The requests that a client transaction derives from its own: the ACK to a failure and the CANCEL.

use strowger_message::{Head, HeaderName, StartLine, Via};

use crate::key::cseq_digits;

/// RFC 3261 §8.1.1.6's value for a request that starts here.
const MAX_FORWARDS: &[u8] = b"70";

/// Appends the ACK to a failure of `invite`, whose To is the response's. `None`, with nothing written that matters, where
/// the kept bytes are no request.
//= rfc3261#17.1.1.3
// Call-ID, From and Request-URI equal the INVITE's, To the response's; one Via, the INVITE's topmost; the CSeq's number
// with the method ACK; the Route fields of the INVITE.
pub(crate) fn write_ack(invite: &[u8], to: &[u8], out: &mut Vec<u8>) -> Option<()> {
    write(invite, b"ACK", Some(to), out)
}

/// Appends the CANCEL of `invite`.
//= rfc3261#9.1
// Request-URI, Call-ID, To, the number of CSeq and From equal the INVITE's, tags included; one Via, the INVITE's
// topmost, so that it matches; the Route fields too. No Require and no Proxy-Require.
pub(crate) fn write_cancel(invite: &[u8], out: &mut Vec<u8>) -> Option<()> {
    write(invite, b"CANCEL", None, out)
}

fn write(invite: &[u8], method: &[u8], to: Option<&[u8]>, out: &mut Vec<u8>) -> Option<()> {
    let head = Head::scan(invite).ok()?;
    let StartLine::Request { uri, .. } = head.start() else { return None };
    let (via, _) = Via::parse_first(head.first(HeaderName::Via)?)?;
    let to = match to {
        Some(to) => to,
        None => head.first(HeaderName::To)?,
    };
    append(out, &[method, b" ", uri, b" SIP/2.0\r\nVia: ", via.text, b"\r\n"]);
    for route in head.all(HeaderName::Route) {
        append(out, &[b"Route: ", route, b"\r\n"]);
    }
    append(out, &[b"Max-Forwards: ", MAX_FORWARDS, b"\r\nFrom: ", head.first(HeaderName::From)?, b"\r\nTo: ", to]);
    append(out, &[b"\r\nCall-ID: ", head.first(HeaderName::CallId)?, b"\r\nCSeq: ", cseq_digits(&head)?, b" ", method]);
    append(out, &[b"\r\nContent-Length: 0\r\n\r\n"]);
    Some(())
}

fn append(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}
