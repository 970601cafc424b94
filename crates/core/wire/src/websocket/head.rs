//! The head of an HTTP/1.1 message, as far as an upgrade needs it (RFC 9112).

/// Maximum length of the HTTP head of an upgrade, in bytes. Browsers send cookies in it.
pub const MAX_HTTP_HEAD: usize = 8192;

/// Whether a buffer starts with a complete head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadSearch {
    Incomplete,
    /// The length of the head with the empty line.
    Found(usize),
    TooLong,
}

/// Looks for the end of the head. `searched` is the number of bytes known not to contain it.
pub(super) fn find_end(buffer: &[u8], searched: &mut u16) -> HeadSearch {
    const END: &[u8] = b"\r\n\r\n";
    let window = buffer.get(..MAX_HTTP_HEAD).unwrap_or(buffer);
    let from = usize::from(*searched).saturating_sub(END.len());
    if let Some(at) = window.get(from..).and_then(|unseen| memchr::memmem::find(unseen, END)) {
        return HeadSearch::Found(from.saturating_add(at).saturating_add(END.len()));
    }
    *searched = u16::try_from(window.len()).unwrap_or(u16::MAX);
    if window.len() < MAX_HTTP_HEAD { HeadSearch::Incomplete } else { HeadSearch::TooLong }
}

/// The head is not HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedHead;

/// Splits a complete head into its first line and its fields.
pub(super) fn split_start(head: &[u8]) -> Result<(&[u8], Fields<'_>), MalformedHead> {
    let (start, rest) = next_line(head).ok_or(MalformedHead)?;
    Ok((start, Fields { rest }))
}

/// The fields of a head: names and values.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), MalformedHead>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some((line, rest)) = next_line(self.rest) else {
            return (!std::mem::take(&mut self.rest).is_empty()).then_some(Err(MalformedHead));
        };
        self.rest = rest;
        if line.is_empty() {
            self.rest = &[];
            return None;
        }
        Some(split_field(line).ok_or(MalformedHead))
    }
}

fn next_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memmem::find(bytes, b"\r\n")?;
    let (line, rest) = bytes.split_at_checked(end)?;
    Some((line, rest.get(2..)?))
}

/// Refuses folded lines, spaces around the name, and control characters in the value.
fn split_field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, value) = line.split_at_checked(memchr::memchr(b':', line)?)?;
    let value = value.get(1..)?.trim_ascii();
    let is_value = value.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control());
    (!name.is_empty() && name.iter().copied().all(is_token_byte) && is_value).then_some((name, value))
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns the elements of a comma-separated value.
pub(super) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Returns whether a comma-separated value contains `wanted` in any case.
pub(super) fn has_element(value: &[u8], wanted: &[u8]) -> bool {
    elements(value).any(|element| element.eq_ignore_ascii_case(wanted))
}
