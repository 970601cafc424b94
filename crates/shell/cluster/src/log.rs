//! Log messages about the members.

use std::collections::BTreeMap;

use strowger_foundation::Timestamp;
use strowger_members::Status;
use strowger_registrar::MemberId;

/// What was logged last.
#[derive(Debug, Default)]
pub(crate) struct StatusLog {
    failure_since: Option<Timestamp>,
    conflict: Option<String>,
    alive: BTreeMap<MemberId, bool>,
}

impl StatusLog {
    /// Logs what has changed.
    pub(crate) fn report(&mut self, now: Timestamp, status: &Status) {
        match (self.failure_since, &status.failure) {
            (None, Some(why)) => tracing::error!("cluster: registrations are not shared: {why}"),
            (Some(since), None) => {
                let lasted = now.saturating_since(since).as_secs_f64();
                tracing::info!("cluster: registrations are shared again after {lasted:.1} s");
            }
            _ => {}
        }
        self.failure_since = status.failure.as_ref().and(self.failure_since.or(status.failure_since).or(Some(now)));
        if self.conflict != status.conflict {
            match &status.conflict {
                Some(why) => tracing::error!("cluster: {why}"),
                None => tracing::info!("cluster: the members' configurations agree again"),
            }
            self.conflict.clone_from(&status.conflict);
        }
        for other in &status.others {
            let was_alive = self.alive.insert(other.member, other.is_alive).unwrap_or(false);
            let (member, address) = (other.member.get(), other.address.map(|address| address.to_string()));
            let address = address.unwrap_or_default();
            match (was_alive, other.is_alive) {
                (false, true) => tracing::info!("cluster: member {member} is alive, at {address}"),
                (true, false) => tracing::warn!("cluster: member {member} at {address} sends no heartbeat"),
                _ => {}
            }
        }
    }
}
