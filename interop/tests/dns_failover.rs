//! Failover by DNS: two members share registrations, a zone names them, and one of them dies. Skipped if `named` is
//! not installed.
//!
//! `STROWGER_FAILOVERS=20 STROWGER_FAILOVER_TTL_S=5 cargo test -p strowger-interop --test dns_failover
//! keeps_to_the_ttl -- --nocapture` repeats the failure with that TTL and prints the times.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use strowger_interop::bind9::Bind9;
use strowger_interop::{
    Callee, Caller, Config, PATIENCE, Registrant, Resolver, Server, Watch, ZoneUpdater, free_port, wait_until,
};
use strowger_watch::Kind;

const SERVICE: &str = "_sip._udp.example.com";
/// A server is dead after two failed probes, each of which may take the full timeout.
const PROBE: &str = "probe = { interval = \"200ms\", timeout = \"200ms\", down = 2, up = 2 }";
/// Time allowed, in addition to the TTL, for a client to reach the other server.
const GOAL: Duration = Duration::from_secs(1);
/// Allowance for a busy machine, which is not a bug.
const BUSY: Duration = Duration::from_millis(900);
/// Time allowed for a call that may be lost.
const LOST: Duration = Duration::from_millis(250);

/// The members, and a callee reachable through either.
struct Site {
    members: [Server; 2],
    callee: Callee,
}

impl Site {
    fn start() -> Site {
        let listen: Vec<String> = (0..2).map(|_| format!("127.0.0.1:{}", free_port())).collect();
        let member = |number: u8| {
            let own = &listen[usize::from(number) - 1];
            let more = format!("[cluster]\npeers = {listen:?}\nlisten = {own:?}\nmember = {number}\n");
            let config = Config {
                host: Ipv4Addr::new(127, 0, 9, number).into(),
                domains: vec!["pool.test"],
                users: vec![("you@pool.test", "secret")],
                require: Vec::new(),
                registrar: "nat = \"never\"",
                key: Some(*b"a key of members"),
                more,
                ..Config::default()
            };
            config.start()
        };
        let members = [member(1), member(2)];
        let callee = Callee::start((Ipv4Addr::LOCALHOST, free_port()).into());
        let site = Site { members, callee };
        wait_until("both serve", || site.members.iter().all(|member| member.status()["cluster"]["warm"] == true));
        let mut phone = Registrant::new("you").called_at("pool.test", site.callee.address());
        assert_eq!(phone.register(site.members[0].address(), 600, PATIENCE), Some(200));
        wait_until("both know the phone", || site.members.iter().all(|member| member.registrations() == 1));
        site
    }

    /// Returns the records in the form of `[watch]`. The first one is preferred.
    fn records(&self) -> String {
        let record = |(number, member): (usize, &Server)| {
            let (address, port) = (member.address().ip(), member.address().port());
            let target = format!("s{}.example.com", number + 1);
            format!(
                "{{ name = {SERVICE:?}, target = {target:?}, port = {port}, priority = {number}, address = \"{address}\" }},\n"
            )
        };
        self.members.iter().enumerate().map(record).collect()
    }

    /// Returns the records in zone-file form.
    fn zone(&self, ttl_s: u64) -> String {
        let record = |(number, member): (usize, &Server)| {
            let (address, port, host) = (member.address().ip(), member.address().port(), number + 1);
            format!("_sip._udp {ttl_s} IN SRV {number} 1 {port} s{host}\ns{host} IN A {address}\n")
        };
        let records: String = self.members.iter().enumerate().map(record).collect();
        format!("@ IN NAPTR 10 50 \"s\" \"SIP+D2U\" \"\" _sip._udp\n{records}")
    }
}

/// A client that makes one call after another, each to the server that DNS names at that time.
struct Client {
    resolver: Resolver,
    /// Callers by server. A new caller at the same server would reuse the branches of earlier calls.
    callers: BTreeMap<SocketAddr, Caller>,
    number: usize,
    /// Time after which an unanswered call counts as lost.
    patience: Duration,
    /// Description of the last lost call.
    last_lost: String,
}

impl Client {
    /// Makes a call. Returns the server used and whether the call was answered.
    fn call(&mut self) -> Option<(SocketAddr, bool)> {
        let server = self.resolver.first(SERVICE)?;
        self.number += 1;
        let call_id = format!("call-{}", self.number);
        let caller = self.callers.entry(server).or_insert_with(|| Caller::new(server));
        let is_answered = call(caller, &call_id, self.patience);
        if !is_answered {
            self.last_lost = format!("{call_id} at {server}: {:?}", caller.call(&call_id).answer);
            // It would keep retransmitting.
            self.callers.remove(&server);
        }
        Some((server, is_answered))
    }

    /// Makes calls for this time.
    fn call_for(&mut self, time: Duration) {
        let since = Instant::now();
        while since.elapsed() < time {
            self.call();
        }
    }

    /// Makes calls until this server answers one. Returns the time since `since` and the number of lost calls.
    fn until_answered_by(&mut self, server: SocketAddr, since: Instant) -> (Duration, usize) {
        let mut lost = 0;
        while since.elapsed() < PATIENCE {
            match self.call() {
                Some((at, true)) if at == server => return (since.elapsed(), lost),
                Some((_, true)) => {}
                _ => lost += 1,
            }
        }
        panic!("no call is answered by {server}");
    }
}

/// Returns a number from the environment, or 1 by default.
fn number(name: &str) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(1)
}

fn mean(times: &[Duration]) -> Duration {
    times.iter().sum::<Duration>() / u32::try_from(times.len().max(1)).expect("few")
}

/// Makes a call and returns whether it is answered within `patience`.
fn call(caller: &mut Caller, call_id: &str, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    caller.begin_with(call_id, "", true);
    while Instant::now() < end && caller.call(call_id).answer.is_none() {
        caller.run(Duration::from_millis(5));
    }
    caller.call(call_id).answer.is_some_and(|(status, _)| status == 200)
}

#[test]
fn client_that_keeps_to_the_ttl_leaves_a_dead_server_and_returns() {
    if !Bind9::available() {
        return;
    }
    let mut site = Site::start();
    let zone = Bind9::start("example.com", 1, "@ IN NAPTR 10 50 \"s\" \"SIP+D2U\" \"\" _sip._udp\n");
    let updates = ZoneUpdater::of(&zone);
    let ttl_s = number("STROWGER_FAILOVER_TTL_S");
    let ttl = Duration::from_secs(ttl_s);
    let keys = format!("ttl = \"{ttl_s}s\"\n{PROBE}");
    let mut watch = Watch::start(&zone, &keys, &site.records());
    wait_until("the zone names both, and their addresses", || {
        let addresses = ["s1.example.com", "s2.example.com"].map(|host| updates.records(host, Kind::A).len());
        updates.records(SERVICE, Kind::Srv).len() == 2 && addresses == [1, 1]
    });
    let (first, second) = (site.members[0].address(), site.members[1].address());
    let mut client = Client {
        resolver: Resolver::of(zone.address()),
        callers: BTreeMap::new(),
        number: 0,
        patience: PATIENCE,
        last_lost: String::new(),
    };
    let (mut noticed, mut outages) = (Vec::new(), Vec::new());
    for failure in 0..number("STROWGER_FAILOVERS") {
        client.until_answered_by(first, Instant::now());
        // The first failure happens right after the client has cached an answer, the worst case. The others are
        // spread over the TTL.
        client.call_for(ttl * (u32::try_from(failure * 618 % 1_000).expect("small")) / 1_000);
        client.patience = LOST;
        let killed = Instant::now();
        site.members[0].kill();
        let changed = std::thread::scope(|scope| {
            let look = || {
                let updates = ZoneUpdater::of(&zone);
                wait_until("the zone has changed", || updates.records(SERVICE, Kind::Srv).len() == 1);
                killed.elapsed()
            };
            let looking = scope.spawn(look);
            let (outage, lost) = client.until_answered_by(second, killed);
            let changed = looking.join().expect("it has changed");
            println!(
                "killed: the zone has changed after {changed:.2?}, a call is answered after {outage:.2?}, {lost} were lost"
            );
            assert!(outage < ttl + GOAL + BUSY, "{outage:?}");
            outages.push(outage);
            changed
        });
        assert!(changed < GOAL + BUSY, "{changed:?}");
        noticed.push(changed);
        client.patience = PATIENCE;
        let back = Instant::now();
        site.members[0].restart();
        let (returned, lost) = client.until_answered_by(first, back);
        println!("started again: it has calls after {returned:.2?}, {lost} were lost");
        assert_eq!(lost, 0, "the other one answers meanwhile: {}", client.last_lost);
    }
    let (noticed, outage) = (mean(&noticed), mean(&outages));
    let (expected, longest) = (noticed + ttl / 2, outages.iter().max().copied().unwrap_or_default());
    println!(
        "TTL {ttl_s} s, {} failures: the zone has changed after {noticed:.2?}, a call is answered after {outage:.2?} (expected {expected:.2?}; \
              at most {longest:.2?})",
        outages.len()
    );
    // The last server is never removed from the zone.
    site.members[0].kill();
    wait_until("the zone has changed", || updates.records(SERVICE, Kind::Srv).len() == 1);
    site.members[1].kill();
    watch.wait_for("last-kept", 1);
    assert_eq!(updates.records(SERVICE, Kind::Srv), [format!("1 1 {} s2.example.com", second.port())]);
}

#[test]
fn watch_survives_a_name_server_outage_and_reports_it_once() {
    if !Bind9::available() {
        return;
    }
    let callee = Callee::start((Ipv4Addr::LOCALHOST, free_port()).into());
    let (alive, dead) = (callee.address().port(), free_port());
    let mut zone = Bind9::start("example.com", 1, &format!("_sip._udp IN SRV 0 1 {dead} s1\n"));
    let record = |port: u16| {
        format!("{{ name = {SERVICE:?}, target = \"s1.example.com\", port = {port}, address = \"127.0.0.1\" }},")
    };
    let records = record(alive) + &record(dead);
    let updates = ZoneUpdater::of(&zone);
    zone.stop();
    let mut watch = Watch::start(&zone, &format!("refresh = \"1s\"\ntimeout = \"200ms\"\n{PROBE}"), &records);
    watch.wait_for("silent", 1);
    zone.start_again();
    watch.wait_for("answers", 1);
    wait_until("the zone says what it should", || {
        let addresses = updates.records("s1.example.com", Kind::A);
        updates.records(SERVICE, Kind::Srv) == [format!("0 1 {alive} s1.example.com")] && addresses == ["127.0.0.1"]
    });
    assert_eq!(watch.events().iter().filter(|event| event["event"] == "silent").count(), 1);

    // `--once` is for updates without watching. A key that the name server does not know changes nothing.
    let (events, code) = Watch::once(&zone, PROBE, &records);
    assert_eq!(code, Some(0), "{events:?}");
    assert!(events.iter().all(|event| event["event"] != "changed"), "it was so already: {events:?}");
    let other = record(alive) + &record(dead).replace("s1", "s2");
    let text = std::fs::read_to_string(zone.key_file()).expect("a key");
    std::fs::write(zone.key_file(), text.replace("0Wv7", "1Wv7")).expect("written");
    let (events, code) = Watch::once(&zone, PROBE, &other);
    let refused = events.iter().find(|event| event["event"] == "refused").map(|event| event["why"].to_string());
    assert!(refused.is_some_and(|why| why.contains("the same key")), "{events:?}");
    assert_eq!(code, Some(1));
}

/// Without a watcher, the proxy itself tries the next server of the SRV records (RFC 3263 §4.3), including those of a
/// balancer's target.
#[test]
fn proxy_tries_the_next_server_of_the_zone_itself() {
    if !Bind9::available() {
        return;
    }
    let mut site = Site::start();
    let zone = Bind9::start("example.com", 1, &site.zone(300));
    let more = |lines: &str| format!("[dns]\nservers = [\"{}\"]\n{lines}", zone.address());
    let route = "[[route]]\nmatch = { domain = \"pool.test\" }\n";
    let by_name = more(&format!("{route}targets = [\"sip:example.com\"]\n"));
    let by_set = more(&format!(
        "[[balancer]]\nname = \"pool\"\ntargets = [\"srv:example.com\"]\npolicy = \"priority\"\nfailover_timeout = \"1s\"\n\
         {route}balance = \"pool\"\n"
    ));
    for (name, more) in [("name", by_name), ("set", by_set)] {
        let edge = |call_id: &str| {
            let proxy = "failover_timeout = \"1s\"".to_owned();
            let edge = Config { proxy, more: more.clone(), ..Config::open() }.start();
            assert!(call(&mut Caller::new(edge.address()), &format!("before-{call_id}-{name}"), PATIENCE));
            edge
        };
        // Unresponsive: no ICMP error, and its record stays. From then on it is avoided.
        let silent_edge = edge("silent");
        let pid = site.members[0].pid().to_string();
        signal("STOP", &pid);
        let silent = ["silent", "known"].map(|call_id| timed_call(&silent_edge, &format!("{call_id}-{name}")));
        signal("CONT", &pid);
        // Killed: its machine reports the closed port at once.
        let killed_edge = edge("killed");
        site.members[0].kill();
        let killed = timed_call(&killed_edge, &format!("killed-{name}"));
        println!("by {name}: silent: {:.1?}, then {:.1?}; killed: {killed:.1?}", silent[0], silent[1]);
        assert!(silent[0] < 2 * GOAL + BUSY && silent[1] < BUSY && killed < BUSY, "{silent:?} {killed:?}");
        site.members[0].restart();
        wait_until("it serves again", || site.members[0].status()["cluster"]["warm"] == true);
    }
}

/// Makes a call that must be answered and returns its setup time.
fn timed_call(edge: &Server, call_id: &str) -> Duration {
    let since = Instant::now();
    assert!(call(&mut Caller::new(edge.address()), call_id, PATIENCE), "{}", edge.log());
    since.elapsed()
}

fn signal(name: &str, pid: &str) {
    let told = std::process::Command::new("kill").args([&format!("-{name}"), pid]).status();
    assert!(told.is_ok_and(|status| status.success()), "process {pid} takes SIG{name}");
}
