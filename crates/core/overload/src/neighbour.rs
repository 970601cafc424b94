//! Client half of overload control (RFC 7339 §5.4, §7; RFC 7415 §3.5): records the feedback of next hops and decides
//! whether a request may be sent to one.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use strowger_foundation::Timestamp;
use strowger_foundation::map::{SeededMap, seeded};

use crate::feedback::{Algorithm, Feedback};

/// Maximum number of next hops with known feedback. Feedback of further ones is ignored and counted.
pub const MAX_NEIGHBOURS: usize = 1_024;
/// Maximum time for which feedback is followed, whatever it says: a next hop that is sent nothing cannot withdraw it.
pub const MAX_VALIDITY: Duration = Duration::from_secs(300);
/// RFC 7415 §3.5.2: intervals in the bucket up to which a request without priority is sent.
const TAU1_INTERVALS: u64 = 5;
/// Intervals up to which requests with priority fill the bucket.
const TAU2_INTERVALS: u64 = 10;
/// Distance, in hundred-thousandths, beyond which a lower `oc-seq` means an overflow or a restarted server; it must
/// also be more than half behind.
const SEQ_OVERFLOW: u64 = 1_000 * 100_000;

/// A request about to be sent to a next hop.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRequest {
    /// Whether it must not be refused: it belongs to something in progress or to an emergency.
    pub has_priority: bool,
    /// Pseudo-random number, the same for all attempts of a call. A call refused by one next hop is then refused by
    /// others that shed as much, and adds no load there.
    pub random: u64,
}

/// Feedback of next hops, shared by all shards.
#[derive(Debug)]
pub struct Neighbours {
    /// When the last feedback ends, in nanoseconds. The lock is not taken if no feedback is in effect.
    latest_end: AtomicU64,
    overflow: AtomicU64,
    known: Mutex<SeededMap<SocketAddr, Neighbour>>,
}

#[derive(Clone, Copy, Debug)]
struct Neighbour {
    algorithm: Algorithm,
    value: u32,
    until: Timestamp,
    seq: Option<u64>,
    bucket: Bucket,
}

/// Leaky bucket of RFC 7415 §3.5.1: its content, in nanoseconds, when the last request was sent.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    content: u64,
    last: Timestamp,
}

impl Neighbours {
    /// Creates an empty table; `seed` is for its hash.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let known = Mutex::new(SeededMap::with_hasher(seeded(seed)));
        Self { latest_end: AtomicU64::new(0), overflow: AtomicU64::new(0), known }
    }

    /// Whether any feedback may be in effect.
    #[inline]
    #[must_use]
    pub fn has_any(&self, now: Timestamp) -> bool {
        now.as_nanos() < self.latest_end.load(Ordering::Relaxed)
    }

    //= rfc7339#5.4
    /// Handles feedback in a response of `peer`. Its scope is the peer's address and port.
    pub fn handle_feedback(&self, now: Timestamp, peer: SocketAddr, feedback: &Feedback) {
        if feedback.is_end() && !self.has_any(now) {
            return;
        }
        let mut known = self.lock();
        //= rfc7339#5.4
        // Once expired, the parameters and the sequence number are forgotten.
        let old = known.get(&peer).copied().filter(|old| now < old.until);
        if old.is_some_and(|old| !is_newer(feedback.seq, old.seq)) {
            return;
        }
        if old.is_none() && !feedback.is_end() && known.len() >= MAX_NEIGHBOURS && !known.contains_key(&peer) {
            known.retain(|_, neighbour| now < neighbour.until);
            if known.len() >= MAX_NEIGHBOURS {
                self.overflow.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        //= rfc7339#5.7
        // A validity of 0 ends the reduction at once, whatever the value. A late response must not start it again.
        if feedback.is_end() {
            if let (Some(old), Some(neighbour)) = (old, known.get_mut(&peer)) {
                *neighbour = Neighbour { algorithm: Algorithm::Loss, value: 0, seq: feedback.seq, ..old };
            }
            return;
        }
        let until = now + Duration::from_millis(feedback.validity_ms).min(MAX_VALIDITY);
        //= rfc7415#3.5.1
        // The bucket starts empty when control is activated.
        let bucket = old.filter(|old| old.algorithm == Algorithm::Rate && old.value != 0).map(|old| old.bucket);
        let bucket = bucket.unwrap_or(Bucket { content: 0, last: now });
        let Feedback { algorithm, value, seq, .. } = *feedback;
        known.insert(peer, Neighbour { algorithm, value, until, seq, bucket });
        self.latest_end.fetch_max(until.as_nanos(), Ordering::Relaxed);
    }

    //= rfc7339#5.5
    /// Whether a request may be sent to `peer`. If so, it counts as sent.
    #[must_use]
    pub fn admits(&self, now: Timestamp, peer: SocketAddr, asking: OutgoingRequest) -> bool {
        if !self.has_any(now) {
            return true;
        }
        let mut known = self.lock();
        let Some(neighbour) = known.get_mut(&peer).filter(|neighbour| now < neighbour.until) else { return true };
        match neighbour.algorithm {
            //= rfc7339#7.2
            Algorithm::Loss => asking.has_priority || asking.random % 100 >= u64::from(neighbour.value),
            Algorithm::Rate => neighbour.bucket.admits(now, neighbour.value, asking.has_priority),
        }
    }

    /// Whether feedback of `peer` is in effect.
    #[inline]
    #[must_use]
    pub fn has_feedback(&self, now: Timestamp, peer: SocketAddr) -> bool {
        self.has_any(now) && self.lock().get(&peer).is_some_and(|neighbour| now < neighbour.until)
    }

    /// Returns the number of next hops whose feedback is in effect.
    #[must_use]
    pub fn count(&self, now: Timestamp) -> usize {
        let wants_less = |one: &&Neighbour| now < one.until && (one.algorithm == Algorithm::Rate || one.value != 0);
        self.lock().values().filter(wants_less).count()
    }

    /// Returns how often feedback was ignored because [`MAX_NEIGHBOURS`] had been reached.
    #[must_use]
    pub fn overflow(&self) -> u64 {
        self.overflow.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, SeededMap<SocketAddr, Neighbour>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bucket {
    //= rfc7415#3.5
    /// Whether one more request fits `rate` requests per second; if so, it is counted. A request with priority always
    /// fits, and counts until the bucket is full.
    fn admits(&mut self, now: Timestamp, rate: u32, has_priority: bool) -> bool {
        if rate == 0 {
            return has_priority;
        }
        let interval = 1_000_000_000 / u64::from(rate);
        let drained = u64::try_from(now.saturating_since(self.last).as_nanos()).unwrap_or(u64::MAX);
        let content = self.content.saturating_sub(drained);
        if !has_priority && content > interval.saturating_mul(TAU1_INTERVALS) {
            return false;
        }
        let most = interval.saturating_mul(TAU2_INTERVALS.saturating_add(1));
        self.content = content.saturating_add(interval).min(most);
        self.last = self.last.max(now);
        true
    }
}

//= rfc7339#4.4
/// Whether a sequence number is newer than the known one. One that is far behind comes from a restarted sequence.
/// Feedback of a server without numbers is always newer.
fn is_newer(seq: Option<u64>, known: Option<u64>) -> bool {
    let (Some(seq), Some(known)) = (seq, known) else { return true };
    seq > known || (known.saturating_sub(seq) > SEQ_OVERFLOW && seq < known / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp::from_millis(1_000);

    fn peer(number: u16) -> SocketAddr {
        SocketAddr::from(([203, 0, 113, 1], number))
    }

    fn feedback(algorithm: Algorithm, value: u32, validity_ms: u64, seq: u64) -> Feedback {
        Feedback { algorithm, value, validity_ms, seq: Some(seq) }
    }

    /// Returns a request with an evenly distributed number.
    fn asking(number: u64) -> OutgoingRequest {
        OutgoingRequest { has_priority: false, random: number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 }
    }

    fn sent(neighbours: &Neighbours, at: Timestamp, port: u16) -> usize {
        (0..10_000).filter(|number| neighbours.admits(at, peer(port), asking(*number))).count()
    }

    #[test]
    fn a_loss_share_applies_while_it_is_valid() {
        let neighbours = Neighbours::new(1);
        assert_eq!(sent(&neighbours, AT, 1), 10_000);
        neighbours.handle_feedback(AT, peer(1), &feedback(Algorithm::Loss, 40, 500, 7));
        let count = sent(&neighbours, AT, 1);
        assert!((5_900..6_100).contains(&count), "{count}");
        assert_eq!(sent(&neighbours, AT, 2), 10_000, "another port is another server");
        assert!(neighbours.admits(AT, peer(1), OutgoingRequest { has_priority: true, random: 0 }));
        assert_eq!(neighbours.count(AT), 1);
        let later = AT + Duration::from_millis(500);
        assert_eq!((sent(&neighbours, later, 1), neighbours.count(later)), (10_000, 0));
        neighbours.handle_feedback(later, peer(1), &feedback(Algorithm::Loss, 100, 500, 3));
        assert_eq!(sent(&neighbours, later, 1), 0, "its number went with the time of the one before");
    }

    #[test]
    fn older_feedback_is_ignored() {
        let neighbours = Neighbours::new(1);
        let tell = |value, validity, seq| {
            neighbours.handle_feedback(AT, peer(1), &feedback(Algorithm::Loss, value, validity, seq));
        };
        tell(100, 1_000, 900_000_000);
        tell(0, 0, 899_999_999);
        tell(0, 1_000, 900_000_000);
        assert_eq!(sent(&neighbours, AT, 1), 0);
        tell(0, 0, 900_000_001);
        assert_eq!(sent(&neighbours, AT, 1), 10_000, "it has ended");
        tell(100, 1_000, 900_000_000);
        assert_eq!(sent(&neighbours, AT, 1), 10_000, "a tardy response does not begin it again");
        tell(100, 1_000, 100);
        assert_eq!(sent(&neighbours, AT, 1), 0, "its sequence began anew");
    }

    /// Returns how many of `offered` requests per second are sent in 20 s.
    fn sent_at_rate(neighbours: &Neighbours, offered: u64, has_priority: bool) -> u64 {
        let gap = Duration::from_nanos(1_000_000_000 / offered);
        let asking = OutgoingRequest { has_priority, random: 0 };
        let mut now = AT;
        let mut count = 0;
        for _ in 0..20 * offered {
            count += u64::from(neighbours.admits(now, peer(1), asking));
            now += gap;
        }
        count
    }

    #[test]
    fn rates_hold_within_five_percent() {
        for offered in [100, 149, 151, 300, 5_000] {
            let neighbours = Neighbours::new(1);
            neighbours.handle_feedback(AT, peer(1), &feedback(Algorithm::Rate, 150, 60_000, 1));
            let count = sent_at_rate(&neighbours, offered, false);
            let expected = 20 * offered.min(150);
            assert!(count.abs_diff(expected) * 20 <= expected, "{offered} offered: {count} of {expected}");
        }
        let neighbours = Neighbours::new(1);
        neighbours.handle_feedback(AT, peer(1), &feedback(Algorithm::Rate, 0, 60_000, 1));
        assert_eq!(sent_at_rate(&neighbours, 100, false), 0, "a rate of nothing");
        assert_eq!(sent_at_rate(&neighbours, 100, true), 2_000);
    }

    #[test]
    fn priority_requests_count_too() {
        let neighbours = Neighbours::new(1);
        neighbours.handle_feedback(AT, peer(1), &feedback(Algorithm::Rate, 100, 60_000, 1));
        assert_eq!(sent_at_rate(&neighbours, 200, true), 4_000);
        let after = AT + Duration::from_secs(20);
        assert!(!neighbours.admits(after, peer(1), asking(1)), "the rate is used up");
        assert!(neighbours.admits(after + Duration::from_millis(100), peer(1), asking(1)), "but not for ever");
    }

    #[test]
    fn table_is_bounded_and_expired_entries_make_room() {
        let neighbours = Neighbours::new(1);
        let loss = feedback(Algorithm::Loss, 10, 500, 1);
        for number in 0..1_030 {
            neighbours.handle_feedback(AT, peer(number), &loss);
        }
        assert_eq!((neighbours.count(AT), neighbours.overflow()), (MAX_NEIGHBOURS, 6));
        neighbours.handle_feedback(AT + Duration::from_secs(1), peer(2_000), &loss);
        assert_eq!((neighbours.count(AT + Duration::from_secs(1)), neighbours.overflow()), (1, 6));
    }

    #[test]
    fn validity_is_capped() {
        let neighbours = Neighbours::new(1);
        neighbours.handle_feedback(AT, peer(1), &feedback(Algorithm::Loss, 100, u64::MAX, 1));
        assert_eq!(sent(&neighbours, AT + Duration::from_secs(299), 1), 0);
        assert_eq!(sent(&neighbours, AT + MAX_VALIDITY, 1), 10_000);
    }
}
