//! What can be tuned, and what is proposed for a host.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::apply::Change;
use crate::target::{Program, Target};

/// Subject of a tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Which thread runs when, and on which core.
    Scheduler,
    /// From the device to the socket.
    Network,
    /// Memory of the process.
    Memory,
    /// Limits of the process and the system.
    Limits,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheduler => "scheduler",
            Self::Network => "network",
            Self::Memory => "memory",
            Self::Limits => "limits",
        })
    }
}

/// Something that can be tuned: what does not depend on the host.
#[derive(Debug)]
pub struct Topic {
    /// Name on the command line.
    pub name: &'static str,
    /// Subject.
    pub group: Group,
    /// What it is, in one line.
    pub title: &'static str,
    /// Expected gain, where our own measurements have none, with its source.
    pub gain: &'static str,
    /// What may go wrong.
    pub risk: &'static str,
    /// The long reason, with sources.
    pub explanation: &'static str,
}

/// How a proposal is realised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// By these changes.
    Changes(Vec<Change>),
    /// By the operator, as this text says: it is a setting of the program or a rule of a firewall.
    ByHand(String),
}

/// A proposal for this host.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// What is tuned.
    pub topic: &'static Topic,
    /// Current value.
    pub current: String,
    /// Proposed value.
    pub proposed: String,
    /// Why, for this host, in a few words.
    pub reason: String,
    /// Expected gain, with its source.
    pub gain: String,
    /// Whether `--apply all` includes it. Others help only some hosts, or cost something.
    pub is_recommended: bool,
    /// How it is realised.
    pub action: Action,
    /// Lines for the `[Service]` section of a systemd unit that have the same effect.
    pub unit_lines: Vec<String>,
}

impl Proposal {
    /// Creates a recommended proposal.
    pub(crate) fn new(topic: &'static Topic, current: impl Into<String>, proposed: impl Into<String>) -> Self {
        Self {
            topic,
            current: current.into(),
            proposed: proposed.into(),
            reason: String::new(),
            gain: topic.gain.to_owned(),
            is_recommended: true,
            action: Action::Changes(Vec::new()),
            unit_lines: Vec::new(),
        }
    }

    pub(crate) fn because(self, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ..self }
    }

    pub(crate) fn optional(self) -> Self {
        Self { is_recommended: false, ..self }
    }

    pub(crate) fn by(self, changes: Vec<Change>) -> Self {
        Self { action: Action::Changes(changes), ..self }
    }

    pub(crate) fn by_hand(self, what: impl Into<String>) -> Self {
        Self { action: Action::ByHand(what.into()), ..self }
    }

    pub(crate) fn in_unit(self, line: impl Into<String>) -> Self {
        Self { unit_lines: vec![line.into()], ..self }
    }

    /// Returns its changes; none if it is made by hand.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        match &self.action {
            Action::Changes(changes) => changes,
            Action::ByHand(_) => &[],
        }
    }
}

/// Load that the host has to carry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Calls per second.
    pub calls_per_s: f64,
    /// Longest time for which a packet may wait in the socket and still be worth serving.
    pub longest_wait: Duration,
}

/// Packets that a proxy receives for a call: INVITE, 100, 180, 200, ACK, BYE and its 200.
pub const PACKETS_PER_CALL: f64 = 7.0;

/// Kernel memory of a packet of up to 1,700 bytes: a buffer of 2 KiB and its `sk_buff` of 256 bytes.
pub const PACKET_BYTES: f64 = 2_304.0;

/// Default of [`Demand::longest_wait`]: half of T1. A request that waits longer is answered after its sender has sent
/// it again, so that serving it is wasted work.
pub const LONGEST_WAIT: Duration = Duration::from_millis(250);

impl Demand {
    /// Returns the packets per second that the server receives.
    #[must_use]
    pub fn packets_per_s(&self) -> f64 {
        self.calls_per_s * PACKETS_PER_CALL
    }

    /// Returns the memory for packets in a socket, in bytes as the kernel counts them: rate × longest wait × memory of
    /// a packet.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number of bytes")]
    pub fn buffer_bytes(&self) -> u64 {
        let packets = (self.packets_per_s() * self.longest_wait.as_secs_f64()).max(MIN_PACKETS);
        ((packets * PACKET_BYTES) as u64).next_multiple_of(2 * PAGE_BYTES)
    }

    /// Returns the size for which a program asks to get [`buffer_bytes`](Self::buffer_bytes): the kernel doubles it.
    #[must_use]
    pub fn requested_bytes(&self) -> u64 {
        self.buffer_bytes() / 2
    }

    /// Returns for how long a buffer lasts when packets arrive and none is read.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub fn time_of(&self, buffer_bytes: u64) -> Duration {
        let time = buffer_bytes as f64 / PACKET_BYTES / self.packets_per_s();
        Duration::try_from_secs_f64(time).unwrap_or(Duration::MAX)
    }
}

const PAGE_BYTES: u64 = 4_096;
/// A buffer holds at least this many packets, or a short pause of the machine would drop some.
const MIN_PACKETS: f64 = 64.0;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The server, if it runs.
    pub target: Option<Target>,
    /// The program for which the host is tuned.
    pub program: Program,
    /// Load that the host has to carry.
    pub demand: Demand,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_bounded_by_time() {
        let demand = Demand { calls_per_s: 1_000.0, longest_wait: LONGEST_WAIT };
        // 1,000 calls/s × 7 packets × 0.25 s × 2,304 bytes.
        assert_eq!(demand.buffer_bytes(), 4_032_000_u64.next_multiple_of(8_192));
        assert_eq!(demand.requested_bytes() * 2, demand.buffer_bytes());
        let time = demand.time_of(demand.buffer_bytes());
        assert!((time.as_secs_f64() - 0.25).abs() < 0.001, "{time:?}");
        let idle = Demand { calls_per_s: 0.0, longest_wait: LONGEST_WAIT };
        assert_eq!((idle.buffer_bytes(), idle.time_of(4_096)), (147_456, Duration::MAX));
    }
}
