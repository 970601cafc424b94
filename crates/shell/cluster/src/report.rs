//! Status reports: to the operator, and of live members to the location table.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_members::Status;
use strowger_registrar::{Locations, MemberId};
use tokio::sync::watch;

use crate::log::StatusLog;

/// How long another member counts as alive because the process before this one has said so.
const INHERITED_FOR: Duration = Duration::from_secs(2);

/// Reports status changes.
pub(crate) struct Reporter {
    locations: Arc<Locations>,
    publish: watch::Sender<Status>,
    log: StatusLog,
    /// Other live members last reported to the table.
    alive: Vec<(MemberId, SocketAddr)>,
    /// Members that the process before this one has reported, until they are heard of.
    inherited: Vec<(MemberId, SocketAddr)>,
    inherited_until: Timestamp,
}

impl Reporter {
    pub(crate) fn new(locations: Arc<Locations>, publish: watch::Sender<Status>, now: Timestamp) -> Self {
        let inherited = locations.live_members();
        Self {
            locations,
            publish,
            log: StatusLog::default(),
            alive: inherited.clone(),
            inherited,
            inherited_until: now + INHERITED_FOR,
        }
    }

    pub(crate) fn report(&mut self, now: Timestamp, status: Status) {
        self.log.report(now, &status);
        let heard_of = status.others.iter().filter(|other| other.is_alive);
        let mut alive: Vec<_> = heard_of.filter_map(|other| Some((other.member, other.address?))).collect();
        if now < self.inherited_until {
            let known: Vec<MemberId> = alive.iter().map(|(member, _)| *member).collect();
            alive.extend(self.inherited.iter().filter(|(member, _)| !known.contains(member)));
        }
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
