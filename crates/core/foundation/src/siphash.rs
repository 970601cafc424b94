//! SipHash (Aumasson and Bernstein, 2012) over several short texts, word by word, without joining or buffering them.

/// SipHash with `BLOCK` rounds per word and `END` final rounds.
pub(crate) struct SipHasher<const BLOCK: usize, const END: usize> {
    state: State,
    /// The bytes of an incomplete word.
    tail: u64,
    /// Number of bits in `tail`; below 64.
    filled: u32,
    /// Number of bytes hashed so far.
    length: u64,
}

#[derive(Clone, Copy)]
struct State {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl<const BLOCK: usize, const END: usize> SipHasher<BLOCK, END> {
    /// Starts a 64-bit hash.
    #[inline]
    pub(crate) fn new64(key: &[u8; 16]) -> Self {
        let key = u128::from_le_bytes(*key);
        let (k0, k1) = halves(key);
        let state = State {
            v0: k0 ^ 0x736f_6d65_7073_6575,
            v1: k1 ^ 0x646f_7261_6e64_6f6d,
            v2: k0 ^ 0x6c79_6765_6e65_7261,
            v3: k1 ^ 0x7465_6462_7974_6573,
        };
        Self { state, tail: 0, filled: 0, length: 0 }
    }

    /// Starts a 128-bit hash.
    #[inline]
    pub(crate) fn new128(key: &[u8; 16]) -> Self {
        let mut sip = Self::new64(key);
        sip.state.v1 ^= 0xee;
        sip
    }

    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.length = self.length.wrapping_add(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.push(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let bits = (rest.len() as u32).wrapping_mul(8);
            let word = match bytes.last_chunk::<8>() {
                Some(last) => u64::from_le_bytes(*last) >> (64 - bits),
                None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
            };
            self.push_bits(word, bits);
        }
    }

    #[inline]
    pub(crate) fn write_u32(&mut self, number: u32) {
        self.length = self.length.wrapping_add(4);
        self.push_bits(u64::from(number), 32);
    }

    #[inline]
    pub(crate) fn write_u64(&mut self, number: u64) {
        self.length = self.length.wrapping_add(8);
        self.push(number);
    }

    #[inline]
    pub(crate) fn finish64(mut self) -> u64 {
        self.end();
        self.state.v2 ^= 0xff;
        self.state.rounds::<END>();
        self.state.folded()
    }

    #[inline]
    pub(crate) fn finish128(mut self) -> u128 {
        self.end();
        self.state.v2 ^= 0xee;
        self.state.rounds::<END>();
        let low = self.state.folded();
        self.state.v1 ^= 0xdd;
        self.state.rounds::<END>();
        u128::from(self.state.folded()) << 64 | u128::from(low)
    }

    /// Adds a whole word.
    #[inline]
    fn push(&mut self, word: u64) {
        self.block(self.tail | word << self.filled);
        // Shifts in two steps: the total is 64 bits if the word leaves no remainder.
        self.tail = word >> 1 >> (63 - self.filled);
    }

    /// Adds less than a word.
    #[inline]
    fn push_bits(&mut self, word: u64, bits: u32) {
        let tail = self.tail | word << self.filled;
        let filled = self.filled.wrapping_add(bits);
        if filled < 64 {
            (self.tail, self.filled) = (tail, filled);
        } else {
            self.block(tail);
            self.tail = word >> 1 >> (63 - self.filled);
            self.filled = filled.wrapping_sub(64);
        }
    }

    /// Adds the last word, with the length in its highest byte.
    #[inline]
    fn end(&mut self) {
        self.block(self.tail | self.length << 56);
    }

    #[inline]
    fn block(&mut self, word: u64) {
        self.state.v3 ^= word;
        self.state.rounds::<BLOCK>();
        self.state.v0 ^= word;
    }
}

impl State {
    #[inline]
    const fn folded(&self) -> u64 {
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }

    #[inline]
    fn rounds<const COUNT: usize>(&mut self) {
        let Self { mut v0, mut v1, mut v2, mut v3 } = *self;
        for _ in 0..COUNT {
            v0 = v0.wrapping_add(v1);
            v2 = v2.wrapping_add(v3);
            v1 = v1.rotate_left(13) ^ v0;
            v3 = v3.rotate_left(16) ^ v2;
            v0 = v0.rotate_left(32).wrapping_add(v3);
            v2 = v2.wrapping_add(v1);
            v1 = v1.rotate_left(17) ^ v2;
            v3 = v3.rotate_left(21) ^ v0;
            v2 = v2.rotate_left(32);
        }
        *self = Self { v0, v1, v2, v3 };
    }
}

#[expect(clippy::cast_possible_truncation, reason = "halves are what is wanted")]
const fn halves(number: u128) -> (u64, u64) {
    (number as u64, (number >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use core::hash::Hasher as _;

    use proptest::prelude::*;
    use siphasher::sip128::{Hasher128 as _, SipHasher13, SipHasher24};

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_siphasher(
            key in any::<[u8; 16]>(),
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..6),
            number in any::<u64>(),
        ) {
            let (mut ours24, mut ours13, mut ours64) =
                (SipHasher::<2, 4>::new128(&key), SipHasher::<1, 3>::new128(&key), SipHasher::<2, 4>::new64(&key));
            let mut text = Vec::new();
            for part in &parts {
                let length = u32::try_from(part.len()).unwrap_or(0);
                ours24.write_u32(length);
                ours24.write(part);
                ours13.write_u32(length);
                ours13.write(part);
                ours64.write(part);
                ours64.write_u64(number);
                text.extend_from_slice(&length.to_le_bytes());
                text.extend_from_slice(part);
            }
            let (mut theirs24, mut theirs13) = (SipHasher24::new_with_key(&key), SipHasher13::new_with_key(&key));
            theirs24.write(&text);
            theirs13.write(&text);
            prop_assert_eq!(ours24.finish128(), theirs24.finish128().as_u128());
            prop_assert_eq!(ours13.finish128(), theirs13.finish128().as_u128());
            let mut theirs64 = siphasher::sip::SipHasher24::new_with_key(&key);
            for part in &parts {
                theirs64.write(part);
                theirs64.write(&number.to_le_bytes());
            }
            prop_assert_eq!(ours64.finish64(), theirs64.finish());
        }
    }
}
