//! Whole runs over loopback, both ends in this process.

use std::time::Duration;

use strowger_traffic::engine::{Report, Run};
use strowger_traffic::law::Law;
use strowger_traffic::meter::{Answer, Times};
use strowger_traffic::options::{Answering, Options, workload};
use strowger_traffic::script::Verb;
use strowger_traffic::service::{Applies, ServiceLaw};

fn options(name: &str) -> Options {
    let mut options = Options::new(workload(name).expect("built in"), None, 7);
    options.answering = Answering::Here;
    (options.rate, options.calls) = (500.0, Some(500));
    options
}

fn run(options: &Options) -> Report {
    let (plan, _) = options.plan().expect("a plan");
    Run::prepare(plan).expect("sockets").go().expect("a run")
}

#[test]
fn calls_over_udp_are_all_carried() {
    for threads in [1, 3] {
        let mut options = options("proxy-200");
        (options.threads, options.sockets) = (threads, 5);
        let report = run(&options);
        let phase = report.measured().expect("one phase");
        let accounts = phase.caller.began;
        assert!(accounts.add_up(), "{accounts:?}");
        assert_eq!((accounts.offered, accounts.carried), (500, 500), "{:?}", phase.caller.failures);
        assert_eq!(phase.callee.answered.carried, 500);
        assert_eq!(phase.caller.lateness.count(), 500);
        assert_eq!(phase.caller.answer(Verb::Invite, Answer::Success).map(Times::count), Some(500));
        assert!(phase.elapsed > Duration::from_millis(600), "{:?}", phase.elapsed);
    }
}

#[test]
fn calls_over_tcp_are_all_carried_however_connections_are_used() {
    use strowger_traffic::driver::Connecting::{Dialog, Persistent, PersistentWithOpen, Transaction};
    for (connecting, opened) in [(Transaction, 600), (Dialog, 300), (Persistent, 4), (PersistentWithOpen, 4)] {
        let mut options = options("proxy-200");
        (options.connecting, options.connections, options.calls) = (connecting, 4, Some(300));
        let (mut plan, _) = options.plan().expect("a plan");
        plan.transport = strowger_foundation::Transport::Tcp;
        let report = Run::prepare(plan).expect("sockets").go().expect("a run");
        let phase = report.measured().expect("one phase");
        let accounts = phase.caller.began;
        assert!(accounts.add_up(), "{accounts:?}");
        assert_eq!(accounts.carried, 300, "{connecting:?}: {:?} {:?}", phase.caller.failures, phase.links);
        // Each connection has two ends here; the shared ones may have been opened before the phase began.
        assert!(phase.links.connected <= 2 * opened + 8, "{connecting:?}: {:?}", phase.links);
        assert!(phase.links.connected >= if opened > 4 { 2 * opened } else { 0 }, "{connecting:?}: {:?}", phase.links);
    }
}

#[test]
fn an_emulated_server_carries_what_it_can_and_the_accounts_are_exact() {
    let mut options = options("proxy-200");
    (options.rate, options.calls, options.repeats) = (1_000.0, Some(1_500), false);
    options.drain = Some(Duration::from_millis(500));
    let law = Law::parse("exp(mean=4ms)").expect("a law");
    options.service = Some(ServiceLaw { law, servers: 2, queue: 10, applies: Applies::New });
    let report = run(&options);
    let phase = report.measured().expect("one phase");
    let accounts = phase.caller.began;
    assert!(accounts.add_up(), "{accounts:?}");
    assert_eq!(accounts.offered, 1_500);
    // Two servers of 250 a second take half of what is offered, and a little that is still queued.
    let carried = accounts.carried as f64 / 1_500.0;
    assert!((0.42..0.62).contains(&carried), "{accounts:?}");
    assert_eq!(accounts.unfinished + accounts.lost, phase.service_drops, "{accounts:?}");
}

#[test]
fn a_closed_loop_keeps_its_number_of_calls() {
    let mut options = options("proxy-200");
    (options.outstanding, options.calls) = (Some(8), Some(400));
    let report = run(&options);
    let accounts = report.measured().expect("one phase").caller.began;
    assert!(accounts.add_up() && accounts.carried == 400, "{accounts:?}");
}

#[test]
fn limits_refuse_and_are_counted() {
    let mut options = options("baseline");
    (options.rate, options.calls, options.max_sessions) = (1_000.0, Some(200), Some(50));
    let report = run(&options);
    let accounts = report.measured().expect("one phase").caller.began;
    assert!(accounts.add_up(), "{accounts:?}");
    assert_eq!((accounts.offered, accounts.sent, accounts.refused), (200, 50, 150), "{accounts:?}");
    assert_eq!(accounts.carried, 50);
}

#[test]
fn who_is_not_there_is_said_at_once() {
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let mut options = options("proxy-200");
    options.to = Some(strowger_traffic::options::Target::parse(&format!("udp:{nobody}")).expect("a target"));
    options.answering = Answering::There;
    (options.rate, options.calls) = (50.0, Some(10_000));
    let begun = std::time::Instant::now();
    let report = run(&options);
    assert!(report.broken_off.expect("nobody is there").contains("start the server"), "a remedy");
    assert!(begun.elapsed() < Duration::from_secs(10));
}
