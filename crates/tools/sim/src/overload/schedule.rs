//! Event queue in virtual time.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use strowger_foundation::Timestamp;

/// Event outside the server.
#[derive(Debug)]
pub(super) enum Event {
    /// Start of a call; it schedules the next.
    Offer,
    /// Arrival of a datagram at the server's kernel.
    AtServer { from: SocketAddr, bytes: Vec<u8> },
    /// Arrival of a datagram at a caller or the callee.
    AtClient { to: SocketAddr, bytes: Vec<u8> },
    /// Expiry of a timer of a caller or of the callee.
    Timer { call: usize, timer: Timer },
}

/// Timer, with the interval until its next expiry if it repeats.
#[derive(Clone, Copy, Debug)]
pub(super) enum Timer {
    /// Timer A: retransmits the INVITE.
    InviteAgain(Duration),
    /// Timer B: the INVITE has no response.
    InviteTimeout,
    /// End of the call.
    HangUp,
    /// Timer E: retransmits the BYE.
    ByeAgain(Duration),
    /// Timer F: the BYE has no response.
    ByeTimeout,
    /// Retransmits the callee's 200 (RFC 3261 §13.3.1.4).
    AnswerAgain(Duration),
}

/// Future events in order.
#[derive(Debug)]
pub(super) struct Schedule {
    events: BTreeMap<(Timestamp, u64), Event>,
    serial: u64,
    /// Network delay of a datagram.
    delay: Duration,
}

impl Schedule {
    pub(super) const fn new(delay: Duration) -> Self {
        Self { events: BTreeMap::new(), serial: 0, delay }
    }

    /// Adds an event. Events at the same time happen in the order in which they were added.
    pub(super) fn add(&mut self, at: Timestamp, event: Event) {
        self.serial += 1;
        self.events.insert((at, self.serial), event);
    }

    pub(super) fn add_timer(&mut self, at: Timestamp, call: usize, timer: Timer) {
        self.add(at, Event::Timer { call, timer });
    }

    /// Sends a datagram to the server.
    pub(super) fn send_to_server(&mut self, now: Timestamp, from: SocketAddr, bytes: Vec<u8>) {
        self.add(now + self.delay, Event::AtServer { from, bytes });
    }

    /// Sends a datagram of the server to a client.
    pub(super) fn send_to_client(&mut self, now: Timestamp, to: SocketAddr, bytes: Vec<u8>) {
        self.add(now + self.delay, Event::AtClient { to, bytes });
    }

    /// Returns the time of the next event.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the next event.
    pub(super) fn poll(&mut self) -> Option<(Timestamp, Event)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}
