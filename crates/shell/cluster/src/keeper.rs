//! What the workers give their records to.

use std::sync::Arc;

use strowger_foundation::Timestamp;
use strowger_worker::{Keep, KeepBatch, SecondKeep};
use tokio::sync::mpsc::UnboundedSender;

use crate::Promise;

/// Records for the engine, and who waits for them.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) records: Vec<Box<[u8]>>,
    pub(crate) waiting: Waiting,
}

/// Who waits until the engine has them.
#[derive(Debug)]
pub(crate) enum Waiting {
    Nobody,
    /// The workers, who wait for nobody else.
    Workers(KeepBatch),
    /// The workers, who wait for the disk too.
    Second(SecondKeep),
    /// Who counts how far the others know of nonces: until then.
    Told(Timestamp),
}

impl Waiting {
    pub(crate) fn finish(self, kept: bool) {
        match self {
            Self::Nobody | Self::Told(_) => {}
            Self::Workers(batch) => batch.finish(kept),
            Self::Second(second) => second.finish(kept),
        }
    }
}

/// Gives each batch to the disk and to the engine. The queue between is bounded by the REGISTERs that wait in the shards and by the
/// outbox behind it, which refuses what exceeds it at once.
pub(crate) struct Keeper {
    engine: UnboundedSender<Handed>,
    promise: Promise,
    disk: Option<Arc<dyn Keep>>,
    disk_promises: bool,
}

impl Keeper {
    pub(crate) fn new(
        engine: UnboundedSender<Handed>,
        promise: Promise,
        disk: Option<Arc<dyn Keep>>,
        disk_promises: bool,
    ) -> Self {
        Self { engine, promise, disk, disk_promises }
    }
}

impl Keep for Keeper {
    fn keep(&self, batch: KeepBatch) {
        let records = batch.records().map(Into::into).collect();
        let (waiting, on_disk) = match (self.promise, &self.disk) {
            (Promise::Nothing, Some(_)) => (Waiting::Nobody, Some(batch)),
            (Promise::Engine, Some(_)) if !self.disk_promises => {
                let copy = batch.to_unawaited();
                (Waiting::Workers(batch), Some(copy))
            }
            (Promise::Engine, Some(_)) => {
                let (batch, second) = batch.with_second();
                (Waiting::Second(second), Some(batch))
            }
            (Promise::Engine, None) => (Waiting::Workers(batch), None),
            (Promise::Nothing, None) => {
                batch.finish(true);
                (Waiting::Nobody, None)
            }
        };
        // Nobody receives any more: who waits is told so as it is dropped.
        drop(self.engine.send(Handed { records, waiting }));
        if let (Some(disk), Some(batch)) = (&self.disk, on_disk) {
            disk.keep(batch);
        }
    }
}
