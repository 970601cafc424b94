//! The lines of a message's head: start line and header fields, located but not yet parsed.

use crate::fault::Fault;
use crate::header::{HeaderName, HeaderSet};
use crate::method::Method;
use crate::status::Status;
use crate::text;

/// Longest head in bytes, including the final empty line: spans are 16 bits wide.
pub const MAX_HEAD: usize = 65_535;
/// Largest number of header fields in a message.
pub const MAX_FIELDS: usize = 256;
/// Number of fields stored without allocating; a typical INVITE has 14.
const FEW_FIELDS: usize = 24;

/// The first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartLine<'a> {
    /// A request line.
    Request {
        /// The method.
        method: Method<'a>,
        /// The Request-URI as written; [`Message::parse`](crate::Message::parse) checks its syntax.
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

/// Position of a header field. Eight bytes, because heads are moved as a whole.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct Field {
    start: u16,
    value_start: u16,
    value_end: u16,
    /// The name, if known.
    pub name: HeaderName,
}

/// A message's head, and the bytes after it.
#[derive(Clone, Debug)]
pub struct Head<'a> {
    bytes: &'a [u8],
    start: StartLine<'a>,
    start_end: u16,
    fields: Fields,
    end: u16,
    is_sip_2_0: bool,
}

impl<'a> Head<'a> {
    /// Finds the lines of the head at the start of `bytes`.
    ///
    /// # Errors
    /// Returns a [`Fault`] if there is no complete head or no SIP start line.
    pub fn scan(bytes: &'a [u8]) -> Result<Self, Fault> {
        let mut head = Self::unread(bytes);
        head.read_lines(&mut NoValueReader)?;
        Ok(head)
    }

    /// Resets this to an empty head of `bytes`; [`read_lines`](Self::read_lines) must follow.
    pub(crate) fn begin(&mut self, bytes: &'a [u8]) {
        debug_assert!(self.is_empty(), "a head is read once");
        self.bytes = bytes;
    }

    /// Returns a head that holds only the bytes.
    #[inline(always)]
    pub(crate) fn unread(bytes: &'a [u8]) -> Self {
        let start = StartLine::Request { method: Method::Other(&[]), uri: &[] };
        Self { bytes, start, start_end: 0, fields: Fields::new(), end: 0, is_sip_2_0: false }
    }

    /// Finds the lines and passes the first field of each name to `values`. Works in place because a head is
    /// expensive to move.
    pub(crate) fn read_lines(&mut self, values: &mut impl ValueReader<'a>) -> Result<(), Fault> {
        let window = self.bytes.get(..MAX_HEAD).unwrap_or(self.bytes);
        let mut rest = match self.read_start_fast(window, values) {
            Some(rest) => rest,
            None => self.read_any_start(window)?,
        };
        self.start_end = narrow(window.len().wrapping_sub(rest.len()));
        loop {
            rest = match (self.fields.push_fast(window.len(), rest, values), rest) {
                (Some(next), _) => next,
                (None, [b'\r', b'\n', behind @ ..]) => {
                    self.end = narrow(window.len().wrapping_sub(behind.len()));
                    return Ok(());
                }
                (None, _) => self.fields.push_any(window.len(), rest)?,
            };
        }
    }

    /// Reads a first line in the common form and returns what follows it.
    #[inline(always)]
    fn read_start_fast(&mut self, window: &'a [u8], values: &mut impl ValueReader<'a>) -> Option<&'a [u8]> {
        if let Some((b"SIP/2.0 ", rest @ [_, _, _, b' ', behind @ ..])) = window.split_first_chunk() {
            let (code, [b' ', ..]) = text::split_number(rest)? else { return None };
            let status = u16::try_from(code).ok().and_then(Status::new)?;
            let (reason, [b'\r', b'\n', next @ ..]) = behind.split_at_checked(text::find_control(behind)?)? else {
                return None;
            };
            (self.start, self.is_sip_2_0) = (StartLine::Response { status, reason }, true);
            return Some(next);
        }
        let (method @ [_, ..], [b' ', target @ ..]) = text::split_while(window, text::TOKEN) else { return None };
        let behind = values.read_target(target)?;
        let next = skip_version(behind)?;
        let uri = target.get(..target.len().wrapping_sub(behind.len()))?;
        (self.start, self.is_sip_2_0) = (StartLine::Request { method: Method::from_token(method), uri }, true);
        Some(next)
    }

    /// Like [`read_start_fast`](Self::read_start_fast), for every first line that the grammar allows.
    #[cold]
    fn read_any_start(&mut self, window: &'a [u8]) -> Result<&'a [u8], Fault> {
        let (line, rest) = split_line(window, Fault::StartLine, Fault::StartLine)?;
        (self.start, self.is_sip_2_0) = parse_start_line(line)?;
        Ok(rest)
    }

    /// The first line.
    #[must_use]
    pub const fn start(&self) -> StartLine<'a> {
        self.start
    }

    /// Whether a request is of SIP/2.0. A request of another version is still parsed so that it can be answered (RFC
    /// 3261 §21.5.6); a response of another version is rejected.
    #[must_use]
    pub const fn is_sip_2_0(&self) -> bool {
        self.is_sip_2_0
    }

    /// All bytes, from the start of the head to the end of what follows it.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes after the head's final empty line.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(usize::from(self.end)..).unwrap_or(&[])
    }

    //= rfc3261#18.3:surplus
    /// Cuts off the bytes after the message: on datagrams, those past Content-Length (RFC 3261 §18.3).
    pub(crate) fn cut_rest(&mut self, length: usize) {
        let end = usize::from(self.end).saturating_add(length);
        self.bytes = self.bytes.get(..end).unwrap_or(self.bytes);
    }

    /// Length of the head in bytes, including the final empty line.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.end as usize
    }

    /// Whether the head is empty; a scanned head never is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Offset after the start line's CRLF, to insert a field before all others.
    #[must_use]
    pub const fn fields_start(&self) -> usize {
        self.start_end as usize
    }

    /// Offset before the final empty line, to append a field.
    #[must_use]
    pub const fn fields_end(&self) -> usize {
        (self.end as usize).saturating_sub(2)
    }

    /// All fields in order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        self.fields.list()
    }

    /// Returns the trimmed value of `field`.
    #[must_use]
    pub fn value(&self, field: &Field) -> &'a [u8] {
        self.bytes.get(usize::from(field.value_start)..usize::from(field.value_end)).unwrap_or(&[])
    }

    /// Offset of the name of `field`.
    pub(crate) fn field_start(&self, field: &Field) -> usize {
        field.start.into()
    }

    /// Offset of the value of `field`.
    pub(crate) fn value_start(&self, field: &Field) -> usize {
        field.value_start.into()
    }

    /// Offset after the value of `field`.
    pub(crate) fn value_end(&self, field: &Field) -> usize {
        field.value_end.into()
    }

    /// Returns the whole line of `field` with its CRLF.
    #[must_use]
    pub fn line(&self, field: &Field) -> &'a [u8] {
        self.bytes.get(usize::from(field.start)..self.line_end(field)).unwrap_or(&[])
    }

    /// Offset after the line of `field`.
    #[inline]
    fn line_end(&self, field: &Field) -> usize {
        // Only whitespace, including folds, can follow a value; usually nothing does.
        let behind = self.bytes.get(usize::from(field.value_end)..).unwrap_or(&[]);
        match behind {
            [b'\r', b'\n', next, ..] if !matches!(next, b' ' | b'\t') => usize::from(field.value_end).saturating_add(2),
            _ => {
                let next = split_folded_line(behind).map_or(&[][..], |(_, next)| next);
                self.bytes.len().wrapping_sub(next.len())
            }
        }
    }

    /// Returns the values of all fields called `name` in order, each a whole header value (possibly a list).
    pub fn all(&self, name: HeaderName) -> impl Iterator<Item = &'a [u8]> + '_ {
        let fields = self.fields.starting_at(name);
        fields.iter().filter(move |field| field.name == name).map(|field| self.value(field))
    }

    /// Returns the first field called `name`.
    #[must_use]
    pub fn first_field(&self, name: HeaderName) -> Option<&Field> {
        self.fields.first(name)
    }

    /// Returns the value of the first field called `name`.
    #[must_use]
    pub fn first(&self, name: HeaderName) -> Option<&'a [u8]> {
        self.fields.first(name).map(|field| self.value(field))
    }

    /// Returns the elements of all fields called `name`, with lists split at commas.
    pub fn elements(&self, name: HeaderName) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.all(name).flat_map(text::split_list)
    }

    /// Returns the value of a field that may occur only once.
    ///
    /// # Errors
    /// [`Fault::Repeated`].
    pub fn only(&self, name: HeaderName) -> Result<Option<&'a [u8]>, Fault> {
        if self.has_repeated(HeaderSet::of(name)) {
            return Err(Fault::Repeated(name.as_str()));
        }
        Ok(self.first(name))
    }

    /// Whether there is a field called `name`.
    #[inline(always)]
    #[must_use]
    pub const fn has(&self, name: HeaderName) -> bool {
        self.seen().intersects(HeaderSet::of(name))
    }

    /// Names of the fields present.
    pub(crate) const fn seen(&self) -> HeaderSet {
        self.fields.seen
    }

    /// Whether a field of one of `names` occurs more than once.
    pub(crate) const fn has_repeated(&self, names: HeaderSet) -> bool {
        self.fields.repeated.intersects(names)
    }

    /// Returns how many of `names` are present, or `None` if one of them occurs more than once.
    #[must_use]
    pub const fn count_single(&self, names: HeaderSet) -> Option<u32> {
        if self.has_repeated(names) { None } else { Some(self.seen().intersection(names).count()) }
    }

    /// Returns the offset of `part`, a slice of this message.
    #[must_use]
    pub fn position_of(&self, part: &[u8]) -> usize {
        let at = part.as_ptr().addr().wrapping_sub(self.bytes.as_ptr().addr());
        debug_assert!(at.saturating_add(part.len()) <= self.bytes.len(), "a part of another message");
        at
    }
}

/// The fields found so far and an index by name. Most lookups ask for an absent field or for the first one.
#[derive(Clone, Debug)]
struct Fields {
    few: [Field; FEW_FIELDS],
    count: usize,
    /// All of the fields, if they do not fit into `few`.
    many: Vec<Field>,
    seen: HeaderSet,
    repeated: HeaderSet,
    /// Index of the first field of each name; valid only for names seen.
    first: [u8; HeaderName::COUNT],
}

impl Fields {
    #[inline(always)]
    fn new() -> Self {
        let none = Field { start: 0, value_start: 0, value_end: 0, name: HeaderName::Via };
        let (seen, repeated) = (HeaderSet::default(), HeaderSet::default());
        let (few, first) = ([none; FEW_FIELDS], [0; HeaderName::COUNT]);
        Self { few, count: 0, many: Vec::new(), seen, repeated, first }
    }

    /// Reads the field at the start of `text` and returns what follows it, if the field is in the common form: a
    /// known name, at most one space, a value without control characters and without spaces at its ends, no fold.
    /// [`push_any`](Self::push_any) reads such a field identically. Offsets are relative to a head that ends with
    /// `text` and is `total` bytes long.
    #[inline(always)]
    fn push_fast<'t>(&mut self, total: usize, text: &'t [u8], values: &mut impl ValueReader<'t>) -> Option<&'t [u8]> {
        let (name, value) = HeaderName::at_start(text)?;
        let place = self.few.get_mut(self.count)?;
        let set = HeaderSet::of(name);
        let next = if self.seen.intersects(set) {
            let is_second = !self.repeated.intersects(set);
            let next = match if is_second { values.read_second(name, value) } else { None } {
                Some(next) => next,
                None => skip_line(value)?,
            };
            self.repeated = self.repeated.with(set);
            next
        } else {
            // Reading a value also finds its end.
            let next = match values.read(name, value) {
                Some(next) => next,
                None => skip_line(value)?,
            };
            self.seen = self.seen.with(set);
            *self.first.get_mut(name as usize)? = field_index(self.count);
            next
        };
        let (start, value_start) = (total.wrapping_sub(text.len()), total.wrapping_sub(value.len()));
        let value_end = total.wrapping_sub(next.len()).wrapping_sub(2);
        *place = Field { start: narrow(start), value_start: narrow(value_start), value_end: narrow(value_end), name };
        self.count = self.count.wrapping_add(1);
        Some(next)
    }

    /// Like [`push_fast`](Self::push_fast), for every field that the grammar allows.
    #[cold]
    fn push_any<'t>(&mut self, total: usize, text: &'t [u8]) -> Result<&'t [u8], Fault> {
        let (whole, next) = split_folded_line(text)?;
        let (name, behind) = split_name(whole)?;
        let front = text::trim_start(behind);
        let value_start = total.wrapping_sub(next.len()).wrapping_sub(2).wrapping_sub(front.len());
        let value_end = value_start.wrapping_add(text::trim(front).len());
        let (start, value_start) = (narrow(total.wrapping_sub(text.len())), narrow(value_start));
        let field = Field { start, value_start, value_end: narrow(value_end), name };
        if self.count == MAX_FIELDS {
            return Err(Fault::TooManyFields);
        }
        if let Some(place) = self.few.get_mut(self.count) {
            *place = field;
        } else {
            if self.many.is_empty() {
                self.many.extend_from_slice(&self.few);
            }
            self.many.push(field);
        }
        self.note(name);
        Ok(next)
    }

    /// Records a field.
    fn note(&mut self, name: HeaderName) {
        let set = HeaderSet::of(name);
        if self.seen.intersects(set) {
            self.repeated = self.repeated.with(set);
        } else if let Some(first) = self.first.get_mut(name as usize) {
            *first = field_index(self.count);
        }
        self.seen = self.seen.with(set);
        self.count = self.count.wrapping_add(1);
    }

    #[inline]
    fn list(&self) -> &[Field] {
        self.few.get(..self.count).unwrap_or(&self.many)
    }

    /// Returns the first field called `name`.
    #[inline]
    fn first(&self, name: HeaderName) -> Option<&Field> {
        if !self.seen.intersects(HeaderSet::of(name)) {
            return None;
        }
        let first = usize::from(*self.first.get(name as usize)?);
        // The first fields stay in `few` when more follow.
        self.few.get(first).or_else(|| self.many.get(first))
    }

    /// Returns the fields from the first one called `name` up to the last position where another may be; empty if
    /// there is no such field.
    #[inline]
    fn starting_at(&self, name: HeaderName) -> &[Field] {
        if !self.seen.intersects(HeaderSet::of(name)) {
            return &[];
        }
        let first = self.first.get(name as usize).map_or(0, |first| usize::from(*first));
        let fields = self.list().get(first..).unwrap_or(&[]);
        if self.repeated.intersects(HeaderSet::of(name)) { fields } else { fields.get(..1).unwrap_or(fields) }
    }
}

/// A reader of values during line scanning, so that no byte is read twice. It handles only the common form and leaves
/// everything else to the full parsers.
pub(crate) trait ValueReader<'a> {
    /// Reads the Request-URI at the start of `text` and returns what follows the line, using [`skip_version`].
    fn read_target(&mut self, text: &'a [u8]) -> Option<&'a [u8]>;

    /// Reads the value of the first field called `name` at the start of `text` and returns what follows its line,
    /// using [`skip_line_end`].
    fn read(&mut self, name: HeaderName, text: &'a [u8]) -> Option<&'a [u8]>;

    /// Reads the value of the second field called `name` in the same way.
    fn read_second(&mut self, name: HeaderName, text: &'a [u8]) -> Option<&'a [u8]>;
}

/// A reader that reads no values.
struct NoValueReader;

impl<'a> ValueReader<'a> for NoValueReader {
    fn read_target(&mut self, text: &'a [u8]) -> Option<&'a [u8]> {
        Some(text::split_while(text, text::URI).1)
    }

    fn read(&mut self, _: HeaderName, _: &'a [u8]) -> Option<&'a [u8]> {
        None
    }

    fn read_second(&mut self, _: HeaderName, _: &'a [u8]) -> Option<&'a [u8]> {
        None
    }
}

/// Returns what follows the line that ends with the value at the start of `text`, if the value has no spaces at its
/// ends.
#[inline(always)]
pub(crate) fn skip_line(text: &[u8]) -> Option<&[u8]> {
    let (value, behind) = text.split_at_checked(text::find_control(text)?)?;
    if matches!(value, [] | [b' ', ..] | [.., b' ']) { None } else { skip_line_end(behind) }
}

/// Returns what follows the version at the end of a request line.
#[inline(always)]
pub(crate) fn skip_version(text: &[u8]) -> Option<&[u8]> {
    text.split_first_chunk().filter(|(version, _)| *version == b" SIP/2.0\r\n").map(|(_, next)| next)
}

/// Returns what follows the end of a line without a continuation.
#[inline(always)]
pub(crate) fn skip_line_end(text: &[u8]) -> Option<&[u8]> {
    let (line_end, next) = text.split_first_chunk::<2>()?;
    // In a complete head another line end follows, so there is a next byte.
    (line_end == b"\r\n" && !matches!(next.first()?, b' ' | b'\t')).then_some(next)
}

/// Returns the line at the start of `text` and what follows its CRLF. An incomplete line is the fault `open`. A bare
/// CR or LF is the fault `bare`: the next hop might treat it as a line end and what follows as a header.
#[inline]
fn split_line(text: &[u8], bare: Fault, open: Fault) -> Result<(&[u8], &[u8]), Fault> {
    let (line, end) = text::find_line_end(text).and_then(|at| text.split_at_checked(at)).ok_or(open)?;
    match end {
        [b'\r', b'\n', next @ ..] => Ok((line, next)),
        [b'\r'] => Err(open),
        _ => Err(bare),
    }
}

/// Like [`split_line`], but handles folding: a line that starts with whitespace continues the one before it.
fn split_folded_line(text: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let (mut line, mut next) = split_line(text, Fault::HeaderLine, Fault::HeadTooLong)?;
    while let [b' ' | b'\t', ..] = next {
        next = split_line(next, Fault::HeaderLine, Fault::HeadTooLong)?.1;
        let length = text.len().wrapping_sub(next.len()).wrapping_sub(2);
        line = text.get(..length).unwrap_or(text);
    }
    Ok((line, next))
}

/// Returns the field name of a line and what follows the colon.
fn split_name(line: &[u8]) -> Result<(HeaderName, &[u8]), Fault> {
    let (name, rest) = text::split_while(line, text::TOKEN);
    let value = match rest {
        [b':', value @ ..] if !name.is_empty() => value,
        _ => after_spaced_colon(name, rest)?,
    };
    Ok((HeaderName::from_bytes(name), value))
}

/// Returns what follows the colon if whitespace precedes the colon.
fn after_spaced_colon<'a>(name: &[u8], rest: &'a [u8]) -> Result<&'a [u8], Fault> {
    let spaces = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    match rest.get(spaces..) {
        Some([b':', value @ ..]) if !name.is_empty() => Ok(value),
        _ => Err(Fault::HeaderLine),
    }
}

/// Narrows a field index to 8 bits: there are at most [`MAX_FIELDS`].
#[expect(clippy::cast_possible_truncation, reason = "bounded by MAX_FIELDS")]
const fn field_index(index: usize) -> u8 {
    index as u8
}

/// Narrows an offset to 16 bits: [`Head::scan`] reads at most [`MAX_HEAD`] bytes.
#[expect(clippy::cast_possible_truncation, reason = "bounded by MAX_HEAD")]
fn narrow(position: usize) -> u16 {
    debug_assert!(position <= MAX_HEAD);
    position as u16
}

/// Parses the start line; the flag tells whether the version is 2.0.
fn parse_start_line(line: &[u8]) -> Result<(StartLine<'_>, bool), Fault> {
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
        // Trailing whitespace or a URI with a space: the request can still be answered.
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
    fn invalid_heads_are_rejected() {
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
            // A lenient next hop could treat this as a line end.
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
