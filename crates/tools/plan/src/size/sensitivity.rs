//! Sensitivity of a plan to each input: a tenth more, or one nine, with all other inputs unchanged.

use super::demand::Demand;
use super::profile::Profile;
use super::requirements::Requirements;
use super::search::cheapest;
use super::{Plan, Sensitivity, Stage};
use crate::traffic::Calls;
use crate::units;

/// Inputs of a plan.
#[derive(Clone)]
struct PlanInputs {
    needs: Requirements,
    profile: Profile,
}

/// One input.
struct Input {
    name: &'static str,
    /// Highest possible value.
    most: f64,
    show: fn(f64) -> String,
    /// Factor by which it is changed.
    factor: f64,
    value: fn(&PlanInputs) -> f64,
    set: fn(&mut PlanInputs, f64),
}

macro_rules! input {
    ($name:expr, $most:expr, $show:expr, $($field:ident).+) => {
        Input {
            name: $name,
            most: $most,
            show: $show,
            factor: MORE,
            value: |asked| asked.$($field).+,
            set: |asked, value| asked.$($field).+ = value,
        }
    };
}

/// Returns the sensitivities, sorted by their effect on the servers, then on the work or the first bottleneck. Inputs
/// that are 0 are skipped.
pub(super) fn of(needs: &Requirements, profile: &Profile, plan: &Plan) -> Vec<Sensitivity> {
    let asked = PlanInputs { needs: *needs, profile: profile.clone() };
    let inputs = of_the_needs(needs).into_iter().chain(of_the_profile());
    let mut out: Vec<Sensitivity> = inputs.filter_map(|input| change(&input, &asked, plan)).collect();
    out.sort_by(|a, b| {
        let servers = (b.impossible, b.servers.abs()).cmp(&(a.impossible, a.servers.abs()));
        let weight = |one: &Sensitivity| one.limit_percent.abs().max(one.busy_cores_percent.abs());
        servers.then(weight(b).total_cmp(&weight(a)))
    });
    out
}

fn change(input: &Input, asked: &PlanInputs, plan: &Plan) -> Option<Sensitivity> {
    let value = (input.value)(asked);
    if value <= 0.0 {
        return None;
    }
    let factor = if value * input.factor > input.most { LESS } else { input.factor };
    let mut changed = asked.clone();
    (input.set)(&mut changed, value * factor);
    let demand = Demand::of(&changed.needs, &changed.profile).ok()?;
    let busy = demand.work(plan.clusters, plan.members).total();
    let planned = cheapest(&changed.needs, &changed.profile).ok();
    let (servers, cost_per_month) = planned.as_ref().map_or((0, 0.0), |other| {
        (i64::from(other.servers) - i64::from(plan.servers), other.cost_per_month - plan.cost_per_month)
    });
    Some(Sensitivity {
        input: input.name,
        value: (input.show)(value),
        change_percent: ((factor - 1.0) * 100.0).round(),
        busy_cores_percent: (busy / plan.busy_cores - 1.0) * 100.0,
        limit_percent: limit_percent(&demand, plan).unwrap_or(0.0),
        servers,
        cost_per_month,
        impossible: planned.is_none(),
    })
}

/// Returns the change of the utilization of the first bottleneck with the same servers, in %.
fn limit_percent(demand: &Demand<'_>, plan: &Plan) -> Option<f64> {
    let first = plan.limits.first()?;
    let limits = match first.stage {
        Stage::First => demand.first_limits(plan.first),
        Stage::Second => demand.second_limits(plan.clusters, plan.members),
    };
    let same = limits.iter().find(|limit| limit.resource == first.resource)?;
    Some(((same.used / same.allowed) / (first.used / first.allowed) - 1.0) * 100.0)
}

const MORE: f64 = 1.1;
/// Factor for inputs that a tenth more would raise above their maximum.
const LESS: f64 = 0.9;
/// Factor of the unavailability for one nine: one more for a server, one less for the requirement.
const NINE_MORE: f64 = 0.1;
const NINE_LESS: f64 = 10.0;
const ENDLESS: f64 = f64::INFINITY;

fn of_the_needs(needs: &Requirements) -> Vec<Input> {
    vec![
        input!("subscribers", ENDLESS, units::number, needs.subscribers),
        calls(needs.calls),
        input!("hold time", ENDLESS, units::time, needs.hold_s),
        input!("ring time", ENDLESS, units::time, needs.ring_s),
        input!("refresh interval", ENDLESS, units::time, needs.refresh_s),
        input!("challenged share of REGISTERs", 1.0, units::share, needs.challenged_share),
        input!("challenged share of calls", 1.0, units::share, needs.challenged_calls_share),
        input!("stateful share", 1.0, units::share, needs.stateful_share),
        input!("connected share", 1.0, units::share, needs.connected_share),
        input!("share behind a NAT", 1.0, units::share, needs.nat_share),
        input!("keep-alive interval", ENDLESS, units::time, needs.keep_alive_s),
        Input {
            name: "promised unavailability",
            most: 1.0,
            show: units::share,
            factor: NINE_LESS,
            value: |asked| 1.0 - asked.needs.availability,
            set: |asked, value| asked.needs.availability = 1.0 - value,
        },
        input!("utilization", 1.0, units::share, needs.utilization),
        input!("skew", ENDLESS, units::number, needs.skew),
    ]
}

fn calls(calls: Calls) -> Input {
    let name = match calls {
        Calls::PerSubscriber(_) => "calls of a subscriber",
        Calls::Total(_) => "calls",
        Calls::Erlangs(_) => "erlangs of a subscriber",
    };
    Input {
        name,
        most: ENDLESS,
        show: units::number,
        factor: MORE,
        value: |asked| match asked.needs.calls {
            Calls::PerSubscriber(value) | Calls::Total(value) | Calls::Erlangs(value) => value,
        },
        set: |asked, value| {
            asked.needs.calls = match asked.needs.calls {
                Calls::PerSubscriber(_) => Calls::PerSubscriber(value),
                Calls::Total(_) => Calls::Total(value),
                Calls::Erlangs(_) => Calls::Erlangs(value),
            };
        },
    }
}

fn of_the_profile() -> Vec<Input> {
    vec![
        input!("cost of a stateful call", ENDLESS, units::time, profile.costs.stateful_call_s),
        input!("cost of a stateless call", ENDLESS, units::time, profile.costs.stateless_call_s),
        input!("cost of a challenged REGISTER", ENDLESS, units::time, profile.costs.challenged_register_s),
        input!("cost of a copy", ENDLESS, units::time, profile.costs.copy_s),
        input!("cost of a forwarded message", ENDLESS, units::time, profile.costs.first_message_s),
        input!("time of a write", ENDLESS, units::time, profile.store.write_s),
        input!("memory of a contact", ENDLESS, units::bytes, profile.memory.contact_bytes),
        input!("size of a message", ENDLESS, units::bytes, profile.messages.message_bytes),
        input!("memory of a server", ENDLESS, units::bytes, profile.server.memory_bytes),
        Input {
            name: "unavailability of a server",
            most: 1.0,
            show: units::share,
            factor: NINE_MORE,
            value: |asked| 1.0 - asked.profile.server.availability,
            set: |asked, value| asked.profile.server.availability = 1.0 - value,
        },
    ]
}
