//! Counts, by reason, of the parts of a capture that are not used.

use std::collections::BTreeMap;
use std::fmt;

/// Why a part of a capture is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A frame with an unsupported link type.
    Link,
    /// A frame that carries neither IPv4 nor IPv6.
    NoIp,
    /// An IP packet that carries neither UDP nor TCP.
    Protocol,
    /// A frame with contradictory headers.
    Malformed,
    /// A frame that the capture truncated.
    Truncated,
    /// Fragments of a packet with missing fragments.
    Fragment,
    /// Missing bytes of a TCP stream; the message around them is lost.
    Gap,
    /// Retransmitted TCP segments.
    Retransmitted,
    /// Payloads that are not SIP.
    NoSip,
    /// Messages of a trace whose lines are missing or truncated.
    NoLines,
    /// Messages that are in the capture twice. The run makes its own retransmissions.
    Repeated,
    /// Messages beyond the limit.
    Messages,
    /// Messages of a call's other hops and forks.
    OtherHop,
    /// Messages of calls whose beginning is not in the capture.
    NoBeginning,
    /// Messages of calls from callers that were not selected.
    OtherCaller,
    /// Messages of calls beyond the limit.
    Calls,
    /// Messages of calls with the server itself, if the replay has no server.
    NoServer,
    /// Messages that the engine cannot play in their order.
    Unplayable,
}

impl Reason {
    /// Returns a description of the reason, and what to do about it where possible.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Link => "frames of an unsupported link type (supported: Ethernet, Linux cooked, loopback, raw IP)",
            Self::NoIp => "frames without IP",
            Self::Protocol => "packets without UDP or TCP",
            Self::Malformed => "malformed frames",
            Self::Truncated => "frames truncated by the capture (capture with -s 0)",
            Self::Fragment => "fragments of incomplete packets",
            Self::Gap => "gaps in TCP streams",
            Self::Retransmitted => "retransmitted TCP segments",
            Self::NoSip => "payloads that are not SIP",
            Self::NoLines => "messages without text in the trace (trace with --messages)",
            Self::Repeated => "retransmissions and copies",
            Self::Messages => "messages beyond the limit",
            Self::OtherHop => "messages of other hops and forks",
            Self::NoBeginning => "messages of calls that began before the capture",
            Self::OtherCaller => "messages of callers that were not selected",
            Self::Calls => "messages of calls beyond the limit",
            Self::NoServer => "messages to the server itself, but this replay has no server (give it with --to)",
            Self::Unplayable => "messages that overlap others of their call",
        }
    }
}

/// Counts by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkipCounts(BTreeMap<Reason, u64>);

impl SkipCounts {
    /// Counts one occurrence.
    pub fn add(&mut self, reason: Reason) {
        self.add_many(reason, 1);
    }

    /// Counts several occurrences.
    pub fn add_many(&mut self, reason: Reason, count: u64) {
        if count > 0 {
            *self.0.entry(reason).or_default() += count;
        }
    }

    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Self) {
        for (reason, count) in other.iter() {
            self.add_many(reason, count);
        }
    }

    /// Returns the count of a reason.
    #[must_use]
    pub fn count(&self, reason: Reason) -> u64 {
        self.0.get(&reason).copied().unwrap_or(0)
    }

    /// Returns all counts that are not zero.
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
