//! Vector operations on sixteen bytes. The result of a comparison is a bit mask; the number of its trailing zeros is
//! the position of the first mismatch. Values are short, so one step usually finds the end of one.

/// Number of bytes in a vector.
pub(crate) const LANES: usize = 16;

/// A vector of sixteen bytes. A comparison sets all bits of each matching byte and clears the others.
#[derive(Clone, Copy)]
pub(crate) struct ByteVector(lanes::Register);

impl ByteVector {
    #[inline(always)]
    pub(crate) fn of(bytes: [u8; LANES]) -> Self {
        Self(lanes::load(bytes))
    }

    /// Compares each byte with `byte`.
    #[inline(always)]
    pub(crate) fn eq_mask(self, byte: u8) -> Self {
        Self(lanes::equal(self.0, lanes::load([byte; LANES])))
    }

    /// Tests whether each byte is at most `most`.
    #[inline(always)]
    pub(crate) fn le_mask(self, most: u8) -> Self {
        Self(lanes::equal(lanes::lesser(self.0, lanes::load([most; LANES])), self.0))
    }

    /// Tests whether each byte is within `first..=last`.
    #[inline(always)]
    pub(crate) fn range_mask(self, first: u8, last: u8) -> Self {
        Self(lanes::difference(self.0, lanes::load([first; LANES]))).le_mask(last.wrapping_sub(first))
    }

    /// Sets `bits` in each byte.
    #[inline(always)]
    pub(crate) fn with_bits(self, bits: u8) -> Self {
        self.or(Self(lanes::load([bits; LANES])))
    }

    #[inline(always)]
    pub(crate) fn or(self, other: Self) -> Self {
        Self(lanes::or(self.0, other.0))
    }

    /// Returns the highest bit of each byte; the first byte's is the lowest bit of the result.
    #[inline(always)]
    pub(crate) fn bitmask(self) -> u32 {
        lanes::high_bits(self.0)
    }
}

#[cfg(not(target_arch = "x86_64"))]
use portable as lanes;
#[cfg(target_arch = "x86_64")]
use x86_64 as lanes;

/// SSE2, which every x86-64 processor has.
#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use safe_arch::{bitor_m128i, cmp_eq_mask_i8_m128i, m128i, min_u8_m128i, move_mask_i8_m128i, sub_i8_m128i};

    pub(super) type Register = m128i;

    #[inline(always)]
    pub(super) fn load(bytes: [u8; 16]) -> Register {
        bytes.into()
    }

    #[inline(always)]
    pub(super) fn equal(a: Register, b: Register) -> Register {
        cmp_eq_mask_i8_m128i(a, b)
    }

    #[inline(always)]
    pub(super) fn lesser(a: Register, b: Register) -> Register {
        min_u8_m128i(a, b)
    }

    #[inline(always)]
    pub(super) fn difference(a: Register, b: Register) -> Register {
        sub_i8_m128i(a, b)
    }

    #[inline(always)]
    pub(super) fn or(a: Register, b: Register) -> Register {
        bitor_m128i(a, b)
    }

    #[inline(always)]
    pub(super) fn high_bits(a: Register) -> u32 {
        move_mask_i8_m128i(a).cast_unsigned()
    }
}

/// Portable implementation; the compiler vectorizes it.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable {
    pub(super) type Register = [u8; 16];

    pub(super) const fn load(bytes: [u8; 16]) -> Register {
        bytes
    }

    pub(super) fn equal(a: Register, b: Register) -> Register {
        each(a, b, |a, b| if a == b { u8::MAX } else { 0 })
    }

    pub(super) fn lesser(a: Register, b: Register) -> Register {
        each(a, b, u8::min)
    }

    pub(super) fn difference(a: Register, b: Register) -> Register {
        each(a, b, u8::wrapping_sub)
    }

    pub(super) fn or(a: Register, b: Register) -> Register {
        each(a, b, |a, b| a | b)
    }

    pub(super) fn high_bits(a: Register) -> u32 {
        a.iter().rev().fold(0, |bits, byte| bits << 1 | u32::from(byte >> 7))
    }

    fn each(a: Register, b: Register, of: impl Fn(u8, u8) -> u8) -> Register {
        let mut out = a;
        out.iter_mut().zip(b).for_each(|(out, b)| *out = of(*out, b));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn masks_match_scalar_code(bytes in any::<[u8; 16]>(), first in any::<u8>(), last in any::<u8>(), set in any::<u8>()) {
            let (lanes, last) = (ByteVector::of(bytes), last.max(first));
            let bits = |is: &dyn Fn(u8) -> bool| {
                bytes.iter().enumerate().fold(0, |bits, (at, byte)| bits | u32::from(is(*byte)) << at)
            };
            prop_assert_eq!(lanes.eq_mask(bytes[3]).bitmask(), bits(&|byte| byte == bytes[3]));
            prop_assert_eq!(lanes.le_mask(last).bitmask(), bits(&|byte| byte <= last));
            prop_assert_eq!(lanes.range_mask(first, last).bitmask(), bits(&|byte| (first..=last).contains(&byte)));
            prop_assert_eq!(lanes.with_bits(set).eq_mask(last).bitmask(), bits(&|byte| byte | set == last));
            prop_assert_eq!(lanes.eq_mask(first).or(lanes.eq_mask(last)).bitmask(), bits(&|byte| byte == first || byte == last));
        }

        #[test]
        fn simd_matches_portable_code(a in any::<[u8; 16]>(), b in any::<[u8; 16]>()) {
            let same = |one: lanes::Register, other| lanes::high_bits(lanes::equal(one, lanes::load(other))) == 0xffff;
            let (x, y) = (lanes::load(a), lanes::load(b));
            prop_assert!(same(lanes::equal(x, y), portable::equal(portable::load(a), b)));
            prop_assert!(same(lanes::lesser(x, y), portable::lesser(a, b)));
            prop_assert!(same(lanes::difference(x, y), portable::difference(a, b)));
            prop_assert!(same(lanes::or(x, y), portable::or(a, b)));
            prop_assert_eq!(lanes::high_bits(x), portable::high_bits(a));
        }
    }
}
