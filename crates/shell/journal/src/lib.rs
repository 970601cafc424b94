//! An append-only journal: records that are durable when [`Journal::commit`] says so.
//!
//! Records are opaque bytes; a group of them is atomic and costs one sync. A group is on the disk as a whole or it is not
//! shown; what is shown is what was committed, in that order, without a gap. The files are *segments*; when a checkpoint elsewhere
//! has taken the [closed](Journal::closed) ones, they are [removed](Journal::remove_through).
//!
//! Four rules hold all of it up. **A file is never written again** after it was opened anew or after an error: each start and each
//! recovery begins a new segment. **A new segment says how much of the one before counts**, so what a failed write left behind
//! is not shown, whatever the disk made of it. **A group is begun only when the one before is durable**, so all but the last group
//! of the last segment are; and that one is written again, into the new segment, when the journal is opened. **A failed sync is
//! never tried again**: the system forgets the data and says yes the second time.
//!
//! A group whose commit failed is in doubt until [`Journal::recover`] or a later opening has settled it: without a disk that
//! writes nobody can say that it is not there.
//!
//! There are no threads and no clocks in here.

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
