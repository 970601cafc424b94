//! Histograms that one thread records and others read meanwhile, without stopping it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use crate::histograms::{PartHistograms, TimingHistograms};
use crate::message_type::MessageType;
use crate::part::Part;
use crate::part_histogram::SharedPartHistogram;
use crate::time_buckets::TypeBuckets;
use crate::type_table::{MAX_MESSAGE_TYPES, TypeIndex, TypeTable};

/// Number of rows: one more than types, for [`MessageType::Other`].
const ROWS: usize = MAX_MESSAGE_TYPES + 1;

/// Recorder of histograms by message type. A histogram exists once it has a value.
#[derive(Debug, Default)]
pub struct HistogramRecorder {
    table: TypeTable,
    recorded: RecordedHistograms,
}

/// What a [`HistogramRecorder`] has recorded, for any thread.
#[derive(Clone, Debug, Default)]
pub struct RecordedHistograms(Arc<Rows>);

#[derive(Debug)]
struct Rows([OnceLock<Box<Row>>; ROWS]);

#[derive(Debug)]
struct Row {
    message: MessageType,
    packets: AtomicU64,
    parts: [OnceLock<Box<SharedPartHistogram>>; Part::COUNT],
}

impl Default for Rows {
    fn default() -> Self {
        Self([const { OnceLock::new() }; ROWS])
    }
}

impl HistogramRecorder {
    /// Returns what is recorded, for other threads.
    #[must_use]
    pub fn recorded(&self) -> RecordedHistograms {
        self.recorded.clone()
    }

    /// Returns the index of a type, for the other methods. It stays valid for this recorder and is not valid for
    /// others.
    pub fn index_of(&mut self, message: MessageType) -> TypeIndex {
        let index = self.table.index_of(message);
        if let Some(row) = self.recorded.0.0.get(index.position()) {
            row.get_or_init(|| {
                let message = self.table.types()[index.position()];
                let parts = [const { OnceLock::new() }; Part::COUNT];
                Box::new(Row { message, packets: AtomicU64::new(0), parts })
            });
        }
        index
    }

    /// Counts a packet.
    pub fn count(&mut self, message: TypeIndex) {
        if let Some(row) = self.row(message) {
            row.packets.store(row.packets.load(Relaxed) + 1, Relaxed);
        }
    }

    /// Records a part of `packets` packets, ns each.
    pub fn record(&mut self, message: TypeIndex, part: Part, nanos: u64, packets: u64) {
        if let Some(row) = self.row(message) {
            row.parts[part.index()].get_or_init(SharedPartHistogram::new).record(nanos, packets);
        }
    }

    fn row(&self, message: TypeIndex) -> Option<&Row> {
        self.recorded.0.0.get(message.position())?.get().map(AsRef::as_ref)
    }
}

impl RecordedHistograms {
    /// Returns a copy of the values so far. It contains all that the recording thread had recorded when it last
    /// communicated with this one; of the packet that it is just recording, some parts may be missing.
    #[must_use]
    pub fn copy(&self) -> TimingHistograms {
        let mut copy = TimingHistograms::default();
        for row in self.0.0.iter().filter_map(OnceLock::get) {
            let part = |part: &OnceLock<Box<SharedPartHistogram>>| part.get().map(|histogram| histogram.copy());
            let packets = row.packets.load(Relaxed);
            copy.insert(row.message, PartHistograms { packets, parts: row.parts.each_ref().map(part) });
        }
        copy
    }

    /// Returns the times so far by message type, counted up to each of `bounds_ns`, which ascend.
    #[must_use]
    pub fn buckets(&self, bounds_ns: &[u64]) -> Vec<TypeBuckets> {
        let part = |part: &OnceLock<Box<SharedPartHistogram>>| {
            part.get().map(|histogram| histogram.buckets(bounds_ns)).unwrap_or_default()
        };
        let row = |row: &Row| TypeBuckets {
            message: row.message,
            packets: row.packets.load(Relaxed),
            parts: row.parts.each_ref().map(part),
        };
        self.0.0.iter().filter_map(OnceLock::get).map(|found| row(found)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message_type::MethodName;
    use crate::part::PartTimes;

    #[test]
    fn a_copy_equals_what_was_recorded() {
        let (mut recorder, mut expected) = (HistogramRecorder::default(), TimingHistograms::default());
        let types = (0..100).map(|n| MessageType::Response(100 + n * 6, MethodName::Bye));
        for (nanos, message) in (1_000..).step_by(977).zip(types.cycle().take(1_000)) {
            let index = recorder.index_of(message);
            recorder.count(index);
            recorder.record(index, Part::SendCall, nanos, 1);
            let mut times = PartTimes::default();
            times.set(Part::SendCall, nanos);
            expected.record(message, &times);
        }
        let copy = recorder.recorded().copy();
        assert_eq!(copy.report(), expected.report());
        assert_eq!(copy.report().0.len(), ROWS);
        recorder.record(TypeIndex::from_number(u8::MAX), Part::Send, 1, 1);
        assert_eq!(recorder.recorded().copy().values(Part::Send), 0, "an index of no type is ignored");
    }

    #[test]
    fn others_read_while_it_records() {
        const PACKETS: u64 = 200_000;
        let mut recorder = HistogramRecorder::default();
        let recorded = recorder.recorded();
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                for packet in 0..PACKETS {
                    let index = recorder.index_of(MessageType::Other);
                    recorder.record(index, Part::Application, 1_000 + packet % 7, 1);
                    recorder.count(index);
                }
            });
            let mut before = TimingHistograms::default();
            while !writer.is_finished() {
                let now = recorded.copy();
                let added = now.since(&before);
                assert_eq!(added.packets(), now.packets() - before.packets(), "nothing is lost or counted twice");
                before = now;
            }
        });
        let end = recorded.copy();
        assert_eq!((end.packets(), end.values(Part::Application)), (PACKETS, PACKETS));
    }
}
