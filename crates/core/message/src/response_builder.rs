//! Building responses that the server generates itself (RFC 3261 §8.2.6).

use std::io::Write as _;

use crate::head::{Field, Head};
use crate::header::HeaderName;
use crate::status::Status;
use crate::text::{self, Decimal};

/// The start of a status line, before the status.
const VERSION: &[u8] = b"SIP/2.0 ";
/// The end of a response without a body.
const END: &[u8] = b"Content-Length: 0\r\n\r\n";

/// Writes a response into a buffer: the status line and the fields copied from the request first, then the caller's
/// headers, then [`finish`](Self::finish).
#[derive(Debug)]
pub struct ResponseBuilder<'b> {
    out: &'b mut Vec<u8>,
    /// Start and end of the copied fields.
    copied: (usize, usize),
    /// Maximum length of the response in bytes.
    limit: usize,
}

/// Positions in a response of what its request does not determine: the status and the server's own header fields.
/// Together with the request they suffice to [rebuild](ResponseBuilder::rebuild) the response.
#[derive(Clone, Copy, Debug)]
pub struct OwnFields {
    copied: (usize, usize),
    end: usize,
}

impl OwnFields {
    /// Whether the server has added header fields.
    #[must_use]
    pub const fn has_headers(&self) -> bool {
        self.copied.1 < self.end
    }

    /// Returns the parts at these positions, to be stored together.
    #[must_use]
    pub fn slices<'r>(&self, response: &'r [u8]) -> [&'r [u8]; 2] {
        let (copied, behind) = self.copied;
        [VERSION.len()..copied, behind..self.end].map(|part| response.get(part).unwrap_or(&[]))
    }
}

impl<'b> ResponseBuilder<'b> {
    //= rfc3261#8.2.6.2:from
    //= rfc3261#8.2.6.2:call-id
    //= rfc3261#8.2.6.2:cseq
    //= rfc3261#8.2.6.2:vias
    //= rfc3261#8.2.6.2:to-uri
    /// Starts a response to `request`. Copies every Via, From, To, Call-ID and CSeq; `to_tag` is added to a To
    /// without a tag, except in a 100. `top_via` replaces the value of the top Via, to add `received` and `rport`.
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
        let start = out.len();
        let mut copy = FieldCopier { out, request, run: (0, 0) };
        let mut top_via = top_via;
        for field in request.fields() {
            match field.name {
                HeaderName::Via => match top_via.take() {
                    Some(top) => copy.via(field, top),
                    None => copy.field(b"Via: ", field),
                },
                HeaderName::To => match to_tag {
                    //= rfc3261#17.2.1:no-tag
                    //= rfc3261#8.2.6.2:to-with-tag
                    //= rfc3261#8.2.6.2:to-tag
                    tag if tag.is_empty() || status == Status::TRYING || has_tag(request.value(field)) => {
                        copy.field(b"To: ", field);
                    }
                    tag => copy.to(field, tag),
                },
                HeaderName::From => copy.field(b"From: ", field),
                HeaderName::CallId => copy.field(b"Call-ID: ", field),
                HeaderName::CSeq => copy.field(b"CSeq: ", field),
                //= rfc3261#8.2.6.1:timestamp
                HeaderName::Timestamp if status == Status::TRYING => copy.field(b"Timestamp: ", field),
                _ => {}
            }
        }
        copy.flush();
        let copied = (start, out.len());
        Self { out, copied, limit: usize::MAX }
    }

    /// Rebuilds a response for a retransmitted request from `kept`, the [own fields](OwnFields) of the first
    /// response. Returns `None` if `kept` is not such a value.
    #[must_use]
    pub fn rebuild(
        out: &'b mut Vec<u8>,
        request: &Head<'_>,
        kept: &[u8],
        to_tag: &[u8],
        top_via: Option<&[u8]>,
    ) -> Option<OwnFields> {
        let (line, [b'\r', b'\n', lines @ ..]) = kept.split_at_checked(text::find_line_end(kept)?)? else {
            return None;
        };
        let (code, [b' ', reason @ ..]) = line.split_at_checked(3)? else { return None };
        let status = text::parse_decimal(code).and_then(|code| u16::try_from(code).ok()).and_then(Status::new)?;
        let reason = core::str::from_utf8(reason).ok()?;
        Some(Self::begin(out, request, status, reason, to_tag, top_via).lines(lines).finish())
    }

    /// From here on, omits [optional](Self::optional) header fields that would make the whole response longer than
    /// `bytes`.
    #[must_use]
    pub const fn with_limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Appends whole header lines.
    #[inline]
    #[must_use]
    pub fn lines(self, lines: &[u8]) -> Self {
        self.out.extend_from_slice(lines);
        self
    }

    /// Appends a header field.
    #[must_use]
    pub fn header(self, name: &str, value: &[&[u8]]) -> Self {
        write_field(self.out, name.as_bytes(), value);
        self
    }

    /// Appends a header field if it [fits](Self::with_limit).
    #[must_use]
    pub fn optional(self, name: &str, value: &[&[u8]]) -> Self {
        let before = self.out.len();
        let reply = self.header(name, value);
        reply.truncate_to_limit(before)
    }

    /// Appends a header field with a formatted value if it fits.
    #[must_use]
    pub fn optional_fmt(self, name: &str, value: core::fmt::Arguments<'_>) -> Self {
        let before = self.out.len();
        let reply = self.header_fmt(name, value);
        reply.truncate_to_limit(before)
    }

    /// Maximum length of the response in bytes, applied to [optional](Self::optional) header fields.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Number of bytes left for header fields within the [limit](Self::with_limit).
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.limit.saturating_sub(self.out.len().saturating_add(END.len()))
    }

    /// Appends whole header lines if they [fit](Self::with_limit).
    #[must_use]
    pub fn optional_lines(self, lines: &[u8]) -> Self {
        let before = self.out.len();
        let reply = self.lines(lines);
        reply.truncate_to_limit(before)
    }

    fn truncate_to_limit(self, before: usize) -> Self {
        if self.out.len().saturating_add(END.len()) > self.limit {
            self.out.truncate(before);
        }
        self
    }

    /// Appends a header field with a formatted value.
    #[must_use]
    pub fn header_fmt(self, name: &str, value: core::fmt::Arguments<'_>) -> Self {
        let _ = write!(self.out, "{name}: {value}\r\n");
        self
    }

    /// Ends the response without a body. Returns the positions of the server's own parts, for callers that store
    /// them.
    #[inline]
    pub fn finish(self) -> OwnFields {
        let Self { out, copied, .. } = self;
        let end = out.len();
        out.extend_from_slice(END);
        OwnFields { copied, end }
    }
}

fn write_status_line(out: &mut Vec<u8>, status: Status, reason: &str) {
    if status == Status::OK && reason == "OK" {
        out.extend_from_slice(b"SIP/2.0 200 OK\r\n");
        return;
    }
    // A status has three digits.
    for part in [VERSION, Decimal::new(u32::from(status.code())).as_bytes(), b" ", reason.as_bytes(), b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Copies fields of a request. Adjacent fields that are already in canonical form are copied in one run.
struct FieldCopier<'b, 'r, 'a> {
    out: &'b mut Vec<u8>,
    request: &'r Head<'a>,
    /// Start and end of the run that is copied next.
    run: (usize, usize),
}

impl FieldCopier<'_, '_, '_> {
    /// Copies a field as `name` (including colon and space) and its value.
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
            // The run stops before the line end, which is copied with what follows.
            self.run.1 = end;
            self.write(&[b";tag=", tag]);
            self.run = (end, end.saturating_add(2));
        } else {
            self.out.truncate(self.out.len().saturating_sub(2));
            self.write(&[b";tag=", tag, b"\r\n"]);
        }
    }

    /// Copies a Via field and replaces its topmost value.
    fn via(&mut self, field: &Field, top: &[u8]) {
        let value = self.request.value(field);
        // In a list only the first value is replaced.
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
    // A value that ends with a bracket has no parameters.
    !value.ends_with(b">")
        && match crate::name_addr::NameAddr::parse(value) {
            Some(addr) => addr.tag().is_some() || addr.params.find("tag").is_some(),
            // A response needs exactly one To tag. A malformed To gets none if it already contains `;tag=`.
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

    //= rfc3261#8.2.6.2:from
    //= rfc3261#8.2.6.2:call-id
    //= rfc3261#8.2.6.2:cseq
    //= rfc3261#8.2.6.2:vias
    //= rfc3261#8.2.6.2:to-uri
    //= rfc3261#8.2.6.2:to-tag
    #[test]
    fn required_headers_are_copied() {
        let head = Head::scan(REQUEST).expect("valid");
        let mut out = Vec::new();
        ResponseBuilder::begin(&mut out, &head, Status::OK, "OK", b"tt", Some(b"SIP/2.0/UDP a;rport=5"))
            .header("X", &[b"1"])
            .finish();
        assert_eq!(
            String::from_utf8(out).expect("ASCII"),
            "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP a;rport=5 , SIP/2.0/TCP z\r\nVia: SIP/2.0/UDP y\r\n\
             From: <sip:a@a>;tag=1\r\nTo: <sip:b@b>;tag=tt\r\nCall-ID: c\r\nCSeq: 1 OPTIONS\r\nX: 1\r\nContent-Length: 0\r\n\r\n"
        );
    }

    #[test]
    fn optional_headers_that_do_not_fit_are_omitted() {
        let head = Head::scan(REQUEST).expect("valid");
        let made = |limit: usize| {
            let mut out = Vec::new();
            let reply = ResponseBuilder::begin(&mut out, &head, Status::OK, "OK", b"tt", None).with_limit(limit);
            let own =
                reply.optional("A", &[b"long ", b"value"]).optional_lines(b"B: 1\r\n").header("C", &[b"2"]).finish();
            assert!(own.has_headers());
            (String::from_utf8(out).expect("ASCII"), own)
        };
        let (whole, _) = made(usize::MAX);
        assert!(whole.ends_with("A: long value\r\nB: 1\r\nC: 2\r\nContent-Length: 0\r\n\r\n"), "{whole}");
        let without_c = whole.len() - 6;
        assert_eq!(made(without_c).0, whole, "what is not optional is there, whatever the limit");
        assert_eq!(made(without_c - 1).0, whole.replace("B: 1\r\n", ""));
        assert_eq!(made(without_c - 7).0, whole.replace("A: long value\r\n", ""), "a shorter one may fit");
        assert_eq!(made(0).0, whole.replace("A: long value\r\nB: 1\r\n", ""));
    }

    #[test]
    fn a_response_is_rebuilt_from_its_own_headers() {
        let head = Head::scan(REQUEST).expect("valid");
        for (reason, lines) in [("OK", &b"X: 1\r\nY: 2\r\n"[..]), ("Why Not", b"")] {
            let (mut first, mut again) = (Vec::new(), b"before".to_vec());
            let own =
                ResponseBuilder::begin(&mut first, &head, Status::OK, reason, b"tt", Some(b"a")).lines(lines).finish();
            let kept = own.slices(&first).concat();
            assert_eq!(kept, [b"200 ", reason.as_bytes(), b"\r\n", lines].concat());
            ResponseBuilder::rebuild(&mut again, &head, &kept, b"tt", Some(b"a")).expect("was kept");
            assert_eq!(again, first);
        }
        for broken in ["", "200 OK", "200\r\n", "2x0 OK\r\n", "099 OK\r\n"] {
            assert!(
                ResponseBuilder::rebuild(&mut Vec::new(), &head, broken.as_bytes(), b"tt", None).is_none(),
                "{broken}"
            );
        }
    }

    #[test]
    fn a_400_for_a_broken_to_has_one_tag() {
        for (to, expected) in [
            ("<sip:b@b", "To: <sip:b@b;tag=tt\r\n"),
            ("\"B <sip:b@b>;x", "To: \"B <sip:b@b>;x;tag=tt\r\n"),
            ("\"B <sip:b@b>;Tag=its", "To: \"B <sip:b@b>;Tag=its\r\n"),
        ] {
            let request = format!("OPTIONS sip:b SIP/2.0\r\nTo: {to}\r\n\r\n");
            let head = Head::scan(request.as_bytes()).expect("its lines are sound");
            let mut out = Vec::new();
            ResponseBuilder::begin(&mut out, &head, Status::BAD_REQUEST, "Bad To", b"tt", None).finish();
            let text = String::from_utf8(out).expect("ASCII");
            assert!(text.contains(expected), "{text}");
        }
    }

    //= rfc3261#17.2.1:no-tag
    //= rfc3261#8.2.6.2:to-with-tag
    #[test]
    fn a_to_with_a_tag_stays_as_it_is() {
        for to in ["<sip:b@b>;tag=its", "\"B\" <sip:b@b;x=1> ; Tag=its;y", "sip:b@b;tag=its"] {
            let request = format!("OPTIONS sip:b SIP/2.0\r\nTo: {to}\r\n\r\n");
            let head = Head::scan(request.as_bytes()).expect("valid");
            let mut out = Vec::new();
            ResponseBuilder::begin(&mut out, &head, Status::OK, "OK", b"tt", None).finish();
            let text = String::from_utf8(out).expect("ASCII");
            assert!(text.contains(&format!("\r\nTo: {to}\r\n")), "{text}");
        }
    }

    //= rfc3261#8.2.6.1:timestamp
    #[test]
    fn a_100_has_the_timestamp_and_no_tag() {
        let head = Head::scan(REQUEST).expect("valid");
        let mut out = Vec::new();
        ResponseBuilder::begin(&mut out, &head, Status::TRYING, "Trying", b"tt", None).finish();
        let text = String::from_utf8(out).expect("ASCII");
        assert!(text.contains("To: <sip:b@b>\r\n") && text.contains("Timestamp: 5\r\n"), "{text}");
    }
}
