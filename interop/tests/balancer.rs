//! A set of targets behind one address: where each call goes, and what happens to calls when a target hangs, dies,
//! refuses or comes back. A test whose programs are not installed is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use serde_json::Value;
use strowger_interop::{
    AnswerBehavior, Answerer, Callee, Caller, Config, Kamailio, Load, Namespace, PATIENCE, Program, Server, Sipp,
    Stage, free_port, poll, wait_until, wire,
};

/// Upper limit for a call that waits for nothing. It takes a few milliseconds, but a busy machine is not a bug.
const AT_ONCE: Duration = Duration::from_millis(900);

/// Maximum setup time of calls affected by a failed target.
const CAUGHT: Duration = Duration::from_secs(4);

/// Probe settings that are short enough for the tests.
const PROBE: &str = "probe = { interval = \"300ms\", timeout = \"300ms\", down = 2, up = 2 }\n";

/// Only the callers of a failed target are affected: with the same Call-IDs, all other calls go to the same targets
/// as before.
#[test]
fn a_failed_target_moves_only_its_calls() {
    let callees = callees(8);
    let server = balancer(&uris(&callees), &format!("{PROBE}slow_start = \"0s\"\n")).start();
    let mut caller = Caller::new(server.address());
    let calls = names("key", 400);
    let homes = places(&mut caller, &calls, &callees);
    let share: Vec<_> = (0..8).map(|place| homes.values().filter(|&&home| home == place).count()).collect();
    assert!(share.iter().all(|&share| share > 25), "each has a share: {share:?}");

    let (gone, silent) = (3, AnswerBehavior { is_silent: true, ..AnswerBehavior::default() });
    callees[gone].behave(silent);
    wait_until("it is out of service", || state(&server, &callees[gone].uri()) == "down");
    let away = places(&mut caller, &calls, &callees);
    for (call, &home) in &homes {
        let now = away[call];
        assert!(if home == gone { now != gone } else { now == home }, "{call} went to {home} and goes to {now}");
    }
    let heirs: BTreeSet<_> = calls.iter().filter(|call| homes[*call] == gone).map(|call| away[call]).collect();
    assert!(heirs.len() >= 4, "its calls are shared out: {heirs:?}");

    callees[gone].behave(AnswerBehavior::default());
    wait_until("it is in service", || state(&server, &callees[gone].uri()) == "up");
    assert_eq!(places(&mut caller, &calls, &callees), homes);
    server.wait_until_at_rest();
}

/// Calls in progress at the target are hung up when it continues.
#[test]
fn a_hung_target_loses_no_call() {
    one_of_eight(|target| target.stop(), |target| target.go_on(), "exp(mean=500ms)", 0);
}

/// Calls answered by the killed target are lost with it. Since each call ends as soon as it is answered, that is
/// about one in a thousand.
#[test]
fn a_killed_target_loses_no_call() {
    one_of_eight(Answerer::kill, Answerer::start_again, "none", 2);
}

/// Runs a load of calls to eight targets, of which one fails for a while.
fn one_of_eight(
    lose: fn(&mut Answerer<'static>),
    bring_back: fn(&mut Answerer<'static>),
    hold: &str,
    may_be_lost: u64,
) {
    const LOST: usize = 5;
    let mut targets: Vec<_> = (1..=8).map(|number| Answerer::start("udp", place(number), "")).collect();
    let lost = targets[LOST].address().to_string();
    let uris: Vec<_> = targets.iter().map(Answerer::uri).collect();
    let server = balancer(&uris, &format!("key = \"user\"\n{PROBE}slow_start = \"4s\"\n")).start();
    let to = server.address();
    let load = Load::start(&format!(
        "--to udp:{to} --callee remote --domain pool.test --users 160 --rate 150 --time 19s --drain 40s --seed 7 \
         --set hold={hold}"
    ));
    let mut instants = vec![instant_after(Duration::from_secs(4))];
    lose(&mut targets[LOST]);
    instants.push(instant_after(Duration::ZERO));
    wait_until("it is out of service", || state(&server, &uris[LOST]) == "down");
    instants.push(instant_after(Duration::from_secs(3)));
    bring_back(&mut targets[LOST]);
    wait_until("it is back", || state(&server, &uris[LOST]) != "down");
    for pause in [0, 2, 3, 3] {
        instants.push(instant_after(Duration::from_secs(pause)));
    }
    let report = load.finish(Duration::from_secs(80));
    println!("{}", report.text());
    let sent = report.count("sent");
    let (answered, longest) = report.answers("INVITE", "2xx");
    assert_eq!((sent > 1000, answered), (true, sent), "every INVITE is answered with 200:\n{}", report.text());
    assert!(longest <= CAUGHT, "{longest:?}");
    assert!(sent - report.count("carried") <= may_be_lost, "{}", report.text());
    server.wait_until_at_rest();

    let calls: Vec<_> = server.records().iter().map(Record::new).collect();
    let [left, away, back, begun, half, whole, end] = &instants[..] else { unreachable!("seven instants") };
    let homes: BTreeMap<_, _> =
        calls.iter().filter(|call| call.start < *left).map(|call| (call.callee.clone(), call.target.clone())).collect();
    for call in &calls {
        let Some(home) = homes.get(&call.callee) else { continue };
        let is_caught = *home == lost;
        assert!(is_caught || call.target == *home, "{call:?} belongs to {home}");
        assert!(is_caught || call.setup < CAUGHT / 2, "{call:?} has waited for another");
        let is_away = call.start > *away && call.start < *back;
        assert!(!(is_away && call.target == lost), "{call:?} was answered by one who was not there");
        assert!(!(call.start > *whole && call.target != *home), "{call:?} has not gone back to {home}");
    }
    let between = |from: &str, to: &str| {
        calls
            .iter()
            .filter(|call| call.target == lost && call.start.as_str() >= from && call.start.as_str() < to)
            .count()
    };
    let (first, full) = (between(begun, half), between(whole, end));
    println!(
        "{sent} calls, the longest {longest:?}; two seconds after the return {first} calls, later {full} in three"
    );
    // In the first half of the slow start the target has at most 55 % of its share.
    assert!(full > 20 && first * 30 < full * 16, "its share grows: {first} calls at first, {full} later");
}

/// Responses that arrived during the stop are read before a target counts as unresponsive.
#[test]
fn a_stalled_balancer_marks_no_target_dead() {
    /// Time until calls are pending at any moment. The load reports nothing before its end.
    const FILLING: Duration = Duration::from_secs(2);
    /// Longer than the silence after which a balancer considers a target dead.
    const STANDSTILL: Duration = Duration::from_secs(3);
    // A long service time, so that some calls are pending at any moment.
    let slow = "--service-time 150ms --servers 100";
    let targets: Vec<_> = (21..=24).map(|number| Answerer::start("udp", place(number), slow)).collect();
    let uris: Vec<_> = targets.iter().map(Answerer::uri).collect();
    let server = balancer(&uris, PROBE).start();
    let to = server.address();
    let words = format!("--to udp:{to} --callee remote --domain pool.test --rate 100 --time 8s --drain 40s --seed 2");
    let load = Load::start(&words);
    std::thread::sleep(FILLING);
    server.pause(STANDSTILL);
    let report = load.finish(Duration::from_secs(60));
    assert_eq!(report.count("carried"), report.count("sent"), "{}", report.text());
    assert!(!server.log().contains("does not answer"), "{}", server.log());
    server.wait_until_at_rest();
}

/// Each target knows only its own calls and refuses requests of others: re-INVITEs, UPDATEs, INFOs, refreshes and
/// BYEs from either side.
#[test]
fn calls_stay_with_one_target_over_udp() {
    one_way("udp", None);
}

#[test]
fn calls_stay_with_one_target_over_tcp() {
    one_way("tcp", None);
}

#[test]
fn calls_stay_with_one_target_at_10_percent_loss() {
    if !Namespace::available(&["ip", "nsenter", "nft"]) {
        return;
    }
    let network = Namespace::new();
    network.lose(10);
    one_way("udp", Some(&network));
    assert!(network.lost() > 100, "{} lost", network.lost());
}

fn one_way(transport: &'static str, network: Option<&Namespace>) {
    // A caller ends after its last call and cannot answer a repeated BYE whose answer was lost.
    let share = if network.is_some() { "0%" } else { "50%" };
    let words = format!("--workload mid-call --set every=uniform(min=20ms,max=100ms) --set from-callee={share}");
    let targets: Vec<_> =
        (11..=14).map(|number| Answerer::start_in(network, transport, place(number), &words)).collect();
    let uris: Vec<_> = targets.iter().map(Answerer::uri).collect();
    let config = Config { tcp: true, ..balancer(&uris, "policy = \"least-calls\"\n") };
    let server = config.start_in(network);
    let to = server.address();
    let words = format!(
        "--to {transport}:{to} --callee remote --domain pool.test --rate 40 --calls 160 --drain 40s --seed 3 {words}"
    );
    let load = Load::start_in(network, &words);
    let report = load.finish(Duration::from_secs(80));
    assert_eq!((report.count("sent"), report.count("carried")), (160, 160), "{}", report.text());
    server.wait_until_at_rest();
    for target in targets {
        let (address, report) = (target.address(), target.end());
        assert!(report.callee("answered") > 10, "{address}: {}", report.text());
        assert_eq!(report.callee("failed") + report.callee("lost"), 0, "{address}: {}", report.text());
    }
}

/// Early media with PRACK, UPDATE and re-INVITE, REFER and NOTIFY, MESSAGE and BYE between two `SIPp`.
#[test]
fn whole_sipp_dialogs_succeed() {
    if !Program::Sipp.available() {
        return;
    }
    for mode in ["u1", "t1"] {
        let ports = [free_port(), free_port()];
        let parameter = if mode == "t1" { ";transport=tcp" } else { "" };
        let uris = ports.map(|port| format!("sip:127.0.0.9:{port}{parameter}"));
        let server = Config { tcp: true, ..balancer(&uris, "policy = \"round-robin\"\n") }.start();
        // They play until they are dropped.
        let targets = ports.map(|port| {
            let target = Sipp::new("trunk_uas_dialog", server.address()).host(Ipv4Addr::new(127, 0, 0, 9));
            target.port(port).mode(mode).calls(100, 10).start()
        });
        Sipp::new("trunk_uac_dialog", server.address()).key("domain", "pool.test").mode(mode).calls(10, 10).run();
        for target in &targets {
            assert!(target.messages().contains("REFER"), "each has had calls");
        }
        server.wait_until_at_rest();
    }
}

/// A target opens several dialogs for one INVITE, like a forking proxy. Requests of all dialogs reach it, whichever
/// side hangs up.
#[test]
fn early_dialogs_stay_with_their_target() {
    let callees = callees(4);
    let server = balancer(&uris(&callees), "policy = \"round-robin\"\n").start();
    let mut caller = Caller::new(server.address());
    for callee in &callees {
        callee.behave(AnswerBehavior { ring: Duration::from_secs(1), early: 2, ..AnswerBehavior::default() });
    }
    let calls = names("early", 12);
    calls.iter().for_each(|call| caller.begin(call));
    let told =
        |calls: &BTreeMap<String, strowger_interop::Call>| calls.values().all(|call| call.provisional.len() == 2);
    caller.run_until("both early dialogs are known", PATIENCE, told);
    for call in &calls {
        for (_, tag) in caller.call(call).provisional.clone() {
            caller.request(call, "UPDATE", Some(&tag));
        }
    }
    caller.settle(PATIENCE);
    for (number, call) in calls.iter().enumerate() {
        caller.request(call, "INVITE", None);
        caller.settle(PATIENCE);
        if number % 2 == 0 {
            caller.request(call, "BYE", None);
        } else {
            home(&callees, call).request(call, "BYE");
        }
    }
    caller.settle(PATIENCE);
    let is_over = |call: &String| home(&callees, call).call(call).is_some_and(|seen| seen.stage == Stage::Over);
    let all_over = || calls.iter().all(is_over);
    caller_until(&mut caller, "all calls are over", all_over);
    for call in &calls {
        let seen = home(&callees, call).call(call).expect("it was there");
        let mut tags: Vec<_> = caller.call(call).provisional.iter().map(|(_, tag)| tag).collect();
        tags.sort();
        let mut asked: Vec<_> =
            seen.requests.iter().filter(|(method, _)| method == "UPDATE").map(|(_, tag)| tag).collect();
        asked.sort();
        assert_eq!(asked, tags, "{seen:?}");
        assert!(seen.requests.iter().any(|(method, tag)| method == "INVITE" && Some(&tag) == tags.last()), "{seen:?}");
        assert!(caller.call(call).replies.iter().all(|(_, status)| *status == 200), "{:?}", caller.call(call).replies);
    }
    assert!(callees.iter().all(|callee| callee.strays().is_empty() && callee.calls().len() == 3), "{callees:?}");
    server.wait_until_at_rest();
}

/// A CANCEL goes to the target of its INVITE.
#[test]
fn cancelled_calls_are_not_counted() {
    let callees = callees(3);
    let server = balancer(&uris(&callees), "policy = \"least-calls\"\n").start();
    let mut caller = Caller::new(server.address());
    for callee in &callees {
        callee.behave(AnswerBehavior { ring: PATIENCE, ..AnswerBehavior::default() });
    }
    let calls = names("cancelled", 9);
    calls.iter().for_each(|call| caller.begin(call));
    caller.run_until("all ring", PATIENCE, |calls| calls.values().all(|call| !call.provisional.is_empty()));
    assert_eq!(sum(&server, "transactions"), 9);
    assert!(callees.iter().all(|callee| callee.calls().len() == 3), "{callees:?}");
    calls.iter().for_each(|call| caller.cancel(call));
    caller.settle(PATIENCE);
    for call in &calls {
        assert_eq!(caller.call(call).answer.map(|(status, _)| status), Some(487));
    }
    assert!(callees.iter().all(|callee| callee.strays().is_empty()), "{callees:?}");
    server.wait_until_at_rest();
}

/// RFC 4028: neither a BYE nor a refresh is sent. The interval is shorter than the minimum for phones. The server
/// waits 32 s longer.
#[test]
fn an_expired_session_is_not_counted() {
    let callees = callees(2);
    let server = balancer(&uris(&callees), "policy = \"round-robin\"\n").start();
    let mut caller = Caller::new(server.address());
    let timed = AnswerBehavior {
        fields: "Session-Expires: 1;refresher=uac\r\nRequire: timer\r\n",
        ..AnswerBehavior::default()
    };
    callees.iter().for_each(|callee| callee.behave(timed.clone()));
    let timed_calls = names("timed", 6);
    timed_calls.iter().for_each(|call| caller.begin_with(call, "Supported: timer\r\n", false));
    caller.settle(PATIENCE);
    callees.iter().for_each(|callee| callee.behave(AnswerBehavior::default()));
    caller.begin("untimed");
    caller.settle(PATIENCE);
    wait_until("all are counted", || sum(&server, "calls") == 7);
    caller.run(Duration::from_secs(33));
    wait_until("one is left", || sum(&server, "calls") == 1);
    // A late BYE is answered and changes no count.
    caller.request(&timed_calls[0], "BYE", None);
    caller.settle(PATIENCE);
    assert_eq!((sum(&server, "calls"), &caller.call(&timed_calls[0]).replies), (1, &vec![("BYE".to_owned(), 200)]));
    caller.request("untimed", "BYE", None);
    caller.settle(PATIENCE);
    server.wait_until_at_rest();
}

#[test]
fn no_target_up_is_503_at_once() {
    let callees = callees(2);
    let server = balancer(&uris(&callees), PROBE).start();
    let mut caller = Caller::new(server.address());
    caller.make(&names("alive", 4), PATIENCE);
    let uris = uris(&callees);
    drop(callees);
    wait_until("both are out of service", || uris.iter().all(|uri| state(&server, uri) == "down"));
    for call in names("dead", 3) {
        let answer = refused(&mut caller, &call);
        assert!(answer.0 == 503 && answer.1 < AT_ONCE, "{answer:?}");
        let pause = wire::value(&caller.call(&call).response, "Retry-After").parse::<u32>();
        assert!(pause.is_ok_and(|pause_s| (1..=60).contains(&pause_s)), "{}", caller.call(&call).response);
    }
    server.wait_until_at_rest();
}

/// Without probes the calls themselves detect the failure. The first ones get an ICMP error at once.
#[test]
fn no_target_up_is_503_without_probes() {
    let uris: Vec<_> = (1..=2).map(|number| format!("sip:{}", place(number))).collect();
    let server = balancer(&uris, "").start();
    let mut caller = Caller::new(server.address());
    for call in names("dead", 5) {
        let answer = refused(&mut caller, &call);
        assert!(answer.0 == 503 && answer.1 < AT_ONCE, "{call}: {answer:?}");
        assert!(
            !wire::value(&caller.call(&call).response, "Retry-After").is_empty(),
            "{}",
            caller.call(&call).response
        );
    }
    server.wait_until_at_rest();
}

#[test]
fn a_targets_retry_after_is_respected() {
    const PAUSE: Duration = Duration::from_secs(3);
    let callees = callees(3);
    let server = balancer(&uris(&callees), "slow_start = \"0s\"\n").start();
    let mut caller = Caller::new(server.address());
    let calls = names("key", 30);
    let homes = places(&mut caller, &calls, &callees);
    let own: Vec<_> = calls.iter().filter(|call| homes[*call] == 0).cloned().collect();
    callees[0].behave(AnswerBehavior { status: 503, fields: "Retry-After: 3\r\n", ..AnswerBehavior::default() });
    callees.iter().for_each(Callee::forget);
    caller.make(&own[..1], PATIENCE);
    assert_eq!(caller.call(&own[0]).answer.map(|(status, _)| status), Some(200), "another has taken it");
    let refused = callees[0].calls().first().expect("it was asked first").came;
    // The target would answer again, but its Retry-After has not yet passed.
    callees[0].behave(AnswerBehavior::default());
    let taken = |caller: &mut Caller| {
        callees[0].forget();
        caller.make(&own, PATIENCE);
        assert!(own.iter().all(|call| caller.call(call).answer.is_some_and(|(status, _)| status == 200)));
        callees[0].calls().first().map(|seen| seen.came)
    };
    let again = poll(PATIENCE, || taken(&mut caller)).expect("it is asked again some time");
    assert!(again - refused >= PAUSE, "it was asked again after {:?}", again - refused);
    assert!(again - refused < 2 * PAUSE, "it was left alone for {:?}", again - refused);
    assert_eq!(places(&mut caller, &calls, &callees), homes);
    server.wait_until_at_rest();
}

#[test]
fn drained_target_keeps_its_calls_and_gets_no_other() {
    let callees = callees(3);
    let server = balancer(&uris(&callees), "policy = \"least-calls\"\nslow_start = \"0s\"\n").start();
    let mut caller = Caller::new(server.address());
    let taken = || callees.iter().map(|callee| callee.calls().len()).collect::<Vec<_>>();
    let begin = |caller: &mut Caller, prefix: &str, count| {
        names(prefix, count).iter().for_each(|call| {
            caller.begin(call);
            caller.settle(PATIENCE);
        });
    };
    begin(&mut caller, "before", 6);
    assert_eq!(taken(), [2, 2, 2]);
    let drained = callees[1].uri();
    server.control(&["drain", &drained]);
    begin(&mut caller, "meanwhile", 4);
    assert_eq!((taken(), state(&server, &drained).as_str()), (vec![4, 2, 4], "draining"));
    for seen in callees[1].calls() {
        caller.request(&seen.call_id, "INVITE", None);
        caller.settle(PATIENCE);
        caller.request(&seen.call_id, "BYE", None);
        caller.settle(PATIENCE);
        assert!(caller.call(&seen.call_id).replies.iter().all(|(_, status)| *status == 200));
    }
    wait_until("it is empty", || count(&server, &drained, "calls") == 0);
    server.control(&["undrain", &drained]);
    begin(&mut caller, "after", 4);
    assert_eq!(taken(), [4, 6, 4], "who is back has the fewest calls");
}

/// Counts survive a reload, even if targets are added and removed while a call continues at a removed one.
#[test]
fn reload_loses_no_count() {
    let callees = callees(3);
    let all = uris(&callees);
    let server = balancer(&all[..2], "policy = \"least-calls\"\nslow_start = \"0s\"\n").start();
    let mut caller = Caller::new(server.address());
    let calls = names("call", 6);
    calls[..4].iter().for_each(|call| caller.begin(call));
    caller.settle(PATIENCE);
    assert_eq!(sum(&server, "calls"), 4);
    let text = fs::read_to_string(server.file()).expect("there is a configuration");
    fs::write(server.file(), text.replace(&format!("{:?}", &all[..2]), &format!("{:?}", &all[1..]))).expect("written");
    server.control(&["reload"]);
    wait_until("the new one is there", || server.targets().iter().any(|target| target["uri"] == all[2].as_str()));
    assert_eq!((count(&server, &all[1], "calls"), count(&server, &all[2], "calls")), (2, 0));
    calls[4..].iter().for_each(|call| {
        caller.begin(call);
        caller.settle(PATIENCE);
    });
    assert_eq!(callees.iter().map(|callee| callee.calls().len()).collect::<Vec<_>>(), [2, 2, 2]);
    calls.iter().for_each(|call| caller.request(call, "BYE", None));
    caller.settle(PATIENCE);
    assert!(calls.iter().all(|call| caller.call(call).replies == [("BYE".to_owned(), 200)]));
    assert!(callees.iter().all(|callee| callee.strays().is_empty()), "{callees:?}");
    server.wait_until_at_rest();
}

/// Kamailio and the server read the same file, and agree on the targets and on their state.
#[test]
fn dispatcher_lists_are_read_as_by_kamailio() {
    if !Program::Kamailio.available() {
        return;
    }
    let callees = callees(6);
    let folder = tempfile::tempdir().expect("a folder");
    let list = folder.path().join("dispatcher.list");
    let [one, two, three, off, other, high] = &uris(&callees)[..] else { unreachable!("six callees") };
    let text = format!(
        "# set, destination, flags, priority, attributes\n1 {one} 0 0 weight=50;duid=a\n1 {two}\n\n1 {three} 0 5\n\
         1 {off} 4 0 weight=50\n2 {other} 0 0\n  1 {high} 0 10 maxload=10\n"
    );
    fs::write(&list, text).expect("the list can be written");
    let kamailio = Kamailio::dispatching(Ipv4Addr::new(127, 0, 0, 8), free_port(), &list);
    let facts = kamailio.destinations();
    let theirs: BTreeSet<_> = facts.lines().filter_map(|line| line.trim().strip_prefix("URI: ")).collect();
    assert_eq!(theirs.len(), 6, "{facts}");

    let mut config = balancer(&[format!("list:{}#1", list.display())], "policy = \"round-robin\"\n");
    config.more += &format!("\n[[balancer]]\nname = \"other\"\ntargets = [\"list:{}#2\"]\n", list.display());
    let server = config.start();
    let ours = server.targets();
    let ours: BTreeSet<_> = ours.iter().filter_map(|target| target["uri"].as_str()).collect();
    assert_eq!(ours, theirs);

    let users_of = |address: SocketAddr, prefix: &str| {
        callees.iter().for_each(Callee::forget);
        let mut caller = Caller::new(address);
        caller.make(&names(prefix, 24), PATIENCE);
        callees.iter().map(|callee| !callee.calls().is_empty()).collect::<Vec<_>>()
    };
    let by_kamailio = users_of(kamailio.address(), "kamailio");
    assert_eq!(by_kamailio, [true, true, true, false, false, true]);
    assert_eq!(users_of(server.address(), "strowger"), by_kamailio);
}

/// Starts callees at separate addresses.
fn callees(count: u8) -> Vec<Callee> {
    (1..=count).map(|number| Callee::start(place(number))).collect()
}

/// Returns a free port at the loopback address of this number.
fn place(number: u8) -> SocketAddr {
    (Ipv4Addr::new(127, 0, 8, number), free_port()).into()
}

fn uris(callees: &[Callee]) -> Vec<String> {
    callees.iter().map(Callee::uri).collect()
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}

/// Returns a configuration with a set of these targets for all calls to the domain pool.test. `more` is added to its
/// section.
fn balancer(targets: &[String], more: &str) -> Config {
    let more = format!(
        "[cdr]\nfile = \"cdr.json\"\n\n[[balancer]]\nname = \"pool\"\ntargets = {targets:?}\n{more}\n[[route]]\n\
         match = {{ domain = \"pool.test\" }}\nbalance = \"pool\"\n"
    );
    Config { users: Vec::new(), more, ..Config::open() }
}

/// Makes calls with these Call-IDs and returns the index of the callee that received each.
fn places(caller: &mut Caller, calls: &[String], callees: &[Callee]) -> BTreeMap<String, usize> {
    callees.iter().for_each(Callee::forget);
    caller.make(calls, PATIENCE);
    let mut places = BTreeMap::new();
    for (number, callee) in callees.iter().enumerate() {
        for seen in callee.calls() {
            let before = places.insert(seen.call_id.clone(), number);
            assert!(before.is_none(), "{} went to {before:?} and to {number}", seen.call_id);
        }
    }
    let is_answered = |call: &String| caller.call(call).answer.is_some_and(|(status, _)| status == 200);
    assert!(places.len() == calls.len() && calls.iter().all(is_answered), "{} of {}", places.len(), calls.len());
    places
}

/// Returns the callee that received this call.
fn home<'a>(callees: &'a [Callee], call: &str) -> &'a Callee {
    callees.iter().find(|callee| callee.call(call).is_some()).expect("somebody has the call")
}

/// Makes a call that is refused. Returns its status and response time.
fn refused(caller: &mut Caller, call: &str) -> (u16, Duration) {
    caller.begin(call);
    caller.settle(PATIENCE);
    caller.call(call).answer.expect("it is answered")
}

fn state(server: &Server, uri: &str) -> String {
    let targets = server.targets();
    let target =
        targets.iter().find(|target| target["uri"] == uri).unwrap_or_else(|| panic!("no {uri} in {targets:?}"));
    target["state"].as_str().unwrap_or_else(|| panic!("no state in {target}")).to_owned()
}

/// Returns a counter of one target.
fn count(server: &Server, uri: &str, name: &str) -> u64 {
    let targets = server.targets();
    let target =
        targets.iter().find(|target| target["uri"] == uri).unwrap_or_else(|| panic!("no {uri} in {targets:?}"));
    target[name].as_u64().unwrap_or_else(|| panic!("no {name} in {target}"))
}

/// Returns the sum of a counter over all targets.
fn sum(server: &Server, count: &str) -> u64 {
    let of = |target: &Value| target[count].as_u64().unwrap_or_else(|| panic!("no {count} in {target}"));
    server.targets().iter().map(of).sum()
}

/// Like [`wait_until`], while the caller keeps running.
fn caller_until(caller: &mut Caller, what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "not so: {what}");
        caller.run(Duration::from_millis(20));
    }
}

/// Returns the wall-clock time after a pause, in the format of call records, whose text sorts by time.
fn instant_after(pause: Duration) -> String {
    std::thread::sleep(pause);
    let output = std::process::Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%S.%3NZ"]).output();
    String::from_utf8_lossy(&output.expect("date (coreutils) is installed").stdout).trim().to_owned()
}

/// The server's record of a call.
#[derive(Debug)]
struct Record {
    start: String,
    setup: Duration,
    callee: String,
    target: String,
}

impl Record {
    fn new(line: &Value) -> Record {
        let text = |name: &str| line[name].as_str().unwrap_or_else(|| panic!("no {name} in {line}")).to_owned();
        let setup = Duration::from_secs_f64(line["setup_s"].as_f64().expect("a number"));
        Record { start: text("start"), setup, callee: text("callee"), target: text("target") }
    }
}
