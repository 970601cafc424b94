//! Overload feedback between two servers (RFC 7339, RFC 7415): the Via parameters, and how a first stage reduces load
//! for its second stage.

mod support;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use strowger_balancer::{Member, Policy, Set, SetConfig, Target};
use strowger_foundation::Transport;
use strowger_proxy::Stateless;
use strowger_shard::{Action, Listener, Listeners, Route, RouteTarget, Snapshot};
use support::{ALICE, BOB, SERVER, SentMessage, World, destinations, finals, find, request, summary};

/// The second stage.
const SECOND: &str = "203.0.113.1:5060";
/// Another server of the same set.
const OTHER: &str = "203.0.113.2:5060";
const OFFER: &str = ";oc;oc-algo=\"loss\"";
/// The Via parameters towards a next hop that has sent feedback.
const OFFER_WITH_RATE: &str = ";oc;oc-algo=\"loss,rate\"";

fn balanced(addresses: &[&str]) -> Route {
    let uri = |address: &&str| format!("sip:{address}").into_bytes();
    let member = |address| Member::new(Target::new("pool", &uri(address)));
    let config = SetConfig { name: "pool".into(), policy: Policy::RoundRobin, ..SetConfig::default() };
    let set = Set::new(config, addresses.iter().map(member).collect()).expect("a sound set");
    let at = |address: &&str| RouteTarget::at(&uri(address), address.parse().expect("an address"));
    let places = addresses.iter().map(at).collect();
    Route::of_domain(b"*", Action::balance(Arc::new(set), places, Stateless::Never))
}

/// A first stage in front of these servers.
fn first_stage(addresses: &[&str]) -> World {
    let mut world = World::new(|snapshot| snapshot.routes = vec![balanced(addresses)]);
    world.is_checked = false;
    world
}

/// A server at [`SECOND`] that sends everything to Bob.
fn second_stage(edit: impl FnOnce(&mut Snapshot)) -> World {
    let mut world = World::with_key([9; 16], |snapshot| {
        let listener = Listener::new(Transport::Udp, SECOND.parse().expect("an address"));
        snapshot.listeners = Listeners::new(vec![listener]);
        let bob = RouteTarget::at(format!("sip:{BOB}").as_bytes(), BOB.parse().expect("an address"));
        snapshot.routes = vec![Route::of_domain(b"*", Action::proxy(vec![bob], Stateless::Never))];
        edit(snapshot);
    });
    world.is_checked = false;
    world
}

fn text(method: &str, number: u64, extra: &str) -> String {
    request(method, "sip:x@elsewhere.example", &format!("{method}{number}"), extra)
        .replace("call-1@alice", &format!("{number}@alice"))
}

/// Both stages, with Alice in front of them and Bob behind, who answers each request with 200.
struct Pair {
    first: World,
    second: World,
    /// Requests that Bob received.
    at_bob: Vec<SentMessage>,
    /// Messages between the two stages, in both directions.
    between: Vec<SentMessage>,
}

impl Pair {
    fn new() -> Self {
        Self { first: first_stage(&[SECOND]), second: second_stage(|_| {}), at_bob: Vec::new(), between: Vec::new() }
    }

    /// Sends `text` from Alice and returns what she receives.
    fn send(&mut self, text: &str) -> Vec<SentMessage> {
        let mut to_alice = Vec::new();
        let mut waiting: VecDeque<(&str, SentMessage)> =
            self.first.input(ALICE, text).into_iter().map(|s| (SERVER, s)).collect();
        while let Some((from, sent)) = waiting.pop_front() {
            let to = sent.to.to_string();
            let (by, out) = match &*to {
                SERVER => (SERVER, self.first.input(from, &sent.text)),
                SECOND => (SECOND, self.second.input(from, &sent.text)),
                BOB if sent.status() == 0 => {
                    self.at_bob.push(sent.clone());
                    if sent.method() == "ACK" {
                        continue;
                    }
                    (SECOND, self.second.respond(&sent, 200, "b", ""))
                }
                _ => {
                    to_alice.push(sent);
                    continue;
                }
            };
            if [SERVER, SECOND].contains(&&*to) {
                self.between.push(sent);
            }
            waiting.extend(out.into_iter().map(|sent| (by, sent)));
        }
        to_alice
    }

    /// Makes `count` calls, one every ten milliseconds, and returns the final responses.
    fn calls(&mut self, from: u64, count: u64) -> Vec<SentMessage> {
        let mut answers = Vec::new();
        for number in from..from + count {
            answers.extend(self.send(&text("INVITE", number, "")).into_iter().filter(|sent| sent.status() >= 200));
            self.wait(Duration::from_millis(10));
        }
        answers
    }

    fn wait(&mut self, time: Duration) {
        self.first.wait(time);
        self.second.wait(time);
    }
}

fn is_unavailable(sent: &&SentMessage) -> bool {
    sent.status() == 503
}

/// Returns the overload control parameters of a Via.
fn told(sent: &SentMessage) -> String {
    let via = sent.header("Via").expect("has one");
    via.split(';').filter(|param| param.starts_with("oc")).map(|param| format!(";{param}")).collect()
}

#[test]
fn a_first_stage_sheds_for_its_second() {
    let mut pair = Pair::new();
    assert!(pair.calls(0, 100).iter().all(|sent| sent.status() == 200));
    assert!(pair.between.iter().all(|sent| told(sent) == OFFER), "nothing is told while nothing is shed");

    pair.second.shedding.report(0, 400, 60);
    assert_eq!(pair.calls(100, 1).len(), 1, "this one brings the news");
    (pair.at_bob, pair.between) = (Vec::new(), Vec::new());
    let answers = pair.calls(1_000, 2_000);
    let refused: Vec<&SentMessage> = answers.iter().filter(is_unavailable).collect();
    assert_eq!(answers.len(), 2_000, "each is answered");
    assert!((760..=840).contains(&refused.len()), "two fifths: {}", refused.len());
    assert!(refused.iter().all(|sent| sent.header("Retry-After").is_none()), "others may be tried at once");
    assert_eq!(pair.at_bob.len(), 2_000 - refused.len());
    let asked = pair.between.iter().filter(|sent| sent.method() == "INVITE").count();
    assert_eq!(asked, 2_000 - refused.len(), "the second stage hears nothing of the others");
    assert_eq!(pair.first.shard.counters().shed_for_next_hop, refused.len() as u64);

    pair.second.shedding.report(0, 0, 100);
    let next = (3_000..).find(|number| pair.calls(*number, 1).iter().all(|sent| sent.status() == 200)).expect("some");
    assert!(pair.calls(next + 1, 200).iter().all(|sent| sent.status() == 200), "it has heard that this is over");
    pair.wait(Duration::from_secs(2));
    pair.between.clear();
    pair.calls(9_000, 1);
    assert!(pair.between.iter().all(|sent| told(sent) == OFFER), "and no more is said of it");
}

#[test]
fn full_shedding_spares_priority_requests() {
    let mut pair = Pair::new();
    let answered = pair.send(&text("INVITE", 1, ""));
    let routes: Vec<&str> = answered.last().expect("an answer").headers("Record-Route").collect();
    let routes: String = routes.iter().rev().map(|route| format!("Route: {route}\r\n")).collect();
    pair.second.shedding.report(0, 1_000, 0);
    pair.send(&text("INVITE", 2, ""));
    assert_eq!(finals(&pair.send(&text("INVITE", 3, ""))), [503]);
    assert_eq!(finals(&pair.send(&text("MESSAGE", 4, ""))), [503]);
    assert_eq!(finals(&pair.send(&text("INVITE", 5, "Resource-Priority: ets.0\r\n"))), [200]);
    let bye = text("BYE", 1, &routes)
        .replace("To: <sip:bob@example.com>", "To: <sip:bob@example.com>;tag=b")
        .replace("CSeq: 1 BYE", "CSeq: 2 BYE")
        .replace("sip:x@elsewhere.example", &format!("sip:bob@{BOB}"));
    assert_eq!(finals(&pair.send(&bye)), [200]);
    assert_eq!(pair.at_bob.last().map(SentMessage::method), Some("BYE"));
}

/// Responds to `request` with `said` in the topmost Via.
fn answer(world: &mut World, request: &SentMessage, status: u16, said: &str) -> Vec<SentMessage> {
    let text = request.text.replace(OFFER_WITH_RATE, OFFER).replace(OFFER, said);
    let told = SentMessage { text, ..request.clone() };
    world.respond(&told, status, "b", "")
}

/// Returns how many of `count` calls, one every `gap`, are forwarded; they are answered 486 without overload
/// feedback.
fn passed(world: &mut World, from: u64, count: u64, gap: Duration) -> usize {
    let mut invites = 0;
    for number in from..from + count {
        for invite in world.input(ALICE, &text("INVITE", number, "")).iter().filter(|sent| sent.method() == "INVITE") {
            invites += 1;
            answer(world, invite, 486, OFFER);
        }
        world.wait(gap);
    }
    invites
}

#[test]
fn all_algorithms_are_offered_once_the_peer_gives_feedback() {
    let mut world = first_stage(&[SECOND]);
    let offer = |world: &mut World, number| find(&world.input(ALICE, &text("INVITE", number, "")), "INVITE");
    let first = offer(&mut world, 1);
    assert_eq!(told(&first), OFFER);
    answer(&mut world, &first, 486, ";oc=0;oc-algo=\"loss\";oc-validity=700;oc-seq=10.5");
    let second = offer(&mut world, 2);
    assert_eq!(told(&second), OFFER_WITH_RATE);
    world.wait(Duration::from_millis(800));
    assert_eq!(told(&offer(&mut world, 3)), OFFER);
}

#[test]
fn unrenewed_feedback_expires() {
    let mut world = first_stage(&[SECOND]);
    let first = find(&world.input(ALICE, &text("INVITE", 1, "")), "INVITE");
    answer(&mut world, &first, 486, ";oc=100;oc-algo=\"loss\";oc-validity=700;oc-seq=10.5");
    assert_eq!(passed(&mut world, 10, 60, Duration::from_millis(10)), 0);
    world.wait(Duration::from_millis(100));
    assert_eq!(passed(&mut world, 100, 10, Duration::ZERO), 10);
    let first = find(&world.input(ALICE, &text("INVITE", 2, "")), "INVITE");
    answer(&mut world, &first, 486, ";oc=100");
    world.wait(Duration::from_millis(499));
    assert_eq!(passed(&mut world, 200, 1, Duration::from_millis(1)), 0, "half a second where nothing is said of it");
    assert_eq!(passed(&mut world, 300, 1, Duration::ZERO), 1);
}

#[test]
fn out_of_order_feedback_is_ignored() {
    let mut world = first_stage(&[SECOND]);
    let invites: Vec<SentMessage> =
        (0..4).map(|number| find(&world.input(ALICE, &text("INVITE", number, "")), "INVITE")).collect();
    answer(&mut world, &invites[0], 486, ";oc=100;oc-algo=\"loss\";oc-validity=60000;oc-seq=1282321615.782");
    answer(&mut world, &invites[1], 486, ";oc=0;oc-algo=\"loss\";oc-validity=0;oc-seq=1282321615.781");
    assert_eq!(passed(&mut world, 10, 20, Duration::ZERO), 0);
    answer(&mut world, &invites[2], 486, ";oc=0;oc-algo=\"loss\";oc-validity=0;oc-seq=1282321615.9");
    assert_eq!(passed(&mut world, 100, 20, Duration::ZERO), 20);
    answer(&mut world, &invites[3], 486, ";oc=100;oc-algo=\"loss\";oc-validity=60000;oc-seq=1282321615.8");
    assert_eq!(passed(&mut world, 200, 20, Duration::ZERO), 20);
}

#[test]
fn a_rate_is_kept() {
    for (offered, rate) in [(200, 50), (40, 50), (1_000, 130)] {
        let mut world = first_stage(&[SECOND]);
        let first = find(&world.input(ALICE, &text("INVITE", 1, "")), "INVITE");
        let said = format!(";oc={rate};oc-algo=\"rate\";oc-validity=60000;oc-seq=1.1");
        answer(&mut world, &first, 486, &said);
        let seconds = 20;
        let count = passed(&mut world, 10, seconds * offered, Duration::from_micros(1_000_000 / offered)) as u64;
        let expected = seconds * offered.min(rate);
        assert!(count.abs_diff(expected) * 20 <= expected, "{count} of {expected}");
    }
}

#[test]
fn failover_is_limited_by_the_budget() {
    let mut world = first_stage(&[SECOND, OTHER]);
    let first = (1..3).find_map(|number| {
        let invite = find(&world.input(ALICE, &text("INVITE", number, "")), "INVITE");
        (invite.to.to_string() == SECOND).then_some(invite)
    });
    answer(&mut world, &first.expect("one of two"), 486, ";oc=100;oc-algo=\"loss\";oc-validity=60000;oc-seq=1.1");
    let mut to_other = 0;
    let mut refused = 0;
    for number in 10..210 {
        let sent = world.input(ALICE, &text("INVITE", number, ""));
        to_other += destinations(&sent, "INVITE").iter().filter(|to| *to == OTHER).count();
        refused += finals(&sent).len();
        sent.iter()
            .filter(|sent| sent.method() == "INVITE")
            .for_each(|invite| drop(answer(&mut world, invite, 486, OFFER)));
    }
    // A hundred are its own; ten, and a tenth of all, are failovers.
    assert_eq!((to_other, refused), (130, 70), "of 200");
    let counters = world.shard.counters();
    assert_eq!((counters.shed_for_next_hop, counters.failovers_refused), (70, 70));
}

#[test]
fn own_responses_carry_feedback_only_if_requested() {
    let mut world = second_stage(|_| {});
    world.shedding.report(0, 335, 100);
    let asked =
        |method, number| text(method, number, "").replacen("\r\nMax-Forwards", &format!("{OFFER}\r\nMax-Forwards"), 1);
    let sent = world.input(ALICE, &asked("INVITE", 1));
    let trying = sent.iter().find(|sent| sent.status() == 100).expect("trying");
    let feedback = ";oc=34;oc-algo=\"loss\";oc-validity=1000;oc-seq=1.00000";
    assert_eq!(told(trying), feedback);
    let invite = find(&sent, "INVITE");
    for (status, tag) in [(180, "b"), (486, "b")] {
        assert_eq!(told(&world.respond(&invite, status, tag, "")[usize::from(status == 486)]), feedback, "{status}");
    }
    let options = asked("OPTIONS", 2).replace("sip:x@elsewhere.example", &format!("sip:{SECOND}"));
    let (first, again) = (world.input(ALICE, &options), world.input(ALICE, &options));
    assert_eq!((told(&first[0]), told(&again[0])), (feedback.to_owned(), feedback.to_owned()));
    let preferring = options.replace("\"loss\"", "\"rate,loss\"").replace("OPTIONS2", "OPTIONS3");
    assert_eq!(
        told(&world.input(ALICE, &preferring)[0]),
        feedback.replace("oc=34;oc-algo=\"loss\"", "oc=100;oc-algo=\"rate\"")
    );
    let plain = text("OPTIONS", 4, "").replace("sip:x@elsewhere.example", &format!("sip:{SECOND}"));
    assert_eq!(told(&world.input(ALICE, &plain)[0]), "");
}

#[test]
fn phones_cannot_forge_server_feedback() {
    let mut world = second_stage(|_| {});
    let asked = text("INVITE", 1, "").replacen("\r\nMax-Forwards", &format!("{OFFER}\r\nMax-Forwards"), 1);
    let invite = find(&world.input(ALICE, &asked), "INVITE");
    assert_eq!(told(&invite), "", "a phone is asked nothing");
    let rings = world.respond(&invite, 180, "b", "");
    assert_eq!(told(&rings[0]), OFFER, "what nobody has touched stays as it is");
    let forged =
        SentMessage { text: invite.text.replace(OFFER, ";oc=100;oc-validity=60000;oc-seq=999999999999.9"), ..invite };
    let sent = world.respond(&forged, 200, "b", "");
    assert_eq!((sent[0].status(), told(&sent[0])), (200, String::new()), "{:?}", summary(&sent));
    // The same for a retransmission.
    let sent = world.respond(&forged, 200, "b", "");
    assert_eq!((sent[0].status(), told(&sent[0])), (200, String::new()), "{:?}", summary(&sent));
}

#[test]
fn unasked_feedback_is_ignored() {
    let mut world = second_stage(|_| {});
    let invite = find(&world.input(ALICE, &text("INVITE", 1, "")), "INVITE");
    let said = SentMessage {
        text: invite.text.replacen("\r\nVia", ";oc=100;oc-validity=60000;oc-seq=1.1\r\nVia", 1),
        ..invite
    };
    assert_eq!(finals(&world.respond(&said, 486, "b", "")), [486]);
    assert_eq!(destinations(&world.input(ALICE, &text("INVITE", 2, "")), "INVITE"), [BOB]);
}

#[test]
fn when_off_feedback_is_neither_asked_nor_sent() {
    let mut first = first_stage(&[SECOND]);
    first.configure(|snapshot| snapshot.proxy.overload_control = false);
    let invite = find(&first.input(ALICE, &text("INVITE", 1, "")), "INVITE");
    assert_eq!(told(&invite), "");
    let mut second = second_stage(|snapshot| snapshot.proxy.overload_control = false);
    second.shedding.report(0, 400, 100);
    let asked = text("INVITE", 1, "").replacen("\r\nMax-Forwards", &format!("{OFFER}\r\nMax-Forwards"), 1);
    assert!(second.input(ALICE, &asked).iter().filter(|sent| sent.status() > 0).all(|sent| told(sent) == OFFER));
}
