//! Histograms with few buckets, as monitoring systems take them.

use crate::message_type::MessageType;
use crate::part::Part;

/// Counts of times by given bounds, and their sum.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeBuckets {
    /// Sum of the times, in seconds.
    pub sum_s: f64,
    /// Number of times of each bucket: of those up to each bound, and last of those above all bounds. Empty if there
    /// are none.
    pub counts: Vec<u64>,
}

impl TimeBuckets {
    /// Returns the number of times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds all times of `other`, which has the same bounds.
    pub fn add(&mut self, other: &Self) {
        self.sum_s += other.sum_s;
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(ours, theirs)| *ours += theirs);
    }
}

/// The times of one message type.
#[derive(Clone, Debug)]
pub struct TypeBuckets {
    /// The type.
    pub message: MessageType,
    /// Number of packets.
    pub packets: u64,
    /// By the index of the part.
    pub(crate) parts: [TimeBuckets; Part::COUNT],
}

impl TypeBuckets {
    /// Returns the times of a part.
    #[must_use]
    pub fn part(&self, part: Part) -> &TimeBuckets {
        &self.parts[part.index()]
    }

    /// Adds the packets of `other`, whatever its type.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.parts.iter_mut().zip(&other.parts).for_each(|(ours, theirs)| ours.add(theirs));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram_recorder::HistogramRecorder;
    use crate::message_type::MethodName;

    const BOUNDS_NS: [u64; 3] = [1_000, 10_000, 100_000];

    #[test]
    fn times_are_counted_up_to_each_bound() {
        let mut recorder = HistogramRecorder::default();
        let invite = recorder.index_of(MessageType::Request(MethodName::Invite));
        for nanos in [500, 900, 5_000, 70_000, 200_000, u64::MAX] {
            recorder.count(invite);
            recorder.record(invite, Part::Application, nanos, 1);
        }
        let other = recorder.index_of(MessageType::Other);
        recorder.count(other);
        recorder.record(other, Part::Send, 20_000, 3);
        let mut rows = recorder.recorded().buckets(&BOUNDS_NS);
        assert_eq!(rows[0].message, MessageType::Request(MethodName::Invite));
        assert_eq!(rows[0].part(Part::Application).counts, [2, 1, 1, 2]);
        assert_eq!(rows[0].part(Part::Send), &TimeBuckets::default());
        assert_eq!((rows[1].packets, rows[1].part(Part::Send).counts.as_slice()), (1, [0, 0, 3, 0].as_slice()));
        assert!((rows[1].part(Part::Send).sum_s - 60e-6).abs() < 1e-9);
        let more = rows[1].clone();
        rows[0].add(&more);
        assert_eq!((rows[0].packets, rows[0].part(Part::Send).count()), (7, 3));
    }
}
