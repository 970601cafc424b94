//! Keyed tags: short proofs that a branch, a nonce or a cookie was made by a member that knows the key.
//!
//! A tag is the first 96 bits of SipHash-2-4-128, a seal all 64 bits of SipHash-2-4. Keys rotate: a [`KeyRing`] signs with the current key and accepts the
//! previous one, so what was issued just before a rotation still comes home.

use core::fmt;
use core::hash::{BuildHasher as _, Hasher};

use crate::map::seeded;
use crate::siphash::SipHasher;
use crate::{base16, base64url};

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

    /// The seal over `parts` joined and `ends`, which has to say where one part ends and the next begins.
    #[must_use]
    pub fn seal_joined(&self, parts: &[&[u8]], ends: u64) -> Seal {
        let mut sip = SipHasher::<2, 4>::new64(&self.0);
        // Most dialogs have but one or two of what may be sealed.
        parts.iter().filter(|part| !part.is_empty()).for_each(|part| sip.write(part));
        sip.write_u64(ends);
        Seal(sip.finish64())
    }

    /// The seal over a few numbers.
    #[inline]
    #[must_use]
    pub fn seal_words<const COUNT: usize>(&self, words: [u64; COUNT]) -> Seal {
        let mut sip = SipHasher::<2, 4>::new64(&self.0);
        words.into_iter().for_each(|word| sip.write_u64(word));
        Seal(sip.finish64())
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
        hash_with(SipHasher::<2, 4>::new128(&self.0), parts).finish128()
    }

    /// As [`hash128`](Self::hash128), for tables: what no peer ever sees and no disk keeps. SipHash-1-3 does for that.
    #[must_use]
    pub fn table128(&self, parts: &[&[u8]]) -> u128 {
        hash_with(SipHasher::<1, 3>::new128(&self.0), parts).finish128()
    }

    /// A 128-bit keyed hash for tables of `parts` joined and `word`, which has to say where one part ends and the next begins.
    #[must_use]
    pub fn table128_of(&self, parts: &[&[u8]], word: u64) -> u128 {
        let mut sip = SipHasher::<1, 3>::new128(&self.0);
        parts.iter().for_each(|part| sip.write(part));
        sip.write_u64(word);
        sip.finish128()
    }

    /// A 64-bit keyed hash of `parts` for what no peer ever sees, no disk keeps, and nobody gains anything by when two of it
    /// are the same: by far the cheapest.
    #[must_use]
    pub fn table64(&self, parts: &[&[u8]]) -> u64 {
        let [a, b, c, d, e, f, g, h, rest @ ..] = self.0;
        let mut hasher = seeded(u64::from_le_bytes([a, b, c, d, e, f, g, h])).build_hasher();
        hasher.write_u64(u64::from_le_bytes(rest));
        // The hasher itself counts how long each part is.
        parts.iter().for_each(|part| hasher.write(part));
        hasher.finish()
    }
}

/// Each part's length goes before it.
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

/// 64 bits that only a holder of the key can make, for what is tried on ourselves only: nobody can tell a good one from a bad
/// one but by sending it, and half of all would have to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Seal(pub u64);

impl Seal {
    /// Compares without a branch on the contents.
    #[inline]
    #[must_use]
    pub const fn matches(self, other: Self) -> bool {
        self.0 ^ other.0 == 0
    }

    /// The seal as 16 [letters].
    #[must_use]
    pub fn to_text(self) -> [u8; base16::LEN] {
        base16::encode(self.0)
    }

    /// Reads 16 letters.
    #[must_use]
    pub fn from_text(text: &[u8]) -> Option<Self> {
        base16::decode(text.try_into().ok()?).map(Self)
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
    fn a_seal_survives_its_text_and_one_rotation() {
        let ring = KeyRing::new(TagKey::new([1; 16]));
        let seal = ring.current().seal_joined(&[b"ab", b"c"], 2);
        let read = Seal::from_text(&seal.to_text()).expect("its own text");
        assert!(ring.is_joined_sealed(&[b"ab", b"c"], 2, read));
        assert!(!ring.is_joined_sealed(&[b"a", b"bc"], 1, read), "another split of the same bytes");
        let words = ring.current().seal_words([1, 2]);
        let rotated = ring.rotated(TagKey::new([2; 16]));
        assert!(rotated.is_joined_sealed(&[b"ab", b"c"], 2, read) && rotated.are_sealed([1, 2], words));
        assert!(!rotated.are_sealed([2, 1], words));
        assert!(!rotated.rotated(TagKey::new([3; 16])).is_joined_sealed(&[b"ab", b"c"], 2, read));
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
