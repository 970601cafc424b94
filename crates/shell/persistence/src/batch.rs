//! Input of the store thread: records, and who waits for them.

use std::sync::Arc;

use strowger_foundation::Timestamp;
use strowger_worker::RecordBatch;

/// Records that are stored or refused together.
pub(crate) trait Batch: Send + 'static {
    /// Passes each record to `show` in order, with whether a request waits for it. Records without one are already
    /// applied and must be stored eventually.
    fn for_each(&self, show: &mut dyn FnMut(&[u8], bool));

    /// Holds `token` until the requester has handled the result; stored records are in the table by then.
    fn hold_token(&mut self, token: Arc<()>);

    /// Reports the result.
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

/// A batch with its arrival time and size.
#[derive(Debug)]
pub(crate) struct QueuedBatch<B> {
    pub(crate) batch: B,
    pub(crate) at: Timestamp,
    pub(crate) records: usize,
    pub(crate) bytes: usize,
    /// Number of records that a request waits for.
    pub(crate) awaited: usize,
    /// Length of the longest record.
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

    /// Refuses the batch; records without a waiting request are passed to `keep`.
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
