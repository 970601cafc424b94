//! Why a database that servers share cannot be used, and since when.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use strowger_control::protocol;

/// What a thread says of its database, and a status shows.
#[derive(Default)]
pub(crate) struct DatabaseFailure(Mutex<Option<(String, Instant)>>);

impl DatabaseFailure {
    /// It cannot be used for this reason; what the reason was before, where it could not be used either.
    pub(crate) fn begin(&self, why: &str) -> Option<String> {
        let mut trouble = self.lock();
        let (before, since) = trouble.take().unzip();
        *trouble = Some((why.to_owned(), since.unwrap_or_else(Instant::now)));
        before
    }

    /// It can be used; for how long it could not, where it could not.
    pub(crate) fn end(&self) -> Option<Duration> {
        self.lock().take().map(|(_, since)| since.elapsed())
    }

    /// The same for `strowger ctl status`.
    pub(crate) fn status(&self, databases: Vec<String>) -> protocol::Database {
        let (why, since) = self.lock().clone().unzip();
        protocol::Database { databases, trouble: why, trouble_s: since.map(|since| since.elapsed().as_secs_f64()) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(String, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
