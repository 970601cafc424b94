//! What an operator is told to buy.

use strowger_plan::size::{Resource, Stage};
use strowger_plan::{Availability, Calls, Explain as _, Needs, Plan, Profile, size};

/// People who call twice in the busy hour for three minutes.
fn needs(subscribers: f64) -> Needs {
    Needs { subscribers, ..Needs::default() }
}

fn plan(needs: &Needs) -> Plan {
    size(needs, &Profile::measured()).unwrap()
}

/// A plan keeps what it promises.
fn holds(plan: &Plan) {
    for limit in &plan.limits {
        assert!(limit.used <= limit.allowed * (1.0 + 1e-9), "{limit:?}");
    }
    assert!(plan.availability.availability >= plan.needs.availability - 1e-12);
    assert_eq!(plan.servers, plan.first + plan.clusters * plan.members);
    assert_eq!(plan.first == 0, plan.clusters == 1, "a first stage stands before more than one cluster");
    assert!(plan.cores as f64 >= plan.busy_cores);
    let node = plan.profile.server.availability;
    let again = Availability::two_stage(plan.first, node, plan.clusters, plan.members, node).unwrap();
    assert_eq!(plan.availability.availability, again.availability);
}

#[test]
fn an_office_needs_no_first_stage() {
    let plan = plan(&Needs { availability: 0.9999, ..needs(200.0) });
    holds(&plan);
    assert_eq!((plan.first, plan.clusters, plan.members), (0, 1, 2));
    assert!(plan.reasons.iter().any(|reason| reason.contains("No first stage is needed")), "{:?}", plan.reasons);
}

#[test]
fn one_server_is_enough_where_nobody_asks_for_more() {
    let plan = plan(&Needs { availability: 0.99, ..needs(1_000.0) });
    assert_eq!((plan.first, plan.clusters, plan.members, plan.servers), (0, 1, 1, 1));
}

/// More than the memory of one server holds.
const MANY: f64 = 100_000_000.0;

#[test]
fn a_hundred_million_need_two_stages() {
    let plan = plan(&needs(MANY));
    holds(&plan);
    assert!(
        plan.first >= 2 && plan.clusters > 1 && plan.members >= 3,
        "{} {} {}",
        plan.first,
        plan.clusters,
        plan.members
    );
    assert!(plan.reasons.iter().any(|reason| reason.contains("A first stage is needed")), "{:?}", plan.reasons);
    // 100 M / 3600 s and 100 M · 0.1 erlang / 180 s
    assert!((plan.traffic.registers_per_s - 27_777.8).abs() < 0.1);
    assert!((plan.traffic.calls_per_s - 55_555.6).abs() < 0.1);
}

#[test]
fn fewer_clusters_would_not_carry_it() {
    let asked = needs(MANY);
    let plan = plan(&asked);
    let fullest =
        plan.limits.iter().filter(|limit| limit.stage == Stage::Second).map(|limit| limit.used / limit.allowed);
    let fullest = fullest.fold(0.0, f64::max);
    // One cluster less has each member do P/(P − 1) as much.
    let clusters = f64::from(plan.clusters);
    assert!(fullest * clusters / (clusters - 1.0) > 1.0, "{fullest} with {clusters} clusters");
}

#[test]
fn what_limits_first_is_named() {
    let mut profile = Profile::measured();
    let quiet = Needs { refresh_s: 86_400.0, calls: Calls::Erlangs(1e-4), ..needs(MANY) };
    let memory = size(&quiet, &profile).unwrap();
    assert_eq!(memory.limits[0].resource, Resource::Memory, "{:?}", memory.limits);
    (profile.server.memory_bytes, profile.server.network_bits_per_s) = (1e12, 1e11);
    let cpu = size(&needs(MANY), &profile).unwrap();
    assert_eq!(cpu.limits[0].resource, Resource::Cpu, "{:?}", cpu.limits);
    profile.server.network_bits_per_s = 20e6;
    let network = size(&needs(100_000.0), &profile).unwrap();
    assert_eq!(network.limits[0].resource, Resource::Network, "{:?}", network.limits);
    // The first of the list is what is reached first when subscribers come.
    for plan in [&memory, &cpu, &network] {
        let fewest = plan.limits.iter().map(|limit| limit.carries_subscribers).fold(f64::INFINITY, f64::min);
        assert!(fewest >= plan.needs.subscribers * (1.0 - 1e-9));
        assert_eq!(plan.limits[0].carries_subscribers, fewest);
    }
}

#[test]
fn a_limit_is_where_it_says() {
    let asked = needs(2_000_000.0);
    let before = plan(&asked);
    let limit = before.limits[0];
    let almost = plan(&needs((limit.carries_subscribers * 0.999).floor()));
    assert_eq!(almost.servers, before.servers);
    let beyond = plan(&needs(limit.carries_subscribers * 1.01));
    let shape = |plan: &Plan| (plan.first, plan.clusters, plan.members);
    assert!(beyond.servers >= before.servers && shape(&beyond) != shape(&before), "{:?}", shape(&beyond));
}

#[test]
fn more_subscribers_never_need_fewer_servers() {
    let mut before = 0;
    for subscribers in [1e3, 1e4, 1e5, 5e5, 1e6, 2e6, 5e6, 1e7, 5e7, 1e8] {
        let plan = plan(&needs(subscribers));
        holds(&plan);
        assert!(plan.servers >= before, "{subscribers}: {} after {before}", plan.servers);
        before = plan.servers;
    }
}

#[test]
fn every_way_to_fail_over_and_to_replicate_has_a_plan() {
    use strowger_plan::size::{FailoverMethod, Replication};
    let methods = [FailoverMethod::Client, FailoverMethod::Dns, FailoverMethod::Takeover, FailoverMethod::Members];
    for failover in methods {
        for replication in [Replication::Copies, Replication::Store] {
            let plan = plan(&Needs { failover, replication, ..needs(MANY) });
            holds(&plan);
            assert_eq!(plan.stores > 0, replication == Replication::Store);
        }
    }
    let shared = plan(&Needs { failover: FailoverMethod::Members, ..needs(MANY) });
    let standby = plan(&Needs { failover: FailoverMethod::Takeover, ..needs(MANY) });
    assert!(shared.servers <= standby.servers, "members that stand by carry nothing");
}

#[test]
fn a_store_that_is_slow_limits() {
    use strowger_plan::size::Replication;
    let mut profile = Profile::measured();
    profile.store.write_s = 5e-3;
    let plan = size(&Needs { replication: Replication::Store, ..needs(3_000_000.0) }, &profile).unwrap();
    assert_eq!(plan.limits[0].resource, Resource::Store);
    holds(&plan);
}

#[test]
fn sensitivities_say_what_matters() {
    let plan = plan(&needs(MANY));
    let of = |input: &str| {
        plan.sensitivities.iter().find(|one| one.input == input).unwrap_or_else(|| panic!("{input} is not there"))
    };
    assert!((of("subscribers").busy_cores_percent - 10.0).abs() < 0.1);
    assert!(of("subscribers").servers > 0);
    assert!(of("refresh interval").busy_cores_percent < 0.0);
    assert!(of("memory of a contact").busy_cores_percent.abs() < 1e-9);
    // All calls are stateful already: a tenth less is asked.
    assert_eq!(of("stateful share").change_percent, -10.0);
    // Every tenth of the work is somewhere.
    let work: f64 =
        ["cost of a stateful call", "cost of a challenged REGISTER", "cost of a copy", "cost of a forwarded message"]
            .iter()
            .map(|input| of(input).busy_cores_percent)
            .sum();
    assert!((8.0..12.0).contains(&work), "{work}");
}

#[test]
fn stateless_calls_are_cheaper() {
    let stateful = plan(&needs(MANY));
    let stateless = plan(&Needs { stateful_share: 0.0, ..needs(MANY) });
    assert!(stateless.busy_cores < stateful.busy_cores && stateless.servers <= stateful.servers);
    assert!(stateless.memory_bytes < stateful.memory_bytes);
}

#[test]
fn connections_are_where_the_phones_connect() {
    let udp = plan(&needs(MANY));
    let tcp = plan(&Needs { connected_share: 1.0, ..needs(MANY) });
    assert!(
        (tcp.memory_bytes - udp.memory_bytes - MANY * tcp.profile.memory.connection_bytes).abs()
            < 0.02 * tcp.memory_bytes
    );
}

#[test]
fn a_plan_explains_itself() {
    let plan = plan(&needs(MANY));
    let explanation = plan.explain();
    let has = |text: &str| explanation.steps.iter().any(|step| step.formula.contains(text));
    assert!(has("(1 − (1 − R_s)^S)·(1 − (1 − R_p)^B)^P") && has("T_r + T_R") && has("subscribers/T_r"));
    for step in &explanation.steps {
        assert!(!step.source.is_empty() && !step.numbers.is_empty() && !step.value.is_empty(), "{step:?}");
        assert!(!step.value.contains("NaN") && !step.numbers.contains("NaN"), "{step:?}");
    }
    assert!(serde_json::to_string(&plan).unwrap().contains("\"busy_cores\""));
}
