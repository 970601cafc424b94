//! Compiled scenarios against SIPp itself, over loopback. Without SIPp these tests do nothing.

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use strowger_foundation::Timestamp;
use strowger_traffic::driver::{Driver, Outbox, Setup};
use strowger_traffic::engine::Run;
use strowger_traffic::sipp::{Options, Role, Scenario, Table};

const CALLS: u64 = 200;

/// A socket used as an outbox.
struct Socket {
    socket: UdpSocket,
    slot: Vec<u8>,
}

impl Outbox for Socket {
    fn slot(&mut self, _: u32) -> &mut Vec<u8> {
        self.slot.clear();
        &mut self.slot
    }

    fn commit(&mut self, _: u32, peer: SocketAddr, _: u64) {
        self.socket.send_to(&self.slot, peer).expect("loopback takes it");
    }

    fn connect(&mut self, _: SocketAddr, _: bool) -> Option<u32> {
        Some(0)
    }

    fn close(&mut self, _: u32) {}
}

/// SIPp as a child process, which ends with the test.
struct Sipp(Child);

impl Sipp {
    fn start(arguments: &[&str]) -> Self {
        let child = Command::new("sipp")
            .args(arguments)
            .args(["-nostdin", "-i", "127.0.0.1", "-m", &CALLS.to_string(), "-timeout", "30s", "-timeout_error"])
            .current_dir(std::env::temp_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("it was there a moment ago"))
    }
}

impl Drop for Sipp {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn built_in(name: &str) -> Option<Scenario> {
    let output = Command::new("sipp").args(["-sd", name]).output().ok()?;
    Some(Scenario::compile(name, &output.stdout, &[], &Options::default()).unwrap_or_else(|error| panic!("{error}")))
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios").join(name)
}

/// Returns a scenario file of this project that SIPp reads too; `None` without SIPp.
fn our_own(name: &str) -> Option<Scenario> {
    Command::new("sipp").arg("-v").output().ok()?;
    let table = Arc::new(Table::read(&file("users.csv")).unwrap_or_else(|error| panic!("{error}")));
    let scenario = Scenario::read(&file(name), &[table], &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(scenario.warnings, [], "{name}");
    Some(scenario)
}

/// Returns whether a process listens at a port, as SIPp does not report it.
fn is_bound(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/udp").expect("Linux");
    let wanted = format!("0100007F:{port:04X}");
    table.lines().filter_map(|line| line.split_whitespace().nth(1)).any(|local| local == wanted)
}

/// Returns a port that nothing else takes before SIPp does: it is below the kernel's ephemeral range (32768 and up),
/// and no other test of this or another process draws it.
fn port_for_sipp() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let drawn = NEXT.fetch_add(1, Ordering::Relaxed);
        let process = u16::try_from(std::process::id() % 350).expect("small");
        let port = 18_000 + process * 40 + drawn % 40;
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Returns a socket that keeps its port from the start.
fn own_socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").expect("loopback")
}

/// Plays one end until SIPp has ended; as the caller, begins a call every few milliseconds. Returns whether SIPp
/// succeeded.
fn play(scenario: &Scenario, socket: UdpSocket, remote: u16, mut sipp: Sipp) -> (Driver, bool) {
    let port = socket.local_addr().expect("bound").port();
    socket.set_read_timeout(Some(Duration::from_millis(2))).expect("a time-out");
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let users = scenario.users("example.com", &Options::default());
    let mut setup = Setup::new(vec![scenario.script.clone()].into(), users.into(), at(remote), at(port));
    setup.answers = scenario.answers.iter().map(|verb| (*verb, 0)).collect();
    let mut driver = Driver::new(setup);
    let mut out = Socket { socket, slot: Vec::new() };
    let begun = Instant::now();
    let now = || Timestamp::from_nanos(u64::try_from(begun.elapsed().as_nanos()).expect("not for centuries"));
    let (mut calls, mut buffer, mut first) = (0, [0; 65_536], None);
    let mut is_content = None;
    while begun.elapsed() < Duration::from_secs(40) {
        if scenario.role == Role::Caller && first.is_none() && is_bound(remote) {
            first = Some(now());
        }
        if calls < CALLS && first.is_some_and(|first| now() >= first + Duration::from_millis(calls * 5)) {
            let user = u32::try_from(calls).expect("few");
            driver.begin(now(), 0, (user, 0), &mut out).expect("no limit");
            calls += 1;
        }
        if let Ok((length, peer)) = out.socket.recv_from(&mut buffer) {
            driver.handle_message(now(), now(), (0, peer), &buffer[..length], &mut out);
        }
        if driver.poll_timeout().is_some_and(|at| at <= now()) {
            driver.handle_timeout(now(), &mut out);
        }
        if is_content.is_none() {
            is_content = sipp.0.try_wait().expect("our child").map(|status| status.success());
        }
        if is_content.is_some() && driver.session_count() == 0 {
            break;
        }
    }
    (driver, is_content.unwrap_or(false))
}

fn we_call(ours: Option<Scenario>, theirs: &[&str]) {
    let Some(scenario) = ours else { return };
    let (socket, remote) = (own_socket(), port_for_sipp());
    let sipp = Sipp::start(&[theirs, &["-p", &remote.to_string()]].concat());
    let (driver, is_content) = play(&scenario, socket, remote, sipp);
    let accounts = &driver.meter().began;
    assert_eq!((accounts.sent, accounts.carried), (CALLS, CALLS), "{} to SIPp: {accounts:?}", scenario.script.name);
    assert!(is_content, "SIPp counts a failure where {} has none", scenario.script.name);
}

fn sipp_calls(theirs: &[&str], ours: Option<Scenario>) {
    let Some(scenario) = ours else { return };
    let (socket, remote) = (own_socket(), port_for_sipp());
    let target = socket.local_addr().expect("bound").to_string();
    let sipp = Sipp::start(&[theirs, &["-p", &remote.to_string(), "-r", "200", &target]].concat());
    let (driver, is_content) = play(&scenario, socket, remote, sipp);
    let accounts = &driver.meter().answered;
    assert!(is_content, "SIPp counts a failure: {accounts:?}");
    assert_eq!((accounts.sent, accounts.carried), (CALLS, CALLS), "SIPp to {}: {accounts:?}", scenario.script.name);
}

#[test]
fn our_uac_calls_sipps_uas() {
    we_call(built_in("uac"), &["-sn", "uas"]);
}

#[test]
fn our_regexp_calls_sipps_uas() {
    we_call(built_in("regexp"), &["-sn", "uas"]);
}

#[test]
fn our_branching_client_calls_sipps_server() {
    we_call(built_in("branchc"), &["-sn", "branchs"]);
}

#[test]
fn sipps_uac_calls_our_uas() {
    sipp_calls(&["-sn", "uac"], built_in("uas"));
}

#[test]
fn sipps_regexp_calls_our_uas() {
    sipp_calls(&["-sn", "regexp"], built_in("uas"));
}

#[test]
fn sipps_branching_client_calls_our_server() {
    sipp_calls(&["-sn", "branchc"], built_in("branchs"));
}

#[test]
fn scenario_files_run_on_either_side() {
    let path = |name: &str| file(name).display().to_string();
    we_call(our_own("register.xml"), &["-sf", &path("registrar.xml")]);
    sipp_calls(&["-sf", &path("register.xml"), "-inf", &path("users.csv")], our_own("registrar.xml"));
    we_call(our_own("chatter.xml"), &["-sf", &path("listener.xml")]);
    sipp_calls(&["-sf", &path("chatter.xml")], our_own("listener.xml"));
}

/// Runs the engine with scenarios as its ends: both ends here, and one end here with SIPp as the other.
#[test]
fn the_engine_runs_scenarios() {
    let (Some(uac), Some(uas)) = (built_in("uac"), built_in("uas")) else { return };
    let mut options = strowger_traffic::options::Options::new(
        strowger_traffic::options::workload("proxy-200").expect("built in"),
        None,
        7,
    );
    options.callee_location = strowger_traffic::options::CalleeLocation::Local;
    (options.rate, options.calls, options.drain) = (500.0, Some(CALLS), Some(Duration::from_secs(6)));
    let (mut plan, _) = options.plan().expect("a plan");
    plan.users = uac.users("example.com", &Options::default()).into();
    plan.caller = Some(uac.side());
    if let Some(callee) = &mut plan.callee {
        callee.side = uas.side();
    }
    let report = Run::prepare(plan.clone()).expect("sockets").go().expect("a run");
    let phase = report.measured().expect("one phase");
    assert_eq!((phase.caller.began.carried, phase.callee.answered.carried), (CALLS, CALLS), "{:?}", phase.caller.began);

    let remote = port_for_sipp();
    let mut sipp = Sipp::start(&["-sn", "uas", "-p", &remote.to_string()]);
    while !is_bound(remote) {
        std::thread::sleep(Duration::from_millis(10));
        assert!(sipp.0.try_wait().expect("our child").is_none(), "SIPp did not start");
    }
    plan.callee = None;
    plan.remote = Some(SocketAddr::from(([127, 0, 0, 1], remote)));
    let report = Run::prepare(plan).expect("sockets").go().expect("a run");
    let accounts = report.measured().expect("one phase").caller.began;
    assert_eq!(accounts.carried, CALLS, "{accounts:?}");
    assert!(sipp.0.wait().is_ok_and(|status| status.success()), "SIPp counts no failure");
}
