//! The hashes of RFC 7616 §3.4: HA1, HA2 and the response.

use core::fmt;

use md5::Md5;
use sha2::{Digest as _, Sha256, Sha512_256};
use smallvec::SmallVec;

use crate::{Algorithm, hex};

/// Length of the longest digest in bytes.
const MAX_HASH: usize = 32;

/// Inline buffer for hash input, which is seldom longer except for message bodies; three MD5 blocks.
const JOINED: usize = 192;

/// H(username ":" realm ":" password), all that a server needs to know of a password (RFC 7616 §3.4.2).
///
/// As secret as the password: whoever has it can respond to a challenge.
#[derive(Clone, Copy)]
pub struct Ha1(Hash);

impl Ha1 {
    //= rfc7616#4:passwords
    /// Computes the HA1 of a password; the realm is that of the challenges.
    #[must_use]
    pub fn compute(algorithm: Algorithm, username: &[u8], realm: &[u8], password: &[u8]) -> Self {
        Self(hash_joined(algorithm, &[username, realm, password]))
    }

    /// The raw bytes: 16 for MD5, 32 for the others.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Whether the length is that of an HA1 of `algorithm`.
    pub(crate) fn fits(&self, algorithm: Algorithm) -> bool {
        self.as_bytes().len() == hash_len(algorithm)
    }
}

impl From<[u8; 16]> for Ha1 {
    fn from(raw: [u8; 16]) -> Self {
        Self(Hash::new(&raw))
    }
}

impl From<[u8; 32]> for Ha1 {
    fn from(raw: [u8; 32]) -> Self {
        Self(Hash::new(&raw))
    }
}

impl fmt::Debug for Ha1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ha1(secret)")
    }
}

/// The input of a response, unquoted.
#[derive(Clone, Copy, Debug)]
pub struct DigestInput<'a> {
    /// The method of the request.
    pub method: &'a [u8],
    /// `uri` of the credentials.
    pub uri: &'a [u8],
    /// `nonce` of the credentials.
    pub nonce: &'a [u8],
    /// The quality of protection and its values.
    pub protection: Protection<'a>,
}

/// The quality of protection with the values specific to it.
#[derive(Clone, Copy, Debug)]
pub enum Protection<'a> {
    /// No `qop`, as in RFC 2069.
    Legacy,
    /// `qop=auth`.
    Auth {
        /// `nc` as written.
        nc: &'a [u8],
        /// `cnonce`.
        cnonce: &'a [u8],
    },
    /// `qop=auth-int`.
    AuthInt {
        /// `nc` as written.
        nc: &'a [u8],
        /// `cnonce`.
        cnonce: &'a [u8],
        /// The request's body; may be empty.
        body: &'a [u8],
    },
}

//= rfc7616#3.4.3
//= rfc7616#3.4.5:colons
/// Returns H(A2) in hexadecimal, as used in the response.
pub(crate) fn ha2(algorithm: Algorithm, covered: &DigestInput<'_>) -> Hex {
    let DigestInput { method, uri, protection, .. } = *covered;
    match protection {
        Protection::Legacy | Protection::Auth { .. } => hash_joined(algorithm, &[method, uri]).to_hex(),
        Protection::AuthInt { body, .. } => {
            let body = hash_joined(algorithm, &[body]);
            hash_joined(algorithm, &[method, uri, body.to_hex().as_bytes()]).to_hex()
        }
    }
}

//= rfc7616#3.4.1
//= rfc7616#3.4.5:colons
/// Returns the value of `response`.
pub(crate) fn response(algorithm: Algorithm, ha1: &Ha1, covered: &DigestInput<'_>) -> Hash {
    response_with(algorithm, ha1, covered, &ha2(algorithm, covered))
}

/// Returns the same for a known [`ha2`].
pub(crate) fn response_with(algorithm: Algorithm, ha1: &Ha1, covered: &DigestInput<'_>, a2: &Hex) -> Hash {
    let DigestInput { nonce, protection, .. } = *covered;
    let ha1 = ha1.0.to_hex();
    match protection {
        //= rfc2617#3.2.2.1
        Protection::Legacy => hash_joined(algorithm, &[ha1.as_bytes(), nonce, a2.as_bytes()]),
        Protection::Auth { nc, cnonce } => {
            hash_joined(algorithm, &[ha1.as_bytes(), nonce, nc, cnonce, b"auth", a2.as_bytes()])
        }
        Protection::AuthInt { nc, cnonce, .. } => {
            hash_joined(algorithm, &[ha1.as_bytes(), nonce, nc, cnonce, b"auth-int", a2.as_bytes()])
        }
    }
}

/// A digest of any algorithm.
#[derive(Clone, Copy)]
pub(crate) struct Hash {
    bytes: [u8; MAX_HASH],
    len: u8,
}

impl Hash {
    fn new(raw: &[u8]) -> Self {
        let mut hash = Self { bytes: [0; MAX_HASH], len: 0 };
        if let Some(bytes) = hash.bytes.get_mut(..raw.len()) {
            bytes.copy_from_slice(raw);
            hash.len = u8::try_from(raw.len()).unwrap_or(0);
        }
        debug_assert_eq!(usize::from(hash.len), raw.len(), "a digest of ours");
        hash
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }

    /// Returns lower-case digits, as used in hash input.
    pub(crate) fn to_hex(self) -> Hex {
        let mut hex = Hex { text: [0; MAX_HASH * 2], len: self.len.saturating_mul(2) };
        let (fours, _) = self.as_bytes().as_chunks::<4>();
        for (digits, four) in hex.text.as_chunks_mut::<8>().0.iter_mut().zip(fours) {
            *digits = hex::encode(*four);
        }
        hex
    }
}

/// A digest as lower-case text, padded with zeros.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hex {
    text: [u8; MAX_HASH * 2],
    len: u8,
}

impl Hex {
    /// Parses hexadecimal digits in any case; `None` if they are not a digest of `algorithm`.
    pub(crate) fn read(algorithm: Algorithm, text: &[u8]) -> Option<Self> {
        let mut hex = Self { text: [0; MAX_HASH * 2], len: u8::try_from(text.len()).ok()? };
        let (eights, rest) = text.as_chunks::<8>();
        if text.len() != hash_len(algorithm).saturating_mul(2) || !rest.is_empty() {
            return None;
        }
        for (place, digits) in hex.text.as_chunks_mut::<8>().0.iter_mut().zip(eights) {
            *place = hex::lower_case(*digits)?;
        }
        Some(hex)
    }

    /// Compares in constant time.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.text.as_chunks::<8>().0, other.text.as_chunks::<8>().0);
        let differing = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        let diff = ours.iter().zip(theirs).map(differing).fold(0, |all, one| all | one);
        core::hint::black_box(diff) == 0 && self.len == other.len
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.text.get(..usize::from(self.len)).unwrap_or(&self.text)
    }
}

const fn hash_len(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::Md5 => 16,
        Algorithm::Sha256 | Algorithm::Sha512_256 => 32,
    }
}

/// Returns the MD5 of short `parts` joined with colons: joined, padded (RFC 1321 §3.1, §3.2) and hashed in one
/// buffer. The buffer management of a general hasher takes longer than one of these blocks.
fn short_md5(parts: &[&[u8]]) -> Option<[u8; 16]> {
    const BEGIN: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let mut text = [0; JOINED];
    let mut free = text.as_mut_slice();
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            let (colon, behind) = free.split_first_mut()?;
            *colon = b':';
            free = behind;
        }
        let (place, behind) = free.split_at_mut_checked(part.len())?;
        place.copy_from_slice(part);
        free = behind;
    }
    *free.first_mut()? = 0x80;
    let length = JOINED.checked_sub(free.len())?;
    let bits = u64::try_from(length).ok()?.wrapping_mul(8);
    let (blocks, _) = text.as_chunks_mut::<64>();
    let blocks = blocks.get_mut(..length.checked_add(9)?.div_ceil(64))?;
    *blocks.last_mut()?.last_chunk_mut::<8>()? = bits.to_le_bytes();
    let mut state = BEGIN;
    md5::block_api::compress(&mut state, blocks);
    let mut raw = [0; 16];
    for (place, word) in raw.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *place = word.to_le_bytes();
    }
    Some(raw)
}

/// Returns the digest of `parts` joined with colons.
pub(crate) fn hash_joined(algorithm: Algorithm, parts: &[&[u8]]) -> Hash {
    if algorithm == Algorithm::Md5
        && let Some(raw) = short_md5(parts)
    {
        return Hash::new(&raw);
    }
    // Joined first: one long text hashes faster than several short ones.
    let mut joined: SmallVec<[u8; JOINED]> = SmallVec::new();
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            joined.push(b':');
        }
        joined.extend_from_slice(part);
    }
    match algorithm {
        Algorithm::Md5 => Hash::new(&Md5::digest(&joined)),
        Algorithm::Sha256 => Hash::new(&Sha256::digest(&joined)),
        // SHA-512/256 of FIPS 180-4, with its own initial value; not a truncated SHA-512 (RFC 8760 §2.1).
        Algorithm::Sha512_256 => Hash::new(&Sha512_256::digest(&joined)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_inputs_hash_the_same() {
        let text = [b'x'; 2 * JOINED];
        for length in 0..text.len() - 1 {
            let (first, second) = text[..length].split_at(length / 3);
            let joined = [first, b":", second].concat();
            assert_eq!(*hash_joined(Algorithm::Md5, &[first, second]).as_bytes(), *Md5::digest(&joined), "{length}");
            assert_eq!(short_md5(&[&joined]).is_some(), joined.len() <= JOINED - 9, "{length}");
        }
    }
}
