//! An append-only journal. Records are durable once [`Journal::commit`] returns.
//!
//! Records are opaque bytes. A group of them is atomic and costs one sync: it is either replayed as a whole or not at
//! all. Replay returns what was committed, in order, without gaps. The files are called *segments*; once a checkpoint
//! elsewhere contains the [closed](Journal::closed) ones, they are [removed](Journal::remove_through).
//!
//! Correctness rests on four rules. **A file is never written again** after it was reopened or after an error: each
//! start and each recovery begins a new segment. **A new segment states the valid length of the previous one**, so
//! the remains of a failed write are ignored, whatever the disk made of them. **A group is begun only when the
//! previous one is durable**, so all groups but the last one of the last segment are; opening the journal copies that
//! one into the new segment. **A failed sync is never retried**: the system discards the data and reports success the
//! second time.
//!
//! A group whose commit failed is in doubt until [`Journal::recover`] or a later opening settles it: without a
//! working disk, its absence cannot be ensured.
//!
//! The crate has no threads and reads no clocks.

#![forbid(unsafe_code)]

mod disk;
mod error;
mod folder;
mod format;
mod inspect;
mod journal;
mod reader;
pub mod simulated;
mod stamp;
#[cfg(test)]
mod tests;

pub use disk::{Disk, DiskFile, Operation};
pub use error::{CommitError, Damage, DamageKind, DiskError, JournalError, PushError};
pub use folder::{Folder, RealFile};
pub use format::{MAX_GROUP, MAX_RECORD};
pub use inspect::CheckpointPosition;
pub use journal::{Journal, JournalContents, RecoveryReport, Settings, Status};
pub use reader::{Reader, Segment};
pub use stamp::Stamp;
