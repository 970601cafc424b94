//! What the system lets the process open.

use std::io;

use crate::sys;

/// Raises the limit of open files as far as the system allows without privilege, and returns it. Each connection is one.
///
/// # Errors
/// What the system said; then the limit is as it was.
pub fn raise_open_files() -> io::Result<u64> {
    sys::raise_open_files()
}

/// Whether an error says that this process, or the system, may not open one file more.
#[must_use]
pub fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_once_and_for_all() {
        let limit = raise_open_files().expect("a limit");
        assert!(limit >= 64);
        assert_eq!(raise_open_files().expect("a limit"), limit);
    }
}
