//! A plan in sentences.

use super::demand::Demand;
use super::requirements::{CONNECTIONS_FOR_PHONES, DEFAULT_CONNECTIONS, FailoverMethod, Replication};
use super::{Plan, Resource, Stage};
use crate::traffic::Calls;
use crate::units::{bandwidth, brief};

/// Returns warnings about inputs that are probably mistakes.
pub(super) fn caveats(plan: &Plan) -> Vec<String> {
    let mut out = Vec::new();
    if let Calls::Erlangs(each) = plan.requirements.calls
        && each > 1.0
    {
        out.push(format!(
            "CAUTION: {} erlangs per subscriber are more than one call at a time for the whole hour; give the calls of all subscribers as --bhca.",
            brief::number(each)
        ));
    }
    let node = plan.profile.server.availability;
    if node < POOR {
        out.push(format!(
            "CAUTION: a server that is {} available is down {} of the time; failures follow one another so closely then that the \
             formulas, which take repairs for quick, say little.",
            brief::share(node),
            brief::share(1.0 - node)
        ));
    }
    out
}

/// Availability below which repairs are not short compared with the time between failures.
const POOR: f64 = 0.9;

/// Returns the reasons for the plan.
pub(super) fn of(plan: &Plan, demand: &Demand<'_>) -> Vec<String> {
    let mut out: Vec<String> = spares(plan).into_iter().collect();
    out.push(load(plan));
    out.extend(keep_alives(plan));
    out.extend(engine(plan));
    out.push(stages(plan, demand));
    out.push(members(plan));
    out.extend(first_stage(plan));
    out.extend(fullest(plan));
    out.extend(low_load(plan));
    out.extend(connections(plan));
    out.extend(storm(plan));
    out.push(failure(plan));
    out.retain(|reason| !reason.is_empty());
    out
}

fn spares(plan: &Plan) -> Option<String> {
    (plan.servers > plan.servers_for_load).then(|| {
        format!("The availability requires {}; the load alone needs {}.", servers(plan.servers), plan.servers_for_load)
    })
}

fn servers(count: u32) -> String {
    if count == 1 { "1 server".to_owned() } else { format!("{} servers", brief::number(f64::from(count))) }
}

fn load(plan: &Plan) -> String {
    let traffic = &plan.traffic;
    format!(
        "{} subscribers who register every {} and call for {} send {} REGISTERs and {} calls a second, {} requests of calls; \
         this keeps {} cores fully busy.",
        brief::count(traffic.subscribers),
        brief::time(traffic.refresh_s),
        brief::time(traffic.hold_s),
        brief::number(traffic.registers_per_s),
        brief::number(traffic.calls_per_s),
        brief::number(traffic.requests_per_s),
        brief::number(plan.busy_cores)
    )
}

fn keep_alives(plan: &Plan) -> Option<String> {
    (plan.keep_alives_per_s > 0.0).then(|| {
        format!(
            "{} keep-alives a second, an empty line every {} to each phone behind a NAT, are {} times the SIP messages. What one \
             costs was not measured: it counts as a forwarded message, which costs more, and so they are at most {} of the busy cores.",
            brief::count(plan.keep_alives_per_s),
            brief::time(plan.requirements.keep_alive_s),
            brief::number(plan.keep_alives_per_s / plan.messages_per_s),
            brief::share(plan.work.keep_alives / plan.busy_cores)
        )
    })
}

fn engine(plan: &Plan) -> Option<String> {
    let engine = plan.engine?;
    let of = if plan.clusters > 1 { " of the busiest cluster" } else { "" };
    Some(format!(
        "Members write {} changes a second to the engine{of}, {}; the others read {} from it together.",
        brief::number(engine.changes_per_s),
        bandwidth(engine.in_bits_per_s),
        bandwidth(engine.out_bits_per_s)
    ))
}

fn stages(plan: &Plan, demand: &Demand<'_>) -> String {
    let one = demand.second_limits(1, plan.members);
    let fullest = one.iter().max_by(|a, b| (a.used / a.allowed).total_cmp(&(b.used / b.allowed)));
    let Some(fullest) = fullest else { return String::new() };
    let (used, allowed) = (brief::share(fullest.used), brief::share(fullest.allowed));
    let resource = fullest.resource;
    if plan.servers == 1 {
        return format!(
            "No first stage is needed: the server serves everybody with {used} of its {resource}, where {allowed} may be used."
        );
    }
    if plan.clusters == 1 {
        return format!(
            "No first stage is needed: one cluster serves everybody with {used} of its {resource}, where {allowed} may be used, so \
             nothing has to choose among clusters; DNS or the phones' own list lead to its members.",
        );
    }
    format!(
        "A first stage is needed: one cluster would have to use {used} of its {resource}, where {allowed} may be used; {} clusters \
         carry that, and each request has to be led to its user's cluster.",
        plan.clusters
    )
}

fn members(plan: &Plan) -> String {
    let node = brief::share(plan.profile.server.availability);
    let asked = if plan.requirements.availability > 0.0 {
        format!("{} is asked", brief::all_but(1.0 - plan.requirements.availability))
    } else {
        "and no more is asked".to_owned()
    };
    if plan.servers == 1 {
        return format!("The server is {node} available, {asked}: it has no spare.");
    }
    let spare = match (plan.members, plan.requirements.failover) {
        (1, _) => "a cluster is one server, without a spare".to_owned(),
        (many, FailoverMethod::Members) => {
            format!("{many} members of a cluster share its load, and without one of them the others still carry it")
        }
        (many, FailoverMethod::Client) => {
            format!("phones register with all {many} members of a cluster, of which any one carries it")
        }
        (many, FailoverMethod::Dns | FailoverMethod::Takeover) => {
            let spares = if many == 2 { "one stands".to_owned() } else { format!("{} stand", many - 1) };
            format!("one member of a cluster serves and {spares} by, any of which carries it")
        }
    };
    format!(
        "With servers that are {node} available, {} are {} available together, {asked}: {spare}. That takes failures for \
         independent of each other: power, a bad configuration or a bad release take all of them at once, and are in no formula.",
        servers(plan.servers),
        brief::all_but(plan.availability.unavailability),
    )
}

fn first_stage(plan: &Plan) -> Option<String> {
    if plan.first == 0 {
        return None;
    }
    let used = plan.limits.iter().filter(|limit| limit.stage == Stage::First);
    let fullest = used.max_by(|a, b| (a.used / a.allowed).total_cmp(&(b.used / b.allowed)))?;
    let spare = if plan.first > 1 { "without one of them the others use" } else { "it uses" };
    let whose = if plan.first > 1 { "their" } else { "its" };
    Some(format!(
        "The first stage is {}: {spare} {} of {whose} {}.",
        servers(plan.first),
        brief::share(fullest.used),
        fullest.resource
    ))
}

fn fullest(plan: &Plan) -> Option<String> {
    let first = plan.limits.first()?;
    let those = if plan.servers == 1 { "this server" } else { "these servers" };
    let room = if first.carries_subscribers.is_finite() {
        format!("; {those} would carry {} such subscribers", brief::count(first.carries_subscribers))
    } else {
        String::new()
    };
    let group = if first.stage == Stage::First { plan.first } else { plan.members };
    let gone = if group > 1 { " with one server of the group gone" } else { "" };
    Some(format!(
        "What limits first is the {} of the {}: {}{gone}, where {} may be used{room}.",
        first.resource,
        first.stage,
        brief::share(first.used),
        brief::share(first.allowed)
    ))
}

/// Warns that costs are measured at saturation, where a packet is cheapest.
fn low_load(plan: &Plan) -> Option<String> {
    let fullest = plan.limits.iter().filter(|limit| limit.resource == Resource::Cpu).map(|limit| limit.used);
    let used = fullest.fold(0.0, f64::max);
    (used < LITTLE).then(|| {
        format!(
            "The costs are those of a busy server, and these cores work {} of their time: at a tenth of the load or less a call costs two \
             to four times as much (docs/operating/capacity.md), so up to {} cores may be seen busy. That takes nothing from what they carry.",
            brief::share(used),
            brief::number(IDLE_COSTS * plan.busy_cores)
        )
    })
}

/// Utilization far below saturation.
const LITTLE: f64 = 0.1;
/// Highest cost of a call at low load relative to saturation, as in docs/operating/capacity.md.
const IDLE_COSTS: f64 = 4.0;

fn connections(plan: &Plan) -> Option<String> {
    let connections = plan.connections_per_server;
    (connections > 0.0).then(|| {
        let wanted = (connections / CONNECTIONS_FOR_PHONES).ceil();
        let setting = if wanted > DEFAULT_CONNECTIONS {
            format!(
                "tcp.connections there has to be {} at least (it is {} where nobody sets it), and the limit of open files (LimitNOFILE) \
                 above that",
                brief::number(wanted),
                brief::number(DEFAULT_CONNECTIONS)
            )
        } else {
            format!("tcp.connections allows {} where nobody sets it", brief::number(DEFAULT_CONNECTIONS))
        };
        let group = if plan.first > 0 { plan.first } else { plan.members };
        let gone = if group > 1 { " when one of its group has failed" } else { "" };
        format!(
            "A server has up to {} connections{gone}: {setting}. What the kernel keeps for each socket is not in the memory above.",
            brief::count(connections)
        )
    })
}

fn storm(plan: &Plan) -> Option<String> {
    let storm = plan.avalanche?;
    Some(format!(
        "After an outage of everything all {} phones register again: that takes these servers {} at least, beside the calls and without a \
         reserve (the {} of the {} is full first). Those that notice only when it is time come within {}, as ever; where they notice at \
         once, have them wait for a random time of more than {}; otherwise they are answered late or with 503, and try again.",
        brief::count(storm.registrations),
        brief::time(storm.least_s),
        storm.resource,
        storm.stage,
        brief::time(plan.requirements.refresh_s),
        brief::time(storm.least_s)
    ))
}

fn failure(plan: &Plan) -> String {
    let (failover, retry) = (&plan.failover, brief::time(plan.requirements.client_retry_s));
    if plan.members == 1 {
        return format!(
            "While a server is down, {} on average, its users have no service; registrations on its disk are restored afterwards.",
            brief::time(plan.requirements.repair_s)
        );
    }
    let (passed_on, promise) = match plan.requirements.replication {
        _ if plan.requirements.failover == FailoverMethod::Client => {
            return format!(
                "A call that meets a failed server is set up {retry} later, at another server, with which the phones have registered as well."
            );
        }
        Replication::Copies | Replication::None => (
            "passed on to the others",
            " That is with cluster.durability = \"disk\"; with \"engine\", the default, a 200 leaves only when the engine has the registration.",
        ),
        Replication::Store => ("written to the other databases", ""),
    };
    format!(
        "A call that meets a failed server is set up {retry} later; on the mean of all calls that is {}. A phone's first registration is \
         lost if its server fails before it is {passed_on} (probability {}); then the phone cannot be called for at most {}.{promise}",
        brief::time(failover.setup_delay_s),
        brief::number(failover.lost_registration_with_cache),
        brief::time(failover.unreachable_s)
    )
}
