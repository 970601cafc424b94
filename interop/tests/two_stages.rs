//! A first stage and clusters, each server a process at a separate loopback address, under calls and registrations.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::sleep;
use std::time::Duration;

use strowger_interop::stages::{Layout, Stages, loopback};
use strowger_interop::{Callee, Caller, Database, Load, Nat, Phone, Program, Registrant, Report, poll};

/// Time allowed for a load to end after its last call.
const PATIENCE: Duration = Duration::from_secs(60);
/// Generous time limit for what servers do in a moment.
const A_MOMENT: Duration = Duration::from_secs(60);

/// Starts a load of calls through one first-stage server between its own users, who register first.
fn calls(stages: &Stages, entrance: &str, (users, rate): (u64, u32)) -> Load {
    let address = stages.address(entrance);
    Load::start(&format!(
        "--to udp:{address} --domain example.com --users {users} --rate {rate} --time 10m --user-pattern {entrance}-% --seed 1"
    ))
}

/// Starts a load of registrations of one user after the other, repeatedly.
fn registrations(stages: &Stages, entrance: &str, (users, rate): (u64, u32)) -> Load {
    let address = stages.address(entrance);
    Load::start(&format!(
        "--to udp:{address} --domain example.com --workload registration --users {users} --rate {rate} --time 10m \
         --user-pattern r% --seed 1"
    ))
}

/// Phones of this many users on one socket, registered through the first-stage servers in turn.
struct Phones {
    callee: Callee,
    users: Vec<String>,
    /// Number of calls made.
    calls: usize,
}

impl Phones {
    fn register(stages: &Stages, count: usize) -> Phones {
        let callee = Callee::start(SocketAddr::from((Ipv4Addr::LOCALHOST, strowger_interop::free_port())));
        let users: Vec<String> = (0..count).map(|number| format!("phone{number}")).collect();
        for (number, user) in users.iter().enumerate() {
            let entrances = stages.entrances();
            let answer = Registrant::new(user).called_at("example.com", callee.address()).register(
                entrances[number % entrances.len()],
                3_600,
                A_MOMENT,
            );
            assert_eq!(answer, Some(200), "{user} registers");
        }
        Phones { callee, users, calls: 0 }
    }

    /// Calls all users at once through this server, waits until all have answered, and returns the Call-IDs.
    fn call(&mut self, caller: &mut Caller, hangs_up: bool) -> Vec<String> {
        self.calls += 1;
        let call_id = |user: &String| format!("call-{}-{user}", self.calls);
        for user in &self.users {
            caller.call_whom(&format!("sip:{user}@example.com"));
            caller.begin_with(&call_id(user), "", hangs_up);
        }
        caller.settle(A_MOMENT + A_MOMENT);
        self.users.iter().map(call_id).collect()
    }

    /// Like [`call`](Self::call), and asserts that each call is answered within this time.
    fn are_reached(&mut self, caller: &mut Caller, within: Duration) {
        for call_id in self.call(caller, true) {
            let call = caller.call(&call_id);
            let (status, took) = call.answer.expect("it is answered");
            assert_eq!(status, 200, "{call_id}: {}", call.response);
            assert!(took < within, "{call_id} is answered after {took:?}");
            assert_eq!(call.replies, [("BYE".to_owned(), 200)], "{call_id}");
        }
    }
}

/// Waits until the members of each cluster have the same registrations.
fn wait_until_in_step(stages: &Stages, users: u64) {
    for (cluster, _) in stages.weights() {
        let counts =
            || stages.members_of(cluster).iter().map(|name| stages.server(name).registrations()).collect::<Vec<_>>();
        let is_in_step = || counts().windows(2).all(|pair| pair[0] == pair[1]);
        assert!(poll(A_MOMENT, || is_in_step().then_some(())).is_some(), "{cluster}: {:?}", counts());
    }
    let clusters = stages.weights();
    assert_eq!(clusters.iter().map(|(cluster, _)| stages.registrations(cluster)).sum::<u64>(), users);
}

/// Asserts that all attempts succeeded, except those in progress when the load was ended.
fn assert_all_succeed(report: &Report, what: &str) {
    let [carried, lost, failed] = ["carried", "lost", "failed"].map(|name| report.count(name));
    assert!(carried > 0 && lost + failed == 0, "{what}:\n{}", report.text());
}

/// Waits until `count` is at least `wanted`.
fn wait_for(what: &str, wanted: u64, count: impl Fn() -> u64) {
    assert!(poll(A_MOMENT, || (count() >= wanted).then_some(())).is_some(), "{what}: {} of {wanted}", count());
}

/// Maximum setup time of calls to users of a dead member: the retransmission after 1.5 s finds another member, on a
/// busy machine the one after 3.5 s.
const WHERE_A_MEMBER_HAS_DIED: Duration = Duration::from_secs(5);

#[test]
fn a_killed_member_returns_with_its_registrations() {
    let mut stages = Stages::start_here(Layout::default());
    let mut phones = Phones::register(&stages, 40);
    wait_until_in_step(&stages, 40);
    let mut caller = Caller::new(stages.address("s2"));
    for victim in ["a1", "a2"] {
        stages.kill(victim);
        phones.are_reached(&mut caller, WHERE_A_MEMBER_HAS_DIED);
        stages.restart(victim);
        wait_until_in_step(&stages, 40);
    }
    // A member that is alive again gets requests again.
    let requests = |stages: &Stages| ["a1", "a2"].map(|name| stages.requests(name));
    let before = requests(&stages);
    let is_asked = || {
        phones.are_reached(&mut caller, WHERE_A_MEMBER_HAS_DIED);
        requests(&stages).iter().zip(before).all(|(after, before)| *after > before + 5).then_some(())
    };
    assert!(poll(A_MOMENT, is_asked).is_some(), "{before:?}, then {:?}", requests(&stages));
}

#[test]
fn calls_continue_when_one_first_stage_server_dies() {
    let mut stages = Stages::start_here(Layout::default());
    let mut phones = Phones::register(&stages, 20);
    let mut caller = Caller::new(stages.address("s1"));
    let calls = phones.call(&mut caller, false);
    stages.kill("s1");
    caller.turn_to(stages.address("s2"));
    for (method, call_id) in ["INVITE", "BYE"].iter().flat_map(|method| calls.iter().map(move |call| (method, call))) {
        caller.request(call_id, method, None);
        caller.settle(A_MOMENT);
    }
    for call_id in &calls {
        let call = caller.call(call_id);
        assert_eq!(call.answer.map(|(status, _)| status), Some(200), "{call_id}");
        assert_eq!(call.replies, ["INVITE", "BYE"].map(|method| (method.to_owned(), 200)), "{call_id}");
    }
    assert_eq!(phones.callee.strays(), []);
    phones.are_reached(&mut caller, WHERE_A_MEMBER_HAS_DIED);
    stages.restart("s1");
    caller.turn_to(stages.address("s1"));
    phones.are_reached(&mut caller, WHERE_A_MEMBER_HAS_DIED);
}

#[test]
fn member_calls_users_of_another_cluster_without_the_first_stage() {
    let stages = Stages::start_here(Layout::default());
    let mut phones = Phones::register(&stages, 40);
    wait_until_in_step(&stages, 40);
    let of_b = stages.registrations("b");
    let before = ["s1", "s2", "b1", "b2"].map(|name| stages.requests(name));
    let mut caller = Caller::new(stages.address("a1"));
    phones.are_reached(&mut caller, WHERE_A_MEMBER_HAS_DIED);
    assert_eq!(before[..2], ["s1", "s2"].map(|name| stages.requests(name)), "requests of the first stage");
    // The workers' counters are published with a short delay.
    let of_members = || stages.requests("b1") + stages.requests("b2") - before[2] - before[3];
    let are_counted = || (of_members() >= 2 * of_b).then_some(());
    assert!(of_b > 5 && poll(A_MOMENT, are_counted).is_some(), "{} requests of b for {of_b} calls", of_members());
}

#[test]
fn clusters_with_an_engine_lose_nothing_if_it_or_a_member_dies() {
    if !Program::Redis.available() {
        return;
    }
    let mut engines = [(); 2].map(|()| Database::start(Program::Redis));
    let clusters = ["a", "b"].into_iter().zip(engines.iter().map(|engine| Some(engine.url()))).collect();
    let mut stages = Stages::start_here(Layout { clusters, ..Layout::default() });
    let mut phones = Phones::register(&stages, 40);
    wait_until_in_step(&stages, 40);
    let mut caller = Caller::new(stages.address("s1"));
    engines[0].start_again();
    phones.are_reached(&mut caller, WHERE_A_MEMBER_HAS_DIED);
    stages.kill("a1");
    phones.are_reached(&mut caller, WHERE_A_MEMBER_HAS_DIED);
    stages.restart("a1");
    wait_until_in_step(&stages, 40);
}

/// Layout with digest passwords, which every member knows.
fn with_passwords() -> Layout {
    Layout { require: vec!["REGISTER", "INVITE"], ..Layout::default() }
}

fn add_users(stages: &Stages, users: &[&str]) {
    users.iter().for_each(|user| stages.add_user(&format!("{user}@example.com"), &format!("secret of {user}")));
}

#[test]
fn phones_with_passwords_call_via_either_entrance_over_udp_and_tcp() {
    if !Program::Baresip.available() {
        return;
    }
    let stages = Stages::start_here(with_passwords());
    add_users(&stages, &["alice", "bob", "carol"]);
    let mut phones = ["alice", "bob", "carol"].map(Phone::start);
    for (phone, (transport, entrance)) in phones.iter_mut().zip([("udp", "s1"), ("tcp", "s2"), ("tcp", "s1")]) {
        assert_eq!(
            phone.register_over(transport, stages.address(entrance)).kind,
            "REGISTER_OK",
            "{transport} {entrance}"
        );
    }
    let [alice, bob, carol] = &mut phones;
    alice.call(bob);
    bob.call(alice);
    bob.call(carol);
    carol.call(alice);
    assert!(["a", "b"].iter().all(|cluster| stages.registrations(cluster) > 0), "both clusters have users");
}

#[test]
fn phone_behind_a_nat_is_called_via_the_entrance_it_registered_at() {
    if !Program::Baresip.available() || !Nat::available() {
        return;
    }
    let nat = Nat::new(60);
    let layout = with_passwords();
    let servers = u8::try_from(layout.servers()).expect("few");
    let stages = Stages::start(layout, &nat.servers(servers));
    add_users(&stages, &["alice", "bob"]);
    for transport in ["udp", "tcp"] {
        let mut alice = Phone::start_at("alice", Nat::PHONE, Some(&nat.inside));
        let mut bob = Phone::start_at("bob", Nat::SERVER, Some(&*nat.outside));
        assert_eq!(alice.register_over(transport, stages.address("s2")).kind, "REGISTER_OK", "{transport}");
        assert_eq!(bob.register_over("udp", stages.address("s1")).kind, "REGISTER_OK");
        bob.call(&mut alice);
        alice.call(&mut bob);
        [alice, bob].iter_mut().for_each(Phone::delete_account);
    }
}

#[test]
fn a_cluster_is_added_and_removed_under_load() {
    const CALLED: u64 = 250;
    const USERS: u64 = 1_500;
    /// For users who have moved and whose turn to register comes yet. Only time shows that no more of them come.
    const REST_OF_TURN: Duration = Duration::from_secs(2);
    let mut stages = Stages::start_here(Layout::default());
    let all = |stages: &Stages| stages.registrations("a") + stages.registrations("b");
    let loads = ["s1", "s2"].map(|entrance| calls(&stages, entrance, (CALLED, 50)));
    wait_for("those who are called have registered", 2 * CALLED, || all(&stages));
    let registering = registrations(&stages, "s1", (USERS, 300));
    wait_for("all users have registered", 2 * CALLED + USERS, || all(&stages));

    stages.add(("c", None), &loopback(2));
    stages.reload_all();
    stages.weigh("c", 100);
    stages.reload_all();
    wait_for("users have moved", USERS * 32 / 100, || stages.registrations("c"));
    sleep(REST_OF_TURN);
    let moved = stages.registrations("c") as f64 / USERS as f64;
    stages.weigh("c", 0);
    stages.reload_all();
    sleep(REST_OF_TURN);

    for report in loads.map(|load| load.end(PATIENCE)) {
        assert_all_succeed(&report, "calls");
    }
    assert_all_succeed(&registering.end(PATIENCE), "registrations");
    assert!((moved - 1.0 / 3.0).abs() < 0.01, "{moved} of the users have moved");
}
