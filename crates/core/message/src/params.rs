//! `;name=value` parameters of headers and URIs.

use crate::cursor::Cursor;
use crate::text::{TOKEN, VALUE};

/// One parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param<'a> {
    /// The name; names compare without case.
    pub name: &'a [u8],
    /// The value as written, quotes included; `None` for a flag such as `lr`.
    pub value: Option<&'a [u8]>,
}

impl Param<'_> {
    /// Whether this is the parameter `name`.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// The parameters of a header value. Their syntax is already checked, so iteration cannot fail.
#[derive(Clone, Copy, Debug, Default)]
pub struct Params<'a> {
    text: &'a [u8],
}

impl<'a> Params<'a> {
    /// Wraps `text`, whose syntax is already checked.
    pub(crate) const fn from_read(text: &'a [u8]) -> Self {
        Self { text }
    }

    /// Reads `*( SEMI generic-param )` up to a comma or the end, and passes each parameter to `visit`, which may
    /// reject it.
    pub(crate) fn read_each(cursor: &mut Cursor<'a>, mut visit: impl FnMut(Param<'a>) -> Option<()>) -> Option<Self> {
        let before = cursor.rest();
        while cursor.eat_separator(b';') {
            visit(read_one(cursor)?)?;
        }
        let length = before.len().checked_sub(cursor.rest().len())?;
        Some(Self { text: before.get(..length)? })
    }

    /// The parameters as written, starting with the first semicolon.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.text
    }

    /// Returns the parameters in order.
    #[must_use]
    pub fn iter(&self) -> ParamsIter<'a> {
        ParamsIter { cursor: Cursor::new(self.text) }
    }

    /// Returns the first parameter `name`.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Param<'a>> {
        self.iter().find(|param| param.is(name))
    }

    /// Returns the value of the first parameter `name`, if it has one.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&'a [u8]> {
        self.find(name)?.value
    }
}

/// Iterator of [`Params::iter`].
#[derive(Clone, Debug)]
pub struct ParamsIter<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Iterator for ParamsIter<'a> {
    type Item = Param<'a>;

    fn next(&mut self) -> Option<Param<'a>> {
        if !self.cursor.eat_separator(b';') {
            return None;
        }
        read_one(&mut self.cursor)
    }
}

/// Reads `generic-param = token [ EQUAL gen-value ]`; a value is a token, a host or a quoted string.
fn read_one<'a>(cursor: &mut Cursor<'a>) -> Option<Param<'a>> {
    let name = Some(cursor.take_class(TOKEN)).filter(|name| !name.is_empty())?;
    if !cursor.eat_separator(b'=') {
        return Some(Param { name, value: None });
    }
    let value = match cursor.peek() {
        Some(b'"') => cursor.quoted()?,
        _ => Some(cursor.take_class(VALUE)).filter(|value| !value.is_empty())?,
    };
    Some(Param { name, value: Some(value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Option<Params<'_>> {
        Params::read_each(&mut Cursor::new(text), |_| Some(()))
    }

    #[test]
    fn white_space_quotes_and_flags() {
        let text = b" ; a = 1;b;c=\"x;y\" ;\r\n d=[::1]";
        let params = read(text).expect("all valid");
        let all: Vec<_> = params.iter().map(|p| (p.name, p.value)).collect();
        let c = &b"\"x;y\""[..];
        assert_eq!(all, [(&b"a"[..], Some(&b"1"[..])), (b"b", None), (b"c", Some(c)), (b"d", Some(b"[::1]"))]);
        assert_eq!(params.value("A"), Some(&b"1"[..]));
    }

    #[test]
    fn empty_names_and_values_are_refused() {
        for bad in [&b";"[..], b";;a", b";a=", b";=1", b";a=\"x"] {
            assert!(read(bad).is_none(), "{bad:?}");
        }
    }
}
