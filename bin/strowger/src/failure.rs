//! Failures of commands, with their exit codes.

use std::process::ExitCode;
use std::{fmt, io};

use strowger_control::config::ConfigError;
use strowger_persistence::{BackupError, StartError};
use strowger_store::{ErrorOwner, StoreError};

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command ran and the answer is no: exit code 1.
    No(String),
    /// Invalid arguments or configuration: exit code 2.
    Usage(String),
    /// Failed output: exit code 1.
    Output(io::Error),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::No(_) | Self::Output(_) => ExitCode::from(1),
            Self::Usage(_) => ExitCode::from(2),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::No(message) | Self::Usage(message) => f.write_str(message),
            Self::Output(error) => write!(f, "the output cannot be written: {error}"),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let is_argument = matches!(
            error,
            StoreError::BadAddress { .. }
                | StoreError::BadRealm { .. }
                | StoreError::BadPassword { .. }
                | StoreError::BadSet { .. }
                | StoreError::BadGateway { .. }
                | StoreError::NotAFile { .. }
        );
        debug_assert!(!is_argument || error.owner() != ErrorOwner::Program);
        if is_argument { Self::Usage(error.to_string()) } else { Self::No(error.to_string()) }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Store(error) => error.into(),
            other => Self::No(other.to_string()),
        }
    }
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Store(error) => error.into(),
            BackupError::Open(error) => error.into(),
            other => Self::No(other.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
