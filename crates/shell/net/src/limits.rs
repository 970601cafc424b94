//! What the system lets the process have: files, and the processor when it is needed.

use std::io;
use std::time::Duration;

use crate::sys;

/// Raises the limit of open files as far as the system allows without privilege, and returns it. Each connection is one.
///
/// # Errors
/// What the system said; then the limit is as it was.
pub fn raise_open_files() -> io::Result<u64> {
    sys::raise_open_files()
}

/// Asks that the calling thread have the processor in short slices, of 0.1 ms and longer: its share of it stays the same, but
/// when it wakes it need not wait until others have used up their own, longer slices. Needs no privilege; a thread that an
/// operator has put under another policy than the usual one is left alone, and kernels before 6.12 take no notice.
///
/// # Errors
/// What the system said; then all is as it was.
pub fn shorten_slice(slice: Duration) -> io::Result<()> {
    sys::set_slice(u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX))
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
    fn a_thread_may_have_short_slices() {
        std::thread::spawn(|| shorten_slice(Duration::from_micros(100)).expect("no privilege is needed"))
            .join()
            .expect("it does not panic");
    }

    #[test]
    fn the_limit_is_raised_once_and_for_all() {
        let limit = raise_open_files().expect("a limit");
        assert!(limit >= 64);
        assert_eq!(raise_open_files().expect("a limit"), limit);
    }
}
