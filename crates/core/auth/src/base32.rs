//! Base32 with the alphabet of RFC 4648 §7 in lower case, eight characters at a time.

use crate::hex::every;

/// Offset of a letter above the digit range.
const UP: u64 = (b'a' - 10 - b'0') as u64;

/// Encodes the lowest 40 bits of a number.
pub(crate) fn encode(number: u64) -> [u8; 8] {
    // Split into 20-bit, 10-bit and finally 5-bit parts, each in its own byte.
    let parts = number & 0xf_ffff | (number >> 20 & 0xf_ffff) << 32;
    let parts = parts & 0x0000_03ff_0000_03ff | (parts & 0x000f_fc00_000f_fc00) << 6;
    let parts = parts & 0x001f_001f_001f_001f | (parts & 0x03e0_03e0_03e0_03e0) << 3;
    // 1 in each byte that is ten or more.
    let letters = parts.wrapping_add(every(0x80 - 10)) >> 7 & every(1);
    parts.wrapping_add(every(b'0')).wrapping_add(letters.wrapping_mul(UP)).to_be_bytes()
}

/// Decodes a number; `None` if [`encode`] did not write the text.
pub(crate) fn decode(text: [u8; 8]) -> Option<u64> {
    let bytes = u64::from_be_bytes(text);
    let letters = bytes >> 6 & every(1);
    let parts = bytes.wrapping_sub(every(b'0')).wrapping_sub(letters.wrapping_mul(UP));
    let parts = parts & 0x001f_001f_001f_001f | parts >> 3 & 0x03e0_03e0_03e0_03e0;
    let parts = parts & 0x0000_03ff_0000_03ff | parts >> 6 & 0x000f_fc00_000f_fc00;
    let number = parts & 0xf_ffff | parts >> 12 & 0xff_fff0_0000;
    (encode(number) == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_base32hex(number in 0..1u64 << 40, other in any::<[u8; 8]>()) {
            let [_, _, _, bytes @ ..] = number.to_be_bytes();
            let text = data_encoding::BASE32HEX_NOPAD.encode(&bytes).to_ascii_lowercase();
            prop_assert_eq!(&encode(number), text.as_bytes());
            prop_assert_eq!(decode(encode(number)), Some(number));
            let theirs = data_encoding::BASE32HEX_NOPAD.decode(&other.to_ascii_uppercase()).ok();
            let is_lower = !other.iter().any(u8::is_ascii_uppercase);
            prop_assert_eq!(decode(other).is_some(), theirs.is_some() && is_lower);
        }

        #[test]
        fn other_bytes_are_rejected(number in 0..1u64 << 40, at in 0..8usize, byte in any::<u8>()) {
            let mut text = encode(number);
            text[at] = byte;
            prop_assert_eq!(decode(text).is_some(), matches!(byte, b'0'..=b'9' | b'a'..=b'v'));
        }
    }
}
