//! Failures, described for the operator.

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
                remedy: "find out why there is no checkpoint; registrations resume after the next one".to_owned(),
            },
        }
    }
}

/// Why a start failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An error of the journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of the operating system.
    #[error("cannot {doing}: {cause}; check the limits of this process and the free memory")]
    System {
        /// What was attempted.
        doing: &'static str,
        /// The error of the system.
        cause: io::Error,
    },
}

impl StartError {
    /// Returns whether the condition may resolve without a restart. If so, the server starts and keeps retrying; all
    /// other errors are returned to the operator at startup.
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
