//! Status reports: to the operator, and of live members to the location table.

use std::net::SocketAddr;
use std::sync::Arc;

use strowger_foundation::Timestamp;
use strowger_members::Status;
use strowger_registrar::{Locations, MemberId};
use tokio::sync::watch;

use crate::log::StatusLog;

/// Reports status changes.
pub(crate) struct Reporter {
    locations: Arc<Locations>,
    publish: watch::Sender<Status>,
    log: StatusLog,
    /// Other live members last reported to the table.
    alive: Vec<(MemberId, SocketAddr)>,
}

impl Reporter {
    pub(crate) fn new(locations: Arc<Locations>, publish: watch::Sender<Status>) -> Self {
        Self { locations, publish, log: StatusLog::default(), alive: Vec::new() }
    }

    pub(crate) fn report(&mut self, now: Timestamp, status: Status) {
        self.log.report(now, &status);
        let alive: Vec<_> = status.others.iter().filter(|other| other.is_alive).collect();
        let alive: Vec<_> = alive.into_iter().filter_map(|other| Some((other.member, other.address?))).collect();
        if alive != self.alive {
            self.locations.set_live_members(alive.clone());
            self.alive = alive;
        }
        self.publish.send_if_modified(|published| {
            let is_new = *published != status;
            *published = status;
            is_new
        });
    }
}
