//! Nonces that the server need not remember (RFC 7616 §3.3): when and where one was issued, and a tag that proves it.

use strowger_foundation::{KeyRing, ShardId, Tag, Timestamp, base64url};

/// The bytes of an id: 40 bits of milliseconds, shard, counter. No longer than it must be: with these, most clients' responses
/// are an MD5 over two blocks, not three.
const ID_LEN: usize = 9;
/// The bytes of a nonce: the id and its tag.
const NONCE_LEN: usize = ID_LEN + 12;
/// The characters of a nonce, four for three bytes.
pub(crate) const NONCE_TEXT_LEN: usize = NONCE_LEN / 3 * 4;

/// What tells nonces of a process apart; ordered by the time of issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NonceId {
    /// Monotonic milliseconds, below 2^40: 34 years.
    pub(crate) issued_ms: u64,
    pub(crate) shard: ShardId,
    pub(crate) counter: u16,
}

impl NonceId {
    pub(crate) fn issue(now: Timestamp, shard: ShardId, counter: u16) -> Self {
        const MAX_MS: u64 = (1 << 40) - 1;
        Self { issued_ms: now.as_millis().min(MAX_MS), shard, counter }
    }

    /// The nonce, tagged with the current key. `life` sets one life of the process apart from the next: nonces whose uses
    /// nobody remembers any more must not pass.
    pub(crate) fn to_text(self, ring: &KeyRing, life: u64) -> [u8; NONCE_TEXT_LEN] {
        let id = self.to_bytes();
        let tag = ring.current().sign(&[&id, &life.to_le_bytes()]);
        let mut raw = [0; NONCE_LEN];
        let (head, tail) = raw.split_at_mut(ID_LEN);
        head.copy_from_slice(&id);
        tail.copy_from_slice(&tag.0);
        let mut text = [0; NONCE_TEXT_LEN];
        base64url::encode(&raw, &mut text);
        text
    }

    /// Reads a nonce; `None` where this process did not issue it, or not under a key that is still accepted.
    pub(crate) fn from_text(text: &[u8], ring: &KeyRing, life: u64) -> Option<Self> {
        let mut raw = [0; NONCE_LEN];
        if text.len() != NONCE_TEXT_LEN {
            return None;
        }
        base64url::decode(text, &mut raw)?;
        let (id, tag) = raw.split_first_chunk::<ID_LEN>()?;
        let tag = Tag(tag.try_into().ok()?);
        ring.verify(&[id, &life.to_le_bytes()], &tag).then(|| Self::from_bytes(*id))
    }

    fn to_bytes(self) -> [u8; ID_LEN] {
        let [_, _, _, a, b, c, d, e] = self.issued_ms.to_be_bytes();
        let [f, g] = self.shard.0.to_be_bytes();
        let [h, i] = self.counter.to_be_bytes();
        [a, b, c, d, e, f, g, h, i]
    }

    fn from_bytes([a, b, c, d, e, f, g, h, i]: [u8; ID_LEN]) -> Self {
        Self {
            issued_ms: u64::from_be_bytes([0, 0, 0, a, b, c, d, e]),
            shard: ShardId(u16::from_be_bytes([f, g])),
            counter: u16::from_be_bytes([h, i]),
        }
    }
}
