//! `%HH` escapes (RFC 3261 §19.1.2).

/// Decodes the `%HH` escapes of `text` (RFC 3261 §19.1.2); malformed escapes are returned as they are.
pub fn unescape(text: &[u8]) -> impl Iterator<Item = u8> + '_ {
    Unescape::new(text)
}

/// The bytes of a text with its escapes decoded.
pub(crate) struct Unescape<'a> {
    rest: &'a [u8],
}

impl<'a> Unescape<'a> {
    pub(crate) const fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }
}

impl Iterator for Unescape<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if let [b'%', high, low, tail @ ..] = self.rest
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
        {
            self.rest = tail;
            return Some((high << 4) | low);
        }
        let (first, tail) = self.rest.split_first()?;
        self.rest = tail;
        Some(*first)
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn invalid_escapes_are_kept() {
        assert_eq!(unescape(b"a%3bb%253b%zz%4").collect::<Vec<_>>(), b"a;b%3b%zz%4");
    }
}
