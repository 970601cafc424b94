//! In steady state, no message costs an allocation.

use std::net::UdpSocket as Phone;

use strowger_allocations::{CountingAllocator, allocations_of};
use strowger_foundation::ShardId;

use super::single::SingleWorker;
use super::{options, phone};
use crate::handover::HandoverCommand;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Messages per round; each is answered.
const MESSAGES: usize = 20;

/// Checks that warm rounds, in which `deal` answers a phone's messages, allocate nothing.
fn assert_free(phone: &Phone, request: &[u8], mut deal: impl FnMut()) {
    let mut buffer = [0; 2048];
    let mut round = || {
        for _ in 0..MESSAGES {
            phone.send(request).expect("loopback takes it");
        }
        deal();
        for _ in 0..MESSAGES {
            phone.recv(&mut buffer).expect("an answer in time");
        }
    };
    // Enough for the first sample of K_snd, too.
    (0..30).for_each(|_| round());
    assert_eq!(allocations_of(|| (0..100).for_each(|_| round())).1, 0);
}

#[test]
fn a_warm_loop_allocates_nothing() {
    let mut alone = SingleWorker::new(4);
    assert_free(&phone(alone.address), &options("2-hello"), || alone.step());
}

#[test]
fn warm_rings_between_workers_allocate_nothing() {
    let mut alone = SingleWorker::new(32);
    let (theirs, ours) = (options("1-hello"), options("2-hello"));
    assert_free(&phone(alone.address), &theirs, || {
        alone.step();
        for _ in 0..MESSAGES {
            let handed = alone.to_second.poll().expect("it is the second one's");
            let arrival = (handed.arrival, handed.received);
            let sent = alone.from_second.send(HandoverCommand::Deliver, ShardId(2), arrival, handed.flow, &ours);
            sent.expect("there is room");
            alone.to_second.recycle(handed.bytes);
        }
        alone.step();
    });
}
