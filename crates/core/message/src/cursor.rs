//! A reader over a header value that handles SIP whitespace, tokens and quoted strings.

use crate::text::{self, TOKEN};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the bytes consumed since the remaining input was `before`.
    #[inline]
    pub(crate) fn read_since(&self, before: &'a [u8]) -> Option<&'a [u8]> {
        before.get(..before.len().checked_sub(self.rest.len())?)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    pub(crate) fn skip_lws(&mut self) {
        while let [first, rest @ ..] = self.rest
            && text::is_lws(*first)
        {
            self.rest = rest;
        }
    }

    /// Consumes `byte` if it comes next.
    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Consumes `byte` and the whitespace around it.
    pub(crate) fn eat_separator(&mut self, byte: u8) -> bool {
        // Fast path: whitespace is rare here.
        match self.rest {
            [] => return false,
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                self.skip_lws();
                return true;
            }
            [first, ..] if !text::is_lws(*first) => return false,
            _ => {}
        }
        let mut ahead = *self;
        ahead.skip_lws();
        if !ahead.eat(byte) {
            return false;
        }
        ahead.skip_lws();
        *self = ahead;
        true
    }

    /// Consumes `prefix`, ignoring case, if it comes next.
    pub(crate) fn eat_prefix(&mut self, prefix: &[u8]) -> bool {
        match self.rest.split_at_checked(prefix.len()) {
            Some((head, tail)) if head.eq_ignore_ascii_case(prefix) => {
                self.rest = tail;
                true
            }
            _ => false,
        }
    }

    /// Consumes bytes of `class`, possibly none.
    #[inline]
    pub(crate) fn take_class(&mut self, class: u16) -> &'a [u8] {
        let (taken, rest) = text::split_while(self.rest, class);
        self.rest = rest;
        taken
    }

    /// Consumes bytes up to the first one that `stop` accepts.
    pub(crate) fn take_until(&mut self, stop: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|byte| stop(*byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, &[]));
        self.rest = rest;
        taken
    }

    /// Consumes a token of at least one byte.
    pub(crate) fn token(&mut self) -> Option<&'a [u8]> {
        Some(self.take_class(TOKEN)).filter(|token| !token.is_empty())
    }

    /// Consumes a quoted string, quotes included. Returns `None` and consumes nothing if it is not closed.
    pub(crate) fn quoted(&mut self) -> Option<&'a [u8]> {
        let [b'"', inner @ ..] = self.rest else { return None };
        let mut end = 0usize;
        loop {
            let behind = inner.get(end..)?;
            let at = memchr::memchr2(b'"', b'\\', behind)?;
            end = end.checked_add(at)?;
            if behind.get(at) == Some(&b'"') {
                break;
            }
            // An escaped quote does not close the string.
            end = end.checked_add(2)?;
        }
        let (quoted, rest) = self.rest.split_at_checked(end.checked_add(2)?)?;
        self.rest = rest;
        Some(quoted)
    }
}
