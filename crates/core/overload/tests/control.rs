//! The controller in virtual time: steps, ramps, bursts, floods and two kinds of clients.
#![allow(missing_docs, reason = "a test")]

mod support;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use strowger_foundation::Timestamp;
use strowger_overload::{Class, Controller, FilteredKind, OfferedRequest, WINDOW};
use support::{Clients, Costs, Cpu, Model, Source};

/// Requests per second.
const CAPACITY: f64 = 1_000.0;

fn model(clients: Clients) -> Model {
    Model::new(Costs::of_rate(CAPACITY), vec![Source::callers(clients)])
}

/// Returns the share of the capacity served from second 40 to 100 under constant load, and the 99th percentile of the
/// delays.
fn steady(mut model: Model, times: f64) -> (f64, f64) {
    model.offer(0, CAPACITY * times, 0.0, 100.0);
    model.run(100.0);
    let outcome = &model.outcomes[0];
    (outcome.rate(40, 100) / CAPACITY, outcome.delay(40.0, 0.99))
}

#[test]
fn overload_keeps_nearly_full_goodput_and_low_latency() {
    for (times, least) in [(1.2, 0.98), (2.0, 0.98), (5.0, 0.95), (10.0, 0.90)] {
        let (goodput, p99) = steady(model(Clients::Retransmit), times);
        assert!(goodput >= least && p99 < 0.5, "{times}: {goodput}, {p99} s");
    }
    // Requests over a reliable transport are read even if they are dropped.
    for (times, least) in [(1.2, 0.96), (2.0, 0.95), (5.0, 0.90), (10.0, 0.80)] {
        let (goodput, p99) = steady(model(Clients::Wait), times);
        assert!(goodput >= least && p99 < 0.5, "{times}: {goodput}, {p99} s");
    }
}

#[test]
fn an_unsteady_cpu_share_is_well_used() {
    for times in [1.2, 2.0, 5.0, 10.0] {
        let mut caged = model(Clients::Retransmit);
        (caged.cpu, caged.noise) = (Cpu { share: 0.04, period: 0.025 }, 0.6);
        let (goodput, _) = steady(caged, times);
        assert!(goodput >= 0.90, "{times}: {goodput}");
    }
}

#[test]
fn with_kernel_drop_memory_latency_is_low_even_on_an_unsteady_cpu() {
    for (share, noise) in [(1.0, 0.0), (0.05, 0.0), (0.05, 0.6)] {
        for times in [1.2, 2.0, 5.0, 10.0] {
            let mut model = model(Clients::Retransmit).with_memory();
            (model.cpu, model.noise) = (Cpu { share, period: 0.025 }, noise);
            let (goodput, p99) = steady(model, times);
            assert!(goodput >= 0.96 && p99 < 0.5, "{share}, {noise}, {times}: {goodput}, {p99} s");
        }
    }
}

#[test]
fn with_kernel_drop_memory_overload_ends_with_the_load() {
    let mut model = model(Clients::Retransmit).with_memory();
    model.offer(0, 0.5 * CAPACITY, 0.0, 20.0);
    model.offer(0, 10.0 * CAPACITY, 20.0, 80.0);
    model.offer(0, 0.5 * CAPACITY, 80.0, 120.0);
    model.run(120.0);
    let outcome = &model.outcomes[0];
    for second in 82..119 {
        let (served, offered) = (outcome.by_second[second], outcome.offered_by_second[second]);
        assert!(served.abs_diff(offered) <= 40, "second {second}: {served} of {offered}");
    }
    assert!(model.controller.filter().is_open() && !model.controller.is_limiting());
}

/// Bursts of 100 ms at twice the average, 90 % in all.
fn bursts(model: &mut Model, seconds: f64) {
    let mut at = 0.0;
    while at < seconds {
        model.offer(0, 1.8 * CAPACITY, at, at + 0.1);
        at += 0.2;
    }
}

#[test]
fn bursts_below_the_capacity_are_never_refused() {
    let mut refused = 0;
    let mut served = 0;
    // In parts, to save memory.
    for part in 0..20 {
        let mut model = model(Clients::Retransmit);
        model.seed(0x9E37_79B9 + part);
        bursts(&mut model, 550.0);
        model.run(551.0);
        let outcome = &model.outcomes[0];
        refused += outcome.refused + model.overflows + model.filtered;
        served += outcome.served;
        assert_eq!(
            outcome.offered, outcome.served,
            "refused {}, overflows {}, filtered {}",
            outcome.refused, model.overflows, model.filtered
        );
    }
    assert!(served >= 9_800_000, "{served}");
    assert_eq!(refused, 0);
}

#[test]
fn a_load_step_settles_in_two_seconds_without_oscillation() {
    let mut model = model(Clients::Wait);
    model.offer(0, 0.5 * CAPACITY, 0.0, 20.0);
    model.offer(0, 3.0 * CAPACITY, 20.0, 60.0);
    model.offer(0, 0.5 * CAPACITY, 60.0, 80.0);
    model.run(80.0);
    let outcome = &model.outcomes[0];
    for second in 23..59 {
        let goodput = outcome.rate(second, second + 1) / CAPACITY;
        assert!((0.75..1.1).contains(&goodput), "second {second}: {goodput}");
    }
    assert!(outcome.rate(22, 60) / CAPACITY > 0.9);
    for second in 62..79 {
        let (served, offered) = (outcome.by_second[second], outcome.offered_by_second[second]);
        assert!(served.abs_diff(offered) <= 40, "second {second}: {served} of {offered}");
    }
    assert!(model.controller.filter().is_open());
}

#[test]
fn a_ramp_to_five_times_capacity_keeps_goodput() {
    let mut model = model(Clients::Retransmit);
    for second in 0..100_u32 {
        let load = 0.5 + 4.5 * f64::from(second) / 100.0;
        model.offer(0, load * CAPACITY, second.into(), f64::from(second) + 1.0);
    }
    model.run(100.0);
    let outcome = &model.outcomes[0];
    for begin in (20..100).step_by(10) {
        let goodput = outcome.rate(begin, begin + 10) / CAPACITY;
        assert!(goodput > 0.85, "from second {begin}: {goodput}");
    }
}

fn source(ip: [u8; 4], class: Class, kind: FilteredKind) -> Source {
    let clients = Clients::Retransmit;
    Source { ip: IpAddr::from(Ipv4Addr::from(ip)), class, kind, clients, ..Source::callers(clients) }
}

/// Returns the share of callers served at `load` times the capacity, beside a flood of `times` the capacity.
fn beside(load: f64, flood: Source, times: f64) -> f64 {
    let callers = source([192, 0, 2, 1], Class::Call, FilteredKind::ProvenCall);
    let mut model = Model::new(Costs::of_rate(CAPACITY), vec![callers, Source { clients: Clients::Once, ..flood }]);
    flooded(&mut model, load, times)
}

fn flooded(model: &mut Model, load: f64, times: f64) -> f64 {
    model.offer(0, load * CAPACITY, 0.0, 60.0);
    model.offer(1, times * CAPACITY, 10.0, 60.0);
    model.run(60.0);
    model.outcomes[0].rate(15, 60) / (load * CAPACITY)
}

#[test]
fn important_classes_are_served_first() {
    let sources = vec![
        source([192, 0, 2, 1], Class::Emergency, FilteredKind::TrunkCall),
        source([192, 0, 2, 2], Class::Refresh, FilteredKind::Register),
        source([192, 0, 2, 3], Class::Call, FilteredKind::ProvenCall),
        source([192, 0, 2, 4], Class::Other, FilteredKind::Other),
    ];
    let mut model = Model::new(Costs::of_rate(CAPACITY), sources);
    for source in 0..4 {
        model.offer(source, 0.4 * CAPACITY, 0.0, 60.0);
    }
    model.run(60.0);
    let share = |source: usize| model.outcomes[source].rate(20, 60) / (0.4 * CAPACITY);
    assert!(share(0) > 0.98 && share(1) > 0.98, "{} {}", share(0), share(1));
    assert!((0.3..0.6).contains(&share(2)) && share(3) < 0.1, "{} {}", share(2), share(3));
}

#[test]
fn a_flooding_source_does_not_harm_the_others() {
    let flood = source([198, 51, 100, 1], Class::Call, FilteredKind::ProvenCall);
    let innocent = beside(0.4, flood, 2.0);
    assert!(innocent > 0.95, "{innocent}");
    // A source that gives all messages an admitted position gets its share and no more.
    for position in [0, 1_000, 20_000] {
        let innocent = beside(0.4, Source { position: Some(position), ..flood }, 2.0);
        assert!(innocent > 0.95, "position {position}: {innocent}");
    }
}

#[test]
fn strangers_do_not_harm_known_sources() {
    // A flood from as many addresses as requests takes no more than one from a single address.
    let strangers = Source { is_proven: false, ..source([198, 51, 100, 1], Class::Other, FilteredKind::Call) };
    for load in [0.5, 0.05] {
        let innocent = beside(load, strangers, 5.0);
        assert!(innocent > 0.95, "{load}: {innocent}");
    }
}

#[test]
fn a_kernel_that_knows_proven_sources_drops_only_strangers_and_junk() {
    let callers = source([192, 0, 2, 1], Class::Call, FilteredKind::ProvenCall);
    let others = Source { clients: Clients::Once, is_proven: false, ..callers };
    let strangers = Source { class: Class::Other, kind: FilteredKind::Call, ..others };
    let options = Source { kind: FilteredKind::Other, ..strangers };
    let nonsense = Source { is_malformed: true, ..options };
    for (flood, times) in [(strangers, 5.0), (strangers, 50.0), (options, 5.0), (nonsense, 5.0), (nonsense, 50.0)] {
        let mut model = Model::new(Costs::of_rate(CAPACITY), vec![callers, flood]).with_memory();
        let innocent = flooded(&mut model, 0.5, times);
        assert!(innocent > 0.95, "{innocent} beside {times} times {flood:?}");
        let filtered = model.filtered as f64 / model.outcomes[1].offered as f64;
        assert!(filtered > 0.5, "{filtered} of {times} times {flood:?}");
    }
}

#[test]
fn emergency_calls_of_strangers_take_a_bounded_part_of_capacity() {
    let strangers = Source { is_proven: false, ..source([198, 51, 100, 1], Class::Emergency, FilteredKind::Call) };
    let innocent = beside(0.5, strangers, 4.0);
    assert!(innocent > 0.95, "{innocent}");
    // While they are few, they are served before all others.
    let mut model = Model::new(Costs::of_rate(CAPACITY), vec![Source::callers(Clients::Retransmit), strangers]);
    model.offer(0, 3.0 * CAPACITY, 0.0, 60.0);
    model.offer(1, 0.1 * CAPACITY, 0.0, 60.0);
    model.run(60.0);
    let served = model.outcomes[1].rate(20, 60) / (0.1 * CAPACITY);
    assert!(served > 0.98, "{served}");
}

#[test]
fn a_short_queue_does_not_hide_a_long_one() {
    let mut controller = Controller::new(7, true);
    let offer = OfferedRequest {
        class: Class::Call,
        kind: FilteredKind::Call,
        position: 0,
        source: None,
        is_proven: true,
        is_reliable: false,
    };
    for tenth in 0..10_u32 {
        for (queue, wait_ms) in [(0, 200), (1, 0)] {
            let (now, wait) = (Timestamp::ZERO + WINDOW * tenth, Duration::from_millis(wait_ms));
            controller.record_wait(now, queue, wait);
            controller.handle_request(now, wait, || offer);
        }
    }
    assert!(controller.is_limiting());
}
