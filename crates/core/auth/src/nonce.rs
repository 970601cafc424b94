//! Nonces that the server need not remember (RFC 7616 §3.3): when and where one was issued, and a tag that proves it.

use strowger_foundation::{KeyRing, ShardId, Tag, Timestamp};

use data_encoding::BASE64URL_NOPAD;

/// The bytes of an id: 48 bits of milliseconds, shard, counter.
const ID_LEN: usize = 12;
/// The characters of an encoded id.
const ID_TEXT_LEN: usize = 16;
/// The characters of a nonce: the id and its tag.
pub(crate) const NONCE_TEXT_LEN: usize = ID_TEXT_LEN + strowger_foundation::tag::TAG_TEXT_LEN;

/// What tells nonces of a process apart; ordered by the time of issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NonceId {
    /// Monotonic milliseconds, below 2^48.
    pub(crate) issued_ms: u64,
    pub(crate) shard: ShardId,
    pub(crate) counter: u32,
}

impl NonceId {
    pub(crate) fn issue(now: Timestamp, shard: ShardId, counter: u32) -> Self {
        const MAX_MS: u64 = (1 << 48) - 1;
        Self { issued_ms: now.as_millis().min(MAX_MS), shard, counter }
    }

    /// The nonce, tagged with the current key. `life` sets one life of the process apart from the next: nonces whose uses
    /// nobody remembers any more must not pass.
    pub(crate) fn to_text(self, ring: &KeyRing, life: u64) -> [u8; NONCE_TEXT_LEN] {
        let id = self.to_bytes();
        let tag = ring.current().sign(&[&id, &life.to_le_bytes()]).to_text();
        let mut head = [0; ID_TEXT_LEN];
        BASE64URL_NOPAD.encode_mut(&id, &mut head);
        let mut text = [0; NONCE_TEXT_LEN];
        for (to, from) in text.iter_mut().zip(head.iter().chain(&tag)) {
            *to = *from;
        }
        text
    }

    /// Reads a nonce; `None` where this process did not issue it, or not under a key that is still accepted.
    pub(crate) fn from_text(text: &[u8], ring: &KeyRing, life: u64) -> Option<Self> {
        let (head, tag) = text.split_at_checked(ID_TEXT_LEN)?;
        let tag = Tag::from_text(tag)?;
        let mut id = [0; ID_LEN];
        BASE64URL_NOPAD.decode_mut(head, &mut id).ok()?;
        ring.verify(&[&id, &life.to_le_bytes()], &tag).then(|| Self::from_bytes(id))
    }

    fn to_bytes(self) -> [u8; ID_LEN] {
        let [_, _, a, b, c, d, e, f] = self.issued_ms.to_be_bytes();
        let [g, h] = self.shard.0.to_be_bytes();
        let [i, j, k, l] = self.counter.to_be_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    fn from_bytes([a, b, c, d, e, f, g, h, i, j, k, l]: [u8; ID_LEN]) -> Self {
        Self {
            issued_ms: u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
            shard: ShardId(u16::from_be_bytes([g, h])),
            counter: u32::from_be_bytes([i, j, k, l]),
        }
    }
}
