//! Simulated DNS: answers that are late, missing, or different from earlier ones.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use strowger_foundation::Transport;
use strowger_locate::{Candidate, CandidateList, Hop, LocateError, LocateResult};

use crate::rng::Rng;

/// Configuration of the DNS.
#[derive(Clone, Debug, Default)]
pub struct Zone {
    /// Answers for a name over time, one after the other; each lists addresses in the order in which they are tried.
    pub answers: Vec<Vec<SocketAddr>>,
    /// Time for which each of them is valid.
    pub changes_after: Duration,
    /// Longest delay of an answer, in ms.
    pub delay_max_ms: u64,
    /// Share of queries without an answer, in ‰.
    pub silent_per_mille: u64,
    /// TTL of an answer.
    pub ttl: Duration,
}

/// Simulated DNS server.
#[derive(Debug)]
pub struct Dns {
    zone: Zone,
    rng: Rng,
}

impl Dns {
    /// Creates a server for `zone`.
    #[must_use]
    pub const fn new(zone: Zone, rng: Rng) -> Self {
        Self { zone, rng }
    }

    /// Returns the answer to a query sent `since` after the start, its delay, and its TTL.
    pub fn query(&mut self, since: Duration) -> (LocateResult, Duration, Duration) {
        let delay = Duration::from_millis(self.rng.between(1, self.zone.delay_max_ms.max(1)));
        if self.rng.chance(self.zone.silent_per_mille) {
            return (Err(LocateError::NoAnswer), delay.max(Duration::from_secs(2)), Duration::ZERO);
        }
        let turn = since.as_millis() / self.zone.changes_after.as_millis().max(1);
        let turn = usize::try_from(turn).unwrap_or(0) % self.zone.answers.len().max(1);
        let answer = match self.zone.answers.get(turn).map(Vec::as_slice) {
            None | Some([]) => Err(LocateError::NoSuchName),
            Some(addresses) => Ok(Arc::new(CandidateList::new(addresses.iter().enumerate().map(candidate).collect()))),
        };
        (answer, delay, self.zone.ttl)
    }
}

fn candidate((place, address): (usize, &SocketAddr)) -> Candidate {
    let hop = Hop::new(Transport::Udp, *address);
    let priority = u16::try_from(place).unwrap_or(u16::MAX);
    Candidate { rank: 1, priority, weight: 1, hops: [hop].into_iter().collect() }
}
