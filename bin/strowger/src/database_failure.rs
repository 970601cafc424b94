//! Failure of a shared database, with its cause and start.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use strowger_control::protocol;

/// Failure state, set by a database thread and shown in the status.
#[derive(Default)]
pub(crate) struct DatabaseFailure(Mutex<Option<(String, Instant)>>);

impl DatabaseFailure {
    /// Records that the database fails for this reason. Returns the previous reason, if it was failing already.
    pub(crate) fn begin(&self, why: &str) -> Option<String> {
        let mut failure = self.lock();
        let (before, since) = failure.take().unzip();
        *failure = Some((why.to_owned(), since.unwrap_or_else(Instant::now)));
        before
    }

    /// Records that the database works. Returns the duration of the failure, if there was one.
    pub(crate) fn end(&self) -> Option<Duration> {
        self.lock().take().map(|(_, since)| since.elapsed())
    }

    /// Returns the state for `strowger ctl status`.
    pub(crate) fn status(&self, databases: Vec<String>) -> protocol::Database {
        let (why, since) = self.lock().clone().unzip();
        protocol::Database { databases, trouble: why, trouble_s: since.map(|since| since.elapsed().as_secs_f64()) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(String, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
