//! Sink for the workers' records.

use std::sync::Arc;

use strowger_foundation::Timestamp;
use strowger_worker::{RecordBatch, RecordSink, SecondaryAck};
use tokio::sync::mpsc::UnboundedSender;

use crate::WriteConcern;

/// Records for the engine, with the waiter.
#[derive(Debug)]
pub(crate) struct EngineBatch {
    pub(crate) records: Vec<Box<[u8]>>,
    pub(crate) waiter: Waiter,
}

/// Who waits until the engine has the records.
#[derive(Debug)]
pub(crate) enum Waiter {
    None,
    /// The workers; the disk does not matter.
    Workers(RecordBatch),
    /// The workers, who also wait for the disk.
    Second(SecondaryAck),
    /// The nonce bookkeeping: the other members know of nonces used up to this time.
    NonceUses(Timestamp),
}

impl Waiter {
    pub(crate) fn finish(self, kept: bool) {
        match self {
            Self::None | Self::NonceUses(_) => {}
            Self::Workers(batch) => batch.acknowledge(kept),
            Self::Second(second) => second.acknowledge(kept),
        }
    }
}

/// Passes each batch to the disk and to the engine. The queue to the engine is bounded by the REGISTERs waiting in
/// the shards, and by the outbox behind it, which refuses any excess at once.
pub(crate) struct ClusterSink {
    engine: UnboundedSender<EngineBatch>,
    promise: WriteConcern,
    disk: Option<Arc<dyn RecordSink>>,
    disk_promises: bool,
}

impl ClusterSink {
    pub(crate) fn new(
        engine: UnboundedSender<EngineBatch>,
        promise: WriteConcern,
        disk: Option<Arc<dyn RecordSink>>,
        disk_promises: bool,
    ) -> Self {
        Self { engine, promise, disk, disk_promises }
    }
}

impl RecordSink for ClusterSink {
    fn store(&self, batch: RecordBatch) {
        let records = batch.records().map(Into::into).collect();
        let (waiting, on_disk) = match (self.promise, &self.disk) {
            (WriteConcern::None, Some(_)) => (Waiter::None, Some(batch)),
            (WriteConcern::Engine, Some(_)) if !self.disk_promises => {
                let copy = batch.to_unawaited();
                (Waiter::Workers(batch), Some(copy))
            }
            (WriteConcern::Engine, Some(_)) => {
                let (batch, second) = batch.with_secondary();
                (Waiter::Second(second), Some(batch))
            }
            (WriteConcern::Engine, None) => (Waiter::Workers(batch), None),
            (WriteConcern::None, None) => {
                batch.acknowledge(true);
                (Waiter::None, None)
            }
        };
        // If the thread has ended, dropping the batch notifies the waiter.
        drop(self.engine.send(EngineBatch { records, waiter: waiting }));
        if let (Some(disk), Some(batch)) = (&self.disk, on_disk) {
            disk.store(batch);
        }
    }
}
