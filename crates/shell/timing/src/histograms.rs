//! Histograms of each part, by message type.

use crate::message_type::MessageType;
use crate::part::{Part, PartTimes};
use crate::part_histogram::PartHistogram;
use crate::report::MessageReport;
use crate::type_table::TypeTable;

/// Histograms of the parts of packets, by message type. A histogram exists once it has a value, so memory follows what
/// was measured.
#[derive(Clone, Debug, Default)]
pub struct TimingHistograms {
    table: TypeTable,
    /// By the index of the type.
    rows: Vec<PartHistograms>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PartHistograms {
    pub(crate) packets: u64,
    pub(crate) parts: [Option<Box<PartHistogram>>; Part::COUNT],
}

impl TimingHistograms {
    /// Records a packet.
    pub fn record(&mut self, message: MessageType, times: &PartTimes) {
        let histograms = self.of(message);
        histograms.packets += 1;
        for (part, nanos) in times.iter() {
            histograms.part(part).record(nanos, 1);
        }
    }

    /// Sets the histograms of a type that has none yet.
    pub(crate) fn insert(&mut self, message: MessageType, histograms: PartHistograms) {
        *self.of(message) = histograms;
    }

    /// Adds all values of `other`.
    pub fn add(&mut self, other: &Self) {
        for (message, theirs) in other.rows() {
            self.of(message).add(theirs);
        }
    }

    /// Returns the values added since `earlier`, an earlier copy of these histograms.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut before = vec![None; self.rows.len()];
        let mut table = self.table.clone();
        for (message, histograms) in earlier.rows() {
            if let Some(place) = before.get_mut(table.index_of(message).position()) {
                *place = Some(histograms);
            }
        }
        let mut since = Self::default();
        for ((message, histograms), before) in self.rows().zip(before) {
            let mut histograms = histograms.clone();
            if let Some(before) = before {
                histograms.subtract(before);
            }
            if !histograms.is_empty() {
                since.insert(message, histograms);
            }
        }
        since
    }

    /// Returns the number of packets.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.rows.iter().map(|histograms| histograms.packets).sum()
    }

    /// Returns the number of values of a part, of all types together.
    #[must_use]
    pub fn values(&self, part: Part) -> u64 {
        let parts = self.rows.iter().filter_map(|histograms| histograms.parts[part.index()].as_ref());
        parts.map(|histogram| histogram.len()).sum()
    }

    /// Returns a row for each message type, in the order of [`MessageType`], and one for all together.
    #[must_use]
    pub fn report(&self) -> (Vec<MessageReport>, MessageReport) {
        let mut types: Vec<_> = self.rows().collect();
        types.sort_by_key(|(message, _)| *message);
        let rows = types.iter().map(|(message, histograms)| histograms.report(message.to_string())).collect();
        let mut all = PartHistograms::default();
        types.iter().for_each(|(_, histograms)| all.add(histograms));
        (rows, all.report("all".to_owned()))
    }

    fn rows(&self) -> impl Iterator<Item = (MessageType, &PartHistograms)> {
        self.table.types().iter().copied().zip(&self.rows)
    }

    fn of(&mut self, message: MessageType) -> &mut PartHistograms {
        let position = self.table.index_of(message).position();
        self.rows.resize_with(self.table.types().len(), PartHistograms::default);
        &mut self.rows[position]
    }
}

impl PartHistograms {
    fn part(&mut self, part: Part) -> &mut PartHistogram {
        self.parts[part.index()].get_or_insert_with(PartHistogram::new)
    }

    fn is_empty(&self) -> bool {
        self.packets == 0 && self.parts.iter().flatten().all(|histogram| histogram.len() == 0)
    }

    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        for part in Part::ALL {
            if let Some(theirs) = &other.parts[part.index()] {
                self.part(part).add(theirs);
            }
        }
    }

    fn subtract(&mut self, earlier: &Self) {
        self.packets = self.packets.saturating_sub(earlier.packets);
        for (ours, before) in self.parts.iter_mut().zip(&earlier.parts) {
            if let (Some(histogram), Some(before)) = (&mut *ours, before) {
                histogram.subtract(before);
                if histogram.len() == 0 {
                    *ours = None;
                }
            }
        }
    }

    fn report(&self, message: String) -> MessageReport {
        let parts = Part::ALL.into_iter().filter_map(|part| {
            let histogram = self.parts[part.index()].as_ref()?;
            Some((part.key().to_owned(), histogram.distribution()))
        });
        MessageReport { message, packets: self.packets, parts: parts.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message_type::MethodName;
    use crate::type_table::MAX_MESSAGE_TYPES;

    fn times(part: Part, nanos: u64) -> PartTimes {
        let mut times = PartTimes::default();
        times.set(part, nanos);
        times
    }

    #[test]
    fn values_are_reported_by_type_and_together() {
        let mut histograms = TimingHistograms::default();
        let (invite, bye) = (MessageType::Request(MethodName::Invite), MessageType::Request(MethodName::Bye));
        histograms.record(invite, &times(Part::Stack, 1_000));
        histograms.record(invite, &times(Part::Stack, 3_000));
        let mut both = times(Part::Stack, 8_000);
        both.set(Part::Send, 500);
        histograms.record(bye, &both);
        let (rows, all) = histograms.report();
        let stack = |row: &MessageReport| row.parts["k_stack"].clone();
        assert_eq!(rows.iter().map(|row| row.message.as_str()).collect::<Vec<_>>(), ["INVITE", "BYE"]);
        assert_eq!((stack(&rows[0]).mean_us, stack(&rows[0]).variance_us2), (2.0, 1.0));
        assert_eq!((all.packets, stack(&all).count, stack(&all).mean_us), (3, 3, 4.0));
        assert!((all.parts["k_snd"].p50_us - 0.5).abs() < 0.01);
        assert!(!all.parts.contains_key("k_copy"));
    }

    #[test]
    fn sums_equal_the_whole() {
        let (mut one, mut two, mut whole) =
            (TimingHistograms::default(), TimingHistograms::default(), TimingHistograms::default());
        for nanos in (1..2_000).map(|step| step * 977) {
            let half = if nanos % 2 == 0 { &mut one } else { &mut two };
            half.record(MessageType::Other, &times(Part::Application, nanos));
            whole.record(MessageType::Other, &times(Part::Application, nanos));
        }
        one.add(&two);
        assert_eq!(one.report().1.parts["t_sip"].histogram, whole.report().1.parts["t_sip"].histogram);
        assert_eq!(one.packets(), whole.packets());
    }

    #[test]
    fn too_many_types_are_counted_as_other() {
        let mut histograms = TimingHistograms::default();
        for status in 100..300 {
            histograms.record(MessageType::Response(status, MethodName::Invite), &PartTimes::default());
        }
        let (rows, all) = histograms.report();
        assert_eq!((rows.len(), all.packets), (MAX_MESSAGE_TYPES + 1, 200));
    }

    #[test]
    fn a_period_is_the_difference_of_two_copies() {
        let (mut histograms, mut period) = (TimingHistograms::default(), TimingHistograms::default());
        let (invite, bye) = (MessageType::Request(MethodName::Invite), MessageType::Request(MethodName::Bye));
        histograms.record(bye, &times(Part::Stack, 77));
        histograms.record(invite, &times(Part::Stack, 900_000));
        let before = histograms.clone();
        for nanos in [1_000, 2_000, 4_000] {
            histograms.record(invite, &times(Part::Stack, nanos));
            period.record(invite, &times(Part::Stack, nanos));
        }
        let mut since = histograms.since(&before);
        assert_eq!(since.report(), period.report());
        assert!((since.report().1.parts["k_stack"].max_us - 4.0).abs() < 0.04);
        since.record(bye, &times(Part::Stack, 5));
        assert_eq!(since.packets(), 4);
        assert_eq!(histograms.since(&histograms).report().0, []);
    }

    #[test]
    fn a_time_beyond_the_bounds_counts_as_the_longest() {
        let mut histograms = TimingHistograms::default();
        histograms.record(MessageType::Other, &times(Part::Send, u64::MAX));
        histograms.record(MessageType::Other, &times(Part::Send, 0));
        assert_eq!(histograms.report().1.parts["k_snd"].count, 2);
    }
}
