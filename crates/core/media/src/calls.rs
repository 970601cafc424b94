//! Calls whose media go through an engine, and the state of their offers and answers (RFC 3264).

use core::time::Duration;
use std::sync::Arc;

use smallvec::SmallVec;
use strowger_foundation::map::{SeededMap, seeded};
use strowger_foundation::{TagKey, TimerId, TimerWheel, Timestamp};

use crate::engine::Engine;

/// Largest number of calls of a shard whose media go through engines.
pub const MAX_CALLS: usize = 65_536;
/// Largest number of transactions of a call whose offers are remembered; older ones are forgotten.
pub const MAX_EXCHANGES: usize = 8;
/// Largest number of results of a call that are kept for retransmissions.
const MAX_RESULTS: usize = 4;
/// Lifetime of a call that nothing ends.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(12 * 3600);

/// Whether a session description is an offer or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SdpRole {
    /// An offer.
    Offer,
    /// An answer.
    Answer,
}

/// A transaction that carries an offer or will: an INVITE, UPDATE or PRACK.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Number of its server transaction, unique among those alive.
    pub transaction: u64,
    /// CSeq of the request.
    pub cseq: u32,
    /// Tag of the sender of the request.
    pub requester_tag: Box<[u8]>,
    /// Whether it is an INVITE.
    pub is_invite: bool,
    /// Whether the request has an offer. If an INVITE has none, its response has it, and PRACK or ACK the answer.
    pub has_offer: bool,
    /// Number of targets of the offer, each with a description of its own.
    pub branches: u8,
    /// Whether the sender of the request is a browser.
    pub is_from_browser: bool,
    /// If a response had the offer: the tag of its sender.
    pub offered_by: Option<Box<[u8]>>,
    /// Whether that is a browser.
    pub is_offered_by_browser: bool,
}

impl Exchange {
    //= rfc3261#13.2.1
    /// Returns the role of a description in a response.
    #[must_use]
    pub const fn role_of_response(&self) -> SdpRole {
        if self.has_offer { SdpRole::Answer } else { SdpRole::Offer }
    }
}

/// A result for a retransmission.
#[derive(Debug)]
struct CachedResult {
    key: u64,
    sdp: Box<[u8]>,
}

/// A call.
#[derive(Debug)]
pub struct MediaCall {
    /// Its Call-ID.
    pub call_id: Box<[u8]>,
    /// The tag of one of its parties.
    pub tag: Box<[u8]>,
    /// Hash of the Call-ID, which selects the engine.
    pub hash: u64,
    /// The engine that has answered last.
    pub engine: Option<Arc<Engine>>,
    pub(crate) exchanges: SmallVec<[Exchange; 1]>,
    results: SmallVec<[CachedResult; 1]>,
    /// When it ends if nothing else ends it.
    pub(crate) until: Timestamp,
    timer: TimerId,
}

impl MediaCall {
    /// Adds a transaction.
    pub fn begin(&mut self, exchange: Exchange) {
        self.exchanges.retain(|known| known.transaction != exchange.transaction);
        if self.exchanges.len() >= MAX_EXCHANGES {
            self.exchanges.remove(0);
        }
        self.exchanges.push(exchange);
    }

    /// Forgets a transaction whose offer has not reached an engine, so that its answer does not either.
    pub fn forget(&mut self, transaction: u64) {
        self.exchanges.retain(|known| known.transaction != transaction);
    }

    /// Returns the exchange of a server transaction.
    #[must_use]
    pub fn exchange(&self, transaction: u64) -> Option<&Exchange> {
        self.exchanges.iter().find(|exchange| exchange.transaction == transaction)
    }

    /// Records that the response from `tag` has the offer.
    pub fn record_response_offer(&mut self, transaction: u64, tag: &[u8], is_browser: bool) {
        let exchange = self.exchanges.iter_mut().find(|exchange| exchange.transaction == transaction);
        for exchange in exchange.into_iter().filter(|exchange| !exchange.has_offer) {
            exchange.offered_by = Some(tag.into());
            exchange.is_offered_by_browser = is_browser;
        }
    }

    /// Returns the INVITE of an ACK.
    #[must_use]
    pub fn invite_of_ack(&self, cseq: u32, requester_tag: &[u8]) -> Option<&Exchange> {
        let mut latest = self.exchanges.iter().rev();
        latest.find(|known| known.is_invite && known.cseq == cseq && *known.requester_tag == *requester_tag)
    }

    /// Returns the INVITE whose reliable response had the offer that a PRACK to `tag` may answer.
    #[must_use]
    pub fn invite_of_prack(&self, requester_tag: &[u8], tag: &[u8]) -> Option<&Exchange> {
        self.exchanges.iter().rev().find(|known| {
            known.is_invite
                && *known.requester_tag == *requester_tag
                && known.offered_by.as_deref().is_some_and(|offerer| offerer == tag)
        })
    }

    /// Records that the offer in a response is answered, so that a later PRACK has an offer of its own.
    pub fn record_prack_answer(&mut self, transaction: u64) {
        let exchange = self.exchanges.iter_mut().find(|exchange| exchange.transaction == transaction);
        exchange.into_iter().for_each(|exchange| exchange.offered_by = None);
    }

    /// Returns the result of the same description in the same message before.
    #[must_use]
    pub fn result(&self, key: u64) -> Option<&[u8]> {
        self.results.iter().find(|result| result.key == key).map(|result| &*result.sdp)
    }

    /// Keeps a result for retransmissions.
    pub fn keep_result(&mut self, key: u64, sdp: &[u8]) {
        self.results.retain(|known| known.key != key);
        if self.results.len() >= MAX_RESULTS {
            self.results.remove(0);
        }
        self.results.push(CachedResult { key, sdp: sdp.into() });
    }

    /// Sets the engine. The results of another engine are void.
    pub fn set_engine(&mut self, engine: &Arc<Engine>) {
        if self.engine.as_ref().is_some_and(|known| !Arc::ptr_eq(known, engine)) {
            self.results.clear();
        }
        self.engine = Some(Arc::clone(engine));
    }
}

/// The calls of a shard. The key of a call is a hash of its Call-ID and of one party's tag.
#[derive(Debug)]
pub struct MediaCalls {
    key: TagKey,
    calls: SeededMap<u64, MediaCall>,
    timers: TimerWheel<u64>,
}

impl MediaCalls {
    /// Creates an empty table. `key` is secret.
    #[must_use]
    pub fn new(key: &TagKey, seed: u64) -> Self {
        Self { key: key.derive("media"), calls: SeededMap::with_hasher(seeded(seed)), timers: TimerWheel::new() }
    }

    /// Returns the call that began under `key`, or begins it. `None` if [`MAX_CALLS`] are known.
    pub fn begin(&mut self, now: Timestamp, key: u64, call_id: &[u8], tag: &[u8]) -> Option<&mut MediaCall> {
        if !self.calls.contains_key(&key) {
            if self.calls.len() >= MAX_CALLS {
                return None;
            }
            self.insert(key, call_id, tag, now + MAX_AGE);
        }
        self.calls.get_mut(&key)
    }

    pub(crate) fn insert(&mut self, key: u64, call_id: &[u8], tag: &[u8], until: Timestamp) {
        let call = MediaCall {
            call_id: call_id.into(),
            tag: tag.into(),
            hash: self.hash_of(call_id),
            engine: None,
            exchanges: SmallVec::new(),
            results: SmallVec::new(),
            until,
            timer: self.timers.insert(until, key),
        };
        self.calls.insert(key, call);
    }

    /// Returns the hash of a Call-ID, which selects the engine of its call.
    #[must_use]
    pub fn hash_of(&self, call_id: &[u8]) -> u64 {
        self.key.hash64(&[call_id])
    }

    /// Returns the keys of all calls, in ascending order.
    #[must_use]
    pub fn keys(&self) -> Vec<u64> {
        let mut keys: Vec<u64> = self.calls.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    /// Returns the call that began under one of `keys`, and the key.
    pub fn find(&mut self, keys: [u64; 2]) -> Option<(u64, &mut MediaCall)> {
        let key = keys.into_iter().find(|key| self.calls.contains_key(key))?;
        self.calls.get_mut(&key).map(|call| (key, call))
    }

    /// Returns the call that began under `key`.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut MediaCall> {
        self.calls.get_mut(&key)
    }

    pub(crate) fn get(&self, key: u64) -> Option<&MediaCall> {
        self.calls.get(&key)
    }

    /// Ends a call and returns it.
    pub fn end(&mut self, key: u64) -> Option<MediaCall> {
        let call = self.calls.remove(&key)?;
        self.timers.cancel(call.timer);
        Some(call)
    }

    /// Returns the key of the result for a description in a message.
    #[must_use]
    pub fn result_key(&self, transaction: u64, role: SdpRole, tags: [&[u8]; 2], sdp: &[u8]) -> u64 {
        let role: &[u8] = if role == SdpRole::Offer { b"offer" } else { b"answer" };
        self.key.hash64(&[&transaction.to_be_bytes(), role, tags[0], tags[1], sdp])
    }

    /// Removes and returns a call that nothing has ended for hours. Call while [`poll_timeout`](Self::poll_timeout) is
    /// not later than `now`.
    pub fn poll_expired(&mut self, now: Timestamp) -> Option<MediaCall> {
        let key = self.timers.poll_expired(now)?;
        self.calls.remove(&key)
    }

    /// Returns when a call expires.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.timers.next_deadline()
    }

    /// Number of calls.
    #[must_use]
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there is no call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}
