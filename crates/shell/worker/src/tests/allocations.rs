//! In steady state no message costs an allocation.

use strowger_allocations::{Counting, allocations};

use super::single::Alone;
use super::{options, phone};

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
