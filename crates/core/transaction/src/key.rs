//! Matching of requests to server transactions (RFC 3261 §17.2.3).

use core::net::IpAddr;
use core::num::NonZeroU32;

use smallvec::SmallVec;
use strowger_foundation::TagKey;
use strowger_message::{Head, HeaderName, Method, NameAddr, StartLine, Via, parse_decimal};

/// Longest host name that is lower-cased without allocating, in bytes.
const INLINE_HOST: usize = 64;

/// The key of a server transaction: a keyed hash of the values that RFC 3261 §17.2.3 compares. No outsider can make
/// two requests collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerKey(pub(crate) [u8; 16]);

impl ServerKey {
    /// Returns the key as bytes. Derive values for peers from it; never expose it as it is.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Returns half of the key, which is enough to distinguish the transactions of one process from those of another: it
    /// is a keyed hash too.
    #[must_use]
    pub const fn half(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// Returns the key of a request's transaction; an ACK has its INVITE's. `via` is the topmost of `head`.
    #[must_use]
    pub fn of(secret: &TagKey, head: &Head<'_>, via: &Via<'_>, method: Method<'_>) -> Self {
        //= rfc3261#17.2.3
        // The method must match the one that created the transaction; an ACK matches an INVITE.
        let method = if method == Method::Ack { Method::Invite } else { method };
        match via.rfc3261_branch() {
            Some(branch) => Self::of_branch(secret, branch, via, method),
            None => Self::of_fields(secret, head, via, method),
        }
    }

    /// Returns the key from the branch alone, for requests from several servers that stand in for one another and
    /// write the same branch.
    #[must_use]
    pub fn of_branch_alone(secret: &TagKey, branch: &[u8], method: Method<'_>) -> Self {
        let method = if method == Method::Ack { Method::Invite } else { method };
        Self::of_parts(secret, branch, b"", None, method)
    }

    /// Returns the key of the INVITE that a CANCEL refers to (RFC 3261 §9.2).
    #[must_use]
    pub fn of_cancelled_invite(secret: &TagKey, head: &Head<'_>, via: &Via<'_>) -> Self {
        Self::of(secret, head, via, Method::Invite)
    }

    /// Hashes branch, sent-by and method.
    fn of_branch(secret: &TagKey, branch: &[u8], via: &Via<'_>, method: Method<'_>) -> Self {
        //= rfc3261#17.2.3
        // The sent-by is part of the match: different clients may use the same branch, by accident or on purpose.
        let host = via.sent_by.host;
        let is_v4 = matches!(via.sent_by.ip, Some(IpAddr::V4(_)));
        if !is_v4 && host.iter().any(u8::is_ascii_uppercase) {
            let mut lower: SmallVec<[u8; INLINE_HOST]> = SmallVec::from_slice(host);
            lower.make_ascii_lowercase();
            return Self::of_parts(secret, branch, &lower, via.sent_by.port, method);
        }
        Self::of_parts(secret, branch, host, via.sent_by.port, method)
    }

    fn of_parts(secret: &TagKey, branch: &[u8], host: &[u8], port: Option<u16>, method: Method<'_>) -> Self {
        // A header is shorter than 2^16 bytes, so the lengths delimit the parts.
        let [method_length, branch_length] =
            [method.as_bytes().len(), branch.len()].map(|length| u16::try_from(length).unwrap_or(u16::MAX));
        let port = port.unwrap_or(0);
        let ends = u64::from(port) << 48 | u64::from(method_length) << 16 | u64::from(branch_length);
        Self(secret.table128_of(&[branch, host, method.as_bytes()], ends).to_le_bytes())
    }

    /// Hashes the fields that RFC 2543 compares. The To tag is left out, because an ACK has the response's and not
    /// the INVITE's; see [`Transactions::ack_matches`](crate::Transactions::ack_matches).
    fn of_fields(secret: &TagKey, head: &Head<'_>, via: &Via<'_>, method: Method<'_>) -> Self {
        let uri = match head.start() {
            StartLine::Request { uri, .. } => uri,
            StartLine::Response { .. } => &[],
        };
        let from_tag = head.first(HeaderName::From).and_then(NameAddr::parse).and_then(|from| from.tag());
        let call_id = head.first(HeaderName::CallId).unwrap_or(&[]);
        let cseq = cseq_digits(head).unwrap_or(&[]);
        // Uses a separate key so that no branch can produce the same hash.
        let secret = secret.derive("2543");
        let parts = [uri, from_tag.unwrap_or(&[]), call_id, cseq, via.text, method.as_bytes()];
        Self(secret.table128(&parts).to_le_bytes())
    }
}

/// A short keyed hash of Call-ID and CSeq number that distinguishes requests with the same key. Retransmissions have
/// the same fingerprint; a different request with a reused branch has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFingerprint(NonZeroU32);

impl RequestFingerprint {
    /// Returns the fingerprint of a request with this Call-ID and CSeq.
    #[inline]
    #[must_use]
    pub fn of(secret: &TagKey, call_id: &[u8], cseq: u32) -> Self {
        let [a, b, c, d, ..] = secret.table64(&[call_id]).to_le_bytes();
        Self(NonZeroU32::new(u32::from_le_bytes([a, b, c, d]) ^ cseq).unwrap_or(NonZeroU32::MIN))
    }

    /// Returns the fingerprint of a request of which only the head is parsed; `None` if it has no such number.
    #[must_use]
    pub fn of_head(secret: &TagKey, head: &Head<'_>) -> Option<Self> {
        let cseq = cseq_digits(head).and_then(parse_decimal).and_then(|number| u32::try_from(number).ok())?;
        Some(Self::of(secret, head.first(HeaderName::CallId)?, cseq))
    }
}

/// Returns the CSeq number as written, without leading zeros.
pub(crate) fn cseq_digits<'a>(head: &Head<'a>) -> Option<&'a [u8]> {
    let value = head.first(HeaderName::CSeq)?;
    let end = value.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(value.len());
    let digits = value.get(..end)?;
    let zeros = digits.iter().take_while(|byte| **byte == b'0').count();
    // Zero keeps its last digit.
    digits.get(zeros.min(digits.len().saturating_sub(1))..)
}
