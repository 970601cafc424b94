//! Position of a datagram, from 0 to 65,535: a hash of its bytes. A retransmission has the same bytes (RFC 3261
//! §17.1.1.2) and thus the same position.
//!
//! The kernel computes it too, in a program without loops. It therefore reads only a few words of the message: those
//! that hold the branch, tag or Call-ID of nearly all clients.

/// Position of a datagram, below [`POSITIONS`].
pub type Position = u16;

/// Number of positions.
pub const POSITIONS: u32 = 1 << 16;

/// Offset of the hashed words in the message. They are read in blocks of 16 words of four bytes, as many as the
/// message has, at most three: bytes 48 to 240.
pub const HASH_BEGIN: usize = 48;
/// Length of a block, in bytes.
pub const HASH_BLOCK_BYTES: usize = 64;
/// Maximum number of blocks.
pub const HASH_BLOCKS: usize = 3;
/// Multiplier of the hash, odd and about 2^32 divided by the golden ratio. Each word is added and the sum multiplied
/// by it.
pub const HASH_FACTOR: u32 = 0x9E37_79B9;

/// Returns the position of a message. The process draws `salt` once.
#[must_use]
pub fn position(message: &[u8], salt: u32) -> Position {
    position_of(fingerprint(message, salt))
}

/// Returns the position for a message's [fingerprint](fingerprint()).
#[must_use]
pub fn position_of(fingerprint: u32) -> Position {
    u16::try_from(fingerprint >> 16).unwrap_or(u16::MAX)
}

/// Returns a hash that tells a message from nearly all others. The process draws `salt` once.
#[must_use]
pub fn fingerprint(message: &[u8], salt: u32) -> u32 {
    let blocks = message.get(HASH_BEGIN..).unwrap_or_default().chunks_exact(HASH_BLOCK_BYTES).take(HASH_BLOCKS);
    let words = blocks.flat_map(|block| block.chunks_exact(4));
    let add = |sum: u32, word: &[u8]| {
        let word = word.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        sum.wrapping_add(word).wrapping_mul(HASH_FACTOR)
    };
    // The low bits of a product do not depend on the high bits of its factors; the high bits depend on all.
    let sum = words.fold(salt, add);
    (sum ^ (sum >> 15)).wrapping_mul(HASH_FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invite(number: u32) -> Vec<u8> {
        format!(
            "INVITE sip:bob@example.com SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK-{number}\r\n\
             Max-Forwards: 70\r\nFrom: <sip:alice@example.com>;tag={number}\r\nTo: <sip:bob@example.com>\r\n\
             Call-ID: {number}@192.0.2.1\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n"
        )
        .into_bytes()
    }

    #[test]
    fn calls_are_spread_evenly() {
        let mut found = [0_u32; 16];
        for number in 0..16_000 {
            found[usize::from(position(&invite(number), 7)) * 16 / POSITIONS as usize] += 1;
        }
        assert!(found.iter().all(|count| (850..1_150).contains(count)), "{found:?}");
    }

    #[test]
    fn positions_depend_on_the_salt_and_the_bytes_alone() {
        let positions = |salt| (0..100).map(|number| position(&invite(number), salt)).collect::<Vec<_>>();
        assert_eq!(positions(1), positions(1));
        assert_ne!(positions(1), positions(2));
        // A message that is too short has the position of the salt.
        assert_eq!(position(b"OPTIONS", 3), position(b"", 3));
    }
}
