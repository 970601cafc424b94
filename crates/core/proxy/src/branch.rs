//! Our Via branches: they name the shard and the client transaction of a response, carry a loop hash, and are
//! authenticated, so that a response without our seal is dropped before any lookup.
//!
//! `z9hG4bK` and 48 [letters](base16): process (5 bits), kind (3), shard (16) and loop hash (40), position (64), seal (64).

use core::net::SocketAddr;

use strowger_balancer::TargetId;
use strowger_foundation::{KeyRing, Seal, ShardId, TagKey, base16, octets};
use strowger_message::{HeaderName, MAGIC_COOKIE, Message, Via};
use strowger_transaction::ClientId;

/// Length of a branch in characters, including the magic cookie.
pub const BRANCH_LEN: usize = MAGIC_COOKIE.len() + 3 * base16::LEN;

const STATEFUL: u8 = 1;
const STATELESS: u8 = 2;
const KEEP_ALIVE: u8 = 3;

/// Number of bits of a kind.
const KIND_BITS: u32 = 3;

/// Processes that succeed one another are numbered modulo this.
pub const PROCESS_NUMBERS: u8 = 1 << (8 - KIND_BITS);

/// Number of bits of a loop hash.
const LOOP_BITS: u32 = 40;

/// The owner of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchOwner {
    /// A client transaction.
    Client(ClientId),
    /// None: the request was forwarded statelessly; the number is a function of the branch above.
    Stateless(u64),
    /// None: the request is our keep-alive; its response only shows that the peer is alive.
    KeepAlive(u64),
}

/// The shard number of branches that any shard may have made: their responses are routed by Call-ID.
pub const ANY_SHARD: ShardId = ShardId(u16::MAX);

/// A branch created by one of our members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchId {
    /// The shard that forwarded the request.
    pub shard: ShardId,
    /// The owner within the shard.
    pub owner: BranchOwner,
    /// The [`loop_hash`] of the request as received; only the lower 40 bits count.
    pub loop_hash: u64,
    /// Number of the process that has the client transaction, below [`PROCESS_NUMBERS`]; 0 if there is none. After an
    /// upgrade, the process before still has transactions.
    pub process: u8,
}

impl BranchId {
    //= rfc3261#8.1.1.7:unique-branch
    //= rfc3261#8.1.1.7:magic-cookie
    /// Returns the branch's text, sealed with the current key.
    #[must_use]
    pub fn encode(&self, ring: &KeyRing) -> [u8; BRANCH_LEN] {
        let words = self.words();
        let [first, second] = words;
        let numbers = [first, second, ring.current().seal_words(words).0];
        let mut text = [0; BRANCH_LEN];
        let (cookie, parts) = text.split_at_mut(MAGIC_COOKIE.len());
        cookie.copy_from_slice(MAGIC_COOKIE);
        for (part, number) in parts.as_chunks_mut().0.iter_mut().zip(numbers) {
            *part = base16::encode(number);
        }
        text
    }

    /// Parses a branch; `None` if it is not ours.
    #[must_use]
    pub fn decode(ring: &KeyRing, text: &[u8]) -> Option<Self> {
        //= rfc5393#4.2.1:unique
        let ([first, second, seal], []) = text.strip_prefix(MAGIC_COOKIE)?.as_chunks() else { return None };
        let words = [base16::decode(first)?, base16::decode(second)?];
        if !ring.are_sealed(words, Seal(base16::decode(seal)?)) {
            return None;
        }
        let [first, place] = words;
        let [kind, s0, s1, ..] = first.to_be_bytes();
        let process = kind >> KIND_BITS;
        let owner = match kind & ((1 << KIND_BITS) - 1) {
            STATEFUL => BranchOwner::Client(ClientId::from_parts(high(place), low(place))),
            STATELESS => BranchOwner::Stateless(place),
            KEEP_ALIVE => BranchOwner::KeepAlive(place),
            _ => return None,
        };
        Some(Self { shard: ShardId(u16::from_be_bytes([s0, s1])), owner, loop_hash: cut(first), process })
    }

    //= rfc3261#16.6:branch-in-two-parts
    //= rfc3261#16.6:unique-part
    //= rfc5393#4.2.1:two-parts
    /// The sealed content.
    fn words(&self) -> [u64; 2] {
        let (kind, place) = match self.owner {
            //= rfc5393#4.2.1:unique
            BranchOwner::Client(id) => (STATEFUL, (u64::from(id.index()) << 32) | u64::from(id.generation())),
            BranchOwner::Stateless(place) => (STATELESS, place),
            BranchOwner::KeepAlive(place) => (KEEP_ALIVE, place),
        };
        debug_assert!(self.process < PROCESS_NUMBERS, "the number of a process has five bits");
        let front = u64::from(self.process << KIND_BITS | kind) << 16 | u64::from(self.shard.0);
        [front << LOOP_BITS | cut(self.loop_hash), place]
    }
}

/// Truncates a loop hash to the bits in a branch.
const fn cut(hash: u64) -> u64 {
    hash & ((1 << LOOP_BITS) - 1)
}

fn high(place: u64) -> u32 {
    u32::try_from(place >> 32).unwrap_or(0)
}

fn low(place: u64) -> u32 {
    u32::try_from(place & u64::from(u32::MAX)).unwrap_or(0)
}

//= rfc3261#16.6:loop-hash
//= rfc3261#16.6:no-method
//= rfc5393#4.2.1
//= rfc5393#4.2.1:not-method
/// Hashes what determines the routing of a request. If a request returns with the same hash it loops; with a
/// different one it spirals. Method and To tag are excluded, so a CANCEL or ACK has the hash of its INVITE.
///
/// Peers see the hash and it does not hide its key: do not use `key` for anything else.
#[must_use]
pub fn loop_hash(key: &TagKey, message: &Message<'_>) -> u64 {
    let head = message.head();
    let mut routes = head.all(HeaderName::Route);
    let (first, second) = (routes.next().unwrap_or(&[]), routes.next().unwrap_or(&[]));
    let tag = message.from().tag().unwrap_or(&[]);
    let number = message.cseq().number.to_be_bytes();
    //= rfc5393#4.2.1:what-decides
    //= rfc5393#4.2.4:varying
    cut(key.table64(&[message.request_uri(), first, second, tag, message.call_id(), &number]))
}

//= rfc3261#16.6:no-method
//= rfc3261#16.6:cancel-and-ack
//= rfc3261#16.11:same-branch
//= rfc3261#16.11:branch
//= rfc3261#16.11:hash-of-branch
//= rfc5393#4.2.1:same-branch
/// Returns the owner for a stateless branch: a function of the branch above, or of RFC 2543's fields without such a
/// branch (RFC 3261 §16.11), so that retransmissions, CANCEL and ACK get the same branch. `key` is as for
/// [`loop_hash`].
#[must_use]
pub fn stateless_owner(key: &TagKey, message: &Message<'_>) -> BranchOwner {
    let via = message.via();
    let number = message.cseq().number.to_be_bytes();
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
    BranchOwner::Stateless(place)
}

/// Returns the owner for a branch to a target of a balanced set when other members share our keys: a function of the
/// branch above, the target and its address. Whichever member forwards a retransmission, the target recognizes it.
/// `key` is as for [`loop_hash`].
#[must_use]
pub fn shared_owner(key: &TagKey, message: &Message<'_>, target: TargetId, peer: SocketAddr) -> BranchOwner {
    match stateless_owner(key, message) {
        BranchOwner::Stateless(place) => {
            let (ip, port) = (octets(peer.ip()), peer.port().to_be_bytes());
            let parts: [&[u8]; 4] = [&place.to_be_bytes(), &target.0.to_be_bytes(), &ip, &port];
            BranchOwner::Stateless(key.table64(&parts))
        }
        owner => owner,
    }
}

/// Whether one of the Vias is ours with this `hash`: the request has been here and was routed in the same way.
#[must_use]
pub fn has_looped(ring: &KeyRing, message: &Message<'_>, hash: u64) -> bool {
    let is_ours = |via: &Via<'_>| {
        let ours = via.branch.and_then(|branch| BranchId::decode(ring, branch));
        //= rfc5393#4.2.2:compared
        ours.is_some_and(|branch| branch.loop_hash == hash)
    };
    if message.has_one_via() {
        return is_ours(message.via());
    }
    //= rfc5393#4.2.2:each-via
    message.head().all(HeaderName::Via).flat_map(Via::parse_all).flatten().any(|via| is_ours(&via))
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rfc5393#4.2.1:two-parts
    //= rfc5393#4.2.1:unique
    //= rfc3261#16.11:hash-of-branch
    #[test]
    fn without_state_a_branch_derives_from_the_received_one() {
        let key = TagKey::new([5; 16]);
        let owner = |branch: &str, from: &str, call_id: &str, cseq: &str, uri: &str| {
            let text = format!(
                "MESSAGE {uri} SIP/2.0\r\nVia: SIP/2.0/UDP a;branch={branch}\r\nFrom: <sip:a@a>;tag={from}\r\n\
                 To: <sip:b@b>\r\nCall-ID: {call_id}\r\nCSeq: {cseq} MESSAGE\r\n\r\n"
            );
            stateless_owner(&key, &Message::parse(text.as_bytes()).expect("valid"))
        };
        assert_eq!(owner("z9hG4bK1", "1", "c", "1", "sip:b@b"), owner("z9hG4bK1", "2", "d", "2", "sip:c@c"));
        assert_ne!(owner("z9hG4bK1", "1", "c", "1", "sip:b@b"), owner("z9hG4bK2", "1", "c", "1", "sip:b@b"));
        let old = owner("1", "1", "c", "1", "sip:b@b");
        assert_eq!(old, owner("1", "1", "c", "1", "sip:b@b"));
        for other in [
            owner("2", "1", "c", "1", "sip:b@b"),
            owner("1", "2", "c", "1", "sip:b@b"),
            owner("1", "1", "d", "1", "sip:b@b"),
            owner("1", "1", "c", "2", "sip:b@b"),
            owner("1", "1", "c", "1", "sip:c@c"),
        ] {
            assert_ne!(old, other);
        }
    }

    //= rfc3261#16.6:branch-in-two-parts
    #[test]
    fn branches_round_trip_and_forged_ones_fail() {
        let ring = KeyRing::new(TagKey::new([5; 16]));
        for owner in [
            BranchOwner::Client(ClientId::from_parts(7, 9)),
            BranchOwner::Stateless(u64::MAX - 3),
            BranchOwner::KeepAlive(5),
        ] {
            let branch =
                BranchId { shard: ShardId(513), owner, loop_hash: 0x67_89ab_cdef, process: PROCESS_NUMBERS - 1 };
            let text = branch.encode(&ring);
            assert_eq!(BranchId::decode(&ring, &text), Some(branch));
            for at in 0..text.len() {
                let mut forged = text;
                forged[at] = if forged[at] == b'a' { b'b' } else { b'a' };
                assert_eq!(BranchId::decode(&ring, &forged), None, "byte {at}");
            }
            assert_eq!(BranchId::decode(&KeyRing::new(TagKey::new([6; 16])), &text), None);
        }
        assert_eq!(BranchId::decode(&ring, b"z9hG4bK776asdhds"), None);
    }
}
