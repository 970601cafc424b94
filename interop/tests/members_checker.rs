//! Members and their engine are killed, stopped and begun anew while clients register, refresh and unregister: in the end each member has
//! what was acknowledged last. In the manner of Jepsen: clients keep a history, and what got no answer, or 503, may be either.
//!
//! `STROWGER_CHECKER_SECONDS` makes it last longer than in the usual tests.

use std::collections::BTreeMap;
use std::env;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use strowger_interop::{Config, Database, Program, Registrant, Server, poll};

const KEY: [u8; 16] = *b"a key of members";
const MEMBERS: u16 = 3;
const CLIENTS: usize = 24;
/// How long a client waits for a final answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Within which time after the last fault every member has everything.
const SETTLED: Duration = Duration::from_secs(15);

/// What a client knows of its own registration.
#[derive(Clone, Copy, Debug, Default)]
struct History {
    /// The last one that was acknowledged: its CSeq, and whether it is bound since.
    acknowledged: Option<(u32, bool)>,
    /// The CSeq that was used last.
    used: u32,
    acknowledgements: u32,
}

#[test]
fn redis_loses_nothing_that_was_acknowledged() {
    check(Program::Redis);
}

#[test]
fn postgres_loses_nothing_that_was_acknowledged() {
    check(Program::Postgres);
}

#[test]
fn mariadb_loses_nothing_that_was_acknowledged() {
    check(Program::MariaDb);
}

fn check(engine: Program) {
    if !engine.available() {
        return;
    }
    let seconds = env::var("STROWGER_CHECKER_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(15);
    let mut engine = Database::start(engine);
    let mut servers: Vec<Server> = (1..=MEMBERS).map(|number| member(&engine, number).start()).collect();
    wait_until_warm(&servers);
    let addresses: Vec<SocketAddr> = servers.iter().map(Server::address).collect();
    let histories: Arc<Vec<Mutex<History>>> = Arc::new((0..CLIENTS).map(|_| Mutex::default()).collect());
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (histories, is_over, addresses) = (Arc::clone(&histories), Arc::clone(&is_over), addresses.clone());
            thread::spawn(move || client(number, &histories[number], &addresses, &is_over))
        })
        .collect();
    let faults = disturb(&mut engine, &mut servers, Duration::from_secs(seconds));
    is_over.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("a client"));
    let wrong = || -> Vec<String> { servers.iter().flat_map(|server| contradictions(server, &histories)).collect() };
    let settled = poll(SETTLED, || wrong().is_empty().then_some(()));
    let all: u32 = histories.iter().map(|history| history.lock().expect("sound").acknowledgements).sum();
    let members = servers[0].control(&["members"]);
    assert!(settled.is_some(), "after {all} acknowledgements and {faults:?}:\n{}\n{members}", wrong().join("\n"));
    assert!(all > 100, "only {all} were acknowledged");
}

fn member(engine: &Database, number: u16) -> Config {
    let more = format!("[cluster]\nstore = \"{}\"\nmember = {number}\n", engine.url());
    Config { more, key: Some(KEY), require: Vec::new(), ..Config::default() }
}

fn wait_until_warm(servers: &[Server]) {
    for server in servers {
        let is_warm = || (server.status()["cluster"]["warm"] == true).then_some(());
        assert!(poll(Duration::from_secs(20), is_warm).is_some(), "a member does not get warm: {}", server.log());
    }
}

/// Kills and stops members and the engine, one after the other, for so long; says what it did.
fn disturb(engine: &mut Database, servers: &mut [Server], time: Duration) -> BTreeMap<&'static str, u32> {
    let mut done = BTreeMap::new();
    let end = Instant::now() + time;
    for round in 0_usize.. {
        if Instant::now() >= end {
            break;
        }
        let victim = &mut servers[round % usize::from(MEMBERS)];
        let fault = match round % 5 {
            0 | 3 => {
                victim.kill();
                thread::sleep(Duration::from_millis(700));
                victim.restart();
                "kills of a member"
            }
            1 => {
                engine.freeze();
                thread::sleep(Duration::from_millis(2_500));
                engine.go_on();
                "stops of the engine"
            }
            2 => {
                victim.pause(Duration::from_millis(1_200));
                "stops of a member"
            }
            _ => {
                engine.start_again();
                "kills of the engine"
            }
        };
        *done.entry(fault).or_default() += 1;
        // All is told again before the next one: what two know who die at once may be lost.
        thread::sleep(Duration::from_millis(2_000));
    }
    done
}

/// A phone that registers, refreshes and unregisters at one member after the other.
fn client(number: usize, history: &Mutex<History>, members: &[SocketAddr], is_over: &AtomicBool) {
    let mut registrant = Registrant::new(&format!("user{number}"));
    let mut random = number as u64 + 1;
    while !is_over.load(Ordering::Relaxed) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (member, is_bound) = (members[(random >> 33) as usize % members.len()], !(random >> 60).is_multiple_of(4));
        let cseq = {
            let mut history = history.lock().expect("sound");
            history.used += 1;
            history.used
        };
        if registrant.register(member, if is_bound { 3_600 } else { 0 }, PATIENCE) == Some(200) {
            let mut history = history.lock().expect("sound");
            history.acknowledged = Some((cseq, is_bound));
            history.acknowledgements += 1;
        }
        thread::sleep(Duration::from_millis(20 + (random >> 40) % 100));
    }
}

/// What a member has that contradicts the histories.
fn contradictions(server: &Server, histories: &[Mutex<History>]) -> Vec<String> {
    let listed = server.control(&["registrations", "--limit", "10000", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap_or_default();
    let registrations = listed["registrations"].as_array().cloned().unwrap_or_default();
    let is_listed = |number: usize| {
        registrations.iter().any(|one| one["aor"].as_str() == Some(&format!("user{number}@example.com")))
    };
    let wrong = histories.iter().enumerate().filter_map(|(number, history)| {
        let history = *history.lock().expect("sound");
        let (cseq, is_bound) = history.acknowledged?;
        // What came later without an answer may count.
        let is_certain = cseq == history.used;
        (is_certain && is_listed(number) != is_bound)
            .then(|| format!("user{number} at {}: {history:?}, and it is {}", server.address(), is_listed(number)))
    });
    wrong.collect()
}
