//! Stateless nonces (RFC 7616 §3.3): time and origin of issue, the source that was challenged, and a seal that proves
//! them.

use core::time::Duration;

use strowger_foundation::{KeyRing, TagKey, Timestamp};

use crate::base32;

/// Length of a nonce in characters: a 64-bit id, a 32-bit [tag](source_tag) and a 32-bit seal, five bits per character.
/// Whoever forges a nonce gains nothing: it only works with a password. Kept short so that most
/// clients' responses are an MD5 over two blocks instead of three.
pub(crate) const NONCE_TEXT_LEN: usize = 26;
/// Number of characters after the last full group of eight.
const LAST: usize = NONCE_TEXT_LEN % 8;
/// Mask of the bits of eight characters.
const EIGHT: u128 = (1 << 40) - 1;

/// Number of bits of a window's milliseconds.
const WINDOW_BITS: u32 = 13;
/// Window within which the same request gets the same nonce, so that most retransmissions get the same stateless
/// challenge (RFC 3261 §8.2.7). A nonce counts as issued at the end of its window, so it is valid for at least its
/// age.
pub const NONCE_WINDOW: Duration = Duration::from_millis(1 << WINDOW_BITS);

/// Number of bits that distinguish nonces of one window: the group, then the request.
const WITHIN_BITS: u32 = 37;
/// Number of bits that distinguish the requests of a group.
const REQUEST_BITS: u32 = 34;
const REQUEST_MASK: u64 = (1 << REQUEST_BITS) - 1;

/// Identifies a nonce within a process, ordered by window of issue: 27 bits for the window (34 years), 3 for the
/// group within it, 34 for the request. Collisions are rare (with 100,000 requests per window, one pair in three or
/// four windows) and only cause the second request to be challenged again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NonceId(u64);

impl NonceId {
    pub(crate) fn issue(now: Timestamp, request: u64) -> Self {
        const MAX_WINDOW: u64 = (1 << (u64::BITS - WITHIN_BITS)) - 1;
        let window = (now.as_millis() >> WINDOW_BITS).min(MAX_WINDOW);
        Self(window << WITHIN_BITS | request & REQUEST_MASK)
    }

    /// Returns this id, moved to `group` if its own is earlier.
    pub(crate) const fn not_before(self, group: u64) -> Self {
        if self.group() < group { Self(group << REQUEST_BITS | self.0 & REQUEST_MASK) } else { self }
    }

    /// Number of the group. The process starts a group with each window of issue, and within a window whenever it
    /// must distinguish nonces issued so far from later ones.
    pub(crate) const fn group(self) -> u64 {
        self.0 >> REQUEST_BITS
    }

    pub(crate) const fn to_bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// End of the window of issue, in ms.
    pub(crate) const fn issued_ms(self) -> u64 {
        (self.0 >> WITHIN_BITS).wrapping_add(1) << WINDOW_BITS
    }

    //= rfc7616#5.12:random
    /// Returns the nonce for a source with this tag, sealed with the current key. `life` distinguishes incarnations of
    /// the process: nonces whose uses have been forgotten must not be accepted.
    pub(crate) fn to_text(self, ring: &KeyRing, life: u64, tag: u32) -> [u8; NONCE_TEXT_LEN] {
        let seal = ring.current().short_seal([self.0, life ^ u64::from(tag)]);
        let number = u128::from(self.0) << 64 | u128::from(tag) << 32 | u128::from(seal);
        let mut text = [0; NONCE_TEXT_LEN];
        let (eights, rest) = text.as_chunks_mut::<8>();
        for (eight, shift) in eights.iter_mut().zip([88, 48, 8]) {
            *eight = base32::encode(low_half(number >> shift & EIGHT));
        }
        if let Some(last) = base32::encode(low_half(number & 0xff)).last_chunk::<LAST>() {
            rest.copy_from_slice(last);
        }
        text
    }

    /// Parses a nonce; `None` if this process did not issue it, or not under an accepted key.
    pub(crate) fn from_text(text: &[u8], ring: &KeyRing, life: u64) -> Option<Self> {
        let number = number_of(text)?;
        let (id, tag, seal) = (low_half(number >> 64), low_quarter(number >> 32), low_quarter(number));
        ring.are_short_sealed([id, life ^ u64::from(tag)], seal).then_some(Self(id))
    }
}

/// Returns the tag that a nonce carries for a [source](strowger_foundation::source_bits). It proves that the sender of a
/// nonce has received a challenge there: nobody else can know it.
pub(crate) fn source_tag(key: &TagKey, source: u64) -> u32 {
    key.short_seal([source])
}

/// Returns the tag in a nonce, whichever process issued it and whenever.
pub(crate) fn tag_of(text: &[u8]) -> Option<u32> {
    number_of(text).map(|number| low_quarter(number >> 32))
}

/// Reads the number that a nonce encodes.
fn number_of(text: &[u8]) -> Option<u128> {
    let text: &[u8; NONCE_TEXT_LEN] = text.try_into().ok()?;
    let (eights, rest) = text.as_chunks::<8>();
    let mut number = 0;
    for eight in eights {
        number = number << 40 | u128::from(base32::decode(*eight)?);
    }
    let mut last = [b'0'; 8];
    *last.last_chunk_mut::<LAST>()? = *rest.first_chunk::<LAST>()?;
    let last = u8::try_from(base32::decode(last)?).ok()?;
    Some(number << 8 | u128::from(last))
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
const fn low_half(number: u128) -> u64 {
    number as u64
}

#[expect(clippy::cast_possible_truncation, reason = "the low quarter is what is wanted")]
const fn low_quarter(number: u128) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_request_has_the_same_nonce_within_a_window() {
        let at = |ms, request| NonceId::issue(Timestamp::from_millis(ms), request);
        assert_eq!(at(8_192, 5), at(16_383, 5));
        assert_ne!(at(8_192, 5), at(16_384, 5));
        assert_ne!(at(8_192, 5), at(8_192, 6));
        assert!(at(8_192, u64::MAX) < at(16_384, 0), "ordered by time");
        assert_eq!(at(u64::MAX / 1_000_000, 0).issued_ms(), at(u64::MAX / 1_000_000, 1).issued_ms());
    }

    #[test]
    fn altered_nonces_are_rejected() {
        let ring = KeyRing::new(TagKey::new([7; 16]));
        let id = NonceId::issue(Timestamp::from_millis(1_234_567), u64::MAX);
        let text = id.to_text(&ring, 5, 77);
        assert_eq!(NonceId::from_text(&text, &ring, 5), Some(id));
        assert_eq!(id.issued_ms(), 151 * 8_192, "the end of the window");
        assert_eq!(NonceId::from_text(&text, &ring, 6), None, "of another life");
        assert_eq!(tag_of(&text), Some(77));
        for at in 0..text.len() {
            for byte in (0..=u8::MAX).filter(|byte| *byte != text[at]) {
                let mut other = text;
                other[at] = byte;
                assert_eq!(NonceId::from_text(&other, &ring, 5), None, "{byte} at {at}");
            }
        }
    }
}
