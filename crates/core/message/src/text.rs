//! Characters, whitespace, quoted strings and comma-separated lists (RFC 3261 §25.1).

use std::borrow::Cow;

use crate::simd::{ByteVector, LANES};

/// A character of a `token` (RFC 3261 §25.1).
pub(crate) const TOKEN: u16 = 1;
/// A character of a SIP URI's user part, escapes excluded.
pub(crate) const USER: u16 = 2;
/// A character of a URI parameter, escapes excluded.
pub(crate) const PARAM: u16 = 4;
/// A character of a domain name.
pub(crate) const NAME: u16 = 8;
/// A character of a URI's header part, escapes excluded.
pub(crate) const HEADER: u16 = 16;
/// A character of any URI (RFC 3986), including the percent sign.
pub(crate) const URI: u16 = 32;
/// A character of a `word` or of an unquoted digest value.
pub(crate) const WORD: u16 = 64;
/// A character of an unquoted parameter value: a [`WORD`] character except quotes and brackets, so that every parser
/// splits a list at the same commas.
pub(crate) const VALUE: u16 = 128;
/// A character allowed between angle brackets: anything but quotes, brackets and whitespace.
pub(crate) const BRACKETED: u16 = 256;
/// A character allowed unescaped in a quoted string on one line.
pub(crate) const QUOTED: u16 = 512;

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
        if byte >= b' ' && !contains(b"\"\\", byte) {
            class |= QUOTED;
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

/// Splits `text` before the first byte that is not of `class`.
#[inline]
pub(crate) fn split_while(text: &[u8], class: u16) -> (&[u8], &[u8]) {
    split_plain::<PlainName>(text, class)
}

/// Like [`split_while`], optimized for text of mostly plain bytes. All plain bytes must be of `class`.
#[inline(always)]
fn split_plain<P: ByteSet>(text: &[u8], class: u16) -> (&[u8], &[u8]) {
    let mut rest = text;
    while let Some((chunk, tail)) = rest.split_first_chunk::<LANES>() {
        let others = P::others(ByteVector::of(*chunk));
        if others == 0 {
            rest = tail;
            continue;
        }
        match chunk.get(others.trailing_zeros() as usize) {
            Some(other) if !is(*other, class) => {
                let end = text.len().wrapping_sub(rest.len()).wrapping_add(others.trailing_zeros() as usize);
                return text.split_at_checked(end).unwrap_or((text, &[]));
            }
            _ => rest = rest.get((others.trailing_zeros() as usize).wrapping_add(1)..).unwrap_or(&[]),
        }
    }
    rest = skip_few(rest, class);
    text.split_at_checked(text.len().wrapping_sub(rest.len())).unwrap_or((text, &[]))
}

/// Skips bytes of `class` in a remainder shorter than a vector.
#[inline]
fn skip_few(mut rest: &[u8], class: u16) -> &[u8] {
    while let Some(([a, b, c, d], tail)) = rest.split_first_chunk()
        && of(*a) & of(*b) & of(*c) & of(*d) & class == class
    {
        rest = tail;
    }
    while let [first, tail @ ..] = rest
        && is(*first, class)
    {
        rest = tail;
    }
    rest
}

/// A set of bytes that can be recognized in vectors.
trait ByteSet {
    /// Returns a bit for each byte that is not plain.
    fn others(bytes: ByteVector) -> u32;
}

/// Letters, digits, `-` and `.`, which are of every class.
struct PlainName;

impl ByteSet for PlainName {
    #[inline(always)]
    fn others(bytes: ByteVector) -> u32 {
        let plain = bytes.with_bits(0x20).range_mask(b'a', b'z').or(bytes.range_mask(b'-', b'9'));
        // The range from dot to digits includes the slash.
        bytes.eq_mask(b'/').bitmask() | (plain.bitmask() ^ 0xffff)
    }
}

/// Letters, digits and `@-./` (and the backquote, which costs nothing): of [`WORD`] and of [`VALUE`].
struct PlainWord;

impl ByteSet for PlainWord {
    #[inline(always)]
    fn others(bytes: ByteVector) -> u32 {
        bytes.with_bits(0x20).range_mask(b'`', b'z').or(bytes.range_mask(b'-', b'9')).bitmask() ^ 0xffff
    }
}

/// The [`BRACKETED`] characters.
struct PlainBracketed;

impl ByteSet for PlainBracketed {
    #[inline(always)]
    fn others(bytes: ByteVector) -> u32 {
        // `<` and `>` differ in one bit.
        bytes.le_mask(b' ').or(bytes.with_bits(2).eq_mask(b'>')).or(bytes.eq_mask(b'"')).bitmask()
    }
}

/// Splits off an unquoted parameter value.
#[inline]
pub(crate) fn split_value(text: &[u8]) -> (&[u8], &[u8]) {
    split_plain::<PlainWord>(text, VALUE)
}

/// Splits off the text between angle brackets.
#[inline]
pub(crate) fn split_bracketed(text: &[u8]) -> (&[u8], &[u8]) {
    split_plain::<PlainBracketed>(text, BRACKETED)
}

/// Whether `text` is not empty and all of it is [`WORD`].
#[inline]
pub(crate) fn is_word(text: &[u8]) -> bool {
    !text.is_empty() && split_plain::<PlainWord>(text, WORD).1.is_empty()
}

/// Returns what follows the [`WORD`] at the start of `text`, or `None` if there is no word.
#[inline]
pub(crate) fn split_word(text: &[u8]) -> Option<&[u8]> {
    let (word, behind) = split_plain::<PlainWord>(text, WORD);
    (!word.is_empty()).then_some(behind)
}

/// Reads a number of up to nine digits at the start of `text` and returns what follows it.
#[inline(always)]
pub(crate) fn split_number(text: &[u8]) -> Option<(u32, &[u8])> {
    let Some(eight) = text.first_chunk() else { return split_digits(text) };
    let bytes = u64::from_le_bytes(*eight) ^ every(b'0');
    // Sets the high bit of the first byte above nine, and possibly of later bytes.
    let others = (bytes.wrapping_add(every(0x76)) | bytes) & every(0x80);
    match others.trailing_zeros() & !7 {
        0 => None,
        64 => split_digits(text),
        bits => {
            // Shift the digits to the end, with zeros in front; then combine neighbours three times.
            let digits = bytes << 64u32.wrapping_sub(bits);
            let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
            let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
            let number = fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & u64::from(u32::MAX);
            Some((u32::try_from(number).ok()?, text.get(bits as usize / 8..)?))
        }
    }
}

/// Reads the same digit by digit.
fn split_digits(text: &[u8]) -> Option<(u32, &[u8])> {
    let (mut number, mut digits) = (0u32, 0usize);
    for byte in text.iter().take(10) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        number = number.wrapping_mul(10).wrapping_add(u32::from(digit));
        digits = digits.wrapping_add(1);
    }
    if matches!(digits, 1..=9) { text.get(digits..).map(|rest| (number, rest)) } else { None }
}

/// Whether `text` is not empty and all of it is of `class`.
pub(crate) fn all(text: &[u8], class: u16) -> bool {
    !text.is_empty() && split_while(text, class).1.is_empty()
}

/// Like [`all`], but allows `%HH` escapes and empty text.
pub(crate) fn all_escaped(text: &[u8], class: u16) -> bool {
    split_escaped(text, class).1.is_empty()
}

/// Like [`split_while`], but also accepts `%HH` escapes.
pub(crate) fn split_escaped(text: &[u8], class: u16) -> (&[u8], &[u8]) {
    let mut rest = split_while(text, class).1;
    while let [b'%', high, low, tail @ ..] = rest
        && high.is_ascii_hexdigit()
        && low.is_ascii_hexdigit()
    {
        rest = split_while(tail, class).1;
    }
    text.split_at_checked(text.len().wrapping_sub(rest.len())).unwrap_or((text, &[]))
}

#[inline]
pub(crate) fn is_lws(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Removes leading whitespace and folds.
pub(crate) fn trim_start(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && is_lws(*first)
    {
        text = rest;
    }
    text
}

/// Removes whitespace and folds at both ends.
#[must_use]
pub fn trim(text: &[u8]) -> &[u8] {
    let mut text = trim_start(text);
    while let [rest @ .., last] = text
        && is_lws(*last)
    {
        text = rest;
    }
    text
}

/// Repeats `byte` in each byte of the number.
#[inline(always)]
const fn every(byte: u8) -> u64 {
    0x0101_0101_0101_0101u64.wrapping_mul(byte as u64)
}

/// Sets the high bit of the first zero byte of `word`, and possibly of later bytes.
#[inline(always)]
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(every(1)) & !word & every(0x80)
}

/// Whether `text` contains `tag` anywhere, in any case (RFC 3261 §7.3.1).
pub(crate) fn contains_tag(text: &[u8]) -> bool {
    let Some(last) = text.last_chunk() else { return text.windows(3).any(|three| three.eq_ignore_ascii_case(b"tag")) };
    let mut rest = text;
    while let Some(ten) = rest.first_chunk() {
        if begins_tag(ten) {
            return true;
        }
        rest = rest.get(8..).unwrap_or(&[]);
    }
    begins_tag(last)
}

/// Whether `tag` starts at one of the first eight of ten bytes.
#[inline(always)]
fn begins_tag(ten: &[u8; 10]) -> bool {
    let eight = |from: usize, letter: u8| {
        let bytes = ten.get(from..).and_then(<[u8]>::first_chunk);
        (bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes)) | every(b' ')) ^ every(letter)
    };
    zeros(eight(0, b't') | eight(1, b'a') | eight(2, b'g')) != 0
}

/// Returns the position of the first `byte`. For bytes so near that setting up a search costs more.
#[inline(always)]
pub(crate) fn find_near(text: &[u8], byte: u8) -> Option<usize> {
    let mut rest = text;
    while let Some((eight, tail)) = rest.split_first_chunk() {
        let found = zeros(u64::from_le_bytes(*eight) ^ every(byte));
        if found != 0 {
            let before = text.len().wrapping_sub(rest.len());
            return Some(before.wrapping_add(found.trailing_zeros() as usize / 8));
        }
        rest = tail;
    }
    let before = text.len().wrapping_sub(rest.len());
    rest.iter().position(|other| *other == byte).map(|at| before.wrapping_add(at))
}

/// Returns the position of the first byte below a space.
#[inline(always)]
pub(crate) fn find_control(text: &[u8]) -> Option<usize> {
    let mut rest = text;
    while let Some((chunk, tail)) = rest.split_first_chunk() {
        let controls = ByteVector::of(*chunk).le_mask(b' ' - 1).bitmask();
        if controls != 0 {
            let before = text.len().wrapping_sub(rest.len());
            return Some(before.wrapping_add(controls.trailing_zeros() as usize));
        }
        rest = tail;
    }
    // The last bytes, less than one step.
    let before = text.len().wrapping_sub(rest.len());
    rest.iter().position(|byte| *byte < b' ').map(|at| before.wrapping_add(at))
}

/// Returns the position of the first CR or LF.
#[inline]
pub(crate) fn find_line_end(text: &[u8]) -> Option<usize> {
    let mut rest = text;
    loop {
        let (_, tail) = rest.split_at_checked(find_control(rest)?)?;
        if let [b'\r' | b'\n', ..] = tail {
            return Some(text.len().wrapping_sub(tail.len()));
        }
        rest = tail.get(1..)?;
    }
}

/// Parses `qvalue = ( "0" [ "." 0*3DIGIT ] ) / ( "1" [ "." 0*3("0") ] )` and returns it in thousandths (RFC 3261
/// §25.1).
#[must_use]
pub fn parse_q(text: &[u8]) -> Option<u16> {
    let (whole, decimals) = match text {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] => (whole, decimals),
        _ => return None,
    };
    let valid = decimals.len() <= 3 && decimals.iter().all(u8::is_ascii_digit);
    let thousandths = [100u16, 10, 1]
        .iter()
        .zip(decimals)
        .map(|(unit, digit)| unit.saturating_mul(u16::from(digit.wrapping_sub(b'0'))));
    match whole {
        b'0' if valid => Some(thousandths.sum()),
        b'1' if valid && decimals.iter().all(|digit| *digit == b'0') => Some(1000),
        _ => None,
    }
}

/// Parses a non-empty run of digits; `None` for anything else or on `u64` overflow.
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

/// A number in decimal notation.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    text: [u8; 10],
    start: usize,
}

impl Decimal {
    /// Formats `number` without leading zeros.
    #[must_use]
    pub fn new(number: u32) -> Self {
        let mut decimal = Self { text: [b'0'; 10], start: 10 };
        // Fast path: most numbers written are hop counts.
        if let Ok(small @ 0..100) = u8::try_from(number) {
            let [.., tens, ones] = &mut decimal.text;
            (*tens, *ones) = (b'0' | (small / 10), b'0' | (small % 10));
            decimal.start = if small < 10 { 9 } else { 8 };
            return decimal;
        }
        let mut left = number;
        for digit in decimal.text.iter_mut().rev() {
            *digit = b'0' | u8::try_from(left % 10).unwrap_or(0);
            left /= 10;
            decimal.start = decimal.start.saturating_sub(1);
            if left == 0 {
                break;
            }
        }
        decimal
    }

    /// The ASCII digits.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.text.get(self.start..).unwrap_or(&[])
    }
}

/// Returns the content of a quoted string, or the text itself if it is not quoted.
#[must_use]
pub fn unquote(text: &[u8]) -> Cow<'_, [u8]> {
    let [b'"', inner @ .., b'"'] = text else { return Cow::Borrowed(text) };
    if memchr::memchr(b'\\', inner).is_none() {
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

/// Returns the trimmed elements of a comma-separated header value. Commas in quotes and in angle brackets do not
/// separate. Empty elements are returned too; the caller's grammar rejects them.
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

/// Returns the end of the first element of a list: a comma or the end of the text.
#[inline]
fn element_end(text: &[u8]) -> usize {
    // Fast path: most values have no comma, or one before any quote or bracket.
    let Some(comma) = memchr::memchr(b',', text) else { return text.len() };
    let hidden = text.get(..comma).is_none_or(|before| memchr::memchr2(b'"', b'<', before).is_some());
    if hidden { quoting_element_end(text) } else { comma }
}

/// Finds the same byte by byte.
fn quoting_element_end(text: &[u8]) -> usize {
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

/// Formats a peer's bytes for a person or a log. Escapes control characters and invalid UTF-8, and limits the length.
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

    proptest! {
        #[test]
        fn a_tag_is_found_at_any_position(before in "[;=<>a-zA-Z]{0,20}", tag in "[tT][aA][gG]", behind in "[;=<>a-zA-Z]{0,20}") {
            let text = [before, tag, behind].concat();
            prop_assert!(contains_tag(text.as_bytes()));
            let without = text.to_ascii_lowercase().replace("tag", "");
            prop_assert_eq!(contains_tag(without.as_bytes()), without.contains("tag"));
        }

        #[test]
        fn fast_number_parsing_matches_digit_by_digit(text in "[0-9]{0,11}[ -~\\x00\\xff]{0,9}", raw in any::<[u8; 8]>()) {
            prop_assert_eq!(split_number(text.as_bytes()), split_digits(text.as_bytes()));
            prop_assert_eq!(split_number(&raw), split_digits(&raw));
        }
    }

    #[test]
    fn decimals_format_like_to_string() {
        for number in [0, 7, 10, 69, 70, 65_535, 1_000_000_000, u32::MAX] {
            assert_eq!(Decimal::new(number).as_bytes(), number.to_string().as_bytes());
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

    /// Tests each byte at each position, between plain bytes.
    fn what_is_plain_is_of_each<P: ByteSet>(classes: &[u16]) {
        for byte in 0..=u8::MAX {
            for place in 0..LANES {
                let mut bytes = *b"abcdefghijklmnop";
                bytes[place] = byte;
                let others = P::others(ByteVector::of(bytes));
                assert!(others == 0 || others == 1 << place, "{byte} at {place}");
                assert!(
                    others != 0 || classes.iter().all(|class| is(byte, *class)),
                    "{byte} is plain and not of a class"
                );
            }
        }
    }

    #[test]
    fn plain_bytes_match_their_classes() {
        what_is_plain_is_of_each::<PlainName>(&[TOKEN, USER, PARAM, NAME, HEADER, URI, WORD, VALUE, BRACKETED, QUOTED]);
        what_is_plain_is_of_each::<PlainWord>(&[WORD, VALUE]);
        what_is_plain_is_of_each::<PlainBracketed>(&[BRACKETED]);
    }

    proptest! {
        #[test]
        fn fast_element_end_matches_byte_by_byte(text in "[a\"<>,\\\\ ]{0,24}") {
            prop_assert_eq!(element_end(text.as_bytes()), quoting_element_end(text.as_bytes()));
        }

        #[test]
        fn vector_search_matches_byte_by_byte(
            text in proptest::collection::vec(prop_oneof![8 => b'a'..=b'z', 1 => any::<u8>(), 1 => 0u8..32], 0..80),
        ) {
            let line_end = text.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            prop_assert_eq!(find_line_end(&text), line_end);
            prop_assert_eq!(find_control(&text), text.iter().position(|byte| *byte < b' '));
            for class in [TOKEN, USER, PARAM, NAME, HEADER, URI, WORD, VALUE, BRACKETED, QUOTED, HEADER | TOKEN | NAME] {
                let end = text.iter().position(|byte| !is(*byte, class)).unwrap_or(text.len());
                prop_assert_eq!(split_while(&text, class), text.split_at(end));
                match class {
                    VALUE => prop_assert_eq!(split_value(&text), text.split_at(end)),
                    BRACKETED => prop_assert_eq!(split_bracketed(&text), text.split_at(end)),
                    WORD => prop_assert_eq!(is_word(&text), !text.is_empty() && end == text.len()),
                    _ => {}
                }
                prop_assert_eq!(all(&text, class), !text.is_empty() && end == text.len());
            }
        }
    }
}
