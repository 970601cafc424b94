//! Errors of applying and undoing, for the one who reads them at night.

use std::fmt;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// Why a value was not set or the state file not used.
#[derive(Debug)]
pub enum TuneError {
    /// A value cannot be read or set.
    Setting {
        /// The place, as its text.
        place: String,
        /// The value that was to be set; `None` when it was read.
        value: Option<String>,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The kernel accepted a value but kept another.
    NotKept {
        /// The place.
        place: String,
        /// The value that was set.
        wanted: String,
        /// The value it has.
        found: String,
    },
    /// The state file cannot be used.
    State {
        /// The file.
        file: PathBuf,
        /// What failed.
        doing: &'static str,
        /// The cause.
        cause: io::Error,
    },
    /// Another run uses the state file.
    Busy(PathBuf),
    /// The state file contains something else.
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl TuneError {
    pub(crate) fn reading(place: &impl fmt::Display, cause: io::Error) -> Self {
        Self::Setting { place: place.to_string(), value: None, cause }
    }

    pub(crate) fn setting(place: &impl fmt::Display, value: &str, cause: io::Error) -> Self {
        Self::Setting { place: place.to_string(), value: Some(value.to_owned()), cause }
    }

    pub(crate) fn state(file: impl Into<PathBuf>, doing: &'static str, cause: io::Error) -> Self {
        Self::State { file: file.into(), doing, cause }
    }
}

impl fmt::Display for TuneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting { place, value, cause } => {
                match value {
                    Some(value) => write!(f, "{place} cannot be set to {value}: {cause}")?,
                    None => write!(f, "{place} cannot be read: {cause}")?,
                }
                f.write_str(remedy(cause))
            }
            Self::NotKept { place, wanted, found } => write!(
                f,
                "{place} was set to {wanted} but is {found}: the kernel limits it, or another program sets it too"
            ),
            Self::State { file, doing, cause } => write!(
                f,
                "{}: {doing}: {cause}; nothing is changed without a record of former values: run this as root, or give \
                 a file that can be written with --state FILE",
                file.display()
            ),
            Self::Busy(file) => {
                write!(
                    f,
                    "{}: another `strowger tune` is applying or undoing; try again when it has ended",
                    file.display()
                )
            }
            Self::Damaged { file, why } => write!(
                f,
                "{}: this is not a record of changes ({why}); nothing was changed: move the file away, or give another \
                 one with --state FILE",
                file.display()
            ),
        }
    }
}

impl std::error::Error for TuneError {}

/// Returns what to do about an error of the kernel, after a semicolon.
fn remedy(cause: &io::Error) -> &'static str {
    match Errno::from_io_error(cause) {
        Some(Errno::PERM | Errno::ACCESS) => {
            "; run this as root (sudo). If it is root, this is a container without the privilege: set it on the host. For \
             fifo and rr, the control group of the process may also lack real-time budget (cpu.rt_runtime_us)"
        }
        Some(Errno::ROFS) => {
            "; it is mounted read-only, as in containers: set it on the host, or start the container with --sysctl or \
             --privileged"
        }
        Some(Errno::INVAL | Errno::RANGE) => "; this kernel rejects the value",
        Some(Errno::BUSY) => "; the kernel does not allow it now",
        Some(Errno::IO) => "; the device does not support it",
        Some(Errno::NOENT) => "; this kernel has no such setting",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_place_and_the_remedy() {
        let place = "/proc/sys/net/core/rmem_max";
        let error = |code: Errno| TuneError::setting(&place, "1", code.into()).to_string();
        assert!(error(Errno::ACCESS).starts_with("/proc/sys/net/core/rmem_max cannot be set to 1: Permission denied"));
        assert!(error(Errno::ACCESS).contains("run this as root"));
        assert!(error(Errno::ROFS).contains("start the container with --sysctl"));
        assert!(error(Errno::INVAL).contains("rejects the value"));
        assert!(TuneError::reading(&place, Errno::NOENT.into()).to_string().contains("has no such setting"));
    }
}
