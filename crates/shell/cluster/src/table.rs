//! State that other members' changes apply to: location table and nonces.

use std::sync::Arc;

use strowger_auth::NonceWindows;
use strowger_foundation::Timestamp;
use strowger_registrar::{Locations, Record};
use tokio::sync::Notify;

use crate::{Clock, ClusterConfig};

/// Location table and nonces.
#[derive(Clone)]
pub(crate) struct SharedState {
    pub(crate) locations: Arc<Locations>,
    pub(crate) nonces: Arc<NonceWindows>,
    pub(crate) now: Clock,
}

impl SharedState {
    pub(crate) fn new(config: &ClusterConfig) -> Self {
        let (locations, nonces) = (Arc::clone(&config.locations), Arc::clone(&config.nonces));
        Self { locations, nonces, now: Arc::clone(&config.now) }
    }

    /// Sets `wake` to be notified when nonces have been used.
    pub(crate) fn set_waker(&self, wake: &Arc<Notify>) {
        let wake = Arc::clone(wake);
        self.nonces.on_use(move || wake.notify_one());
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// Applies a record. Returns the present state if a change in it was given another version.
    pub(crate) fn put(&self, record: &[u8]) -> Option<Box<[u8]>> {
        if self.nonces.handle_uses(self.now(), record) {
            return None;
        }
        let record = Record::parse(record).ok()?;
        let now = self.now();
        if !self.locations.put_remote(now, &record) {
            return None;
        }
        let mut known = Vec::new();
        self.locations.write_current_changes(now, &record, &mut known);
        Some(known.into())
    }
}
