//! Responses that the server makes itself (RFC 3261 §8.2.6).

use std::io::Write as _;

use crate::head::Head;
use crate::header::HeaderName;
use crate::status::Status;
use crate::text::{self, Decimal};

/// Writes one response into a buffer: the status line and what is copied from the request at once, then the caller's own
/// headers, then [`finish`](Self::finish).
#[derive(Debug)]
pub struct Reply<'b> {
    out: &'b mut Vec<u8>,
}

impl<'b> Reply<'b> {
    /// Begins a response to `request`: every Via, From, To (with `to_tag` where the request's has none, and it is not a
    /// 100), Call-ID and CSeq are copied as they are. `received` and `rport` go into the top Via by `top_via`, the text that stands
    /// for its whole value.
    #[must_use]
    pub fn begin(
        out: &'b mut Vec<u8>,
        request: &Head<'_>,
        status: Status,
        reason: &str,
        to_tag: &[u8],
        top_via: Option<&[u8]>,
    ) -> Self {
        out.clear();
        // A status has three digits.
        for part in [b"SIP/2.0 ", Decimal::new(u32::from(status.code())).as_bytes(), b" ", reason.as_bytes(), b"\r\n"] {
            out.extend_from_slice(part);
        }
        let mut top_via = top_via;
        for field in request.fields() {
            match field.name {
                HeaderName::Via => copy_via(out, request.value(field), top_via.take()),
                HeaderName::To => {
                    let value = request.value(field);
                    let tag = if status == Status::TRYING || has_tag(value) { &[] } else { to_tag };
                    write_field(out, b"To", &[value, if tag.is_empty() { b"" } else { b";tag=" }, tag]);
                }
                HeaderName::From => write_field(out, b"From", &[request.value(field)]),
                HeaderName::CallId => write_field(out, b"Call-ID", &[request.value(field)]),
                HeaderName::CSeq => write_field(out, b"CSeq", &[request.value(field)]),
                //= rfc3261#8.2.6.1
                HeaderName::Timestamp if status == Status::TRYING => {
                    write_field(out, b"Timestamp", &[request.value(field)]);
                }
                _ => {}
            }
        }
        Self { out }
    }

    /// Adds a header field.
    #[must_use]
    pub fn header(self, name: &str, value: &[&[u8]]) -> Self {
        write_field(self.out, name.as_bytes(), value);
        self
    }

    /// Adds a header field with a formatted value.
    #[must_use]
    pub fn header_fmt(self, name: &str, value: core::fmt::Arguments<'_>) -> Self {
        let _ = write!(self.out, "{name}: {value}\r\n");
        self
    }

    /// Ends the response, without a body.
    pub fn finish(self) {
        self.out.extend_from_slice(b"Content-Length: 0\r\n\r\n");
    }
}

fn copy_via(out: &mut Vec<u8>, value: &[u8], top: Option<&[u8]>) {
    match top {
        None => write_field(out, b"Via", &[value]),
        Some(top) => {
            // Of a list only the first value is replaced.
            let first = text::split_list(value).next().map_or(0, <[u8]>::len);
            write_field(out, b"Via", &[top, value.get(first..).unwrap_or(&[])]);
        }
    }
}

fn has_tag(value: &[u8]) -> bool {
    crate::name_addr::NameAddr::parse(value)
        .is_none_or(|addr| addr.tag().is_some() || addr.params.find("tag").is_some())
}

fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[&[u8]]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    for part in value {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &[u8] = b"OPTIONS sip:b SIP/2.0\r\nv: SIP/2.0/UDP a;rport , SIP/2.0/TCP z\r\nVia: SIP/2.0/UDP y\r\n\
        f: <sip:a@a>;tag=1\r\nt: <sip:b@b>\r\ni: c\r\nCSeq: 1 OPTIONS\r\nTimestamp: 5\r\nX: no\r\n\r\n";

    #[test]
    fn what_must_be_copied_is_copied() {
        let head = Head::scan(REQUEST).expect("valid");
        let mut out = Vec::new();
        Reply::begin(&mut out, &head, Status::OK, "OK", b"tt", Some(b"SIP/2.0/UDP a;rport=5"))
            .header("X", &[b"1"])
            .finish();
        assert_eq!(
            String::from_utf8(out).expect("ASCII"),
            "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP a;rport=5 , SIP/2.0/TCP z\r\nVia: SIP/2.0/UDP y\r\n\
             From: <sip:a@a>;tag=1\r\nTo: <sip:b@b>;tag=tt\r\nCall-ID: c\r\nCSeq: 1 OPTIONS\r\nX: 1\r\nContent-Length: 0\r\n\r\n"
        );
    }

    #[test]
    fn a_100_has_the_timestamp_and_no_tag() {
        let head = Head::scan(REQUEST).expect("valid");
        let mut out = Vec::new();
        Reply::begin(&mut out, &head, Status::TRYING, "Trying", b"tt", None).finish();
        let text = String::from_utf8(out).expect("ASCII");
        assert!(text.contains("To: <sip:b@b>\r\n") && text.contains("Timestamp: 5\r\n"), "{text}");
    }
}
