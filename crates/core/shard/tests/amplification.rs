//! Bytes sent for messages from unproven sources: forged source addresses must not turn the server into a reflector.

mod support;

use std::time::Duration;

use proptest::prelude::*;
use strowger_auth::{Algorithm, Network};
use strowger_directory::{Directory, DirectoryChange, Ha1s, User};
use strowger_foundation::{ConnId, Flow, ListenerId, Transport};
use strowger_message::Status;
use strowger_overload::Limits;
use strowger_shard::{Action, MAX_AMPLIFICATION, Route, RouteMatch, RouteTarget, Snapshot};
use support::{ALICE, BOB, BOB2, World, finals, find, request, summary};

/// Longer than any timer of RFC 3261.
const LIFE: Duration = Duration::from_secs(64);
const STRANGER: &str = "198.51.100.66:5060";

/// The outputs for a request, and its length.
struct Exchange {
    sent: Vec<support::SentMessage>,
    bytes: usize,
}

impl Exchange {
    /// Returns the bytes of the server's own responses, which are all responses, since no other element responds.
    fn answered(&self) -> usize {
        self.sent.iter().filter(|sent| sent.status() > 0).map(|sent| sent.text.len()).sum()
    }
}

/// Sends a datagram and lets time pass until it can have no further effect.
fn ask(world: &mut World, text: &str) -> Exchange {
    let mut sent = world.input(STRANGER, text);
    sent.extend(world.wait(LIFE).into_iter().map(|(_, sent)| sent));
    Exchange { sent, bytes: text.len() }
}

#[track_caller]
fn assert_bounded(world: &mut World, text: &str) -> Exchange {
    let asked = ask(world, text);
    let (answered, most) = (asked.answered(), MAX_AMPLIFICATION * asked.bytes);
    assert!(answered <= most, "{answered} bytes for {}:\n{text}\n{:?}", asked.bytes, summary(&asked.sent));
    let stranger = STRANGER.split(':').next().expect("an address");
    let elsewhere = asked.sent.iter().filter(|sent| sent.status() > 0 && sent.to.ip().to_string() != stranger);
    assert_eq!(elsewhere.count(), 0, "answers go to where the datagram seems to come from");
    asked
}

fn users(snapshot: &mut Snapshot) {
    let user = |name: &str| {
        let aor = format!("{name}@example.com").into_bytes().into();
        DirectoryChange::PutUser(User { aor, ha1: Ha1s::default(), enabled: true })
    };
    snapshot.directory = Directory::empty(1).with_changes(["alice", "bob"].map(user));
}

/// A server without authentication.
fn open() -> World {
    World::new(|snapshot| {
        users(snapshot);
        let prefix = |prefix: &[u8]| RouteMatch { prefixes: vec![prefix.into()], ..RouteMatch::default() };
        let contacts = (0..9).map(|n| {
            let uri = format!("sip:someone-with-a-long-name-{n}@host-{n}.example.net;transport=udp");
            RouteTarget::at(uri.as_bytes(), BOB.parse().expect("an address"))
        });
        snapshot.routes = vec![
            Route::new(prefix(b"1"), Action::Redirect { targets: contacts.collect() }),
            Route::new(prefix(b"2"), Action::Reject { status: Status::DECLINE, reason: Some("Not Today".into()) }),
            Route::new(prefix(b"3"), Action::OutOfService),
            Route::new(prefix(b"4"), Action::NoTarget),
            Route::new(
                prefix(b"5"),
                Action::proxy(
                    vec![RouteTarget::at(b"sip:203.0.113.1", "203.0.113.1:5060".parse().expect("an address"))],
                    strowger_proxy::Stateless::Never,
                ),
            ),
        ];
    })
}

/// A server that sends everybody two challenges.
fn strict() -> World {
    World::new(|snapshot| {
        users(snapshot);
        snapshot.auth.algorithms = vec![Algorithm::Sha256, Algorithm::Md5];
        let methods = ["REGISTER", "INVITE", "MESSAGE", "OPTIONS", "SUBSCRIBE"];
        snapshot.auth.require = methods.map(|method| method.as_bytes().into()).into();
    })
}

fn loading() -> World {
    World::loading(users)
}

fn full() -> World {
    World::new(|snapshot| snapshot.limits = Limits { in_progress: 0, server_transactions: 0 })
}

/// A server without authentication, with ten contacts of one user.
fn crowded() -> World {
    let mut world = open();
    for n in 0..10 {
        let contact = format!("<sip:bob-at-a-device-with-a-long-name-{n}@192.0.2.{}:5060;transport=udp>", 20 + n);
        world.register("bob", &format!("192.0.2.{}:5060", 20 + n), &contact);
    }
    world.wait(LIFE);
    world
}

const WORLDS: [fn() -> World; 5] = [open, strict, loading, full, crowded];
const METHODS: [&str; 12] = [
    "OPTIONS",
    "REGISTER",
    "INVITE",
    "MESSAGE",
    "CANCEL",
    "ACK",
    "BYE",
    "SUBSCRIBE",
    "PUBLISH",
    "PRACK",
    "X",
    "invite",
];
const URIS: [&str; 14] = [
    "sip:example.com",
    "sip:192.0.2.1",
    "sip:bob@example.com",
    "sip:nobody@example.com",
    "sip:1@example.com",
    "sip:2@example.com",
    "sip:3@example.com",
    "sip:4@example.com",
    "sip:a@b",
    "sips:bob@example.com",
    "tel:+1",
    "x:y",
    "sip:bob@example.com?X=1",
    "sip:5@example.com",
];
/// Lines that are faulty or require something.
const EXTRA: [&str; 17] = [
    "",
    "Max-Forwards: 0\r\n",
    "Max-Forwards: x\r\n",
    "Require: a\r\n",
    "Proxy-Require: a,b,c\r\n",
    "Route: <sip:x\r\n",
    "Route: <sip:192.0.2.1;lr>\r\n",
    "m: *\r\nExpires: 0\r\n",
    "m: <sip:a@b>\r\nExpires: 1\r\n",
    "m: <sip:a@b>\r\n",
    "Content-Length: x\r\n",
    "l: 900\r\n",
    "Max-Breadth: 0\r\n",
    "k: path, outbound, gruu\r\nm: <sip:a@b>;+sip.instance=\"<u:1>\"\r\n",
    "Authorization: Digest x\r\n",
    "Proxy-Authorization: Digest username=\"a\", realm=\"example.com\"\r\n",
    "Supported: 100rel\r\nTimestamp: 1\r\n",
];
const VIAS: [&str; 9] = [
    "v:SIP/2.0/UDP a\r\n",
    "v:SIP/2.0/UDP a;rport\r\n",
    "v:SIP/2.0/UDP a;branch=z9hG4bK1\r\n",
    "v:\r\n",
    "v:SIP/2.0\r\n",
    "v:SIP/2.0/UDP a;maddr=203.0.113.9;branch=z9hG4bK1\r\n",
    "v:SIP/2.0/UDP 203.0.113.9:53;received=203.0.113.9\r\n",
    "v:SIP/2.0/UDP a,SIP/2.0/UDP b,SIP/2.0/UDP c\r\nv:SIP/2.0/UDP d\r\n",
    "",
];
const ENDS: [&str; 5] = [
    "f:<sip:a@example.com>;tag=1\r\nt:<sip:b@example.com>\r\ni:1\r\n",
    "f:<sip:a@b>\r\nt:<sip:a@b>;tag=t\r\ni:1\r\n",
    "f:sip:a@b;tag=1\r\nt:sip:bob@example.com\r\ni:a\r\n",
    "t:x\r\ni:1\r\n",
    "",
];

/// All kinds, in their shortest spelling.
#[test]
fn short_datagrams_get_at_most_twice_their_bytes_back() {
    for world in WORLDS {
        let mut number = 0;
        for method in METHODS {
            for uri in URIS {
                for (place, extra) in EXTRA.iter().enumerate() {
                    number += 1;
                    let (via, end) = (VIAS[number % VIAS.len()], ENDS[(number / 7 + place) % ENDS.len()]);
                    let text = format!("{method} {uri} SIP/2.0\r\n{via}{end}CSeq:1 {method}\r\n{extra}\r\n");
                    assert_bounded(&mut world(), &text);
                }
            }
        }
    }
}

proptest! {
    /// As long as phones write them or shorter, once or repeated. Only the server's own responses count, but all of
    /// them.
    #[test]
    fn no_datagram_gets_more_than_twice_its_bytes(
        world in 0..WORLDS.len(), method in 0..METHODS.len(), uri in 0..URIS.len(), via in 0..VIAS.len(), end in 0..ENDS.len(),
        extra in prop::collection::vec(0..EXTRA.len(), 0..3), padding in 0..600_usize, body in 0..300_usize,
        cut in prop::option::of(0..400_usize), repeats in 0..3_usize,
    ) {
        let (method, uri) = (METHODS[method], URIS[uri]);
        let extra: String = extra.into_iter().map(|line| EXTRA[line]).collect();
        let padding = if padding < 5 { String::new() } else { format!("X:{}\r\n", "p".repeat(padding)) };
        let mut text = format!(
            "{method} {uri} SIP/2.0\r\n{}{}CSeq:1 {method}\r\n{extra}{padding}\r\n{}",
            VIAS[via], ENDS[end], "b".repeat(body)
        );
        if let Some(cut) = cut.filter(|cut| *cut < text.len()) {
            text.truncate(cut);
            text += "\r\n\r\n";
        }
        prop_assume!(strowger_message::Peek::read(text.as_bytes()).is_ok());
        let mut world = WORLDS[world]();
        let (mut answered, mut came) = (0, 0);
        for _ in 0..=repeats {
            let sent = world.input(STRANGER, &text);
            answered += sent.iter().filter(|sent| sent.status() > 0).map(|sent| sent.text.len()).sum::<usize>();
            came += text.len();
        }
        let later = world.wait(LIFE);
        answered += later.iter().filter(|(_, sent)| sent.status() > 0).map(|(_, sent)| sent.text.len()).sum::<usize>();
        prop_assert!(answered <= MAX_AMPLIFICATION * came, "{answered} bytes for {came}:\n{text}");
        world.settle();
    }
}

/// A refusal is sent once. A forwarded request gets its final response when all timers have ended, and repeats as far
/// as the byte limit allows.
#[test]
fn timers_are_counted() {
    let mut world = open();
    let asked =
        assert_bounded(&mut world, &request("INVITE", "sip:nobody@example.com", "1", "").replace(ALICE, STRANGER));
    assert_eq!(summary(&asked.sent), [format!("404 {STRANGER}")], "once, and nobody acknowledges it");
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    for (number, padding) in (1_usize..).zip([0, 400, 4_000]) {
        let body = format!("X: {}\r\n", "p".repeat(padding));
        let text = request("INVITE", "sip:bob@example.com", &format!("f{number}"), &body).replace(ALICE, STRANGER);
        let asked = assert_bounded(&mut world, &text);
        let timeouts = asked.sent.iter().filter(|sent| sent.status() == 408).count();
        assert!(timeouts >= number && timeouts <= 11, "a longer one pays for more: {:?}", summary(&asked.sent));
    }
    world.settle();
}

/// A callee's failure is forwarded and retransmitted only as often as the received bytes allow.
#[test]
fn forwarded_failures_have_limited_retransmissions() {
    for (is_trusted, most) in [(false, 3), (true, 11)] {
        let mut world = open();
        let address = STRANGER.split(':').next().and_then(|ip| ip.parse().ok()).expect("an address");
        if is_trusted {
            world.configure(|s| s.auth.trusted = vec![Network { address, prefix: 32 }]);
        }
        world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
        let text = request("INVITE", "sip:bob@example.com", "b", "").replace(ALICE, STRANGER);
        let sent = world.input(STRANGER, &text);
        assert_eq!(sent[0].status(), 100);
        let invite = find(&sent, "INVITE");
        let busy = world.respond(&invite, 486, "b", "");
        assert_eq!(busy.iter().filter(|sent| sent.status() == 486).count(), 1);
        let again = world.wait(LIFE).iter().filter(|(_, sent)| sent.status() == 486).count();
        assert!(again < most && (is_trusted || again < 3), "{again}");
        assert_eq!(is_trusted, again == 10, "{again}");
        world.settle();
    }
}

/// A short request with the branch of a long one draws no more than its own limit.
#[test]
fn a_repeat_has_its_own_limit() {
    let mut world = crowded();
    let text = |padding: usize| {
        format!(
            "REGISTER sip:example.com SIP/2.0\r\nv:SIP/2.0/UDP a;branch=z9hG4bKr\r\nf:<sip:b@example.com>;tag=1\r\n\
             t:<sip:bob@example.com>\r\ni:1\r\nCSeq:1 REGISTER\r\nX:{}\r\n\r\n",
            "p".repeat(padding)
        )
    };
    let long = assert_bounded(&mut world, &text(2_000));
    assert_eq!((long.sent[0].status(), long.sent[0].headers("Contact").count()), (200, 10));
    let mut world = crowded();
    assert_eq!(world.input(STRANGER, &text(2_000)).len(), 1);
    for _ in 0..3 {
        assert_bounded(&mut world, &text(1));
    }
    let mut world = open();
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let invite = |padding: usize| {
        format!(
            "INVITE sip:bob@example.com SIP/2.0\r\nv:SIP/2.0/UDP a;branch=z9hG4bKi\r\nf:<sip:b@example.com>;tag={0}\r\n\
             t:<sip:bob@example.com>\r\ni:1\r\nCSeq:1 INVITE\r\nX:{0}\r\n\r\n",
            "p".repeat(padding)
        )
    };
    assert_eq!(world.input(STRANGER, &invite(2_000)).len(), 2);
    let short = invite(1);
    let drawn: usize = (0..20).flat_map(|_| world.input(STRANGER, &short)).map(|sent| sent.text.len()).sum();
    assert!(drawn <= 20 * MAX_AMPLIFICATION * short.len() + MAX_AMPLIFICATION * invite(2_000).len(), "{drawn}");
}

#[test]
fn a_query_that_does_not_fit_gets_513() {
    let mut world = crowded();
    let query = request("REGISTER", "sip:example.com", "q", "").replace("Contact: <sip:alice@192.0.2.10:5060>\r\n", "");
    let sent = world.input(ALICE, &query);
    assert_eq!(sent[0].start(), "SIP/2.0 513 Answer Too Long For UDP");
    assert_eq!(world.shard.counters().amplification_limited, 1);
    // Connections have no limit.
    let mut world = crowded();
    let flow =
        Flow::on_connection(ListenerId(0), Transport::Tcp, ALICE.parse().expect("an address"), ConnId::new(0, 9, 1));
    let sent =
        world.input_by(flow, &query.replace("SIP/2.0/UDP", "SIP/2.0/TCP").replace("alice@example", "bob@example"));
    assert_eq!((sent[0].status(), sent[0].headers("Contact").count()), (200, 10), "{}", sent[0].text);
}

/// The client needs the expiry of its own contact; it has not asked for the others.
#[test]
fn a_register_lists_its_own_contacts_first() {
    let mut world = crowded();
    let contact = "<sip:bob-at-a-device-with-a-long-name-9@192.0.2.29:5060;transport=udp>";
    let text = format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {BOB2};branch=z9hG4bKagain\r\nMax-Forwards: 70\r\n\
         From: <sip:bob@example.com>;tag=r\r\nTo: <sip:bob@example.com>\r\nCall-ID: reg-192.0.2.29:5060\r\nCSeq: 2 REGISTER\r\n\
         Contact: {contact}\r\nContent-Length: 0\r\n\r\n"
    );
    let sent = world.input(BOB2, &text);
    assert_eq!(sent[0].status(), 200);
    let told: Vec<_> = sent[0].headers("Contact").collect();
    assert!(told[0].starts_with(contact) && told.len() < 10, "{told:?}");
    assert!(sent[0].text.len() <= MAX_AMPLIFICATION * text.len());
}

/// The former is a neighbour's probe, the latter a scan.
#[test]
fn usual_options_get_full_responses_and_short_ones_short_responses() {
    let mut world = open();
    let usual = request("OPTIONS", "sip:192.0.2.1", "o", "User-Agent: Balancer/1.0 (x86_64/linux)\r\nAccept: */*\r\n");
    let sent = world.input(ALICE, &usual);
    assert_eq!(sent[0].status(), 200);
    for name in ["Allow", "Accept", "Supported"] {
        assert_eq!(sent[0].headers(name).count(), 1, "{name}: {}", sent[0].text);
    }
    let short = "OPTIONS sip:192.0.2.1 SIP/2.0\r\nv:SIP/2.0/UDP a;branch=z9hG4bKs\r\nf:<sip:a@b>;tag=1\r\nt:<sip:a@b>\r\n\
                 i:1\r\nCSeq:1 OPTIONS\r\n\r\n";
    let sent = world.input(ALICE, short);
    assert_eq!((sent[0].status(), sent[0].headers("Allow").count()), (200, 0));
    assert_eq!(world.shard.transactions(), 0, "it keeps no state");
}

#[test]
fn a_redirection_names_as_many_contacts_as_fit() {
    let mut world = open();
    let sent = world.input(ALICE, &request("INVITE", "sip:1@example.com", "r", ""));
    let told = sent[0].headers("Contact").count();
    assert!(sent[0].status() == 302 && (1..9).contains(&told), "{told}");
    assert!(sent[0].header("Contact").expect("one").contains("name-0@"), "the first is the best");
    let long = format!("X: {}\r\n", "p".repeat(800));
    let sent = world.input(ALICE, &request("INVITE", "sip:1@example.com", "l", &long));
    assert_eq!((finals(&sent), sent[0].headers("Contact").count()), (vec![302], 9));
}

//= rfc3261#16.5:no-target
//= rfc3261#16.5:480
/// No state remains that an attacker could exhaust.
#[test]
fn refusals_to_strangers_are_stateless_and_their_acks_absorbed() {
    let mut world = open();
    for (uri, status) in [
        ("sip:nobody@example.com", 404),
        ("sip:alice@example.com", 480),
        ("sip:1@example.com", 302),
        ("sip:2@example.com", 603),
        ("sip:3@example.com", 500),
        ("sip:4@example.com", 503),
        ("sip:x@192.0.2.99", 404),
    ] {
        let text = request("INVITE", uri, "s", "");
        let sent = world.input(ALICE, &text);
        assert_eq!(finals(&sent), [status], "{uri}");
        assert_eq!((world.shard.transactions(), world.shard.poll_timeout()), (0, None), "{uri}");
        let again = world.input(ALICE, &text);
        assert_eq!(again[0].text, sent[0].text, "the same once more");
        let to = sent[0].header("To").expect("has a To");
        let ack = text.replace("INVITE", "ACK").replace("To: <sip:bob@example.com>", &format!("To: {to}"));
        assert!(world.input(ALICE, &ack).is_empty(), "{uri}");
        let cancel = world.input(ALICE, &text.replace("INVITE", "CANCEL"));
        assert_eq!(finals(&cancel), [481], "there is nothing to be cancelled");
    }
    assert_eq!(world.shard.transactions(), 0);
    assert_eq!(world.shard.counters().malformed, 0);
}
