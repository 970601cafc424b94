//! Output of `strowger plan size`.

use std::fmt::Write as _;

use strowger_plan::failover::mean_time_to_failure_s;
use strowger_plan::size::{EngineLoad, Sensitivity};
use strowger_plan::units::{self, brief};
use strowger_plan::{Plan, PlanError};

use super::super::field::{Field, InputPoint};
use super::Sizing;
use crate::plot::DisplayUnit;
use crate::table::{columns, wrapped};

/// Returns the report of a plan.
pub(super) fn report(sizing: &Sizing<'_>, at: &InputPoint, plan: &Plan) -> String {
    let mut text = headline(plan);
    for caveat in &plan.caveats {
        text.push_str(&wrapped("", caveat));
    }
    text.push('\n');
    let outputs = outputs(Some(plan));
    let known = outputs.iter().skip(4).filter(|field| field.value.is_some());
    let found: Vec<(&str, String)> = known.map(|field| (field.name, field.text())).collect();
    let width = found.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, value) in &found {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:width$}  {value}");
    }
    text.push_str("\nwhy\n");
    for reason in influence(sizing, plan).iter().chain(&plan.reasons) {
        text.push_str(&wrapped("- ", reason));
    }
    text.push_str(&limits(plan));
    text.push_str(&sensitivities(plan));
    text.push_str(&said(sizing, at));
    text
}

fn headline(plan: &Plan) -> String {
    let many = |count: u32, one: &str, more: &str| {
        format!("{} {}", units::number(f64::from(count)), if count == 1 { one } else { more })
    };
    let clusters = many(plan.clusters, "cluster", "clusters");
    let members = many(plan.members, "member", "members");
    let shape = if plan.first == 0 {
        format!("{clusters} of {members}, no first stage")
    } else {
        format!("{} in the first stage, {clusters} of {members}", many(plan.first, "server", "servers"))
    };
    format!(
        "{}: {shape}.\nS = {}, P = {}, B = {}\n",
        many(plan.servers, "SERVER", "SERVERS"),
        plan.first,
        plan.clusters,
        plan.members
    )
}

/// Returns the report if no plan meets the needs, with the reason.
pub(super) fn no_plan(sizing: &Sizing<'_>, at: &InputPoint, error: &PlanError) -> String {
    let mut text = wrapped("", &format!("NO NUMBER OF SERVERS: {error}."));
    text.push_str(&wrapped("", &format!("What to do: {}.", error.remedy())));
    text.push_str(&said(sizing, at));
    text
}

/// Returns the assumption with the most influence on the number of servers.
pub(super) fn influence(sizing: &Sizing<'_>, plan: &Plan) -> Option<String> {
    let is_assumed = |option: &str| sizing.asked.iter().any(|asked| asked.option == option && asked.given.is_none());
    let changes = |input: &&Sensitivity| input.servers != 0 && !input.impossible;
    let assumed = plan.sensitivities.iter().filter(changes);
    let assumed = assumed.filter_map(|input| Some((option_of(input.input)?, input)));
    // Among equal ones the last belongs to the server itself.
    let (option, input) =
        assumed.filter(|(option, _)| is_assumed(option)).max_by_key(|(_, input)| input.servers.abs())?;
    let servers = i64::from(plan.servers) + input.servers;
    let then = format!(
        "the result is {} {}, at {} per month",
        units::number(count(servers)),
        if servers == 1 { "server" } else { "servers" },
        brief::number(plan.cost_per_month + input.cost_per_month)
    );
    let node = plan.profile.server.availability;
    let more = |missing: f64| units::all_but(missing * (1.0 + input.change_percent / 100.0));
    Some(match option {
        "--node" => format!(
            "The most influential assumption is that a server is {} available (--node): it fails every {} for {} (--repair). With {}, \
             {then}.",
            units::share(node),
            units::time(plan.failover.times.failure_s),
            brief::time(plan.requirements.repair_s),
            more(1.0 - node)
        ),
        "--availability" => format!(
            "The most influential assumption is a required availability of {} (--availability). With {}, {then}.",
            units::share(plan.requirements.availability),
            more(1.0 - plan.requirements.availability)
        ),
        _ => format!(
            "The most influential assumption: {} {} ({option}). With {} % {}, {then}.",
            input.input,
            input.value,
            units::number(input.change_percent.abs()),
            if input.change_percent < 0.0 { "less" } else { "more" }
        ),
    })
}

#[expect(clippy::cast_precision_loss, reason = "a number of servers")]
const fn count(servers: i64) -> f64 {
    servers as f64
}

/// Returns the option for an input; costs come from the profile and have none.
fn option_of(input: &str) -> Option<&'static str> {
    Some(match input {
        "erlangs of a subscriber" => "--erlangs",
        "hold time" => "--hold",
        "ring time" => "--ring",
        "refresh interval" => "--refresh",
        "challenged share of REGISTERs" => "--challenged",
        "challenged share of calls" => "--challenged-calls",
        "stateful share" => "--stateful",
        "connected share" => "--connected",
        "share behind a NAT" => "--nat",
        "keep-alive interval" => "--keepalive",
        "promised unavailability" => "--availability",
        "utilization" => "--utilization",
        "skew" => "--skew",
        "memory of a server" => "--memory",
        "unavailability of a server" => "--node",
        _ => return None,
    })
}

/// Lists given and assumed inputs.
fn said(sizing: &Sizing<'_>, at: &InputPoint) -> String {
    let mut text = String::new();
    let names = sizing.asked.iter().map(|asked| asked.name.chars().count()).max().unwrap_or(0);
    let options = sizing.asked.iter().map(|asked| asked.option.chars().count()).max().unwrap_or(0);
    for (title, is_given) in [("given", true), ("assumed (not given)", false)] {
        let _ = writeln!(text, "\n{title}");
        for asked in sizing.asked.iter().filter(|asked| asked.given.is_some() == is_given) {
            let mut value = asked.show.exact(at.of(asked.key));
            if asked.key == "repair_s" {
                let failure_s = mean_time_to_failure_s(at.of("server_availability"), at.of("repair_s"));
                if failure_s.is_finite() {
                    let _ = write!(value, " (so it fails every {})", units::time(failure_s));
                }
            }
            let _ = writeln!(text, "  {:options$}  {:names$}  {value}", asked.option, asked.name);
        }
    }
    let _ = writeln!(text, "\n{}", sizing.choices());
    text
}

/// Lists the resources in the order in which they run out.
fn limits(plan: &Plan) -> String {
    let rows = plan.limits.iter().map(|limit| {
        let carries = if limit.carries_subscribers.is_finite() {
            brief::count(limit.carries_subscribers)
        } else {
            "any number".to_owned()
        };
        vec![
            format!("{} of the {}", limit.resource, limit.stage),
            DisplayUnit::Share.text(limit.used),
            DisplayUnit::Share.text(limit.allowed),
            carries,
        ]
    });
    let head = ["utilization by resource", "used", "limit", "subscribers at limit"].map(str::to_owned);
    format!("\n{}", left_columns(&head, &rows.collect::<Vec<_>>()))
}

/// Lists the effect of each input.
fn sensitivities(plan: &Plan) -> String {
    let changes =
        |input: &&Sensitivity| input.servers != 0 || input.impossible || input.busy_cores_percent.abs() >= 0.05;
    let still: Vec<&str> = plan.sensitivities.iter().filter(|input| !changes(input)).map(|input| input.input).collect();
    let rows = plan.sensitivities.iter().filter(changes).map(|input| {
        let servers = if input.impossible { "impossible".to_owned() } else { format!("{:+}", input.servers) };
        vec![
            input.input.to_owned(),
            input.value.clone(),
            format!("{:+} %", input.change_percent),
            format!("{:+.1} %", input.busy_cores_percent),
            servers,
        ]
    });
    let head = ["effect of a 10 % change", "now", "then", "busy cores", "servers"].map(str::to_owned);
    let others = if still.is_empty() { String::new() } else { wrapped("nothing: ", &still.join(", ")) };
    format!("\n{}{others}", left_columns(&head, &rows.collect::<Vec<_>>()))
}

/// Like [`columns`], with a left-aligned first column.
fn left_columns(head: &[String], rows: &[Vec<String>]) -> String {
    let first = |row: &[String]| row.first().map_or(0, |cell| cell.chars().count());
    let width = rows.iter().map(|row| first(row)).chain([first(head)]).max().unwrap_or(0);
    let padded = |row: &[String]| -> Vec<String> {
        row.iter().enumerate().map(|(at, cell)| if at == 0 { format!("{cell:width$}") } else { cell.clone() }).collect()
    };
    columns(&padded(head), &rows.iter().map(|row| padded(row)).collect::<Vec<_>>())
}

/// Returns the results of a plan; without a plan, only their names.
pub(super) fn outputs(plan: Option<&Plan>) -> Vec<Field> {
    let of = |value: fn(&Plan) -> f64| plan.map(value);
    let missing = plan.map(|plan| plan.availability.unavailability);
    let engine = |value: fn(&EngineLoad) -> f64| plan.and_then(|plan| plan.engine.as_ref()).map(value);
    vec![
        Field::new("servers", "servers", DisplayUnit::Count, of(|plan| f64::from(plan.servers))).drawn(),
        Field::new("first", "first stage S", DisplayUnit::Count, of(|plan| f64::from(plan.first))),
        Field::new("clusters", "clusters P", DisplayUnit::Count, of(|plan| f64::from(plan.clusters))),
        Field::new("members", "members B", DisplayUnit::Count, of(|plan| f64::from(plan.members))),
        Field::new("cores", "cores", DisplayUnit::Count, of(|plan| f64::from(plan.cores))),
        Field::new("busy_cores", "busy cores", DisplayUnit::Number, of(|plan| plan.busy_cores))
            .said(of(|plan| plan.busy_cores).map(brief::number))
            .drawn(),
        Field::new("memory_bytes", "memory used", DisplayUnit::Bytes, of(|plan| plan.memory_bytes)).drawn(),
        Field::new("bandwidth_bits_per_s", "network", DisplayUnit::Bits, of(|plan| plan.bandwidth_bits_per_s)).drawn(),
        Field::new("messages_per_s", "SIP messages", DisplayUnit::Rate, of(|plan| plan.messages_per_s)),
        Field::new("keep_alives_per_s", "NAT keep-alives", DisplayUnit::Rate, of(|plan| plan.keep_alives_per_s)),
        Field::new(
            "connections_per_server",
            "connections a server",
            DisplayUnit::Count,
            of(|plan| plan.connections_per_server.ceil()).filter(|connections| *connections > 0.0),
        ),
        Field::new("stores", "stores", DisplayUnit::Count, of(|plan| f64::from(plan.stores))),
        Field::new(
            "engine_changes_per_s",
            "changes to the engine",
            DisplayUnit::Rate,
            engine(|engine| engine.changes_per_s),
        ),
        Field::new("engine_in_bits_per_s", "to the engine", DisplayUnit::Bits, engine(|engine| engine.in_bits_per_s)),
        Field::new(
            "engine_out_bits_per_s",
            "from the engine",
            DisplayUnit::Bits,
            engine(|engine| engine.out_bits_per_s),
        ),
        Field::new("wait_us", "wait of a packet", DisplayUnit::Micros, plan.and_then(|plan| plan.wait_s))
            .said(plan.and_then(|plan| plan.wait_s).map(waits)),
        Field::new(
            "storm_s",
            "full re-registration in",
            DisplayUnit::Seconds,
            plan.and_then(|plan| Some(plan.avalanche?.least_s)),
        ),
        Field::new("availability", "availability", DisplayUnit::Share, of(|plan| plan.availability.availability))
            .said(missing.map(units::all_but)),
        Field::new(
            "downtime_s_per_year",
            "downtime per year",
            DisplayUnit::Seconds,
            of(|plan| plan.availability.downtime_s_per_year),
        )
        .said(plan.map(|plan| units::outage(plan.availability.downtime_s_per_year))),
        Field::new("cost_per_month", "cost per month", DisplayUnit::Number, of(|plan| plan.cost_per_month)).drawn(),
    ]
}

/// Formats a wait. Differences below a microsecond are not measurable.
fn waits(seconds: f64) -> String {
    if seconds > 0.0 && seconds < 1e-6 { "under 1 µs".to_owned() } else { DisplayUnit::Micros.text(seconds) }
}
