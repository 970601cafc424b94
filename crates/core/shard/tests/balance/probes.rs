//! Probes of targets: what takes them out of service and what brings them back.

use strowger_balancer::Probe;
use strowger_locate::LocateQuery;
use strowger_shard::{Event, TargetAddress};

use super::*;

#[test]
fn a_target_that_sends_100_first_passes_its_probe() {
    let targets = targets(1);
    let probe = Probe { interval: Duration::from_secs(1), down: 1, ..Probe::default() };
    let mut world = world(SetConfig { probe: Some(probe), ..config(Policy::Hash) }, &targets);
    for _ in 0..30 {
        for (_, sent) in world.wait(Duration::from_millis(100)) {
            world.respond(&sent, 100, "", "");
            world.respond(&sent, 200, "p", "");
        }
    }
    assert!(targets[0].is_up(), "{:?}", world.events);
}

#[test]
fn probes_take_a_target_out_and_bring_it_back() {
    let targets = targets(2);
    let probe =
        Probe { interval: Duration::from_secs(5), timeout: Duration::from_secs(1), down: 2, up: 2, ..Probe::default() };
    let mut world = world(SetConfig { probe: Some(probe), ..config(Policy::RoundRobin) }, &targets);
    let mut dead = true;
    // Every target answers its probes, except the first while it is dead.
    let run = |world: &mut World, seconds: u64, dead: bool| {
        for _ in 0..seconds * 10 {
            for (_, sent) in world.wait(Duration::from_millis(100)) {
                if sent.method() == "OPTIONS" && !(dead && sent.to.to_string() == address(0)) {
                    world.respond(&sent, 200, "p", "");
                }
            }
        }
    };
    run(&mut world, 20, dead);
    assert!(!targets[0].is_up() && targets[1].is_up());
    let is_down =
        |event: &Event| matches!(event, Event::TargetHealth { is_up: false, uri, .. } if uri.contains(&address(0)));
    assert_eq!(world.events.iter().filter(|event| is_down(event)).count(), 1, "it is told once: {:?}", world.events);
    for number in 0..6 {
        let sent = invite(&mut world, number);
        assert_eq!(sent.to.to_string(), address(1));
        world.respond(&sent, 486, "b", "");
    }
    dead = false;
    run(&mut world, 20, dead);
    assert!(targets[0].is_up());
    assert!(world.events.iter().any(|event| matches!(event, Event::TargetHealth { is_up: true, .. })));
}

#[test]
fn a_process_that_has_been_replaced_does_not_probe() {
    let targets = targets(3);
    let probe = Probe { interval: Duration::from_secs(5), ..Probe::default() };
    let set = SetConfig { probe: Some(probe), ..config(Policy::Hash) };
    let mut world = world(set.clone(), &targets);
    let is_probed = |world: &mut World| !world.wait(Duration::from_secs(20)).is_empty();
    assert!(is_probed(&mut world));
    let before = targets.iter().map(|target| target.is_up()).collect::<Vec<_>>();
    assert!(world.give(Input::HandedOver).is_empty());
    assert!(!is_probed(&mut world), "the pending probes are not repeated either");
    world.configure(|snapshot| snapshot.routes = vec![route(set, &targets)]);
    assert!(!is_probed(&mut world));
    assert_eq!(targets.iter().map(|target| target.is_up()).collect::<Vec<_>>(), before);
}

/// A loaded target's responses to earlier calls do not end its pause: it has said when to come back.

#[test]
fn probes_follow_the_configuration() {
    let targets = targets(1);
    let with = |interval: Option<u64>| {
        let probe = |seconds| Probe { interval: Duration::from_secs(seconds), down: 1, ..Probe::default() };
        SetConfig { probe: interval.map(probe), ..config(Policy::Hash) }
    };
    let is_probed_within = |world: &mut World, seconds: u64| {
        world.wait(Duration::from_secs(seconds)).iter().any(|(_, sent)| sent.method() == "OPTIONS")
    };
    let mut world = world(with(Some(3_600)), &targets);
    world.configure(|snapshot| snapshot.routes = vec![route(with(Some(5)), &targets)]);
    assert!(is_probed_within(&mut world, 6), "an interval that is made shorter holds at once");
    world.wait(Duration::from_secs(3));
    assert!(!targets[0].is_up());
    world.configure(|snapshot| snapshot.routes = vec![route(with(None), &targets)]);
    assert!(!is_probed_within(&mut world, 60));
    world.configure(|snapshot| snapshot.routes = vec![route(with(Some(5)), &targets)]);
    assert!(targets[0].is_up(), "what probes said before says nothing now");
    world.configure(|snapshot| snapshot.routes = vec![route(with(Some(0)), &targets)]);
    let asked = world.wait(Duration::from_secs(3)).iter().filter(|(_, sent)| sent.method() == "OPTIONS").count();
    assert!(asked < 200, "not as fast as it can: {asked}");
}

/// When probing ends, its results are dropped: the target gets calls again, few at first, because it may still be
/// dead.
#[test]
fn a_target_with_an_unresolved_name_is_taken_out() {
    let pool = targets(2);
    let probe = Probe { interval: Duration::from_secs(5), ..Probe::default() };
    let set = SetConfig { probe: Some(probe), ..config(Policy::RoundRobin) };
    let members = pool.iter().map(|target| Member::new(Arc::clone(target))).collect();
    let set = Arc::new(Set::new(set, members).expect("a sound set"));
    let question = LocateQuery::new(b"gone.example", None, None, false);
    let by_name =
        RouteTarget { uri: uri(0).into_bytes().into(), address: TargetAddress::Name(question), priority: 1, weight: 1 };
    let by_address = RouteTarget::at(uri(1).as_bytes(), address(1).parse().expect("an address"));
    let mut world = World::new(|snapshot| {
        let places = vec![by_name, by_address];
        snapshot.routes = vec![Route::of_domain(b"*", Action::balance(Arc::clone(&set), places, Stateless::Never))];
    });
    for _ in 0..200 {
        for (_, sent) in world.wait(Duration::from_millis(100)) {
            if sent.method() == "OPTIONS" {
                world.respond(&sent, 200, "p", "");
            }
        }
        // The DNS has no answer, or one that has expired before the next probe.
    }
    assert_eq!([pool[0].is_up(), pool[1].is_up()], [false, true]);
}

#[test]
fn a_down_target_returns_slowly_when_probes_are_disabled() {
    let targets = targets(4);
    let with = |probe: Option<Probe>| SetConfig {
        probe,
        slow_start: Duration::from_secs(30),
        ..config(Policy::LeastTransactions)
    };
    let probe = Probe { interval: Duration::from_secs(5), down: 1, up: 1, ..Probe::default() };
    let mut world = world(with(Some(probe)), &targets);
    for _ in 0..100 {
        for (_, sent) in world.wait(Duration::from_millis(100)) {
            if sent.method() == "OPTIONS" && sent.to.to_string() != address(0) {
                world.respond(&sent, 200, "p", "");
            }
        }
    }
    assert_eq!([0, 1, 2, 3].map(|at| targets[at].is_up()), [false, true, true, true]);
    world.configure(|snapshot| snapshot.routes = vec![route(with(None), &targets)]);
    let calls = |world: &mut World, first: usize| {
        let begun = (first..first + 200).map(|number| {
            let sent = invite(world, number);
            world.respond(&sent, 180, "b", "");
            sent.to.to_string()
        });
        begun.filter(|to| *to == address(0)).count()
    };
    let at_first = calls(&mut world, 0);
    assert!((1..=12).contains(&at_first), "{at_first} of 200");
    world.wait(Duration::from_secs(31));
    assert!(calls(&mut world, 200) >= 30, "all of its part");
}

#[test]
fn a_pending_probe_is_not_retransmitted_once_probes_are_disabled() {
    let targets = targets(1);
    let with = |probe: Option<Probe>| SetConfig { probe, ..config(Policy::Hash) };
    let probe = Probe { interval: Duration::from_secs(5), timeout: Duration::from_secs(4), ..Probe::default() };
    let mut world = world(with(Some(probe)), &targets);
    while !world.wait(Duration::from_millis(100)).iter().any(|(_, sent)| sent.method() == "OPTIONS") {}
    world.configure(|snapshot| snapshot.routes = vec![route(with(None), &targets)]);
    let sent = world.settle();
    assert!(sent.is_empty(), "{:?}", summary(&sent));
}

/// A response counts only for its own probe, and once.
#[test]
fn a_late_probe_response_is_ignored() {
    let targets = targets(1);
    let probe =
        Probe { interval: Duration::from_secs(5), timeout: Duration::from_secs(1), down: 2, up: 2, ..Probe::default() };
    let mut world = world(SetConfig { probe: Some(probe), ..config(Policy::Hash) }, &targets);
    let next = |world: &mut World| loop {
        let sent = world.wait(Duration::from_millis(100));
        if let Some((_, sent)) = sent.into_iter().find(|(_, sent)| sent.method() == "OPTIONS") {
            break sent;
        }
    };
    let first = next(&mut world);
    world.wait(Duration::from_secs(2));
    let second = next(&mut world);
    assert_ne!(first.header("Via"), second.header("Via"));
    // A response to the probe that was given up, while the next one, which fails too, is pending.
    world.respond(&first, 200, "p", "");
    world.wait(Duration::from_secs(2));
    assert!(!targets[0].is_up(), "two in a row had no answer in time");
    world.respond(&second, 200, "p", "");
    let third = next(&mut world);
    for _ in 0..3 {
        world.respond(&third, 200, "p", "");
    }
    assert!(!targets[0].is_up(), "one answer, however often it comes");
    let fourth = next(&mut world);
    world.respond(&fourth, 200, "p", "");
    assert!(targets[0].is_up());
}

/// When our own network is full, every probe is lost, but no target is at fault.
#[test]
fn unsent_probes_take_no_target_out() {
    let targets = targets(2);
    let probe = Probe { interval: Duration::from_secs(5), down: 1, ..Probe::default() };
    let mut world = world(SetConfig { probe: Some(probe), ..config(Policy::Hash) }, &targets);
    let mut lost = 0;
    for _ in 0..600 {
        for (_, sent) in world.wait(Duration::from_millis(100)) {
            lost += 1;
            assert!(world.give(Input::SendFailed { peer: sent.to }).is_empty());
        }
    }
    assert!(lost >= 20 && targets.iter().all(|target| target.is_up()), "{lost} lost, {:?}", world.events);
    world.wait(Duration::from_secs(10));
    assert!(!targets.iter().any(|target| target.is_up()), "now they leave, and nobody answers");
}
