//! Challenges and credentials: `scheme name=value, …` (RFC 3261 §25.1, RFC 7616 §3).

use crate::cursor::Cursor;
use crate::text::{TOKEN, WORD};

/// An authentication scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthScheme<'a> {
    /// `Digest`.
    Digest,
    /// Any other scheme.
    Other(&'a [u8]),
}

/// The value of Authorization, Proxy-Authorization, WWW-Authenticate or Proxy-Authenticate.
#[derive(Clone, Copy, Debug)]
pub struct AuthParams<'a> {
    /// The scheme.
    pub scheme: AuthScheme<'a>,
    text: &'a [u8],
}

impl<'a> AuthParams<'a> {
    /// Parses a whole header value. Returns `None` on a syntax error.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        Self::read_each(value, |_, _| ())
    }

    /// Parses like [`parse`](Self::parse) and passes each name and value of a Digest to `visit`, even if a syntax
    /// error follows.
    pub fn read_each(value: &'a [u8], mut visit: impl FnMut(&'a [u8], &'a [u8])) -> Option<Self> {
        let mut cursor = Cursor::new(value);
        cursor.skip_lws();
        let scheme = cursor.token()?;
        let scheme =
            if scheme.eq_ignore_ascii_case(b"digest") { AuthScheme::Digest } else { AuthScheme::Other(scheme) };
        cursor.skip_lws();
        let params = Self { scheme, text: cursor.rest() };
        if scheme != AuthScheme::Digest {
            return Some(params);
        }
        loop {
            let (name, value) = read_one(&mut cursor)?;
            visit(name, value);
            if !cursor.eat_separator(b',') {
                break;
            }
        }
        cursor.skip_lws();
        cursor.is_empty().then_some(params)
    }

    /// Returns names and values as written, quotes included. Iteration cannot fail: the syntax was checked by the
    /// parser.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut cursor = Cursor::new(self.text);
        core::iter::from_fn(move || {
            let pair = read_one(&mut cursor)?;
            cursor.eat_separator(b',');
            Some(pair)
        })
    }

    /// Returns the value of the first parameter `name`, quotes included.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&'a [u8]> {
        self.iter().find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }
}

fn read_one<'a>(cursor: &mut Cursor<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let name = Some(cursor.take_class(TOKEN)).filter(|name| !name.is_empty())?;
    if !cursor.eat_separator(b'=') {
        return None;
    }
    let value = match cursor.peek() {
        Some(b'"') => cursor.quoted()?,
        _ => Some(cursor.take_class(WORD)).filter(|value| !value.is_empty())?,
    };
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_inside_quotes_belong_to_the_value() {
        let value = b"Digest username=\"a,b\" , realm=\"x\",\r\n qop=auth, nc=00000001, uri=\"sip:a;b=c\"";
        let auth = AuthParams::parse(value).expect("valid");
        assert_eq!(auth.scheme, AuthScheme::Digest);
        assert_eq!(auth.iter().count(), 5);
        assert_eq!(auth.value("USERNAME"), Some(&b"\"a,b\""[..]));
        assert_eq!(auth.value("nc"), Some(&b"00000001"[..]));
    }

    #[test]
    fn broken_digest_is_refused_and_other_schemes_are_opaque() {
        for bad in [&b""[..], b"Digest", b"Digest a", b"Digest a=", b"Digest a=\"x", b"Digest a=1,", b"Digest a=1 b=2"]
        {
            assert!(AuthParams::parse(bad).is_none(), "{bad:?}");
        }
        let other = AuthParams::parse(b"NoOneKnowsThisScheme opaque-data=here").expect("kept");
        assert_eq!(other.scheme, AuthScheme::Other(b"NoOneKnowsThisScheme"));
    }
}
