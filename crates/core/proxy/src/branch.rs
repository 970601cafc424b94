//! Our Via branches: they name the shard and the client transaction that a response belongs to, carry a loop hash, and
//! are authenticated, so that a response without our tag is dropped before anything is looked up.
//!
//! `z9hG4bK` and 42 characters of base64url: kind (1 byte), shard (2), place (8), loop hash (8), tag (12).

use strowger_foundation::{KeyRing, ShardId, Tag, base64url};
use strowger_message::{HeaderName, MAGIC_COOKIE, Message, Via};
use strowger_transaction::ClientId;

const PAYLOAD: usize = 19;
const SIGNED: usize = PAYLOAD + 12;
const ENCODED: usize = 42;
/// The length of a branch's text, magic cookie included.
pub const BRANCH_LEN: usize = 7 + ENCODED;

const STATEFUL: u8 = 1;
const STATELESS: u8 = 2;
const KEEP_ALIVE: u8 = 3;

/// Whom a branch belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A client transaction.
    Client(ClientId),
    /// Nobody: the request was forwarded without state; the number is a function of the branch above.
    Stateless(u64),
    /// Nobody: the request is a keep-alive of ours, whose answer says no more than that the peer is there.
    KeepAlive(u64),
}

/// A branch that one of our members made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The shard that forwarded the request.
    pub shard: ShardId,
    /// The transaction in it.
    pub owner: Owner,
    /// What [`loop_hash`] said of the request as it came in.
    pub loop_hash: u64,
}

impl Branch {
    /// The branch's text, signed by the current key.
    #[must_use]
    pub fn encode(&self, ring: &KeyRing) -> [u8; BRANCH_LEN] {
        let payload = self.payload();
        let mut signed = [0; SIGNED];
        let (front, tag) = signed.split_at_mut(PAYLOAD);
        front.copy_from_slice(&payload);
        tag.copy_from_slice(&ring.current().sign(&[&payload]).0);
        let mut text = [0; BRANCH_LEN];
        let (cookie, encoded) = text.split_at_mut(MAGIC_COOKIE.len());
        cookie.copy_from_slice(MAGIC_COOKIE);
        base64url::encode(&signed, encoded);
        text
    }

    /// Reads a branch; `None` where it is not ours.
    #[must_use]
    pub fn decode(ring: &KeyRing, text: &[u8]) -> Option<Self> {
        let encoded = text.strip_prefix(MAGIC_COOKIE)?;
        if encoded.len() != ENCODED {
            return None;
        }
        let mut signed = [0; SIGNED];
        base64url::decode(encoded, &mut signed)?;
        let (payload, tag) = signed.split_first_chunk::<PAYLOAD>()?;
        let tag = Tag(tag.try_into().ok()?);
        if !ring.verify(&[payload], &tag) {
            return None;
        }
        let [kind, s0, s1, rest @ ..] = *payload;
        let (place, loop_hash) = rest.split_first_chunk::<8>()?;
        let place = u64::from_be_bytes(*place);
        let owner = match kind {
            STATEFUL => Owner::Client(ClientId::from_parts(high(place), low(place))),
            STATELESS => Owner::Stateless(place),
            KEEP_ALIVE => Owner::KeepAlive(place),
            _ => return None,
        };
        let loop_hash = u64::from_be_bytes(loop_hash.try_into().ok()?);
        Some(Self { shard: ShardId(u16::from_be_bytes([s0, s1])), owner, loop_hash })
    }

    fn payload(&self) -> [u8; PAYLOAD] {
        let (kind, place) = match self.owner {
            Owner::Client(id) => (STATEFUL, (u64::from(id.index()) << 32) | u64::from(id.generation())),
            Owner::Stateless(place) => (STATELESS, place),
            Owner::KeepAlive(place) => (KEEP_ALIVE, place),
        };
        let [s0, s1] = self.shard.0.to_be_bytes();
        let [p0, p1, p2, p3, p4, p5, p6, p7] = place.to_be_bytes();
        let [l0, l1, l2, l3, l4, l5, l6, l7] = self.loop_hash.to_be_bytes();
        [kind, s0, s1, p0, p1, p2, p3, p4, p5, p6, p7, l0, l1, l2, l3, l4, l5, l6, l7]
    }
}

fn high(place: u64) -> u32 {
    u32::try_from(place >> 32).unwrap_or(0)
}

fn low(place: u64) -> u32 {
    u32::try_from(place & u64::from(u32::MAX)).unwrap_or(0)
}

//= rfc3261#16.6
//= rfc5393#4.2.1
/// What decides the way of a request: when it comes back with the same hash, it is looping; with another one it spirals.
/// Neither the method nor the To tag takes part, so a CANCEL or ACK has the hash of its INVITE.
#[must_use]
pub fn loop_hash(ring: &KeyRing, message: &Message<'_>) -> u64 {
    let head = message.head();
    let mut routes = head.all(HeaderName::Route);
    let (first, second) = (routes.next().unwrap_or(&[]), routes.next().unwrap_or(&[]));
    let tag = message.from().tag().unwrap_or(&[]);
    let number = message.cseq().number.to_be_bytes();
    ring.current().table64(&[message.request_uri(), first, second, tag, message.call_id(), &number])
}

/// The owner of a stateless branch: a function of the branch above, or of RFC 2543's fields where that is no branch
/// (RFC 3261 §16.11), so that retransmissions, CANCEL and ACK take the same branch.
#[must_use]
pub fn stateless_owner(ring: &KeyRing, message: &Message<'_>) -> Owner {
    let via = message.via();
    let number = message.cseq().number.to_be_bytes();
    let key = ring.current();
    let place = match via.rfc3261_branch() {
        Some(branch) => key.table64(&[branch, via.sent_by.host, &via.response_port().to_be_bytes()]),
        None => key.table64(&[
            via.text,
            message.from().tag().unwrap_or(&[]),
            message.call_id(),
            &number,
            message.request_uri(),
        ]),
    };
    Owner::Stateless(place)
}

/// Whether one of the Vias is ours and carries `hash`: the request has been here, and left the same way.
#[must_use]
pub fn has_looped(ring: &KeyRing, message: &Message<'_>, hash: u64) -> bool {
    let is_ours = |via: &Via<'_>| {
        let ours = via.branch.and_then(|branch| Branch::decode(ring, branch));
        ours.is_some_and(|branch| branch.loop_hash == hash)
    };
    if message.has_one_via() {
        return is_ours(message.via());
    }
    message.head().all(HeaderName::Via).flat_map(Via::parse_all).flatten().any(|via| is_ours(&via))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_foundation::TagKey;

    #[test]
    fn a_branch_comes_home_and_a_forged_one_does_not() {
        let ring = KeyRing::new(TagKey::new([5; 16]));
        for owner in [Owner::Client(ClientId::from_parts(7, 9)), Owner::Stateless(u64::MAX - 3), Owner::KeepAlive(5)] {
            let branch = Branch { shard: ShardId(513), owner, loop_hash: 0x0123_4567_89ab_cdef };
            let text = branch.encode(&ring);
            assert_eq!(Branch::decode(&ring, &text), Some(branch));
            for at in 0..text.len() {
                let mut forged = text;
                forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
                assert_eq!(Branch::decode(&ring, &forged), None, "byte {at}");
            }
            assert_eq!(Branch::decode(&KeyRing::new(TagKey::new([6; 16])), &text), None);
        }
        assert_eq!(Branch::decode(&ring, b"z9hG4bK776asdhds"), None);
    }
}
