//! Resources that run short on this machine, and unreachable targets: each error says what to do, and the counts stay
//! exact. Each test runs itself again in a process with limited resources.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use strowger_foundation::Transport;
use strowger_traffic::driver::ConnectionLifetime;
use strowger_traffic::engine::{Plan, Report, Run};
use strowger_traffic::options::{CalleeLocation, Options, Target, workload};

/// Set in the process with limited resources.
const INSIDE: &str = "STROWGER_TEST_INSIDE";

/// Returns whether the test runs in such a process. If not, starts it there through a shell that first runs
/// `prepare`, and requires that it succeeds.
fn is_inside(test: &str, with: &[&str], prepare: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let this = std::env::current_exe().expect("a running program has a file");
    let shell = format!("{prepare} && exec \"$0\" --exact {test} --nocapture");
    let (program, arguments) = with.split_first().map_or(("sh", &[][..]), |(first, rest)| (*first, rest));
    let mut command = Command::new(program);
    command.args(arguments);
    if !with.is_empty() {
        command.arg("sh");
    }
    let output = command.args(["-c", &shell]).arg(this).env(INSIDE, "1").output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("1 passed"), "the test is there: {}", text(&output.stdout));
    false
}

/// Command that creates a network namespace, whose ports the test limits.
const NAMESPACE: &[&str] = &["unshare", "--net"];

fn ports(first: u16, last: u16) -> String {
    format!("ip link set lo up && echo {first} {last} > /proc/sys/net/ipv4/ip_local_port_range")
}

/// Returns whether namespaces can be created here.
fn may_unshare() -> bool {
    let may = Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success());
    if !may {
        println!("this test needs CAP_SYS_ADMIN for a network namespace of its own");
    }
    may
}

fn options(rate: f64, calls: u64) -> Options {
    let mut options = Options::new(workload("baseline").expect("built in"), None, 7);
    options.callee_location = CalleeLocation::Local;
    (options.rate, options.calls, options.drain) = (rate, Some(calls), Some(Duration::from_secs(2)));
    options
}

fn run(plan: Plan) -> Report {
    let report = Run::prepare(plan).expect("sockets").go().expect("a run");
    let accounts = report.measured().expect("one phase").caller.began;
    assert!(accounts.add_up(), "{accounts:?}");
    report
}

fn over_tcp(options: &Options, connecting: ConnectionLifetime) -> Plan {
    let mut plan = options.plan().expect("a plan").0;
    (plan.transport, plan.connection_lifetime) = (Transport::Tcp, connecting);
    plan
}

fn wrong(plan: Plan) -> String {
    Run::prepare(plan).expect_err("too little").to_string()
}

#[test]
fn too_few_files_for_the_sockets_are_an_error_with_a_hint() {
    if !is_inside("too_few_files_for_the_sockets_are_an_error_with_a_hint", &[], "ulimit -Sn 40 && ulimit -Hn 40") {
        return;
    }
    let mut options = options(10.0, 10);
    options.sockets = 100;
    let error = wrong(options.plan().expect("a plan").0);
    assert!(error.contains("ulimit -n"), "{error}");
    options.threads = 100;
    options.sockets = 1;
    let error = wrong(options.plan().expect("a plan").0);
    assert!(error.contains("ulimit -n"), "{error}");
}

#[test]
fn too_few_files_for_the_connections_are_reported() {
    let test = "too_few_files_for_the_connections_are_reported";
    if !is_inside(test, &[], "ulimit -Sn 60 && ulimit -Hn 60") {
        return;
    }
    let report = run(over_tcp(&options(400.0, 200), ConnectionLifetime::Dialog));
    let phase = report.measured().expect("one phase");
    let accounts = phase.caller.began;
    assert!(accounts.refused > 0 && accounts.carried > 0, "{accounts:?} {:?}", phase.links);
    assert!(phase.links.out_of_files > 0, "{:?}", phase.links);
    let why = phase.bottleneck().expect("files are short");
    assert!(why.contains("ulimit -n") || why.contains("late"), "{why}");
    assert!(phase.links.exhaustion().expect("files are short").contains("ulimit -n"));
}

#[test]
fn too_few_ports_for_the_sockets_are_an_error_with_a_hint() {
    let test = "too_few_ports_for_the_sockets_are_an_error_with_a_hint";
    if !may_unshare() || !is_inside(test, NAMESPACE, &ports(40_000, 40_019)) {
        return;
    }
    let mut options = options(10.0, 10);
    options.sockets = 100;
    let error = wrong(options.plan().expect("a plan").0);
    assert!(error.contains("net.ipv4.ip_local_port_range") && error.contains("--from"), "{error}");
    // The suggested remedy works.
    options.from = (1..=20).map(|last| IpAddr::from([127, 0, 0, last])).collect();
    let report = run(options.plan().expect("a plan").0);
    assert_eq!(report.measured().expect("one phase").caller.began.carried, 10);
}

#[test]
fn too_few_ports_for_the_connections_are_reported() {
    let test = "too_few_ports_for_the_connections_are_reported";
    if !may_unshare() || !is_inside(test, NAMESPACE, &ports(40_000, 40_019)) {
        return;
    }
    let mut options = options(400.0, 100);
    let report = run(over_tcp(&options, ConnectionLifetime::Dialog));
    let phase = report.measured().expect("one phase");
    let few = phase.caller.began;
    assert!(few.refused > 0 && few.carried > 0, "{few:?} {:?}", phase.links);
    assert!(phase.links.exhausted > 0 && phase.links.out_of_files == 0, "{:?}", phase.links);
    let why = phase.links.exhaustion().expect("ports are short");
    assert!(why.contains("net.ipv4.ip_local_port_range") && why.contains("--from"), "{why}");
    // The suggested remedy works.
    options.from = (1..=10).map(|last| IpAddr::from([127, 0, 0, last])).collect();
    let report = run(over_tcp(&options, ConnectionLifetime::Dialog));
    let phase = report.measured().expect("one phase");
    assert_eq!(phase.caller.began.carried, 100, "{:?} {:?}", phase.caller.began, phase.links);
    assert_eq!(phase.links.exhaustion(), None);
}

#[test]
fn a_target_without_a_route_is_reported_at_once() {
    let test = "a_target_without_a_route_is_reported_at_once";
    if !may_unshare() || !is_inside(test, NAMESPACE, "ip link set lo up") {
        return;
    }
    for transport in ["udp", "tcp"] {
        let mut options = options(50.0, 10_000);
        options.to = Some(Target::parse(&format!("{transport}:192.0.2.1:5060")).expect("a target"));
        options.callee_location = CalleeLocation::Remote;
        let error = options.plan().expect_err("no way").to_string();
        assert!(error.contains("--to") && error.contains("--from"), "{error}");
        options.from = vec![IpAddr::from([127, 0, 0, 1])];
        let report = run(options.plan().expect("a plan").0);
        let why = report.broken_off.expect("no way");
        assert!(why.contains("--to"), "{why}");
    }
}

#[test]
fn a_closed_tcp_port_is_reported_at_once() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let mut options = options(50.0, 10_000);
    options.to = Some(Target::parse(&format!("tcp:{nobody}")).expect("a target"));
    options.callee_location = CalleeLocation::Remote;
    let report = run(options.plan().expect("a plan").0);
    assert!(report.broken_off.expect("nobody is there").contains("start the server"));
}

#[test]
fn a_silent_server_is_reported_at_end() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let mut options = options(100.0, 10);
    options.to = Some(Target::parse(&format!("udp:{}", silent.local_addr().expect("bound"))).expect("a target"));
    options.callee_location = CalleeLocation::Remote;
    options.drain = Some(Duration::from_millis(100));
    let report = run(options.plan().expect("a plan").0);
    let why = report.broken_off.expect("not one answer");
    assert!(why.contains("no response from") && why.contains("--to"), "{why}");
}
