//! In steady state no packet costs an allocation.

mod common;

use common::End;
use strowger_allocations::{Counting, allocations};
use strowger_net::{Clock, Flush, RECV_BATCH, Strand};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One round: a batch there, and each datagram back to where it came from.
fn round(clock: &Clock, here: &mut End, there: &mut End) {
    for _ in 0..RECV_BATCH {
        let peer = there.addr();
        here.commit(peer, &[b'x'; 900]);
    }
    assert_eq!(here.send(), Flush::Done);
    there.socket.recv(&mut there.inbox).expect("a sound socket");
    let pair = clock.pair();
    for datagram in there.inbox.iter() {
        assert!(pair.arrival(datagram.arrival) <= pair.monotonic);
        there.outbox.next_slot().extend_from_slice(datagram.bytes);
        there.outbox.commit(datagram.peer, Strand::ALL);
    }
    assert_eq!(there.send(), Flush::Done);
    here.socket.recv(&mut here.inbox).expect("a sound socket");
}

#[test]
fn a_warm_round_trip_allocates_nothing() {
    let clock = Clock::start();
    let (mut here, mut there) = (End::bind("127.0.0.1"), End::bind("127.0.0.1"));
    round(&clock, &mut here, &mut there);
    let before = allocations();
    for _ in 0..100 {
        round(&clock, &mut here, &mut there);
    }
    assert_eq!(allocations() - before, 0);
    assert!(there.socket.counters().received > 100, "the rounds did carry datagrams");
}
