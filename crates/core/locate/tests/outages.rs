//! The peers that failed lately, in virtual time.

use std::time::Duration;

use strowger_foundation::{Timestamp, Transport};
use strowger_locate::{Hop, MAX_OUTAGES, Outages};

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
    outages.mark(at(10), dead, FOR);
    assert!(outages.is_out(at(39), &dead));
    assert!(!outages.is_out(at(39), &same_by_tcp));
    assert!(!outages.is_out(at(40), &dead));
}

#[test]
fn a_peer_that_answers_is_back() {
    let outages = Outages::new(1);
    outages.mark(at(10), hop(Transport::Udp, 1), FOR);
    outages.mark(at(10), hop(Transport::Udp, 2), FOR);
    outages.clear(&hop(Transport::Udp, 1));
    assert!(!outages.is_out(at(11), &hop(Transport::Udp, 1)));
    assert!(outages.is_out(at(11), &hop(Transport::Udp, 2)));
    outages.clear(&hop(Transport::Udp, 2));
    assert!(!outages.is_out(at(11), &hop(Transport::Udp, 2)));
    outages.mark(at(12), hop(Transport::Udp, 2), FOR);
    assert!(outages.is_out(at(13), &hop(Transport::Udp, 2)));
}

#[test]
fn their_number_is_bounded() {
    let outages = Outages::new(1);
    for number in 0..MAX_OUTAGES + 10 {
        outages.mark(at(0), hop(Transport::Udp, number), FOR);
    }
    assert_eq!((outages.count(at(1)), outages.overflow()), (MAX_OUTAGES, 10));
    // One that is out already can be marked again, and what is over makes room.
    outages.mark(at(20), hop(Transport::Udp, 0), FOR);
    outages.mark(at(31), hop(Transport::Udp, MAX_OUTAGES), FOR);
    assert_eq!((outages.count(at(31)), outages.overflow()), (2, 10));
    assert!(outages.is_out(at(31), &hop(Transport::Udp, MAX_OUTAGES)));
}
