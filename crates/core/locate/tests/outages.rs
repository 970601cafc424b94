//! The peers that failed lately, in virtual time.

use std::time::Duration;

use strowger_foundation::{Timestamp, Transport};
use strowger_locate::{Cause, Hop, MAX_OUTAGES, Outage, Outages, REMEMBERED_FOR};

fn hop(transport: Transport, number: usize) -> Hop {
    let [.., high, low] = u32::try_from(number).unwrap().to_be_bytes();
    Hop { transport, address: ([192, 0, high, low], 5060).into() }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

const FOR: Duration = Duration::from_secs(30);

#[test]
fn a_peer_is_out_for_its_time() {
    let outages = Outages::new(1);
    let (dead, same_by_tcp) = (hop(Transport::Udp, 1), hop(Transport::Tcp, 1));
    assert!(!outages.is_out(at(0), &dead));
    outages.mark(at(10), dead, FOR, Cause::Silent);
    assert!(outages.is_out(at(39), &dead));
    assert!(!outages.is_out(at(39), &same_by_tcp));
    assert!(!outages.is_out(at(40), &dead));
}

#[test]
fn a_peer_that_answers_is_back() {
    let outages = Outages::new(1);
    outages.mark(at(10), hop(Transport::Udp, 1), FOR, Cause::Silent);
    outages.mark(at(10), hop(Transport::Udp, 2), FOR, Cause::Silent);
    outages.clear(at(11), &hop(Transport::Udp, 1));
    assert!(!outages.is_out(at(11), &hop(Transport::Udp, 1)));
    assert!(outages.is_out(at(11), &hop(Transport::Udp, 2)));
    outages.clear(at(11), &hop(Transport::Udp, 2));
    assert!(!outages.is_out(at(11), &hop(Transport::Udp, 2)));
    outages.mark(at(12), hop(Transport::Udp, 2), FOR, Cause::Silent);
    assert!(outages.is_out(at(13), &hop(Transport::Udp, 2)));
}

#[test]
fn their_number_is_bounded() {
    let outages = Outages::new(1);
    for number in 0..MAX_OUTAGES + 10 {
        outages.mark(at(0), hop(Transport::Udp, number), FOR, Cause::Silent);
    }
    assert_eq!((outages.count(at(1)), outages.overflow()), (MAX_OUTAGES, 10));
    // One that is out already can be marked again, and what is over makes room.
    outages.mark(at(20), hop(Transport::Udp, 0), FOR, Cause::Silent);
    outages.mark(at(31), hop(Transport::Udp, MAX_OUTAGES), FOR, Cause::Silent);
    assert_eq!((outages.count(at(31)), outages.overflow()), (2, 10));
    assert!(outages.is_out(at(31), &hop(Transport::Udp, MAX_OUTAGES)));
}

#[test]
fn each_change_is_news_once() {
    let outages = Outages::new(1);
    let dead = hop(Transport::Udp, 1);
    assert!(outages.mark(at(10), dead, FOR, Cause::Silent));
    assert!(!outages.mark(at(12), dead, FOR, Cause::Refused), "another shard finds the same");
    assert!(!outages.mark(at(100), dead, FOR, Cause::Unreachable), "it was tried again, and is as it was");
    let mut known = Vec::new();
    outages.for_each(at(140), |hop, outage| known.push((*hop, *outage)));
    let outage = Outage { since: at(10), until: at(130), cause: Cause::Unreachable };
    assert_eq!(known, [(dead, outage)], "also when its time is over and nobody has tried it");
    assert_eq!((outages.clear(at(150), &dead), outages.clear(at(150), &dead)), (Some(outage), None));
    outages.for_each(at(150), |hop, _| panic!("{hop:?}"));
    assert!(outages.mark(at(160), dead, FOR, Cause::Silent));
}

#[test]
fn what_nobody_has_tried_for_long_is_forgotten() {
    let outages = Outages::new(1);
    let dead = hop(Transport::Udp, 1);
    let end = at(10) + FOR + REMEMBERED_FOR;
    outages.mark(at(10), dead, FOR, Cause::Silent);
    assert!(!outages.mark(end, dead, Duration::ZERO, Cause::Silent));
    let later = end + REMEMBERED_FOR + Duration::from_secs(1);
    outages.for_each(later, |hop, _| panic!("{hop:?}"));
    assert_eq!(outages.clear(later, &dead), None, "nobody was told of it");
    outages.mark(at(10), dead, FOR, Cause::Silent);
    assert!(outages.mark(later, dead, FOR, Cause::Silent), "it begins anew");
}

/// Whether a peer is known is asked for each answer of each peer, so it is looked up without the lock; the answer must be that of
/// a plain table, whatever comes and goes.
#[test]
fn what_is_known_of_a_peer_is_found_however_many_come_and_go() {
    let outages = Outages::new(1);
    let mut known = std::collections::BTreeSet::new();
    let mut number: usize = 1;
    for step in 0..20_000 {
        number = (number * 75 + 74) % 65_537;
        let (peer, is_back) = (number % 700, step % 3 == 0);
        if is_back {
            assert_eq!(outages.clear(at(1), &hop(Transport::Udp, peer)).is_some(), known.remove(&peer), "step {step}");
        } else {
            let is_news = outages.mark(at(0), hop(Transport::Udp, peer), FOR, Cause::Silent);
            assert_eq!(is_news, known.insert(peer), "step {step}");
        }
        let other = (number * 31) % 700;
        assert_eq!(outages.is_out(at(1), &hop(Transport::Udp, other)), known.contains(&other), "step {step}");
        assert!(!outages.is_out(at(1), &hop(Transport::Tcp, other)));
    }
    assert_eq!(outages.count(at(1)), known.len());
}
