//! Keyed tags: short proofs that a branch, a nonce or a cookie was made by a member that knows the key.
//!
//! A tag is the first 96 bits of SipHash-2-4-128. Keys rotate: a [`KeyRing`] signs with the current key and accepts the
//! previous one, so what was issued just before a rotation still comes home.

use core::fmt;
use core::hash::{BuildHasher as _, Hasher};

use siphasher::sip128::{Hasher128, SipHasher13, SipHasher24};

use crate::base64url;
use crate::map::seeded;

/// The characters of an encoded tag.
pub const TAG_TEXT_LEN: usize = 16;

/// A secret key of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TagKey([u8; 16]);

impl TagKey {
    /// A key from 16 bytes of the shell's entropy.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// A key for one purpose, derived from this one, so that a tag made for one purpose never passes for another.
    #[must_use]
    pub fn derive(&self, purpose: &str) -> Self {
        Self(self.hash128(&[purpose.as_bytes()]).to_le_bytes())
    }

    /// The tag over the concatenation of `parts`; each part's length is hashed too, so no two splits agree.
    #[must_use]
    pub fn sign(&self, parts: &[&[u8]]) -> Tag {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = self.hash128(parts).to_le_bytes();
        Tag([a, b, c, d, e, f, g, h, i, j, k, l])
    }

    /// A 64-bit keyed hash of `parts`.
    #[must_use]
    pub fn hash64(&self, parts: &[&[u8]]) -> u64 {
        #[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
        let low = self.hash128(parts) as u64;
        low
    }

    /// A 128-bit keyed hash of `parts`; equal hashes are taken for equal keys.
    #[must_use]
    pub fn hash128(&self, parts: &[&[u8]]) -> u128 {
        hash_with(SipHasher24::new_with_key(&self.0), parts)
    }

    /// As [`hash128`](Self::hash128), for tables: what no peer ever sees and no disk keeps. SipHash-1-3 does for that.
    #[must_use]
    pub fn table128(&self, parts: &[&[u8]]) -> u128 {
        hash_with(SipHasher13::new_with_key(&self.0), parts)
    }

    /// A 64-bit keyed hash of `parts` for what no peer ever sees, no disk keeps, and nobody gains anything by when two of it
    /// are the same: by far the cheapest.
    #[must_use]
    pub fn table64(&self, parts: &[&[u8]]) -> u64 {
        let [a, b, c, d, e, f, g, h, rest @ ..] = self.0;
        let mut hasher = seeded(u64::from_le_bytes([a, b, c, d, e, f, g, h])).build_hasher();
        hasher.write_u64(u64::from_le_bytes(rest));
        write_parts(&mut hasher, parts);
        hasher.finish()
    }
}

/// Parts are joined before they are hashed, where they fit: the same hash, and half the work for many short parts.
const JOINED: usize = 320;

fn hash_with<H: Hasher + Hasher128>(mut hasher: H, parts: &[&[u8]]) -> u128 {
    let mut joined = [0; JOINED];
    match join(parts, &mut joined) {
        Some(joined) => hasher.write(joined),
        None => write_parts(&mut hasher, parts),
    }
    hasher.finish128().as_u128()
}

/// What [`write_parts`] writes, as one text; `None` where that is longer than `joined`.
fn join<'j>(parts: &[&[u8]], joined: &'j mut [u8]) -> Option<&'j [u8]> {
    let mut end = 0usize;
    for part in parts {
        let length = u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes();
        for piece in [&length[..], part] {
            let begin = end;
            end = end.checked_add(piece.len())?;
            joined.get_mut(begin..end)?.copy_from_slice(piece);
        }
    }
    joined.get(..end)
}

#[inline]
fn write_parts(hasher: &mut impl Hasher, parts: &[&[u8]]) {
    for part in parts {
        hasher.write_u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
        hasher.write(part);
    }
}

impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagKey(secret)")
    }
}

/// 96 bits that only a holder of the key can make.
#[derive(Clone, Copy, Debug)]
pub struct Tag(pub [u8; 12]);

impl Tag {
    /// Compares without a branch on the contents.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.number() ^ other.number() == 0
    }

    fn number(&self) -> u128 {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = self.0;
        u128::from_le_bytes([a, b, c, d, e, f, g, h, i, j, k, l, 0, 0, 0, 0])
    }

    /// The tag as 16 token characters (base64url).
    #[must_use]
    pub fn to_text(&self) -> [u8; TAG_TEXT_LEN] {
        let mut text = [0; TAG_TEXT_LEN];
        base64url::encode(&self.0, &mut text);
        text
    }

    /// Reads 16 token characters.
    #[must_use]
    pub fn from_text(text: &[u8]) -> Option<Self> {
        let mut tag = [0; 12];
        if text.len() != TAG_TEXT_LEN {
            return None;
        }
        base64url::decode(text, &mut tag)?;
        Some(Self(tag))
    }
}

/// The current key and the one before it.
#[derive(Clone, Copy, Debug)]
pub struct KeyRing {
    current: TagKey,
    previous: Option<TagKey>,
}

impl KeyRing {
    /// A ring with one key.
    #[must_use]
    pub const fn new(current: TagKey) -> Self {
        Self { current, previous: None }
    }

    /// Makes `next` the signing key; the present one is still accepted until the next rotation.
    #[must_use]
    pub const fn rotated(self, next: TagKey) -> Self {
        Self { current: next, previous: Some(self.current) }
    }

    /// The ring for one purpose; see [`TagKey::derive`].
    #[must_use]
    pub fn derive(&self, purpose: &str) -> Self {
        Self { current: self.current.derive(purpose), previous: self.previous.map(|key| key.derive(purpose)) }
    }

    /// The signing key.
    #[must_use]
    pub const fn current(&self) -> &TagKey {
        &self.current
    }

    /// The keys that are accepted: the current one, then the previous.
    pub fn keys(&self) -> impl Iterator<Item = &TagKey> {
        core::iter::once(&self.current).chain(&self.previous)
    }

    /// Whether `tag` was made over `parts` by the current or the previous key.
    #[must_use]
    pub fn verify(&self, parts: &[&[u8]], tag: &Tag) -> bool {
        self.current.sign(parts).matches(tag) || self.previous.is_some_and(|key| key.sign(parts).matches(tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_survives_its_text_and_one_rotation() {
        let ring = KeyRing::new(TagKey::new([1; 16]));
        let tag = ring.current().sign(&[b"ab", b"c"]);
        let read = Tag::from_text(&tag.to_text()).expect("its own text");
        assert!(ring.verify(&[b"ab", b"c"], &read));
        assert!(!ring.verify(&[b"a", b"bc"], &read), "another split of the same bytes");
        let rotated = ring.rotated(TagKey::new([2; 16]));
        assert!(rotated.verify(&[b"ab", b"c"], &read));
        assert!(!rotated.rotated(TagKey::new([3; 16])).verify(&[b"ab", b"c"], &read));
    }

    #[test]
    fn joined_parts_have_the_hash_of_the_parts() {
        for length in [0, 1, 3, 8, 100, JOINED, 2 * JOINED] {
            let text = vec![b'x'; length];
            for parts in [&[&text[..]][..], &[b"ab", &text, b"c"], &[]] {
                let mut hasher = SipHasher24::new_with_key(&[7; 16]);
                write_parts(&mut hasher, parts);
                assert_eq!(hash_with(SipHasher24::new_with_key(&[7; 16]), parts), hasher.finish128().as_u128());
            }
        }
    }

    #[test]
    fn purposes_do_not_mix() {
        let key = TagKey::new([9; 16]);
        assert!(!key.derive("branch").sign(&[b"x"]).matches(&key.derive("nonce").sign(&[b"x"])));
    }

    #[test]
    fn what_is_not_a_tag_is_refused() {
        assert!(Tag::from_text(b"short").is_none());
        assert!(Tag::from_text(b"!!!!!!!!!!!!!!!!").is_none());
    }
}
