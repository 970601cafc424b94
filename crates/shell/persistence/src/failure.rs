//! What is broken, in words for the operator.

use std::io;

use strowger_journal::{CommitError, DiskError, JournalError};
use strowger_store::StoreError;

/// What is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreFailure {
    pub(crate) why: String,
    pub(crate) remedy: String,
}

impl From<&DiskError> for StoreFailure {
    fn from(fault: &DiskError) -> Self {
        let (text, remedy) = (fault.to_string(), fault.remedy());
        let why = text.strip_suffix(remedy).map_or(&*text, |why| why.trim_end_matches("; "));
        Self { why: why.to_owned(), remedy: remedy.to_owned() }
    }
}

impl From<&CommitError> for StoreFailure {
    fn from(error: &CommitError) -> Self {
        match error {
            CommitError::Fault(fault) => fault.into(),
            full @ CommitError::Full { .. } => Self {
                why: full.to_string(),
                remedy: "see why there is no checkpoint; it goes on when there was one".to_owned(),
            },
        }
    }
}

/// Why nothing could be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system.
    #[error("cannot {doing}: {cause}; look at the limits of this process and at the memory that is free")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the system says.
        cause: io::Error,
    },
}

impl StartError {
    /// Whether it may go away by itself, or be mended while the server runs: then the server starts and tries again and again.
    /// An operator who is there to read it gets all else as an answer to the start.
    pub(crate) fn may_heal(&self) -> bool {
        match self {
            Self::Journal(JournalError::Disk(fault)) => kind_may_heal(fault.kind()),
            Self::Journal(JournalError::Folder { cause, .. }) => kind_may_heal(cause.kind()),
            Self::Journal(JournalError::Changed { .. }) => true,
            Self::Store(error) => {
                matches!(error, StoreError::Full { .. } | StoreError::Disk { .. } | StoreError::Locked { .. })
            }
            _ => false,
        }
    }
}

fn kind_may_heal(kind: io::ErrorKind) -> bool {
    use io::ErrorKind;
    !matches!(
        kind,
        ErrorKind::PermissionDenied | ErrorKind::NotADirectory | ErrorKind::NotFound | ErrorKind::InvalidInput
    )
}
