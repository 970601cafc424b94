//! In steady state, no packet costs an allocation, whether sent alone or segmented.

mod common;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use common::End;
use strowger_allocations::{CountingAllocator, allocations_of};
use strowger_net::{BufferSizes, Clock, Flush, OrderingKey, RECV_BATCH, UdpSocket};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Runs one round: a batch in two alternating lengths, which must be grouped for segmentation, and each datagram
/// echoed back.
fn round(clock: &Clock, here: &mut End, there: &mut End) {
    for number in 0..RECV_BATCH {
        here.outbox.next_slot().resize(900 + number % 2, b'x');
        here.outbox.commit(there.addr(), OrderingKey::new(number as u16 % 2));
    }
    here.socket.stamp_next(clock.pair().real, 0);
    assert_eq!(here.send(), Flush::Done);
    while here.socket.poll_error().is_some() || here.socket.poll_send_stamp().is_some() {}
    there.socket.recv(&mut there.inbox).expect("a sound socket");
    let pair = clock.pair();
    for (number, datagram) in there.inbox.iter().enumerate() {
        assert!(pair.arrival(datagram.arrival) <= pair.monotonic);
        there.outbox.next_slot().extend_from_slice(datagram.bytes);
        there.outbox.commit(datagram.peer, OrderingKey::new(number as u16 % 2));
    }
    assert_eq!(there.send(), Flush::Done);
    here.socket.recv(&mut here.inbox).expect("a sound socket");
}

/// Counts allocations between warm rounds.
fn count(mut here: End, mut there: End) -> [End; 2] {
    let clock = Clock::start();
    // On an older kernel nothing is stamped.
    let _ = here.socket.enable_send_stamps();
    // Grouping swaps buffers, so over time each one gets the longer datagram.
    for _ in 0..20 {
        round(&clock, &mut here, &mut there);
    }
    let ((), count) = allocations_of(|| {
        for _ in 0..100 {
            round(&clock, &mut here, &mut there);
        }
    });
    assert_eq!(count, 0);
    assert!(there.socket.counters().received > 100, "the rounds did carry datagrams");
    [here, there]
}

#[test]
fn a_warm_round_trip_allocates_nothing() {
    for end in count(End::bind("127.0.0.1"), End::bind("127.0.0.1")) {
        assert_eq!(end.socket.counters().segmented, 0);
    }
}

#[test]
fn a_warm_segmented_round_trip_allocates_nothing() {
    let join = || {
        let mut socket =
            UdpSocket::bind(([127, 0, 0, 1], 0).into(), BufferSizes::DEFAULT).expect("loopback has a free port");
        socket.enable_segmentation(Arc::new(AtomicBool::new(true))).map(|()| End::new(socket))
    };
    match (join(), join()) {
        (Ok(here), Ok(there)) => {
            for end in count(here, there) {
                let counters = end.socket.counters();
                assert!(counters.segmented > counters.sent / 2, "{counters:?}");
            }
        }
        (Err(reason), _) | (_, Err(reason)) => eprintln!("skipped: {reason}"),
    }
}
