//! Base64url without padding (RFC 4648 §5), used for tags, branches and tokens.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Value of a character outside the alphabet; does not fit six bits.
const NONE: u8 = 0x80;

static VALUES: [u8; 256] = values();

#[expect(clippy::indexing_slicing, reason = "a table of 256 filled at compile time")]
const fn values() -> [u8; 256] {
    let mut values = [NONE; 256];
    let mut at = 0;
    while at < ALPHABET.len() {
        #[expect(clippy::cast_possible_truncation, reason = "below 64")]
        (values[ALPHABET[at] as usize] = at as u8);
        at += 1;
    }
    values
}

#[expect(clippy::indexing_slicing, reason = "a table of 256 indexed by a byte")]
#[inline]
fn value(character: u8) -> u32 {
    u32::from(VALUES[usize::from(character)])
}

#[expect(clippy::indexing_slicing, reason = "a table of 64 indexed by six bits")]
#[inline]
fn character(bits: u32) -> u8 {
    ALPHABET[(bits & 63) as usize]
}

/// Number of characters for `length` bytes.
#[must_use]
pub const fn encoded_len(length: usize) -> usize {
    (length * 8).div_ceil(6)
}

/// Number of bytes of `length` characters; for a length that no encoding has, the number of complete bytes.
#[must_use]
pub const fn decoded_len(length: usize) -> usize {
    length * 6 / 8
}

/// Encodes `bytes` into `text`, which is [`encoded_len`] long.
pub fn encode(bytes: &[u8], text: &mut [u8]) {
    debug_assert_eq!(text.len(), encoded_len(bytes.len()));
    let (threes, last) = bytes.as_chunks::<3>();
    let (fours, text_last) = text.as_chunks_mut::<4>();
    for ([a, b, c], four) in threes.iter().zip(fours) {
        let bits = u32::from_be_bytes([0, *a, *b, *c]);
        *four = [character(bits >> 18), character(bits >> 12), character(bits >> 6), character(bits)];
    }
    match (last, text_last) {
        ([a, b], [first, second, third]) => {
            let bits = u32::from_be_bytes([0, *a, *b, 0]);
            (*first, *second, *third) = (character(bits >> 18), character(bits >> 12), character(bits >> 6));
        }
        ([a], [first, second]) => {
            let bits = u32::from_be_bytes([0, *a, 0, 0]);
            (*first, *second) = (character(bits >> 18), character(bits >> 12));
        }
        _ => {}
    }
}

/// Decodes `text` into `bytes`, which is [`decoded_len`] long. Returns `None` if [`encode`] would not have written
/// the text.
#[must_use]
pub fn decode(text: &[u8], bytes: &mut [u8]) -> Option<()> {
    let (fours, text_last) = text.as_chunks::<4>();
    let (threes, last) = bytes.as_chunks_mut::<3>();
    let mut all = 0;
    for ([a, b, c, d], three) in fours.iter().zip(threes) {
        let [a, b, c, d] = [value(*a), value(*b), value(*c), value(*d)];
        all |= a | b | c | d;
        let [_, x, y, z] = (a << 18 | b << 12 | c << 6 | d).to_be_bytes();
        *three = [x, y, z];
    }
    let left = match (text_last, last) {
        ([], []) => 0,
        ([a, b], [x]) => {
            let (a, b) = (value(*a), value(*b));
            all |= a | b;
            let [_, first, left, _] = (a << 18 | b << 12).to_be_bytes();
            *x = first;
            left
        }
        ([a, b, c], [x, y]) => {
            let (a, b, c) = (value(*a), value(*b), value(*c));
            all |= a | b | c;
            let [_, first, second, left] = (a << 18 | b << 12 | c << 6).to_be_bytes();
            (*x, *y) = (first, second);
            left
        }
        _ => return None,
    };
    // Unused bits must be zero, or a token would have several spellings.
    (all & u32::from(NONE) == 0 && left == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::BASE64URL_NOPAD;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn matches_data_encoding(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            let mut text = vec![0; encoded_len(bytes.len())];
            encode(&bytes, &mut text);
            prop_assert_eq!(text.clone(), BASE64URL_NOPAD.encode(&bytes).into_bytes());
            let mut back = vec![0; decoded_len(text.len())];
            prop_assert_eq!(decode(&text, &mut back), Some(()));
            prop_assert_eq!(back, bytes);
        }

        #[test]
        fn decodes_as_data_encoding(text in "[A-Za-z0-9_-]{0,12}[A-Za-z0-9_+/=-]{0,4}|[\\x00-\\xff]{0,8}") {
            let text = text.as_bytes();
            let mut bytes = vec![0; decoded_len(text.len())];
            prop_assert_eq!(decode(text, &mut bytes).map(|()| bytes), BASE64URL_NOPAD.decode(text).ok());
        }
    }
}
