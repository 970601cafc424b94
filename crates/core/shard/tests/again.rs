//! The server's own responses to retransmissions over UDP, which are mostly rebuilt from the retransmitted request.

mod support;

use std::time::Duration;

use proptest::prelude::*;
use strowger_foundation::{Flow, ListenerId, Transport};
use strowger_shard::Snapshot;
use support::{ALICE, BOB, BOB2, SERVER, SentMessage, World, summary};

/// A request, given by method, Request-URI, To and further lines, and its response.
struct Case {
    world: fn() -> World,
    request: (&'static str, &'static str, &'static str, &'static str),
    answer: &'static str,
}

fn open() -> World {
    World::new(|_| {})
}

fn strict() -> World {
    World::new(|snapshot: &mut Snapshot| snapshot.auth.require = vec![(*b"REGISTER").into()])
}

fn loading() -> World {
    World::loading(|_| {})
}

/// A REGISTER for `to`.
const fn register_at(world: fn() -> World, to: &'static str, rest: &'static str, answer: &'static str) -> Case {
    Case { world, request: ("REGISTER", "sip:example.com", to, rest), answer }
}

/// A REGISTER for a user.
const fn registers(world: fn() -> World, rest: &'static str, answer: &'static str) -> Case {
    register_at(world, "bob@example.com", rest, answer)
}

/// A request to the server itself.
const fn asks(method: &'static str, rest: &'static str, answer: &'static str) -> Case {
    Case { world: open, request: (method, "sip:192.0.2.1", "bob@example.com", rest), answer }
}

const CASES: [Case; 9] = [
    registers(
        open,
        "Contact: <sip:desk@192.0.2.20>, <sip:soft@192.0.2.20:5080>;q=0.5\r\nPath: <sip:edge.example.net;lr>\r\n\
         Supported: path, outbound\r\nTimestamp: 54.21\r\n",
        "200 OK",
    ),
    registers(open, "m: *\r\nExpires: 0\r\n", "200 OK"),
    registers(strict, "m: <sip:desk@192.0.2.20>\r\n", "401 Unauthorized"),
    register_at(open, "bob@example.net", "", "404 Domain Not Served Here"),
    registers(open, "m: <sip:desk@192.0.2.20>\r\nExpires: 1\r\n", "423 Interval Too Brief"),
    registers(loading, "m: <sip:desk@192.0.2.20>\r\n", "503 Registrations Are Being Loaded"),
    registers(open, "Require: a, path,\r\n  b\r\n", "420 Bad Extension"),
    asks("OPTIONS", "Timestamp: 1\r\n", "200 OK"),
    asks("MESSAGE", "l: 4\r\n\r\nbody", "405 Method Not Allowed"),
];

/// The lines that are copied, in different spellings.
#[derive(Clone, Debug)]
struct Spelling {
    via: String,
    from: &'static str,
    to: (&'static str, &'static str),
    call_id: &'static str,
    cseq: &'static str,
    order: usize,
}

impl Spelling {
    fn text(&self, (method, uri, to, rest): (&str, &str, &str, &str)) -> String {
        let Self { via, from, to: (before, behind), call_id, cseq, order } = self;
        let mut lines = [
            via.clone(),
            (*from).to_owned(),
            format!("{before}<sip:{to}>{behind}"),
            (*call_id).to_owned(),
            format!("{cseq}{method}"),
            "Max-Forwards: 70".to_owned(),
        ];
        let count = lines.len();
        lines.rotate_left(order % count);
        format!("{method} {uri} SIP/2.0\r\n{}\r\n{rest}\r\n", lines.join("\r\n"))
    }
}

fn spelling() -> impl Strategy<Value = Spelling> {
    let name = prop::sample::select(vec!["Via: ", "v: ", "VIA:", "v :\t", "Via:\r\n "]);
    let sent_by = prop::sample::select(vec!["192.0.2.20", "192.0.2.20:5070", "phone.invalid", "[2001:db8::7]:5060"]);
    let params = prop::sample::select(vec![
        "",
        ";rport",
        ";received=192.0.2.99",
        ";rport;received=198.51.100.7;x=\"a,b\"",
        " ; rport ; ttl=1",
        ";\r\n rport",
    ]);
    let behind = prop::collection::vec(
        prop::sample::select(vec![
            ", SIP/2.0/UDP other;branch=z9hG4bKo",
            " ,\r\n\tSIP/2.0/TCP [2001:db8::9]",
            "\r\nv: SIP/2.0/UDP 198.51.100.1:5080;rport=1;received=192.0.2.4",
            "\r\nRoute: <sip:192.0.2.1;lr>\r\nVia: SIP/2.0/TCP a",
        ]),
        0..3,
    );
    let via = (name, sent_by, params, any::<bool>(), behind).prop_map(|(name, sent_by, params, by_branch, behind)| {
        let branch = if by_branch { ";branch=z9hG4bK-again" } else { ";branch=1" };
        format!("{name}SIP/2.0/UDP {sent_by}{branch}{params}{}", behind.concat())
    });
    let from = prop::sample::select(vec![
        "From: <sip:bob@example.com>;tag=r",
        "f:\"Bob, B.\" <sip:bob@example.com>;tag=r",
        "FROM :  sip:bob@example.com;tag=r",
    ]);
    let to = prop::sample::select(vec![
        ("To: ", ""),
        ("t:", ""),
        ("To: \"B\" ", ";tag=ours"),
        ("TO:\r\n ", " ;x=1"),
        ("t :Bob ", ";Tag=ours"),
    ]);
    let call_id = prop::sample::select(vec!["Call-ID: one@192.0.2.20", "i:one", "CALL-ID :\r\n one"]);
    let cseq = prop::sample::select(vec!["CSeq: 7 ", "CSeq:007\t", "cseq: 2147483647  ", "CSeq: 7\r\n "]);
    (via, from, to, call_id, cseq, 0..6_usize).prop_map(|(via, from, to, call_id, cseq, order)| Spelling {
        via,
        from,
        to,
        call_id,
        cseq,
        order,
    })
}

fn only(mut sent: Vec<SentMessage>) -> SentMessage {
    assert_eq!(sent.len(), 1, "{:?}", summary(&sent));
    sent.remove(0)
}

proptest! {
    //= rfc3261#17.2.2:final-again
    #[test]
    fn retransmissions_get_identical_responses(
        spelling in spelling(),
        case in 0..CASES.len(),
        from in prop::sample::select(vec![BOB, "192.0.2.20:40000", "198.51.100.7:5060"]),
        waits in prop::collection::vec(1..8_000_u64, 1..4),
    ) {
        let Case { world, request, answer } = &CASES[case];
        let (mut world, text) = (world(), spelling.text(*request));
        let first = only(world.input(from, &text));
        prop_assert_eq!(first.start().strip_prefix("SIP/2.0 "), Some(*answer), "{}", text);
        let before = world.shard.counters();
        for (number, wait) in (1..).zip(waits) {
            world.wait(Duration::from_millis(wait));
            let again = only(world.input(from, &text));
            // The nonce of a challenge changes after some seconds.
            let rest = |sent: &SentMessage| sent.text.lines().filter(|line| !line.contains("nonce=")).collect::<Vec<_>>().join("\n");
            prop_assert_eq!((rest(&again), again.flow), (rest(&first), first.flow));
            let counters = world.shard.counters();
            if world.shard.transactions() == 0 {
                let done = |counters: strowger_shard::Counters| counters.refused + counters.challenged;
                prop_assert_eq!((counters.retransmissions, counters.registered), (0, 0), "nothing was kept");
                prop_assert!(done(before) == 0 || done(counters) == number + 1, "so it is refused anew");
                continue;
            }
            prop_assert_eq!(counters.retransmissions, number);
            let done = |counters: strowger_shard::Counters| (counters.registered, counters.refused, counters.challenged);
            prop_assert_eq!(done(counters), done(before), "it is not done again");
        }
        world.settle();
    }
}

fn register(branch: &str, call_id: &str, cseq: &str, contact: &str) -> String {
    format!(
        "REGISTER sip:example.com SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bK{branch};rport\r\nMax-Forwards: 70\r\n\
         From: <sip:bob@example.com>;tag=r\r\nTo: <sip:bob@example.com>\r\nCall-ID: {call_id}\r\nCSeq: {cseq} REGISTER\r\n\
         Contact: <{contact}>\r\nContent-Length: 0\r\n\r\n"
    )
}

/// Its client would take the first response for its own.
#[test]
fn another_request_of_the_same_branch_is_refused() {
    let mut world = open();
    let text = register("1", "one", "1", "sip:desk@192.0.2.20");
    let first = only(world.input(BOB, &text));
    assert_eq!(first.status(), 200);
    let counted = |world: &World| {
        let counters = world.shard.counters();
        (counters.registered, counters.refused, counters.retransmissions)
    };
    let others = [("one", "2"), ("two", "1"), ("one", "4294967297"), ("one", "x"), ("one", "")];
    for (number, (call_id, cseq)) in (1..).zip(others) {
        let refused = only(world.input(BOB, &register("1", call_id, cseq, "sip:soft@192.0.2.20")));
        assert_eq!(refused.start(), "SIP/2.0 400 Branch Used Before");
        assert!(refused.headers("Contact").next().is_none(), "{}", refused.text);
        assert_eq!(refused.header("CSeq"), Some(format!("{cseq} REGISTER").trim()));
        assert_eq!(counted(&world), (1, number, 0));
    }
    assert_eq!(world.shard.transactions(), 1, "it is refused without state");
    let again = only(world.input(BOB, &text));
    assert_eq!((&again.text, counted(&world)), (&first.text, (1, 5, 1)), "the first is remembered all the same");
    // After Timer J the transaction is gone.
    world.wait(Duration::from_secs(32));
    assert_eq!(only(world.input(BOB, &register("1", "one", "2", "sip:soft@192.0.2.20"))).status(), 200);
}

//= rfc3261#8.2.6.2:same-to-tag
/// A retransmission from another address is answered there: a response to the first address would not arrive.
#[test]
fn a_response_goes_to_the_source_of_its_request() {
    let mut world = open();
    let text = register("1", "one", "1", "sip:desk@192.0.2.20");
    let first = only(world.input(BOB, &text));
    let moved = only(world.input(BOB2, &text));
    assert_eq!((moved.to.to_string().as_str(), moved.status()), (BOB2, 200));
    let received = |sent: &SentMessage| {
        sent.header("Via").and_then(|via| via.split_once(";received=")).map(|(_, ip)| ip.to_owned())
    };
    assert_eq!([&first, &moved].map(received), ["192.0.2.20", "192.0.2.21"].map(|ip| Some(ip.to_owned())));
    assert_eq!(moved.header("To"), first.header("To"));
}

/// Such a response cannot be rebuilt.
#[test]
fn forwarded_responses_are_kept_whole() {
    let mut world = open();
    world.register("bob", BOB, &format!("<sip:bob@{BOB}>"));
    let text = support::request("MESSAGE", "sip:bob@example.com", "m", "");
    let forwarded = support::find(&world.input(ALICE, &text), "MESSAGE");
    let first = only(world.respond(&forwarded, 200, "b", "X-Other: 1\r\n"));
    world.wait(Duration::from_secs(3));
    // Another source port still matches the same transaction.
    let again = only(
        world.input_by(Flow::new(ListenerId(0), Transport::Udp, "192.0.2.10:9".parse().expect("an address")), &text),
    );
    assert_eq!((&again.text, again.flow), (&first.text, first.flow));
    assert!(first.text.contains("X-Other: 1\r\n") && !first.text.contains(SERVER));
}
