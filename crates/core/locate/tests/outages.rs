//! Outages in virtual time.

use std::time::Duration;

use strowger_foundation::{Timestamp, Transport};
use strowger_locate::{Cause, DetectedBy, Hop, MAX_OUTAGES, Outage, OutageChange, Outages, REMEMBERED_FOR};

fn hop(transport: Transport, number: usize) -> Hop {
    let [.., high, low] = u32::try_from(number).unwrap().to_be_bytes();
    Hop::new(transport, ([192, 0, high, low], 5060).into())
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

const FOR: Duration = Duration::from_secs(30);

#[test]
fn an_outage_lasts_its_time() {
    let outages = Outages::new(1);
    let (dead, same_by_tcp) = (hop(Transport::Udp, 1), hop(Transport::Tcp, 1));
    assert!(!outages.is_out(at(0), &dead));
    outages.mark_failed(at(10), dead, FOR, Cause::Silent, DetectedBy::Call);
    assert!(outages.is_out(at(39), &dead));
    assert!(!outages.is_out(at(39), &same_by_tcp));
    assert!(!outages.is_out(at(40), &dead));
}

#[test]
fn an_answer_ends_an_outage() {
    let outages = Outages::new(1);
    outages.mark_failed(at(10), hop(Transport::Udp, 1), FOR, Cause::Silent, DetectedBy::Call);
    outages.mark_failed(at(10), hop(Transport::Udp, 2), FOR, Cause::Silent, DetectedBy::Call);
    outages.clear(at(11), &hop(Transport::Udp, 1));
    assert!(!outages.is_out(at(11), &hop(Transport::Udp, 1)));
    assert!(outages.is_out(at(11), &hop(Transport::Udp, 2)));
    outages.clear(at(11), &hop(Transport::Udp, 2));
    assert!(!outages.is_out(at(11), &hop(Transport::Udp, 2)));
    outages.mark_failed(at(12), hop(Transport::Udp, 2), FOR, Cause::Silent, DetectedBy::Call);
    assert!(outages.is_out(at(13), &hop(Transport::Udp, 2)));
}

#[test]
fn outages_are_bounded() {
    let outages = Outages::new(1);
    for number in 0..MAX_OUTAGES + 10 {
        outages.mark_failed(at(0), hop(Transport::Udp, number), FOR, Cause::Silent, DetectedBy::Call);
    }
    assert_eq!((outages.count(at(1)), outages.overflow()), (MAX_OUTAGES, 10));
    // A failed peer can be marked again, and expired outages make room.
    outages.mark_failed(at(20), hop(Transport::Udp, 0), FOR, Cause::Silent, DetectedBy::Call);
    outages.mark_failed(at(31), hop(Transport::Udp, MAX_OUTAGES), FOR, Cause::Silent, DetectedBy::Call);
    assert_eq!((outages.count(at(31)), outages.overflow()), (2, 10));
    assert!(outages.is_out(at(31), &hop(Transport::Udp, MAX_OUTAGES)));
    outages.for_each(at(31), |hop, outage| assert!(at(31) < outage.until, "{hop:?}"));
    assert_eq!((1..MAX_OUTAGES).find(|number| outages.clear(at(31), &hop(Transport::Udp, *number)).is_some()), None);
    assert!(outages.is_out(at(31), &hop(Transport::Udp, MAX_OUTAGES)), "no mark of it went with the others");
}

#[test]
fn each_change_reports_once() {
    let outages = Outages::new(1);
    let dead = hop(Transport::Udp, 1);
    let mark = |second, cause| outages.mark_failed(at(second), dead, FOR, cause, DetectedBy::Call);
    assert_eq!(mark(10, Cause::Silent), OutageChange::Failed);
    assert_eq!(mark(11, Cause::Silent), OutageChange::Unchanged, "another shard finds the same");
    assert_eq!(mark(12, Cause::Refused), OutageChange::Unchanged);
    assert_eq!(mark(100, Cause::Unreachable), OutageChange::Dead, "it was tried again in vain, which was told of");
    let mut known = Vec::new();
    outages.for_each(at(140), |hop, outage| known.push((*hop, *outage)));
    let outage =
        Outage { since: at(10), until: at(130), cause: Cause::Unreachable, dead_until: Some(at(130)), back_off: None };
    assert_eq!(known, [(dead, outage)], "also when its time is over and nobody has tried it");
    assert_eq!((outages.clear(at(150), &dead), outages.clear(at(150), &dead)), (Some(outage), None));
    outages.for_each(at(150), |hop, _| panic!("{hop:?}"));
    assert_eq!(mark(160, Cause::Silent), OutageChange::Failed);
}

#[test]
fn silence_after_a_refusal_is_reported_once() {
    let outages = Outages::new(1);
    let peer = hop(Transport::Udp, 1);
    let mark = |second, cause| outages.mark_failed(at(second), peer, FOR, cause, DetectedBy::Call);
    assert_eq!(mark(10, Cause::Refused), OutageChange::Failed);
    assert_eq!((mark(11, Cause::Refused), outages.dead_since(at(11), &peer)), (OutageChange::Unchanged, None));
    assert_eq!((mark(12, Cause::Silent), outages.dead_since(at(12), &peer)), (OutageChange::Failed, Some(at(10))));
    assert_eq!(
        (mark(13, Cause::Refused), outages.dead_since(at(13), &peer)),
        (OutageChange::Unchanged, None),
        "it is there"
    );
    assert_eq!(
        (mark(14, Cause::Silent), outages.dead_since(at(14), &peer)),
        (OutageChange::Dead, Some(at(10))),
        "not again"
    );
}

#[test]
fn a_requested_back_off_is_respected() {
    let outages = Outages::new(1);
    let peer = hop(Transport::Udp, 1);
    let hold = |second| outages.set_back_off(at(second), peer, Duration::from_secs(120), DetectedBy::Call);
    assert_eq!(hold(10), OutageChange::Failed);
    // It still answers requests of existing calls, which says nothing about new ones.
    assert_eq!((outages.clear(at(11), &peer), outages.revive(at(12), &peer)), (None, None));
    assert_eq!(outages.clear_by_call(at(13), &peer, at(9)), None, "that call began before");
    assert_eq!(outages.mark_failed(at(14), peer, FOR, Cause::Refused, DetectedBy::Call), OutageChange::Unchanged);
    assert!(outages.is_out(at(129), &peer), "a 503 without a time shortens none");
    assert!(!outages.is_out(at(130), &peer));
    assert!(outages.clear(at(131), &peer).is_some(), "then it is as any other");

    hold(200);
    assert!(outages.clear_by_call(at(220), &peer, at(215)).is_some(), "it takes calls again");
    assert!(!outages.is_out(at(221), &peer));
    outages.mark_failed(at(300), peer, FOR, Cause::Refused, DetectedBy::Call);
    assert!(outages.clear(at(301), &peer).is_some(), "who has said nothing of a time");
}

/// An overloaded peer refuses and drops at the same time.
#[test]
fn silence_neither_ends_nor_extends_a_requested_back_off() {
    let outages = Outages::new(1);
    let peer = hop(Transport::Udp, 1);
    let silent = |second| outages.mark_failed(at(second), peer, FOR, Cause::Silent, DetectedBy::Call);
    outages.set_back_off(at(10), peer, Duration::from_secs(300), DetectedBy::Call);
    silent(11);
    assert_eq!(outages.dead_since(at(11), &peer), Some(at(10)));
    assert_eq!((outages.revive(at(12), &peer), outages.clear(at(13), &peer)), (None, None));
    assert!(
        outages.is_out(at(309), &peer) && outages.dead_since(at(12), &peer).is_none(),
        "it is there, and left alone"
    );
    outages.clear_by_call(at(14), &peer, at(9));
    assert_eq!(outages.back_off_until(at(14), &peer), Some(at(310)));
    assert!(!outages.is_out(at(310), &peer));

    outages.set_back_off(at(400), peer, Duration::from_secs(5), DetectedBy::Call);
    silent(401);
    assert_eq!(outages.back_off_until(at(404), &peer), Some(at(405)));
    assert_eq!(outages.back_off_until(at(406), &peer), None);
    assert!(outages.is_out(at(430), &peer) && !outages.is_out(at(431), &peer), "for its silence alone");
    assert!(outages.revive(at(407), &peer).is_some() && !outages.is_out(at(407), &peer));
}

#[test]
fn a_requested_back_off_ends_on_time_and_the_last_one_counts() {
    let outages = Outages::new(1);
    let peer = hop(Transport::Udp, 1);
    let hold = |second, time| outages.set_back_off(at(second), peer, Duration::from_secs(time), DetectedBy::Call);
    let refused = |second| outages.mark_failed(at(second), peer, FOR, Cause::Refused, DetectedBy::Call);
    // Avoided longer than the requested back-off, by our own decision, which any answer ends.
    hold(10, 2);
    refused(11);
    assert!(outages.clear(at(11), &peer).is_none() && outages.is_out(at(11), &peer), "not before its time");
    assert!(!outages.is_out(at(12), &peer), "that had ended all else");
    refused(13);
    assert!(outages.is_out(at(14), &peer) && outages.clear(at(14), &peer).is_some() && !outages.is_out(at(14), &peer));

    hold(20, 2);
    refused(21);
    assert!(outages.is_out(at(23), &peer) && outages.back_off_until(at(23), &peer).is_none());
    assert!(outages.clear(at(23), &peer).is_some() && !outages.is_out(at(23), &peer));

    hold(100, 300);
    hold(110, 5);
    assert!(outages.is_out(at(114), &peer) && !outages.is_out(at(115), &peer), "it has thought better of it");
    hold(120, 5);
    hold(121, 300);
    assert!(outages.clear(at(130), &peer).is_none() && outages.is_out(at(420), &peer));
    assert_eq!(outages.clear_by_call(at(131), &peer, at(121)), None, "that call had begun before the last word");
    assert!(outages.clear_by_call(at(132), &peer, at(122)).is_some() && !outages.is_out(at(132), &peer));
}

#[test]
fn only_outages_found_by_calls_block_calls() {
    let outages = Outages::new(1);
    let peer = hop(Transport::Udp, 1);
    let mark = |second, finder| outages.mark_failed(at(second), peer, FOR, Cause::Silent, finder);
    let admits = |second| outages.admits(at(second), [peer].into_iter(), Duration::from_secs(60));
    assert_eq!(mark(0, DetectedBy::Other), OutageChange::Failed);
    assert!(outages.is_out(at(1), &peer) && outages.dead_since(at(1), &peer).is_none());
    assert!(admits(1) && admits(1), "it may drop nothing but messages");
    assert_eq!(mark(2, DetectedBy::Call), OutageChange::Dead, "that it fails was told of");
    assert_eq!(mark(20, DetectedBy::Other), OutageChange::Unchanged);
    assert!(admits(21) && !admits(22), "one looks");
    assert!(outages.is_out(at(40), &peer) && admits(40) && admits(40), "no message makes it last longer");
}

#[test]
fn each_set_retries_on_its_own_despite_shared_hops() {
    let outages = Outages::new(1);
    let [one, two, three] = [1, 2, 3].map(|number| hop(Transport::Udp, number));
    for peer in [one, two, three] {
        outages.mark_failed(at(0), peer, FOR, Cause::Silent, DetectedBy::Call);
    }
    let admits = |second, hops: &[Hop]| outages.admits(at(second), hops.iter().copied(), Duration::from_secs(5));
    assert!(admits(1, &[one, two]) && admits(1, &[one, three]) && admits(1, &[one]));
    assert!(!admits(2, &[two, one]), "in whatever order they are tried");
    assert!(admits(6, &[two, one]) && !admits(6, &[one, two]));
    outages.clear(at(6), &three);
    assert!(admits(7, &[one, three]) && admits(7, &[three, one]));
}

#[test]
fn a_dead_set_is_reported_once_until_a_new_failure() {
    let outages = Outages::new(1);
    assert!(outages.should_report(&"pstn", at(10)) && !outages.should_report(&"pstn", at(10)));
    assert!(outages.should_report(&"other", at(10)));
    assert!(outages.should_report(&"pstn", at(20)));
}

#[test]
fn long_untried_outages_are_forgotten() {
    let outages = Outages::new(1);
    let dead = hop(Transport::Udp, 1);
    let end = at(10) + FOR + REMEMBERED_FOR;
    outages.mark_failed(at(10), dead, FOR, Cause::Silent, DetectedBy::Call);
    assert_eq!(
        outages.mark_failed(end, dead, Duration::ZERO, Cause::Silent, DetectedBy::Call),
        OutageChange::Unchanged
    );
    let later = end + REMEMBERED_FOR + Duration::from_secs(1);
    outages.for_each(later, |hop, _| panic!("{hop:?}"));
    assert_eq!(outages.clear(later, &dead), None, "nobody was told of it");
    outages.mark_failed(at(10), dead, FOR, Cause::Silent, DetectedBy::Call);
    assert_eq!(
        outages.mark_failed(later, dead, FOR, Cause::Silent, DetectedBy::Call),
        OutageChange::Failed,
        "it begins anew"
    );
}

/// The check runs for each response of each peer, without the lock. It must agree with a plain table however peers
/// are added and removed.
#[test]
fn outages_match_a_plain_table_as_peers_come_and_go() {
    let outages = Outages::new(1);
    let mut known = std::collections::BTreeSet::new();
    let mut number: usize = 1;
    for step in 0..20_000 {
        number = (number * 75 + 74) % 65_537;
        let (peer, is_back) = (number % 700, step % 3 == 0);
        if is_back {
            assert_eq!(outages.clear(at(1), &hop(Transport::Udp, peer)).is_some(), known.remove(&peer), "step {step}");
        } else {
            let is_news = outages.mark_failed(at(0), hop(Transport::Udp, peer), FOR, Cause::Silent, DetectedBy::Call);
            assert_eq!(is_news == OutageChange::Failed, known.insert(peer), "step {step}");
        }
        let other = (number * 31) % 700;
        assert_eq!(outages.is_out(at(1), &hop(Transport::Udp, other)), known.contains(&other), "step {step}");
        assert!(!outages.is_out(at(1), &hop(Transport::Tcp, other)));
    }
    assert_eq!(outages.count(at(1)), known.len());
}
