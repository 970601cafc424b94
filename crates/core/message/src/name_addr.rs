//! `name-addr` and `addr-spec` (RFC 3261 §20.10): From, To, Contact, Route, Record-Route.

use crate::cursor::Cursor;
use crate::params::Params;
use crate::text;
use crate::uri::Uri;

/// An address with its header parameters.
#[derive(Clone, Copy, Debug)]
pub struct NameAddr<'a> {
    /// The value as written.
    pub text: &'a [u8],
    /// The display name as written, quotes included; empty if there is none.
    pub display: &'a [u8],
    /// The URI as written, without brackets.
    pub uri: &'a [u8],
    /// The header parameters. Without brackets every parameter belongs to the header (RFC 3261 §20).
    pub params: Params<'a>,
    tag: Option<&'a [u8]>,
}

impl<'a> NameAddr<'a> {
    /// Parses an address; it must be all of `value`.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        if let Some((usual, [])) = Self::read_fast(value) {
            return Some(usual);
        }
        let (addr, rest) = Self::parse_any(value)?;
        rest.is_empty().then_some(addr)
    }

    /// Parses the first address of a list and returns what follows it, starting with the comma.
    #[must_use]
    pub fn parse_first(value: &'a [u8]) -> Option<(Self, &'a [u8])> {
        match Self::read_fast(value) {
            usual @ Some((_, [])) => usual,
            _ => Self::parse_any(value),
        }
    }

    /// Reads the address at the start of `text`, if in the common form (in brackets, an optional display name, at
    /// most a tag), and returns what follows it. If what follows cannot belong to a parameter,
    /// [`parse_any`](Self::parse_any) returns the same address. An address that is not read here may still be valid.
    #[inline(always)]
    pub(crate) fn read_fast(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (display, bracketed) = match text {
            [b'<', bracketed @ ..] => (&[][..], bracketed),
            _ => split_display_fast(text)?,
        };
        let (uri, [b'>', behind @ ..]) = text::split_bracketed(bracketed) else { return None };
        let (tag, rest) = match behind.split_first_chunk() {
            Some((b";tag=", tag)) => {
                let (tag, rest) = text::split_value(tag);
                (Some(tag), rest)
            }
            _ => (None, behind),
        };
        if !has_scheme(uri) || tag.is_some_and(<[u8]>::is_empty) {
            return None;
        }
        let params = Params::from_read(behind.get(..behind.len().wrapping_sub(rest.len()))?);
        let text = text.get(..text.len().wrapping_sub(rest.len()))?;
        Some((Self { text, display, uri, params, tag }, rest))
    }

    /// Parses with the full grammar.
    fn parse_any(value: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut cursor = Cursor::new(value);
        cursor.skip_lws();
        let start = cursor.rest();
        let (display, uri) = read_address(&mut cursor)?;
        let mut tag = None;
        let params = Params::read_each(&mut cursor, |param| {
            if tag.is_none() && param.is("tag") {
                tag = Some(param.value);
            }
            Some(())
        })?;
        let length = start.len().checked_sub(cursor.rest().len())?;
        let text = text::trim(start.get(..length)?);
        cursor.skip_lws();
        if !matches!(cursor.peek(), None | Some(b',')) {
            return None;
        }
        Some((Self { text, display, uri, params, tag: tag.flatten() }, cursor.rest()))
    }

    /// Parses the URI.
    #[must_use]
    pub fn parse_uri(&self) -> Option<Uri<'a>> {
        Uri::parse(self.uri)
    }

    /// The `tag` parameter.
    #[must_use]
    pub const fn tag(&self) -> Option<&'a [u8]> {
        self.tag
    }
}

/// Reads a quoted display name on one line followed by one space, or tokens each followed by one space. Returns what
/// follows the opening bracket.
#[inline]
fn split_display_fast(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let behind = match text {
        [b'"', inner @ ..] => match text::split_while(inner, text::QUOTED).1 {
            [b'"', b' ', behind @ ..] => behind,
            _ => return None,
        },
        _ => {
            let mut rest = text;
            while let (_token @ [_, ..], [b' ', behind @ ..]) = text::split_while(rest, text::TOKEN) {
                rest = behind;
            }
            rest
        }
    };
    let [b'<', bracketed @ ..] = behind else { return None };
    let length = text.len().wrapping_sub(behind.len()).checked_sub(1)?;
    Some((text.get(..length)?, bracketed))
}

fn read_address<'a>(cursor: &mut Cursor<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let display = match cursor.peek()? {
        b'"' => cursor.quoted()?,
        b'<' => &[],
        _ => match read_display_tokens(cursor) {
            Some(display) => display,
            None => return read_addr_spec(cursor).map(|uri| (&[][..], uri)),
        },
    };
    cursor.skip_lws();
    if !cursor.eat(b'<') {
        return None;
    }
    let uri = cursor.take_class(text::BRACKETED);
    (cursor.eat(b'>') && has_scheme(uri)).then_some((display, uri))
}

/// Reads `*( token LWS )` before a bracket; consumes nothing if no bracket follows.
fn read_display_tokens<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let mut ahead = *cursor;
    loop {
        let word = ahead.take_until(|byte| !text::is(byte, text::TOKEN) && byte < 0x80);
        ahead.skip_lws();
        match ahead.peek()? {
            b'<' => break,
            _ if word.is_empty() => return None,
            _ => {}
        }
    }
    let length = cursor.rest().len().checked_sub(ahead.rest().len())?;
    let display = cursor.rest().get(..length)?;
    *cursor = ahead;
    Some(text::trim(display))
}

/// Reads a URI without brackets. It ends before the header parameters and contains neither comma nor question mark.
fn read_addr_spec<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let uri = cursor.take_until(|byte| b";,?<>\"".contains(&byte) || text::is_lws(byte));
    has_scheme(uri).then_some(uri)
}

#[inline(always)]
fn has_scheme(uri: &[u8]) -> bool {
    uri.first_chunk() == Some(b"sip:") || has_other_scheme(uri)
}

#[inline(never)]
fn has_other_scheme(uri: &[u8]) -> bool {
    // The colon is a few bytes away: setting up a search costs more.
    let colon = uri.iter().position(|byte| *byte == b':').unwrap_or(0);
    colon > 0 && uri.first().is_some_and(u8::is_ascii_alphabetic)
}

/// Parses a Contact value, a list of addresses. Returns `None` if one is malformed. The caller handles `*`.
#[must_use]
pub fn parse_contacts(value: &[u8]) -> Option<Vec<NameAddr<'_>>> {
    text::split_list(value).map(NameAddr::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> NameAddr<'_> {
        NameAddr::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text} is valid"))
    }

    #[test]
    fn every_form() {
        let full = parse(r#" "J Rosenberg \\\""       <sip:jdrosen@example.com>  ; tag = 98asjd8"#);
        assert_eq!(full.display, br#""J Rosenberg \\\"""#);
        assert_eq!((full.uri, full.tag()), (&b"sip:jdrosen@example.com"[..], Some(&b"98asjd8"[..])));
        let tokens = parse("Bell Labs Phone<sip:a@b;x=1>;q=0.5");
        assert_eq!((tokens.display, tokens.uri), (&b"Bell Labs Phone"[..], &b"sip:a@b;x=1"[..]));
        let bare = parse("sip:a@b;tag=1");
        assert_eq!((bare.display, bare.uri, bare.tag()), (&b""[..], &b"sip:a@b"[..], Some(&b"1"[..])));
        assert_eq!(parse("<tel:+1-201-555-0123>").uri, b"tel:+1-201-555-0123");
    }

    #[test]
    fn invalid_addresses_are_rejected() {
        for bad in [
            "",
            "\"open <sip:a@b>",
            "<sip:a@b",
            "sip:a@b>",
            "Bell, Alexander <sip:a.g.bell@example.com>;tag=43",
            "<sip:a@b>;;",
            "<sip:a@b> x",
            "sip:a@b?Route=x",
            "< sip:a@b>",
            "<>",
        ] {
            assert!(NameAddr::parse(bad.as_bytes()).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn contacts_are_a_list() {
        let contacts = parse_contacts(b"\"A, B\" <sip:a@b>;q=1, sip:c@d;expires=5").expect("valid");
        assert_eq!(contacts.iter().map(|c| c.uri).collect::<Vec<_>>(), [&b"sip:a@b"[..], b"sip:c@d"]);
        assert!(parse_contacts(b"<sip:a@b>,").is_none());
    }
}
