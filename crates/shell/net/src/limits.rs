//! Process limits: open files and CPU scheduling.

use std::io;
use std::time::Duration;

use crate::scheduling::{Policy, Scheduling};
use crate::sys;

/// Raises the soft limit on open files as far as possible without privilege and returns it. Each connection uses one
/// file.
///
/// # Errors
/// When the system refuses; the limit is unchanged.
pub fn raise_open_files() -> io::Result<u64> {
    sys::raise_open_files()
}

/// Requests short scheduler slices for the calling thread, at least 0.1 ms.
///
/// The thread's share of CPU time stays the same, but after a wake-up it need not wait for others to finish their
/// longer slices. Needs no privilege. A thread under a non-default scheduling policy is left alone; kernels before
/// 6.12 ignore the request.
///
/// # Errors
/// When the system refuses; nothing is changed.
pub fn shorten_slice(slice: Duration) -> io::Result<()> {
    let current = Scheduling::of(0)?;
    if !matches!(current.policy, Policy::Other | Policy::Batch) {
        return Ok(());
    }
    Scheduling { slice_ns: u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX), ..current }.set(0)
}

/// Returns whether an error means that the process or the system has reached its limit of open files.
#[must_use]
pub fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_shorten_its_slice() {
        std::thread::spawn(|| shorten_slice(Duration::from_micros(100)).expect("no privilege is needed"))
            .join()
            .expect("it does not panic");
    }

    #[test]
    fn the_open_file_limit_is_raised_once() {
        let limit = raise_open_files().expect("a limit");
        assert!(limit >= 64);
        assert_eq!(raise_open_files().expect("a limit"), limit);
    }
}
