//! Operators' requests about balancers' targets.

use strowger_control::protocol::{ChangedTarget, Request, Response, Target, Targets};
use strowger_shard::Snapshot;

use super::Server;
use crate::balancing::TargetMatch;
use crate::status;

/// Duration of a change, in the protocol.
const KEPT: &str = "kept";
const UNTIL_RELOAD: &str = "until reload";
const UNTIL_RESTART: &str = "until restart";
/// Reported if nothing changed.
const NOTHING_NEW: &str = "as before";

impl Server {
    /// Lists the targets.
    pub(super) fn targets(&self, set: Option<&str>) -> Result<Targets, String> {
        let now = self.clock.now();
        let outages = status::outages(self.fleet.outages(), &self.snapshot, &self.resolver, now);
        let targets = self.balancing.targets(now, set, &outages);
        let is_known = |set: &str| self.config.balancers.iter().any(|balancer| balancer.name == set);
        match set {
            Some(set) if targets.is_empty() && !is_known(set) => {
                Err(format!("there is no balancer {set:?}; `strowger ctl targets` lists all"))
            }
            _ => Ok(Targets { targets }),
        }
    }

    /// Drains or undrains a target, or adds or removes it.
    ///
    /// # Errors
    /// The response to a request that is refused.
    pub(super) fn change_target(&mut self, request: &Request) -> Result<Box<ChangedTarget>, Response> {
        let now = self.clock.now();
        let (found, lasts) = match request {
            Request::Drain { target } | Request::Undrain { target } => {
                let found = self.balancing.find(target)?;
                let is_draining = matches!(request, Request::Drain { .. });
                if self.balancing.set_draining(&found, is_draining, now) {
                    let what = if is_draining { "gets no new calls" } else { "gets new calls again" };
                    tracing::info!(set = found.set, uri = found.uri, "operator: a target {what}");
                    (found, UNTIL_RESTART)
                } else {
                    (found, NOTHING_NEW)
                }
            }
            Request::AddTarget(new) => {
                let is_kept = self.balancing.add(&self.config, &self.users, new)?;
                self.publish_change(is_kept);
                let found = self.balancing.find(&format!("{}/{}", new.set, new.uri))?;
                tracing::info!(set = found.set, uri = found.uri, "the operator added a target to a balancer");
                (found, if is_kept { KEPT } else { UNTIL_RELOAD })
            }
            Request::RemoveTarget { target } => {
                let found = self.balancing.find(target)?;
                let before = self.target_status(&found);
                let is_kept = self.balancing.remove(&self.config, &self.users, &found)?;
                self.publish_change(is_kept);
                tracing::info!(set = found.set, uri = found.uri, "the operator removed a target from a balancer");
                let lasts = if is_kept { KEPT } else { UNTIL_RELOAD };
                return Ok(Box::new(ChangedTarget { target: before, lasts: lasts.to_owned() }));
            }
            _ => return Err(Response::Error("this request does not change a target".to_owned())),
        };
        Ok(Box::new(ChangedTarget { target: self.target_status(&found), lasts: lasts.to_owned() }))
    }

    /// Publishes a change to the shards, made in the database or here.
    fn publish_change(&mut self, is_in_database: bool) {
        if is_in_database {
            self.follow();
        } else {
            self.publish_routes();
        }
    }

    /// Rebuilds and publishes the sets if DNS answers have changed.
    pub(super) fn publish_targets(&mut self) {
        match self.balancing.rebuild(&self.config, self.users.directory().gateways()) {
            Ok(()) => self.publish_routes(),
            Err(why) => tracing::error!("targets are unchanged: {why}"),
        }
    }

    fn publish_routes(&mut self) {
        let routes = self.config.routes(self.snapshot.directory.gateways(), self.balancing.sets());
        let clusters = self.config.clusters(self.balancing.sets());
        self.publish(Snapshot { routes, clusters, ..Snapshot::clone(&self.snapshot) });
    }

    fn target_status(&self, found: &TargetMatch) -> Target {
        let id = found.id.to_string();
        let targets = self.balancing.targets(self.clock.now(), Some(&found.set), &[]);
        targets.into_iter().find(|target| target.id == id).unwrap_or_else(|| Target {
            // No set has it: it had no call.
            id,
            set: found.set.clone(),
            uri: found.uri.clone(),
            state: "removed".to_owned(),
            ..Target::default()
        })
    }
}
