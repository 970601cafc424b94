//! Nonces that the server need not remember (RFC 7616 §3.3): when and where one was issued, and a seal that proves it.

use core::time::Duration;

use strowger_foundation::{KeyRing, Seal, Timestamp};

use crate::base32;

/// The characters of a nonce: the 64 bits of an id and the 64 of its seal, five bits each. No longer than it must be: with these,
/// most clients' responses are an MD5 over two blocks, not three.
pub(crate) const NONCE_TEXT_LEN: usize = 26;
/// Those behind the last whole eight.
const LAST: usize = NONCE_TEXT_LEN % 8;
/// The bits that eight characters have.
const EIGHT: u128 = (1 << 40) - 1;

/// The bits of a window's milliseconds.
const WINDOW_BITS: u32 = 13;
/// Within this time the same request gets the same nonce, so that a challenge which keeps no state is the same for most
/// retransmissions (RFC 3261 §8.2.7). A nonce counts as issued when its window is over: it is good for its age at least.
pub const NONCE_WINDOW: Duration = Duration::from_millis(1 << WINDOW_BITS);

/// The bits that tell the nonces of one window apart: first of its groups, then of requests.
const WITHIN_BITS: u32 = 37;
/// The bits that tell the requests of one group apart.
const REQUEST_BITS: u32 = 34;
const REQUEST_MASK: u64 = (1 << REQUEST_BITS) - 1;

/// What tells nonces of a process apart, ordered by the window of issue: 27 bits of it (34 years), 3 of the group within it, 34 of the
/// request. Should two ever be the same (of 100,000 requests in one window, one pair in three or four windows), then whoever comes second is
/// asked once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NonceId(u64);

impl NonceId {
    pub(crate) fn issue(now: Timestamp, request: u64) -> Self {
        const MAX_WINDOW: u64 = (1 << (u64::BITS - WITHIN_BITS)) - 1;
        let window = (now.as_millis() >> WINDOW_BITS).min(MAX_WINDOW);
        Self(window << WITHIN_BITS | request & REQUEST_MASK)
    }

    /// The same, as of this group where its own is an earlier one.
    pub(crate) const fn not_before(self, group: u64) -> Self {
        if self.group() < group { Self(group << REQUEST_BITS | self.0 & REQUEST_MASK) } else { self }
    }

    /// The number of the group: its process begins one with each window of issue, and within it as often as it has to tell what it issued
    /// before from what it issues from now on.
    pub(crate) const fn group(self) -> u64 {
        self.0 >> REQUEST_BITS
    }

    pub(crate) const fn to_bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The end of the window of issue.
    pub(crate) const fn issued_ms(self) -> u64 {
        (self.0 >> WITHIN_BITS).wrapping_add(1) << WINDOW_BITS
    }

    /// The nonce, sealed with the current key. `life` sets one life of the process apart from the next: nonces whose uses
    /// nobody remembers any more must not pass.
    pub(crate) fn to_text(self, ring: &KeyRing, life: u64) -> [u8; NONCE_TEXT_LEN] {
        let seal = ring.current().seal_words([self.0, life]);
        let number = u128::from(self.0) << 64 | u128::from(seal.0);
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

    /// Reads a nonce; `None` where this process did not issue it, or not under a key that is still accepted.
    pub(crate) fn from_text(text: &[u8], ring: &KeyRing, life: u64) -> Option<Self> {
        let text: &[u8; NONCE_TEXT_LEN] = text.try_into().ok()?;
        let (eights, rest) = text.as_chunks::<8>();
        let mut number = 0;
        for eight in eights {
            number = number << 40 | u128::from(base32::decode(*eight)?);
        }
        let mut last = [b'0'; 8];
        *last.last_chunk_mut::<LAST>()? = *rest.first_chunk::<LAST>()?;
        let last = u8::try_from(base32::decode(last)?).ok()?;
        let number = number << 8 | u128::from(last);
        let (id, seal) = (low_half(number >> 64), low_half(number));
        ring.are_sealed([id, life], Seal(seal)).then_some(Self(id))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
const fn low_half(number: u128) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use strowger_foundation::TagKey;

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
    fn only_its_own_text_is_a_nonce() {
        let ring = KeyRing::new(TagKey::new([7; 16]));
        let id = NonceId::issue(Timestamp::from_millis(1_234_567), u64::MAX);
        let text = id.to_text(&ring, 5);
        assert_eq!(NonceId::from_text(&text, &ring, 5), Some(id));
        assert_eq!(id.issued_ms(), 151 * 8_192, "the end of the window");
        assert_eq!(NonceId::from_text(&text, &ring, 6), None, "of another life");
        for at in 0..text.len() {
            for byte in (0..=u8::MAX).filter(|byte| *byte != text[at]) {
                let mut other = text;
                other[at] = byte;
                assert_eq!(NonceId::from_text(&other, &ring, 5), None, "{byte} at {at}");
            }
        }
    }
}
