//! What the store thread is given: some records, and who waits for them.

use std::sync::Arc;

use strowger_foundation::Timestamp;
use strowger_worker::RecordBatch;

/// Records that are kept or refused together.
pub(crate) trait Batch: Send + 'static {
    /// Shows each record in its order, and whether somebody waits to hear of it. Where nobody does it is applied already and
    /// must be kept, be it later.
    fn for_each(&self, show: &mut dyn FnMut(&[u8], bool));

    /// Holds `token` until who waits has dealt with the answer: what was kept is in the table then.
    fn hold_token(&mut self, token: Arc<()>);

    /// Tells who waits.
    fn acknowledge(self, kept: bool);
}

impl Batch for RecordBatch {
    fn for_each(&self, show: &mut dyn FnMut(&[u8], bool)) {
        self.iter().for_each(|(record, is_awaited)| show(record, is_awaited));
    }

    fn hold_token(&mut self, token: Arc<()>) {
        RecordBatch::hold_token(self, token);
    }

    fn acknowledge(self, kept: bool) {
        RecordBatch::acknowledge(self, kept);
    }
}

/// A batch, when it came and what it weighs.
#[derive(Debug)]
pub(crate) struct QueuedBatch<B> {
    pub(crate) batch: B,
    pub(crate) at: Timestamp,
    pub(crate) records: usize,
    pub(crate) bytes: usize,
    /// Records that somebody waits for.
    pub(crate) awaited: usize,
    /// The longest record.
    pub(crate) longest: usize,
}

impl<B: Batch> QueuedBatch<B> {
    pub(crate) fn new(batch: B, at: Timestamp) -> Self {
        let (mut records, mut bytes, mut awaited, mut longest) = (0, 0, 0, 0);
        batch.for_each(&mut |record, is_awaited| {
            records += 1;
            bytes += record.len();
            awaited += usize::from(is_awaited);
            longest = longest.max(record.len());
        });
        Self { batch, at, records, bytes, awaited, longest }
    }

    /// Refuses it; the records that nobody waits for are shown to `keep`.
    pub(crate) fn refuse(self, mut keep: impl FnMut(&[u8])) {
        if self.awaited < self.records {
            self.batch.for_each(&mut |record, is_awaited| {
                if !is_awaited {
                    keep(record);
                }
            });
        }
        self.batch.acknowledge(false);
    }
}
