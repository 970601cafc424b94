//! Users and gateways in a shared database: a thread copies them to the server's file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use strowger_control::protocol;
use strowger_sql::DatabaseUrl;
use strowger_store::{AnyBackend, Replicator, StoreError, SyncResult, UserStore};

use crate::database_failure::DatabaseFailure;

/// Interval between checks for changes, and delay after a failure.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Maximum time that a caller waits for an immediate check.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// The database and the thread that follows it. Dropping this ends the thread after its current check. Nothing waits
/// for that: a database may hang, and each check is applied to the file completely or not at all.
pub(crate) struct SharedUsers {
    urls: Vec<DatabaseUrl>,
    path: PathBuf,
    trouble: Arc<DatabaseFailure>,
    /// Requests for an immediate check, each with a channel for its completion.
    look: SyncSender<SyncSender<()>>,
}

impl SharedUsers {
    /// Copies the first writable database of `urls` to the file at `path`, reusing `known` if it does that already.
    /// `None` without `urls`.
    pub(crate) fn follow(
        urls: Vec<DatabaseUrl>,
        path: &Path,
        known: Option<Arc<Self>>,
    ) -> Result<Option<Arc<Self>>, StoreError> {
        match known.filter(|known| known.urls == urls && known.path == path) {
            None if urls.is_empty() => Ok(None),
            None => Ok(Some(Arc::new(Self::start(urls, path.to_owned())?))),
            known => Ok(known),
        }
    }

    /// Updates the file if the database answers, and continues to do so.
    fn start(urls: Vec<DatabaseUrl>, path: PathBuf) -> Result<Self, StoreError> {
        let copier = Replicator::new(&urls, &path)?;
        let trouble = Arc::default();
        let mut follower =
            Follower { copier, path: path.clone(), refused: BTreeSet::new(), trouble: Arc::clone(&trouble) };
        follower.look();
        let (look, asked) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name("users".to_owned()).spawn(move || follower.run(&asked));
        thread.map_err(|cause| StoreError::File { path: path.clone(), doing: "followed", cause })?;
        Ok(Self { urls, path, trouble, look })
    }

    /// Checks for changes and returns once they are in the file, or after a timeout.
    pub(crate) fn look(&self) {
        let (done, is_done) = mpsc::sync_channel(1);
        if self.look.try_send(done).is_ok() {
            is_done.recv_timeout(LOOK_LIMIT).ok();
        }
    }

    /// Opens the database that commands write to.
    pub(crate) fn store(&self) -> Result<UserStore<AnyBackend>, StoreError> {
        Ok(UserStore::connect(&self.urls)?.into())
    }

    pub(crate) fn status(&self) -> protocol::Database {
        self.trouble.status(self.urls.iter().map(ToString::to_string).collect())
    }
}

/// State of the thread.
struct Follower {
    copier: Replicator,
    path: PathBuf,
    /// Rows that were left out, to avoid repeated reports.
    refused: BTreeSet<String>,
    trouble: Arc<DatabaseFailure>,
}

impl Follower {
    fn run(mut self, asked: &Receiver<SyncSender<()>>) {
        let mut wait = LOOK_EVERY;
        loop {
            let done = match asked.recv_timeout(wait) {
                Ok(done) => Some(done),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            wait = if self.look() { LOOK_EVERY } else { RETRY_AFTER };
            if let Some(done) = done {
                // The caller may have given up.
                done.try_send(()).ok();
            }
        }
    }

    /// Returns whether the check succeeded.
    fn look(&mut self) -> bool {
        match self.copier.sync() {
            Ok(copied) => {
                if let SyncResult::Updated { refused } = copied {
                    self.report_refused(refused);
                }
                if let Some(lasted) = self.trouble.end() {
                    tracing::info!("users and gateways are followed again, after {:.1} s", lasted.as_secs_f64());
                }
                true
            }
            Err(error) => {
                let why = error.to_string();
                if self.trouble.begin(&why).as_ref() != Some(&why) {
                    tracing::error!("users and gateways stay as in {}: {why}", self.path.display());
                }
                false
            }
        }
    }

    fn report_refused(&mut self, refused: BTreeSet<String>) {
        for why in refused.difference(&self.refused) {
            tracing::error!("users and gateways: a row of the shared database is ignored: {why}");
        }
        self.refused.extend(refused);
    }
}
