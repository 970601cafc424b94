//! Temporary GRUUs (RFC 5627 §3.1.2). The holder can reach a device but learns neither its user nor whether two GRUUs
//! belong to the same device. The server stores nothing for them.
//!
//! A GRUU is 46 characters of base64url: an initialization vector (12 bytes), which is also the authentication tag of
//! the sealed content, and, encrypted with a key stream derived from it, the target of the GRUU (16), the slot of its
//! user (2), by which a cluster is found, and a number that makes each GRUU different (4).

use data_encoding::BASE64URL_NOPAD;
use strowger_balancer::Slot;
use strowger_foundation::{KeyRing, Tag, TagKey};
use strowger_registrar::{GruuKey, GruuText};

const TAG: usize = 12;
const SLOT: usize = 2;
const NONCE: usize = 4;
const SEALED: usize = GruuKey::LEN + SLOT + NONCE;
const ENCODED: usize = (TAG + SEALED) * 4 / 3 + 1;

/// Returns the user part of a temporary GRUU for `key`, of a user of this slot. Each `nonce` gives a different GRUU.
pub(crate) fn seal(ring: &KeyRing, key: &GruuKey, slot: Slot, nonce: u64) -> GruuText {
    let mut plain = [0; SEALED];
    // The low bytes of the number are those that differ.
    for (place, byte) in
        plain.iter_mut().zip(key.to_bytes().into_iter().chain(slot.0.to_le_bytes()).chain(nonce.to_le_bytes()))
    {
        *place = byte;
    }
    let secret = ring.current();
    let tag = tag(secret, &plain);
    let mut bytes = [0; TAG + SEALED];
    for (place, byte) in bytes.iter_mut().zip(tag.0.into_iter().chain(under_stream(secret, &tag, plain))) {
        *place = byte;
    }
    let mut text = GruuText::new();
    text.resize(ENCODED, 0);
    BASE64URL_NOPAD.encode_mut(&bytes, &mut text);
    text
}

/// Decodes a user part that [`seal`] made with one of the keys; returns the GRUU's target and its user's slot, or
/// `None` for any other.
pub(crate) fn open(ring: &KeyRing, user: &[u8]) -> Option<(GruuKey, Slot)> {
    if user.len() != ENCODED {
        return None;
    }
    let mut bytes = [0; TAG + SEALED];
    BASE64URL_NOPAD.decode_mut(user, &mut bytes).ok()?;
    let (tag_bytes, sealed) = bytes.split_first_chunk::<TAG>()?;
    let (given, sealed) = (Tag(*tag_bytes), sealed.try_into().ok()?);
    ring.keys().find_map(|secret| {
        let plain: [u8; SEALED] = under_stream(secret, &given, sealed);
        let (key, rest) = plain.split_first_chunk().filter(|_| tag(secret, &plain).matches(&given))?;
        let slot = rest.first_chunk().map(|slot| u16::from_le_bytes(*slot))?;
        Some((GruuKey::from_bytes(*key), Slot(slot)))
    })
}

fn tag(secret: &TagKey, plain: &[u8; SEALED]) -> Tag {
    secret.derive("gruu").sign(&[plain])
}

/// Encrypts or decrypts (XOR with the key stream).
fn under_stream(secret: &TagKey, tag: &Tag, mut bytes: [u8; SEALED]) -> [u8; SEALED] {
    let secret = secret.derive("gruu stream");
    let stream = [0u8, 1].into_iter().flat_map(|block| secret.hash128(&[&tag.0, &[block]]).to_le_bytes());
    for (byte, mask) in bytes.iter_mut().zip(stream) {
        *byte ^= mask;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gruu_round_trips_and_a_forged_one_fails() {
        let ring = KeyRing::new(TagKey::new([5; 16]));
        let key = GruuKey::from_bytes(*b"0123456789abcdef");
        let text = seal(&ring, &key, Slot(9), 7);
        assert_eq!(open(&ring, &text), Some((key, Slot(9))));
        let rotated = ring.rotated(TagKey::new([6; 16]));
        assert_eq!(open(&rotated, &text), Some((key, Slot(9))), "the key before is good too");
        assert_eq!(open(&rotated.rotated(TagKey::new([7; 16])), &text), None);
        for at in 0..text.len() {
            let mut forged = text.clone();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(open(&ring, &forged), None, "byte {at}");
        }
        for other in [&b""[..], b"bob", &[b'A'; ENCODED], &text[1..]] {
            assert_eq!(open(&ring, other), None);
        }
    }

    #[test]
    fn two_gruus_of_one_device_look_unrelated() {
        let ring = KeyRing::new(TagKey::new([5; 16]));
        let key = GruuKey::from_bytes(*b"0123456789abcdef");
        let (one, two) = (seal(&ring, &key, Slot(9), 7), seal(&ring, &key, Slot(9), 8));
        let agree = one.iter().zip(&two).filter(|(a, b)| a == b).count();
        assert!(agree < 6, "{agree} of {ENCODED} letters");
        let user_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        assert!(one.iter().all(user_part));
    }
}
