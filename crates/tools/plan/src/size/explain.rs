//! A plan in sentences, and its formulas.

use super::demand::{Demand, UnitCosts};
use super::needs::{FailoverMethod, Replication};
use super::{Plan, Resource, Stage};
use crate::explain::{Explain, Explanation};
use crate::units::{self, brief};

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
        "{} subscribers who register every {} and call for {} send {} REGISTERs and {} calls a second, {} requests of calls; \
         that is work for {} cores without a pause.",
        brief::count(traffic.subscribers),
        brief::time(traffic.refresh_s),
        brief::time(traffic.hold_s),
        brief::number(traffic.registers_per_s),
        brief::number(traffic.calls_per_s),
        brief::number(traffic.requests_per_s),
        brief::number(plan.busy_cores)
    )
}

fn stages(plan: &Plan, demand: &Demand<'_>) -> String {
    let one = demand.second_limits(1, plan.members);
    let fullest = one.iter().max_by(|a, b| (a.used / a.allowed).total_cmp(&(b.used / b.allowed)));
    let Some(fullest) = fullest else { return String::new() };
    let (used, allowed) = (brief::share(fullest.used), brief::share(fullest.allowed));
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
    let node = brief::share(plan.profile.server.availability);
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
        brief::share(plan.availability.availability),
        brief::share(plan.needs.availability)
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
        brief::share(fullest.used),
        fullest.resource
    ))
}

fn fullest(plan: &Plan) -> Option<String> {
    let first = plan.limits.first()?;
    let room = if first.carries_subscribers.is_finite() {
        format!("; these servers would carry {} such subscribers", brief::count(first.carries_subscribers))
    } else {
        String::new()
    };
    Some(format!(
        "What limits first is the {} of the {}: {} with one server of the group gone, where {} may be used{room}.",
        first.resource,
        first.stage,
        brief::share(first.used),
        brief::share(first.allowed)
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
        brief::time(plan.needs.client_retry_s),
        brief::number(failover.lost_registration_with_cache),
        brief::time(failover.unreachable_s)
    )
}

impl Explain for Plan {
    fn explain(&self) -> Explanation {
        let mut out = self.traffic.explain().then(work(self)).step(
            ("busy cores", "the work of a second, in core seconds"),
            "λ_R·C_R + λ_C·C_C + copies, stores, first stage",
            format!(
                "{} + {} + …",
                units::time(self.traffic.registers_per_s * unit_costs(self).register_s),
                units::time(self.traffic.calls_per_s * unit_costs(self).call_s)
            ),
            units::number(self.busy_cores),
            STAGES,
        );
        for limit in &self.limits {
            let meaning = format!(
                "{} of the {}: what is asked of the busiest with one of its group gone, of what it has",
                limit.resource, limit.stage
            );
            let show = match limit.resource {
                Resource::Cpu => units::number,
                Resource::Memory => units::bytes,
                Resource::Network => units::bandwidth,
                Resource::Store => units::time,
            };
            out = out.step(
                ("u", meaning.as_str()),
                "asked / has",
                format!("{} / {}", show(limit.asked), show(limit.has)),
                format!("{}, allowed {}", units::share(limit.used), units::share(limit.allowed)),
                STAGES,
            );
        }
        out.then(self.availability.explain()).then(self.failover.explain())
    }
}

fn unit_costs(plan: &Plan) -> UnitCosts {
    UnitCosts::of(&plan.needs, &plan.profile)
}

/// What one REGISTER and one call take.
fn work(plan: &Plan) -> Explanation {
    let (needs, costs, unit) = (&plan.needs, &plan.profile.costs, unit_costs(plan));
    let source =
        format!("the failover paper's section 5.4, with times in place of capacities; profile {}", plan.profile.name);
    let challenge = units::time(unit.challenge_s);
    Explanation::new()
        .step(
            ("C_R", "a core's time for a REGISTER"),
            "C_register + challenged·C_challenge",
            format!("{} + {} × {challenge}", units::time(costs.register_s), units::number(needs.challenged_share)),
            units::time(unit.register_s),
            &source,
        )
        .step(
            ("C_C", "a core's time for a call"),
            "(1 − f_s)·C_stateless + f_s·C_stateful + further·C_request + challenged·C_challenge",
            format!(
                "(1 − {f}) × {} + {f} × {} + {} × {} + {} × {challenge}",
                units::time(costs.stateless_call_s),
                units::time(costs.stateful_call_s),
                units::number(needs.further_requests_per_call),
                units::time(costs.request_s),
                units::number(needs.challenged_calls_share),
                f = units::number(needs.stateful_share),
            ),
            units::time(unit.call_s),
            &source,
        )
}

const STAGES: &str = "Singh and Schulzrinne, failover paper, section 4.5: λ/P to each cluster";
