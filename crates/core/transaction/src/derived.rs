//! Requests that a client transaction derives from its own: the ACK to a failure, and the CANCEL.

use strowger_message::{Head, HeaderName, StartLine, Via};

use crate::key::cseq_digits;

/// The Max-Forwards of a request that originates here (RFC 3261 §8.1.1.6).
const MAX_FORWARDS: &[u8] = b"70";

/// Appends the ACK to a failure of `invite`, with the response's To. Returns `None` if the stored bytes are not a
/// request; `out` is then undefined.
//= rfc3261#17.1.1.3:same-request
//= rfc3261#17.1.1.3:to
//= rfc3261#17.1.1.3:via
//= rfc3261#17.1.1.3:cseq
// Call-ID, From and Request-URI are the INVITE's, To the response's. One Via, the INVITE's topmost. The CSeq number
// with the method ACK. The INVITE's Route fields.
pub(crate) fn write_ack(invite: &[u8], to: &[u8], out: &mut Vec<u8>) -> Option<()> {
    write(invite, b"ACK", Some(to), out)
}

/// Appends the CANCEL of `invite`.
//= rfc3261#9.1
// Request-URI, Call-ID, To, CSeq number and From are the INVITE's, including tags. One Via, the INVITE's topmost, so
// that the CANCEL matches. The Route fields too. No Require and no Proxy-Require.
pub(crate) fn write_cancel(invite: &[u8], out: &mut Vec<u8>) -> Option<()> {
    write(invite, b"CANCEL", None, out)
}

//= rfc3261#8.2.2.3:none-in-cancel
//= rfc3261#16.6:cancel-and-ack
fn write(invite: &[u8], method: &[u8], to: Option<&[u8]>, out: &mut Vec<u8>) -> Option<()> {
    let head = Head::scan(invite).ok()?;
    let StartLine::Request { uri, .. } = head.start() else { return None };
    //= rfc5393#4.2.1:same-branch
    let (via, _) = Via::parse_first(head.first(HeaderName::Via)?)?;
    let to = match to {
        Some(to) => to,
        None => head.first(HeaderName::To)?,
    };
    append(out, &[method, b" ", uri, b" SIP/2.0\r\nVia: ", via.text, b"\r\n"]);
    //= rfc3261#17.1.1.3:route
    for route in head.all(HeaderName::Route) {
        append(out, &[b"Route: ", route, b"\r\n"]);
    }
    append(out, &[b"Max-Forwards: ", MAX_FORWARDS, b"\r\nFrom: ", head.first(HeaderName::From)?, b"\r\nTo: ", to]);
    append(out, &[b"\r\nCall-ID: ", head.first(HeaderName::CallId)?, b"\r\nCSeq: ", cseq_digits(&head)?, b" ", method]);
    //= rfc3261#17.1.1.3:no-body
    append(out, &[b"\r\nContent-Length: 0\r\n\r\n"]);
    Some(())
}

fn append(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}
