//! Numbers as sixteen letters from `a` to `p`, four bits each, for values that are in every message. Processes eight
//! letters at a time.

/// Number of letters.
pub const LEN: usize = 16;

/// The first letter eight times.
const FIRST: u64 = u64::from_be_bytes([b'a'; 8]);

/// Encodes a number.
#[inline]
#[must_use]
pub fn encode(number: u64) -> [u8; LEN] {
    let mut text = [0; LEN];
    for (half, letters) in [number >> 32, number & u64::from(u32::MAX)].into_iter().zip(text.as_chunks_mut::<8>().0) {
        let spread = (half | half << 16) & 0x0000_ffff_0000_ffff;
        let spread = (spread | spread << 8) & 0x00ff_00ff_00ff_00ff;
        let spread = (spread | spread << 4) & 0x0f0f_0f0f_0f0f_0f0f;
        *letters = spread.wrapping_add(FIRST).to_be_bytes();
    }
    text
}

/// Decodes a number; `None` if [`encode`] did not write the text.
#[inline]
#[must_use]
pub fn decode(text: &[u8; LEN]) -> Option<u64> {
    let (mut number, mut wrong) = (0, 0);
    for letters in text.as_chunks::<8>().0 {
        // The last invalid letter does not borrow, so an invalid letter is always detected.
        let spread = u64::from_be_bytes(*letters).wrapping_sub(FIRST);
        wrong |= spread & 0xf0f0_f0f0_f0f0_f0f0;
        let joined = (spread | spread >> 4) & 0x00ff_00ff_00ff_00ff;
        let joined = (joined | joined >> 8) & 0x0000_ffff_0000_ffff;
        number = number << 32 | ((joined | joined >> 16) & u64::from(u32::MAX));
    }
    (wrong == 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_round_trip(number in any::<u64>()) {
            let text = encode(number);
            let letter = |at: u32| b'a' + u8::try_from(number >> (60 - 4 * at) & 15).unwrap_or(0);
            prop_assert!((0..).zip(text).all(|(at, given)| given == letter(at)));
            prop_assert_eq!(decode(&text), Some(number));
        }

        #[test]
        fn other_characters_are_refused(number in any::<u64>(), at in 0..LEN, other in any::<u8>()) {
            prop_assume!(!(b'a'..=b'p').contains(&other));
            let mut text = encode(number);
            if let Some(letter) = text.get_mut(at) {
                *letter = other;
            }
            prop_assert_eq!(decode(&text), None);
        }
    }
}
