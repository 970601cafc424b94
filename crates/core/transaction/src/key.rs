//! Which server transaction a request belongs to (RFC 3261 §17.2.3).

use core::net::IpAddr;
use core::num::NonZeroU32;

use smallvec::SmallVec;
use strowger_foundation::TagKey;
use strowger_message::{Head, HeaderName, Method, NameAddr, StartLine, Via, parse_decimal};

/// Host names are lower-cased here without allocating; longer ones allocate.
const INLINE_HOST: usize = 64;

/// The key of a server transaction: a keyed hash of what RFC 3261 §17.2.3 compares, so that nobody outside can make two
/// requests fall together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerKey(pub(crate) [u8; 16]);

impl ServerKey {
    /// The key as bytes, to make something of it that a peer may see: never as it is.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The key of the transaction that a request belongs to; an ACK's is its INVITE's. `via` is the topmost of `head`.
    #[must_use]
    pub fn of(secret: &TagKey, head: &Head<'_>, via: &Via<'_>, method: Method<'_>) -> Self {
        //= rfc3261#17.2.3
        // The method of the request matches the one that created the transaction, except for ACK, where it is INVITE.
        let method = if method == Method::Ack { Method::Invite } else { method };
        match via.rfc3261_branch() {
            Some(branch) => Self::of_branch(secret, branch, via, method),
            None => Self::of_fields(secret, head, via, method),
        }
    }

    /// The same by the branch alone, which several servers write that stand in for one another.
    #[must_use]
    pub fn of_branch_alone(secret: &TagKey, branch: &[u8], method: Method<'_>) -> Self {
        let method = if method == Method::Ack { Method::Invite } else { method };
        Self::of_parts(secret, branch, b"", None, method)
    }

    /// The key of the INVITE that a CANCEL cancels (RFC 3261 §9.2).
    #[must_use]
    pub fn of_cancelled_invite(secret: &TagKey, head: &Head<'_>, via: &Via<'_>) -> Self {
        Self::of(secret, head, via, Method::Invite)
    }

    /// The branch, the sent-by and the method.
    fn of_branch(secret: &TagKey, branch: &[u8], via: &Via<'_>, method: Method<'_>) -> Self {
        //= rfc3261#17.2.3
        // The sent-by is part of the match: branches of different clients may be the same, by accident or malice.
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
        // A header is shorter than 2^16, so the lengths tell where each part ends.
        let [method_length, branch_length] =
            [method.as_bytes().len(), branch.len()].map(|length| u16::try_from(length).unwrap_or(u16::MAX));
        let port = port.unwrap_or(0);
        let ends = u64::from(port) << 48 | u64::from(method_length) << 16 | u64::from(branch_length);
        Self(secret.table128_of(&[branch, host, method.as_bytes()], ends).to_le_bytes())
    }

    /// RFC 2543's fields. The To tag is left out, because an ACK's is the response's and not the INVITE's; see
    /// [`Transactions::ack_matches`](crate::Transactions::ack_matches).
    fn of_fields(secret: &TagKey, head: &Head<'_>, via: &Via<'_>, method: Method<'_>) -> Self {
        let uri = match head.start() {
            StartLine::Request { uri, .. } => uri,
            StartLine::Response { .. } => &[],
        };
        let from_tag = head.first(HeaderName::From).and_then(NameAddr::parse).and_then(|from| from.tag());
        let call_id = head.first(HeaderName::CallId).unwrap_or(&[]);
        let cseq = cseq_digits(head).unwrap_or(&[]);
        // By a key of its own, for it must not be what a branch could make.
        let secret = secret.derive("2543");
        let parts = [uri, from_tag.unwrap_or(&[]), call_id, cseq, via.text, method.as_bytes()];
        Self(secret.table128(&parts).to_le_bytes())
    }
}

/// What tells requests of one key apart: a short keyed hash of Call-ID and the number of CSeq. Of one client's requests it is the
/// same for those that are the same; a client that uses a branch again for another request has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFingerprint(NonZeroU32);

impl RequestFingerprint {
    /// The mark of a request with this Call-ID and CSeq.
    #[inline]
    #[must_use]
    pub fn of(secret: &TagKey, call_id: &[u8], cseq: u32) -> Self {
        let [a, b, c, d, ..] = secret.table64(&[call_id]).to_le_bytes();
        Self(NonZeroU32::new(u32::from_le_bytes([a, b, c, d]) ^ cseq).unwrap_or(NonZeroU32::MIN))
    }

    /// The same of a request of which only the head is understood; `None` where that has no such number.
    #[must_use]
    pub fn of_head(secret: &TagKey, head: &Head<'_>) -> Option<Self> {
        let cseq = cseq_digits(head).and_then(parse_decimal).and_then(|number| u32::try_from(number).ok())?;
        Some(Self::of(secret, head.first(HeaderName::CallId)?, cseq))
    }
}

/// The number of CSeq as it is written, without leading zeros.
pub(crate) fn cseq_digits<'a>(head: &Head<'a>) -> Option<&'a [u8]> {
    let value = head.first(HeaderName::CSeq)?;
    let end = value.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(value.len());
    let digits = value.get(..end)?;
    let zeros = digits.iter().take_while(|byte| **byte == b'0').count();
    // A zero keeps its last digit.
    digits.get(zeros.min(digits.len().saturating_sub(1))..)
}
