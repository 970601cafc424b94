//! Requests that have a final response and whose user need not be notified of their end. The only remaining task of
//! such a transaction is to resend the response to a retransmitted request (RFC 3261 §17.2.2, Timer J). All entries
//! have the same lifetime, so they and their responses are stored contiguously in order of expiry: insertion and
//! expiry each touch adjacent memory.
//!
//! Of the server's own response only a part is stored: the retransmitted request supplies what was copied from it and
//! where the response goes. A response of another element is stored whole, after its flow.

use core::hint::black_box;
use core::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::collections::VecDeque;

use strowger_foundation::prefetch::{CACHE_LINE, prefetch};
use strowger_foundation::{Flow, ListenerId, Timestamp, Transport};

use crate::key::{RequestFingerprint, ServerKey};
use crate::limits::MAX_SERVER;
use crate::timer_queues::tick_of;

/// Maximum number of entries of a chunk, a power of two.
const CHUNK: u32 = 128;
/// Minimum capacity of a chunk for response bytes. A response longer than a chunk gets a chunk of its own size.
const LEAST_ROOM: usize = 16 * CHUNK as usize;
const MOST_ROOM: usize = 512 * CHUNK as usize;
/// Maximum capacity that a chunk may keep for reuse, in bytes.
const MOST_SPARE: usize = 2 * MOST_ROOM;
/// Number of distinct chunk numbers.
const NUMBERS: u32 = ResponseCache::MARK / CHUNK;
const _: () = assert!(MAX_SERVER < NUMBERS as usize, "even where each piece has one answer");

const _: () = assert!(2 * size_of::<CacheEntry>() == CACHE_LINE, "the next two are seen at once");

/// An entry, without its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheEntry {
    pub(crate) key: ServerKey,
    /// When the entry expires.
    until: Timestamp,
    /// End of its bytes in those of the chunk.
    end: u32,
    /// Fingerprint of the request; set for the server's own responses only.
    request: Option<RequestFingerprint>,
}

/// A response to store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NewResponse<'a> {
    /// The server's own: the request's fingerprint and the two parts that the request does not determine.
    Own(RequestFingerprint, [&'a [u8]; 2]),
    /// Another element's: its flow and the whole response.
    Whole(&'a Flow, &'a [u8]),
}

/// What is stored of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachedResponse<'a> {
    /// Of the server's own: the request's fingerprint and the stored parts.
    Own(RequestFingerprint, &'a [u8]),
    /// Another element's: its flow and the whole response.
    Whole(Flow, &'a [u8]),
}

/// Final responses for retransmitted requests.
#[derive(Debug, Default)]
pub(crate) struct ResponseCache {
    /// The chunks; none is empty.
    chunks: VecDeque<Chunk>,
    /// Number of the first chunk. Chunks are numbered consecutively, modulo [`NUMBERS`].
    first: u32,
    /// Number of expired entries in the first chunk.
    forgotten: u32,
    len: usize,
    /// An empty chunk for reuse.
    spare: Chunk,
    /// Average length of the responses in the last full chunk, in bytes.
    usual: usize,
    latest: Timestamp,
}

#[derive(Debug, Default)]
struct Chunk {
    /// Allocated and initialized in full, like `bytes`, so that memory can be prefetched before it is written.
    answers: Vec<CacheEntry>,
    /// Number of entries.
    count: usize,
    bytes: Vec<u8>,
}

impl ResponseCache {
    /// Bit set in the position of each entry, and in that of no open transaction.
    const MARK: u32 = 1 << 31;

    /// Whether a position is that of a cached response.
    pub(crate) const fn is_place(place: u32) -> bool {
        place & Self::MARK != 0
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Stores a response until the tick of `until` has passed and returns its position. Returns `None` if an existing
    /// entry expires later, as after a change of the base timer values.
    pub(crate) fn insert(&mut self, key: ServerKey, until: Timestamp, given: NewResponse<'_>) -> Option<u32> {
        let written;
        let (request, [first, second]) = match given {
            NewResponse::Own(request, own) => (Some(request), own),
            NewResponse::Whole(flow, text) => {
                written = to_bytes(flow);
                (None, [written.as_flattened(), text])
            }
        };
        let until = tick_of(until);
        if until < self.latest {
            return None;
        }
        self.latest = until;
        let length = first.len().saturating_add(second.len());
        if self.chunks.back().is_none_or(|chunk| !chunk.has_room(length)) {
            self.begin_chunk();
        }
        let number = self.first.wrapping_add(to_u32(self.chunks.len()).wrapping_sub(1)) % NUMBERS;
        let chunk = self.chunks.back_mut()?;
        let within = to_u32(chunk.count);
        let start = chunk.filled();
        let end = start.saturating_add(length);
        if chunk.bytes.len() < end {
            debug_assert!(chunk.count == 0, "what is kept is not moved");
            // Allocates exactly for a single response that exceeds the usual size.
            chunk.bytes = vec![0; end];
        }
        let (to_first, to_second) = chunk.bytes.get_mut(start..end)?.split_at_mut_checked(first.len())?;
        to_first.copy_from_slice(first);
        to_second.copy_from_slice(second);
        let answer = CacheEntry { key, until, end: to_u32(end), request };
        if chunk.answers.is_empty() {
            chunk.answers = vec![answer; CHUNK as usize];
        }
        *chunk.answers.get_mut(chunk.count)? = answer;
        chunk.count = chunk.count.wrapping_add(1);
        self.len = self.len.wrapping_add(1);
        Some(Self::MARK | number.wrapping_mul(CHUNK) | within)
    }

    fn begin_chunk(&mut self) {
        // Responses are alike, so reserve what the previous chunk used and a little more.
        if let Some(last) = self.chunks.back() {
            self.usual = last.filled() / last.count.max(1);
        }
        let usual = self.usual.saturating_mul(CHUNK as usize).clamp(LEAST_ROOM, MOST_ROOM);
        let Chunk { answers, mut bytes, .. } = core::mem::take(&mut self.spare);
        if !(usual..=2 * usual).contains(&bytes.len()) {
            bytes = vec![0; usual + usual / 16];
        }
        self.chunks.push_back(Chunk { answers, count: 0, bytes });
    }

    /// Returns what is stored of the response at `place`.
    pub(crate) fn response_at(&self, place: u32) -> Option<CachedResponse<'_>> {
        let (answer, bytes) = self.get(place)?;
        Some(match answer.request {
            Some(request) => CachedResponse::Own(request, bytes),
            None => {
                let (ip, rest) = bytes.split_first_chunk()?;
                let (rest, text) = rest.split_first_chunk()?;
                CachedResponse::Whole(to_flow([*ip, *rest]), text)
            }
        })
    }

    /// Returns the entry at `place` with its bytes.
    pub(crate) fn get(&self, place: u32) -> Option<(&CacheEntry, &[u8])> {
        let (number, within) = ((place & !Self::MARK) / CHUNK, place % CHUNK);
        let chunk = number.wrapping_sub(self.first) % NUMBERS;
        if !Self::is_place(place) || (chunk == 0 && within < self.forgotten) {
            return None;
        }
        let Chunk { answers, count, bytes } = self.chunks.get(chunk as usize)?;
        let answer = answers.get(..*count)?.get(within as usize)?;
        let before = within.checked_sub(1).and_then(|before| answers.get(before as usize));
        let start = before.map_or(0, |before| before.end as usize);
        Some((answer, bytes.get(start..answer.end as usize)?))
    }

    /// Returns when the next entry expires.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.front().map(|answer| answer.until)
    }

    /// Prefetches the memory that the next response will be written to.
    pub(crate) fn prefetch(&self) {
        let Some(chunk) = self.chunks.back() else { return };
        let answers = chunk.answers.get(chunk.count..).unwrap_or_default();
        black_box(answers.iter().take(2).fold(0, |seen, answer| seen ^ answer.end));
        // Responses are short; one huge response does not predict the next.
        let usual = self.usual.min(MOST_ROOM / CHUNK as usize);
        let room = chunk.bytes.get(chunk.filled()..).unwrap_or_default();
        prefetch(room, usual);
    }

    /// Returns the next expired entries, possibly not all of them.
    pub(crate) fn due(&self, now: Timestamp) -> impl Iterator<Item = &CacheEntry> {
        let rest =
            self.chunks.front().and_then(|chunk| chunk.kept().get(self.forgotten as usize..)).unwrap_or_default();
        rest.iter().take_while(move |answer| answer.until <= now)
    }

    /// Removes the next expired entry and returns its position and key.
    pub(crate) fn pop_expired(&mut self, now: Timestamp) -> Option<(u32, ServerKey)> {
        let chunk = self.chunks.front()?;
        let key = self.front().filter(|answer| answer.until <= now)?.key;
        debug_assert!(self.len > 0, "what is forgotten was counted");
        let place = Self::MARK | self.first.wrapping_mul(CHUNK) | self.forgotten;
        self.len = self.len.wrapping_sub(1);
        self.forgotten = self.forgotten.wrapping_add(1);
        if self.forgotten as usize == chunk.count {
            self.forgotten = 0;
            self.first = self.first.wrapping_add(1) % NUMBERS;
            self.spare = self.chunks.pop_front().map(Chunk::emptied).unwrap_or_default();
        }
        Some((place, key))
    }

    /// Frees what is kept for reuse.
    pub(crate) fn free_spare(&mut self) {
        self.spare = Chunk::default();
        if self.chunks.is_empty() {
            self.chunks = VecDeque::new();
        }
    }

    fn front(&self) -> Option<&CacheEntry> {
        self.chunks.front()?.kept().get(self.forgotten as usize)
    }

    /// Returns all entries with their positions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &CacheEntry)> {
        let places = (0..to_u32(self.chunks.len())).flat_map(|chunk| {
            let number = self.first.wrapping_add(chunk) % NUMBERS;
            (0..CHUNK).map(move |within| Self::MARK | number.wrapping_mul(CHUNK) | within)
        });
        places.filter_map(|place| self.get(place).map(|(answer, _)| (place, answer)))
    }
}

impl Chunk {
    fn has_room(&self, length: usize) -> bool {
        // Never exceeds the capacity: growing would copy everything.
        let fits = self.filled().saturating_add(length) <= self.bytes.len();
        self.count == 0 || (fits && self.count < CHUNK as usize)
    }

    /// Empties the chunk for reuse, if it has not grown.
    fn emptied(mut self) -> Self {
        if self.bytes.len() > MOST_SPARE {
            return Self::default();
        }
        self.count = 0;
        self
    }

    fn kept(&self) -> &[CacheEntry] {
        self.answers.get(..self.count).unwrap_or_default()
    }

    /// End of the last response.
    fn filled(&self) -> usize {
        self.kept().last().map_or(0, |answer| answer.end as usize)
    }
}

/// The flow of a response, stored before its text: the address, then the rest. Only datagrams are ever resent.
type FlowBytes = [[u8; 16]; 2];

fn to_bytes(flow: &Flow) -> FlowBytes {
    debug_assert_eq!(*flow, Flow::new(flow.listener, Transport::Udp, flow.peer), "a datagram needs no more");
    let (ip, info, scope) = match flow.peer {
        SocketAddr::V4(peer) => (peer.ip().to_ipv6_mapped(), 0, 0),
        SocketAddr::V6(peer) => (*peer.ip(), peer.flowinfo(), peer.scope_id()),
    };
    let [[a, b], [c, d]] = [flow.listener.0, flow.peer.port()].map(u16::to_le_bytes);
    let [[e, f, g, h], [i, j, k, l]] = [info, scope].map(u32::to_le_bytes);
    [ip.octets(), [a, b, c, d, e, f, g, h, i, j, k, l, u8::from(flow.peer.is_ipv4()), 0, 0, 0]]
}

fn to_flow([ip, [a, b, c, d, e, f, g, h, i, j, k, l, is_v4, ..]]: FlowBytes) -> Flow {
    let [listener, port] = [[a, b], [c, d]].map(u16::from_le_bytes);
    let [info, scope] = [[e, f, g, h], [i, j, k, l]].map(u32::from_le_bytes);
    let ip = Ipv6Addr::from(ip);
    let peer = match ip.to_ipv4_mapped().filter(|_| is_v4 != 0) {
        Some(ip) => SocketAddr::from((ip, port)),
        None => SocketAddr::V6(SocketAddrV6::new(ip, port, info, scope)),
    };
    Flow::new(ListenerId(listener), Transport::Udp, peer)
}

/// Cannot overflow: the layer limits the number of entries.
fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use proptest::prelude::*;
    use strowger_foundation::TagKey;

    use super::*;

    fn flow(port: u16) -> Flow {
        Flow::new(ListenerId(0), Transport::Udp, SocketAddr::from(([192, 0, 2, 1], port)))
    }

    fn key(number: u32) -> ServerKey {
        let mut key = [0; 16];
        key[..4].copy_from_slice(&number.to_le_bytes());
        ServerKey(key)
    }

    fn bytes(number: u32) -> Vec<u8> {
        vec![number.to_le_bytes()[0]; 100 + number as usize % 400]
    }

    fn keep(answered: &mut ResponseCache, number: u32, until: Timestamp) -> Option<u32> {
        let flow = flow(number.to_le_bytes()[0].into());
        // Mix both kinds.
        if number.is_multiple_of(3) {
            answered.insert(key(number), until, NewResponse::Whole(&flow, &bytes(number)))
        } else {
            let bytes = bytes(number);
            let (first, second) = bytes.split_at(20);
            answered.insert(key(number), until, NewResponse::Own(mark(number), [first, second]))
        }
    }

    fn mark(number: u32) -> RequestFingerprint {
        RequestFingerprint::of(&TagKey::new([1; 16]), b"call", number)
    }

    #[test]
    fn a_flow_round_trips() {
        for peer in ["192.0.2.1:5060", "[2001:db8::1]:1", "[::ffff:192.0.2.1]:65535", "[fe80::1%7]:5060"] {
            let flow = Flow::new(ListenerId(700), Transport::Udp, peer.parse().expect("an address"));
            assert_eq!(to_flow(to_bytes(&flow)), flow);
        }
    }

    #[test]
    fn responses_expire_in_order() {
        let mut answered = ResponseCache::default();
        let at = |number: u32| Timestamp::from_millis(32_000 + u64::from(number / 3));
        let places: Vec<u32> =
            (0..1_000).map(|number| keep(&mut answered, number, at(number)).expect("in order")).collect();
        for number in 0..1_000 {
            assert_eq!(answered.len(), 1_000 - number as usize);
            assert_eq!(answered.next_deadline(), Some(at(number)));
            assert_eq!(answered.pop_expired(Timestamp::from_nanos(at(number).as_nanos() - 1)), None);
            assert_eq!(answered.pop_expired(at(number)), Some((places[number as usize], key(number))));
            assert!(answered.get(places[number as usize]).is_none());
        }
        assert_eq!((answered.next_deadline(), answered.len()), (None, 0));
        assert!(answered.chunks.is_empty(), "its memory is given back");
    }

    #[test]
    fn an_entry_expiring_out_of_order_is_refused() {
        let mut answered = ResponseCache::default();
        assert!(keep(&mut answered, 1, Timestamp::from_millis(32_000)).is_some());
        assert_eq!(keep(&mut answered, 2, Timestamp::from_millis(31_999)), None);
        assert!(keep(&mut answered, 3, Timestamp::from_millis(32_000)).is_some());
    }

    #[test]
    fn huge_responses_do_not_keep_memory() {
        let mut answered = ResponseCache::default();
        for number in 0..CHUNK {
            let given = NewResponse::Whole(&flow(1), &[0; 70_000]);
            let place = answered.insert(key(number), Timestamp::ZERO, given).expect("in order");
            assert_eq!(answered.response_at(place), Some(CachedResponse::Whole(flow(1), &[0; 70_000][..])));
        }
        while answered.pop_expired(Timestamp::ZERO).is_some() {}
        assert!(answered.chunks.is_empty() && answered.spare.bytes.len() <= MOST_SPARE);
    }

    #[test]
    fn typical_responses_are_kept_without_growing() {
        let mut answered = ResponseCache::default();
        for number in 0..10 * CHUNK {
            let bytes = vec![b'x'; 350 + number as usize % 50];
            answered.insert(key(number), Timestamp::ZERO, NewResponse::Own(mark(1), [&bytes, b""])).expect("in order");
        }
        let (bytes, room) = answered
            .chunks
            .iter()
            .skip(1)
            .fold((0, 0), |(bytes, room), chunk| (bytes + chunk.filled(), room + chunk.bytes.len()));
        assert!(room <= bytes * 5 / 4, "{room} for {bytes} bytes");
    }

    proptest! {
        #[test]
        fn agrees_with_a_queue(
            first in prop::sample::select(vec![0, NUMBERS - 3, NUMBERS - 1]),
            steps in proptest::collection::vec(0..3_u8, 0..2_000),
        ) {
            let mut answered = ResponseCache { first, ..ResponseCache::default() };
            let mut queue: VecDeque<(u32, u32)> = VecDeque::new();
            for (number, step) in (0..).zip(steps) {
                if step > 0 {
                    let place = keep(&mut answered, number, Timestamp::ZERO).expect("all at once");
                    queue.push_back((place, number));
                } else {
                    let forgotten = queue.pop_front().map(|(place, number)| (place, key(number)));
                    prop_assert_eq!(answered.pop_expired(Timestamp::ZERO), forgotten);
                }
                prop_assert_eq!(answered.len(), queue.len());
            }
            let found: Vec<_> = answered.iter().map(|(place, answer)| (place, answer.key)).collect();
            prop_assert_eq!(found, queue.iter().map(|(place, number)| (*place, key(*number))).collect::<Vec<_>>());
            for (place, number) in queue {
                let bytes = bytes(number);
                let kept = match number % 3 {
                    0 => CachedResponse::Whole(flow(number.to_le_bytes()[0].into()), &bytes),
                    _ => CachedResponse::Own(mark(number), &bytes),
                };
                prop_assert_eq!(answered.get(place).map(|(answer, _)| answer.key), Some(key(number)));
                prop_assert_eq!(answered.response_at(place), Some(kept));
            }
        }
    }
}
