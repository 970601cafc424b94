//! Server half of overload control (RFC 7339 §5.2, RFC 7415 §3.4): how much this process sheds, and the feedback for
//! its neighbours.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use strowger_foundation::{Timestamp, fnv1a, octets};

use crate::feedback::{Algorithm, Feedback};

/// Maximum number of workers; reports of further ones are ignored.
pub const MAX_WORKERS: usize = 256;
/// Validity of feedback. It is short because each response renews it.
pub const VALIDITY: Duration = Duration::from_millis(1_000);
/// Number of slots by which neighbours that share a rate are told apart.
const RATE_CLIENTS: usize = 64;
/// How long a neighbour keeps its part of a rate.
const RATE_CLIENT_MS: u64 = 10_000;

/// Shed level of a process or of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShedLevel {
    /// Share of the demand that is not served, in thousandths. Includes what upstream servers hold back.
    pub shed_permille: u16,
    /// Requests of all kinds served per second.
    pub admitted_per_s: u32,
}

/// Shed level of a process's workers. All shards share one value, without a lock.
#[derive(Debug)]
pub struct Shedding {
    workers: [AtomicU64; MAX_WORKERS],
    /// Shed level of the process, packed like that of a worker.
    current: AtomicU64,
    /// When a neighbour was last told to send less, in nanoseconds. Until that feedback expires, the end of the
    /// overload is announced too.
    last_feedback: AtomicU64,
    /// Until when there is feedback, in nanoseconds; unlimited while something is shed.
    feedback_until: AtomicU64,
    /// When neighbours were last given a rate, in milliseconds plus one. The slot is a hash of the address.
    rate_clients: [AtomicU64; RATE_CLIENTS],
}

impl Default for Shedding {
    /// Creates a level that sheds nothing.
    fn default() -> Self {
        Self {
            workers: [const { AtomicU64::new(0) }; MAX_WORKERS],
            current: AtomicU64::new(0),
            last_feedback: AtomicU64::new(0),
            feedback_until: AtomicU64::new(0),
            rate_clients: [const { AtomicU64::new(0) }; RATE_CLIENTS],
        }
    }
}

impl Shedding {
    /// Records that worker number `worker` (from 0) sheds `shed_permille` thousandths of its demand and serves
    /// `admitted_per_s` requests a second; see [`ShedLevel`]. If two workers report at the same moment, the sum may
    /// miss one report until the next.
    ///
    /// If neighbours follow the feedback, less than the demand arrives. A controller that reported only its own
    /// refusals would end the reduction as soon as it started. It reports 1 − (1 − advertised)·(1 − refused) instead.
    pub fn report(&self, worker: usize, shed_permille: u16, admitted_per_s: u32) {
        let Some(place) = self.workers.get(worker) else { return };
        let level = ShedLevel { shed_permille: shed_permille.min(1_000), admitted_per_s };
        if place.swap(pack(level), Ordering::Relaxed) == pack(level) {
            return;
        }
        let level = self.sum();
        self.current.store(pack(level), Ordering::Relaxed);
        let until = match (level.shed_permille, self.last_feedback.load(Ordering::Relaxed)) {
            (0, 0) => Timestamp::ZERO,
            (0, told) => Timestamp::from_nanos(told) + VALIDITY,
            _ => Timestamp::MAX,
        };
        self.feedback_until.store(until.as_nanos(), Ordering::Relaxed);
    }

    /// Returns the shed level of the process.
    #[must_use]
    pub fn current(&self) -> ShedLevel {
        unpack(self.current.load(Ordering::Relaxed))
    }

    /// Whether a neighbour needs feedback: something is shed, or was so recently that a neighbour may still hold
    /// back.
    #[inline]
    #[must_use]
    pub fn has_feedback(&self, now: Timestamp) -> bool {
        now.as_nanos() < self.feedback_until.load(Ordering::Relaxed)
    }

    /// Returns the feedback for the neighbour `client` in a response at `now`. `algorithms` is the raw `oc-algo` of
    /// its Via. Returns `None` if there is no feedback or no common algorithm.
    #[must_use]
    pub fn feedback_for(&self, now: Timestamp, client: SocketAddr, algorithms: Option<&[u8]>) -> Option<Feedback> {
        if !self.has_feedback(now) {
            return None;
        }
        //= rfc7339#5.1
        //= rfc7415#3.3
        // The algorithm is chosen from the list by a fixed rule, so it stays the same.
        let algorithm = Algorithm::choose(algorithms)?;
        //= rfc7339#5.2
        // Sequence numbers come from an increasing sequence: the time.
        let seq = Some(now.as_nanos() / 10_000);
        let level = self.current();
        if level.shed_permille == 0 {
            //= rfc7339#5.7
            return Some(Feedback { algorithm, value: 0, validity_ms: 0, seq });
        }
        self.last_feedback.fetch_max(now.as_nanos().max(1), Ordering::Relaxed);
        let value = match algorithm {
            //= rfc7339#7.1
            Algorithm::Loss => u32::from(level.shed_permille.div_ceil(10)),
            //= rfc7415#3.4
            Algorithm::Rate => level.admitted_per_s / self.rate_clients(now, client),
        };
        let validity_ms = u64::try_from(VALIDITY.as_millis()).unwrap_or(u64::MAX);
        Some(Feedback { algorithm, value, validity_ms, seq })
    }

    /// Returns the number of neighbours that share the rate, and adds `client` to them. Two with the same slot count
    /// as one.
    fn rate_clients(&self, now: Timestamp, client: SocketAddr) -> u32 {
        let mut address = [0_u8; 18];
        let (ip, port) = address.split_at_mut(16);
        ip.copy_from_slice(&octets(client.ip()));
        port.copy_from_slice(&client.port().to_be_bytes());
        let hash = usize::try_from(u64::from(fnv1a(&address)) % RATE_CLIENTS as u64).unwrap_or(0);
        let now_ms = now.as_millis().saturating_add(1);
        if let Some(place) = self.rate_clients.get(hash) {
            place.store(now_ms, Ordering::Relaxed);
        }
        let is_here = |place: &&AtomicU64| {
            let seen = place.load(Ordering::Relaxed);
            seen != 0 && now_ms.saturating_sub(seen) < RATE_CLIENT_MS
        };
        u32::try_from(self.rate_clients.iter().filter(is_here).count()).unwrap_or(1).max(1)
    }

    /// Returns the sum of all workers, each weighted by its demand.
    fn sum(&self) -> ShedLevel {
        let (mut served, mut asked, mut shut, mut most) = (0_u64, 0_u64, false, 0);
        for worker in &self.workers {
            let ShedLevel { shed_permille, admitted_per_s } = unpack(worker.load(Ordering::Relaxed));
            let (shed, admitted) = (u64::from(shed_permille), u64::from(admitted_per_s));
            // The demand of a worker that sheds everything is unknown.
            shut |= shed >= 1_000;
            most = most.max(shed_permille);
            served = served.saturating_add(admitted);
            // In thousandths, to keep small values precise.
            asked = asked.saturating_add(admitted.saturating_mul(1_000_000) / 1_000_u64.saturating_sub(shed).max(1));
        }
        let admitted_per_s = u32::try_from(served).unwrap_or(u32::MAX);
        let shed = match asked {
            0 => u64::from(most),
            _ => asked.saturating_sub(served.saturating_mul(1_000)).saturating_mul(1_000).div_ceil(asked),
        };
        let shed_permille = u16::try_from(shed).unwrap_or(1_000).max(u16::from(shut)).min(1_000);
        ShedLevel { shed_permille, admitted_per_s }
    }
}

fn pack(level: ShedLevel) -> u64 {
    u64::from(level.shed_permille) << 32 | u64::from(level.admitted_per_s)
}

fn unpack(packed: u64) -> ShedLevel {
    let shed_permille = u16::try_from(packed >> 32).unwrap_or(u16::MAX);
    ShedLevel { shed_permille, admitted_per_s: u32::try_from(packed & u64::from(u32::MAX)).unwrap_or(u32::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp::from_millis(5_000);

    fn client(number: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, number], 5060))
    }

    #[test]
    fn workers_are_weighted_by_offered_load() {
        let shedding = Shedding::default();
        assert_eq!(shedding.current(), ShedLevel::default());
        shedding.report(0, 400, 600);
        assert_eq!(shedding.current(), ShedLevel { shed_permille: 400, admitted_per_s: 600 });
        shedding.report(1, 0, 1_000);
        assert_eq!(shedding.current(), ShedLevel { shed_permille: 200, admitted_per_s: 1_600 });
        shedding.report(MAX_WORKERS, 1_000, 0);
        shedding.report(0, 0, 600);
        assert_eq!(shedding.current(), ShedLevel { shed_permille: 0, admitted_per_s: 1_600 });
        shedding.report(0, 1_000, 0);
        shedding.report(1, 1_000, 0);
        assert_eq!(shedding.current().shed_permille, 1_000);
    }

    #[test]
    fn feedback_starts_with_shedding_and_ends_once_no_peer_holds_back() {
        let shedding = Shedding::default();
        let tell = |at: Timestamp| {
            shedding.feedback_for(at, client(1), Some(b"\"loss,rate\"")).map(|feedback| feedback.to_string())
        };
        assert_eq!(tell(AT), None);
        shedding.report(0, 1, 100);
        assert_eq!(
            tell(AT).as_deref(),
            Some(";oc=1;oc-algo=\"loss\";oc-validity=1000;oc-seq=5.00000"),
            "a little is not nothing"
        );
        shedding.report(0, 0, 100);
        let later = AT + Duration::from_millis(999);
        assert_eq!(tell(later).as_deref(), Some(";oc=0;oc-algo=\"loss\";oc-validity=0;oc-seq=5.99900"));
        assert_eq!(tell(AT + VALIDITY), None, "what it was told is over");
    }

    #[test]
    fn rate_clients_get_a_share_of_the_rate() {
        let shedding = Shedding::default();
        shedding.report(0, 500, 300);
        let rate = |number, at| {
            shedding.feedback_for(at, client(number), Some(b"\"rate,loss\"")).map(|told| (told.algorithm, told.value))
        };
        assert_eq!(rate(1, AT), Some((Algorithm::Rate, 300)));
        assert_eq!(rate(2, AT), Some((Algorithm::Rate, 150)));
        assert_eq!(rate(1, AT), Some((Algorithm::Rate, 150)));
        let later = AT + Duration::from_secs(11);
        assert_eq!(rate(1, later), Some((Algorithm::Rate, 300)), "the other one is gone");
        assert_eq!(shedding.feedback_for(later, client(3), Some(b"\"A\"")), None, "no algorithm that both know");
        assert_eq!(
            shedding.feedback_for(later, client(3), None).map(|told| told.value),
            Some(50),
            "loss is what everybody can"
        );
    }
}
