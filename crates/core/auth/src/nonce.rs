//! Nonces that the server need not remember (RFC 7616 §3.3): when and where one was issued, and a seal that proves it.

use strowger_foundation::{KeyRing, Seal, ShardId, Timestamp};

use crate::digits;

/// The characters of a nonce: the 64 bits of an id and the 64 of its seal, five bits each. No longer than it must be: with these,
/// most clients' responses are an MD5 over two blocks, not three.
pub(crate) const NONCE_TEXT_LEN: usize = 26;
/// Those behind the last whole eight.
const LAST: usize = NONCE_TEXT_LEN % 8;
/// The bits that eight characters have.
const EIGHT: u128 = (1 << 40) - 1;

/// The bits of the counter, and of the shard above it.
const FIELD: u32 = 12;
const FIELD_MASK: u64 = (1 << FIELD) - 1;

/// What tells nonces of a process apart, ordered by the time of issue: 40 bits of monotonic milliseconds (34 years), 12 of the
/// shard, 12 of a counter. Should two ever be the same, for thousands of shards or of challenges within one millisecond, then
/// whoever comes second is asked once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NonceId(u64);

impl NonceId {
    pub(crate) fn issue(now: Timestamp, shard: ShardId, counter: u16) -> Self {
        const MAX_MS: u64 = (1 << 40) - 1;
        let ms = now.as_millis().min(MAX_MS);
        let (shard, counter) = (u64::from(shard.0) & FIELD_MASK, u64::from(counter) & FIELD_MASK);
        Self(ms << (2 * FIELD) | shard << FIELD | counter)
    }

    pub(crate) const fn issued_ms(self) -> u64 {
        self.0 >> (2 * FIELD)
    }

    /// The nonce, sealed with the current key. `life` sets one life of the process apart from the next: nonces whose uses
    /// nobody remembers any more must not pass.
    pub(crate) fn to_text(self, ring: &KeyRing, life: u64) -> [u8; NONCE_TEXT_LEN] {
        let seal = ring.current().seal_words([self.0, life]);
        let number = u128::from(self.0) << 64 | u128::from(seal.0);
        let mut text = [0; NONCE_TEXT_LEN];
        let (eights, rest) = text.as_chunks_mut::<8>();
        for (eight, shift) in eights.iter_mut().zip([88, 48, 8]) {
            *eight = digits::encode(low_half(number >> shift & EIGHT));
        }
        if let Some(last) = digits::encode(low_half(number & 0xff)).last_chunk::<LAST>() {
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
            number = number << 40 | u128::from(digits::decode(*eight)?);
        }
        let mut last = [b'0'; 8];
        *last.last_chunk_mut::<LAST>()? = *rest.first_chunk::<LAST>()?;
        let last = u8::try_from(digits::decode(last)?).ok()?;
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
    fn only_its_own_text_is_a_nonce() {
        let ring = KeyRing::new(TagKey::new([7; 16]));
        let id = NonceId::issue(Timestamp::from_millis(1_234_567), ShardId(4095), 4095);
        let text = id.to_text(&ring, 5);
        assert_eq!(NonceId::from_text(&text, &ring, 5), Some(id));
        assert_eq!(id.issued_ms(), 1_234_567);
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
