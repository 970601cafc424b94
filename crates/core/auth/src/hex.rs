//! Branch-free conversion of hexadecimal digits, eight at a time.

/// Repeats `byte` in each byte of the number.
pub(crate) const fn every(byte: u8) -> u64 {
    0x0101_0101_0101_0101u64.wrapping_mul(byte as u64)
}

/// Returns the lower-case digits of four bytes.
pub(crate) fn encode(bytes: [u8; 4]) -> [u8; 8] {
    let bytes = u64::from(u32::from_le_bytes(bytes));
    // Spread bytes into pairs: first two bytes apart, then one.
    let pairs = (bytes | bytes.wrapping_shl(16)) & 0x0000_ffff_0000_ffff;
    let pairs = (pairs | pairs.wrapping_shl(8)) & 0x00ff_00ff_00ff_00ff;
    let digits = (pairs.wrapping_shr(4) | pairs.wrapping_shl(8)) & every(0x0f);
    // 1 in each byte that is ten or more, which becomes a letter.
    let letters = digits.wrapping_add(every(6)).wrapping_shr(4) & every(1);
    let up = letters.wrapping_mul(u64::from(b'a' - 10 - b'0'));
    digits.wrapping_add(every(b'0')).wrapping_add(up).to_le_bytes()
}

/// Converts eight digits to lower case; `None` if one is invalid.
pub(crate) fn lower_case(digits: [u8; 8]) -> Option<[u8; 8]> {
    let text = u64::from_le_bytes(digits);
    let lower = text | every(0x20);
    // The high bit of each byte that is at least `from`. High bits are masked first, so sums do not carry into the
    // next byte.
    let reaches = |bytes: u64, from: u8| (bytes & every(0x7f)).wrapping_add(every(0x80u8.wrapping_sub(from)));
    let numbers = reaches(text, b'0') & !reaches(text, b'9'.wrapping_add(1));
    let letters = reaches(lower, b'a') & !reaches(lower, b'f'.wrapping_add(1));
    let valid = (numbers | letters) & !text & every(0x80);
    (valid == every(0x80)).then(|| lower.to_le_bytes())
}

/// Parses eight digits.
pub(crate) fn number(digits: [u8; 8]) -> Option<u32> {
    let digit = |byte: u8| u32::from(if byte > b'9' { byte.wrapping_sub(b'a' - 10) } else { byte.wrapping_sub(b'0') });
    let lower = lower_case(digits)?;
    Some(lower.into_iter().fold(0, |number, byte| number.wrapping_shl(4) | digit(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_other_bytes_are_rejected() {
        for byte in 0..=u8::MAX {
            let text = format!("{byte:02x}{:02x}{byte:02x}00", !byte);
            assert_eq!(encode([byte, !byte, byte, 0]), text.as_bytes());
            let upper: [u8; 8] = text.to_uppercase().into_bytes().try_into().unwrap();
            assert_eq!(lower_case(upper).unwrap(), text.as_bytes());
            assert_eq!(number(upper), Some(u32::from_be_bytes([byte, !byte, byte, 0])));
            for place in 0..8 {
                let mut one = *b"09afAF5b";
                one[place] = byte;
                assert_eq!(lower_case(one).is_some(), byte.is_ascii_hexdigit(), "{byte} at {place}");
            }
        }
    }
}
