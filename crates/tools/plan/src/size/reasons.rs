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
            "CAUTION: {} erlangs per subscriber mean more than one concurrent call for the whole hour; for the calls of all subscribers use --bhca.",
            brief::number(each)
        ));
    }
    let node = plan.profile.server.availability;
    if node < POOR {
        out.push(format!(
            "CAUTION: a server that is {} available is down {} of the time; the formulas assume repairs that are short compared with the time \
             between failures, so their results are unreliable here.",
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
        "{} subscribers who register every {} and call for {} send {} REGISTERs and {} calls per second ({} requests of calls); \
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
            "{} keep-alives per second, a CRLF every {} to each phone behind a NAT, are {} times the SIP messages. Their cost \
             was not measured: each is counted as a forwarded message, which costs more, so they are at most {} of the busy cores.",
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
        "Members write {} changes per second to the engine{of}, {}; the other members together read {} from it.",
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
            "No first stage is needed: one server serves all users with {used} of its {resource}; the limit is {allowed}."
        );
    }
    if plan.clusters == 1 {
        return format!(
            "No first stage is needed: one cluster serves all users with {used} of its {resource}; the limit is {allowed}. \
             Phones find its members through DNS or a configured list.",
        );
    }
    format!(
        "A first stage is needed: one cluster would use {used} of its {resource}, above the limit of {allowed}; {} clusters \
         carry the load, and the first stage sends each request to its user's cluster.",
        plan.clusters
    )
}

fn members(plan: &Plan) -> String {
    let node = brief::share(plan.profile.server.availability);
    let asked = if plan.requirements.availability > 0.0 {
        format!("{} is required", brief::all_but(1.0 - plan.requirements.availability))
    } else {
        "no minimum is required".to_owned()
    };
    if plan.servers == 1 {
        return format!("The server is {node} available, and {asked}: it has no spare.");
    }
    let spare = match (plan.members, plan.requirements.failover) {
        (1, _) => "a cluster is one server without a spare".to_owned(),
        (many, FailoverMethod::Members) => {
            format!("{many} members of a cluster share its load, and the others still carry it if one fails")
        }
        (many, FailoverMethod::Client) => {
            format!("phones register with all {many} members of a cluster, and any one of them can carry its load")
        }
        (many, FailoverMethod::Dns | FailoverMethod::Takeover) => {
            let spares = if many == 2 { "one stands".to_owned() } else { format!("{} stand", many - 1) };
            format!("one member of a cluster serves and {spares} by, and any of them can carry its load")
        }
    };
    format!(
        "With servers that are {node} available, {} together are {} available, and {asked}: {spare}. This assumes independent \
         failures: a power failure, a bad configuration or a bad release affects all servers at once and is not included.",
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
    let spare = if plan.first > 1 { "with one of them down, the others use" } else { "it uses" };
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
        format!("; {those} could carry {} such subscribers", brief::count(first.carries_subscribers))
    } else {
        String::new()
    };
    let group = if first.stage == Stage::First { plan.first } else { plan.members };
    let gone = if group > 1 { " with one server of the group down" } else { "" };
    Some(format!(
        "The bottleneck is the {} of the {}: {} used{gone}, of at most {}{room}.",
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
            "The costs are those of a busy server, but these cores are only {} utilized: at 10 % load or less, a call costs two \
             to four times as much (docs/operating/capacity.md), so up to {} cores may appear busy. This does not reduce the capacity.",
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
                "set tcp.connections to at least {} (the default is {}), and the limit of open files (LimitNOFILE) \
                 above it",
                brief::number(wanted),
                brief::number(DEFAULT_CONNECTIONS)
            )
        } else {
            format!("the default of tcp.connections is {}", brief::number(DEFAULT_CONNECTIONS))
        };
        let group = if plan.first > 0 { plan.first } else { plan.members };
        let gone = if group > 1 { " when one server of its group has failed" } else { "" };
        format!(
            "A server has up to {} connections{gone}: {setting}. The memory above does not include the kernel's socket buffers.",
            brief::count(connections)
        )
    })
}

fn storm(plan: &Plan) -> Option<String> {
    let storm = plan.avalanche?;
    Some(format!(
        "After a total outage, all {} phones register again: this takes at least {}, besides the calls and without a \
         reserve (the bottleneck is the {} of the {}). Phones that do not notice the outage register within {} as usual; if they notice it at \
         once, configure a random delay of more than {}; otherwise they get late responses or 503, and retry.",
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
            "While a server is down ({} on average), its users have no service; registrations on its disk are restored afterwards.",
            brief::time(plan.requirements.repair_s)
        );
    }
    let (passed_on, promise) = match plan.requirements.replication {
        _ if plan.requirements.failover == FailoverMethod::Client => {
            return format!(
                "A call that meets a failed server is set up {retry} later, at another server with which the phones are also registered."
            );
        }
        Replication::Copies | Replication::None => (
            "passed on to the other members",
            " This applies to cluster.durability = \"disk\"; with \"engine\", the default, the 200 is sent only when the engine has the registration.",
        ),
        Replication::Store => ("written to the other databases", ""),
    };
    format!(
        "A call that meets a failed server is set up {retry} later; averaged over all calls, this is {}. A phone's first registration is \
         lost if its server fails before it is {passed_on} (probability {}); the phone is then unreachable for at most {}.{promise}",
        brief::time(failover.setup_delay_s),
        brief::number(failover.lost_registration_with_cache),
        brief::time(failover.unreachable_s)
    )
}
