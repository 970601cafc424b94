//! The result of storing a record.

use strowger_foundation::ShardId;

/// A record, its shard and its result.
#[derive(Debug)]
pub(crate) struct RecordResult {
    pub(crate) shard: ShardId,
    /// Identifies the waiting request; `None` if nothing waits for the record.
    pub(crate) ticket: Option<u64>,
    pub(crate) record: Vec<u8>,
    pub(crate) is_stored: bool,
}
