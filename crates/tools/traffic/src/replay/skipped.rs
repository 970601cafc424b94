//! What of a capture is not used, counted by reason.

use std::collections::BTreeMap;
use std::fmt;

/// Why something in a capture is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A frame of a kind of link that is not read.
    Link,
    /// A frame that carries neither IPv4 nor IPv6.
    NoIp,
    /// A packet of IP that carries neither UDP nor TCP.
    Protocol,
    /// A frame that says of itself what cannot be.
    Malformed,
    /// A frame of which the capture has only the beginning.
    Truncated,
    /// Fragments of a packet of which others are missing.
    Fragment,
    /// Bytes of a TCP stream that the capture does not have: what stood around them is lost.
    Gap,
    /// Segments of TCP that were sent again.
    Retransmitted,
    /// Payloads that are no SIP.
    NoSip,
    /// Messages of a trace whose lines are not in it, or are cut.
    NoLines,
    /// Messages that are in the capture twice: retransmissions, which the run makes its own of.
    Repeated,
    /// Messages past the limit.
    Messages,
    /// Messages of other hops or forks of a call than the one that is played.
    OtherHop,
    /// Messages of calls whose beginning is not in the capture.
    NoBeginning,
    /// Messages of calls of other callers than were asked for.
    OtherCaller,
    /// Messages of calls past the limit.
    Calls,
    /// Messages to the server alone, where the replay has none.
    NoServer,
    /// Messages that the engine cannot play in their place.
    Unplayable,
}

impl Reason {
    /// The reason in words, with the remedy where there is one.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Link => "frames of a link that is not read (Ethernet, Linux cooked, loopback and raw IP are)",
            Self::NoIp => "frames without IP",
            Self::Protocol => "packets without UDP or TCP",
            Self::Malformed => "malformed frames",
            Self::Truncated => "frames that the capture has cut (capture with -s 0)",
            Self::Fragment => "fragments of packets that are not whole in the capture",
            Self::Gap => "gaps in TCP streams",
            Self::Retransmitted => "segments of TCP sent again",
            Self::NoSip => "payloads that are no SIP",
            Self::NoLines => "messages whose lines are not in the trace (trace with --messages)",
            Self::Repeated => "retransmissions and copies",
            Self::Messages => "messages past the limit",
            Self::OtherHop => "messages of other hops and forks",
            Self::NoBeginning => "messages of calls whose beginning is not in the capture",
            Self::OtherCaller => "messages of other callers than asked for",
            Self::Calls => "messages of calls past the limit",
            Self::NoServer => "messages to the server alone, of which this replay has none (give it with --to)",
            Self::Unplayable => "messages that overlap others of their call",
        }
    }
}

/// How much was skipped, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkipCounts(BTreeMap<Reason, u64>);

impl SkipCounts {
    /// Counts one.
    pub fn add(&mut self, reason: Reason) {
        self.add_many(reason, 1);
    }

    /// Counts several.
    pub fn add_many(&mut self, reason: Reason, count: u64) {
        if count > 0 {
            *self.0.entry(reason).or_default() += count;
        }
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Self) {
        for (reason, count) in other.iter() {
            self.add_many(reason, count);
        }
    }

    /// How many of one reason.
    #[must_use]
    pub fn count(&self, reason: Reason) -> u64 {
        self.0.get(&reason).copied().unwrap_or(0)
    }

    /// All that are not zero.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> {
        self.0.iter().map(|(reason, count)| (*reason, *count))
    }
}

impl fmt::Display for SkipCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (index, (reason, count)) in self.iter().enumerate() {
            write!(f, "{}{count} {}", if index > 0 { "; " } else { "" }, reason.text())?;
        }
        Ok(())
    }
}
