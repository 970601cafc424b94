//! State of the storage of registrations.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Storage of registrations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Store {
    /// What a 200 to a REGISTER guarantees: `write-through`, `write-behind` or `memory`.
    pub mode: String,
    /// `ok`; `loading`: stored registrations are being read; `opening`: journal or database could not be opened yet;
    /// `failing`: nothing can be written.
    pub state: String,
    /// The failure's cause.
    pub why: Option<String>,
    /// The remedy.
    pub remedy: Option<String>,
    /// Seconds since the failure began.
    pub failing_s: Option<f64>,
    /// Fraction loaded, from 0 to 1; none unless loading.
    pub loading: Option<f64>,
    /// Disk figures; none in mode memory.
    pub disk: Option<Disk>,
}

/// Figures of a durable store. Unless stated otherwise, counts are since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Disk {
    /// Size of the journal, in bytes.
    pub journal_bytes: u64,
    /// Number of journal files.
    pub journal_segments: u64,
    /// Number of record groups written and synced.
    pub groups: u64,
    /// Number of records in these groups.
    pub records: u64,
    /// Median time from a group's write to the end of its sync, in ms.
    pub commit_p50_ms: f64,
    /// 99th percentile of the same, in ms.
    pub commit_p99_ms: f64,
    /// Maximum of the same, in ms.
    pub commit_longest_ms: f64,
    /// Current number of records waiting for a commit.
    pub waiting: u64,
    /// Current number of addresses whose latest state waits for the disk to recover.
    pub unwritten: u64,
    /// Records not stored. Where durability is guaranteed, each is a REGISTER answered 503.
    pub refused: u64,
    /// Number of these that waited too long for a slow disk.
    pub late: u64,
    /// Write-behind: changes dropped because too many were waiting.
    pub lost: u64,
    /// How often writing has begun to fail.
    pub faults: u64,
    /// How often writing has recovered.
    pub recoveries: u64,
    /// Checkpoints to the database.
    pub checkpoint: Checkpoint,
    /// What was found at the start.
    pub found: EarlierState,
}

/// Progress of the database behind the journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Checkpoint {
    /// Seconds since the last checkpoint; none before the first one since the start.
    pub last_s: Option<f64>,
    /// Number of journal files not yet in the database.
    pub segments_behind: u64,
    /// Number of addresses in the database.
    pub rows: u64,
    /// Why checkpoints fail.
    pub failing: Option<String>,
    /// Number of expired addresses removed.
    pub purged: u64,
}

/// State of an earlier process, as found at the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EarlierState {
    /// Whether everything has been read.
    pub is_complete: bool,
    /// Number of contacts restored.
    pub loaded: u64,
    /// Number of addresses that had expired.
    pub expired: u64,
    /// Number of unreadable records and rows.
    pub skipped: u64,
    /// Damage found in the journal.
    pub damage: Vec<String>,
    /// Time taken, in seconds.
    pub took_s: f64,
}
