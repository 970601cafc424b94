//! Two balancers with one key and one configuration, of which one holds the address (keepalived). When it dies, the
//! other one continues its calls. The tests run in network namespaces and need root. Skipped if keepalived is not
//! installed.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use strowger_interop::{
    AnswerBehavior, Answerer, CallSnapshot, Callee, Caller, Config, Contender, Keepalived, Load, Namespace, PATIENCE,
    Server, Stage, poll, wire,
};

/// The shared address.
const SHARED: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 10);
const MACHINES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 60, 0, 1), Ipv4Addr::new(10, 60, 0, 2)];
const CALLER: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 20);
const TARGETS: [Ipv4Addr; 3] =
    [Ipv4Addr::new(10, 60, 0, 31), Ipv4Addr::new(10, 60, 0, 32), Ipv4Addr::new(10, 60, 0, 33)];
const PORT: u16 = 5060;
/// Addresses of the load generator's answering targets.
const ANSWERERS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 60, 0, 41), Ipv4Addr::new(10, 60, 0, 42)];
const HASH: &str = "policy = \"hash\"";

/// Maximum outage.
const OUTAGE: Duration = Duration::from_secs(2);

#[test]
fn a_killed_balancer_loses_no_call() {
    taken_over(HASH, |machine| machine.server.kill());
}

#[test]
fn a_lost_machine_loses_no_call() {
    taken_over("policy = \"least-calls\"\ncandidates = \"two\"", |machine| {
        machine.network.unplug();
        machine.keepalived.kill();
        machine.server.kill();
    });
}

fn taken_over(policy: &str, end: fn(&mut Machine)) {
    if !Namespace::available(&["ip", "nsenter", "keepalived"]) {
        return;
    }
    let (mut lan, networks) = Lan::new();
    let answerers = ANSWERERS.map(|host| Answerer::start_in(Some(&lan.phones), "udp", (host, PORT).into(), ""));
    lan.machines =
        networks.into_iter().zip(0..).map(|(network, number)| Machine::start(network, number, policy)).collect();
    lan.wait_until_somebody_answers();
    let mut caller = lan.caller();
    let heartbeat = Heartbeat::start(lan.socket(CALLER));
    let load = Load::start_in(
        Some(&lan.phones),
        &format!(
            "--to udp:{SHARED}:{PORT} --from {CALLER} --callee remote --domain load.test --rate 50 --time 9s --drain 40s \
             --set hold=uniform(min=0s,max=2s) --seed 1"
        ),
    );

    let established = names("established", 24);
    established.iter().for_each(|call| caller.begin(call));
    caller.settle(PATIENCE);
    let is_answered = |call: &String| caller.call(call).answer.is_some_and(|(status, _)| status == 200);
    assert!(established.iter().all(is_answered), "calls are answered before anything happens");
    let rings_for = |seconds| AnswerBehavior { ring: Duration::from_secs(seconds), ..AnswerBehavior::default() };
    let (given_up, ringing) = (names("given-up", 6), names("ringing", 12));
    for (calls, manner) in [(&given_up, rings_for(25)), (&ringing, rings_for(4))] {
        lan.callees.iter().for_each(|callee| callee.behave(manner.clone()));
        calls.iter().for_each(|call| caller.begin(call));
        caller.run_until("they ring", PATIENCE, |all| calls.iter().all(|call| !all[call].provisional.is_empty()));
    }
    // Further calls begin continuously, so that the failure hits each at a different point.
    let rings_shortly = AnswerBehavior { ring: Duration::from_millis(150), ..AnswerBehavior::default() };
    lan.callees.iter().for_each(|callee| callee.behave(rings_shortly.clone()));
    let others = names("other", 100);
    let active = lan.active().expect("one machine has the address");
    for (number, call) in others.iter().enumerate() {
        caller.begin_with(call, "", true);
        caller.run(Duration::from_millis(30));
        if number == 25 {
            end(&mut lan.machines[active]);
        }
    }
    let survivor = 1 - active;
    let is_taken = || (lan.active_of(survivor)).then_some(());
    assert!(poll(PATIENCE, is_taken).is_some(), "the other machine takes the address");
    given_up.iter().for_each(|call| caller.cancel(call));
    caller.settle(Duration::from_secs(40));

    for call in given_up.iter().chain(&ringing).chain(&others).chain(&established) {
        let expected = if given_up.contains(call) { 487 } else { 200 };
        assert_eq!(caller.call(call).answer.map(|(status, _)| status), Some(expected), "{call}");
    }
    let report = load.finish(Duration::from_secs(60));
    assert!(report.count("sent") > 300, "{}", report.text());
    assert_eq!(report.count("carried"), report.count("sent"), "{}", report.text());
    drop(answerers);
    let longest = others.iter().filter_map(|call| caller.call(call).answer).map(|(_, time)| time).max();
    let outage = heartbeat.longest_pause();
    println!("the longest set-up took {longest:?}; nobody answered for {outage:?}");
    assert!(outage <= OUTAGE, "nobody answered for {outage:?}");

    // Calls established through one machine continue through the other, in both directions and to the same target.
    established.iter().step_by(3).for_each(|call| caller.request(call, "INVITE", None));
    caller.settle(PATIENCE);
    let open: Vec<_> = established.iter().chain(&ringing).collect();
    for (number, call) in open.iter().enumerate() {
        if number % 2 == 0 {
            caller.request(call, "BYE", None);
        } else {
            lan.callee_of(call).request(call, "BYE");
        }
    }
    caller.settle(PATIENCE);
    let is_over = |call: &String| lan.callee_of(call).call(call).is_some_and(|seen| seen.stage == Stage::Over);
    let hung_up = Instant::now();
    while !open.iter().all(|call| is_over(call)) && hung_up.elapsed() < PATIENCE {
        caller.run(Duration::from_millis(20));
    }
    for call in &open {
        let seen = lan.callee_of(call).call(call).expect("it has the call");
        assert_eq!(seen.stage, Stage::Over, "{seen:?}");
        assert!(caller.call(call).replies.iter().all(|(_, status)| *status == 200), "{:?}", caller.call(call).replies);
    }
    for callee in &lan.callees {
        // Which of a call's two candidates has it is unknown, so a CANCEL goes to both.
        let strays: Vec<_> = callee.strays().into_iter().filter(|(method, _)| method != "CANCEL").collect();
        assert!(strays.is_empty(), "it was asked for what others have: {strays:?}");
        // With a load-based policy a retransmitted INVITE may go to the other candidate.
        let is_alone =
            |seen: &CallSnapshot| lan.callees.iter().filter(|other| other.call(&seen.call_id).is_some()).count() == 1;
        assert!(policy != HASH || callee.calls().iter().all(is_alone), "an INVITE that came again went to another");
        let doubled: Vec<_> = callee.calls().into_iter().filter(|seen| seen.doubles > 0).collect();
        assert!(doubled.is_empty(), "an INVITE that came again by the other machine is a new one: {doubled:?}");
    }
    lan.machines[survivor].server.wait_until_at_rest();
}

/// One of the two machines that compete for the address. The order of the fields is the order in which they are
/// dropped.
struct Machine {
    keepalived: Keepalived,
    server: Server,
    network: Namespace,
}

impl Machine {
    fn start(network: Namespace, number: usize, policy: &str) -> Machine {
        // Both servers always listen on the address. Each receives something only while its machine holds it.
        network.set("ipv4/ip_nonlocal_bind", 1);
        // The servers may differ in their number of threads.
        let workers = if number == 0 { 1 } else { 2 };
        let server = Config { workers, ..config(policy) }.start_in(Some(&network));
        let contender = Contender { own: MACHINES[number], peer: MACHINES[1 - number], shared: SHARED };
        let keepalived = Keepalived::start(&network, &server, contender);
        Machine { keepalived, server, network }
    }
}

/// A network with both machines, the targets and the caller.
struct Lan {
    machines: Vec<Machine>,
    callees: Vec<Callee>,
    phones: Namespace,
    _switch: Namespace,
}

impl Lan {
    /// Creates everything but the machines, and returns the networks for them.
    fn new() -> (Lan, [Namespace; 2]) {
        let (switch, phones) = (Namespace::new(), Namespace::new());
        let networks = [Namespace::new(), Namespace::new()];
        let theirs = [&[CALLER][..], &TARGETS[..], &ANSWERERS[..]].concat();
        let [first, second] = &networks;
        switch.connect(&[(&phones, &theirs[..]), (first, &MACHINES[..1]), (second, &MACHINES[1..])]);
        let callees = TARGETS.map(|target| Callee::play(socket(&phones, (target, PORT).into()))).into();
        (Lan { machines: Vec::new(), callees, phones, _switch: switch }, networks)
    }

    fn wait_until_somebody_answers(&self) {
        let heartbeat = Heartbeat::start(self.socket(CALLER));
        assert!(poll(PATIENCE, || heartbeat.has_come().then_some(())).is_some(), "nobody has the address");
    }

    /// Returns the machine that holds the address.
    fn active(&self) -> Option<usize> {
        (0..2).find(|&machine| self.active_of(machine))
    }

    fn active_of(&self, machine: usize) -> bool {
        self.machines[machine].network.run("ip", "address show dev lan").contains(&format!(" {SHARED}/"))
    }

    fn caller(&self) -> Caller {
        Caller::on(self.socket(CALLER), (SHARED, PORT).into())
    }

    fn socket(&self, host: Ipv4Addr) -> UdpSocket {
        socket(&self.phones, (host, 0).into())
    }

    fn callee_of(&self, call: &str) -> &Callee {
        self.callees.iter().find(|callee| callee.call(call).is_some()).expect("somebody has the call")
    }
}

fn socket(network: &Namespace, address: SocketAddr) -> UdpSocket {
    network.inside(|| UdpSocket::bind(address).unwrap_or_else(|error| panic!("{address}: {error}")))
}

fn config(policy: &str) -> Config {
    let uris = |hosts: &[Ipv4Addr]| hosts.iter().map(|host| format!("sip:{host}:{PORT}")).collect::<Vec<_>>();
    let sets = [("pool", uris(&TARGETS)), ("load", uris(&ANSWERERS))].map(|(name, targets)| {
        format!(
            "[[balancer]]\nname = \"{name}\"\n{policy}\ntargets = {targets:?}\n\
             probe = {{ interval = \"500ms\", timeout = \"500ms\", down = 2, up = 2 }}\n\n[[route]]\n\
             match = {{ domain = \"{name}.test\" }}\nbalance = \"{name}\"\n\n"
        )
    });
    let more = sets.concat();
    let (host, key) = (SHARED.into(), Some(*b"one key for both"));
    Config { host, port: PORT, roams: true, key, users: Vec::new(), more, ..Config::open() }
}

/// A client that continuously checks whether a server answers.
struct Heartbeat {
    is_over: Arc<AtomicBool>,
    has_come: Arc<AtomicBool>,
    thread: Option<JoinHandle<Duration>>,
}

impl Heartbeat {
    fn start(socket: UdpSocket) -> Heartbeat {
        let [is_over, has_come] = [(), ()].map(|()| Arc::new(AtomicBool::new(false)));
        let (over, come) = (Arc::clone(&is_over), Arc::clone(&has_come));
        let thread = Some(thread::spawn(move || ask(&socket, &over, &come)));
        Heartbeat { is_over, has_come, thread }
    }

    /// Returns whether there has been an answer.
    fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Relaxed)
    }

    /// Ends the client and returns the longest time between two answers.
    fn longest_pause(mut self) -> Duration {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().expect("it ends once").join().expect("it does not panic")
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn ask(socket: &UdpSocket, is_over: &AtomicBool, has_come: &AtomicBool) -> Duration {
    socket.set_read_timeout(Some(Duration::from_millis(10))).expect("a time-out can be set");
    let local = socket.local_addr().expect("a bound socket has an address");
    let (mut last, mut longest, mut asked) = (None, Duration::ZERO, Instant::now());
    let mut answer = [0; 2048];
    for number in 0_u64.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let request = format!(
            "OPTIONS sip:{SHARED} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch=z9hG4bK-beat-{number}\r\nMax-Forwards: 70\r\n\
             From: <sip:beat@{local}>;tag=beat\r\nTo: <sip:{SHARED}>\r\nCall-ID: beat-{number}@{local}\r\n\
             CSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
        );
        // Fails with an ICMP error while neither machine holds the address.
        let _ = socket.send_to(request.as_bytes(), (SHARED, PORT));
        while let Ok(length) = socket.recv(&mut answer) {
            if wire::status(&String::from_utf8_lossy(&answer[..length])) == Some(200) {
                let now = Instant::now();
                longest = last.map_or(longest, |last| longest.max(now - last));
                last = Some(now);
                has_come.store(true, Ordering::Relaxed);
            }
            if asked.elapsed() > Duration::from_millis(10) {
                break;
            }
        }
        thread::sleep(Duration::from_millis(10).saturating_sub(asked.elapsed()));
        asked = Instant::now();
    }
    longest
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}
