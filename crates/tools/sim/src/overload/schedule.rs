//! What happens when, in virtual time.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use strowger_foundation::Timestamp;

/// One thing that happens outside the server.
#[derive(Debug)]
pub(super) enum Event {
    /// A call begins, and the next one is scheduled.
    Offer,
    /// A datagram reaches the server's kernel.
    AtServer { from: SocketAddr, bytes: Vec<u8> },
    /// A datagram reaches a caller or the callee.
    AtClient { to: SocketAddr, bytes: Vec<u8> },
    /// A timer of a caller or of the callee is due.
    Timer { call: usize, timer: Timer },
}

/// A timer, with the time until it is due again where it repeats something.
#[derive(Clone, Copy, Debug)]
pub(super) enum Timer {
    /// Timer A: the INVITE goes out again.
    InviteAgain(Duration),
    /// Timer B: nobody has answered the INVITE.
    InviteTimeout,
    /// The caller hangs up.
    HangUp,
    /// Timer E: the BYE goes out again.
    ByeAgain(Duration),
    /// Timer F: nobody has answered the BYE.
    ByeTimeout,
    /// The callee's 200 goes out again (RFC 3261 §13.3.1.4).
    AnswerAgain(Duration),
}

/// All that is to happen, in its order.
#[derive(Debug)]
pub(super) struct Schedule {
    events: BTreeMap<(Timestamp, u64), Event>,
    serial: u64,
    /// How long a datagram is on its way.
    delay: Duration,
}

impl Schedule {
    pub(super) const fn new(delay: Duration) -> Self {
        Self { events: BTreeMap::new(), serial: 0, delay }
    }

    /// Adds an event; of two at one time the one that was added first happens first.
    pub(super) fn add(&mut self, at: Timestamp, event: Event) {
        self.serial += 1;
        self.events.insert((at, self.serial), event);
    }

    pub(super) fn add_timer(&mut self, at: Timestamp, call: usize, timer: Timer) {
        self.add(at, Event::Timer { call, timer });
    }

    /// Puts a datagram on its way to the server.
    pub(super) fn send_to_server(&mut self, now: Timestamp, from: SocketAddr, bytes: Vec<u8>) {
        self.add(now + self.delay, Event::AtServer { from, bytes });
    }

    /// Puts a datagram of the server's on its way.
    pub(super) fn send_to_client(&mut self, now: Timestamp, to: SocketAddr, bytes: Vec<u8>) {
        self.add(now + self.delay, Event::AtClient { to, bytes });
    }

    /// When the next event happens.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the next event.
    pub(super) fn poll(&mut self) -> Option<(Timestamp, Event)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}
