//! Characters, white space, quoted strings and comma-separated lists (RFC 3261 §25.1).

use std::borrow::Cow;

/// `token` of RFC 3261 §25.1.
pub(crate) const TOKEN: u16 = 1;
/// A character of a SIP URI's user part, without the escape.
pub(crate) const USER: u16 = 2;
/// A character of a URI parameter, without the escape.
pub(crate) const PARAM: u16 = 4;
/// A character of a domain name.
pub(crate) const NAME: u16 = 8;
/// A character of a URI's header part, without the escape.
pub(crate) const HEADER: u16 = 16;
/// A character of any URI (RFC 3986, with its percent sign).
pub(crate) const URI: u16 = 32;
/// A character that a `word`, or a digest's unquoted value, may hold.
pub(crate) const WORD: u16 = 64;
/// A character of an unquoted parameter value: of [`WORD`], but nothing that quotes or brackets, so that a list is split
/// at the same commas by whoever reads it.
pub(crate) const VALUE: u16 = 128;
/// What may stand between angle brackets: anything but quotes, brackets and white space.
pub(crate) const BRACKETED: u16 = 256;

static CLASS: [u16; 256] = classes();

#[expect(clippy::indexing_slicing, reason = "a table of 256 filled by a byte's value, at compile time")]
const fn classes() -> [u16; 256] {
    let mut table = [0u16; 256];
    let mut byte = 0u8;
    loop {
        let alphanumeric = byte.is_ascii_alphanumeric();
        let mut class = 0;
        if alphanumeric {
            class = TOKEN | USER | PARAM | NAME | HEADER | URI | WORD;
        }
        if contains(b"-.!%*_+`'~", byte) {
            class |= TOKEN | WORD;
        }
        if contains(b"-_.!~*'()", byte) {
            class |= USER | PARAM | HEADER | URI;
        }
        if contains(b"&=+$,;?/", byte) {
            class |= USER;
        }
        if contains(b"[]/:&+$", byte) {
            class |= PARAM;
        }
        if contains(b"[]/?:+$&=", byte) {
            class |= HEADER;
        }
        if contains(b";/?:@&=+$,[]#%", byte) {
            class |= URI;
        }
        if contains(b"-._", byte) {
            class |= NAME;
        }
        if contains(b"()<>:\\\"/[]?{}@", byte) || byte >= 0x80 {
            class |= WORD;
        }
        if class & WORD != 0 && !contains(b"<>\"", byte) {
            class |= VALUE;
        }
        if !contains(b"<>\" \t\r\n", byte) {
            class |= BRACKETED;
        }
        table[byte as usize] = class;
        if byte == u8::MAX {
            return table;
        }
        byte = byte.wrapping_add(1);
    }
}

#[expect(clippy::indexing_slicing, reason = "evaluated at compile time, within the length")]
const fn contains(set: &[u8], byte: u8) -> bool {
    let mut at = 0;
    while at < set.len() {
        if set[at] == byte {
            return true;
        }
        at = at.wrapping_add(1);
    }
    false
}

#[expect(clippy::indexing_slicing, reason = "a table of 256 indexed by a byte")]
#[inline(always)]
fn of(byte: u8) -> u16 {
    CLASS[usize::from(byte)]
}

#[inline(always)]
pub(crate) fn is(byte: u8, class: u16) -> bool {
    of(byte) & class != 0
}

/// Whether four bytes are all of `class`: no branch for each.
#[inline(always)]
fn are([a, b, c, d]: [u8; 4], class: u16) -> bool {
    of(a) & of(b) & of(c) & of(d) & class == class
}

/// `text` cut before the first byte that is not of `class`.
#[inline]
pub(crate) fn split_while(text: &[u8], class: u16) -> (&[u8], &[u8]) {
    let mut rest = text;
    while let Some((four, tail)) = rest.split_first_chunk::<4>()
        && are(*four, class)
    {
        rest = tail;
    }
    while let [first, tail @ ..] = rest
        && is(*first, class)
    {
        rest = tail;
    }
    text.split_at_checked(text.len().wrapping_sub(rest.len())).unwrap_or((text, &[]))
}

/// Whether all of a non-empty `text` is of `class`.
pub(crate) fn all(text: &[u8], class: u16) -> bool {
    !text.is_empty() && split_while(text, class).1.is_empty()
}

/// Like [`all`], where `%HH` escapes may stand too and `text` may be empty.
pub(crate) fn all_escaped(text: &[u8], class: u16) -> bool {
    let mut rest = text;
    loop {
        while let Some((four, tail)) = rest.split_first_chunk::<4>()
            && are(*four, class)
        {
            rest = tail;
        }
        match rest {
            [] => return true,
            [b'%', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => rest = tail,
            [byte, tail @ ..] if is(*byte, class) => rest = tail,
            _ => return false,
        }
    }
}

#[inline]
pub(crate) fn is_lws(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Without the white space (and folds) at both ends.
#[must_use]
pub fn trim(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && is_lws(*first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && is_lws(*last)
    {
        text = rest;
    }
    text
}

/// Where the first CR or LF stands.
#[inline]
pub(crate) fn find_line_end(text: &[u8]) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let mut rest = text;
    while let Some((eight, tail)) = rest.split_first_chunk::<8>() {
        // Eight bytes at once: the high bit of the first byte below 16 is set, perhaps with some behind it.
        let word = u64::from_le_bytes(*eight);
        let below = word.wrapping_sub(LOW.wrapping_mul(16)) & !word & LOW.wrapping_mul(128);
        if below != 0 {
            let first = below.trailing_zeros() & 56;
            if matches!(word.wrapping_shr(first).to_le_bytes(), [b'\r' | b'\n', ..]) {
                let before = text.len().wrapping_sub(rest.len());
                return Some(before.wrapping_add((first >> 3) as usize));
            }
            break;
        }
        rest = tail;
    }
    // The last few bytes, or a line with other control characters.
    let before = text.len().wrapping_sub(rest.len());
    rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')).map(|at| before.wrapping_add(at))
}

/// A run of digits as a number; `None` where there is anything else, nothing, or more than a `u64` holds.
#[must_use]
pub fn parse_decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// What a quoted string says, or the text itself where it is not quoted.
#[must_use]
pub fn unquote(text: &[u8]) -> Cow<'_, [u8]> {
    let [b'"', inner @ .., b'"'] = text else { return Cow::Borrowed(text) };
    if !inner.contains(&b'\\') {
        return Cow::Borrowed(inner);
    }
    let mut said = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        let byte = if *byte == b'\\' { bytes.next().unwrap_or(byte) } else { byte };
        said.push(*byte);
    }
    Cow::Owned(said)
}

/// The elements of a comma-separated header value, trimmed; commas in quotes and in angle brackets separate nothing.
/// Empty elements are handed out too: the caller's grammar refuses them.
pub fn split_list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    core::iter::from_fn(move || {
        let text = rest?;
        let end = element_end(text);
        let (element, tail) = text.split_at_checked(end)?;
        rest = tail.get(1..);
        Some(trim(element))
    })
}

/// Where the first element of a list ends: at a comma, or at the end of the text.
fn element_end(text: &[u8]) -> usize {
    let (mut quoted, mut bracketed, mut escaped) = (false, false, false);
    for (at, byte) in text.iter().enumerate() {
        if escaped {
            escaped = false;
            continue;
        }
        match byte {
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'<' if !quoted => bracketed = true,
            b'>' if !quoted => bracketed = false,
            b',' if !quoted && !bracketed => return at,
            _ => {}
        }
    }
    text.len()
}

/// A peer's bytes for a person or a log: control characters and what is not UTF-8 are escaped, length is bounded.
#[must_use]
pub fn lossy(text: &[u8]) -> String {
    const MAX: usize = 200;
    let (shown, more) = match text.split_at_checked(MAX) {
        Some((head, [_, ..])) => (head, "…"),
        _ => (text, ""),
    };
    let mut out: String = String::from_utf8_lossy(shown).chars().flat_map(escape).collect();
    out.push_str(more);
    out
}

fn escape(c: char) -> impl Iterator<Item = char> {
    let plain = (!c.is_control()).then_some(c);
    let escaped = c.is_control().then(|| c.escape_default());
    plain.into_iter().chain(escaped.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commas_in_quotes_and_brackets_do_not_split() {
        let value = br#""A, B" <sip:a,b@x>;q=1 , <sip:c> ,, "x\"," <sip:d>"#;
        let elements: Vec<_> = split_list(value).collect();
        assert_eq!(elements, [&br#""A, B" <sip:a,b@x>;q=1"#[..], b"<sip:c>", b"", br#""x\"," <sip:d>"#]);
    }

    #[test]
    fn decimals_are_bounded() {
        assert_eq!(parse_decimal(b"007"), Some(7));
        assert_eq!(parse_decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in [&b""[..], b"-1", b"+1", b"1 ", b"18446744073709551616", b"99999999999999999999999"] {
            assert_eq!(parse_decimal(bad), None);
        }
    }

    #[test]
    fn a_log_line_cannot_be_forged() {
        assert_eq!(lossy(b"a\r\nb\x1b[2J\xff"), "a\\r\\nb\\u{1b}[2J\u{fffd}");
        assert!(lossy(&[b'x'; 1000]).ends_with('…'));
    }

    #[test]
    fn quoted_pairs_are_undone() {
        assert_eq!(unquote(br#""a\"b\\c""#).as_ref(), br#"a"b\c"#);
        assert_eq!(unquote(b"plain").as_ref(), b"plain");
    }

    proptest! {
        #[test]
        fn many_bytes_at_once_are_as_one_by_one(
            text in proptest::collection::vec(prop_oneof![8 => b'a'..=b'z', 1 => any::<u8>(), 1 => 0u8..32], 0..80),
        ) {
            let line_end = text.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            prop_assert_eq!(find_line_end(&text), line_end);
            for class in [TOKEN, USER, PARAM, NAME, HEADER, URI, WORD, VALUE, BRACKETED, HEADER | TOKEN | NAME] {
                let end = text.iter().position(|byte| !is(*byte, class)).unwrap_or(text.len());
                prop_assert_eq!(split_while(&text, class), text.split_at(end));
                prop_assert_eq!(all(&text, class), !text.is_empty() && end == text.len());
            }
        }
    }
}
