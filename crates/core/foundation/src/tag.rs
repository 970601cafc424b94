//! Keyed tags: short proofs that a member with the key made a branch, a nonce or a cookie.
//!
//! A tag is the first 96 bits of SipHash-2-4-128, a seal all 64 bits of SipHash-2-4. Keys rotate: a [`KeyRing`] signs
//! with the current key and also accepts the previous one, so a tag issued just before a rotation stays valid.

use core::fmt;
use core::hash::{BuildHasher as _, Hasher};

use crate::map::seeded;
use crate::siphash::SipHasher;
use crate::{base16, base64url};

/// Length of an encoded tag in characters.
pub const TAG_TEXT_LEN: usize = 16;

/// A 128-bit secret key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TagKey([u8; 16]);

impl TagKey {
    /// Creates a key from 16 bytes of the shell's entropy.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Derives a key for one purpose, so that a tag made for one purpose is never valid for another.
    #[must_use]
    pub fn derive(&self, purpose: &str) -> Self {
        Self(self.hash128(&[purpose.as_bytes()]).to_le_bytes())
    }

    /// Returns the tag of `parts`. The length of each part is hashed too, so different splits give different tags.
    #[must_use]
    pub fn sign(&self, parts: &[&[u8]]) -> Tag {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = self.hash128(parts).to_le_bytes();
        Tag([a, b, c, d, e, f, g, h, i, j, k, l])
    }

    /// Returns the seal of `parts` joined and `ends`, which must encode the boundaries of the parts.
    #[must_use]
    pub fn seal_joined(&self, parts: &[&[u8]], ends: u64) -> Seal {
        let mut sip = SipHasher::<2, 4>::new64(&self.0);
        // Most dialogs have only one or two of the possible parts.
        parts.iter().filter(|part| !part.is_empty()).for_each(|part| sip.write(part));
        sip.write_u64(ends);
        Seal(sip.finish64())
    }

    /// Returns the seal of a few numbers.
    #[inline]
    #[must_use]
    pub fn seal_words<const COUNT: usize>(&self, words: [u64; COUNT]) -> Seal {
        let mut sip = SipHasher::<2, 4>::new64(&self.0);
        words.into_iter().for_each(|word| sip.write_u64(word));
        Seal(sip.finish64())
    }

    /// Returns a seal of half the length, by SipHash-1-3: for values that a guesser tries without seeing the result, or
    /// that are of no use without another secret.
    #[inline]
    #[must_use]
    pub fn short_seal<const COUNT: usize>(&self, words: [u64; COUNT]) -> u32 {
        let mut sip = SipHasher::<1, 3>::new64(&self.0);
        words.into_iter().for_each(|word| sip.write_u64(word));
        u32::try_from(sip.finish64() >> u32::BITS).unwrap_or(0)
    }

    /// Returns a 64-bit keyed hash of `parts`.
    #[must_use]
    pub fn hash64(&self, parts: &[&[u8]]) -> u64 {
        #[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
        let low = self.hash128(parts) as u64;
        low
    }

    /// Returns a 128-bit keyed hash of `parts`; callers treat equal hashes as equal keys.
    #[must_use]
    pub fn hash128(&self, parts: &[&[u8]]) -> u128 {
        hash_with(SipHasher::<2, 4>::new128(&self.0), parts).finish128()
    }

    /// Like [`hash128`](Self::hash128), for tables: hashes that no peer sees and no disk stores, for which
    /// SipHash-1-3 suffices.
    #[must_use]
    pub fn table128(&self, parts: &[&[u8]]) -> u128 {
        hash_with(SipHasher::<1, 3>::new128(&self.0), parts).finish128()
    }

    /// Returns a 128-bit keyed hash for tables of `parts` joined and `word`, which must encode the boundaries of the
    /// parts.
    #[must_use]
    pub fn table128_of(&self, parts: &[&[u8]], word: u64) -> u128 {
        let mut sip = SipHasher::<1, 3>::new128(&self.0);
        parts.iter().for_each(|part| sip.write(part));
        sip.write_u64(word);
        sip.finish128()
    }

    /// Returns a 64-bit keyed hash of `parts` that no peer sees, no disk stores, and whose collisions benefit nobody.
    /// By far the cheapest.
    #[must_use]
    pub fn table64(&self, parts: &[&[u8]]) -> u64 {
        let [a, b, c, d, e, f, g, h, rest @ ..] = self.0;
        let mut hasher = seeded(u64::from_le_bytes([a, b, c, d, e, f, g, h])).build_hasher();
        hasher.write_u64(u64::from_le_bytes(rest));
        // The hasher includes the length of each part itself.
        parts.iter().for_each(|part| hasher.write(part));
        hasher.finish()
    }
}

/// Hashes each part after its length.
#[inline]
fn hash_with<const BLOCK: usize, const END: usize>(
    mut sip: SipHasher<BLOCK, END>,
    parts: &[&[u8]],
) -> SipHasher<BLOCK, END> {
    for part in parts {
        sip.write_u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
        sip.write(part);
    }
    sip
}

impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagKey(secret)")
    }
}

/// 96 bits that only a holder of the key can compute.
#[derive(Clone, Copy, Debug)]
pub struct Tag(pub [u8; 12]);

impl Tag {
    /// Compares in constant time.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.number() ^ other.number() == 0
    }

    fn number(&self) -> u128 {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = self.0;
        u128::from_le_bytes([a, b, c, d, e, f, g, h, i, j, k, l, 0, 0, 0, 0])
    }

    /// Returns the tag as 16 token characters (base64url).
    #[must_use]
    pub fn to_text(&self) -> [u8; TAG_TEXT_LEN] {
        let mut text = [0; TAG_TEXT_LEN];
        base64url::encode(&self.0, &mut text);
        text
    }

    /// Parses 16 token characters.
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

/// 64 bits that only a holder of the key can compute. Only for values that are verified by this server alone: an
/// attacker can test a guess only by sending it, and would have to send half of all values.
#[derive(Clone, Copy, Debug)]
pub struct Seal(pub u64);

impl Seal {
    /// Compares in constant time.
    #[inline]
    #[must_use]
    pub const fn matches(self, other: Self) -> bool {
        self.0 ^ other.0 == 0
    }

    /// Returns the seal as 16 [letters](base16).
    #[must_use]
    pub fn to_text(self) -> [u8; base16::LEN] {
        base16::encode(self.0)
    }

    /// Parses 16 letters.
    #[must_use]
    pub fn from_text(text: &[u8]) -> Option<Self> {
        base16::decode(text.try_into().ok()?).map(Self)
    }
}

/// The current and the previous key.
#[derive(Clone, Copy, Debug)]
pub struct KeyRing {
    current: TagKey,
    previous: Option<TagKey>,
}

impl KeyRing {
    /// Creates a ring with one key.
    #[must_use]
    pub const fn new(current: TagKey) -> Self {
        Self { current, previous: None }
    }

    /// Makes `next` the signing key; the present one is still accepted until the next rotation.
    #[must_use]
    pub const fn rotated(self, next: TagKey) -> Self {
        Self { current: next, previous: Some(self.current) }
    }

    /// Derives the ring for one purpose; see [`TagKey::derive`].
    #[must_use]
    pub fn derive(&self, purpose: &str) -> Self {
        Self { current: self.current.derive(purpose), previous: self.previous.map(|key| key.derive(purpose)) }
    }

    /// The signing key.
    #[must_use]
    pub const fn current(&self) -> &TagKey {
        &self.current
    }

    /// Returns the accepted keys: the current one, then the previous.
    pub fn keys(&self) -> impl Iterator<Item = &TagKey> {
        core::iter::once(&self.current).chain(&self.previous)
    }

    /// Whether `seal` was made over `parts` and `ends` by the current or the previous key.
    #[must_use]
    pub fn is_joined_sealed(&self, parts: &[&[u8]], ends: u64, seal: Seal) -> bool {
        let is_by = |key: &TagKey| key.seal_joined(parts, ends).matches(seal);
        is_by(&self.current) || self.previous.as_ref().is_some_and(is_by)
    }

    /// Whether `seal` was made over `words` by the current or the previous key.
    #[inline]
    #[must_use]
    pub fn are_sealed<const COUNT: usize>(&self, words: [u64; COUNT], seal: Seal) -> bool {
        let is_by = |key: &TagKey| key.seal_words(words).matches(seal);
        is_by(&self.current) || self.previous.as_ref().is_some_and(is_by)
    }

    /// Whether `seal` is the [short seal](TagKey::short_seal) of `words` by the current or the previous key.
    #[inline]
    #[must_use]
    pub fn are_short_sealed<const COUNT: usize>(&self, words: [u64; COUNT], seal: u32) -> bool {
        let is_by = |key: &TagKey| key.short_seal(words) ^ seal == 0;
        is_by(&self.current) || self.previous.as_ref().is_some_and(is_by)
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
    fn tags_survive_encoding_and_one_rotation() {
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
    fn seals_survive_encoding_and_one_rotation() {
        let ring = KeyRing::new(TagKey::new([1; 16]));
        let seal = ring.current().seal_joined(&[b"ab", b"c"], 2);
        let read = Seal::from_text(&seal.to_text()).expect("its own text");
        assert!(ring.is_joined_sealed(&[b"ab", b"c"], 2, read));
        assert!(!ring.is_joined_sealed(&[b"a", b"bc"], 1, read), "another split of the same bytes");
        let words = ring.current().seal_words([1, 2]);
        let rotated = ring.rotated(TagKey::new([2; 16]));
        assert!(rotated.is_joined_sealed(&[b"ab", b"c"], 2, read) && rotated.are_sealed([1, 2], words));
        assert!(!rotated.are_sealed([2, 1], words));
        let short = ring.current().short_seal([1, 2]);
        assert!(rotated.are_short_sealed([1, 2], short) && !rotated.are_short_sealed([2, 1], short));
        assert!(!rotated.rotated(TagKey::new([3; 16])).is_joined_sealed(&[b"ab", b"c"], 2, read));
    }

    #[test]
    fn derived_keys_differ() {
        let key = TagKey::new([9; 16]);
        assert!(!key.derive("branch").sign(&[b"x"]).matches(&key.derive("nonce").sign(&[b"x"])));
    }

    #[test]
    fn invalid_tags_are_rejected() {
        assert!(Tag::from_text(b"short").is_none());
        assert!(Tag::from_text(b"!!!!!!!!!!!!!!!!").is_none());
    }
}
