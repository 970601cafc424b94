//! Recommendations to an operator.

use strowger_plan::size::{FailoverMethod, Replication, Resource, Stage};
use strowger_plan::{Availability, Calls, Explain as _, FailoverTimes, Plan, Profile, Requirements, size, units};

/// Subscribers that make two calls of three minutes in the busy hour.
fn needs(subscribers: f64) -> Requirements {
    Requirements { subscribers, ..Requirements::default() }
}

fn plan(needs: &Requirements) -> Plan {
    size(needs, &Profile::measured()).unwrap()
}

/// Asserts that a plan meets its requirements.
fn holds(plan: &Plan) {
    for limit in &plan.limits {
        assert!(limit.used <= limit.allowed * (1.0 + 1e-9), "{limit:?}");
    }
    assert!(plan.availability.availability >= plan.requirements.availability - 1e-12);
    assert_eq!(plan.servers, plan.first + plan.clusters * plan.members);
    assert_eq!(plan.first == 0, plan.clusters == 1, "a first stage stands before more than one cluster");
    assert!(plan.cores as f64 >= plan.busy_cores);
    let node = plan.profile.server.availability;
    let again = Availability::two_stage(plan.first, node, plan.clusters, plan.members, node).unwrap();
    assert_eq!(plan.availability.availability, again.availability);
}

#[test]
fn an_office_needs_no_first_stage() {
    let plan = plan(&Requirements { availability: 0.9999, ..needs(200.0) });
    holds(&plan);
    assert_eq!((plan.first, plan.clusters, plan.members), (0, 1, 2));
    assert!(plan.reasons.iter().any(|reason| reason.contains("No first stage is needed")), "{:?}", plan.reasons);
}

#[test]
fn one_server_is_enough_for_modest_requirements() {
    let plan = plan(&Requirements { availability: 0.99, ..needs(1_000.0) });
    assert_eq!((plan.first, plan.clusters, plan.members, plan.servers), (0, 1, 1, 1));
}

/// More subscribers than fit into the memory of one server.
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
fn fewer_clusters_are_not_enough() {
    let asked = needs(MANY);
    let plan = plan(&asked);
    let fullest =
        plan.limits.iter().filter(|limit| limit.stage == Stage::Second).map(|limit| limit.used / limit.allowed);
    let fullest = fullest.fold(0.0, f64::max);
    // With one cluster less, each member carries P/(P − 1) of its load.
    let clusters = f64::from(plan.clusters);
    assert!(fullest * clusters / (clusters - 1.0) > 1.0, "{fullest} with {clusters} clusters");
}

#[test]
fn the_first_limit_is_named() {
    let mut profile = Profile::measured();
    let quiet = Requirements { refresh_s: 86_400.0, calls: Calls::Erlangs(1e-4), nat_share: 0.0, ..needs(MANY) };
    let memory = size(&quiet, &profile).unwrap();
    assert_eq!(memory.limits[0].resource, Resource::Memory, "{:?}", memory.limits);
    (profile.server.memory_bytes, profile.server.network_bits_per_s) = (1e12, 1e11);
    let cpu = size(&needs(MANY), &profile).unwrap();
    assert_eq!(cpu.limits[0].resource, Resource::Cpu, "{:?}", cpu.limits);
    profile.server.network_bits_per_s = 20e6;
    let network = size(&needs(100_000.0), &profile).unwrap();
    assert_eq!(network.limits[0].resource, Resource::Network, "{:?}", network.limits);
    // The first limit in the list is the first to be reached as subscribers are added.
    for plan in [&memory, &cpu, &network] {
        let fewest = plan.limits.iter().map(|limit| limit.carries_subscribers).fold(f64::INFINITY, f64::min);
        assert!(fewest >= plan.requirements.subscribers * (1.0 - 1e-9));
        assert_eq!(plan.limits[0].carries_subscribers, fewest);
    }
}

#[test]
fn limits_are_exact() {
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
fn every_failover_and_replication_method_has_a_plan() {
    let methods = [FailoverMethod::Client, FailoverMethod::Dns, FailoverMethod::Takeover, FailoverMethod::Members];
    for failover in methods {
        for replication in [Replication::Copies, Replication::Store] {
            let plan = plan(&Requirements { failover, replication, ..needs(MANY) });
            holds(&plan);
            assert_eq!(plan.stores > 0, replication == Replication::Store);
        }
    }
    let shared = plan(&Requirements { failover: FailoverMethod::Members, ..needs(MANY) });
    let standby = plan(&Requirements { failover: FailoverMethod::Takeover, ..needs(MANY) });
    assert!(shared.servers <= standby.servers, "members that stand by carry nothing");
}

#[test]
fn a_slow_store_is_the_limit() {
    let mut profile = Profile::measured();
    profile.store.write_s = 5e-3;
    let plan = size(&Requirements { replication: Replication::Store, ..needs(3_000_000.0) }, &profile).unwrap();
    assert_eq!(plan.limits[0].resource, Resource::Store);
    holds(&plan);
}

#[test]
fn sensitivities_match_the_work() {
    let plan = plan(&needs(MANY));
    let of = |input: &str| {
        plan.sensitivities.iter().find(|one| one.input == input).unwrap_or_else(|| panic!("{input} is not there"))
    };
    assert!((of("subscribers").busy_cores_percent - 10.0).abs() < 0.1);
    assert!(of("subscribers").servers > 0);
    assert!(of("refresh interval").busy_cores_percent < 0.0);
    assert!(of("memory of a contact").busy_cores_percent.abs() < 1e-9);
    // All calls are stateful already, so a tenth less is tried.
    assert_eq!(of("stateful share").change_percent, -10.0);
    // The shares of the work sum to the whole.
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
    let stateless = plan(&Requirements { stateful_share: 0.0, ..needs(MANY) });
    assert!(stateless.busy_cores < stateful.busy_cores && stateless.servers <= stateful.servers);
    assert!(stateless.memory_bytes < stateful.memory_bytes);
}

#[test]
fn connected_phones_use_memory() {
    let udp = plan(&needs(MANY));
    let tcp = plan(&Requirements { connected_share: 1.0, ..needs(MANY) });
    // Servers use some memory without connections, and more connections need more servers.
    let used = |plan: &Plan| plan.memory_bytes - f64::from(plan.servers) * plan.profile.memory.base_bytes;
    assert!(tcp.servers > udp.servers);
    assert!((used(&tcp) - used(&udp) - MANY * tcp.profile.memory.connection_bytes).abs() < 0.02 * tcp.memory_bytes);
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

/// Members that share registrations can replace each other; without sharing, each server counts alone.
#[test]
fn members_that_share_registrations_are_spares() {
    let asked = needs(2_000_000.0);
    let shared = plan(&asked);
    assert_eq!((shared.clusters, shared.members), (1, 3));
    assert!(shared.work.copies > 0.0 && shared.caveats.is_empty(), "{:?}", shared.caveats);
    let says = |plan: &Plan, text: &str| plan.reasons.iter().any(|reason| reason.contains(text));
    assert!(
        says(&shared, "passed on to the other members") && says(&shared, "the 200 is sent only when the engine has")
    );
    let stored = plan(&Requirements { replication: Replication::Store, ..asked });
    assert!(says(&stored, "written to the other databases") && !says(&stored, "engine"), "{:?}", stored.reasons);

    let apart = Requirements { replication: Replication::None, availability: 0.0, ..asked };
    let alone = plan(&apart);
    assert_eq!((alone.servers, alone.first), (1, 0));
    assert!((alone.availability.availability - 0.99).abs() < 1e-12);
    // If phones register with each member, nothing is passed on.
    let each = plan(&Requirements { failover: FailoverMethod::Client, availability: asked.availability, ..apart });
    assert!(each.members >= 2 && each.availability.availability >= asked.availability - 1e-12);
    assert!(!says(&each, "engine"), "{:?}", each.reasons);
    for plan in [&shared, &alone] {
        let steps = plan.explain().steps;
        let available: Vec<_> = steps.iter().filter(|step| step.formula.contains("(1 − (1 − R_p)^B)^P")).collect();
        assert_eq!(available.len(), 1, "{available:?}");
        assert_eq!(available[0].value, units::all_but(plan.availability.unavailability));
    }

    // Load above the capacity of one server is divided among several.
    let many = plan(&Requirements { subscribers: MANY, ..apart });
    assert!(many.clusters > 1 && many.members == 1 && many.first >= 1, "{} {}", many.clusters, many.first);
    assert!(many.availability.availability < alone.availability.availability);
}

#[test]
fn without_replication_only_registered_members_are_spares() {
    let apart = Requirements { replication: Replication::None, ..needs(2_000_000.0) };
    let error = size(&apart, &Profile::measured()).unwrap_err();
    assert_eq!(error.input(), "availability");
    assert!(error.to_string().contains("do not share registrations"), "{error}");
    for remedy in ["share registrations between members (--replication copies)", "register with several"] {
        assert!(error.remedy().contains(remedy), "{}", error.remedy());
    }
    for failover in [FailoverMethod::Members, FailoverMethod::Dns, FailoverMethod::Takeover] {
        let alone = plan(&Requirements { availability: 0.98, failover, ..apart });
        assert_eq!((alone.servers, alone.members, alone.work.copies), (1, 1, 0.0));
    }
    let each = plan(&Requirements { failover: FailoverMethod::Client, ..apart });
    holds(&each);
    assert!(each.members > 1 && each.work.copies == 0.0);
    // Each of them receives all REGISTERs.
    let one = plan(&Requirements { availability: 0.98, ..apart });
    assert!((each.work.registers / one.work.registers - f64::from(each.members)).abs() < 1e-9);
}

#[test]
fn nat_keep_alives_are_counted() {
    let open = plan(&needs(2_000_000.0));
    // 2 M / 30 s, in minimal frames.
    assert!((open.keep_alives_per_s - 66_666.7).abs() < 0.1, "{}", open.keep_alives_per_s);
    let none = plan(&Requirements { nat_share: 0.0, ..needs(2_000_000.0) });
    assert_eq!((none.keep_alives_per_s, none.work.keep_alives), (0.0, 0.0));
    let line = open.bandwidth_bits_per_s - none.bandwidth_bits_per_s;
    assert!((line - open.keep_alives_per_s * 60.0 * 8.0).abs() < 1.0, "{line}");
    assert_eq!(open.messages_per_s, none.messages_per_s);
    // Phones keep their connections open themselves.
    let half = plan(&Requirements { connected_share: 0.5, ..needs(2_000_000.0) });
    assert!((half.keep_alives_per_s - open.keep_alives_per_s / 2.0).abs() < 1e-6);
    let slow = plan(&Requirements { keep_alive_s: 60.0, ..needs(2_000_000.0) });
    assert!((slow.keep_alives_per_s - open.keep_alives_per_s / 2.0).abs() < 1e-6);
    assert!(
        open.reasons.iter().any(|reason| reason.starts_with("66,667 keep-alives per second")),
        "{:?}",
        open.reasons
    );
}

#[test]
fn the_engine_load_is_reported() {
    // A million phones that register every minute, on two servers that each carry all of them.
    let shared = plan(&Requirements { refresh_s: 60.0, availability: 0.999, ..needs(1_000_000.0) });
    let engine = shared.engine.unwrap();
    assert_eq!((shared.clusters, shared.members), (1, 2));
    assert!((engine.changes_per_s - 1e6 / 60.0).abs() < 1e-6, "{engine:?}");
    let of = shared.profile.engine;
    assert!((engine.in_bits_per_s - 1e6 / 60.0 * of.write_bytes * 8.0).abs() < 1e-3, "{engine:?}");
    assert!(
        (engine.out_bits_per_s - 1e6 / 60.0 * of.read_bytes * 8.0).abs() < 1e-3,
        "one other member reads it: {engine:?}"
    );
    assert!(
        shared.reasons.iter().any(|reason| reason.starts_with("Members write 16,667 changes")),
        "{:?}",
        shared.reasons
    );
    // With one member, or with phones that register with each member, nothing is shared.
    assert!(plan(&Requirements { availability: 0.98, ..needs(1_000.0) }).engine.is_none());
    assert!(plan(&Requirements { failover: FailoverMethod::Client, ..needs(1_000.0) }).engine.is_none());
}

#[test]
fn connections_are_limited() {
    let tcp = plan(&Requirements { connected_share: 1.0, ..needs(2_000_000.0) });
    holds(&tcp);
    let limit = tcp.limits.iter().find(|limit| limit.resource == Resource::Connections).unwrap();
    // All connections are at the remaining members, with 15 of 16 for phones.
    assert!(
        (limit.required - 2e6 / f64::from(tcp.members - 1)).abs() < 1e-6 && limit.available == 937_500.0,
        "{limit:?}"
    );
    assert_eq!(tcp.connections_per_server, limit.required);
    assert!(tcp.members > 3, "1,000,000 do not fit into 70 % of 937,500");
    assert!(tcp.reasons.iter().any(|reason| reason.contains("set tcp.connections to at least")), "{:?}", tcp.reasons);
    let few = plan(&Requirements { connected_share: 1.0, connections_per_server: 16_384.0, ..needs(10_000.0) });
    assert_eq!(few.servers, 3);
    let many = Requirements { connected_share: 1.0, connections_per_server: 2e6, ..needs(10_000.0) };
    assert!(size(&many, &Profile::measured()).unwrap_err().to_string().contains("connections of a server"));
    assert!(plan(&needs(1_000.0)).limits.iter().all(|limit| limit.resource != Resource::Connections));
}

#[test]
fn after_an_outage_all_phones_register() {
    let plan = plan(&needs(2_000_000.0));
    let storm = plan.avalanche.unwrap();
    assert_eq!(storm.registrations, 2e6);
    assert!((storm.least_s - storm.registrations / storm.registrations_per_s).abs() < 1e-9);
    // In each direction: two messages per REGISTER, two copies and their responses, at 5,200 bit, divided among three
    // servers.
    let line = 1e9 - plan.traffic.calls_per_s / 3.0 * 8.0 * 5_200.0;
    let each = (2.0 + 4.0) / 3.0 * 5_200.0;
    assert_eq!((storm.stage, storm.resource), (Stage::Second, Resource::Network));
    assert!(
        (storm.registrations_per_s - line / each).abs() < 0.001 * storm.registrations_per_s,
        "{storm:?} {}",
        line / each
    );
    // With a fast line the cores are the next bottleneck.
    let mut fast = Profile::measured();
    fast.server.network_bits_per_s = 1e12;
    let storm = size(&needs(2_000_000.0), &fast).unwrap().avalanche.unwrap();
    assert_eq!(storm.resource, Resource::Cpu);
    let costs = fast.costs;
    let cores =
        7.3 - plan.traffic.calls_per_s / 3.0 * (costs.stateful_call_s + costs.challenged_register_s - costs.register_s);
    let each_s = (costs.challenged_register_s + 4.0 * costs.copy_s) / 3.0;
    assert!((storm.registrations_per_s - cores / each_s).abs() < 1.0, "{storm:?}");
}

#[test]
fn a_plan_uses_the_default_failover_times() {
    let plan = plan(&needs(2_000_000.0));
    assert_eq!(plan.failover.times, FailoverTimes::default());
}

#[test]
fn one_nine_costs_a_server() {
    let plan = plan(&needs(2_000_000.0));
    let of = |input: &str| plan.sensitivities.iter().find(|one| one.input == input).unwrap();
    let node = of("unavailability of a server");
    assert_eq!((node.change_percent, node.servers), (-90.0, -1), "{node:?}");
    let promise = of("promised unavailability");
    assert_eq!((promise.change_percent, promise.servers), (900.0, -1), "{promise:?}");
    assert_eq!(plan.servers_for_load, 1);
}

/// Each number of the result can be recomputed from the explanation.
#[test]
fn every_result_number_is_explained() {
    for asked in [
        needs(2_000_000.0),
        Requirements { connected_share: 0.5, ..needs(MANY) },
        Requirements { replication: Replication::Store, contacts_per_subscriber: 2.0, ..needs(3_000_000.0) },
    ] {
        let plan = plan(&asked);
        let explanation = plan.explain();
        let value = |symbol: &str| {
            let step = explanation.steps.iter().find(|step| step.symbol == symbol);
            step.unwrap_or_else(|| panic!("{symbol} in {explanation:?}")).value.clone()
        };
        assert_eq!(value("busy cores"), units::number(plan.busy_cores));
        assert_eq!(value("M"), units::rate(plan.messages_per_s));
        assert_eq!(value("K"), units::rate(plan.keep_alives_per_s));
        assert_eq!(value("network"), units::bandwidth(plan.bandwidth_bits_per_s));
        assert_eq!(value("memory"), units::bytes(plan.memory_bytes));
        assert_eq!(value("W"), units::time(plan.wait_s.unwrap()));
        assert_eq!(value("cores"), units::number(f64::from(plan.cores)));
        assert_eq!(value("effective cores"), "7.3");
        assert_eq!(value("m"), "650 B");
        assert_eq!(value("T_storm"), units::time(plan.avalanche.unwrap().least_s));
        assert_eq!(value("T_F"), "4.125 d");
        let sum = plan.work.registers + plan.work.calls + plan.work.copies + plan.work.stores + plan.work.first_stage;
        assert!((sum + plan.work.keep_alives - plan.busy_cores).abs() < 1e-9);
        let all = explanation.steps.iter();
        assert!(all.clone().all(|step| !step.formula.contains('…') && !step.numbers.contains('…')));
    }
}
