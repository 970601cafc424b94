//! Simulated network: it loses, duplicates, delays and reorders datagrams, and delivers streams in order.

use core::cmp::Ordering;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BinaryHeap;

use strowger_foundation::{ConnId, Timestamp};

use crate::rng::Rng;

/// Faults of the network.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetworkConditions {
    /// Share of lost datagrams, in ‰.
    pub loss_per_mille: u64,
    /// Share of datagrams delivered twice, in ‰.
    pub duplication_per_mille: u64,
    /// Lowest delay, in ms.
    pub delay_min_ms: u64,
    /// Highest delay, in ms.
    ///
    /// The spread of delays causes reordering. The value must stay well below T4, the maximum lifetime of a message
    /// in the network (RFC 3261), because the rules rely on it.
    pub delay_max_ms: u64,
}

/// Message in transit.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Time of arrival.
    pub at: Timestamp,
    serial: u64,
    /// Source address.
    pub from: SocketAddr,
    /// Destination address.
    pub to: SocketAddr,
    /// Connection that carries it; `None` for a datagram.
    pub connection: Option<ConnId>,
    /// Content.
    pub bytes: Vec<u8>,
}

/// All messages in transit.
#[derive(Debug)]
pub struct Network {
    conditions: NetworkConditions,
    rng: Rng,
    heap: BinaryHeap<Packet>,
    serial: u64,
    /// Number of lost datagrams.
    pub lost: u64,
}

impl Network {
    /// Creates an empty network.
    #[must_use]
    pub fn new(weather: NetworkConditions, rng: Rng) -> Self {
        Self { conditions: weather, rng, heap: BinaryHeap::new(), serial: 0, lost: 0 }
    }

    /// Sends a datagram.
    pub fn send(&mut self, now: Timestamp, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        if self.rng.chance(self.conditions.loss_per_mille) {
            self.lost += 1;
            return;
        }
        let copies = 1 + u64::from(self.rng.chance(self.conditions.duplication_per_mille));
        for _ in 0..copies {
            let at = now + self.delay();
            self.push(at, from, to, None, bytes);
        }
    }

    /// Sends a message on a connection, on which nothing arrives before `not_before`, and returns its time of
    /// arrival.
    pub fn send_on(
        &mut self,
        now: Timestamp,
        connection: ConnId,
        (from, to): (SocketAddr, SocketAddr),
        bytes: &[u8],
        not_before: Timestamp,
    ) -> Timestamp {
        let at = (now + self.delay()).max(not_before);
        self.push(at, from, to, Some(connection), bytes);
        at
    }

    /// Draws the delay of a message.
    pub fn delay(&mut self) -> Duration {
        Duration::from_millis(self.rng.between(self.conditions.delay_min_ms, self.conditions.delay_max_ms))
    }

    fn push(&mut self, at: Timestamp, from: SocketAddr, to: SocketAddr, connection: Option<ConnId>, bytes: &[u8]) {
        self.serial += 1;
        self.heap.push(Packet { at, serial: self.serial, from, to, connection, bytes: bytes.to_vec() });
    }

    /// Returns the time of the next arrival.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Timestamp> {
        self.heap.peek().map(|packet| packet.at)
    }

    /// Takes the message that arrives next; of two at the same time, the one sent first.
    pub fn deliver(&mut self) -> Option<Packet> {
        self.heap.pop()
    }
}

impl PartialEq for Packet {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Packet {}

impl PartialOrd for Packet {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Packet {
    /// Reversed: the heap returns the greatest item, which must be the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.serial).cmp(&(self.at, self.serial))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_network_and_it_reorders() {
        let weather =
            NetworkConditions { loss_per_mille: 200, duplication_per_mille: 200, delay_min_ms: 1, delay_max_ms: 500 };
        let run = |seed| {
            let mut network = Network::new(weather, Rng::new(seed));
            let (from, to) = (SocketAddr::from(([10, 0, 0, 1], 1)), SocketAddr::from(([10, 0, 0, 2], 2)));
            for number in 0..100u8 {
                network.send(Timestamp::from_millis(u64::from(number)), from, to, &[number]);
            }
            let mut arrived = Vec::new();
            while let Some(packet) = network.deliver() {
                arrived.push((packet.at, packet.bytes[0]));
            }
            arrived
        };
        let arrived = run(7);
        assert_eq!(arrived, run(7));
        assert_ne!(arrived, run(8));
        assert!(arrived.is_sorted_by_key(|(at, _)| *at), "virtual time only goes forward");
        assert!(!arrived.is_sorted_by_key(|(_, number)| *number), "some overtake others");
        assert!(arrived.len() > 80 && arrived.len() < 120, "{} of 100", arrived.len());
    }
}
