//! Responses that the server makes itself (RFC 3261 §8.2.6).

use std::io::Write as _;

use crate::head::{Field, Head};
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
        write_status_line(out, status, reason);
        let mut copy = Copying { out, request, run: (0, 0) };
        let mut top_via = top_via;
        for field in request.fields() {
            match field.name {
                HeaderName::Via => match top_via.take() {
                    Some(top) => copy.via(field, top),
                    None => copy.field(b"Via: ", field),
                },
                HeaderName::To => match to_tag {
                    tag if tag.is_empty() || status == Status::TRYING || has_tag(request.value(field)) => {
                        copy.field(b"To: ", field);
                    }
                    tag => copy.to(field, tag),
                },
                HeaderName::From => copy.field(b"From: ", field),
                HeaderName::CallId => copy.field(b"Call-ID: ", field),
                HeaderName::CSeq => copy.field(b"CSeq: ", field),
                //= rfc3261#8.2.6.1
                HeaderName::Timestamp if status == Status::TRYING => copy.field(b"Timestamp: ", field),
                _ => {}
            }
        }
        copy.flush();
        Self { out }
    }

    /// Adds whole lines of header fields.
    #[must_use]
    pub fn lines(self, lines: &[u8]) -> Self {
        self.out.extend_from_slice(lines);
        self
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

fn write_status_line(out: &mut Vec<u8>, status: Status, reason: &str) {
    if status == Status::OK && reason == "OK" {
        out.extend_from_slice(b"SIP/2.0 200 OK\r\n");
        return;
    }
    // A status has three digits.
    for part in [b"SIP/2.0 ", Decimal::new(u32::from(status.code())).as_bytes(), b" ", reason.as_bytes(), b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Copies fields of a request. Those that stand there one after the other, written as they are to be, go at once.
struct Copying<'b, 'r, 'a> {
    out: &'b mut Vec<u8>,
    request: &'r Head<'a>,
    /// What of the request is to be copied next: from here to there.
    run: (usize, usize),
}

impl Copying<'_, '_, '_> {
    /// Copies a field as `name` (with its colon and a space) and its value.
    #[inline(always)]
    fn field<const NAME: usize>(&mut self, name: &[u8; NAME], field: &Field) {
        let (start, end) = (self.request.field_start(field), self.request.value_end(field).saturating_add(2));
        let is_usual = self.request.value_start(field) == start.saturating_add(NAME)
            && self.request.bytes().get(start..end).is_some_and(|line| {
                line.first_chunk::<NAME>() == Some(name) && line.last_chunk::<2>() == Some(b"\r\n")
            });
        if !is_usual {
            self.write(&[name, self.request.value(field), b"\r\n"]);
        } else if self.run.1 == start {
            self.run.1 = end;
        } else {
            self.flush();
            self.run = (start, end);
        }
    }

    fn to(&mut self, field: &Field, tag: &[u8]) {
        self.field(b"To: ", field);
        let end = self.request.value_end(field);
        if self.run.1 == end.saturating_add(2) {
            // All of it but the line's end, which goes with what follows.
            self.run.1 = end;
            self.write(&[b";tag=", tag]);
            self.run = (end, end.saturating_add(2));
        } else {
            self.out.truncate(self.out.len().saturating_sub(2));
            self.write(&[b";tag=", tag, b"\r\n"]);
        }
    }

    /// Copies a Via field with another topmost value.
    fn via(&mut self, field: &Field, top: &[u8]) {
        let value = self.request.value(field);
        // Of a list only the first value is replaced.
        let first = text::split_list(value).next().map_or(0, <[u8]>::len);
        self.write(&[b"Via: ", top, value.get(first..).unwrap_or(&[]), b"\r\n"]);
    }

    fn write(&mut self, parts: &[&[u8]]) {
        self.flush();
        parts.iter().for_each(|part| self.out.extend_from_slice(part));
    }

    fn flush(&mut self) {
        let (start, end) = core::mem::take(&mut self.run);
        self.out.extend_from_slice(self.request.bytes().get(start..end).unwrap_or(&[]));
    }
}

fn has_tag(value: &[u8]) -> bool {
    // Behind brackets at the end there is nothing.
    !value.ends_with(b">")
        && match crate::name_addr::NameAddr::parse(value) {
            Some(addr) => addr.tag().is_some() || addr.params.find("tag").is_some(),
            // What is broken elsewhere has one where it looks like it: it is refused, and the refusal needs one too.
            None => value.windows(5).any(|part| part.eq_ignore_ascii_case(b";tag=")),
        }
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
    fn a_refusal_of_a_broken_to_has_one_tag() {
        for (to, expected) in [
            ("<sip:b@b", "To: <sip:b@b;tag=tt\r\n"),
            ("\"B <sip:b@b>;x", "To: \"B <sip:b@b>;x;tag=tt\r\n"),
            ("\"B <sip:b@b>;Tag=its", "To: \"B <sip:b@b>;Tag=its\r\n"),
        ] {
            let request = format!("OPTIONS sip:b SIP/2.0\r\nTo: {to}\r\n\r\n");
            let head = Head::scan(request.as_bytes()).expect("its lines are sound");
            let mut out = Vec::new();
            Reply::begin(&mut out, &head, Status::BAD_REQUEST, "Bad To", b"tt", None).finish();
            let text = String::from_utf8(out).expect("ASCII");
            assert!(text.contains(expected), "{text}");
        }
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
