//! `name-addr` and `addr-spec` (RFC 3261 §20.10): From, To, Contact, Route, Record-Route.

use crate::cursor::Cursor;
use crate::params::Params;
use crate::text;
use crate::uri::Uri;

/// One address with the parameters of its header.
#[derive(Clone, Copy, Debug)]
pub struct NameAddr<'a> {
    /// The value as written.
    pub text: &'a [u8],
    /// The display name as written, quotes included; empty without one.
    pub display: &'a [u8],
    /// The URI as written, without brackets.
    pub uri: &'a [u8],
    /// The header's parameters. Without brackets every parameter is the header's (RFC 3261 §20).
    pub params: Params<'a>,
    tag: Option<&'a [u8]>,
}

impl<'a> NameAddr<'a> {
    /// Reads one address, all of `value`.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        Self::parse_usual(value).or_else(|| {
            let (addr, rest) = Self::parse_any(value)?;
            rest.is_empty().then_some(addr)
        })
    }

    /// Reads the first address of a list, and what follows it (from the comma on).
    #[must_use]
    pub fn parse_first(value: &'a [u8]) -> Option<(Self, &'a [u8])> {
        Self::parse_usual(value).map(|usual| (usual, &[][..])).or_else(|| Self::parse_any(value))
    }

    /// The usual alone: one address in brackets, a quoted display name or none, a tag or nothing behind it. What is read
    /// here [`parse_any`](Self::parse_any) would read as the same; what is not may be valid all the same.
    #[inline]
    pub(crate) fn parse_usual(value: &'a [u8]) -> Option<Self> {
        let (display, bracket) = match value {
            [b'<', ..] => (&[][..], value),
            [b'"', inner @ ..] => {
                let (name, behind) = text::split_while(inner, text::QUOTED);
                let [b'"', b' ', bracket @ ..] = behind else { return None };
                (value.get(..name.len().wrapping_add(2))?, bracket)
            }
            _ => return None,
        };
        let [b'<', inner @ ..] = bracket else { return None };
        let (uri, behind) = text::split_bracketed(inner);
        let [b'>', params @ ..] = behind else { return None };
        let (valid, tag) = match params.split_first_chunk() {
            Some((name, tag)) => {
                (name == b";tag=" && !tag.is_empty() && text::split_value(tag).1.is_empty(), Some(tag))
            }
            None => (params.is_empty(), None),
        };
        (valid && has_scheme(uri)).then_some(Self { text: value, display, uri, params: Params::from_read(params), tag })
    }

    /// The whole grammar.
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

    /// The URI, read.
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

/// `*( token LWS )` in front of a bracket; nothing is taken where no bracket follows.
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

/// A URI without brackets ends before the header's parameters, and holds neither comma nor question mark.
fn read_addr_spec<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let uri = cursor.take_until(|byte| b";,?<>\"".contains(&byte) || text::is_lws(byte));
    has_scheme(uri).then_some(uri)
}

#[inline]
fn has_scheme(uri: &[u8]) -> bool {
    if let [b's', b'i', b'p', b':', ..] = uri {
        return true;
    }
    // It is a few bytes away: no search is worth its setting up.
    let colon = uri.iter().position(|byte| *byte == b':').unwrap_or(0);
    colon > 0 && uri.first().is_some_and(u8::is_ascii_alphabetic)
}

/// Reads a Contact value: a list of addresses; `None` where one breaks the grammar. `*` is the caller's to recognise.
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
    fn what_is_not_an_address_is_refused() {
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
