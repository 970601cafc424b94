//! A plan in sentences, and its formulas.

use super::demand::Demand;
use super::needs::{FailoverMethod, Replication};
use super::{Plan, Stage};
use crate::explain::{Explain, Explanation};
use crate::units;

/// Why the plan is what it is.
pub(super) fn reasons(plan: &Plan, demand: &Demand<'_>) -> Vec<String> {
    let mut out = vec![load(plan)];
    out.push(stages(plan, demand));
    out.push(members(plan));
    out.extend(first_stage(plan));
    out.extend(fullest(plan));
    out.push(failure(plan));
    out
}

fn load(plan: &Plan) -> String {
    let traffic = &plan.traffic;
    format!(
        "{} subscribers who register every {} and call for {} send {} REGISTERs and {} calls, {} requests of calls; \
         that is work for {} cores without a pause.",
        units::number(traffic.subscribers),
        units::time(traffic.refresh_s),
        units::time(traffic.hold_s),
        units::rate(traffic.registers_per_s),
        units::rate(traffic.calls_per_s),
        units::rate(traffic.requests_per_s),
        units::number(plan.busy_cores)
    )
}

fn stages(plan: &Plan, demand: &Demand<'_>) -> String {
    let one = demand.second_limits(1, plan.members);
    let fullest = one.iter().max_by(|a, b| (a.used / a.allowed).total_cmp(&(b.used / b.allowed)));
    let Some(fullest) = fullest else { return String::new() };
    let (used, allowed) = (units::share(fullest.used), units::share(fullest.allowed));
    if plan.clusters == 1 {
        return format!(
            "No first stage is needed: one cluster serves everybody with {used} of its {}, where {allowed} may be used, so \
             nothing has to choose among clusters; DNS or the phones' own list lead to its members.",
            fullest.resource
        );
    }
    format!(
        "A first stage is needed: one cluster would have to use {used} of its {}, where {allowed} may be used; {} clusters \
         carry that, and each request has to be led to its user's cluster.",
        fullest.resource, plan.clusters
    )
}

fn members(plan: &Plan) -> String {
    let node = units::share(plan.profile.server.availability);
    let spare = match (plan.members, plan.needs.failover) {
        (1, _) => "a cluster is one server, without a spare".to_owned(),
        (many, FailoverMethod::Members) => {
            format!("{many} members of a cluster share its load, and without one of them the others still carry it")
        }
        (many, FailoverMethod::Client) => {
            format!("phones register with all {many} members of a cluster, of which any one carries it")
        }
        (many, FailoverMethod::Dns | FailoverMethod::Takeover) => {
            format!("one member of a cluster serves and {} stand by, any of which carries it", many - 1)
        }
    };
    format!(
        "With servers that are {node} available, {} servers are {} available together, {} asked: {spare}.",
        plan.servers,
        units::share(plan.availability.availability),
        units::share(plan.needs.availability)
    )
}

fn first_stage(plan: &Plan) -> Option<String> {
    if plan.first == 0 {
        return None;
    }
    let used = plan.limits.iter().filter(|limit| limit.stage == Stage::First);
    let fullest = used.max_by(|a, b| (a.used / a.allowed).total_cmp(&(b.used / b.allowed)))?;
    let spare = if plan.first > 1 { "without one of them the others use" } else { "it uses" };
    Some(format!(
        "The first stage is {}: {spare} {} of their {}.",
        plan.first,
        units::share(fullest.used),
        fullest.resource
    ))
}

fn fullest(plan: &Plan) -> Option<String> {
    let first = plan.limits.first()?;
    let room = if first.carries_subscribers.is_finite() {
        format!("; these servers would carry {} such subscribers", units::number(first.carries_subscribers.floor()))
    } else {
        String::new()
    };
    Some(format!(
        "What limits first is the {} of the {}: {} with one server of the group gone, where {} may be used{room}.",
        first.resource,
        first.stage,
        units::share(first.used),
        units::share(first.allowed)
    ))
}

fn failure(plan: &Plan) -> String {
    let failover = &plan.failover;
    let passed_on = match plan.needs.replication {
        Replication::Copies => "passed on to the others",
        Replication::Store => "written to the other databases",
    };
    format!(
        "A call that meets a failed server is set up {} later. A phone's first registration is lost if its server fails before \
         it is {passed_on} (probability {}); then the phone cannot be called for at most {}.",
        units::time(plan.needs.client_retry_s),
        units::number(failover.lost_registration_with_cache),
        units::time(failover.unreachable_s)
    )
}

impl Explain for Plan {
    fn explain(&self) -> Explanation {
        let mut out = self.traffic.explain().step(
            ("busy cores", "the work of a second, in core seconds"),
            "λ_R·C_register + λ_C·((1 − f_s)·C_stateless + f_s·C_stateful) + copies, challenges, first stage",
            format!("f_s = {}, costs of the profile {}", units::number(self.needs.stateful_share), self.profile.name),
            units::number(self.busy_cores),
            "Singh and Schulzrinne, failover paper, section 5.4, with times in place of capacities",
        );
        for limit in &self.limits {
            out = out.step(
                ("u", format!("{} of the {}", limit.resource, limit.stage).as_str()),
                "what is asked of the busiest with one of its group gone / what it has",
                format!("S = {}, P = {}, B = {}", self.first, self.clusters, self.members),
                format!("{}, allowed {}", units::share(limit.used), units::share(limit.allowed)),
                "Singh and Schulzrinne, failover paper, section 4.5: λ/P to each cluster",
            );
        }
        out.then(self.availability.explain()).then(self.failover.explain())
    }
}
