//! Cookies: the text before a message by which its answer is recognized.

use strowger_foundation::ShardId;

/// Length of a cookie in characters.
const COOKIE_LEN: usize = 4 + 16 + 16;

/// The cookie of a request: the shard, a number that differs in each process, and the request's number.
///
/// An engine repeats its answer for a cookie that it knows, so cookies must differ from those of an earlier process.
/// Whoever cannot read the traffic cannot guess one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// The shard that asks.
    pub shard: ShardId,
    /// Random; the same for all requests of a shard.
    pub nonce: u64,
    /// Number of the request.
    pub serial: u64,
}

impl Cookie {
    /// Returns the text.
    #[must_use]
    pub fn to_text(self) -> String {
        format!("{:04x}{:016x}{:016x}", self.shard.0, self.nonce, self.serial)
    }

    /// Reads the cookie at the beginning of a message, and returns it with what follows the space after it.
    #[must_use]
    pub fn split(message: &[u8]) -> Option<(Self, &[u8])> {
        let (text, rest) = message.split_at_checked(COOKIE_LEN)?;
        let text = core::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        let (shard, rest_of_text) = text.split_at_checked(4)?;
        let (nonce, serial) = rest_of_text.split_at_checked(16)?;
        let cookie = Self {
            shard: ShardId(u16::from_str_radix(shard, 16).ok()?),
            nonce: u64::from_str_radix(nonce, 16).ok()?,
            serial: u64::from_str_radix(serial, 16).ok()?,
        };
        Some((cookie, rest.strip_prefix(b" ")?))
    }
}

/// Returns the shard that an engine's message is for.
#[must_use]
pub fn shard_of(message: &[u8]) -> Option<ShardId> {
    Cookie::split(message).map(|(cookie, _)| cookie.shard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_read_back_and_nothing_else_is_one() {
        let cookie = Cookie { shard: ShardId(513), nonce: u64::MAX - 3, serial: 77 };
        let message = format!("{} d2:ok2:ioe", cookie.to_text());
        assert_eq!(Cookie::split(message.as_bytes()), Some((cookie, &b"d2:ok2:ioe"[..])));
        assert_eq!(shard_of(message.as_bytes()), Some(ShardId(513)));
        for other in [
            "",
            "0201",
            &message[1..],
            &message[..COOKIE_LEN],
            &message.replace(' ', "_"),
            &format!("+{}", &message[1..]),
        ] {
            assert_eq!(Cookie::split(other.as_bytes()), None, "{other}");
        }
    }
}
