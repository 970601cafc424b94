//! The lines of a message's head: its start line and header fields, found but not yet understood.

use smallvec::SmallVec;

use crate::fault::Fault;
use crate::header::HeaderName;
use crate::method::Method;
use crate::status::Status;
use crate::text;
use crate::via::Via;

/// The longest head in bytes, the final empty line included: spans are 16 bits wide.
pub const MAX_HEAD: usize = 65_535;
/// The most header fields in a message.
pub const MAX_FIELDS: usize = 256;
/// Fields that are kept without allocating; a usual INVITE has 14.
const INLINE_FIELDS: usize = 24;

/// The first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartLine<'a> {
    /// A request line.
    Request {
        /// The method.
        method: Method<'a>,
        /// The Request-URI as written; its grammar is checked by [`Message::parse`](crate::Message::parse).
        uri: &'a [u8],
    },
    /// A status line.
    Response {
        /// The status.
        status: Status,
        /// The reason phrase as written.
        reason: &'a [u8],
    },
}

/// Where a header field stands.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name, where it is known.
    pub name: HeaderName,
    line: (u16, u16),
    value: (u16, u16),
}

/// A message's head, and the bytes behind it.
#[derive(Clone, Debug)]
pub struct Head<'a> {
    bytes: &'a [u8],
    start: StartLine<'a>,
    start_end: u16,
    fields: SmallVec<[Field; INLINE_FIELDS]>,
    end: u16,
    is_sip_2_0: bool,
    /// The topmost Via, where [`Peek`](crate::Peek) has read it, so that it is read once.
    top_via: Option<Via<'a>>,
}

impl<'a> Head<'a> {
    /// Finds the lines of the head at the start of `bytes`.
    ///
    /// # Errors
    /// A [`Fault`] where there is no head to be found, or no start line of SIP.
    pub fn scan(bytes: &'a [u8]) -> Result<Self, Fault> {
        let window = bytes.get(..MAX_HEAD).unwrap_or(bytes);
        let first_end = line_end(window, 0, Fault::StartLine)?.ok_or(Fault::StartLine)?;
        let (start, is_sip_2_0) = parse_start_line(window.get(..first_end).unwrap_or(&[]))?;
        let start_end = first_end.saturating_add(2);
        let mut head = Self {
            bytes,
            start,
            start_end: narrow(start_end),
            fields: SmallVec::new(),
            end: 0,
            is_sip_2_0,
            top_via: None,
        };
        let mut at = start_end;
        loop {
            if let Some([b'\r', b'\n', ..]) = window.get(at..) {
                head.end = narrow(at.wrapping_add(2));
                return Ok(head);
            }
            let (field, next) = scan_field(window, at)?;
            if head.fields.len() == MAX_FIELDS {
                return Err(Fault::TooManyFields);
            }
            head.fields.push(field);
            at = next;
        }
    }

    /// The first line.
    #[must_use]
    pub const fn start(&self) -> StartLine<'a> {
        self.start
    }

    /// Whether a request is of SIP/2.0. One of another version is found here all the same, so that it can be answered
    /// (RFC 3261 §21.5.6); a response of another version is not.
    #[must_use]
    pub const fn is_sip_2_0(&self) -> bool {
        self.is_sip_2_0
    }

    /// Everything, from the first byte of the head to the last byte behind it.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// What stands behind the head's final empty line.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(usize::from(self.end)..).unwrap_or(&[])
    }

    /// Reads the topmost Via and keeps it.
    pub(crate) fn read_top_via(&mut self) -> Option<Via<'a>> {
        self.top_via = self.first(HeaderName::Via).and_then(Via::parse_first).map(|(via, _)| via);
        self.top_via
    }

    /// The topmost Via, where it was read already.
    pub(crate) const fn top_via(&self) -> Option<Via<'a>> {
        self.top_via
    }

    /// Cuts what stands behind the message: on datagrams, bytes past Content-Length (RFC 3261 §18.3).
    pub(crate) fn cut_rest(&mut self, length: usize) {
        let end = usize::from(self.end).saturating_add(length);
        self.bytes = self.bytes.get(..end).unwrap_or(self.bytes);
    }

    /// The length of the head, its final empty line included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.end as usize
    }

    /// Whether the head is empty, which a scanned one never is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// The byte after the start line's CRLF: the place for a field that must come before all others.
    #[must_use]
    pub const fn fields_start(&self) -> usize {
        self.start_end as usize
    }

    /// The byte before the final empty line: the place for a field that may come last.
    #[must_use]
    pub const fn fields_end(&self) -> usize {
        (self.end as usize).saturating_sub(2)
    }

    /// All fields in their order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The trimmed value of `field`.
    #[must_use]
    pub fn value(&self, field: &Field) -> &'a [u8] {
        self.slice(field.value)
    }

    /// The whole line of `field`, with its CRLF.
    #[must_use]
    pub fn line(&self, field: &Field) -> &'a [u8] {
        self.slice(field.line)
    }

    /// The values of all fields called `name`, each a whole header value (possibly a list), in their order.
    pub fn all(&self, name: HeaderName) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.fields.iter().filter(move |field| field.name == name).map(|field| self.value(field))
    }

    /// The value of the first field called `name`.
    #[must_use]
    pub fn first(&self, name: HeaderName) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// The elements of all fields called `name`, lists split at their commas.
    pub fn elements(&self, name: HeaderName) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.all(name).flat_map(text::split_list)
    }

    /// The value of a field that may stand once.
    ///
    /// # Errors
    /// [`Fault::Repeated`].
    pub fn only(&self, name: HeaderName) -> Result<Option<&'a [u8]>, Fault> {
        let mut values = self.all(name);
        let value = values.next();
        if value.is_some() && values.next().is_some() {
            return Err(Fault::Repeated(name.as_str()));
        }
        Ok(value)
    }

    /// Where `part`, a slice of this message, begins; its end is that plus its length.
    #[must_use]
    pub fn position_of(&self, part: &[u8]) -> usize {
        let at = part.as_ptr().addr().wrapping_sub(self.bytes.as_ptr().addr());
        debug_assert!(at.saturating_add(part.len()) <= self.bytes.len(), "a part of another message");
        at
    }

    fn slice(&self, (start, end): (u16, u16)) -> &'a [u8] {
        self.bytes.get(usize::from(start)..usize::from(end)).unwrap_or(&[])
    }
}

/// The position of the CRLF that ends the line at `from`; `None` where the line is not whole. A bare CR or LF is the
/// `fault` that is given: the next hop might take it for a line's end, and what is behind it for a header.
#[inline]
fn line_end(bytes: &[u8], from: usize, fault: Fault) -> Result<Option<usize>, Fault> {
    let Some(rest) = bytes.get(from..) else { return Ok(None) };
    let Some(at) = text::find_line_end(rest) else { return Ok(None) };
    match rest.get(at..) {
        // Positions stay below MAX_HEAD, so that nothing here can wrap.
        Some([b'\r', b'\n', ..]) => Ok(Some(from.wrapping_add(at))),
        Some([b'\r']) => Ok(None),
        _ => Err(fault),
    }
}

/// As [`line_end`], over folds: a line that begins with white space continues the one before it.
#[inline]
fn folded_line_end(bytes: &[u8], from: usize) -> Result<usize, Fault> {
    let mut from = from;
    loop {
        let end = line_end(bytes, from, Fault::HeaderLine)?.ok_or(Fault::HeadTooLong)?;
        let next = end.wrapping_add(2);
        match bytes.get(next) {
            Some(b' ' | b'\t') => from = next,
            _ => return Ok(end),
        }
    }
}

/// The field at `at`, which is no empty line, and where the next begins.
#[inline]
fn scan_field(bytes: &[u8], at: usize) -> Result<(Field, usize), Fault> {
    let known = bytes.get(at..).and_then(<[u8]>::first_chunk).and_then(HeaderName::of_line);
    let behind_name = at.wrapping_add(known.map_or(0, |(_, length)| length));
    let end = folded_line_end(bytes, behind_name)?;
    let (name, mut value) = match known {
        Some((name, _)) => (name, bytes.get(behind_name.wrapping_add(1)..end).unwrap_or(&[])),
        None => split_name(bytes.get(at..end).unwrap_or(&[]))?,
    };
    // Nearly always one space stands before a value, and none behind it.
    while let [first, tail @ ..] = value
        && text::is_lws(*first)
    {
        value = tail;
    }
    let value_start = end.wrapping_sub(value.len());
    while let [front @ .., last] = value
        && text::is_lws(*last)
    {
        value = front;
    }
    let (next, value_end) = (end.wrapping_add(2), value_start.wrapping_add(value.len()));
    let field = Field { name, line: (narrow(at), narrow(next)), value: (narrow(value_start), narrow(value_end)) };
    Ok((field, next))
}

/// A line's name, and what follows its colon.
fn split_name(line: &[u8]) -> Result<(HeaderName, &[u8]), Fault> {
    let (name, rest) = text::split_while(line, text::TOKEN);
    let value = match rest {
        [b':', value @ ..] if !name.is_empty() => value,
        _ => after_spaced_colon(name, rest)?,
    };
    Ok((HeaderName::from_bytes(name), value))
}

/// What follows the colon where white space stands before it.
fn after_spaced_colon<'a>(name: &[u8], rest: &'a [u8]) -> Result<&'a [u8], Fault> {
    let spaces = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    match rest.get(spaces..) {
        Some([b':', value @ ..]) if !name.is_empty() => Ok(value),
        _ => Err(Fault::HeaderLine),
    }
}

/// Positions in a head fit 16 bits: [`Head::scan`] looks no further than [`MAX_HEAD`].
#[expect(clippy::cast_possible_truncation, reason = "bounded by MAX_HEAD")]
fn narrow(position: usize) -> u16 {
    debug_assert!(position <= MAX_HEAD);
    position as u16
}

/// The start line, and whether its version is 2.0.
fn parse_start_line(line: &[u8]) -> Result<(StartLine<'_>, bool), Fault> {
    // A request as it should be; no status line has a method's characters up to its first space.
    if let Some((front, b" SIP/2.0")) = line.split_last_chunk()
        && let (method @ [_, ..], [b' ', uri @ ..]) = text::split_while(front, text::TOKEN)
    {
        return Ok((StartLine::Request { method: Method::from_token(method), uri }, true));
    }
    if let Some(rest) = strip_prefix_ignoring_case(line, b"SIP/") {
        return parse_status_line(rest).map(|start| (start, true));
    }
    let method_end = memchr::memchr(b' ', line).ok_or(Fault::StartLine)?;
    let uri_end = memchr::memrchr(b' ', line).ok_or(Fault::StartLine)?;
    let method = line.get(..method_end).unwrap_or(&[]);
    let uri = line.get(method_end.saturating_add(1)..uri_end).unwrap_or(&[]);
    let version = line.get(uri_end.saturating_add(1)..).unwrap_or(&[]);
    if !text::all(method, text::TOKEN) {
        return Err(Fault::StartLine);
    }
    let start = StartLine::Request { method: Method::from_token(method), uri };
    match strip_prefix_ignoring_case(version, b"SIP/") {
        Some(b"2.0") => Ok((start, true)),
        Some(version) if is_version(version) => Ok((start, false)),
        // White space at the end of the line, or a URI with a space in it: a request that can be answered.
        _ if text::trim(line).len() != line.len() || memchr::memmem::find(line, b" SIP/").is_some() => {
            Ok((start, true))
        }
        _ => Err(Fault::StartLine),
    }
}

fn parse_status_line(rest: &[u8]) -> Result<StartLine<'_>, Fault> {
    let (version, rest) = rest.split_at_checked(3).ok_or(Fault::StartLine)?;
    let ([b' ', code @ ..], true) = (rest, is_version(version)) else { return Err(Fault::StartLine) };
    if version != b"2.0" {
        return Err(Fault::Version);
    }
    let (code, rest) = code.split_at_checked(3).ok_or(Fault::StartLine)?;
    let code = text::parse_decimal(code).and_then(|code| u16::try_from(code).ok());
    let status = code.and_then(Status::new).ok_or(Fault::StartLine)?;
    match rest {
        [] => Ok(StartLine::Response { status, reason: &[] }),
        [b' ', reason @ ..] => Ok(StartLine::Response { status, reason }),
        _ => Err(Fault::StartLine),
    }
}

fn is_version(version: &[u8]) -> bool {
    matches!(version, [major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit())
}

fn strip_prefix_ignoring_case<'a>(text: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (head, tail) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_folds_and_values() {
        let bytes = b"OPTIONS sip:a@b SIP/2.0\r\nv : SIP/2.0/UDP x\r\n ;branch=1\r\nSubject:\r\nX-A:  b \r\n\r\nbody";
        let head = Head::scan(bytes).expect("valid");
        assert_eq!(head.fields().len(), 3);
        assert_eq!(head.first(HeaderName::Via), Some(&b"SIP/2.0/UDP x\r\n ;branch=1"[..]));
        let values: Vec<_> = head.fields().iter().map(|f| head.value(f)).collect();
        assert_eq!(values[1..], [&b""[..], b"b"]);
        assert_eq!(head.line(&head.fields()[2]), b"X-A:  b \r\n");
        assert_eq!(head.rest(), b"body");
        assert_eq!(&bytes[head.fields_end()..], b"\r\nbody");
        assert_eq!(head.position_of(head.value(&head.fields()[2])), 72);
    }

    #[test]
    fn what_is_no_head_is_refused() {
        let cases: &[(&[u8], Fault)] = &[
            (b"", Fault::StartLine),
            (b"\r\n\r\n", Fault::StartLine),
            (b"SIP/7.0 200 OK\r\n\r\n", Fault::Version),
            (b"OPTIONS sip:a@b HTTP/1.1\r\n\r\n", Fault::StartLine),
            (b"SIP/2.0 4294967301 x\r\n\r\n", Fault::StartLine),
            (b"SIP/2.0 099 x\r\n\r\n", Fault::StartLine),
            (b"OPTIONS sip:a@b SIP/2.0\r\nVia: x\r\n", Fault::HeadTooLong),
            (b"OPTIONS sip:a@b SIP/2.0\r\nVia x\r\n\r\n", Fault::HeaderLine),
            (b"OPTIONS sip:a@b SIP/2.0\r\n: x\r\n\r\n", Fault::HeaderLine),
            (b"OPTIONS sip:a@b SIP/2.0\n\n", Fault::StartLine),
            // What a lenient next hop could take for a line's end.
            (b"OPTIONS sip:a@b\nVia: x SIP/2.0\r\n\r\n", Fault::StartLine),
            (b"OPTIONS sip:a@b\rVia: x SIP/2.0\r\n\r\n", Fault::StartLine),
            (b"SIP/2.0 200 O\nK\r\n\r\n", Fault::StartLine),
            (b"SIP/2.0 200 O\rK\r\n\r\n", Fault::StartLine),
            (b"OPTIONS sip:a@b SIP/2.0\r\nSubject: x\nRoute: y\r\n\r\n", Fault::HeaderLine),
            (b"OPTIONS sip:a@b SIP/2.0\r\nSubject: x\rRoute: y\r\n\r\n", Fault::HeaderLine),
            (b"OPTIONS sip:a@b SIP/2.0\r\nSubject: x\r\r\n\r\n", Fault::HeaderLine),
            (b"OPTIONS sip:a@b SIP/2.0\r\nSubject: x\n\r\n\r\n", Fault::HeaderLine),
            (b"OPTIONS sip:a@b SIP/2.0\r\nSubject: x\r\n y\nz\r\n\r\n", Fault::HeaderLine),
            (b"OPTIONS sip:a@b SIP/2.0\r\nSub\nject: x\r\n\r\n", Fault::HeaderLine),
            (b"OPTIONS sip:a@b SIP/2.0\r\n\nSubject: x\r\n\r\n", Fault::HeaderLine),
        ];
        for (bytes, fault) in cases {
            assert_eq!(Head::scan(bytes).expect_err("refused"), *fault, "{}", text::lossy(bytes));
        }
        let many = [b"OPTIONS sip:a@b SIP/2.0\r\n".to_vec(), b"A: b\r\n".repeat(300), b"\r\n".to_vec()].concat();
        assert_eq!(Head::scan(&many).expect_err("refused"), Fault::TooManyFields);
        let long = [b"OPTIONS sip:a@b SIP/2.0\r\nA: ".to_vec(), vec![b'x'; MAX_HEAD], b"\r\n\r\n".to_vec()].concat();
        assert_eq!(Head::scan(&long).expect_err("refused"), Fault::HeadTooLong);
    }

    #[test]
    fn the_body_keeps_its_line_ends_and_a_value_its_tabs() {
        let head = Head::scan(b"OPTIONS sip:a@b SIP/2.0\r\nSubject: a\tb\x0bc\r\n\r\nv=0\no=\rx").expect("valid");
        assert_eq!(head.value(&head.fields()[0]), b"a\tb\x0bc");
        assert_eq!(head.rest(), b"v=0\no=\rx");
    }

    #[test]
    fn a_reason_may_be_empty_or_any_utf8() {
        let head = Head::scan(b"SIP/2.0 100 \r\n\r\n").expect("valid");
        assert_eq!(head.start(), StartLine::Response { status: Status::TRYING, reason: b"" });
        assert!(Head::scan("SIP/2.0 200 = 2**3 * 5**2 \u{43d}\u{43e}\r\n\r\n".as_bytes()).is_ok());
    }
}
