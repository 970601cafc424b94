//! The proof that the server speaks WebSocket (RFC 6455 §4.2.2).

use data_encoding::BASE64;
use sha1::{Digest as _, Sha1};

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Length of a key in base64.
pub(super) const KEY_TEXT: usize = 24;
/// Length of an accept value in base64.
const ACCEPT_TEXT: usize = 28;

/// Digest of a key. Its base64 text is the value of Sec-WebSocket-Accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AcceptDigest([u8; 20]);

impl AcceptDigest {
    /// Computes it from the key's base64 text.
    pub(super) fn of(key: &[u8]) -> Self {
        Self(Sha1::new().chain_update(key).chain_update(GUID).finalize().into())
    }

    pub(super) fn to_text(self) -> [u8; ACCEPT_TEXT] {
        let mut text = [0; ACCEPT_TEXT];
        BASE64.encode_mut(&self.0, &mut text);
        text
    }
}

/// Returns a client's key in base64.
pub(super) fn key_text(key: [u8; 16]) -> [u8; KEY_TEXT] {
    let mut text = [0; KEY_TEXT];
    BASE64.encode_mut(&key, &mut text);
    text
}

/// Returns whether a text is the base64 of 16 bytes. Its unused bits may be set.
pub(super) fn is_key(text: &[u8]) -> bool {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    text.len() == KEY_TEXT && text.strip_suffix(b"==").is_some_and(|digits| digits.iter().all(is_base64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 6455 §1.3.
    #[test]
    fn the_example_of_the_rfc() {
        let key = key_text(*b"the sample nonce");
        assert_eq!(&key, b"dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(&AcceptDigest::of(&key).to_text(), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_key_is_16_bytes_in_base64() {
        assert!(is_key(b"dGhlIHNhbXBsZSBub25jZQ=="));
        for bad in ["", "==", "dGhlIHNhbXBsZSBub25jZQ=", "dGhlIHNhbXBsZSBub25jZQ===", "dGhlIHNhbXBsZSBub25j Q=="] {
            assert!(!is_key(bad.as_bytes()), "{bad}");
        }
    }
}
