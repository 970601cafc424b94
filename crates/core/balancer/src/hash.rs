//! Hashes for selecting targets. They are the same on every machine and in every version.
//!
//! The named hashes exist to reproduce results of papers; prefer [`Policy::Hash`](crate::Policy::Hash) otherwise.

use sha1::{Digest as _, Sha1};
use strowger_foundation::TagKey;
pub use strowger_foundation::fnv1a as fnv;

/// Returns Bernstein's hash, 33 h + c, starting from 5381.
#[must_use]
pub fn bernstein(key: &[u8]) -> u32 {
    key.iter().fold(5_381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

/// Returns the first 64 bits of SHA-1 (RFC 3174).
#[must_use]
pub fn sha1(key: &[u8]) -> u64 {
    Sha1::digest(key).first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

/// Returns the hash of OpenSER's dispatcher, which OpenSIPS and Kamailio still use: the words of four bytes and the
/// remaining bytes, each `v ^ v >> 3`, are added, and the sum is folded. Bytes above 127 differ between machines
/// there; here they are positive.
#[must_use]
pub fn openser(key: &[u8]) -> u32 {
    let (words, rest) = key.as_chunks::<4>();
    let rest = rest.iter().fold(0, |value: u32, byte| value << 8 | u32::from(*byte));
    let values = words.iter().map(|word| u32::from_be_bytes(*word)).chain([rest]);
    let sum = values.fold(0, |sum: u32, value| sum.wrapping_add(value ^ value >> 3));
    let folded = sum.wrapping_add(sum >> 11).wrapping_add(sum >> 13).wrapping_add(sum >> 23);
    if folded == 0 { 1 } else { folded }
}

/// Returns the index of the alphabet range of the first letter of `key`, with the alphabet divided into `ranges`
/// ranges as evenly as possible: for three, a-h, i-q and r-z. Digits have ranges of their own; any other character is
/// in the first range.
#[must_use]
pub fn range(key: &[u8], ranges: usize) -> usize {
    let (at, of) = match key.first().map(u8::to_ascii_lowercase) {
        Some(letter @ b'a'..=b'z') => (letter - b'a', 26),
        Some(digit @ b'0'..=b'9') => (digit - b'0', 10),
        _ => return 0,
    };
    ((usize::from(at) + 1).saturating_mul(ranges).saturating_sub(1) / of).min(ranges.saturating_sub(1))
}

/// Returns the hash of a key for consistent hashing. It is computed for every request, so it is fast. It has no key:
/// an attacker gains nothing by collisions, and all servers that must agree know it anyway.
#[inline]
pub(crate) fn of_key(key: &[u8]) -> u64 {
    let (words, rest) = key.as_chunks::<8>();
    let hash = words.iter().fold(key.len() as u64, |hash, word| mix(hash ^ u64::from_le_bytes(*word)));
    let rest = rest.iter().fold(0, |word: u64, byte| word << 8 | u64::from(*byte));
    mix(hash ^ rest)
}

/// Returns the stable hash that identifies targets. Its key is not secret: members of a cluster and successive
/// versions need the same one.
pub(crate) fn stable(parts: &[&[u8]]) -> u64 {
    const KEY: TagKey = TagKey::new(*b"strowger-balance");
    KEY.table128(parts) as u64
}

/// Mixes a number into a uniformly distributed one: the finalizer of MurmurHash3.
#[inline]
pub(crate) const fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let number = (number ^ number >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ number >> 33
}

/// Fraction bits of logarithms.
const LOG_BITS: u32 = 26;
/// Number of linear segments of the logarithm between 1 and 2.
const PIECES: usize = 256;

/// Returns −log₂ of `number` as a fraction of 2⁶⁴, with 26 fraction bits: exponentially distributed if `number` is
/// uniform. Uses integers, because every member must get the same result, and floating-point logarithms differ
/// between libraries.
#[inline]
pub(crate) fn exponential(number: u64) -> u64 {
    let number = number | 1;
    let zeros = number.leading_zeros();
    let mantissa = number << zeros;
    let piece = (mantissa >> 55) as usize % PIECES;
    let within = mantissa >> 23 & u64::from(u32::MAX);
    let knot = |at: usize| u64::from(LOGARITHMS.get(at).copied().unwrap_or(0));
    let (low, high) = (knot(piece), knot(piece + 1));
    (u64::from(zeros + 1) << LOG_BITS) - (low + (((high - low) * within) >> 32))
}

/// log₂(1 + i/256), with 26 fraction bits.
static LOGARITHMS: [u32; PIECES + 1] = logarithms();

const fn logarithms() -> [u32; PIECES + 1] {
    let mut table = [0; PIECES + 1];
    let mut rest: &mut [u32] = &mut table;
    let mut at = 0;
    while let [first, others @ ..] = rest {
        *first = log2(PIECES as u64 + at);
        rest = others;
        at += 1;
    }
    table
}

/// Returns log₂(`number` / 256) for numbers from 256 to 512; each squaring gives one more bit.
const fn log2(number: u64) -> u32 {
    const TWO: u64 = 2 << 30;
    let mut power = number << 22;
    let mut log = 0;
    if power == TWO {
        return 1 << LOG_BITS;
    }
    let mut bit = LOG_BITS;
    while bit > 0 {
        bit -= 1;
        power = (power * power) >> 30;
        if power >= TWO {
            power >>= 1;
            log |= 1 << bit;
        }
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        assert_eq!([b"".as_slice(), b"a", b"abc"].map(bernstein), [5_381, 177_670, 193_485_963]);
        // The authors' test vectors.
        assert_eq!([b"".as_slice(), b"a", b"foobar"].map(fnv), [0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968]);
        // RFC 3174 §7.3 and FIPS 180.
        assert_eq!([b"".as_slice(), b"abc"].map(sha1), [0xda39_a3ee_5e6b_4b0d, 0xa999_3e36_4706_816a]);
    }

    /// By hand: `abcd` is 0x61626364, ^ >> 3 = 0x6d4e2f08; `e` is 0x65 ^ 0x0c = 0x69; the sum of both is 0x6d4e2f71.
    #[test]
    fn openser_matches_a_hand_computation() {
        let sum = 0x6d4e_2f08_u32 + 0x69;
        assert_eq!(0x6162_6364_u32 ^ 0x6162_6364 >> 3, 0x6d4e_2f08);
        assert_eq!(openser(b"abcde"), sum.wrapping_add(sum >> 11).wrapping_add(sum >> 13).wrapping_add(sum >> 23));
        assert_eq!(openser(b""), 1);
        // Words are added, so their order does not matter: one of the reasons for its skew.
        assert_eq!(openser(b"abcdwxyz"), openser(b"wxyzabcd"));
    }

    #[test]
    fn three_ranges_match_the_paper() {
        let of_three = |first: u8| range(&[first], 3);
        assert!((b'a'..=b'h').all(|letter| of_three(letter) == 0));
        assert!((b'i'..=b'q').all(|letter| of_three(letter) == 1));
        assert!((b'r'..=b'z').all(|letter| of_three(letter) == 2));
        assert_eq!((range(b"bob", 3), range(b"Sam", 3), range(b"+49", 3), range(b"", 3)), (0, 2, 0, 0));
        assert_eq!([b'0', b'3', b'6', b'9'].map(of_three), [0, 1, 2, 2]);
        for ranges in 1..100 {
            assert!((0..=u8::MAX).all(|first| range(&[first], ranges) < ranges), "{ranges}");
            assert_eq!(range(b"zoe", ranges), ranges - 1);
        }
        assert_eq!(range(b"zoe", 0), 0);
    }

    #[test]
    fn the_consistent_hash_never_changes() {
        assert_eq!(
            [b"".as_slice(), b"7a1f9c64", b"7a1f9c64@192.0.2.1"].map(of_key),
            [0, 3_283_624_531_626_400_875, 10_853_505_125_083_445_663]
        );
        assert_eq!(stable(&[b"7a1f9c64@192.0.2.1"]), 7_562_769_328_604_945_227);
    }

    #[test]
    fn logarithms_are_right_to_five_digits_and_monotonic() {
        let exact = |number: u64| -((number | 1) as f64 / 2_f64.powi(64)).log2();
        let mut number = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..100_000 {
            number = mix(number.wrapping_add(0x9e37_79b9_7f4a_7c15));
            for number in [number, number >> (number % 64), u64::MAX - (number >> 20)] {
                let ours = exponential(number) as f64 / f64::from(1 << LOG_BITS);
                assert!((ours - exact(number)).abs() < 4e-6, "{number}: {ours}");
                assert!(exponential(number) >= exponential(number.saturating_add(number >> 24)));
            }
        }
        assert_eq!(
            (exponential(0), exponential(1), exponential(1 << 63)),
            (64 << LOG_BITS, 64 << LOG_BITS, 1 << LOG_BITS)
        );
    }
}
