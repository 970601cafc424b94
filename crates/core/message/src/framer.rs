//! Message framing: one set of rules for datagrams and streams (RFC 3261 §18.3, §20.14).

use crate::fault::Fault;
use crate::head::{Head, MAX_HEAD};
use crate::header::HeaderName;
use crate::text;

/// Longest message accepted from a stream, head and body, in bytes.
pub const MAX_STREAM_MESSAGE: usize = 262_144;

/// What the start of a stream's buffer contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameResult {
    /// An incomplete message; wait for more bytes.
    Incomplete,
    /// Line ends between messages, a keep-alive (RFC 5626 §3.5.1): the number of bytes to skip.
    KeepAlive(usize),
    /// A complete message; its length in bytes.
    Message(usize),
    /// The stream cannot be framed beyond this point: respond if possible and close the connection.
    Malformed(Fault),
}

/// Looks for a message at the start of a stream's buffer. Rejects a head longer than [`MAX_HEAD`] or a message longer
/// than [`MAX_STREAM_MESSAGE`] without waiting for the rest.
#[must_use]
pub fn frame_stream(buffer: &[u8]) -> FrameResult {
    let line_ends = buffer.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    if line_ends > 0 {
        return FrameResult::KeepAlive(line_ends);
    }
    let window = buffer.get(..MAX_HEAD).unwrap_or(buffer);
    if memchr::memmem::find(window, b"\r\n\r\n").is_none() {
        return if window.len() < buffer.len() {
            FrameResult::Malformed(Fault::HeadTooLong)
        } else {
            FrameResult::Incomplete
        };
    }
    let head = match Head::scan(buffer) {
        Ok(head) => head,
        Err(fault) => return FrameResult::Malformed(fault),
    };
    if !head.is_sip_2_0() {
        return FrameResult::Malformed(Fault::Version);
    }
    let body = match content_length(&head) {
        Ok(Some(length)) => length,
        //= rfc3261#18.3:content-length
        // On a stream only Content-Length marks the end of a message.
        Ok(None) => return FrameResult::Malformed(Fault::Missing("Content-Length")),
        Err(fault) => return FrameResult::Malformed(fault),
    };
    let length = head.len().saturating_add(body);
    if length > MAX_STREAM_MESSAGE {
        return FrameResult::Malformed(Fault::TooLarge);
    }
    if buffer.len() < length { FrameResult::Incomplete } else { FrameResult::Message(length) }
}

/// Returns the length of a datagram's body: Content-Length, or the rest of the datagram without one. Bytes past
/// Content-Length are ignored.
pub(crate) fn datagram_body(head: &Head<'_>) -> Result<usize, Fault> {
    match content_length(head)? {
        None => Ok(head.rest().len()),
        Some(length) => fit_datagram(head, length),
    }
}

//= rfc3261#18.3:short-response
//= rfc3261#18.3:short-request
/// Returns the same for a known Content-Length.
pub(crate) fn fit_datagram(head: &Head<'_>, length: usize) -> Result<usize, Fault> {
    if length <= head.rest().len() { Ok(length) } else { Err(Fault::ContentLength) }
}

/// Returns the Content-Length. Rejects repeated ones even if they agree: the next hop may interpret them differently.
fn content_length(head: &Head<'_>) -> Result<Option<usize>, Fault> {
    let value = head.only(HeaderName::ContentLength).map_err(|_| Fault::ContentLength)?;
    let Some(value) = value else { return Ok(None) };
    let length = text::parse_decimal(value).and_then(|length| usize::try_from(length).ok());
    length.map(Some).ok_or(Fault::ContentLength)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"OPTIONS sip:a@b SIP/2.0\r\n";

    fn stream(fields: &str, body: &str) -> FrameResult {
        frame_stream(&[HEAD, fields.as_bytes(), b"\r\n", body.as_bytes()].concat())
    }

    #[test]
    fn a_stream_is_cut_by_content_length() {
        let head = HEAD.len() + "l: 3\r\n\r\n".len();
        assert_eq!(stream("l: 3\r\n", "abcOPTIONS"), FrameResult::Message(head + 3));
        assert_eq!(stream("l: 3\r\n", "ab"), FrameResult::Incomplete);
        assert_eq!(frame_stream(b"OPTIONS sip:a@b SI"), FrameResult::Incomplete);
        assert_eq!(frame_stream(b"\r\n\r\nOPTIONS"), FrameResult::KeepAlive(4));
        assert_eq!(frame_stream(b""), FrameResult::Incomplete);
    }

    //= rfc3261#18.3:content-length
    #[test]
    fn an_invalid_length_breaks_the_stream() {
        assert_eq!(stream("", ""), FrameResult::Malformed(Fault::Missing("Content-Length")));
        for bad in ["-1", "+1", "1 2", "x", "", "99999999999999999999999"] {
            assert_eq!(stream(&format!("l: {bad}\r\n"), ""), FrameResult::Malformed(Fault::ContentLength), "{bad}");
        }
        assert_eq!(stream("l: 3\r\nContent-Length: 3\r\n", "abc"), FrameResult::Malformed(Fault::ContentLength));
        assert_eq!(stream("l: 99999999\r\n", ""), FrameResult::Malformed(Fault::TooLarge));
        assert_eq!(frame_stream(&[b'x'; MAX_HEAD + 1]), FrameResult::Malformed(Fault::HeadTooLong));
    }
}
