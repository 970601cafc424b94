//! In steady state no message costs an allocation.

use strowger_allocations::{Counting, allocations};
use strowger_foundation::ShardId;

use super::single::Alone;
use super::{options, phone};
use crate::handover::Errand;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_warm_loop_allocates_nothing() {
    let mut alone = Alone::new(4);
    let phone = phone(alone.address);
    let (request, mut buffer) = (options("2-hello"), [0; 2048]);
    let mut round = || {
        for _ in 0..20 {
            phone.send(&request).expect("loopback takes it");
        }
        alone.step();
        for _ in 0..20 {
            phone.recv(&mut buffer).expect("an answer in time");
        }
    };
    round();
    round();
    let before = allocations();
    (0..100).for_each(|_| round());
    assert_eq!(allocations() - before, 0);
}

#[test]
fn warm_rings_between_workers_allocate_nothing() {
    let mut alone = Alone::new(32);
    let phone = phone(alone.address);
    let (theirs, ours, mut buffer) = (options("1-hello"), options("2-hello"), [0; 2048]);
    let mut round = || {
        for _ in 0..20 {
            phone.send(&theirs).expect("loopback takes it");
        }
        alone.step();
        for _ in 0..20 {
            let handed = alone.to_second.poll().expect("it is the second one's");
            let sent = alone.from_second.send(Errand::Deliver, ShardId(2), handed.arrival, handed.flow, &ours);
            sent.expect("there is room");
            alone.to_second.give_back(handed.bytes);
        }
        alone.step();
        for _ in 0..20 {
            phone.recv(&mut buffer).expect("an answer in time");
        }
    };
    round();
    round();
    let before = allocations();
    (0..100).for_each(|_| round());
    assert_eq!(allocations() - before, 0);
}
